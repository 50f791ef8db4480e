"""Training on responses that the policy wrote: what a step computes of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.batch import Batch, ExampleRows, Feature
from unmask.heads.model import Model
from unmask.heads.prediction import Prediction, Term
from unmask.preferences.online.values import values_of
from unmask.preferences.pair_training import measure
from unmask.preferences.policy_gradient import PPO
from unmask.preferences.responses import (
    RowFeature,
    ScoredTokens,
    count_target_tokens,
    score_tokens,
    target_positions,
)

POLICY, PRETRAINING = "policy", "pretraining"
"""Names of loss terms."""


@dataclass(frozen=True, kw_only=True)
class RolloutTokens(Feature):
    """What is known of the tokens of a response when it was written; at other columns 0."""

    column_fields: ClassVar[Mapping[str, float]] = {
        "old": 0.0, "reference": 0.0, "advantages": 0.0, "values": 0.0, "returns": 0.0,
    }  # fmt: skip
    old: Any
    """Log-probability under the policy that wrote it."""
    reference: Any
    """Log-probability under the reference model."""
    advantages: Any
    values: Any
    """Estimated before the step."""
    returns: Any
    """What the values should have been."""

    def at(self, batch: Batch, name: str) -> Float[Tensor, "n"]:
        """Return a field at the targets of a batch."""
        return getattr(self, name).flatten()[target_positions(batch)]


@dataclass(frozen=True)
class RolloutScore(RowFeature):
    """The reward of a response, and whether it was cut, 1 or 0."""

    reward: Any
    is_cut: Any


@dataclass(frozen=True)
class PlainText(Feature):
    """Marks rows of plain text, of which the language-model loss is computed."""

    @classmethod
    def collate(cls, rows: ExampleRows) -> Feature | None:
        """Return the mark."""
        return cls()


Terms = dict[str, Term]


@runtime_checkable
class PolicyLoss(Protocol):
    """The loss of tokens of responses."""

    def terms(self, model: Model, batch: Batch, hidden: Tensor, scored: ScoredTokens) -> Terms:
        """Compute the terms of the loss."""
        ...

    def count_targets(self, n_tokens: int, n_rows: int) -> Mapping[str, int]:
        """Count the targets of each term."""
        ...


@dataclass(frozen=True)
class ClippedLoss:
    """PPO's losses of policy and values; see `PPO`. Means over the tokens of a step."""

    settings: PPO

    def count_targets(self, n_tokens: int, n_rows: int) -> Mapping[str, int]:
        """Count tokens."""
        return {POLICY: n_tokens, "value": n_tokens, "clipped": n_tokens}

    def terms(self, model: Model, batch: Batch, hidden: Tensor, scored: ScoredTokens) -> Terms:
        """Compute the losses of policy and values, and the share of tokens that are clipped."""
        known = batch.feature(RolloutTokens)
        assert known is not None
        n = len(scored.log_probabilities)
        every = torch.ones(1, n, dtype=torch.bool, device=hidden.device)
        loss, clipped = self.settings.policy_loss(
            scored.log_probabilities[None],
            known.at(batch, "old")[None],
            known.at(batch, "advantages")[None],
            every,
        )
        values = values_of(model, batch, hidden).flatten()[target_positions(batch)]
        value_loss = self.settings.value_loss(
            values[None], known.at(batch, "values")[None], known.at(batch, "returns")[None], every
        )
        return {
            POLICY: Term(loss * n, n),
            "value": Term(value_loss * n, n, weight=self.settings.value_weight),
            "clipped": measure(clipped * n, n),
        }


@dataclass(frozen=True)
class ReinforceLoss:
    """-A(y) log pi(y) of each response y; a mean over responses (Williams 1992)."""

    def count_targets(self, n_tokens: int, n_rows: int) -> Mapping[str, int]:
        """Count responses."""
        return {POLICY: n_rows}

    def terms(self, model: Model, batch: Batch, hidden: Tensor, scored: ScoredTokens) -> Terms:
        """Compute the loss of the responses."""
        known = batch.feature(RolloutTokens)
        assert known is not None
        products = known.at(batch, "advantages") * scored.log_probabilities
        return {POLICY: Term(-products.sum(), scored.n_rows)}


@dataclass(frozen=True)
class ImitationLoss:
    """-log p of each token: the best responses are targets. A mean over tokens."""

    def count_targets(self, n_tokens: int, n_rows: int) -> Mapping[str, int]:
        """Count tokens."""
        return {POLICY: n_tokens}

    def terms(self, model: Model, batch: Batch, hidden: Tensor, scored: ScoredTokens) -> Terms:
        """Compute the loss of the tokens."""
        return {POLICY: Term(-scored.log_probabilities.sum(), len(scored.log_probabilities))}


@dataclass(frozen=True)
class PolicyForward:
    """The loss of responses that the policy wrote, and of plain text beside it."""

    model: Model
    loss: PolicyLoss
    text_weight: float = 0.0
    """Weight of the language-model loss on plain text (Ouyang et al. 2022, equation 2: gamma)."""

    def count_targets(self, batch: Batch) -> Mapping[str, int]:
        """Count the targets of each term."""
        n_tokens, n = count_target_tokens(batch), len(batch.inputs)
        if batch.has(PlainText):
            return {PRETRAINING: n_tokens}
        shown = {"reward": n, "kl": n, "entropy": n_tokens, "length": n, "cut": n}
        return {**self.loss.count_targets(n_tokens, n), **shown}

    def __call__(self, batch: Batch) -> Prediction:
        """Compute the loss of a batch."""
        hidden = self.model.hidden_states(batch)
        scored = score_tokens(self.model, batch, hidden)
        n_tokens, n = len(scored.log_probabilities), scored.n_rows
        if batch.has(PlainText):
            total = -scored.log_probabilities.sum()
            return Prediction(terms={PRETRAINING: Term(total, n_tokens, weight=self.text_weight)})
        known, score = batch.feature(RolloutTokens), batch.feature(RolloutScore)
        assert known is not None
        assert score is not None
        ratios = scored.log_probabilities - known.at(batch, "reference")
        return Prediction(
            terms={
                **self.loss.terms(self.model, batch, hidden, scored),
                "reward": measure(score.reward.sum(), n),
                "kl": measure(ratios.sum(), n),
                "entropy": measure(scored.entropy.sum(), n_tokens),
                "length": measure(scored.lengths.sum(), n),
                "cut": measure(score.is_cut.sum(), n),
            }
        )
