"""Fine-tuning on all of a suite: a run for each benchmark, and one table."""

import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unmask.channels import Stream, tell
from unmask.channels import markdown as text_of
from unmask.channels import markdown_table as table
from unmask.checkpoints import folder as checkpoints
from unmask.checkpoints.huggingface import Opened
from unmask.config import from_dict, to_dict
from unmask.files import read_object, sweep, write_whole
from unmask.finetuning import results
from unmask.finetuning.job import check_same
from unmask.finetuning.methods import Method, Shape, method_of, word_of
from unmask.finetuning.plan import RANDOM, Tuning, Word
from unmask.finetuning.tune import Loaded, run
from unmask.finetuning.tuned import Tuned
from unmask.tasks.benchmark import Entry, fetched
from unmask.tasks.bundled_suites import find_suite
from unmask.tasks.metrics.metric import METRICS
from unmask.text.lines import EncodingErrors
from unmask.tokens.vocabulary import Vocabulary, vocabulary_of
from unmask.training.aside import for_the_report
from unmask.training.recipe import Precision
from unmask.training.stopping import interruptible

FACTS = "suite.json"
AVERAGE = (
    "The average is the mean over the benchmarks of the customary metric of each, times 100, on "
    "dev."
)
_OF_100 = frozenset({"bleu", "chrf"})


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One benchmark: how good the model became, or why it has none."""

    name: str
    folder: str
    """Within the suite's."""
    task: str
    metric: str = ""
    dev: tuple[float, ...] = ()
    """One score for each seed."""
    test: tuple[float, ...] = ()
    baseline: tuple[float, ...] = ()
    """On dev, from random weights."""
    seconds: float = 0.0
    error: str = ""
    """What was wrong, in a line. Empty: nothing."""

    @property
    def averaged(self) -> bool:
        """Whether it has a score of which more is better, so that it can be a part of a mean."""
        return bool(self.dev) and METRICS[self.metric].higher_is_better


@dataclass(frozen=True, kw_only=True)
class SuiteRun:
    """What came out of a suite."""

    suite: str
    base: str
    tune: str
    entries: tuple[Ran, ...]
    notes: tuple[str, ...]
    """What a user should be told."""
    folder: Path

    @property
    def average(self) -> float | None:
        """The mean over benchmarks of the mean over seeds, of 100; None where none has a score."""
        scores = [np.mean(points(one.metric, one.dev)) for one in self.entries if one.averaged]
        return float(np.mean(scores)) if scores else None

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """Return the table: the names of its columns, and its rows, the average last."""
        tested = any(one.test for one in self.entries)
        compared = any(one.baseline for one in self.entries)
        names = ["benchmark", "metric", "dev"]
        names += [f"dev, {RANDOM}"] * compared + ["test"] * tested + ["seconds"]
        rows = [_row(one, compared=compared, tested=tested) for one in self.entries]
        n = sum(one.averaged for one in self.entries)
        average = "" if self.average is None else f"{self.average:.1f}"
        total = f"{sum(one.seconds for one in self.entries):,.0f}"
        blank = [""] * (compared + tested)
        rows.append([f"average of {n}", "", average, *blank, total])
        return names, rows


@dataclass
class _Kept:
    """What of a suite is done so far; written anew after each benchmark."""

    folder: Path
    notes: tuple[str, ...]
    recipe: Tuning
    """Of each benchmark, but for what is its own; "train" names the suite."""
    opened: bool
    """The model was given open."""
    data: Path | None
    tested: bool = True
    ran: dict[str, Ran] = field(default_factory=dict[str, Ran])

    def result(self) -> SuiteRun:
        return SuiteRun(
            suite=self.recipe.train, base=self.recipe.base, tune=word_of(self.recipe.tune),
            entries=tuple(self.ran.values()), notes=self.notes, folder=self.folder,
        )  # fmt: skip

    def write(self, *, finished: bool = False) -> SuiteRun:
        made = self.result()
        said = {
            "format": 1,
            "kind": "suite",
            "finished": finished,
            "suite": made.suite,
            "base": made.base,
            "tune": made.tune,
            "recipe": to_dict(self.recipe),
            "opened": self.opened,
            "tested": self.tested,
            "data": None if self.data is None else str(self.data),
            "average": made.average,
            "entries": [_plain(one) for one in made.entries],
            "notes": list(made.notes),
        }
        write_whole(self.folder / FACTS, results.as_json(said))
        with for_the_report("README.md"):
            write_whole(self.folder / "README.md", markdown(made))
        return made


