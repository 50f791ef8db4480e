"""Running a study: each cell is pretrained and fine-tuned, and can be resumed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from unmask.finetuning.suite import BenchmarkResult, finetune_suite
from unmask.jobs.corpus.prepare import DOCUMENT_OPTIONS
from unmask.jobs.pretrain.apply_recipe import apply_recipe
from unmask.jobs.pretrain.recipe_defaults import keys_of_changes
from unmask.jobs.pretrain.resolve_options import check_run_numbers, drop_unsupported, preset_recipe
from unmask.options import takes_options
from unmask.studies.compression.result import CompressionStudyResult
from unmask.studies.compression.run import run_compression_study
from unmask.studies.compression.study import CompressionStudy
from unmask.studies.lottery.result import LotteryResult
from unmask.studies.lottery.run import LotteryPlaces, run_lottery
from unmask.studies.lottery.study import LotteryStudy
from unmask.studies.options import StudyOptions
from unmask.studies.page import PLOT_FILE, draw_svg, format_markdown
from unmask.studies.probing.result import ProbingStudyResult
from unmask.studies.probing.run import ProbingRun
from unmask.studies.probing.study import ProbingStudy
from unmask.studies.published_studies import find_study
from unmask.studies.read_study import AnyStudy
from unmask.studies.result import CellResult, StudyResult
from unmask.studies.study import PretrainedCells, Study, StudyCell
from unmask.studies.study_run import TUNED_FOLDER, PretrainingRun, find_cell_text, run_fields
from unmask.studies.transfer.data import read_translations
from unmask.studies.transfer.result import TransferStudyResult
from unmask.studies.transfer.run import TransferRun
from unmask.studies.transfer.study import TransferStudy
from unmask.tasks.suites.bundled import find_suite
from unmask.training import config as recipes
from unmask.training.config import Recipe
from unmask.training.device import distributed
from unmask.training.interrupt import interrupt_on_signal
from unmask.zoo.catalogue import get_preset
from unmask.zoo.preset import Published

AnyResult = (
    StudyResult | CompressionStudyResult | LotteryResult | ProbingStudyResult | TransferStudyResult
)
_STUDY_KEYS = {
    "model": "each cell has its own model",
    "data": "the text is given by --data",
    "steps": "the length of pretraining is given by tokens",
    **dict.fromkeys(
        (*DOCUMENT_OPTIONS, "sampling_exponent", "source_weights"), "cells share the tokenized text"
    ),
}
"""Recipe keys set by the study, and the reason for messages."""


@takes_options(StudyOptions)
@interrupt_on_signal()
def run_study(options: StudyOptions) -> AnyResult:
    """Run the cells of a study under one budget, score each on the same tasks, compare.

    A cell of most studies is pretrained and fine-tuned; one of a study of compression is a way to
    make the same model smaller, and one of a study of probes is probed instead of fine-tuned. A
    `LotteryStudy` trains one model with masks.

    The folder has `study.json`, the table in `README.md`, the plot `plot.svg`, and all runs.
    Several processes may run the same study: each takes the next free cell. A cell that cannot be
    trained is left out and reported.

    The fields of `StudyOptions` are its keywords.

    Raises:
        FileNotFoundError: the text, or all files of the tasks, are missing.
        ValueError: there is no such study or cell, a cell is invalid for its model, or `out` has
            other content.
        KeyboardInterrupt: the study was stopped; it can be resumed.
    """
    study = options.study
    study = find_study(study) if isinstance(study, str | Path) else study
    names = ("tokens", "rows", "epochs", "seeds", "base")
    changes = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    try:
        study = replace(study, **changes)
    except ValueError as error:
        raise ValueError(f"--{error}") from None
    except TypeError:
        raise ValueError(_unknown_change(study, changes)) from None
    check_run_numbers(workers=options.workers, threads=options.threads)
    distributed.resolve_device(options.device)
    return _RUNS[type(study)](study, options)


def _unknown_change(study: AnyStudy, changes: Mapping[str, Any]) -> str:
    """Return a message on the first change of a study that its kind does not have."""
    known = {field.name for field in fields(study)}
    name = next(name for name in changes if name not in known)
    if name == "base":
        return f"--base is of studies of one model; {study.name} pretrains each of its cells"
    return f"--{name} is of studies that fine-tune; {study.name} trains probes"


@dataclass(frozen=True, kw_only=True)
class _PretrainingStudyRun(PretrainingRun[CellResult]):
    """A study of pretraining variants to run or resume."""

    study: Study

    @property
    def result_type(self) -> type[CellResult]:
        return CellResult

    def result(self, cell_results: tuple[CellResult, ...]) -> StudyResult:
        return StudyResult(study=self.study, benchmarks=self.benchmarks, cell_results=cell_results)

    def pages(self, results: tuple[CellResult, ...]) -> Mapping[str, Callable[[], str]]:
        result = self.result(results)
        return {
            PLOT_FILE: lambda: draw_svg(result),
            "README.md": lambda: format_markdown(result),
        }

    def score_cell(self, cell: StudyCell, outcome: CellResult) -> CellResult:
        return replace(outcome, scores=self._finetune_cell(cell))

    def _finetune_cell(self, cell: StudyCell) -> tuple[BenchmarkResult, ...]:
        """Fine-tune a cell on each task; test files are not scored, the table has only dev."""
        tuned = self.folder / TUNED_FOLDER / cell.name
        tuned.parent.mkdir(exist_ok=True)
        return finetune_suite(
            self.pretraining_folder(cell),
            tasks=self.study.tasks,
            out=tuned,
            data=self.tasks_folder,
            rows=self.study.rows,
            epochs=self.study.epochs,
            seeds=self.study.seeds,
            initialize="pretrained" if cell.has_trained_weights else "random",
            tune=cell.tune,
            device=self.device,
            resume=tuned.exists(),
            include_test=False,
            terminal=self.terminal,
        ).benchmarks


def _check_cell(
    study: PretrainedCells, cell: StudyCell, file: str = ""
) -> tuple[Published, Recipe]:
    """Check a cell before anything is run; return its preset and recipe."""
    usual = preset_recipe(cell.model)
    try:
        recipe = recipes.apply_changes(usual, study.recipe_changes(cell), origin="changes")
        for key, reason in _STUDY_KEYS.items():
            if getattr(recipe, key) != getattr(usual, key):
                raise ValueError(f"changes: {key} cannot be changed in a study: {reason}")
        recipe, _ = drop_unsupported(recipe, keys_of_changes(study.recipe_changes(cell)))
        return apply_recipe(get_preset(cell.model), recipe), recipe
    except ValueError as error:
        raise ValueError(f"{file or study.name}: cell {cell.name}: {error}") from None


def _run_pretraining_study(study: Study, options: StudyOptions) -> StudyResult:
    """Check all cells of a study of pretraining and run those that are wanted."""
    now, of_run = _find_cells(study, options)
    benchmarks, _ = find_suite(study.tasks, of_run["tasks_folder"], include_test=False)
    run = _PretrainingStudyRun(**of_run, benchmarks=tuple(one.name for one in benchmarks))
    return run.result(run.run(now, resume=options.resume))


def _run_probing_study(study: ProbingStudy, options: StudyOptions) -> ProbingStudyResult:
    """Check all cells of a study of probes and run those that are wanted."""
    now, of_run = _find_cells(study, options)
    files = study.find_files(of_run["tasks_folder"])
    run = ProbingRun(**of_run, benchmarks=tuple(one.name for one, _ in files), files=files)
    return run.result(run.run(now, resume=options.resume))


def _run_transfer_study(study: TransferStudy, options: StudyOptions) -> TransferStudyResult:
    """Check all cells of a study of transfer and run those that are wanted."""
    if options.data:
        raise ValueError(f"{study.name} reads {study.tasks} of --tasks-data: leave --data out")
    now, of_run = _find_cells(study, options)
    folder = of_run["tasks_folder"]
    files = study.find_files(folder)
    of_run |= {"sources": tuple(files.values()), "benchmarks": study.scored_languages}
    labeled = None if study.labeled is None else study.labeled.find(folder)
    run = TransferRun(**of_run, translations=read_translations(study, files), labeled=labeled)
    return run.result(run.run(now, resume=options.resume))


def check_cells(study: PretrainedCells, file: str = "") -> None:
    """Check all cells of a study: that each model has its objective and takes its changes.

    Raises:
        ValueError: one is not possible; the file, or else the study, and the cell are named.
    """
    for cell in study.cells:
        _check_cell(study, cell, file)


def _find_cells(
    study: PretrainedCells, options: StudyOptions
) -> tuple[list[StudyCell], dict[str, Any]]:
    """Check all cells of a study; return those that are wanted, and the fields of its run."""
    now = study.select_cells(options.cells)
    file = options.study if isinstance(options.study, str | Path) else study.name
    check_cells(study, str(file))
    of_run = run_fields(study, options)
    for cell in study.cells:
        find_cell_text(cell, of_run["tasks_folder"])
    return now, of_run


def _run_lottery(study: LotteryStudy, options: StudyOptions) -> LotteryResult:
    """Run a study of lottery tickets."""
    of_run = run_fields(study, options)
    places = LotteryPlaces(
        folder=of_run["folder"], sources=tuple(map(str, of_run["sources"])),
        tasks_folder=of_run["tasks_folder"], device=options.device, threads=options.threads,
        workers=options.workers, terminal=options.terminal,
    )  # fmt: skip
    arms = study.select_arms(tuple(options.cells))
    return run_lottery(study, places, arms, resume=options.resume)


_RUNS: Mapping[type, Callable[[Any, StudyOptions], AnyResult]] = {
    Study: _run_pretraining_study,
    CompressionStudy: run_compression_study,
    LotteryStudy: _run_lottery,
    ProbingStudy: _run_probing_study,
    TransferStudy: _run_transfer_study,
}
