"""Running a study: each cell is pretrained and tuned; what is done is kept, and goes on."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unmask.channels import Stream, tell
from unmask.checkpoints.folder import claim
from unmask.config import from_dict, to_dict
from unmask.files import read_object, sweep, write_whole
from unmask.finetuning.results import as_json
from unmask.finetuning.suite import Ran, finetune_suite
from unmask.published.card import Published
from unmask.published.catalogue import published
from unmask.serving.folders import read_facts
from unmask.serving.prepare import OPTIONS, check_sources, prepare
from unmask.serving.pretrain import card_recipe, changed, check_numbers, pretrain, suited_to
from unmask.serving.record import FACTS as RUN
from unmask.serving.record import read_record
from unmask.serving.report import write_report
from unmask.serving.suited import said_keys
from unmask.studies.catalogue import find_study
from unmask.studies.show import PICTURE, draw, markdown
from unmask.studies.studied import Outcome, Studied
from unmask.studies.study import Cell, Study
from unmask.tasks.benchmark import there
from unmask.tasks.bundled_suites import find_suite
from unmask.training import parallel
from unmask.training import recipe as recipes
from unmask.training.aside import for_the_report
from unmask.training.recipe import Recipe
from unmask.training.stopping import interruptible

FACTS = "study.json"

_OWN = {
    "model": "a cell has a model of its own",
    "data": "--data names the text",
    "steps": "tokens says how long each cell is pretrained",
    **dict.fromkeys((*OPTIONS, "sampling"), "cells share the tokens that are made of the text"),
}
"""What a study says of all recipes, and how."""


@interruptible()
def run_study(
    study: str | Path | Study,
    *,
    data: str | Path | Sequence[str | Path],
    out: str | Path,
    tasks_data: str | Path | None = None,
    cells: Sequence[str] = (),
    tokens: int | None = None,
    rows: int | None = None,
    epochs: float | None = None,
    seeds: int | None = None,
    resume: bool = False,
    workers: int = 0,
    device: str = "auto",
    threads: int | None = None,
    terminal: Stream | None = sys.stderr,
) -> Studied:
    """Pretrain the cells of a study under one budget, tune each on the same tasks, and compare.

    The folder holds `study.json`, the table in `README.md`, the picture `plot.svg`, and all runs.
    Several processes may run the same study in it: each takes the next cell that none is about.
    A cell that cannot be trained is left out and told, and the others are run.

    Args:
        study: a name of `unmask.studies.catalogue.STUDIES`, a TOML file, or a Study.
        data: text to pretrain on: files, folders, globs, `hf:owner/name`. Cells share what is
            made of it if their models' tokenizers are alike.
        out: a new folder, unless `resume`.
        tasks_data: where the files of the tasks are. None: they are fetched from the Hub.
        cells: names of those to run now; others are run when the study goes on. None: all.
        tokens: that each cell reads, in place of the study's, as the three that follow.
        rows: of each task that are learned from.
        epochs: passes over them.
        seeds: of tuning.
        resume: go on with the study in `out`: what is done is not done again.
        workers: processes that prepare the data and make batches.
        device: "auto", "cpu", "cuda", ...
        threads: that compute in pretraining. None: all cores.
        terminal: where progress is shown. None: nowhere.

    Raises:
        FileNotFoundError: the text, or all files of the tasks, are not there.
        ValueError: there is no such study or cell, a cell is not what its model can be, or `out`
            holds something else.
        KeyboardInterrupt: someone stopped it; it can be resumed.
    """
    whole = study if isinstance(study, Study) else find_study(str(study))
    file = study.name if isinstance(study, Study) else str(study)
    other = {"tokens": tokens, "rows": rows, "epochs": epochs, "seeds": seeds}
    given = {name: value for name, value in other.items() if value is not None}
    try:
        whole = replace(whole, **given)  # pyright: ignore[reportArgumentType]  # checked there
    except ValueError as error:
        raise ValueError(f"--{error}") from None
    now = whole.named(cells)
    check_numbers(workers=workers, threads=threads)
    parallel.pick_device(device)
    for cell in whole.cells:
        _check(whole, cell, file)
    places = None if tasks_data is None else Path(tasks_data)
    for cell in whole.cells:
        _own_text(cell, places)
    benchmarks, _ = find_suite(whole.tasks, places, tested=False)
    sources = (data,) if isinstance(data, str | Path) else tuple(data)
    job = _Job(
        study=whole, benchmarks=tuple(one.name for one in benchmarks), sources=sources,
        places=places, folder=Path(out), workers=workers, device=device, threads=threads,
        terminal=terminal,
    )  # fmt: skip
    is_new = not job.folder.exists()
    made = job.keep(resume=resume)
    try:
        check_sources([str(source) for source in sources])
        for n, cell in enumerate(now, 1):
            job.say(f"{cell.name}, {n} of {len(now)}")
            made = job.run_cell(cell)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{job.folder}: stopped; go on with --resume") from None
    except (ValueError, OSError):
        if is_new and not (job.folder / "pretrained").exists():
            shutil.rmtree(job.folder)  # the text was wrong: the same folder will do for another
        raise
    asked = {cell.name for cell in now}
    failed = [one for one in made.outcomes if one.error and one.name in asked]
    if len(failed) == len(now):
        raise ValueError(f"{whole.name}: no cell could be run; {failed[0].name}: {failed[0].error}")
    return made


@dataclass(frozen=True, kw_only=True)
class _Kept:
    """What a study's facts say of what is done."""

    cells: tuple[Outcome, ...]


