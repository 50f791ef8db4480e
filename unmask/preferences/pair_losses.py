"""Losses of preference pairs: DPO and its kin, as values.

Each takes the log-probabilities of chosen and rejected responses under the policy, and, but for
ORPO, under a reference model, and returns a number for each pair. Notation: r = log pi(y|x) -
log pi_ref(y|x), of the whole response; w is the chosen one, l the rejected one.
"""

from dataclasses import dataclass, fields
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from unmask.config import check_number_fields


@dataclass(frozen=True, kw_only=True)
class PairLogProbabilities:
    """Log-probabilities of pairs of responses, in nats, each summed over the response's tokens."""

    chosen: Float[Tensor, "n"]
    rejected: Float[Tensor, "n"]
    chosen_length: Int[Tensor, "n"]
    """Number of tokens that the sum is over."""
    rejected_length: Int[Tensor, "n"]
    reference_chosen: Float[Tensor, "n"] | None = None
    """Those of the reference model; None: there is none."""
    reference_rejected: Float[Tensor, "n"] | None = None

    def __post_init__(self) -> None:
        if (self.reference_chosen is None) != (self.reference_rejected is None):
            raise ValueError("reference_chosen and reference_rejected are given together")
        for name in ("chosen_length", "rejected_length"):
            if bool((getattr(self, name) < 1).any()):
                raise ValueError(f"{name} must be at least 1: a response has no token")

    @property
    def log_ratios(self) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
        """The log-probabilities less those of the reference, of the chosen and the rejected.

        Raises:
            ValueError: there is no reference.
        """
        if self.reference_chosen is None or self.reference_rejected is None:
            raise ValueError("this loss needs the log-probabilities of a reference model")
        return self.chosen - self.reference_chosen, self.rejected - self.reference_rejected

    @property
    def margins(self) -> Float[Tensor, "n"]:
        """The log-ratio of the chosen response less that of the rejected one."""
        chosen, rejected = self.log_ratios
        return chosen - rejected


@runtime_checkable
class PairLoss(Protocol):
    """A loss of preference pairs."""

    needs_reference: ClassVar[bool]
    """Whether it compares the policy with a reference model."""

    def __call__(self, pairs: PairLogProbabilities) -> Float[Tensor, "n"]:
        """Compute the loss of each pair."""
        ...


def _check(loss: object) -> None:
    """Check that numbers are finite, and a loss's strength is above 0."""
    check_number_fields(loss)
    for field in fields(loss):  # type: ignore[arg-type]
        value = getattr(loss, field.name)
        if field.name == "beta" and not value > 0:
            raise ValueError(f"beta must be above 0, got {value}")
        if field.name == "flip_probability" and not 0 <= value < 0.5:
            raise ValueError(f"flip_probability must be from 0 to below 0.5, got {value}")


@dataclass(frozen=True, kw_only=True)
class DPO:
    """Direct preference optimization: -log sigmoid(beta (r_w - r_l)).

    Rafailov et al. 2023, arXiv:2305.18290, equation 7. With a flip probability e it is conservative
    DPO: (1 - e) times this loss plus e times that of the pair turned around (Mitchell 2023, "A note
    on DPO with noisy preferences", https://ericmitchell.ai/cdpo.pdf).
    """

    needs_reference: ClassVar[bool] = True
    beta: float = 0.1
    """Strength of the pull to the reference."""
    flip_probability: float = 0.0
    """Probability with which a label is wrong, from 0 to below 0.5."""

    def __post_init__(self) -> None:
        _check(self)

    def __call__(self, pairs: PairLogProbabilities) -> Float[Tensor, "n"]:
        """Compute the loss of each pair."""
        margin, e = self.beta * pairs.margins, self.flip_probability
        return -(1 - e) * F.logsigmoid(margin) - e * F.logsigmoid(-margin)


@dataclass(frozen=True, kw_only=True)
class RobustDPO:
    """DPO whose expectation under wrong labels is the loss of right ones.

    Chowdhury et al. 2024, arXiv:2403.00409: ((1 - e) L(w, l) - e L(l, w)) / (1 - 2 e).
    """

    needs_reference: ClassVar[bool] = True
    beta: float = 0.1
    """Strength of the pull to the reference."""
    flip_probability: float = 0.1
    """Probability with which a label is wrong, from 0 to below 0.5."""

    def __post_init__(self) -> None:
        _check(self)

    def __call__(self, pairs: PairLogProbabilities) -> Float[Tensor, "n"]:
        """Compute the loss of each pair; it may be negative."""
        margin, e = self.beta * pairs.margins, self.flip_probability
        right, wrong = -F.logsigmoid(margin), -F.logsigmoid(-margin)
        return ((1 - e) * right - e * wrong) / (1 - 2 * e)


@dataclass(frozen=True, kw_only=True)
class HingeLoss:
    """max(0, 1 - beta (r_w - r_l)).

    The calibration loss of Zhao et al. 2023 (SLiC-HF, arXiv:2305.10425), with log-ratios to a
    reference, as Liu et al. 2024 (arXiv:2309.06657) write it.
    """

    needs_reference: ClassVar[bool] = True
    beta: float = 0.1
    """Reciprocal of the margin, in nats."""

    def __post_init__(self) -> None:
        _check(self)

    def __call__(self, pairs: PairLogProbabilities) -> Float[Tensor, "n"]:
        """Compute the loss of each pair."""
        return (1 - self.beta * pairs.margins).relu()


