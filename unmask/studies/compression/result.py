"""Results of a study of compression: quality beside size, speed and memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from unmask.studies.compression.study import CompressionStudy
from unmask.studies.result import CellResult, format_mean_and_std


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """What a model needs to answer: measured in turn with the whole model."""

    disk_bytes: int
    """Bytes of the files of weights."""
    milliseconds: Mapping[str, float] = field(default_factory=dict[str, float])
    """Median time of a call, by the number of texts in it."""
    latency_ratios: Mapping[str, float] = field(default_factory=dict[str, float])
    """Median ratio of the time to the whole model's in the same round, likewise."""
    memory_bytes: int = 0
    """Peak of resident memory while a process opens the model and answers, minus what the process
    had before."""
    joules: float = 0.0
    """Energy of the processor for a thousand texts, in calls of the largest number of texts."""
    power_source: str = ""
    """Where the power is from: RAPL, or watts per core and their source."""


@dataclass(frozen=True, kw_only=True)
class CompressedResult(CellResult):
    """Scores of a way to make the model smaller, and what the result needs."""

    measurements: Measurements | None = None
    """Of its model of the first task and seed. None: not measured yet."""

    def is_done(self, benchmarks: Sequence[str]) -> bool:
        """Return whether all is scored and measured."""
        return super().is_done(benchmarks) and self.measurements is not None


@dataclass(frozen=True, kw_only=True)
class CompressionStudyResult:
    """Results of a study of compression so far."""

    study: CompressionStudy
    benchmarks: tuple[str, ...]
    cell_results: tuple[CompressedResult, ...]

    def to_table(self) -> tuple[list[str], list[list[str]]]:
        """Return the column names and a row for each cell; * marks the Pareto front."""
        sizes = sorted(
            {n for r in self.cell_results if r.measurements for n in r.measurements.milliseconds},
            key=int,
        )
        names = ["cell", "parameters", "MB", *self.benchmarks, "average", "of whole"]
        names += [f"latency x {n}" for n in sizes] + ["memory, MB", "J per 1,000 texts"]
        front = {one.name for one in self.pareto_front()}
        return names, [self._table_row(one, sizes, one.name in front) for one in self.cell_results]

    def pareto_front(self) -> list[CompressedResult]:
        """Return the results that no other beats in both average and bytes on disk."""
        done = [
            (float(np.mean(averages)), one.measurements.disk_bytes, one)
            for one in self.cell_results
            if one.measurements and (averages := one.averages(self.benchmarks))
        ]
        return [
            one
            for average, size, one in done
            if not any(a >= average and s <= size and (a, s) != (average, size) for a, s, _ in done)
        ]

    def share_of_whole(self, result: CompressedResult) -> float | None:
        """Return the ratio of a cell's average to the whole model's; None before both are known."""
        whole, own = (r.averages(self.benchmarks) for r in (self.cell_results[0], result))
        if not whole or not own or not np.mean(whole):
            return None
        return float(np.mean(own) / np.mean(whole))

    def _table_row(
        self, result: CompressedResult, sizes: Sequence[str], is_on_front: bool
    ) -> list[str]:
        m, share = result.measurements, self.share_of_whole(result)
        averages = format_mean_and_std(result.averages(self.benchmarks))
        row = [
            result.name,
            f"{result.parameters:,}" if result.parameters else "",
            f"{m.disk_bytes / 1e6:.1f}" if m else "left out" if result.error else "",
            *(format_mean_and_std(result.scores_of(name)) for name in self.benchmarks),
            averages + " *" * (is_on_front and bool(averages)),
            "" if share is None else f"{share:.3f}",
        ]
        if m is None:
            return [*row, *[""] * (len(sizes) + 2)]
        row += [f"{m.latency_ratios[n]:.2f}" if n in m.latency_ratios else "" for n in sizes]
        return [*row, f"{m.memory_bytes / 1e6:.0f}", f"{m.joules:.0f}"]
