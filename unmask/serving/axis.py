"""Axes with round numbers on them."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from unmask.serving.words import MINUS, NARROW, Number, power

Values = Float[np.ndarray, "n"]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Where numbers stand between `low` and `high`, and the round ones to label."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def place(self, values: Values) -> Values:
        """Return the place of each value from 0 (`low`) to 1 (`high`), clipped to the axis."""
        low, high, at = self.low, self.high, values
        if self.log:
            low, high, at = math.log(low), math.log(high), np.log(np.maximum(at, self.low))
        return np.clip((at - low) / (high - low), 0.0, 1.0)

    def share(self, value: Number) -> float:
        """Return the place of one value."""
        return float(self.place(np.array([value], dtype=np.float64))[0])


def linear(low: Number, high: Number, n_ticks: int = 5, *, snug: bool = False) -> Axis:
    """Lay an axis with about `n_ticks` round numbers; a `snug` one ends where the data end."""
    if high <= low:
        low, high = (low - 0.5 * abs(low), high + 0.5 * abs(high)) if low else (0.0, 1.0)
    rough = (high - low) / n_ticks
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(m * scale for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * scale >= 0.999 * rough)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(i * step for i in range(first, last + 1))
    if snug:
        inside = tuple(t for t in ticks if low - 1e-9 * step <= t <= high + 1e-9 * step)
        return Axis(low=low, high=high, ticks=inside)
    return Axis(low=ticks[0], high=ticks[-1], ticks=ticks)


def logarithmic(low: Number, high: Number) -> Axis:
    """Lay a logarithmic axis between the powers of ten around `low` and `high` (positive)."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    last = max(last, first + 1)
    every = math.ceil((last - first) / 5)
    ticks = tuple(10.0**i for i in range(first, last + 1, every))
    return Axis(low=10.0**first, high=10.0**last, ticks=ticks, log=True)


def tick(value: Number, axis: Axis, unit: str) -> str:
    """Write a tick with as many digits as it needs to differ from its neighbors."""
    sign = f"{NARROW}{unit}" if unit else ""
    if axis.log:
        text = f"{value:,g}" if 1e-3 <= value < 1e5 else power(round(math.log10(value)))
        return text + sign
    scales = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))  # from where on, unit, its sign
    units = ((scale, sign) for start, scale, sign in scales if axis.high >= start)
    scale, suffix = next(units, (1.0, ""))
    gap = min((b - a for a, b in itertools.pairwise(axis.ticks)), default=1.0) / scale
    digits = (f",.{n}f" for n in range(13) if abs(round(gap, n) - gap) < 1e-6 * gap)
    text = f"{value / scale:{next(digits, 'g')}}".replace("-", MINUS)
    return f"{text}{suffix if value else ''}{sign}"
