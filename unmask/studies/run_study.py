"""Running a study: each cell is pretrained and fine-tuned, and can be resumed."""

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unmask.checkpoints.folder import lock_run_folder
from unmask.config import from_dict, to_dict
from unmask.files import remove_partial_files, write_atomically
from unmask.finetuning.results.report import to_json
from unmask.finetuning.suite import BenchmarkResult, finetune_suite
from unmask.inference.export import read_run_file
from unmask.jobs.prepare import DOCUMENT_OPTIONS, check_sources, prepare
from unmask.jobs.pretrain.apply_recipe import apply_recipe
from unmask.jobs.pretrain.pretrain import pretrain
from unmask.jobs.pretrain.recipe_defaults import keys_of_changes
from unmask.jobs.pretrain.resolve_options import check_run_numbers, drop_unsupported, preset_recipe
from unmask.options import takes_options
from unmask.output import OutputStream, print_line
from unmask.reports.page import write_report
from unmask.reports.report_data import RUN_FILE as RUN
from unmask.reports.report_data import read_report_data
from unmask.saved_format import FORMAT, read_saved
from unmask.studies.lottery.result import LotteryResult
from unmask.studies.lottery.run import LotteryPlaces, run_lottery
from unmask.studies.lottery.study import LotteryStudy
from unmask.studies.options import StudyOptions
from unmask.studies.page import PLOT_FILE, draw_svg, format_markdown
from unmask.studies.published_studies import find_study
from unmask.studies.result import CellResult, StudyResult
from unmask.studies.study import Study, StudyCell
from unmask.tasks.suites.benchmark import find_file
from unmask.tasks.suites.bundled import find_suite
from unmask.training import config as recipes
from unmask.training.best_effort import best_effort
from unmask.training.config import Recipe
from unmask.training.device import distributed
from unmask.training.interrupt import interrupt_on_signal
from unmask.zoo.catalogue import get_preset
from unmask.zoo.preset import Published

STUDY_FILE = "study.json"
DESCRIPTIONS = frozenset({"question", "paper"})
"""Fields of a study that describe it and change no result: a resumed study may have others."""

_STUDY_KEYS = {
    "model": "each cell has its own model",
    "data": "the text is given by --data",
    "steps": "the length of pretraining is given by tokens",
    **dict.fromkeys((*DOCUMENT_OPTIONS, "sampling_exponent"), "cells share the tokenized text"),
}
"""Recipe keys set by the study, and the reason for messages."""


