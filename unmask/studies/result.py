"""What came out of a study: a table of cells and tasks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unmask.finetuning.suite import BenchmarkResult, scale_to_100
from unmask.studies.study import Study


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """What became of a cell, as far as it is."""

    name: str
    parameters: int = 0
    """Token vectors included."""
    loss: float | None = None
    """Of held-out text, by its own objective: of cells that ask otherwise it says nothing."""
    tokens: int = 0
    seconds: float = 0.0
    """Of pretraining."""
    scores: tuple[BenchmarkResult, ...] = ()
    error: str = ""
    """Why it was not pretrained or tuned to its end, in a line."""

    def scores_of(self, benchmark: str) -> list[float]:
        """Return its scores in a benchmark, of 100, one for each seed."""
        found = [ran for ran in self.scores if ran.name == benchmark and ran.dev]
        return scale_to_100(found[0].metric, found[0].dev) if found else []

    def is_done(self, benchmarks: Sequence[str]) -> bool:
        """Return whether nothing of it is left to be run."""
        scored = {ran.name for ran in self.scores if ran.dev}
        return not self.error and scored.issuperset(benchmarks)

    def averages(self) -> list[float]:
        """Return, for each seed, the mean over benchmarks of which more is better."""
        each = [scale_to_100(ran.metric, ran.dev) for ran in self.scores if ran.is_averaged]
        if not each or len({len(one) for one in each}) > 1:
            return []
        return np.mean(each, axis=0).tolist()


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """All that came out of a study so far."""

    study: Study
    benchmarks: tuple[str, ...]
    cell_results: tuple[CellResult, ...]

    def with_result(self, cell_result: CellResult) -> "StudyResult":
        """Return it with another outcome of a cell."""
        results = (
            cell_result if one.name == cell_result.name else one for one in self.cell_results
        )
        return replace(self, cell_results=tuple(results))

    def to_table(self) -> tuple[list[str], list[list[str]]]:
        """Return the table: the names of its columns, and a row for each cell."""
        names = ["cell", "parameters", "held-out loss", *self.benchmarks, "average"]
        return names, [self._table_row(one) for one in self.cell_results]

    def _table_row(self, cell_result: CellResult) -> list[str]:
        loss = (
            "left out"
            if cell_result.error
            else ""
            if cell_result.loss is None
            else f"{cell_result.loss:.3f}"
        )
        each = [format_mean_and_std(cell_result.scores_of(name)) for name in self.benchmarks]
        size = f"{cell_result.parameters:,}" if cell_result.parameters else ""
        return [cell_result.name, size, loss, *each, format_mean_and_std(cell_result.averages())]


def format_mean_and_std(values: Sequence[float]) -> str:
    """Write a mean, with the standard deviation where there are several values."""
    if not values:
        return ""
    spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{spread}"
