"""Running a study: each cell is pretrained and tuned; what is done is kept, and goes on."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO, cast

from unmask.checkpoints.folder import claim
from unmask.config import from_dict, to_dict
from unmask.files import sweep, write_whole
from unmask.finetuning.results import as_json
from unmask.finetuning.suite import finetune_suite
from unmask.finetuning.suites import find
from unmask.published.catalogue import published
from unmask.serving.folders import read_facts
from unmask.serving.prepare import prepare
from unmask.serving.pretrain import card_recipe, changed, pretrain
from unmask.serving.record import FACTS as RUN
from unmask.serving.record import read_record
from unmask.studies.catalogue import find_study
from unmask.studies.show import PICTURE, draw, markdown
from unmask.studies.studied import Outcome, Studied
from unmask.studies.study import Cell, Study
from unmask.training import recipe as recipes

FACTS = "study.json"


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
    terminal: TextIO | None = sys.stderr,
) -> Studied:
    """Pretrain the cells of a study under one budget, tune each on the same tasks, and compare.

    The folder holds `study.json`, the table in `README.md`, the picture `plot.svg`, and all runs.

    Args:
        study: a name of `unmask.studies.catalogue.STUDIES`, a TOML file, or a Study.
        data: text to pretrain on: files, folders, globs, `hf:owner/name`. Cells of one model share
            what is made of it.
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
    other = {"tokens": tokens, "rows": rows, "epochs": epochs, "seeds": seeds}
    given = {name: value for name, value in other.items() if value is not None}
    whole = replace(whole, **given)  # pyright: ignore[reportArgumentType]  # checked there
    now = whole.of(tuple(cells))
    for cell in whole.cells:
        _check(whole, cell)
    places = None if tasks_data is None else Path(tasks_data)
    benchmarks, _ = find(whole.tasks, places)
    sources = (data,) if isinstance(data, str | Path) else tuple(data)
    job = _Job(
        study=whole, sources=sources, places=places, folder=Path(out), workers=workers,
        device=device, threads=threads, terminal=terminal,
    )  # fmt: skip
    job.check_place(resume=resume)
    job.folder.mkdir(parents=True, exist_ok=True)
    with claim(job.folder):
        sweep(job.folder)
        made = job.known(tuple(one.name for one in benchmarks))
        job.write(made)
        for n, cell in enumerate(now.cells, 1):
            job.say(f"{cell.name}, {n} of {len(now.cells)}")
            made = made.put(job.outcome(cell))
            job.write(made)
    return made


@dataclass(frozen=True, kw_only=True)
class _Job:
    """A study, about to be run or gone on with."""

    study: Study
    sources: tuple[str | Path, ...]
    places: Path | None
    folder: Path
    workers: int
    device: str
    threads: int | None
    terminal: TextIO | None

    @property
    def told(self) -> dict[str, Any]:
        """What a study that goes on must have alike."""
        return {"study": to_dict(self.study), "data": [str(source) for source in self.sources]}

    def say(self, text: str) -> None:
        """Show a line."""
        if self.terminal is not None:
            print(text, file=self.terminal, flush=True)

    def check_place(self, *, resume: bool) -> None:
        """Check that the folder is new, or holds this study.

        Raises:
            ValueError: it is not.
        """
        folder, path = self.folder, self.folder / FACTS
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder}: is a file; a study needs a folder")
        if not folder.is_dir() or all(one.name.startswith(".") for one in folder.iterdir()):
            return
        if not path.is_file():
            raise ValueError(f"{folder}: holds files, but not a study; name a new folder")
        if not resume:
            raise ValueError(
                f"{folder}: holds a study already; go on with it by --resume, or name a new folder"
            )
        was = _read(path)
        for key, value in self.told["study"].items():
            old = was.get("study", {}).get(key)
            if old != value:
                raise ValueError(f"{folder}: this study has {key} = {old!r}, not {value!r}")
        if was.get("data") != self.told["data"]:
            raise ValueError(f"{folder}: this study reads {was.get('data')}; give the same data")

    def known(self, benchmarks: tuple[str, ...]) -> Studied:
        """Return what is there of each cell."""
        path = self.folder / FACTS
        said = _read(path).get("cells", []) if path.is_file() else []
        was = {one.name: one for one in (from_dict(Outcome, plain, str(path)) for plain in said)}
        return Studied(
            study=self.study,
            benchmarks=benchmarks,
            outcomes=tuple(was.get(c.name, Outcome(name=c.name)) for c in self.study.cells),
        )

    def write(self, made: Studied) -> None:
        """Write the facts, the table and the picture."""
        cells = [to_dict(one) for one in made.outcomes]
        write_whole(self.folder / FACTS, as_json({"format": 1, **self.told, "cells": cells}))
        write_whole(self.folder / PICTURE, draw(made))
        write_whole(self.folder / "README.md", markdown(made))

    def outcome(self, cell: Cell) -> Outcome:
        """Pretrain a cell and tune it, or go on with that."""
        try:
            self.pretrain(cell)
        except FloatingPointError as error:
            said = " ".join(str(error).split())
            self.say(f"{cell.name} is left out: {said}")
            return Outcome(name=cell.name, error=said)
        record = read_record(self.run(cell))
        tuned = self.folder / "tuned" / cell.name
        tuned.parent.mkdir(exist_ok=True)
        suite = finetune_suite(
            self.run(cell), tasks=self.study.tasks, out=tuned, data=self.places,
            rows=self.study.rows, epochs=self.study.epochs, seeds=self.study.seeds,
            device=self.device, resume=tuned.exists(), terminal=self.terminal,
        )  # fmt: skip
        return Outcome(
            name=cell.name,
            loss=record.evaluation.last("loss"),
            tokens=int(record.training.last("tokens") or 0),
            seconds=round(record.seconds or 0.0, 1),
            scores=suite.entries,
        )

    def run(self, cell: Cell) -> Path:
        """Name the folder of a cell's pretraining."""
        return self.folder / "pretrained" / cell.name

    def pretrain(self, cell: Cell) -> None:
        """Make tokens of the text, unless another cell of this model has, and train on them."""
        run, text = self.run(cell), self.folder / "text" / cell.model
        quiet = self.terminal is None
        begun = (run / RUN).is_file()
        if begun and read_facts(run).get("finished"):
            return
        for path in (run, text):
            path.parent.mkdir(exist_ok=True)
        prepare(self.sources, out=text, model=cell.model, workers=max(1, self.workers), quiet=quiet)
        pretrain(
            cell.model, data=text, out=run, tokens=self.study.tokens, resume=begun,
            changes=[*self.study.changes, *cell.changes], workers=self.workers,
            device=self.device, threads=self.threads, quiet=quiet,
        )  # fmt: skip


def _check(study: Study, cell: Cell) -> None:
    """Find what a cell has wrong before anything is run."""
    try:
        recipe = recipes.changed(card_recipe(cell.model), [*study.changes, *cell.changes])
        changed(published(cell.model), recipe)
    except ValueError as error:
        raise ValueError(f"{study.name}: cell {cell.name}: {error}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error})") from None
    if not isinstance(said, dict):
        raise ValueError(f"{path}: must be a table, got {said!r:.40}")
    return cast("dict[str, Any]", said)
