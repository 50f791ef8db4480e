"""Training on responses from a file: what a step computes of pairs, or of single responses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.batch import Batch
from unmask.heads.classification.choice_groups import ChoiceGroups
from unmask.heads.model import Model
from unmask.heads.prediction import Prediction, Term
from unmask.preferences.pair_losses import KTO, PairLogProbabilities, PairLoss
from unmask.preferences.reference import Reference
from unmask.preferences.responses import (
    ReferenceScore,
    RowFeature,
    ScoredTokens,
    count_target_tokens,
    score_tokens,
)

PREFERENCE = "preference"
"""Name of the loss term."""


def measure(total: Tensor, count: int) -> Term:
    """Return a quantity that is shown and has no gradient: a sum, and over how many."""
    return Term(total.detach().float(), count, weight=0.0)


@dataclass(frozen=True)
class Desirability(RowFeature):
    """Whether a response is desirable: 1 or 0."""

    value: Any


def reference_log_probabilities(
    batch: Batch, reference: Reference | None
) -> Float[Tensor, "b"] | None:
    """Return the reference's log-probabilities of a batch, known or computed; None: there is none.

    Raises:
        ValueError: there is no reference.
    """
    known = batch.feature(ReferenceScore)
    if known is not None:
        return known.log_probability.float()
    return None if reference is None else reference.score_batch(batch).row_log_probabilities


@dataclass(frozen=True)
class PairForward:
    """The loss of pairs of responses; of each pair the chosen one is in the row before the other.

    The loss is a mean over pairs; `accuracy` is how often the policy has moved towards the chosen
    response more than towards the other, or without a reference, how often it finds it likelier by
    token.
    """

    model: Model
    loss: PairLoss
    reference: Reference | None

    def count_targets(self, batch: Batch) -> Mapping[str, int]:
        """Count pairs, responses and their tokens."""
        n, tokens = len(batch.inputs) // 2, count_target_tokens(batch)
        counts = {PREFERENCE: n, "margin": n, "entropy": tokens, "length": 2 * n}
        return counts | ({"chosen": n, "rejected": n} if self.loss.needs_reference else {})

    def __call__(self, batch: Batch) -> Prediction:
        """Compute the loss of the pairs of a batch."""
        scored = score_tokens(self.model, batch)
        pairs = self._pairs(scored, batch)
        losses = self.loss(pairs)
        margins = _margins(pairs)
        n = len(losses)
        terms = {
            PREFERENCE: Term(losses.sum(), n, n_correct=(margins > 0).sum()),
            "margin": measure(margins.sum(), n),
            "entropy": measure(scored.entropy.sum(), len(scored.entropy)),
            "length": measure(scored.lengths.sum(), 2 * n),
        }
        if self.loss.needs_reference:
            ratios = zip(("chosen", "rejected"), pairs.log_ratios, strict=True)
            terms |= {name: measure(ratio.sum(), n) for name, ratio in ratios}
        return Prediction(terms=terms)

    def _pairs(self, scored: ScoredTokens, batch: Batch) -> PairLogProbabilities:
        _check_pairs(batch)
        sums, lengths = scored.row_log_probabilities, scored.lengths
        found = None
        if self.loss.needs_reference:
            found = reference_log_probabilities(batch, self.reference)
        return PairLogProbabilities(
            chosen=sums[::2],
            rejected=sums[1::2],
            chosen_length=lengths[::2],
            rejected_length=lengths[1::2],
            reference_chosen=None if found is None else found[::2],
            reference_rejected=None if found is None else found[1::2],
        )


def _check_pairs(batch: Batch) -> None:
    numbers = ChoiceGroups.numbers_of(batch)
    assert numbers is not None, "responses without their pairs"
    assert len(numbers) % 2 == 0
    assert bool((numbers[::2] == numbers[1::2]).all()), "a pair is not in two rows in a row"


def _margins(pairs: PairLogProbabilities) -> Float[Tensor, "n"]:
    """Return by how much the chosen response is preferred, in nats, without a gradient."""
    with torch.no_grad():
        if pairs.reference_chosen is not None:
            return pairs.margins
        return pairs.chosen / pairs.chosen_length - pairs.rejected / pairs.rejected_length


@dataclass(frozen=True)
class KTOForward:
    """The loss of single responses, desirable or not.

    Each is followed by a row with its prompt and the response to another one, by which the
    divergence is estimated. The loss is a mean over responses (Ethayarajh et al. 2024,
    arXiv:2402.01306).
    """

    model: Model
    loss: KTO
    reference: Reference | None

    def count_targets(self, batch: Batch) -> Mapping[str, int]:
        """Count responses and their tokens."""
        n = len(batch.inputs) // 2
        return {PREFERENCE: n, "divergence": n, "entropy": count_target_tokens(batch), "length": n}

    def __call__(self, batch: Batch) -> Prediction:
        """Compute the loss of the responses of a batch."""
        _check_pairs(batch)
        scored = score_tokens(self.model, batch)
        reference = reference_log_probabilities(batch, self.reference)
        desirability = batch.feature(Desirability)
        assert reference is not None
        assert desirability is not None, "responses without a label"
        ratios = scored.row_log_probabilities - reference
        own, mismatched = ratios[::2], ratios[1::2]
        is_desirable = desirability.value[::2] > 0
        divergence = self.loss.divergence(mismatched)
        losses = self.loss(own, is_desirable, divergence)
        n = len(losses)
        return Prediction(
            terms={
                PREFERENCE: Term(
                    losses.sum(), n, n_correct=((own > divergence) == is_desirable).sum()
                ),
                "divergence": measure(divergence * n, n),
                "entropy": measure(scored.entropy.sum(), len(scored.entropy)),
                "length": measure(scored.lengths[::2].sum(), n),
            }
        )
