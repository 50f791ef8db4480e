"""Running a study of probes: each cell is pretrained and its layers are probed on each task."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from unmask.files import read_json_object
from unmask.jobs.probe.probe import probe
from unmask.jobs.probe.probes import ProbesAnalysis
from unmask.studies.page import PLOT_FILE
from unmask.studies.probing.page import draw_probing_plot, format_probing_page
from unmask.studies.probing.result import ProbedResult, ProbingStudyResult, TaskProbes
from unmask.studies.probing.study import ProbedFile, ProbingStudy
from unmask.studies.study import StudyCell
from unmask.studies.study_run import PretrainingRun

_PROBED_FOLDER, _REPORT_FILE = "probed", "probes.json"


@dataclass(frozen=True, kw_only=True)
class ProbingRun(PretrainingRun[ProbedResult]):
    """A study of probes to run or resume."""

    study: ProbingStudy
    files: tuple[tuple[ProbedFile, Path], ...]

    @property
    def result_type(self) -> type[ProbedResult]:
        """Type of the result of a cell."""
        return ProbedResult

    def result(self, results: tuple[ProbedResult, ...]) -> ProbingStudyResult:
        """Return the results of all cells."""
        return ProbingStudyResult(
            study=self.study, benchmarks=self.benchmarks, cell_results=results
        )

    def pages(self, results: tuple[ProbedResult, ...]) -> Mapping[str, Callable[[], str]]:
        """Return the page and the plot."""
        result = self.result(results)
        return {
            PLOT_FILE: lambda: draw_probing_plot(result),
            "README.md": lambda: format_probing_page(result),
        }

    def score_cell(self, cell: StudyCell, outcome: ProbedResult) -> ProbedResult:
        """Probe a cell on each task; finished tasks are read."""
        for task, path in self.files:
            outcome = replace(outcome, probes=(*outcome.probes, self._probe(cell, task, path)))
        return outcome

    def _probe(self, cell: StudyCell, task: ProbedFile, path: Path) -> TaskProbes:
        out = self.folder / _PROBED_FOLDER / cell.name / task.name
        report = out / _REPORT_FILE
        if not report.is_file():
            if out.exists():
                shutil.rmtree(out)  # of a run that was killed while it wrote
            probe(
                self.pretraining_folder(cell),
                analysis=[
                    ProbesAnalysis(
                        tasks=(task.task,),
                        sentences=self.study.rows,
                        max_epochs=int(self.study.epochs),
                        label_column=task.label_column,
                        mix=False,
                    )
                ],
                data=path,
                out=out,
                device=self.device,
                terminal=self.terminal,
            )
        found = read_json_object(report)
        return TaskProbes.of_report(task.name, found["tasks"][task.task])
