"""Results of a study of probes: scores by cell, task and layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unmask.studies.probing.study import ProbingStudy
from unmask.studies.result import CellResult


@dataclass(frozen=True, kw_only=True)
class TaskProbes:
    """What probes read from each layer of a cell about one task."""

    name: str
    """Of the task."""
    n_scored: int
    """Words or spans."""
    majority: float
    """Accuracy of the baseline without a network, from 0 to 1, as all accuracies."""
    accuracies: tuple[float, ...]
    """Of each layer, from the input of the first."""
    compressions: tuple[float, ...]
    """Uniform code length by online code length, of each layer."""
    random_accuracies: tuple[float, ...]
    """Of the same network with random weights."""

    @classmethod
    def of_report(cls, name: str, task: Mapping[str, Any]) -> "TaskProbes":
        """Read a task of the report of `unmask probe --analysis probes`."""
        layers = {network: facts["layers"] for network, facts in task["networks"].items()}
        return cls(
            name=name,
            n_scored=task["words"]["scored"],
            majority=task["majority_accuracy"],
            accuracies=tuple(one["accuracy"] for one in layers["trained"]),
            compressions=tuple(one["compression"] for one in layers["trained"]),
            random_accuracies=tuple(one["accuracy"] for one in layers["random"]),
        )

    @property
    def best_layer(self) -> int:
        """The layer with the highest accuracy, the lowest of equal ones."""
        return max(range(len(self.accuracies)), key=lambda i: (self.accuracies[i], -i))


@dataclass(frozen=True, kw_only=True)
class ProbedResult(CellResult):
    """What is known of the layers of a cell."""

    probes: tuple[TaskProbes, ...] = ()

    def is_done(self, benchmarks: Sequence[str]) -> bool:
        """Return whether all tasks are probed."""
        return not self.error and {one.name for one in self.probes}.issuperset(benchmarks)

    def probes_of(self, task: str) -> TaskProbes | None:
        """Return the probes of a task; None: not yet."""
        return next((one for one in self.probes if one.name == task), None)


@dataclass(frozen=True, kw_only=True)
class ProbingStudyResult:
    """Results of a study of probes so far."""

    study: ProbingStudy
    benchmarks: tuple[str, ...]
    """Names of the tasks."""
    cell_results: tuple[ProbedResult, ...]

    def to_table(self) -> tuple[list[str], list[list[str]]]:
        """Return the column names, a row for each cell, and one for the baseline.

        Of each task: the highest accuracy of a layer, which one, and that of random weights.
        """
        names = ["cell", "parameters", "held-out loss"]
        for name in self.benchmarks:
            names += [name, "layer", "random"]
        rows = [self._table_row(one) for one in self.cell_results]
        baseline = [x for name in self.benchmarks for x in (_percent(self.majority(name)), "", "")]
        return names, [*rows, ["baseline", "", "", *baseline]]

    def layer_table(self, task: str) -> tuple[list[str], list[list[str]]]:
        """Return a row for each cell that is probed, with the accuracy of each layer."""
        probed = [(one.name, found) for one in self.cell_results if (found := one.probes_of(task))]
        n = max((len(found.accuracies) for _, found in probed), default=0)
        return ["cell", *map(str, range(n))], [
            [name, *map(_percent, found.accuracies), *[""] * (n - len(found.accuracies))]
            for name, found in probed
        ]

    def majority(self, task: str) -> float | None:
        """Return the accuracy of a task's baseline; None: no cell is probed yet."""
        found = [one.probes_of(task) for one in self.cell_results]
        return next((one.majority for one in found if one is not None), None)

    def _table_row(self, result: ProbedResult) -> list[str]:
        loss = "" if result.loss is None else f"{result.loss:.3f}"
        row = [
            result.name,
            f"{result.parameters:,}" if result.parameters else "",
            "left out" if result.error else loss,
        ]
        for name in self.benchmarks:
            found = result.probes_of(name)
            row += (
                ["", "", ""]
                if found is None
                else [
                    _percent(max(found.accuracies)),
                    str(found.best_layer),
                    _percent(max(found.random_accuracies)),
                ]
            )
        return row


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"
