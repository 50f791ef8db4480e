"""StudyRun: the folder of a study, its cells one by one, and how they continue."""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from unmask.checkpoints.folder import has_run
from unmask.config import from_dict, to_dict
from unmask.files import lock_run_folder, remove_partial_files, write_atomically
from unmask.finetuning.results.report import to_json
from unmask.inference.export import is_finished_run
from unmask.jobs.corpus.prepare import check_sources, prepare
from unmask.jobs.pretrain.pretrain import pretrain
from unmask.output import OutputStream, print_line
from unmask.reports.page import write_report
from unmask.reports.report_data import RUN_FILE as RUN
from unmask.reports.report_data import read_report_data
from unmask.saved_format import FORMAT, read_saved
from unmask.studies.options import StudyOptions
from unmask.studies.result import CellResult
from unmask.studies.study import CellT, NamedCell, PretrainedCells, StudyCell
from unmask.tasks.suites.benchmark import find_file
from unmask.training.best_effort import best_effort
from unmask.zoo.catalogue import get_preset

STUDY_FILE = "study.json"
PRETRAINED_FOLDER, TUNED_FOLDER = _MODEL_FOLDERS = "pretrained", "tuned"
"""Folders of the models of all cells."""
DESCRIPTIONS = frozenset({"question", "paper"})
"""Fields of a study that describe it and change no result: a resumed study may have others."""


@runtime_checkable
class ComparedCells(Protocol):
    """A study: a dataclass of named variants."""

    @property
    def name(self) -> str:
        """Name of the study."""
        ...

    @property
    def cells(self) -> Sequence[NamedCell]:
        """Its variants."""
        ...


ResultT = TypeVar("ResultT", bound=CellResult)


@dataclass(frozen=True, kw_only=True)
class StudyRun(ABC, Generic[CellT, ResultT]):
    """A study to run or resume; other processes may run other cells."""

    study: ComparedCells
    benchmarks: tuple[str, ...]
    sources: tuple[str | Path, ...]
    tasks_folder: Path | None
    folder: Path
    workers: int
    device: str
    threads: int | None
    terminal: OutputStream | None

    @property
    @abstractmethod
    def result_type(self) -> type[ResultT]:
        """Type of the result of a cell, all of whose fields but the name have defaults."""

    @abstractmethod
    def run_outcome(self, cell: CellT, so_far: ResultT) -> ResultT:
        """Run a cell and return its result; its own errors are in the result."""

    @abstractmethod
    def pages(self, results: tuple[ResultT, ...]) -> Mapping[str, Callable[[], str]]:
        """Return what is written for people: the content of a file by its name."""

    @property
    def comparable_settings(self) -> dict[str, Any]:
        """Settings that must be equal when a study is resumed."""
        return comparable_settings(self.study, self.sources, self.tasks_folder)

    def show(self, text: str) -> None:
        """Print a line."""
        if self.terminal is not None:
            print_line(text, self.terminal)

    def run(self, cells: Sequence[CellT], *, resume: bool) -> tuple[ResultT, ...]:
        """Run cells, one after the other, and return the results of all cells so far.

        Raises:
            ValueError: the folder is of another study, a file of data is invalid, or none of the
                cells could be run.
            KeyboardInterrupt: the study was stopped; it can be resumed.
        """
        is_new = not self.folder.exists()
        results = self.save_result(resume=resume)
        try:
            check_sources([str(source) for source in self.sources])
            for n, cell in enumerate(cells, 1):
                self.show(f"{cell.name}, {n} of {len(cells)}")
                results = self.run_cell(cell)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"{self.folder}: stopped; continue with --resume") from None
        except (ValueError, OSError):
            if is_new and not any((self.folder / name).exists() for name in _MODEL_FOLDERS):
                shutil.rmtree(self.folder)  # invalid text: the folder can be reused
            raise
        requested = {cell.name for cell in cells}
        failed = [one for one in results if one.error and one.name in requested]
        if len(failed) == len(cells):
            raise ValueError(
                f"{self.study.name}: no cell could be run; {failed[0].name}: {failed[0].error}"
            )
        return results

    def save_result(
        self, cell_result: ResultT | None = None, *, resume: bool = True
    ) -> tuple[ResultT, ...]:
        """Write the results of all cells and a new one, under a lock.

        Raises:
            ValueError: the folder is of another study, or must not be resumed.
        """
        if self.folder.exists():
            check_study_folder(
                self.folder, self.study, self.comparable_settings, resume=resume
            )  # before a lock file is written
        self.folder.mkdir(parents=True, exist_ok=True)
        with lock_run_folder(self.folder, wait=True):
            check_study_folder(self.folder, self.study, self.comparable_settings, resume=resume)
            remove_partial_files(self.folder)
            results = self._load_results()
            if cell_result is not None:
                results = tuple(cell_result if r.name == cell_result.name else r for r in results)
            self._write_results(results)
        return results

    def run_cell(self, cell: CellT) -> tuple[ResultT, ...]:
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
            was = next(one for one in made if one.name == cell.name)
            if was.is_done(self.benchmarks):
                return made
            return self.save_result(self.run_outcome(cell, was))

    def _load_results(self) -> tuple[ResultT, ...]:
        """Return the results of each cell so far."""
        path, kind = self.folder / STUDY_FILE, self.result_type
        facts = _read_study_file(path).get("cells", []) if path.is_file() else []
        if not isinstance(facts, list):
            raise ValueError(f"{path}: cells must be a list, got {facts!r:.40}")
        was = [from_dict(kind, one, f"{path}: cells[{i}]") for i, one in enumerate(facts)]
        by_name = {one.name: one for one in was}
        return tuple(by_name.get(c.name) or kind(name=c.name) for c in self.study.cells)

    def _write_results(self, results: tuple[ResultT, ...]) -> None:
        """Write the facts, the table and the plot."""
        cells = [to_dict(one) for one in results]
        write_atomically(
            self.folder / STUDY_FILE,
            to_json({"format": FORMAT, **self.comparable_settings, "cells": cells}),
        )
        for name, content in self.pages(results).items():
            with best_effort(name):
                write_atomically(self.folder / name, content())


