"""How much better each response, or each of its tokens, was than expected."""

from dataclasses import dataclass
from functools import singledispatch

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unmask.preferences.methods import LeaveOneOut, OnlineMethod, RejectionSampling
from unmask.preferences.online.policy import (
    ClippedLoss,
    ImitationLoss,
    PolicyLoss,
    ReinforceLoss,
)
from unmask.preferences.policy_gradient import (
    PPO,
    leave_one_out_advantages,
    whiten,
)


@dataclass(frozen=True, kw_only=True)
class WrittenBatch:
    """Responses of one batch as rows; their tokens as columns, from the first token of each."""

    rewards: Float[Tensor, "n"]
    log_probabilities: Float[Tensor, "n t"]
    reference: Float[Tensor, "n t"]
    values: Float[Tensor, "n t"]
    mask: Bool[Tensor, "n t"]


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """What is learned of a batch of responses."""

    kept: tuple[int, ...]
    """Rows that are learned."""
    advantages: Float[Tensor, "n t"]
    returns: Float[Tensor, "n t"]


@singledispatch
def estimate_advantages(method: OnlineMethod, batch: WrittenBatch) -> Estimates:
    """Estimate the advantage of each token of a batch, and the returns that values should be."""
    raise TypeError(f"not a method that writes responses: {method}")


@estimate_advantages.register
def _(method: PPO, batch: WrittenBatch) -> Estimates:
    """Estimate by values; advantages are whitened over all tokens of the batch."""
    rewards = method.token_rewards(
        batch.rewards, batch.log_probabilities, batch.reference, batch.mask
    )
    if method.whiten_rewards:
        rewards = whiten(rewards, batch.mask, keep_mean=True)
    advantages, returns = method.advantages(rewards, batch.values, batch.mask)
    return Estimates(
        kept=tuple(range(len(rewards))),
        advantages=whiten(advantages, batch.mask),
        returns=returns,
    )


@estimate_advantages.register
def _(method: LeaveOneOut, batch: WrittenBatch) -> Estimates:
    """Estimate by the other responses to a prompt."""
    ratios = ((batch.log_probabilities - batch.reference) * batch.mask).sum(1)
    rewards = batch.rewards - method.kl_weight * ratios
    own = leave_one_out_advantages(rewards.view(-1, method.responses)).flatten()
    advantages = own[:, None] * batch.mask
    return Estimates(
        kept=tuple(range(len(own))), advantages=advantages, returns=torch.zeros_like(advantages)
    )


@estimate_advantages.register
def _(method: RejectionSampling, batch: WrittenBatch) -> Estimates:
    """Keep the best response to each prompt, of equal ones the first."""
    best = batch.rewards.view(-1, method.responses).argmax(1)
    rows = best + torch.arange(len(best)) * method.responses
    none = torch.zeros_like(batch.values)
    return Estimates(kept=tuple(rows.tolist()), advantages=none, returns=none)


@singledispatch
def policy_loss_of(method: OnlineMethod) -> PolicyLoss:
    """Return the loss of a method."""
    raise TypeError(f"not a method that writes responses: {method}")


@policy_loss_of.register
def _(method: PPO) -> PolicyLoss:
    return ClippedLoss(method)


@policy_loss_of.register
def _(method: LeaveOneOut) -> PolicyLoss:
    return ReinforceLoss()


@policy_loss_of.register
def _(method: RejectionSampling) -> PolicyLoss:
    return ImitationLoss()