@dataclass(frozen=True, kw_only=True)
class _Job:
    """A study, about to be run or gone on with; other processes may run other cells of it."""

    study: Study
    benchmarks: tuple[str, ...]
    sources: tuple[str | Path, ...]
    places: Path | None
    folder: Path
    workers: int
    device: str
    threads: int | None
    terminal: Stream | None

    @property
    def told(self) -> dict[str, Any]:
        """What a study that goes on must have alike."""
        return {
            "study": to_dict(self.study),
            "data": [str(source) for source in self.sources],
            "tasks_data": None if self.places is None else str(self.places),
        }

    def say(self, text: str) -> None:
        """Show a line."""
        if self.terminal is not None:
            tell(text, self.terminal)

    def keep(self, outcome: Outcome | None = None, *, resume: bool = True) -> Studied:
        """Write what is there of each cell, and an outcome that is new; one process at a time.

        Raises:
            ValueError: the folder is not this study's, or not to be gone on with.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"{self.folder}: is a file; a study needs a folder")
        if self.folder.is_dir():
            self._check_place(resume=resume)  # before a lock is put into a folder of others
        self.folder.mkdir(parents=True, exist_ok=True)
        with claim(self.folder, wait=True):
            self._check_place(resume=resume)
            sweep(self.folder)
            made = self._known()
            made = made if outcome is None else made.put(outcome)
            self._write(made)
        return made

    def run_cell(self, cell: Cell) -> Studied:
        """Run a cell, unless it is done or another process is about it."""
        place = self.folder / ".running" / cell.name
        place.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(claim(place))
            except ValueError:
                self.say(f"{cell.name} is run by another process")
                return self.keep()
            made = self.keep()
            was = next(one for one in made.outcomes if one.name == cell.name)
            return made if was.done(self.benchmarks) else self.keep(self._outcome(cell))

    def _check_place(self, *, resume: bool) -> None:
        """Check that the folder is new, or holds this study.

        Raises:
            ValueError: it is not.
        """
        folder, path = self.folder, self.folder / FACTS
        if all(one.name.startswith(".") for one in folder.iterdir()):
            return
        if not path.is_file():
            raise ValueError(f"{folder}: holds files, but not a study; name a new folder")
        if not resume:
            raise ValueError(
                f"{folder}: holds a study already; go on with it by --resume, or name a new folder"
            )
        was = _read(path)
        if not isinstance(was.get("study"), dict):
            raise ValueError(f"{path}: study must be a table, got {was.get('study')!r:.40}")
        if found := _other(_was(was["study"]), self.told["study"]):
            raise ValueError(f"{folder}: this study has {found}")
        if was.get("data") != self.told["data"]:
            raise ValueError(f"{folder}: this study reads {was.get('data')}; give the same data")
        here, old = self.told["tasks_data"], was.get("tasks_data", self.told["tasks_data"])
        if old != here:
            raise ValueError(
                f"{folder}: this study has its tasks from {old or 'the Hub'}, not from "
                f"{here or 'the Hub'}; give the same folder"
            )

    def _known(self) -> Studied:
        """Return what is there of each cell."""
        path = self.folder / FACTS
        said = _read(path).get("cells", []) if path.is_file() else []
        try:
            was = {one.name: one for one in from_dict(_Kept, {"cells": said}).cells}
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        return Studied(
            study=self.study,
            benchmarks=self.benchmarks,
            outcomes=tuple(was.get(c.name, Outcome(name=c.name)) for c in self.study.cells),
        )

    def _write(self, made: Studied) -> None:
        """Write the facts, the table and the picture."""
        cells = [to_dict(one) for one in made.outcomes]
        write_whole(self.folder / FACTS, as_json({"format": 1, **self.told, "cells": cells}))
        with for_the_report(PICTURE):
            write_whole(self.folder / PICTURE, draw(made))
        with for_the_report("README.md"):
            write_whole(self.folder / "README.md", markdown(made))

    def _outcome(self, cell: Cell) -> Outcome:
        """Pretrain a cell and tune it, or go on with that; what is wrong with it stops no other."""
        made = Outcome(name=cell.name)
        if not cell.text:
            self._text(cell)  # what is wrong with it is wrong with all cells
        try:
            self._pretrain(cell)
            record = read_record(self._run(cell))
            made = replace(made, parameters=int(record.facts.get("parameters") or 0))
            if cell.reads:
                made = replace(
                    made,
                    loss=record.evaluation.last("loss"),
                    tokens=int(record.training.last("tokens") or 0),
                    seconds=round(record.seconds or 0.0, 1),
                )
            return replace(made, scores=self._scores(cell))
        except (FloatingPointError, ValueError) as error:
            said = " ".join(str(error).split())
            self.say(f"{cell.name} is left out: {said}")
            return replace(made, error=said)

    def _scores(self, cell: Cell) -> tuple[Ran, ...]:
        """Tune a cell on each task; test files are not scored, since the table has only dev."""
        tuned = self.folder / "tuned" / cell.name
        tuned.parent.mkdir(exist_ok=True)
        return finetune_suite(
            self._run(cell), tasks=self.study.tasks, out=tuned, data=self.places,
            rows=self.study.rows, epochs=self.study.epochs, seeds=self.study.seeds,
            initialize="pretrained" if cell.trained else "random", tune=cell.tune,
            device=self.device, resume=tuned.exists(), tested=False, terminal=self.terminal,
        ).entries  # fmt: skip

    def _before(self, cell: Cell) -> Cell | None:
        """Return the cell with whose weights a cell begins."""
        return next((one for one in self.study.cells if one.name == cell.begins), None)

    def _run(self, cell: Cell) -> Path:
        """Name the folder of a cell's pretraining, which may be that of a cell before it."""
        before = self._before(cell)
        if before is not None and not cell.reads:
            return self._run(before)
        return self.folder / "pretrained" / cell.name

    def _text(self, cell: Cell) -> Path:
        """Make tokens of the text, for all cells whose models have the same, unless they are there.

        A text of its own is made into those of the model that reads on.

        Raises:
            ValueError: the text cannot be read, or is too little for a vocabulary.
        """
        spec, before = published(cell.model).tokenizer, self._before(cell)
        model = next(c.model for c in self.study.cells if published(c.model).tokenizer == spec)
        text = self.folder / "text" / (f"of-{cell.name}" if cell.text else model)
        text.parent.mkdir(exist_ok=True)
        with claim(text.parent, wait=True):
            prepare(
                _own_text(cell, self.places) or self.sources, out=text, model=model,
                tokenizer=self._run(before) if cell.text and before is not None else None,
                workers=max(1, self.workers), quiet=self.terminal is None,
            )  # fmt: skip
        return text

    def _pretrain(self, cell: Cell) -> None:
        """Train on tokens, after the cell with which it begins, unless that is done.

        Another process may be about it, since cells after it need it too: that is waited for.
        """
        before = self._before(cell)
        if before is not None:
            self._pretrain(before)
        if before is not None and not cell.reads:
            return
        place = self.folder / ".running" / cell.name / "pretraining"
        place.mkdir(parents=True, exist_ok=True)
        with claim(place, wait=True):
            self._pretrain_alone(cell, before)

    def _pretrain_alone(self, cell: Cell, before: Cell | None) -> None:
        run = self._run(cell)
        begun = (run / RUN).is_file()
        if begun and read_facts(run).get("finished"):
            sweep(run)
            with for_the_report("report.html"):
                write_report(run)  # the last that is written: it may be missing
            return
        run.parent.mkdir(exist_ok=True)
        pretrain(
            cell.model, data=self._text(cell), out=run,
            begin=None if before is None else self._run(before),
            tokens=None if cell.of_vectors else self.study.tokens_of(cell), resume=begun,
            changes=self.study.changes_of(cell), workers=self.workers, device=self.device,
            threads=self.threads, quiet=self.terminal is None,
        )  # fmt: skip


