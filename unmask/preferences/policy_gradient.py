"""Policy gradients of responses: PPO's advantages and losses, and the leave-one-out baseline.

Rows are responses, columns their tokens; a mask says which columns are tokens of a response.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unmask.config import check_number_fields

_LEAST_VARIANCE = 1e-8


@dataclass(frozen=True, kw_only=True)
class PPO:
    """Proximal policy optimization: Schulman et al. 2017, arXiv:1707.06347.

    For texts: Stiennon et al. 2020, arXiv:2009.01325, section "Models"; the defaults are those of
    Huang et al. 2024, arXiv:2403.17031, section "PPO Details".
    """

    has_values: ClassVar[bool] = True
    """Whether a value network is learned."""
    kl_weight: float = 0.05
    """Weight of the divergence from the reference in the reward of each token, in rewards per
    nat."""
    discount: float = 1.0
    """Discount of later rewards (gamma)."""
    gae_lambda: float = 0.95
    """Decay of generalized advantage estimation: 1 is an unbiased return, 0 a single step."""
    clip_range: float = 0.2
    """Change of a token's probability ratio beyond which it has no gradient."""
    value_clip_range: float = 0.2
    """Change of a value beyond which it has no gradient."""
    value_weight: float = 0.1
    """Weight of the value loss."""
    responses: int = 1
    """Responses to a prompt in a batch."""
    epochs: int = 4
    """Passes over the responses of a batch before others are written."""
    minibatches: int = 1
    """Steps in a pass, each on a part of the responses."""
    whiten_rewards: bool = False
    """Scale the rewards of tokens to unit variance."""
    shared_value: bool = False
    """Value of a token as a linear function of the policy's own hidden states; otherwise of those
    of a second network, which begins as a copy. With an adapter the states are shared."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        for name in ("discount", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be from 0 to 1, got {getattr(self, name)}")
        for name in ("kl_weight", "value_weight"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        for name in ("responses", "epochs", "minibatches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("clip_range", "value_clip_range"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")

    def token_rewards(
        self,
        scores: Float[Tensor, "b"],
        log_probabilities: Float[Tensor, "b t"],
        reference: Float[Tensor, "b t"],
        mask: Bool[Tensor, "b t"],
    ) -> Float[Tensor, "b t"]:
        """Return the reward of each token.

        It is -kl_weight (log pi - log pi_ref); the last token of a response has its score, too.

        Raises:
            ValueError: a response has no token.
        """
        rewards = -self.kl_weight * (log_probabilities - reference) * mask
        return rewards.scatter_add(1, last_columns(mask)[:, None], scores[:, None])

    def advantages(
        self,
        rewards: Float[Tensor, "b t"],
        values: Float[Tensor, "b t"],
        mask: Bool[Tensor, "b t"],
    ) -> tuple[Float[Tensor, "b t"], Float[Tensor, "b t"]]:
        """Estimate the advantage of each token, and the return that its value should be.

        Schulman et al. 2016, arXiv:1506.02438, equation 16: the sum over later tokens l of
        (gamma lambda)^l delta, delta = reward + gamma value of the next token - value. A response
        ends after its last token, whose next value is 0.

        Deviates: TRL 1.12.0 gives the score of a response that ends before the greatest length to
        the token after its end, and learns the value v of that token, too, so that the end has
        gamma v + gamma lambda (score - v) in place of the score: with gamma = lambda = 1 the same.
        Responses that are cut, or end with the greatest length, have no such token there.
        """
        values = values * mask
        after = torch.zeros_like(values[:, 0])
        found = torch.zeros_like(values)
        for t in reversed(range(values.shape[1])):
            following = values[:, t + 1] if t + 1 < values.shape[1] else torch.zeros_like(after)
            delta = rewards[:, t] + self.discount * following - values[:, t]
            after = (delta + self.discount * self.gae_lambda * after) * mask[:, t]
            found[:, t] = after
        return found, (found + values) * mask

    def policy_loss(
        self,
        log_probabilities: Float[Tensor, "b t"],
        old: Float[Tensor, "b t"],
        advantages: Float[Tensor, "b t"],
        mask: Bool[Tensor, "b t"],
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Return the clipped loss, a mean over tokens, and the share of tokens that are clipped.

        Schulman et al. 2017, equation 7.
        """
        ratio = ((log_probabilities - old) * mask).exp()
        plain = -advantages * ratio
        bounded = -advantages * ratio.clamp(1 - self.clip_range, 1 + self.clip_range)
        clipped = (bounded > plain).detach().float()
        return masked_mean(torch.maximum(plain, bounded), mask), masked_mean(clipped, mask)

    def value_loss(
        self,
        values: Float[Tensor, "b t"],
        old: Float[Tensor, "b t"],
        returns: Float[Tensor, "b t"],
        mask: Bool[Tensor, "b t"],
    ) -> Float[Tensor, ""]:
        """Return half of the mean squared error, of values that change little (clipped)."""
        near = old + (values - old).clamp(-self.value_clip_range, self.value_clip_range)
        worst = torch.maximum((values - returns).square(), (near - returns).square())
        return 0.5 * masked_mean(worst, mask)


def last_columns(mask: Bool[Tensor, "b t"]) -> Tensor:
    """Return the column of the last token of each response [b], wherever padding stands.

    Raises:
        ValueError: a response has no token.
    """
    if not bool(mask.any(1).all()):
        raise ValueError("a response has no token")
    columns = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, columns, -1).amax(1)


def masked_mean(x: Float[Tensor, "..."], mask: Bool[Tensor, "..."]) -> Float[Tensor, ""]:
    """Return the mean where the mask is set; 0 where it is set nowhere."""
    return (x * mask).sum() / mask.sum().clamp(min=1)


def whiten(
    x: Float[Tensor, "b t"], mask: Bool[Tensor, "b t"], *, keep_mean: bool = False
) -> Float[Tensor, "b t"]:
    """Scale numbers to unit variance over all tokens, and to mean 0 unless it is kept.

    The variance is that of the sample, with n - 1.
    """
    mean, n = masked_mean(x, mask), mask.sum()
    variance = ((x - mean).square() * mask).sum() / (n - 1).clamp(min=1)
    scaled = (x - mean) * (variance + _LEAST_VARIANCE).rsqrt()
    return (scaled + mean if keep_mean else scaled) * mask


def leave_one_out_advantages(rewards: Float[Tensor, "p k"]) -> Float[Tensor, "p k"]:
    """Return each reward less the mean of the other k - 1 responses to the same prompt.

    REINFORCE leave-one-out: Kool et al. 2019, https://openreview.net/forum?id=r1lgTGL5DE; for
    texts Ahmadian et al. 2024, arXiv:2402.14740 (RLOO).

    Raises:
        ValueError: a prompt has fewer than two responses.
    """
    k = rewards.shape[1]
    if k < 2:
        raise ValueError(f"a prompt must have two responses or more, got {k}")
    others = (rewards.sum(1, keepdim=True) - rewards) / (k - 1)
    return rewards - others
