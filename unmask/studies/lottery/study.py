"""LotteryStudy: where masks come from, what is trained with them, and on which tasks."""

import math
from dataclasses import dataclass
from typing import Literal

from unmask.compression.config import Scope, check_fraction
from unmask.config import check_number_fields
from unmask.tasks.suites.bundled import SUITES

Arm = Literal["ticket", "random-mask", "random-weights"]
"""What is trained with a mask: the weights of the start with the mask that was found (ticket); the
same weights with a random mask of as many zeros in each matrix; random weights with the mask."""
DENSE = "dense"
"""The model without a mask."""


@dataclass(frozen=True, kw_only=True)
class LotteryStudy:
    """Iterative magnitude pruning with rewinding, beside the dense model and controls.

    The model is trained; the smallest of its weights are masked; the others are set back to the
    start, or to an early step; it is trained again; and so on (Frankle and Carbin 2019,
    arXiv:1803.03635, section 1, strategy 1 of appendix B).
    """

    name: str
    question: str
    """Research question, one line."""
    tasks: str
    """Suite of tasks: a name of `unmask.tasks.suites.bundled.SUITES`, or a .toml file."""
    benchmarks: tuple[str, ...] = ()
    """Names of the suite's benchmarks. Empty: all."""
    base: str = "unmask-mini-en"
    """Model: a folder, hf:owner/name, the bundled model, or, from random weights, a catalogue
    name."""
    initialize: Literal["pretrained", "random"] = "pretrained"
    """Start of training: pretrained weights (Chen et al. 2020, arXiv:2007.12223), or random
    ones."""
    arms: tuple[Arm, ...] = ("ticket", "random-mask", "random-weights")
    """What is trained with masks, beside the dense model."""
    sparsities: tuple[float, ...] = (0.3, 0.5, 0.7, 0.8, 0.9)
    """Fraction of the layers' weights that is zero in each round, rising."""
    rewind: float = 0.0
    """Step to which weights are set back, as a fraction of the steps (Frankle et al. 2020,
    arXiv:1912.05671). 0: the start."""
    scope: Scope = "global"
    """Weights whose magnitudes are compared: of all matrices together, or of each by itself."""
    unit: Literal["weights", "blocks"] = "weights"
    """What masks take away: weights of the smallest magnitude; or heads and feed-forward sublayers,
    the same fraction of both, by gradients on training texts (Prasanna et al. 2020,
    arXiv:2005.00561)."""
    masks_of: Literal["task", "text"] = "task"
    """Training by which masks are found: that of each task and seed; or pretraining on text from
    `base`, whose masks all tasks share (Chen et al. 2020, section 4)."""
    tokens: int = 2_000_000
    """Pretraining tokens of each round, padding included, of `masks_of = "text"`."""
    changes: tuple[str, ...] = ()
    """Changes of the recipe of that pretraining, as `unmask pretrain --set`."""
    rows: int | None = None
    """Training rows per task. None: all, or the task's own number."""
    epochs: float | None = None
    """Fine-tuning epochs. None: chosen by size, as in `unmask finetune`."""
    seeds: int = 3
    """Number of seeds; each has masks of its own with `masks_of = "task"`."""
    paper: str = ""
    """Paper and section that this reproduces at small scale."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        check_number_fields(self)
        check_fraction("rewind", self.rewind)
        self._check_sparsities()
        if not self.arms or len(set(self.arms)) < len(self.arms):
            raise ValueError(f"arms must be one or more that differ, got {list(self.arms)}")
        for key in ("tokens", "rows", "seeds"):
            number = getattr(self, key)
            if number is not None and number < 1:
                raise ValueError(f"{key} must be at least 1, got {number}")
        if self.epochs is not None and not 0 < self.epochs < math.inf:
            raise ValueError(f"epochs must be above 0, got {self.epochs:g}")
        if self.masks_of == "text" and self.initialize == "random":
            raise ValueError('masks_of = "text" needs initialize = "pretrained"')
        if self.masks_of == "text" and self.unit == "blocks":
            raise ValueError('unit = "blocks" needs masks_of = "task"')
        if self.tasks not in SUITES and not self.tasks.endswith(".toml"):
            raise ValueError(
                f"tasks must be a .toml file or one of {', '.join(SUITES)}, got {self.tasks!r}"
            )

    def _check_sparsities(self) -> None:
        if not self.sparsities:
            raise ValueError("sparsities must not be empty")
        for sparsity in self.sparsities:
            check_fraction("sparsities", sparsity)
        if any(a >= b for a, b in zip((0.0, *self.sparsities), self.sparsities, strict=False)):
            given = ", ".join(f"{one:g}" for one in self.sparsities)
            raise ValueError(f"sparsities must rise from above 0, got {given}")

    def select_arms(self, names: tuple[str, ...]) -> tuple[Arm, ...]:
        """Return arms by name; all, if no names are given.

        Raises:
            ValueError: a name is unknown.
        """
        for name in names:
            if name not in self.arms:
                raise ValueError(
                    f"{self.name} has no cell {name!r} (it has {', '.join(self.arms)})"
                )
        return tuple(arm for arm in self.arms if not names or arm in names)