@takes_options(StudyOptions)
@interrupt_on_signal()
def run_study(options: StudyOptions) -> StudyResult | LotteryResult:
    """Pretrain the cells of a study under one budget, fine-tune each on the same tasks, compare.

    A `LotteryStudy` trains one model with masks instead.

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
    resolved = find_study(str(study)) if isinstance(study, str | Path) else study
    names = ("tokens", "rows", "epochs", "seeds")
    changes = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    try:
        resolved = replace(resolved, **changes)  # pyright: ignore[reportArgumentType]  # checked there
    except ValueError as error:
        raise ValueError(f"--{error}") from None
    check_run_numbers(workers=options.workers, threads=options.threads)
    distributed.resolve_device(options.device)
    if isinstance(resolved, LotteryStudy):
        return _run_lottery(resolved, options)
    return _run_variants(resolved, options)


def _run_lottery(study: LotteryStudy, options: StudyOptions) -> LotteryResult:
    """Run a study of lottery tickets."""
    data = options.data
    places = LotteryPlaces(
        folder=Path(options.out),
        sources=(str(data),) if isinstance(data, str | Path) else tuple(map(str, data)),
        tasks_folder=None if options.tasks_data is None else Path(options.tasks_data),
        device=options.device,
        threads=options.threads,
        workers=options.workers,
        terminal=options.terminal,
    )
    arms = study.select_arms(tuple(options.cells))
    return run_lottery(study, places, arms, resume=options.resume)


def _run_variants(resolved: Study, options: StudyOptions) -> StudyResult:
    """Run a study of pretraining variants."""
    study, data, tasks_data = options.study, options.data, options.tasks_data
    file = str(study) if isinstance(study, str | Path) else resolved.name
    now = resolved.select_cells(options.cells)
    for cell in resolved.cells:
        _check_cell(resolved, cell, file)
    data_folder = None if tasks_data is None else Path(tasks_data)
    for cell in resolved.cells:
        _find_cell_text(cell, data_folder)
    benchmarks, _ = find_suite(resolved.tasks, data_folder, include_test=False)
    sources = (data,) if isinstance(data, str | Path) else tuple(data)
    job = _StudyRun(
        study=resolved, benchmarks=tuple(one.name for one in benchmarks), sources=sources,
        tasks_folder=data_folder, folder=Path(options.out), workers=options.workers,
        device=options.device, threads=options.threads, terminal=options.terminal,
    )  # fmt: skip
    is_new = not job.folder.exists()
    result = job.save_result(resume=options.resume)
    try:
        check_sources([str(source) for source in sources])
        for n, cell in enumerate(now, 1):
            job.show(f"{cell.name}, {n} of {len(now)}")
            result = job.run_cell(cell)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{job.folder}: stopped; continue with --resume") from None
    except (ValueError, OSError):
        if is_new and not (job.folder / "pretrained").exists():
            shutil.rmtree(job.folder)  # invalid text: the folder can be reused
        raise
    requested = {cell.name for cell in now}
    failed = [one for one in result.cell_results if one.error and one.name in requested]
    if len(failed) == len(now):
        raise ValueError(
            f"{resolved.name}: no cell could be run; {failed[0].name}: {failed[0].error}"
        )
    return result


@dataclass(frozen=True, kw_only=True)
class _SavedStudy:
    """The results in a study's facts."""

    cells: tuple[CellResult, ...]


