"""Tasks that a model does from a prompt alone, by name or from files: a score for each."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from unmask.channels import Stream, over, tell
from unmask.evaluation.answers import Prompted
from unmask.evaluation.continuations import Hide
from unmask.evaluation.prompts import Asking, Figure, TaskScore, find
from unmask.evaluation.word_perplexity import TextTask, reads_forward
from unmask.evaluation.zero_shot import ALL, ZERO_SHOT, AnyTask, task
from unmask.serving.pipeline import Pipeline, load

_HEADER: tuple[str, ...] = ("task", "shots", "measure", "score", "±", "items", "cut")


def evaluate_tasks(
    model: str | Path | Pipeline,
    tasks: str | Sequence[str] = ALL,
    *,
    data: str | Path | None = None,
    shots: int | Sequence[int] = 0,
    seed: int = 0,
    rows: int | None = None,
    length: int | None = None,
    stride: int | None = None,
    memory: int | None = None,
    hide: Hide = "word",
    terminal: Stream | None = sys.stderr,
) -> list[TaskScore]:
    """Score what a model does from prompts: zero-shot suites or task files, with shots or without.

    Args:
        model: as for `unmask.load`, or what that returned.
        tasks: names of `unmask.evaluation.zero_shot`, or TOML files; "zero-shot": all whose files
            are in the folder.
        data: the folder of the files. None: that of the task's own file.
        shots: examples before each question; of several numbers each is tried.
        seed: of which examples are drawn.
        rows: of a task, evenly spaced. None: all.
        length: tokens that are read together. None: as many as pretraining read. Of a longer
            prompt the beginning is cut.
        stride: tokens that a window asks, of perplexity. None: as many as fit.
        memory: of perplexity, places before each piece that every layer remembers. None: as in
            `Pipeline.evaluate`, but none where there is a stride.
        hide: from a masked model while it is asked for a token.
        terminal: where it says what it does. None: nowhere.

    Raises:
        FileNotFoundError: files are missing.
        ValueError: there is no such task, it is not one that this model can do, or a file of data
            does not fit it.
    """
    names = [tasks] if isinstance(tasks, str) else list(tasks)
    counts = [shots] if isinstance(shots, int) else list(shots)
    if not names or not counts:
        raise ValueError(f"{'tasks' if not names else 'shots'}: none is named")
    pipeline = model if isinstance(model, Pipeline) else load(model)
    chosen = [one for name in names for one in _chosen(name, data, counts, pipeline, terminal)]
    whole = {"stride": stride, "memory": memory}
    given = [name for name, n in whole.items() if n is not None]
    if given and not any(isinstance(one, TextTask) for one, _, _ in chosen):
        raise ValueError(
            f"{given[0]} is of whole files, and none of the tasks is one; leave it out"
        )
    prompted = Prompted(
        model=pipeline.model,
        tokenizer=pipeline.tokenizer,
        hide=hide,
        length=pipeline.reads(length),
        memory=pipeline.remembers(0 if memory is None and stride is not None else memory),
    )
    found: list[TaskScore] = []
    for one, folder, n in chosen:
        tell = _telling(one.name, terminal)
        how = Asking(shots=n, seed=seed, rows=rows, stride=stride, tell=tell)
        found.append(one.score(prompted, folder, how))
        for note in _notes(found[-1], prompted):
            _say(terminal, note)
    return found


def _chosen(
    name: str,
    data: str | Path | None,
    shots: Sequence[int],
    pipeline: Pipeline,
    terminal: Stream | None,
) -> list[tuple[AnyTask, Path, int]]:
    """Return tasks with the folders of their files, and how many examples are shown."""
    if name != ALL:
        one = task(name)
        own = data is None and name not in ZERO_SHOT
        folder = _folder(Path(name).parent if own else data, name)
        once = isinstance(one, TextTask) and 0 in shots  # a text has none: it is asked without
        return [(one, folder, n) for n in ((0,) if once else shots)]
    folder = _folder(data, name)
    there: list[tuple[AnyTask, Path, int]] = []
    left_out: list[str] = []
    for one in ZERO_SHOT.values():
        try:
            find(folder, one.test, one.name)
        except FileNotFoundError as error:
            left_out.append(f"{one.name} is left out: {error}")
            continue
        if not isinstance(one, TextTask):
            there += [(one, folder, n) for n in shots]
        elif reads_forward(pipeline.model):
            there.append((one, folder, 0))
        else:
            left_out.append(f"{one.name} is left out: it is of models that only read forward")
    if not there:
        raise FileNotFoundError(f"{folder}: holds the files of no task")
    for line in left_out:
        _say(terminal, line)
    return there


def _folder(data: str | Path | None, name: str) -> Path:
    if data is None:
        raise ValueError(f"no data: name the folder that holds the files of {name}")
    if not Path(data).is_dir():
        raise FileNotFoundError(f"{data}: no such folder")
    return Path(data)


def _telling(name: str, terminal: Stream | None) -> Callable[[int, int], None] | None:
    """Return what shows how far a task is, on one line of a terminal."""
    if terminal is None or not terminal.isatty():
        return None

    def show(done: int, all_of_them: int) -> None:
        over(f"{name}: {done:,} of {all_of_them:,}", terminal)
        if done >= all_of_them:
            tell("", terminal)

    return show


def _notes(one: TaskScore, prompted: Prompted) -> Iterable[str]:
    yield from one.notes
    if one.cut:
        yield (
            f"{one.task}: of {one.cut:,} of {one.items:,} prompts the beginning was cut to fit "
            f"{prompted.length:,} tokens"
        )


def _say(terminal: Stream | None, text: str) -> None:
    if terminal is not None:
        tell(text, terminal)


def plain(one: TaskScore) -> dict[str, Any]:
    """Return a score as plain data."""
    return asdict(one) | {"score": one.score.value, "standard_error": one.score.error}


def table(scores: Sequence[TaskScore]) -> list[str]:
    """Write scores in lines, shares in percent, and by group where there are groups."""
    rows = [_HEADER]
    for one in scores:
        figures = {one.measure: one.score} | dict(one.figures)
        for name, figure in figures.items():
            first = name == one.measure
            rows.append(
                (
                    one.task if first else "",
                    str(one.shots) if first else "",
                    name.replace("_", " "),
                    *_written(name, figure),
                    f"{one.items:,}" if first else "",
                    f"{one.cut:,}" if first and one.cut else "",
                )
            )
        groups = sorted(one.groups.items())
        rows += [("", "", f"  {name}", f"{100 * v:.1f}", "", "", "") for name, v in groups]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(n) if i in (0, 2) else cell.rjust(n)
            for i, (cell, n) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _written(name: str, figure: Figure) -> tuple[str, str]:
    """Write a figure and its error: a perplexity as it is, a share in percent."""
    if name in ("accuracy", "exact_match", "f1"):
        error = "" if figure.error is None else f"{100 * figure.error:.1f}"
        return f"{100 * figure.value:.1f}", error
    return f"{figure.value:,.2f}", "" if figure.error is None else f"{figure.error:,.2f}"