@dataclass(frozen=True, kw_only=True)
class IPO:
    """Identity preference optimization: (r_w - r_l - 1 / (2 beta))^2.

    Azar et al. 2023, arXiv:2310.12036, equation 17, whose tau is `beta`. By default log-ratios are
    means over tokens, with which responses of several lengths are
    comparable (https://huggingface.co/blog/pref-tuning).
    """

    needs_reference: ClassVar[bool] = True
    beta: float = 0.1
    """Strength of the pull to the reference: the margin that is sought is 1 / (2 beta)."""
    by_token: bool = True
    """Whether log-ratios are means over the tokens of a response; otherwise sums."""

    def __post_init__(self) -> None:
        _check(self)

    def __call__(self, pairs: PairLogProbabilities) -> Float[Tensor, "n"]:
        """Compute the loss of each pair."""
        chosen, rejected = pairs.log_ratios
        if self.by_token:
            chosen, rejected = chosen / pairs.chosen_length, rejected / pairs.rejected_length
        return (chosen - rejected - 1 / (2 * self.beta)).square()


@dataclass(frozen=True, kw_only=True)
class ORPO:
    """Odds ratio preference optimization, which needs no reference model.

    Hong et al. 2024, arXiv:2403.07691: the mean negative log-likelihood of a token of the chosen
    response, plus beta times -log sigmoid(log odds(w) - log odds(l)) (equation 7), where
    odds(y) = p / (1 - p) (equation 4) and p is the geometric mean of the probabilities of the
    tokens of y.
    """

    needs_reference: ClassVar[bool] = False
    beta: float = 0.1
    """Weight of the odds ratio (lambda in the paper)."""

    def __post_init__(self) -> None:
        _check(self)

    def ratio_term(self, pairs: PairLogProbabilities) -> Float[Tensor, "n"]:
        """Compute the weighted term of the odds ratio."""
        chosen, rejected = (
            pairs.chosen / pairs.chosen_length,
            pairs.rejected / pairs.rejected_length,
        )
        return -self.beta * F.logsigmoid(_log_odds(chosen) - _log_odds(rejected))

    def __call__(self, pairs: PairLogProbabilities) -> Float[Tensor, "n"]:
        """Compute the loss of each pair."""
        return self.ratio_term(pairs) - pairs.chosen / pairs.chosen_length


def _log_odds(log_probability: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """Return log p - log(1 - p); finite also where p rounds to 1."""
    least = torch.finfo(log_probability.dtype).tiny
    return log_probability - (-torch.expm1(log_probability)).clamp(min=least).log()


@dataclass(frozen=True, kw_only=True)
class KTO:
    """Kahneman-Tversky optimization: responses that are desirable or not, without pairs.

    Ethayarajh et al. 2024, arXiv:2402.01306: of a desirable response
    lambda_D (1 - sigmoid(beta (r - z))), of another lambda_U (1 - sigmoid(beta (z - r))), where z
    is an estimate of KL(policy, reference), without a gradient: the mean of r over responses to
    other prompts, at least 0.
    """

    beta: float = 0.1
    """Aversion to risk: how fast the value saturates."""
    desirable_weight: float = 1.0
    """Weight of desirable responses (lambda_D)."""
    undesirable_weight: float = 1.0
    """Weight of undesirable responses (lambda_U)."""

    def __post_init__(self) -> None:
        _check(self)
        for name in ("desirable_weight", "undesirable_weight"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        if self.desirable_weight == self.undesirable_weight == 0:
            raise ValueError("desirable_weight and undesirable_weight are both 0")

    def __call__(
        self,
        log_ratios: Float[Tensor, "n"],
        is_desirable: Tensor,
        divergence: Float[Tensor, ""],
    ) -> Float[Tensor, "n"]:
        """Compute the loss of each response.

        Args:
            log_ratios: r of each response.
            is_desirable: whether it is desirable [n].
            divergence: z.
        """
        sign = torch.where(is_desirable, 1.0, -1.0)
        weight = torch.where(is_desirable, self.desirable_weight, self.undesirable_weight)
        return weight * (1 - torch.sigmoid(sign * self.beta * (log_ratios - divergence)))

    @staticmethod
    def divergence(mismatched_log_ratios: Float[Tensor, "m"]) -> Float[Tensor, ""]:
        """Estimate z from responses to other prompts; it has no gradient."""
        return mismatched_log_ratios.detach().mean().clamp(min=0)


def bradley_terry_loss(
    chosen: Float[Tensor, "n"],
    rejected: Float[Tensor, "n"],
    margin: Float[Tensor, "n"] | float = 0.0,
) -> Float[Tensor, "n"]:
    """Compute -log sigmoid(chosen - rejected - margin) of the rewards of each pair.

    Bradley and Terry 1952, doi:10.2307/2334029; as a loss of rewards Ouyang et al. 2022,
    arXiv:2203.02155, equation 1; the margin of Touvron et al. 2023, arXiv:2307.09288, equation 2.
    """
    return -F.logsigmoid(chosen - rejected - margin)


def ranking_loss(rewards: Float[Tensor, "k"]) -> Float[Tensor, ""]:
    """Compute the mean Bradley-Terry loss of all pairs of k responses, given best first.

    Ouyang et al. 2022, arXiv:2203.02155, equation 1: all k (k - 1) / 2 comparisons of a prompt are
    one element of a batch.

    Raises:
        ValueError: there are fewer than two.
    """
    if len(rewards) < 2:
        raise ValueError(f"a ranking must have two responses or more, got {len(rewards)}")
    better, worse = torch.triu_indices(len(rewards), len(rewards), 1)
    return bradley_terry_loss(rewards[better], rewards[worse]).mean()
