"""Axes with round numbers on them."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from unmask.reports.formatting import MINUS_SIGN, NARROW_SPACE, RealNumber, format_power_of_ten

AxisValues = Float[np.ndarray, "n"]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Positions of numbers between `low` and `high`, and round numbers for tick labels."""

    low: float
    high: float
    ticks: tuple[float, ...]
    is_logarithmic: bool = False

    def positions(self, values: AxisValues) -> AxisValues:
        """Return the place of each value from 0 (`low`) to 1 (`high`), clipped to the axis."""
        low, high, at = self.low, self.high, values
        if self.is_logarithmic:
            low, high, at = math.log(low), math.log(high), np.log(np.maximum(at, self.low))
        return np.clip((at - low) / (high - low), 0.0, 1.0)

    def position(self, value: RealNumber) -> float:
        """Return the place of one value."""
        return float(self.positions(np.array([value], dtype=np.float64))[0])


def linear_axis(
    low: RealNumber, high: RealNumber, n_ticks: int = 5, *, trim_to_data: bool = False
) -> Axis:
    """Lay an axis with about `n_ticks` round numbers; `trim_to_data`: ends where the data end."""
    if high <= low:
        low, high = (low - 0.5 * abs(low), high + 0.5 * abs(high)) if low else (0.0, 1.0)
    rough = (high - low) / n_ticks
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(m * scale for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * scale >= 0.999 * rough)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(i * step for i in range(first, last + 1))
    if trim_to_data:
        inside = tuple(t for t in ticks if low - 1e-9 * step <= t <= high + 1e-9 * step)
        return Axis(low=low, high=high, ticks=inside)
    return Axis(low=ticks[0], high=ticks[-1], ticks=ticks)


def logarithmic_axis(low: RealNumber, high: RealNumber) -> Axis:
    """Lay a logarithmic axis between the powers of ten around `low` and `high` (positive)."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    last = max(last, first + 1)
    every = math.ceil((last - first) / 5)
    ticks = tuple(10.0**i for i in range(first, last + 1, every))
    return Axis(low=10.0**first, high=10.0**last, ticks=ticks, is_logarithmic=True)


def format_tick(value: RealNumber, axis: Axis, unit: str) -> str:
    """Write a tick with as many digits as it needs to differ from its neighbors."""
    sign = f"{NARROW_SPACE}{unit}" if unit else ""
    if axis.is_logarithmic:
        text = (
            f"{value:,g}" if 1e-3 <= value < 1e5 else format_power_of_ten(round(math.log10(value)))
        )
        return text + sign
    scales = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))  # from where on, unit, its sign
    units = ((scale, sign) for start, scale, sign in scales if axis.high >= start)
    scale, suffix = next(units, (1.0, ""))
    gap = min((b - a for a, b in itertools.pairwise(axis.ticks)), default=1.0) / scale
    digits = (f",.{n}f" for n in range(13) if abs(round(gap, n) - gap) < 1e-6 * gap)
    text = f"{value / scale:{next(digits, 'g')}}".replace("-", MINUS_SIGN)
    return f"{text}{suffix if value else ''}{sign}"
