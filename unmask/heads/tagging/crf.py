"""A linear-chain conditional random field: logits of each word's labels -> label sequences.

Lafferty et al. 2001, doi:10.5555/645530.655813; on an LSTM as in Lample et al. 2016,
arXiv:1603.01360, section 2.2.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

BOUNDARY = -1
"""Stands for the beginning or end of a sequence, in place of a label."""

_FORBIDDEN_COST = 1e4
"""Cost of a forbidden transition in decoding. It is finite, so that decoding finds the sequence
with the fewest forbidden transitions if all sequences have some."""


class CRF(nn.Module):
    """A distribution over label sequences: a softmax of their scores.

    The score of a sequence is the sum of the scores of its labels and of its transitions, including
    those from the beginning and to the end (Lample et al. 2016, section 2.2). Transition scores are
    learned, and initialized to zero, so that labels are independent at first.

    Sequences are in rows of at least one column; columns from `lengths` on are ignored. All
    computation is in float32.

    Args:
        n_labels: number of labels.
        forbidden_transitions: pairs of labels of which the second never follows the first;
            `BOUNDARY` as the first is the beginning of a sequence, as the second its end. Decoding
            avoids them. Probabilities do not exclude them, so that no sequence has an infinite loss
            (Lester et al. 2020, arXiv:2010.04362).

    Raises:
        ValueError: a pair has an unknown label.
    """

    def __init__(
        self, n_labels: int, forbidden_transitions: Sequence[tuple[int, int]] = ()
    ) -> None:
        super().__init__()
        for pair in forbidden_transitions:
            if not all(BOUNDARY <= label < n_labels for label in pair):
                raise ValueError(
                    f"labels of forbidden_transitions must be from {BOUNDARY} (the boundary) to "
                    f"{n_labels - 1}, got {tuple(pair)}"
                )
        cost = torch.zeros(n_labels + 1, n_labels + 1)
        for before, behind in forbidden_transitions:
            cost[before, behind] = _FORBIDDEN_COST  # BOUNDARY, -1, is the last row and column
        self.register_buffer("cost", cost, persistent=False)
        self.transitions = nn.Parameter(torch.zeros(n_labels, n_labels))
        """Scores of transitions from the label of the row to that of the column."""
        self.begin = nn.Parameter(torch.zeros(n_labels))
        self.end = nn.Parameter(torch.zeros(n_labels))

    def log_likelihood(
        self,
        emissions: Float[Tensor, "b t labels"],
        labels: Int[Tensor, "b t"],
        lengths: Int[Tensor, "b"],
    ) -> Float[Tensor, "b"]:
        """Compute the log-probability of label sequences, in nats; 0 for an empty sequence."""
        return self.score(emissions, labels, lengths) - self.log_partition(emissions, lengths)

    def score(
        self,
        emissions: Float[Tensor, "b t labels"],
        labels: Int[Tensor, "b t"],
        lengths: Int[Tensor, "b"],
    ) -> Float[Tensor, "b"]:
        """Compute the score of label sequences (Lample et al. 2016, section 2.2)."""
        real = _valid_positions(emissions, lengths)
        labels = labels.where(real, 0)
        own = emissions.float().gather(2, labels[..., None])[..., 0]  # [b t]
        steps = self.transitions.float()[labels[:, :-1], labels[:, 1:]]  # [b t-1]
        total = own.where(real, 0).sum(1) + steps.where(real[:, 1:], 0).sum(1)
        last = labels.gather(1, (lengths - 1).clamp(min=0)[:, None])[:, 0]
        ends = self.begin.float()[labels[:, 0]] + self.end.float()[last]
        return total + ends.where(lengths > 0, 0)

    def log_partition(
        self, emissions: Float[Tensor, "b t labels"], lengths: Int[Tensor, "b"]
    ) -> Float[Tensor, "b"]:
        """Compute the log-sum-exp of the scores of all sequences; 0 for an empty sequence."""
        total = (self._forward(emissions, lengths)[:, -1] + self.end.float()).logsumexp(-1)
        return total.where(lengths > 0, 0)

    def log_marginals(
        self, emissions: Float[Tensor, "b t labels"], lengths: Int[Tensor, "b"]
    ) -> Float[Tensor, "b t labels"]:
        """Compute the marginal log-probability of each label of each word.

        Rabiner 1989, doi:10.1109/5.18626, section III.B. After the end of a sequence all labels are
        equally likely.
        """
        before = self._forward(emissions, lengths)
        behind = self._backward(emissions, lengths)
        real = _valid_positions(emissions, lengths)[..., None]
        return (before + behind).where(real, 0).log_softmax(-1)

    def initialize_parameters(self) -> None:
        """Initialize to zero."""
        for p in self.parameters():
            nn.init.zeros_(p)

    @torch.no_grad()
    def decode(
        self, emissions: Float[Tensor, "b t labels"], lengths: Int[Tensor, "b"]
    ) -> Int[Tensor, "b t"]:
        """Find the most likely label sequences (Viterbi 1967, doi:10.1109/TIT.1967.1054010).

        The last label is repeated after the end of a sequence.
        """
        emissions, real = emissions.float(), _valid_positions(emissions, lengths)
        begin, steps, end = self._penalized_parameters()
        n = emissions.shape[-1]
        stay = torch.arange(n, device=emissions.device).expand(len(emissions), n)
        best = begin + emissions[:, 0]  # [b labels]
        pointers: list[Tensor] = []
        for i in range(1, emissions.shape[1]):
            path_scores, pointer = (best[:, :, None] + steps).max(1)
            on = real[:, i, None]
            best = (path_scores + emissions[:, i]).where(on, best)
            pointers.append(pointer.where(on, stay))
        path = [(best + end).argmax(-1)]
        for pointer in reversed(pointers):
            path.append(pointer.gather(1, path[-1][:, None])[:, 0])
        return torch.stack(path[::-1], 1)

    def _penalized_parameters(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores of beginnings, transitions and ends, less the cost of forbidden ones."""
        cost = self.get_buffer("cost").float()
        return (
            self.begin.float() - cost[-1, :-1],
            self.transitions.float() - cost[:-1, :-1],
            self.end.float() - cost[:-1, -1],
        )

    def _forward(
        self, emissions: Float[Tensor, "b t labels"], lengths: Int[Tensor, "b"]
    ) -> Float[Tensor, "b t labels"]:
        """Compute the forward messages: log-sums over all labels of the words before each."""
        emissions, real, steps = (
            emissions.float(),
            _valid_positions(emissions, lengths),
            self.transitions.float(),
        )
        sums = [self.begin.float() + emissions[:, 0]]
        for i in range(1, emissions.shape[1]):
            path_scores = (sums[-1][:, :, None] + steps).logsumexp(1) + emissions[:, i]
            sums.append(path_scores.where(real[:, i, None], sums[-1]))
        return torch.stack(sums, 1)

    def _backward(
        self, emissions: Float[Tensor, "b t labels"], lengths: Int[Tensor, "b"]
    ) -> Float[Tensor, "b t labels"]:
        """Compute the backward messages: log-sums over all labels of the words after each."""
        emissions, real, steps = (
            emissions.float(),
            _valid_positions(emissions, lengths),
            self.transitions.float(),
        )
        end = self.end.float().expand(emissions[:, 0].shape)
        sums = [end]
        for i in range(emissions.shape[1] - 1, 0, -1):
            path_scores = ((sums[-1] + emissions[:, i])[:, None] + steps).logsumexp(2)
            sums.append(path_scores.where(real[:, i, None], end))
        return torch.stack(sums[::-1], 1)


def _valid_positions(
    scores: Float[Tensor, "b t labels"], lengths: Int[Tensor, "b"]
) -> Bool[Tensor, "b t"]:
    return torch.arange(scores.shape[1], device=scores.device) < lengths[:, None]
