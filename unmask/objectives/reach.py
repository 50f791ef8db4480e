"""How far each layer of a network reads from a token, whatever else an objective permits."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np
from jaxtyping import Bool


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The columns that a layer reads for a column; of these, it sees what the ranks permit."""

    by: Literal["attention", "filters", "state"] = "attention"
    before: int | None = None
    """Columns before a token, at most. None: no limit."""
    after: int | None = None
    """Columns after it, at most. None: no limit."""
    step: int = 1
    """Every n-th column is read."""
    block: int | None = None
    """Columns are read within blocks of this size. None: there are no blocks."""

    def mask(self, n: int) -> Bool[np.ndarray, "n n"]:
        """Return which of n columns are read for each of them."""
        place = np.arange(n)
        away = place - place[:, None]
        before, after = (n if x is None else x for x in (self.before, self.after))
        near = (-before <= away) & (away <= after) & (away % self.step == 0)
        return (
            near
            if self.block is None
            else near & (place // self.block == place[:, None] // self.block)
        )

    def describe(self, *, causal: bool) -> str:
        """Say it of a token; `causal`: the ranks permit nothing after it."""
        if self.by == "state":
            if self.before == self.after:
                return "all before it and all after it, through two states"
            return (
                f"itself and all {'before' if self.after == 0 else 'after'} it, through the state"
            )
        every = "" if self.step == 1 else f", of these every {self.step}th"
        if self.block is not None:
            return f"its block of {self.block}"
        if causal and self.before is not None:
            return f"itself and at most {self.before} before it{every}"
        if self.before is None:
            return "itself and all before it" if causal else "all"
        if self.before == self.after:
            return f"at most {self.before} to each side{every}"
        return f"at most {self.before} before it and {self.after} after it{every}"


FULL_REACH = Reach()
"""Attention without a limit."""


def describe_reaches(reaches: Sequence[Reach], *, causal: bool) -> str | None:
    """Say what each layer reads for a token; None: nothing limits the attention of any."""
    if all(reach == FULL_REACH for reach in reaches):
        return None
    layers = dict[Reach, list[int]]()
    for i, reach in enumerate(reaches, 1):
        layers.setdefault(reach, []).append(i)
    verb = "attends to" if all(reach.by == "attention" for reach in layers) else "sees"
    if len(layers) == 1:
        where = f" in each of {len(reaches)} layers" if len(reaches) > 1 else ""
        where = "" if reaches[0].by == "state" else where
        return f"each token {verb} {reaches[0].describe(causal=causal)}{where}"
    parts = [
        f"{reach.describe(causal=causal)} in {_format_layers(numbers)}"
        for reach, numbers in layers.items()
    ]
    return f"each token {verb} {', '.join(parts[:-1])}, and {parts[-1]}"


def _format_layers(numbers: Sequence[int]) -> str:
    """Write the numbers of layers, runs of three and more by their ends."""
    runs = [
        [n for _, n in run]
        for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    ]
    texts = [
        text
        for run in runs
        for text in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))
    ]
    steps = set(np.diff(numbers).tolist())
    if len(numbers) > 3 and len(steps) == 1 and steps != {1}:
        return f"layers {numbers[0]}, {numbers[1]}, ..., {numbers[-1]}"
    name = "layer" if len(numbers) == 1 else "layers"
    return f"{name} {', '.join(texts)}"


def reached(visible: Bool[np.ndarray, "t t"], reaches: Sequence[Reach]) -> Bool[np.ndarray, "t t"]:
    """Return which tokens the output of a stack depends on, layer upon layer.

    Args:
        visible: which the ranks permit in each layer.
        reaches: those of the layers.
    """
    n = len(visible)
    total = np.eye(n, dtype=bool)
    for reach, layers in groupby(reaches):
        layer = visible & reach.mask(n) | np.eye(n, dtype=bool)
        for _ in layers:
            further = layer.astype(np.float32) @ total.astype(np.float32) > 0
            if (further == total).all():
                break
            total = further
    return total
