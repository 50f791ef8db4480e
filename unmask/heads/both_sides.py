"""Hidden states of two readers -> the word between them, which each of them names (ELMo)."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.heads.language import Language
from unmask.heads.prediction import Prediction, Term
from unmask.model.adaptive import Adaptive
from unmask.model.architecture import Architecture
from unmask.model.canine import Table
from unmask.model.transformer import table_of
from unmask.tokens.vocabulary import Special


@dataclass(frozen=True, kw_only=True)
class BothSides:
    """The head of a forward and a backward language model, which share the vectors of words.

    Peters et al. 2018, arXiv:1802.05365, section 3.1. The loss is the mean of both.
    """

    size: int
    """Words."""
    cutoffs: tuple[int, ...] = ()
    """Of many words the rarer ones are scored in clusters, the first of which begin here
    (`unmask.model.adaptive`). Deviates: the released code draws 8,192 wrong answers for a step."""
    term: str = "both_sides"

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be at least 1, got {self.size}")

    def fitted(self, special: Special) -> "BothSides":
        """Return the head for the words that a tokenizer knows beside characters."""
        known = special.subwords
        return self if known is None else replace(self, size=known.special.size)

    def build(self, architecture: Architecture, table: Table) -> "BothSidesHead":
        """Build the head of a stack whose two halves are two readers."""
        return BothSidesHead(self, architecture)


class BothSidesHead(nn.Module):
    """Scores of words by either half of hidden states, and their cross-entropy."""

    def __init__(self, spec: BothSides, a: Architecture) -> None:
        super().__init__()
        self.spec = spec
        words = Architecture(
            vocab_size=spec.size, d_model=a.d_model // 2, n_layers=1, n_heads=1, d_ff=1,
            adaptive=Adaptive(spec.cutoffs) if spec.cutoffs else None,
        )  # fmt: skip
        self.table = table_of(words)
        self.names = Language(bias=True).build(words, self.table)

    def flops(self, length: int, asked: float) -> float:
        """Count the forward's FLOPs a token: of both scores."""
        return 2 * self.names.flops(length, asked)

    def count(self, batch: Batch) -> dict[str, int]:
        """Count the answers, two for each place asked, without reading a tensor."""
        if batch.targets is None:
            return {}
        n = batch.targets.numel() if batch.asked is None else batch.asked.numel()
        return {self.spec.term: 2 * n}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, scores: bool = False
    ) -> Prediction:
        """Ask at the places where targets are not IGNORE; with `scores`, also return those.

        First all that are told from what stands before, then those told from what stands after.

        Raises:
            ValueError: the batch is not blind, so that the answers would be known.
        """
        if batch.targets is None:
            return Prediction()
        if not batch.blind:
            raise ValueError("a word between two readers is asked of those who have not read it")
        flat, targets = hidden.flatten(0, 1), batch.targets.flatten()
        if batch.asked is not None:
            flat, targets = flat[batch.asked], targets[batch.asked]
        both = torch.cat(flat.chunk(2, -1))  # [2n d/2]
        total, right = self.names.loss(both, targets.repeat(2))
        said = {self.spec.term: self.names.scores(both)} if scores else {}
        return Prediction(said, {self.spec.term: Term(total, len(both), right)})
