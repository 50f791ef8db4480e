"""What came out of a study: a table of cells and tasks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unmask.finetuning.suite import Ran, points
from unmask.studies.study import Study


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a cell, as far as it is."""

    name: str
    parameters: int = 0
    """Token vectors included."""
    loss: float | None = None
    """Of held-out text, by its own objective: of cells that ask otherwise it says nothing."""
    tokens: int = 0
    seconds: float = 0.0
    """Of pretraining."""
    scores: tuple[Ran, ...] = ()
    error: str = ""
    """Why it was not pretrained or tuned to its end, in a line."""

    def of(self, benchmark: str) -> list[float]:
        """Return its scores in a benchmark, of 100, one for each seed."""
        found = [ran for ran in self.scores if ran.name == benchmark and ran.dev]
        return points(found[0].metric, found[0].dev) if found else []

    def done(self, benchmarks: Sequence[str]) -> bool:
        """Say whether nothing of it is left to be run."""
        scored = {ran.name for ran in self.scores if ran.dev}
        return not self.error and scored.issuperset(benchmarks)

    def averages(self) -> list[float]:
        """Return, for each seed, the mean over benchmarks of which more is better."""
        each = [points(ran.metric, ran.dev) for ran in self.scores if ran.averaged]
        if not each or len({len(one) for one in each}) > 1:
            return []
        return np.mean(each, axis=0).tolist()


@dataclass(frozen=True, kw_only=True)
class Studied:
    """All that came out of a study so far."""

    study: Study
    benchmarks: tuple[str, ...]
    outcomes: tuple[Outcome, ...]

    def put(self, outcome: Outcome) -> "Studied":
        """Return it with another outcome of a cell."""
        kept = (outcome if one.name == outcome.name else one for one in self.outcomes)
        return replace(self, outcomes=tuple(kept))

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """Return the table: the names of its columns, and a row for each cell."""
        names = ["cell", "parameters", "held-out loss", *self.benchmarks, "average"]
        return names, [self._row(one) for one in self.outcomes]

    def _row(self, one: Outcome) -> list[str]:
        loss = "left out" if one.error else "" if one.loss is None else f"{one.loss:.3f}"
        each = [mean_and_spread(one.of(name)) for name in self.benchmarks]
        size = f"{one.parameters:,}" if one.parameters else ""
        return [one.name, size, loss, *each, mean_and_spread(one.averages())]


def mean_and_spread(values: Sequence[float]) -> str:
    """Write a mean, with the standard deviation where there are several values."""
    if not values:
        return ""
    spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{spread}"
