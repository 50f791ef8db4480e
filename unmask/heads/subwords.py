"""Hidden states of characters -> the subwords hidden among them, each at one place (CANINE-S)."""

from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.heads.language import next_loss
from unmask.heads.prediction import Prediction, Term
from unmask.model.architecture import Architecture
from unmask.model.canine import Table
from unmask.tokens.vocabulary import Special


@dataclass(frozen=True, kw_only=True)
class HiddenSubwords:
    """The head that names hidden subwords, of a vocabulary that the network does not read.

    Clark et al. 2022, arXiv:2103.06874, section 3.2.2: a softmax over all subwords, whose vectors
    are of this head alone and discarded when pretraining ends.
    """

    size: int
    """Subwords."""
    term: str = "subwords"

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be at least 1, got {self.size}")

    def fitted(self, special: Special) -> "HiddenSubwords":
        """Return the head for the subwords that a tokenizer knows beside characters."""
        known = special.subwords
        return self if known is None else replace(self, size=known.special.size)

    def build(self, architecture: Architecture, table: Table) -> "HiddenSubwordsHead":
        """Build the head of a stack."""
        return HiddenSubwordsHead(self, architecture)


class HiddenSubwordsHead(nn.Module):
    """Scores of subwords at the places asked, and their cross-entropy."""

    def __init__(self, spec: HiddenSubwords, a: Architecture) -> None:
        super().__init__()
        self.spec = spec
        self.out = nn.Linear(a.d_model, spec.size)

    def flops(self, length: int, asked: float) -> float:
        """Count the forward's FLOPs a token: of the scores."""
        return asked * 2 * self.out.weight.numel()

    def count(self, batch: Batch) -> dict[str, int]:
        """Count the places asked, without reading a tensor."""
        if batch.targets is None:
            return {}
        n = batch.targets.numel() if batch.asked is None else batch.asked.numel()
        return {self.spec.term: n}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, scores: bool = False
    ) -> Prediction:
        """Ask at the places where targets are not IGNORE; with `scores`, also return those."""
        if batch.targets is None:
            return Prediction()
        flat, targets = hidden.flatten(0, 1), batch.targets.flatten()
        if batch.asked is not None:
            flat, targets = flat[batch.asked], targets[batch.asked]
        total, right = next_loss(flat, self.out.weight, self.out.bias, targets)
        said = {self.spec.term: self.out(flat)} if scores else {}
        return Prediction(said, {self.spec.term: Term(total, targets.numel(), right)})
