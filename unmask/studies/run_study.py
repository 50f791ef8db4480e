"""Running a study: each cell is pretrained and fine-tuned, and can be resumed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unmask.checkpoints.folder import lock_run_folder
from unmask.files import remove_partial_files
from unmask.finetuning.suite import BenchmarkResult, finetune_suite
from unmask.inference.export import is_finished_run
from unmask.jobs.prepare import DOCUMENT_OPTIONS, prepare
from unmask.jobs.pretrain.apply_recipe import apply_recipe
from unmask.jobs.pretrain.pretrain import pretrain
from unmask.jobs.pretrain.recipe_defaults import keys_of_changes
from unmask.jobs.pretrain.resolve_options import check_run_numbers, drop_unsupported, preset_recipe
from unmask.options import takes_options
from unmask.reports.page import write_report
from unmask.reports.report_data import RUN_FILE as RUN
from unmask.reports.report_data import read_report_data
from unmask.studies.compression.result import CompressionStudyResult
from unmask.studies.compression.run import run_compression_study
from unmask.studies.compression.study import CompressionStudy
from unmask.studies.lottery.result import LotteryResult
from unmask.studies.lottery.run import LotteryPlaces, run_lottery
from unmask.studies.lottery.study import LotteryStudy
from unmask.studies.options import StudyOptions
from unmask.studies.page import PLOT_FILE, draw_svg, format_markdown
from unmask.studies.published_studies import find_study
from unmask.studies.result import CellResult, StudyResult
from unmask.studies.study import Study, StudyCell
from unmask.studies.study_run import PRETRAINED_FOLDER, TUNED_FOLDER, StudyRun, run_fields
from unmask.tasks.suites.benchmark import find_file
from unmask.tasks.suites.bundled import find_suite
from unmask.training import config as recipes
from unmask.training.best_effort import best_effort
from unmask.training.config import Recipe
from unmask.training.device import distributed
from unmask.training.interrupt import interrupt_on_signal
from unmask.zoo.catalogue import get_preset
from unmask.zoo.preset import Published

AnyResult = StudyResult | CompressionStudyResult | LotteryResult
_STUDY_KEYS = {
    "model": "each cell has its own model",
    "data": "the text is given by --data",
    "steps": "the length of pretraining is given by tokens",
    **dict.fromkeys((*DOCUMENT_OPTIONS, "sampling_exponent"), "cells share the tokenized text"),
}
"""Recipe keys set by the study, and the reason for messages."""


@takes_options(StudyOptions)
@interrupt_on_signal()
def run_study(options: StudyOptions) -> AnyResult:
    """Run the cells of a study under one budget, score each on the same tasks, compare.

    A cell of most studies is pretrained and fine-tuned; one of a study of compression is a way to
    make the same model smaller. A `LotteryStudy` trains one model with masks instead.

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
        raise ValueError(
            f"--base is of studies of one model; {study.name} pretrains each of its cells"
        ) from None
    check_run_numbers(workers=options.workers, threads=options.threads)
    distributed.resolve_device(options.device)
    return _RUNS[type(study)](study, options)


