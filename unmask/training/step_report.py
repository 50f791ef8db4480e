"""What is known of a training step: losses, accuracies, learning rate, speed."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

TERMS_WITHOUT_ACCURACY = frozenset({"neighbors", "policy"})
"""Terms without an accuracy or a number: those of word vectors, and of written responses."""


@dataclass(frozen=True)
class LossSums:
    """Sums of losses, targets and correct predictions by term. Sums can be added; means cannot."""

    total_loss: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of the loss, in nats."""
    n_targets: Mapping[str, int] = field(default_factory=dict[str, int])
    """Number of targets."""
    n_correct: Mapping[str, int] = field(default_factory=dict[str, int])
    """Right answers, of terms where that means something."""
    loss_weights: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of terms in the loss, where it is not 1."""

    def __add__(self, other: "LossSums") -> "LossSums":
        return LossSums(
            _add_by_name(self.total_loss, other.total_loss),
            _add_by_name(self.n_targets, other.n_targets),
            _add_by_name(self.n_correct, other.n_correct),
            {**self.loss_weights, **other.loss_weights},
        )

    @property
    def mean_losses(self) -> dict[str, float]:
        """The mean loss of each term; zero without targets."""
        return {
            name: total / max(self.n_targets[name], 1) for name, total in self.total_loss.items()
        }

    @property
    def measures(self) -> dict[str, float]:
        """The means of terms without weight in the loss, which are only shown."""
        return {n: mean for n, mean in self.mean_losses.items() if self.loss_weights.get(n) == 0}

    @property
    def weighted_means(self) -> dict[str, float]:
        """The mean loss of each term that has a weight."""
        measures = self.measures
        return {name: mean for name, mean in self.mean_losses.items() if name not in measures}

    @property
    def loss(self) -> float:
        """The sum of all parts, each times its weight."""
        return math.fsum(
            self.loss_weights.get(name, 1.0) * part for name, part in self.mean_losses.items()
        )

    @property
    def accuracy(self) -> dict[str, float]:
        """The accuracy of each term that has targets."""
        return {
            n: right / self.n_targets[n] for n, right in self.n_correct.items() if self.n_targets[n]
        }

    @property
    def is_finite(self) -> bool:
        """Whether every total is a number."""
        return all(math.isfinite(total) for total in self.total_loss.values())


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """One optimizer step."""

    step: int
    """Steps count from 1."""
    total_steps: int
    n_tokens: int
    """Read since the run began, padding not counted."""
    step_tokens: int
    """Read in this step."""
    sums: LossSums
    """Of this step; a loss that is not finite is shown as it is."""
    sums_since_log: LossSums | None
    """At a logged step: the sums since the last logged one, skipped steps not counted."""
    learning_rate: float
    gradient_norm: float
    seconds: float
    """That this step took."""
    n_skipped: int
    """Steps without a finite loss and gradient, since the run began: they moved no weight."""
    was_skipped: bool = False

    @property
    def loss(self) -> float:
        """The loss of this step."""
        return self.sums.loss

    @property
    def mean_losses(self) -> dict[str, float]:
        """The loss of this step, by term."""
        return self.sums.mean_losses

    @property
    def accuracy(self) -> dict[str, float]:
        """The share of right answers in this step, by term."""
        return self.sums.accuracy


@runtime_checkable
class MemoryUsage(Protocol):
    """Says how many bytes are held."""

    def __call__(self) -> int:
        """Format the report."""
        ...


@dataclass(frozen=True)
class Throughput:
    """Tokens and the seconds that they took; older ones may fade."""

    n_tokens: float = 0.0
    seconds: float = 0.0
    n_steps: float = 0.0

    def updated(self, report: StepReport, decay: float = 1.0) -> "Throughput":
        """Add a step; `decay` of what was before counts on."""
        return Throughput(
            self.n_tokens * decay + report.step_tokens,
            self.seconds * decay + report.seconds,
            self.n_steps * decay + 1,
        )

    @property
    def tokens_per_second(self) -> float:
        """Mean speed; 0 before the first step."""
        return self.n_tokens / self.seconds if self.seconds else 0.0

    @property
    def seconds_per_step(self) -> float:
        """Mean duration of a step; 0 before the first."""
        return self.seconds / self.n_steps if self.n_steps else 0.0


def _add_by_name(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in [*a, *(n for n in b if n not in a)]}


def round_share(share: float | None) -> float | None:
    """Round a share to four digits."""
    return None if share is None else round(share, 4)


SPIKE_WINDOW = 128
"""Steps by which the next one is judged."""


@dataclass(frozen=True)
class RecentSteps:
    """Losses and gradient norms of the last steps with finite ones, skipped or not.

    That of spikes too, as in OLMo-core's `SkipStepOptimizer`: a level that stays is soon none.
    """

    losses: tuple[float, ...] = ()
    gradient_norms: tuple[float, ...] = ()

    def is_spike(self, loss: float, gradient_norm: float, n_deviations: int | float) -> bool:
        """Return whether a step is so many standard deviations above the mean of these.

        Not before there are `SPIKE_WINDOW` of them.
        """
        return _is_above(self.losses, loss, n_deviations) or _is_above(
            self.gradient_norms, gradient_norm, n_deviations
        )

    def add(self, loss: float, gradient_norm: float) -> "RecentSteps":
        """Return these with a step more; the oldest goes."""
        return RecentSteps(
            (*self.losses, loss)[-SPIKE_WINDOW:],
            (*self.gradient_norms, gradient_norm)[-SPIKE_WINDOW:],
        )


def _is_above(values: tuple[float, ...], value: float, n_deviations: int | float) -> bool:
    if len(values) < SPIKE_WINDOW or not math.isfinite(value):
        return False
    return value > statistics.fmean(values) + n_deviations * statistics.stdev(values)
