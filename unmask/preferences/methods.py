"""Methods of preference optimization by name, with their settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

from unmask.config import check_number_fields, parse_variant
from unmask.preferences.pair_losses import DPO, IPO, KTO, ORPO, HingeLoss, PairLoss, RobustDPO
from unmask.preferences.policy_gradient import PPO

PAIR_METHODS: Mapping[str, type] = {
    "dpo": DPO, "robust_dpo": RobustDPO, "hinge": HingeLoss, "ipo": IPO, "orpo": ORPO,
}  # fmt: skip
"""Methods that learn from pairs of responses in a file."""


@dataclass(frozen=True, kw_only=True)
class LeaveOneOut:
    """REINFORCE with the mean reward of the other responses to a prompt as its baseline.

    Ahmadian et al. 2024, arXiv:2402.14740 (RLOO): the loss of a response y is
    -(R(y) - mean of the others) log pi(y), where R is the reward less kl_weight times the
    log-ratio to the reference.
    """

    epochs: ClassVar[int] = 1
    minibatches: ClassVar[int] = 1
    has_values: ClassVar[bool] = False
    shared_value: ClassVar[bool] = False
    responses: int = 4
    """Responses to a prompt in a step, two or more."""
    kl_weight: float = 0.05
    """Weight of the divergence from the reference in the reward, in rewards per nat."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        if self.responses < 2:
            raise ValueError(f"responses must be at least 2, got {self.responses}")
        if self.kl_weight < 0:
            raise ValueError(f"kl_weight must be at least 0, got {self.kl_weight}")


@dataclass(frozen=True, kw_only=True)
class RejectionSampling:
    """Best of n as training: the response with the greatest reward is learned as a target.

    Touvron et al. 2023, arXiv:2307.09288, section 3.2.3; Dong et al. 2023, arXiv:2304.06767
    (RAFT). With `responses` = n samples, the divergence from the reference that best-of-n itself
    has is at most log n - (n - 1) / n nats (Beirami et al. 2024, arXiv:2401.01879).
    """

    epochs: ClassVar[int] = 1
    minibatches: ClassVar[int] = 1
    has_values: ClassVar[bool] = False
    shared_value: ClassVar[bool] = False
    responses: int = 8
    """Responses to a prompt, of which one is learned."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        if self.responses < 2:
            raise ValueError(f"responses must be at least 2, got {self.responses}")


PreferenceMethod = (
    DPO | RobustDPO | HingeLoss | IPO | ORPO | KTO | PPO | LeaveOneOut | RejectionSampling
)
OnlineMethod = PPO | LeaveOneOut | RejectionSampling
"""Methods that learn from responses that the model writes, by a reward."""
METHODS: Mapping[str, type] = {
    **PAIR_METHODS,
    "kto": KTO,
    "ppo": PPO,
    "rloo": LeaveOneOut,
    "best_of_n": RejectionSampling,
}
ONLINE_NAMES = ("ppo", "rloo", "best_of_n")


def parse_preference_method(text_or_method: "str | PreferenceMethod") -> PreferenceMethod:
    """Parse a method: "dpo", or "dpo:beta=0.2,flip_probability=0.1".

    Raises:
        ValueError: there is no such method, or it has no such setting.
    """
    if not isinstance(text_or_method, str):
        return text_or_method
    return parse_variant(METHODS, text_or_method, "method")


def preference_method_name(method: PreferenceMethod) -> str:
    """Return the name of a method."""
    return next(name for name, kind in METHODS.items() if type(method) is kind)


def pair_loss_of(method: PreferenceMethod) -> PairLoss | None:
    """Return the loss of pairs of a method; None: it does not learn from pairs."""
    return cast("PairLoss", method) if preference_method_name(method) in PAIR_METHODS else None


def online_method(method: PreferenceMethod) -> OnlineMethod | None:
    """Return a method whose responses the model writes itself; None: it reads them from a file."""
    is_online = preference_method_name(method) in ONLINE_NAMES
    return cast("OnlineMethod", method) if is_online else None


def steps_of_batch(method: PreferenceMethod) -> int:
    """Return the steps between places where a run can be continued."""
    online = online_method(method)
    return 1 if online is None else online.epochs * online.minibatches