def _check(study: Study, cell: Cell, file: str = "") -> tuple[Published, Recipe]:
    """Find what a cell has wrong before anything is run; return what it is."""
    usual = card_recipe(cell.model)
    try:
        recipe = recipes.changed(usual, study.changes_of(cell), said="changes")
        for key, says in _OWN.items():
            if getattr(recipe, key) != getattr(usual, key):
                raise ValueError(f"changes: {key} is not changed in a study: {says}")
        recipe, _ = suited_to(recipe, said_keys(study.changes_of(cell)))
        return changed(published(cell.model), recipe), recipe
    except ValueError as error:
        raise ValueError(f"{file or study.name}: cell {cell.name}: {error}") from None


def _own_text(cell: Cell, places: Path | None) -> list[Path]:
    """Find the text of its own that a cell reads, as it is named or compressed.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: there is no folder of tasks to find it in.
    """
    if cell.text and places is None:
        raise ValueError(
            f"cell {cell.name} reads {cell.text[0]} of the tasks' files: name their folder by "
            "--tasks-data"
        )
    found = [] if places is None else [there(places, name) for name in cell.text]
    for name, path in zip(cell.text, found, strict=False):
        if path is None:
            raise FileNotFoundError(f"{places}: cell {cell.name} reads {name}, which is not there")
    return [path for path in found if path is not None]


def _was(said: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a study that was written before as it would be now, if it can be read."""
    try:
        return to_dict(from_dict(Study, said))
    except ValueError:
        return said


def _other(was: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Say in a few words in what a study, or a cell, is not what it was, if it is not."""
    key = next((key for key, value in now.items() if was.get(key) != value), None)
    if key is None:
        return None
    if key == "cells":
        old, new = _cells(was.get(key)), _cells(now[key])
        if list(old) != list(new):
            return f"the cells {', '.join(old) or 'none'}, not {', '.join(new)}"
        name = next(name for name, cell in new.items() if old[name] != cell)
        return f"a cell {name} with {_other(old[name], new[name]) or 'more'}"
    return f"{key} = {was.get(key)!r}, not {now[key]!r}"


def _cells(said: Any) -> dict[str, dict[str, Any]]:
    """Return cells that are plain data by their names; none, if they are something else."""
    try:
        return {str(cell["name"]): dict(cell) for cell in said}
    except (TypeError, KeyError, ValueError):
        return {}


def _read(path: Path) -> dict[str, Any]:
    return read_object(path)