@dataclass(frozen=True, kw_only=True)
class _PretrainingStudyRun(StudyRun[StudyCell, CellResult]):
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

    def run_outcome(self, cell: StudyCell, so_far: CellResult) -> CellResult:
        """Pretrain and fine-tune a cell, or resume it; its errors do not stop other cells."""
        outcome = CellResult(name=cell.name)
        if not cell.text:
            self._prepare_text(cell)  # its errors concern all cells
        try:
            self._pretrain(cell)
            record = read_report_data(self._pretraining_folder(cell))
            outcome = replace(outcome, parameters=int(record.run_record.get("parameters") or 0))
            if cell.token_factor:
                outcome = replace(
                    outcome,
                    loss=record.evaluation_log.last("loss"),
                    tokens=int(record.training_log.last("tokens") or 0),
                    seconds=round(record.total_seconds or 0.0, 1),
                )
            return replace(outcome, scores=self._finetune_cell(cell))
        except (FloatingPointError, ValueError) as error:
            message = " ".join(str(error).split())
            self.show(f"{cell.name} is left out: {message}")
            return replace(outcome, error=message)

    def _finetune_cell(self, cell: StudyCell) -> tuple[BenchmarkResult, ...]:
        """Fine-tune a cell on each task; test files are not scored, the table has only dev."""
        tuned = self.folder / TUNED_FOLDER / cell.name
        tuned.parent.mkdir(exist_ok=True)
        return finetune_suite(
            self._pretraining_folder(cell),
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

    def _initial_cell(self, cell: StudyCell) -> StudyCell | None:
        """Return the cell that provides the initial weights."""
        return next((one for one in self.study.cells if one.name == cell.init_from), None)

    def _pretraining_folder(self, cell: StudyCell) -> Path:
        """Return the folder of a cell's pretraining, possibly of an earlier cell."""
        before = self._initial_cell(cell)
        if before is not None and not cell.token_factor:
            return self._pretraining_folder(before)
        return self.folder / PRETRAINED_FOLDER / cell.name

    def _prepare_text(self, cell: StudyCell) -> Path:
        """Tokenize the text for all cells with the same tokenizer, unless done.

        A cell's own text is tokenized by the tokenizer of its initial model.

        Raises:
            ValueError: the text cannot be read, or is too little for a vocabulary.
        """
        spec, before = get_preset(cell.model).tokenizer, self._initial_cell(cell)
        model = next(c.model for c in self.study.cells if get_preset(c.model).tokenizer == spec)
        text = self.folder / "text" / (f"of-{cell.name}" if cell.text else model)
        text.parent.mkdir(exist_ok=True)
        with lock_run_folder(text.parent, wait=True):
            prepare(
                _find_cell_text(cell, self.tasks_folder) or self.sources,
                out=text,
                model=model,
                tokenizer=self._pretraining_folder(before)
                if cell.text and before is not None
                else None,
                workers=max(1, self.workers),
                quiet=self.terminal is None,
            )
        return text

    def _pretrain(self, cell: StudyCell) -> None:
        """Pretrain a cell, after the cell of its initial weights, unless done.

        If another process pretrains it, wait for that.
        """
        before = self._initial_cell(cell)
        if before is not None:
            self._pretrain(before)
        if before is not None and not cell.token_factor:
            return
        place = self.folder / ".running" / cell.name / "pretraining"
        place.mkdir(parents=True, exist_ok=True)
        with lock_run_folder(place, wait=True):
            self._pretrain_alone(cell, before)

    def _pretrain_alone(self, cell: StudyCell, initial_cell: StudyCell | None) -> None:
        run = self._pretraining_folder(cell)
        if is_finished_run(run):
            remove_partial_files(run)
            with best_effort("report.html"):
                write_report(run)  # written last: it may be missing
            return
        run.parent.mkdir(exist_ok=True)
        pretrain(
            cell.model, data=self._prepare_text(cell), out=run,
            init_from=None if initial_cell is None else self._pretraining_folder(initial_cell),
            tokens=None if cell.has_word_vectors else self.study.token_budget(cell),
            resume=(run / RUN).is_file(), changes=self.study.recipe_changes(cell),
            workers=self.workers, device=self.device, threads=self.threads,
            quiet=self.terminal is None,
        )  # fmt: skip


def _check_cell(study: Study, cell: StudyCell, file: str = "") -> tuple[Published, Recipe]:
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


def _find_cell_text(cell: StudyCell, tasks_folder: Path | None) -> list[Path]:
    """Find a cell's own text, plain or compressed.

    Raises:
        FileNotFoundError: it is missing.
        ValueError: there is no folder of tasks.
    """
    if cell.text and tasks_folder is None:
        raise ValueError(
            f"cell {cell.name} reads {cell.text[0]} of the tasks' files: give their folder by "
            "--tasks-data"
        )
    paths = [] if tasks_folder is None else [find_file(tasks_folder, name) for name in cell.text]
    for name, path in zip(cell.text, paths, strict=False):
        if path is None:
            raise FileNotFoundError(
                f"{tasks_folder}: cell {cell.name} reads {name}, which is missing"
            )
    return [path for path in paths if path is not None]


def _run_pretraining_study(study: Study, options: StudyOptions) -> StudyResult:
    """Check all cells of a study of pretraining and run those that are wanted."""
    now = study.select_cells(options.cells)
    file = options.study if isinstance(options.study, str | Path) else study.name
    for cell in study.cells:
        _check_cell(study, cell, str(file))
    fields = run_fields(study, options)
    for cell in study.cells:
        _find_cell_text(cell, fields["tasks_folder"])
    benchmarks, _ = find_suite(study.tasks, fields["tasks_folder"], include_test=False)
    run = _PretrainingStudyRun(**fields, benchmarks=tuple(one.name for one in benchmarks))
    return run.result(run.run(now, resume=options.resume))


def _run_lottery(study: LotteryStudy, options: StudyOptions) -> LotteryResult:
    """Run a study of lottery tickets."""
    fields = run_fields(study, options)
    places = LotteryPlaces(
        folder=fields["folder"], sources=tuple(map(str, fields["sources"])),
        tasks_folder=fields["tasks_folder"], device=options.device, threads=options.threads,
        workers=options.workers, terminal=options.terminal,
    )  # fmt: skip
    arms = study.select_arms(tuple(options.cells))
    return run_lottery(study, places, arms, resume=options.resume)


_RUNS: Mapping[type, Callable[[Any, StudyOptions], AnyResult]] = {
    Study: _run_pretraining_study,
    CompressionStudy: run_compression_study,
    LotteryStudy: _run_lottery,
}