@dataclass(frozen=True, kw_only=True)
class PretrainingRun(StudyRun[StudyCell, ResultT]):
    """A study of pretraining variants to run or resume: each cell is pretrained, then scored."""

    study: PretrainedCells

    @abstractmethod
    def score_cell(self, cell: StudyCell, outcome: ResultT) -> ResultT:
        """Return the result of a pretrained cell with its scores."""

    def run_outcome(self, cell: StudyCell, so_far: ResultT) -> ResultT:
        """Pretrain and score a cell, or resume it; its errors do not stop other cells."""
        outcome = self.result_type(name=cell.name)
        if not cell.text:
            self._prepare_text(cell)  # its errors concern all cells
        try:
            self._pretrain(cell)
            record = read_report_data(self.pretraining_folder(cell))
            outcome = replace(outcome, parameters=int(record.run_record.get("parameters") or 0))
            if cell.token_factor:
                outcome = replace(
                    outcome,
                    loss=record.evaluation_log.last("loss"),
                    tokens=int(record.training_log.last("tokens") or 0),
                    seconds=round(record.total_seconds or 0.0, 1),
                )
            return self.score_cell(cell, outcome)
        except (FloatingPointError, ValueError) as error:
            message = " ".join(str(error).split())
            self.show(f"{cell.name} is left out: {message}")
            return replace(outcome, error=message)

    def pretraining_text(self, cell: StudyCell) -> dict[str, Any]:
        """Return the options of `pretrain` that give a cell's text."""
        return {"data": self._prepare_text(cell)}

    def pretraining_changes(self, cell: StudyCell) -> list[str | Mapping[str, Any]]:
        """Return all changes of the recipe that a cell is pretrained by."""
        return self.study.recipe_changes(cell)

    def _initial_cell(self, cell: StudyCell) -> StudyCell | None:
        """Return the cell that provides the initial weights."""
        return next((one for one in self.study.cells if one.name == cell.init_from), None)

    def pretraining_folder(self, cell: StudyCell) -> Path:
        """Return the folder of a cell's pretraining, possibly of an earlier cell."""
        before = self._initial_cell(cell)
        if before is not None and not cell.token_factor:
            return self.pretraining_folder(before)
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
                find_cell_text(cell, self.tasks_folder) or self.sources,
                out=text,
                model=model,
                tokenizer=self.pretraining_folder(before)
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
        run = self.pretraining_folder(cell)
        if is_finished_run(run):
            remove_partial_files(run)
            with best_effort("report.html"):
                write_report(run)  # written last: it may be missing
            return
        run.parent.mkdir(exist_ok=True)
        pretrain(
            cell.model, **self.pretraining_text(cell), out=run,
            init_from=None if initial_cell is None else self.pretraining_folder(initial_cell),
            tokens=None if cell.has_word_vectors else self.study.token_budget(cell),
            resume=(run / RUN).is_file(), changes=self.pretraining_changes(cell),
            workers=self.workers, device=self.device, threads=self.threads,
            quiet=self.terminal is None,
        )  # fmt: skip


def find_cell_text(cell: StudyCell, tasks_folder: Path | None) -> list[Path]:
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


def comparable_settings(
    study: Any, sources: Sequence[str | Path], tasks_folder: Path | None
) -> dict[str, Any]:
    """Return the settings that must be equal when a study is resumed."""
    return {
        "study": to_dict(study),
        "data": [str(source) for source in sources],
        "tasks_data": None if tasks_folder is None else str(tasks_folder),
    }


def check_study_folder(
    folder: Path, study: Any, settings: Mapping[str, Any], *, resume: bool
) -> None:
    """Check that a folder is new, or of this study.

    Raises:
        ValueError: it is not.
    """
    if not has_run(folder, (STUDY_FILE,), "study"):
        return
    path = folder / STUDY_FILE
    if not resume:
        raise ValueError(
            f"{folder}: holds a study already; continue it with --resume, or name a new folder"
        )
    saved = read_saved(path)
    if not isinstance(saved.get("study"), dict):
        raise ValueError(f"{path}: study must be a table, got {saved.get('study')!r:.40}")
    old_study = _with_current_defaults(type(study), saved["study"])
    if difference := _describe_difference(old_study, settings["study"]):
        raise ValueError(f"{folder}: this study has {difference}")
    if saved.get("data") != settings["data"]:
        raise ValueError(f"{folder}: this study reads {saved.get('data')}; give the same data")
    now, old = settings["tasks_data"], saved.get("tasks_data", settings["tasks_data"])
    if old != now:
        raise ValueError(
            f"{folder}: this study has its tasks from {old or 'the Hub'}, not from "
            f"{now or 'the Hub'}; give the same folder"
        )


def run_fields(study: Any, options: StudyOptions) -> dict[str, Any]:
    """Return the fields of a run that come from its options."""
    data, tasks_data = options.data, options.tasks_data
    return {
        "study": study,
        "sources": (data,) if isinstance(data, str | Path) else tuple(data),
        "tasks_folder": None if tasks_data is None else Path(tasks_data),
        "folder": Path(options.out),
        "workers": options.workers,
        "device": options.device,
        "threads": options.threads,
        "terminal": options.terminal,
    }


def _with_current_defaults(kind: type, saved: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a saved study with current defaults, if it can be read."""
    try:
        return to_dict(from_dict(kind, saved))
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
