"""Hidden states -> how large they are, and how much they change: what a language model is fined."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.heads.prediction import Prediction, Term
from unmask.model.architecture import Architecture
from unmask.model.canine import Table


@dataclass(frozen=True, kw_only=True)
class Steady:
    """While it learns, hidden states shall be small, and change little from token to token.

    AR and TAR of Merity et al. 2018, arXiv:1708.02182, section 4.6. Deviates: both are of the
    states with dropout, where the paper's second is of those without; `change` is made smaller by
    as much as dropout, which scales up what it leaves, makes squares larger.
    """

    term: str = "steady"
    asked_by: str = "next_token"
    size: float = 2.0
    """Of the mean square of hidden states."""
    change: float = 1.0
    """Of the mean square of differences between neighbors."""

    def build(self, architecture: Architecture, table: Table) -> "SteadyHead":
        """Build the head of a stack."""
        return SteadyHead(self, architecture)


class SteadyHead(nn.Module):
    """Two mean squares, and no weights."""

    def __init__(self, spec: Steady, a: Architecture) -> None:
        super().__init__()
        self.spec = spec
        self.change = spec.change * (1 - a.final_dropout)

    def count(self, batch: Batch) -> dict[str, int]:
        """Count the places that are read in training; otherwise nothing is fined."""
        return {self.spec.term: batch.inputs.numel()} if self.training else {}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, scores: bool = False
    ) -> Prediction:
        """Fine the states of a batch."""
        if not self.training:
            return Prediction()
        x = hidden.float()
        n, total = batch.inputs.numel(), self.spec.size * x.square().mean()
        if x.shape[1] > 1:
            total = total + self.change * (x[:, 1:] - x[:, :-1]).square().mean()
        return Prediction(terms={self.spec.term: Term(total * n, n)})