def finetune_suite(
    base: str | Path | Opened | Loaded,
    *,
    tasks: str,
    out: str | Path,
    data: str | Path | None = None,
    rows: int | None = None,
    encoding_errors: EncodingErrors = "strict",
    initialize: Literal["pretrained", "random"] = "pretrained",
    baseline: bool = False,
    tokenizer: str | Path | None = None,
    vocabulary: str | Vocabulary | None = None,
    tune: str | Method = "full",
    epochs: float | None = None,
    batch: int | None = None,
    batch_tokens: int | None = None,
    rate: float | None = None,
    warmup: float = 0.1,
    schedule: Shape | None = None,
    optimizer: Word = "adamw",
    average: int = 0,
    weight_decay: float = 0.01,
    class_weights: Literal["balanced"] | None = None,
    auxiliary: float | None = None,
    dropout: float | None = None,
    length: int | None = None,
    evaluate_every: int | None = None,
    patience: int | None = None,
    seed: int = 0,
    seeds: int = 1,
    search: int = 0,
    precision: Precision = "auto",
    device: str = "auto",
    resume: bool = False,
    tested: bool = True,
    terminal: Stream | None = sys.stderr,
) -> SuiteRun:
    """Fine-tune a model on each benchmark of a suite, as `finetune` does on one.

    A benchmark that cannot be run is said, and the others go on.

    Args:
        base: as for `finetune`.
        tasks: a name of `unmask.tasks.bundled_suites.SUITES`: glue, nli, tags, ...; or a TOML file.
        out: a folder, in which each benchmark has one.
        data: where the suite's files are. None: they are fetched from the Hub.
        rows: learn from so many rows of each training file.
        encoding_errors: as for `finetune`, as is all that follows but `resume`.
        initialize: "random" draws the weights of `base` anew.
        baseline: also tune from random weights.
        tokenizer: a folder with a tokenizer, for a name of the catalogue.
        vocabulary: what such a model learns in place of its card's kind: see `finetune`.
        tune: what is tuned.
        epochs: passes over a training file.
        batch: texts a step.
        batch_tokens: tokens a step, padding included, in place of `batch`.
        rate: peak learning rate.
        warmup: share of the steps in which the rate rises, or, from 1 on, so many.
        schedule: how it then falls.
        optimizer: "adamw", or "adafactor" as T5 is fine-tuned.
        average: the mean of the weights at so many last evaluations may be the best state.
        weight_decay: of matrices, a step at rate 1.
        class_weights: "balanced": rare labels count more while they are learned.
        auxiliary: weight of a language model's loss beside the task's, for decoders. None: that
            of the model's paper, which most do not have.
        dropout: in place of the model's own.
        length: tokens that are read of a text at most.
        evaluate_every: steps.
        patience: a run ends after so many evaluations that were not better.
        seed: the first seed.
        seeds: so many runs of each benchmark.
        search: so many rates and batch sizes are tried first, for each benchmark.
        precision: of the model's weights while training.
        device: "auto", "cpu", "cuda", ...
        resume: go on with the suite in `out`: what is finished there is not run again.
        tested: the test files are scored, too, where there are any.
        terminal: where progress is shown. None: nowhere.

    Raises:
        FileNotFoundError: the suite's files are not there.
        ValueError: there is no such suite, no benchmark of it could be run, or `out` holds
            something else.
        KeyboardInterrupt: someone stopped it; it can be resumed.
    """
    loaded = base.opened if isinstance(base, Loaded) else base
    opened = loaded if isinstance(loaded, Opened) else None
    name = opened.card.name if opened is not None else str(base)
    template = Tuning(
        base=name, task="classify", train=tasks, rows=rows,  # each benchmark says its own
        encoding_errors=encoding_errors, initialize=initialize, baseline=baseline,
        tokenizer=None if tokenizer is None else str(tokenizer), tune=method_of(tune),
        vocabulary=None if vocabulary is None else vocabulary_of(vocabulary),
        epochs=epochs, batch=batch, batch_tokens=batch_tokens, rate=rate, warmup=warmup,
        schedule=schedule, optimizer=optimizer, average=average, weight_decay=weight_decay,
        class_weights=class_weights, auxiliary=None if auxiliary is None else float(auxiliary),
        dropout=dropout, length=length, evaluate_every=evaluate_every, patience=patience,
        seed=seed, seeds=seeds, search=search, precision=precision,
    )  # fmt: skip
    return _all(
        template, opened=opened, out=Path(out), data=None if data is None else Path(data),
        resume=resume, tested=tested, device=device, terminal=terminal,
    )  # fmt: skip


