"""Hidden states at both ends of a hidden span -> the tokens within."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Batch
from unmask.heads.language import next_loss
from unmask.heads.prediction import Prediction, Term
from unmask.model.architecture import Architecture
from unmask.model.canine import Table, embedding
from unmask.model.parts import ACTIVATIONS, Activation


@dataclass(frozen=True, kw_only=True)
class Boundary:
    """The span boundary objective: name the tokens of a hidden span from its two neighbors.

    Joshi et al. 2020, arXiv:1907.10529, section 3.2, equations 1 to 3: two layers read the hidden
    states of the tokens before and after the span, and a vector of the place within it. Spans side
    by side are one.
    """

    asked_by: ClassVar[str] = "masked"
    """What an objective asks for this to be asked, too."""
    term: str = "boundary"
    width: int = 200
    """Of the vectors of places."""
    longest: int = 20
    """Tokens of a span; those after are not asked (released code, `max_pair_targets`)."""
    activation: Activation = "gelu"
    weight: float = 1.0

    def build(self, architecture: Architecture, table: Table) -> "BoundaryHead":
        """Build the head of a stack whose token table is `table`."""
        return BoundaryHead(self, architecture, embedding(table))


class BoundaryHead(nn.Module):
    """Two layers, and scores by the table of token vectors."""

    def __init__(self, spec: Boundary, a: Architecture, table: nn.Embedding) -> None:
        super().__init__()
        self.spec = spec
        self.places = nn.Embedding(spec.longest, spec.width)
        self.first = nn.Linear(2 * a.d_model + spec.width, a.d_model)
        self.first_norm = a.norm.build(a.d_model)
        self.second = nn.Linear(a.d_model, a.d_embed)
        self.second_norm = a.norm.build(a.d_embed)
        self.bias = nn.Parameter(torch.zeros(a.vocab_size))
        # in a tuple: the backbone's parameter, not one more of this module's
        self._table = (table,)

    def count(self, batch: Batch) -> dict[str, int]:
        """Count the places asked."""
        if batch.targets is None or batch.asked is None:
            return {}
        return {self.spec.term: int((spans(batch.asked)[2] < self.spec.longest).sum())}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, scores: bool = False
    ) -> Prediction:
        """Ask at the places where targets are not IGNORE, if some are shown."""
        if batch.targets is None or batch.asked is None:
            return Prediction()
        before, after, place = spans(batch.asked)
        near = place < self.spec.longest
        flat, targets = hidden.flatten(0, 1), batch.targets.flatten()[batch.asked[near]]
        ends = (flat[before[near]], flat[after[near].clamp(max=len(flat) - 1)])
        x = torch.cat((*ends, self.places(place[near])), -1)
        act = ACTIVATIONS[self.spec.activation]
        x = self.second_norm(act(self.second(self.first_norm(act(self.first(x))))))
        total, right = next_loss(x, self._table[0].weight, self.bias, targets)
        kept = {self.spec.term: F.linear(x, self._table[0].weight, self.bias)} if scores else {}
        term = Term(total, targets.numel(), right, self.spec.weight)
        return Prediction(kept, {self.spec.term: term})


def spans(
    asked: Int[Tensor, "n"],
) -> tuple[Int[Tensor, "n"], Int[Tensor, "n"], Int[Tensor, "n"]]:
    """Find the run of neighbors that each of some rising places is in.

    Return the places before and after it, and where in it each stands, from 0. A row begins and
    ends with a special token, which is never asked, so no run is in two rows.
    """
    order = torch.arange(len(asked), device=asked.device)
    gap = asked.diff() != 1
    one = gap.new_ones(min(1, len(asked)))
    begins, ends = torch.cat((one, gap)), torch.cat((gap, one))
    first = torch.where(begins, order, 0).cummax(0).values
    last = torch.where(ends, order, len(asked)).flip(0).cummin(0).values.flip(0)
    return (asked[first] - 1).clamp(min=0), asked[last] + 1, order - first