@dataclass(frozen=True, kw_only=True)
class _StudyRun:
    """A study to run or resume; other processes may run other cells."""

    study: Study
    benchmarks: tuple[str, ...]
    sources: tuple[str | Path, ...]
    tasks_folder: Path | None
    folder: Path
    workers: int
    device: str
    threads: int | None
    terminal: OutputStream | None

    @property
    def comparable_settings(self) -> dict[str, Any]:
        """Settings that must be equal when a study is resumed."""
        return {
            "study": to_dict(self.study),
            "data": [str(source) for source in self.sources],
            "tasks_data": None if self.tasks_folder is None else str(self.tasks_folder),
        }

    def show(self, text: str) -> None:
        """Print a line."""
        if self.terminal is not None:
            print_line(text, self.terminal)

    def save_result(
        self, cell_result: CellResult | None = None, *, resume: bool = True
    ) -> StudyResult:
        """Write the results of all cells and a new one, under a lock.

        Raises:
            ValueError: the folder is of another study, or must not be resumed.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"{self.folder}: is a file; a study needs a folder")
        if self.folder.is_dir():
            self._check_folder(resume=resume)  # before a lock file is written
        self.folder.mkdir(parents=True, exist_ok=True)
        with lock_run_folder(self.folder, wait=True):
            self._check_folder(resume=resume)
            remove_partial_files(self.folder)
            result = self._load_results()
            result = result if cell_result is None else result.with_result(cell_result)
            self._write_results(result)
        return result

    def run_cell(self, cell: StudyCell) -> StudyResult:
        """Run a cell, unless it is done or run by another process."""
        place = self.folder / ".running" / cell.name
        place.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(lock_run_folder(place))
            except ValueError:
                self.show(f"{cell.name} is run by another process")
                return self.save_result()
            made = self.save_result()
            was = next(one for one in made.cell_results if one.name == cell.name)
            return (
                made if was.is_done(self.benchmarks) else self.save_result(self._run_outcome(cell))
            )

    def _check_folder(self, *, resume: bool) -> None:
        """Check that the folder is new, or of this study.

        Raises:
            ValueError: it is not.
        """
        folder, path = self.folder, self.folder / STUDY_FILE
        if all(one.name.startswith(".") for one in folder.iterdir()):
            return
        if not path.is_file():
            raise ValueError(f"{folder}: holds files, but not a study; name a new folder")
        if not resume:
            raise ValueError(
                f"{folder}: holds a study already; continue it with --resume, or name a new folder"
            )
        saved = _read_study_file(path)
        if not isinstance(saved.get("study"), dict):
            raise ValueError(f"{path}: study must be a table, got {saved.get('study')!r:.40}")
        if difference := _describe_difference(
            _with_current_defaults(saved["study"]), self.comparable_settings["study"]
        ):
            raise ValueError(f"{folder}: this study has {difference}")
        if saved.get("data") != self.comparable_settings["data"]:
            raise ValueError(f"{folder}: this study reads {saved.get('data')}; give the same data")
        current_folder, old = (
            self.comparable_settings["tasks_data"],
            saved.get("tasks_data", self.comparable_settings["tasks_data"]),
        )
        if old != current_folder:
            raise ValueError(
                f"{folder}: this study has its tasks from {old or 'the Hub'}, not from "
                f"{current_folder or 'the Hub'}; give the same folder"
            )

    def _load_results(self) -> StudyResult:
        """Return the results of each cell so far."""
        path = self.folder / STUDY_FILE
        facts = _read_study_file(path).get("cells", []) if path.is_file() else []
        try:
            was = {one.name: one for one in from_dict(_SavedStudy, {"cells": facts}).cells}
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        return StudyResult(
            study=self.study,
            benchmarks=self.benchmarks,
            cell_results=tuple(was.get(c.name, CellResult(name=c.name)) for c in self.study.cells),
        )

    def _write_results(self, result: StudyResult) -> None:
        """Write the facts, the table and the plot."""
        cells = [to_dict(one) for one in result.cell_results]
        write_atomically(
            self.folder / STUDY_FILE,
            to_json({"format": FORMAT, **self.comparable_settings, "cells": cells}),
        )
        with best_effort(PLOT_FILE):
            write_atomically(self.folder / PLOT_FILE, draw_svg(result))
        with best_effort("README.md"):
            write_atomically(self.folder / "README.md", format_markdown(result))

    def _run_outcome(self, cell: StudyCell) -> CellResult:
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
        tuned = self.folder / "tuned" / cell.name
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
        return self.folder / "pretrained" / cell.name

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
        is_started = (run / RUN).is_file()
        if is_started and read_run_file(run).get("finished"):
            remove_partial_files(run)
            with best_effort("report.html"):
                write_report(run)  # written last: it may be missing
            return
        run.parent.mkdir(exist_ok=True)
        pretrain(
            cell.model, data=self._prepare_text(cell), out=run,
            init_from=None if initial_cell is None else self._pretraining_folder(initial_cell),
            tokens=None if cell.has_word_vectors else self.study.token_budget(cell),
            resume=is_started, changes=self.study.recipe_changes(cell),
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


def _with_current_defaults(saved: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a saved study with current defaults, if it can be read."""
    try:
        return to_dict(from_dict(Study, saved))
    except ValueError:
        return saved


def _describe_difference(saved: Mapping[str, Any], current: Mapping[str, Any]) -> str | None:
    """Describe how a study, or a cell, differs from the saved one; None if it does not."""
    compared = current.keys() - DESCRIPTIONS
    key = next((key for key in current if key in compared and saved.get(key) != current[key]), None)
    if key is None:
        return None
    if key == "cells":
        old, new = _cells_by_name(saved.get(key)), _cells_by_name(current[key])
        if list(old) != list(new):
            return f"the cells {', '.join(old) or 'none'}, not {', '.join(new)}"
        name = next(name for name, cell in new.items() if old[name] != cell)
        return f"a cell {name} with {_describe_difference(old[name], new[name]) or 'more'}"
    return f"{key} = {saved.get(key)!r}, not {current[key]!r}"


def _cells_by_name(plain_data: Any) -> dict[str, dict[str, Any]]:
    """Return cells in plain data by name; empty if invalid."""
    try:
        return {str(cell["name"]): dict(cell) for cell in plain_data}
    except (TypeError, KeyError, ValueError):
        return {}


def _read_study_file(path: Path) -> dict[str, Any]:
    return read_saved(path)