def go_on(
    out: Path,
    base: str | None = None,
    *,
    device: str = "auto",
    terminal: Stream | None = sys.stderr,
) -> SuiteRun:
    """Go on with the suite in a folder as its own record says; see `tune.go_on`."""
    said = _read(out)
    if "recipe" not in said:
        raise ValueError(f"{out / FACTS}: does not say all of its options; give them again")
    tuning = from_dict(Tuning, said["recipe"], f"{out / FACTS}: recipe")
    if said.get("opened"):
        raise ValueError(f"{out}: was given its model open; give it again, in Python")
    tuning = tuning if base is None else replace(tuning, base=base)
    data = None if said["data"] is None else Path(said["data"])
    return _all(
        tuning, out=out, data=data, resume=True, tested=said.get("tested", True), device=device,
        terminal=terminal,
    )  # fmt: skip


@interruptible()
def _all(
    template: Tuning,
    *,
    opened: Opened | None = None,
    out: Path,
    data: Path | None,
    resume: bool,
    tested: bool,
    device: str,
    terminal: Stream | None,
) -> SuiteRun:
    """Run all benchmarks that are left, each as the template says but for what is its own."""
    suite, folder = template.train, out
    entries, notes = find_suite(suite, data, tested=tested)
    places = _places(entries)
    _check_place(folder, suite, resume)
    if resume and (folder / FACTS).is_file():
        check_same(folder, _read(folder).get("recipe", to_dict(template)), template)
    kept = _Kept(
        folder=folder, notes=tuple(notes), recipe=template, opened=opened is not None, data=data,
        tested=tested,
    )  # fmt: skip
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    with checkpoints.claim(folder):
        sweep(folder)
        names = [entry.name for entry in entries]
        kept.ran |= {one.name: one for one in _earlier(folder) if one.name in names}
        kept.write()
        for note in notes:
            _say(terminal, note)
        for n, (entry, place) in enumerate(zip(entries, places, strict=True), 1):
            _say(terminal, f"{entry.name}, {n} of {len(entries)}")
            one = _Attempt(
                entry=entry, tuning=template, opened=opened, folder=folder / place, device=device,
                terminal=terminal,
            )  # fmt: skip
            one.into(kept)
        made = kept.write(finished=True)
    if not any(one.dev for one in made.entries):
        if is_new and not any((folder / place).exists() for place in places):
            shutil.rmtree(folder)
        raise ValueError(f"{suite}: no benchmark could be run; {made.entries[0].error}")
    return made


@dataclass(frozen=True, kw_only=True)
class _Attempt:
    """One benchmark, about to be run."""

    entry: Entry
    tuning: Tuning
    opened: Opened | None
    folder: Path
    device: str
    terminal: Stream | None

    def into(self, kept: _Kept) -> None:
        """Run it, and keep what came out, also if someone stops it."""
        start = time.perf_counter()
        before = kept.ran[self.entry.name].seconds if self.entry.name in kept.ran else 0.0
        ran = Ran(name=self.entry.name, folder=self.folder.name, task=self.entry.task)
        done = (self.folder / "unmask.json").is_file() and _is_finished(self.folder)
        try:
            ran = self._with_scores(ran, self._run())
        except (ValueError, FileNotFoundError, ImportError, FloatingPointError) as error:
            ran = replace(ran, error=" ".join(str(error).split()))
            _say(self.terminal, f"{self.entry.name} is left out: {ran.error}")
        finally:
            now = 0.0 if done else time.perf_counter() - start
            kept.ran[ran.name] = replace(ran, seconds=round(before + now, 1))
            kept.write()

    def _run(self) -> Tuned:
        entry = fetched(self.entry)
        tuning = replace(
            self.tuning, task=entry.task, train=entry.train, dev=entry.dev, test=entry.test,
            text=entry.text, label=entry.label, choices=entry.choices, columns=entry.columns,
            labels=entry.labels, metric=entry.metric, options=entry.options,
            rows=self.tuning.rows if entry.rows is None else entry.rows,
        )  # fmt: skip
        begun = self.folder.is_dir() and any(self.folder.iterdir())
        return run(
            tuning, opened=self.opened, out=self.folder, resume=begun, device=self.device,
            terminal=self.terminal,
        )  # fmt: skip

    def _with_scores(self, ran: Ran, tuned: Tuned) -> Ran:
        metric, first = tuned.task.metric, tuned.scored[0].arm
        own = [one for one in tuned.scored if one.arm == first]
        return replace(
            ran,
            metric=metric,
            dev=tuple(one.dev[metric] for one in own),
            test=tuple(one.test[metric] for one in own if one.test),
            baseline=tuple(one.dev[metric] for one in tuned.scored if one.arm != first),
        )


