"""The span boundary objective: both ends of a masked span -> its tokens."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.heads.language.linear_cross_entropy import linear_cross_entropy
from unmask.heads.prediction import Prediction, Term
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import StackArchitecture
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding, require_embedding_table
from unmask.model.layers.feed_forward import ACTIVATIONS, Activation
from unmask.objectives.described import DescribedInputs, DescribedLoss


@dataclass(frozen=True, kw_only=True)
class SpanBoundaryObjective(HeadSpec):
    """Predicts the tokens of a masked span from its two neighbors.

    Joshi et al. 2020, arXiv:1907.10529, section 3.2, equations 1 to 3: two layers over
    the hidden states of the tokens before and after the span, and an embedding of the position
    within it. Adjacent spans count as one.
    """

    required_term: ClassVar[str] = "masked"
    """The term that an objective must have for this one to be computed, too."""
    term: str = "boundary"
    position_embedding_size: int = 200
    """Size of the position embeddings."""
    max_span_length: int = 20
    """Maximum number of predicted tokens per span (released code, `max_pair_targets`)."""
    activation: Activation = "gelu"
    weight: float = 1.0

    @property
    def objective_term(self) -> str:
        """The term that an objective must have for this one to be computed, too."""
        return self.required_term

    def describe_losses(self, example: Example) -> tuple[DescribedLoss, ...]:
        """The first tokens of each span once more."""
        index = self._spans(example)[2]
        loss = "cross-entropy of the token, from both ends of its span and its place in it"
        n = int((index < self.max_span_length).sum())
        return (DescribedLoss(term=self.term, n=n, loss=loss, weight=self.weight),)

    def describe_inputs(
        self, example: Example, drawn: Int[np.ndarray, "t"], source: str
    ) -> tuple[DescribedInputs, ...]:
        """Return, span by span, both ends with the places between them."""
        before, after, index = self._spans(example)
        targets = example.targets[example.targets != IGNORE_INDEX]
        ids, answers, segments = list[int](), list[int | str | None](), list[int]()
        for k, first in enumerate(np.flatnonzero(index == 0).tolist()):
            n = min(int((before == before[first]).sum()), self.max_span_length)
            answers_here = targets[first : first + n]
            ends = example.inputs[[before[first], min(after[first], len(example.inputs) - 1)]]
            ids += [int(ends[0]), *range(-1, -1 - len(answers_here), -1), int(ends[1])]
            answers += [None, *answers_here.tolist(), None]
            segments += [k] * (len(answers_here) + 2)
        title = "inputs of the span boundary objective: states of both ends of a span, and a place"
        ids_read = np.array(ids, np.int64)
        return (DescribedInputs(title=title, ids=ids_read, answers=answers, segments=segments),)

    @staticmethod
    def _spans(example: Example) -> tuple[np.ndarray, ...]:
        """Return the positions before and after each target's span, and its index there."""
        where = torch.from_numpy(np.flatnonzero(example.targets != IGNORE_INDEX))
        return tuple(x.numpy() for x in span_of_position(where))

    def build(
        self, architecture: StackArchitecture, embedding_table: TokenEmbedding
    ) -> "SpanBoundaryObjectiveHead":
        """Build the head of an architecture with token embeddings `embedding_table`."""
        return SpanBoundaryObjectiveHead(
            self, architecture, require_embedding_table(embedding_table)
        )


class SpanBoundaryObjectiveHead(nn.Module):
    """Two layers, and an output layer tied to the token embeddings."""

    def __init__(
        self, spec: SpanBoundaryObjective, a: StackArchitecture, embedding_table: nn.Embedding
    ) -> None:
        super().__init__()
        self.spec = spec
        self.places = nn.Embedding(spec.max_span_length, spec.position_embedding_size)
        self.first = nn.Linear(2 * a.d_model + spec.position_embedding_size, a.d_model)
        self.first_norm = a.norm.build(a.d_model)
        self.second = nn.Linear(a.d_model, a.d_embed)
        self.second_norm = a.norm.build(a.d_embed)
        self.bias = nn.Parameter(torch.zeros(a.vocab_size))
        # in a tuple: a parameter of the backbone, not of this module
        self._table = (embedding_table,)

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the targets."""
        if batch.targets is None or batch.target_positions is None:
            return {}
        return {
            self.spec.term: int(
                (span_of_position(batch.target_positions)[2] < self.spec.max_span_length).sum()
            )
        }

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Score the positions whose target is not IGNORE, if some tokens are not masked."""
        if batch.targets is None or batch.target_positions is None:
            return Prediction()
        before, after, index_in_span = span_of_position(batch.target_positions)
        near = index_in_span < self.spec.max_span_length
        flat, targets = hidden.flatten(0, 1), batch.targets.flatten()[batch.target_positions[near]]
        ends = (flat[before[near]], flat[after[near].clamp(max=len(flat) - 1)])
        x = torch.cat((*ends, self.places(index_in_span[near])), -1)
        act = ACTIVATIONS[self.spec.activation]
        x = self.second_norm(act(self.second(self.first_norm(act(self.first(x))))))
        total, n_correct = linear_cross_entropy(x, self._table[0].weight, self.bias, targets)
        logits = (
            {self.spec.term: F.linear(x, self._table[0].weight, self.bias)} if return_logits else {}
        )
        term = Term(total, targets.numel(), n_correct, self.spec.weight)
        return Prediction(logits, {self.spec.term: term})


def span_of_position(
    target_positions: Int[Tensor, "n"],
) -> tuple[Int[Tensor, "n"], Int[Tensor, "n"], Int[Tensor, "n"]]:
    """Find the run of consecutive positions that contains each of some ascending positions.

    Return the positions before and after the run, and the index of each position in it, from 0. A
    row begins and ends with a special token, which is never a target, so no run is in two rows.
    """
    order = torch.arange(len(target_positions), device=target_positions.device)
    gap = target_positions.diff() != 1
    edge = gap.new_ones(min(1, len(target_positions)))
    begins, ends = torch.cat((edge, gap)), torch.cat((gap, edge))
    first = torch.where(begins, order, 0).cummax(0).values
    last = torch.where(ends, order, len(target_positions)).flip(0).cummin(0).values.flip(0)
    return (target_positions[first] - 1).clamp(min=0), target_positions[last] + 1, order - first
