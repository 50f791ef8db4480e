"""RunSummary: a run as a line of a list, read from its folder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, cast

from unmask.config import to_dict
from unmask.saved_format import read_saved
from unmask.training.log import LOG_FILE, TIMING_FILE, finite_number
from unmask.web.runs.log_end import (
    FEW_BYTES,
    last_evaluated_lines,
    last_lines,
    last_number,
    total_seconds,
)
from unmask.web.runs.scan import (
    REPORT_FILE,
    RESULTS_FILE,
    RUN_FILE,
    SAMPLES_FILE,
    SEARCH_FILE,
    STUDY_FILE,
    SUITE_FILE,
    FoundRun,
)
from unmask.web.runs.state import RunState
from unmask.web.workplace import Workplace, clean_text

if TYPE_CHECKING:
    from unmask.web.runs.headline import Figure

MAX_TEXT = 200
"""Characters of a text from a run's files that are shown in a list."""


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """A run, as a list shows it."""

    id: str
    title: str
    kind: str
    """pretrain, finetune, prefer, suite, study, model, or unknown where its record is damaged."""
    model: str = ""
    task: str = ""
    objective: str = ""
    """Of pretraining, as `--objective` names it."""
    state: RunState = "stopped"
    step: int = 0
    """Steps taken, of all seeds together; of a study or suite, cells that are done."""
    steps: int | None = None
    """Steps in all; None: unknown."""
    seconds: float | None = None
    """Time that it was trained for."""
    started: float = 0.0
    """When its oldest file was written, in seconds since 1970."""
    modified: float = 0.0
    """When its newest file was written."""
    headline: "tuple[Figure, ...]" = ()
    tags: tuple[str, ...] = ()
    has: tuple[str, ...] = ()
    """What there is of: report, results, samples, model, checkpoints."""
    seeds: tuple[str, ...] = ()
    """Folders of its seeds, each with a log."""
    parent: str = ""
    """Id of the study or suite to which it belongs. Empty: none."""
    n_runs: int = 0
    """Runs in its folder, of a study or a suite."""
    notes: tuple[str, ...] = ()
    """What could not be read."""
    is_finished: bool = field(default=False, repr=False)
    """Whether its files say so; `state` considers what is going on, too."""


def read_summary(workplace: Workplace, found: FoundRun) -> RunSummary:
    """Return the summary of a run, whatever its files are; its state, tags and runs are not known.

    A damaged file is noted.
    """
    times = found.times() or [0.0]
    summary = RunSummary(
        id=found.id,
        title=found.path.name,
        kind="unknown",
        started=min(times),
        modified=max(times),
        has=_what_there_is(found),
        seeds=tuple(found.seeds),
        parent=found.parent,
    )
    if STUDY_FILE in found.stamps:
        return _noting(summary, lambda: _study(summary, found))
    if SUITE_FILE in found.stamps:
        return _noting(summary, lambda: _suite(summary, found))
    if found.is_model_only:
        return replace(summary, kind="model", is_finished=True)
    return _read_run(workplace, summary, found)


def _what_there_is(found: FoundRun) -> tuple[str, ...]:
    files = {"report": REPORT_FILE, "results": RESULTS_FILE, "samples": SAMPLES_FILE}
    there = [name for name, file in files.items() if file in found.stamps]
    there += ["model"] * found.has_model + ["checkpoints"] * found.has_checkpoints
    return tuple(there)


def _noting(summary: RunSummary, read: Callable[[], RunSummary]) -> RunSummary:
    """Return what is read, or the summary with a note where a file is damaged."""
    try:
        return read()
    except (ValueError, OSError) as error:
        return replace(summary, notes=(*summary.notes, _note(summary, error)))


def _note(summary: RunSummary, error: ValueError | OSError) -> str:
    """Return an error in one line, without the path of the run."""
    if isinstance(error, OSError) and error.strerror:
        return f"{summary.title}: {error.strerror}"
    line = " ".join(str(error).split())
    place = line.find(f"/{summary.id}/")
    return _shown(line if place < 0 else line[place + len(summary.id) + 2 :])


def _read_run(workplace: Workplace, summary: RunSummary, found: FoundRun) -> RunSummary:
    """Return the summary of a run of pretraining, fine-tuning or preference optimization."""
    record: Mapping[str, Any] = {}
    if RUN_FILE in found.stamps:
        try:
            record = read_saved(found.path / RUN_FILE)
        except (ValueError, OSError) as error:
            summary = replace(summary, notes=(_note(summary, error),))
    recipe = _table(record, "recipe")
    has_trials = SEARCH_FILE in found.stamps  # before there is a record
    summary = replace(
        summary,
        kind=_shown(record.get("kind") or ("finetune" if has_trials else "unknown")),
        model=_shown(workplace.shown(record.get("card") or recipe.get("model") or "")),
        task=_shown(recipe.get("task_name") or recipe.get("task") or ""),
        objective=_shown(objective_name(recipe)),
        is_finished=record.get("kind") == "model" or bool(record.get("finished")),
        seconds=_sum(total_seconds(path) for path in found.logs(TIMING_FILE)),
    )
    summary = _with_steps(summary, found, recipe)
    return _noting(summary, lambda: replace(summary, headline=_headline(found, record)))


