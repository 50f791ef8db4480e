"""Results of a lottery study: a score for each task, mask, sparsity and seed."""

from collections.abc import Sequence
from dataclasses import dataclass

from unmask.finetuning.suite import scale_to_100
from unmask.studies.lottery.study import DENSE, LotteryStudy
from unmask.studies.result import format_mean_and_std

Split = str
"""dev or test."""


@dataclass(frozen=True, kw_only=True)
class LotteryScore:
    """The scores of one run."""

    benchmark: str
    arm: str
    """`DENSE`, or an arm of the study."""
    sparsity: float
    """Fraction of the layers' weights that is zero."""
    seed: int
    metric: str
    dev: float
    test: float | None = None
    """None: there is no test file."""


@dataclass(frozen=True, kw_only=True)
class LotteryResult:
    """Results of a study so far."""

    study: LotteryStudy
    benchmarks: tuple[str, ...]
    scores: tuple[LotteryScore, ...]

    def scores_of(
        self, benchmark: str, arm: str, sparsity: float = 0.0, split: Split = "dev"
    ) -> list[float]:
        """Return scores up to 100, one per seed."""
        ran = [
            one
            for one in self.scores
            if (one.benchmark, one.arm, one.sparsity) == (benchmark, arm, sparsity)
        ]
        values = [one.dev if split == "dev" else one.test for one in ran]
        known = [value for value in values if value is not None]
        return scale_to_100(ran[0].metric, known) if known else []

    def splits_of(self, benchmark: str) -> list[Split]:
        """Return the splits of a benchmark that have scores; dev at least."""
        tested = any(one.test is not None for one in self.scores if one.benchmark == benchmark)
        return ["dev", "test"] if tested else ["dev"]

    def to_table(self) -> tuple[list[str], list[list[str]]]:
        """Return the column names, and a row for each task, split and sparsity; the dense first."""
        arms = list(self.study.arms)
        names = ["task", "split", "zeros", *(arm.replace("-", " ") for arm in arms)]
        rows: list[list[str]] = []
        for benchmark in self.benchmarks:
            for split in self.splits_of(benchmark):
                dense = format_mean_and_std(self.scores_of(benchmark, DENSE, split=split))
                rows.append([benchmark, split, "0 %", dense, *[""] * (len(arms) - 1)])
                rows += (
                    [benchmark, split, f"{100 * s:g} %", *self._cells(benchmark, s, split, arms)]
                    for s in self.study.sparsities
                )
        return names, rows

    def _cells(
        self, benchmark: str, sparsity: float, split: Split, arms: Sequence[str]
    ) -> list[str]:
        return [
            format_mean_and_std(self.scores_of(benchmark, arm, sparsity, split)) for arm in arms
        ]