def points(metric: str, scores: Sequence[float]) -> list[float]:
    """Return scores of 100; what is better the smaller it is stays as it is."""
    factor = 100.0 if METRICS[metric].higher_is_better and metric not in _OF_100 else 1.0
    return [factor * one for one in scores]


def markdown(made: SuiteRun) -> str:
    """Write what came out as a page."""
    names, rows = made.rows()
    lines = [
        "# " + text_of(f"{made.suite}: {made.base}, tune={made.tune}"),
        "",
        *table(names, rows),
        "",
        f"Scores are of 100; ± is the standard deviation over seeds. {AVERAGE}",
    ]
    lines += ["", *(f"- {text_of(note)}" for note in made.notes)] if made.notes else []
    return "\n".join(lines) + "\n"


def _row(one: Ran, *, compared: bool, tested: bool) -> list[str]:
    if one.error:
        return [one.name, "", "left out", *[""] * (compared + tested), f"{one.seconds:,.0f}"]
    cells = [one.name, one.metric.replace("_", " "), _mean(one.metric, one.dev)]
    cells += [_mean(one.metric, one.baseline)] if compared else []
    cells += [_mean(one.metric, one.test)] if tested else []
    return [*cells, f"{one.seconds:,.0f}"]


def _mean(metric: str, scores: Sequence[float]) -> str:
    if not scores:
        return ""
    values = points(metric, scores)
    spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{spread}"


def _plain(one: Ran) -> dict[str, Any]:
    return {name: value for name, value in to_dict(one).items() if name != "kind"}


def _places(entries: Sequence[Entry]) -> list[str]:
    """Name a folder for each entry.

    Raises:
        ValueError: two would have the same.
    """
    names = [re.sub(r"[^\w.-]+", "-", one.name).strip("-.") for one in entries]
    for name, entry in zip(names, entries, strict=True):
        if not name or names.count(name) > 1:
            raise ValueError(f"benchmark {entry.name!r} has no folder name of its own: {name!r}")
    return names


def _check_place(out: Path, suite: str, resume: bool) -> None:
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out}: is a file; a suite needs a folder")
    there = out.is_dir() and any(not p.name.startswith(".") for p in out.iterdir())
    if there and not (out / FACTS).is_file():
        raise ValueError(f"{out}: holds files, but not a suite; name a new folder")
    if there and not resume:
        raise ValueError(f"{out}: holds a suite already; resume it, or name a new folder")
    if there and (old := _read(out).get("suite")) != suite:
        raise ValueError(f"{out}: is a run of the suite {old!r}, not of {suite!r}")


def _read(folder: Path) -> Mapping[str, Any]:
    path = folder / FACTS
    return read_object(path)


def _earlier(folder: Path) -> list[Ran]:
    """Return what an earlier process did."""
    if not (folder / FACTS).is_file():
        return []
    entries = _read(folder).get("entries", [])
    if not isinstance(entries, list):
        raise ValueError(f"{folder / FACTS}: entries must be a list, got {entries!r:.40}")
    return [from_dict(Ran, one, f"{folder / FACTS}") for one in entries]


def _is_finished(folder: Path) -> bool:
    try:
        return bool(read_object(folder / "unmask.json").get("finished"))
    except ValueError:  # the run itself says what is wrong
        return False


def _say(terminal: Stream | None, text: str) -> None:
    if terminal is not None:
        tell(text, terminal)
