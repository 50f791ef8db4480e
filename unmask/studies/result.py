"""Results of a study: a table of cells and tasks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unmask.finetuning.suite import BenchmarkResult, scale_to_100
from unmask.studies.study import Study


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """Results of a cell so far."""

    name: str
    parameters: int = 0
    """Number of parameters, embeddings included."""
    loss: float | None = None
    """Loss on held-out text by its own objective, not comparable across objectives."""
    tokens: int = 0
    seconds: float = 0.0
    """Duration of pretraining."""
    scores: tuple[BenchmarkResult, ...] = ()
    error: str = ""
    """Error that ended pretraining or fine-tuning, in one line."""

    def scores_of(self, benchmark: str) -> list[float]:
        """Return its scores on a benchmark, up to 100, one per seed."""
        scores = [ran for ran in self.scores if ran.name == benchmark and ran.dev]
        return scale_to_100(scores[0].metric, scores[0].dev) if scores else []

    def is_done(self, benchmarks: Sequence[str]) -> bool:
        """Return whether all runs of the cell are done."""
        scored = {ran.name for ran in self.scores if ran.dev}
        return not self.error and scored.issuperset(benchmarks)

    def averages(self, benchmarks: Sequence[str]) -> list[float]:
        """Return for each seed the mean over benchmarks where higher is better.

        Empty while a benchmark or a seed is missing: averages of other tasks are not comparable.
        """
        if not {*benchmarks} <= {ran.name for ran in self.scores}:
            return []
        each = [scale_to_100(ran.metric, ran.dev) for ran in self.scores if ran.is_averaged]
        if not each or len({len(one) for one in each}) > 1:
            return []
        return np.mean(each, axis=0).tolist()


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """Results of a study so far."""

    study: Study
    benchmarks: tuple[str, ...]
    cell_results: tuple[CellResult, ...]

    def with_result(self, cell_result: CellResult) -> "StudyResult":
        """Return a copy with a new result of a cell."""
        results = (
            cell_result if one.name == cell_result.name else one for one in self.cell_results
        )
        return replace(self, cell_results=tuple(results))

    def to_table(self) -> tuple[list[str], list[list[str]]]:
        """Return the column names and a row for each cell."""
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
        return [
            cell_result.name,
            size,
            loss,
            *each,
            format_mean_and_std(cell_result.averages(self.benchmarks)),
        ]


def format_mean_and_std(values: Sequence[float]) -> str:
    """Format a mean, with the standard deviation of several values."""
    if not values:
        return ""
    spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{spread}"
