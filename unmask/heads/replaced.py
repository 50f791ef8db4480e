"""Hidden states -> is this token the one that stood here? Asked of every token."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Batch
from unmask.heads.prediction import Prediction, Term
from unmask.model.architecture import Architecture
from unmask.model.canine import Table
from unmask.model.parts import ACTIVATIONS, Activation


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """Was this token replaced by another? A yes or no of each token, padding apart.

    Clark et al. 2020, arXiv:2003.10555, section 2, equation of the discriminator's loss. What
    replaces tokens is a `Generator`.
    """

    asked_by: ClassVar[str] = "masked"
    """What an objective asks for this to be asked, too."""
    term: str = "replaced"
    activation: Activation = "gelu"
    weight: float = 50.0
    """Section 3.2 and appendix A: 50, since a yes or no costs much less than a token's name."""

    def build(self, architecture: Architecture, table: Table) -> "ReplacedHead":
        """Build the head of a stack."""
        return ReplacedHead(self, architecture)


class ReplacedHead(nn.Module):
    """A score of each token, above 0 where it says that the token was replaced."""

    def __init__(self, spec: Replaced, a: Architecture) -> None:
        super().__init__()
        self.spec = spec
        self.dense = nn.Linear(a.d_model, a.d_model)
        self.out = nn.Linear(a.d_model, 1)

    def scores(self, hidden: Float[Tensor, "b t d"], batch: Batch) -> Float[Tensor, "b t"]:
        """Score each token."""
        return self.out(ACTIVATIONS[self.spec.activation](self.dense(hidden)))[..., 0]

    def count(self, batch: Batch) -> dict[str, int]:
        """Count the tokens that are asked: where some are hidden, all but padding."""
        return {} if batch.targets is None else {self.spec.term: int(batch.read().sum())}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, scores: bool = False
    ) -> Prediction:
        """Ask of each token whether it is the text's."""
        said = self.scores(hidden, batch).float()
        kept = {self.spec.term: said} if scores else {}
        if batch.original is None:
            return Prediction(kept)
        read, replaced = batch.read(), batch.inputs != batch.original
        each = F.binary_cross_entropy_with_logits(said, replaced.float(), reduction="none")
        right = ((said > 0) == replaced) & read
        term = Term((each * read).sum(), int(read.sum()), right.sum(), self.spec.weight)
        return Prediction(kept, {self.spec.term: term})