def objective_name(recipe: Mapping[str, Any]) -> str:
    """Return the objective of a recipe, as `--objective` names it; of one without a name, its kind.

    A recipe has the name, or the table that a preset has: the same table is the same name.
    """
    value = recipe.get("objective")
    if not isinstance(value, dict):
        return str(value or "")
    from unmask.objectives import published as known  # half a second, and few runs need it

    names = {
        "mlm": known.MASKED_LM,
        "nsp": known.BERT,
        "sop": known.ALBERT,
        "rtd": known.ELECTRA,
        "clm": known.CAUSAL_LM,
        "spans": known.SPANBERT,
    }
    table = cast("dict[str, Any]", value)
    named = next((name for name, one in names.items() if to_dict(one) == table), "")
    parts = (_table(table, part).get("kind") for part in ("select", "corrupt"))
    return named or ", ".join(str(part) for part in parts if part) or str(table.get("kind") or "")


def _with_steps(summary: RunSummary, found: FoundRun, recipe: Mapping[str, Any]) -> RunSummary:
    clocks = [last_lines(path, FEW_BYTES) for path in found.logs(TIMING_FILE)]
    done = sum(int(last_number(lines, "step") or 0) for lines in clocks)
    total = next((n for c in clocks if (n := last_number(c, "total_steps"))), None)
    total = total or finite_number(recipe.get("steps"))
    if total is None:  # an older run of fine-tuning: its recipe has epochs
        return replace(summary, step=done, steps=done if summary.is_finished else None)
    n_arms = 2 if recipe.get("baseline") else 1
    n_planned = 1 if summary.is_finished else int(finite_number(recipe.get("seeds")) or 1) * n_arms
    return replace(summary, step=done, steps=int(total) * max(n_planned, len(found.seeds), 1))


def _headline(found: FoundRun, record: Mapping[str, Any]) -> "tuple[Figure, ...]":
    from unmask.web.runs.headline import RunFacts, run_figures  # numpy, which takes time to import

    logs = found.logs(LOG_FILE)
    leading = [path for path in logs if not path.parent.name.startswith("random-")] or logs
    lines = [last_evaluated_lines(path) for path in leading]
    evaluated = [some for some in lines if any("evaluation" in line for line in some)]
    last = (evaluated or lines or [[]])[-1]
    files = frozenset(found.stamps)
    return run_figures(RunFacts(record=record, log_lines=last, folder=found.path, files=files))


def _study(summary: RunSummary, found: FoundRun) -> RunSummary:
    """Return the summary of a study: how many of its cells are done."""
    record = read_saved(found.path / STUDY_FILE)
    study, cells = _table(record, "study"), _tables(record, "cells")
    errors = sum(bool(cell.get("error")) for cell in cells)
    done = sum(_has_result(cell) for cell in cells)
    summary = replace(
        summary,
        kind="study",
        task=_shown(study.get("name") or ""),
        step=done,
        steps=len(cells) or None,
        is_finished=bool(cells) and done + errors == len(cells),
        notes=(f"{errors} cells are left out: {_first_error(cells)}",) if errors else (),
    )
    return replace(summary, headline=_count_figure("Cells", done, len(cells)))


def _suite(summary: RunSummary, found: FoundRun) -> RunSummary:
    """Return the summary of a suite: its average score."""
    record = read_saved(found.path / SUITE_FILE)
    entries = _tables(record, "entries")
    done = sum(bool(entry.get("dev")) for entry in entries)
    errors = sum(bool(entry.get("error")) for entry in entries)
    return replace(
        summary,
        kind="suite",
        model=_last_part(record.get("base")),
        task=_last_part(record.get("suite")),
        step=done,
        steps=len(entries) or None,
        is_finished=bool(record.get("finished")),
        headline=_average_figure(record.get("average"))
        or _count_figure("Benchmarks", done, len(entries)),
        notes=(f"{errors} benchmarks are left out: {_first_error(entries)}",) if errors else (),
    )


def _has_result(cell: Mapping[str, Any]) -> bool:
    """Return whether a cell of a study has a result: a figure or a list that is not empty."""
    values = [value for name, value in cell.items() if name not in ("kind", "name", "error")]
    return not cell.get("error") and any(bool(value) for value in values)


def _first_error(rows: list[Mapping[str, Any]]) -> str:
    return next((_shown(row["error"]) for row in rows if row.get("error")), "")


def _count_figure(name: str, done: int, total: int) -> "tuple[Figure, ...]":
    from unmask.web.runs.headline import Figure

    return (Figure(name=name, value=float(done), text=f"{done:,} of {total:,}"),) if total else ()


def _average_figure(average: Any) -> "tuple[Figure, ...]":
    from unmask.web.runs.headline import Figure

    value = finite_number(average)
    return () if value is None else (Figure(name="Average", value=value, text=f"{value:.1f}"),)


def _table(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = record.get(name)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _tables(record: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = record.get(name)
    rows = cast("list[Any]", found) if isinstance(found, list) else []
    return [cast("dict[str, Any]", row) for row in rows if isinstance(row, dict)]


def _sum(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known), 3) if known else None


def _last_part(value: Any) -> str:
    """Return the name of what a path or a name of the Hub is of."""
    return _shown(PurePath(str(value or "")).name)


def _shown(value: Any) -> str:
    """Return what a file says as a text for a list."""
    text = " ".join(clean_text(str(value)).split())
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
