"""Runs side by side: the options in which they differ, what they reached, and their curves."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from unmask.saved_format import read_saved
from unmask.training.log import LOG_FILE, TIMING_FILE
from unmask.web.runs.axes import Axis, along_axis
from unmask.web.runs.index import RunIndex
from unmask.web.runs.quick import column_names, quick_column
from unmask.web.runs.scan import RUN_FILE, STUDY_FILE, SUITE_FILE, FoundRun
from unmask.web.runs.series import Column, LogPart, downsample, read_series, series_logs
from unmask.web.runs.summary import RunSummary, objective_name
from unmask.web.workplace import Workplace

MAX_COMPARED_RUNS = 60
MAX_COMPARED_POINTS = 2000
"""Of each curve."""
_OWN_KEYS = ("card", "parameters")
"""Of a record, compared beside the recipe."""

_TOKENIZER_KEYS = ("tokenizer", "vocab_size", "character_coverage")
_TEXT_KEYS = ("data", "document_separator", "text_column", "dev_fraction")
_TASK_KEYS = ("task", "train", "dev", "test")
_LOSS_KEYS = ("lm_loss_weight",)
"""Of recipes: where they differ, losses or scores are of something else."""

LOG_PARTS: tuple[LogPart, ...] = ("training", "evaluation", "timing")


@dataclass(frozen=True, kw_only=True)
class ComparedRow:
    """A line of a table with a column for each run."""

    key: str
    """Dotted name of an option, as `--set` takes it; name of a figure."""
    name: str
    """The same in words."""
    values: tuple[str | None, ...]
    """Of each run; None: it has none."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Several runs side by side."""

    runs: tuple[RunSummary, ...]
    options: tuple[ComparedRow, ...]
    """Options in which they differ."""
    n_equal_options: int
    figures: tuple[ComparedRow, ...]
    """What they reached."""
    notes: tuple[str, ...]
    """Why some of their figures cannot be compared with each other."""
    columns: Mapping[LogPart, tuple[str, ...]]
    """Numbers that any of them logged, by the log they are in."""


@dataclass(frozen=True, kw_only=True)
class ComparedCurve:
    """One column of one log."""

    run_id: str
    seed: str
    """Folder of the seed; empty where the run has one log."""
    steps: Sequence[float]
    """Or tokens or seconds, as asked."""
    values: Sequence[float | None]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; `asdict` copies each number, which takes a second of fifty runs."""
        places = {"steps": self.steps, "values": self.values}
        return {"run_id": self.run_id, "seed": self.seed, **places}


def compare_runs(workplace: Workplace, index: RunIndex, run_ids: Sequence[str]) -> Comparison:
    """Compare runs, in the order in which they are given.

    Raises:
        FileNotFoundError: there is no such run.
        ValueError: an id is none, or there are too many.
    """
    run_ids = _checked_ids(run_ids)
    runs = [index.get(run_id) for run_id in run_ids]
    found = [index.found(run_id) for run_id in run_ids]
    flat = [run_options(workplace, one) for one in found]
    keys = list(dict.fromkeys(key for options in flat for key in options))
    differing = [key for key in keys if len({options.get(key) for options in flat}) > 1]
    names = list(dict.fromkeys(figure.name for run in runs for figure in run.headline))
    texts = [{figure.name: figure.text for figure in run.headline} for run in runs]
    return Comparison(
        runs=tuple(runs),
        options=tuple(_row(key, flat) for key in differing),
        n_equal_options=len(keys) - len(differing),
        figures=tuple(_row(name, texts) for name in names),
        notes=tuple(_comparability_notes(runs, flat)),
        columns={part: _logged_columns(found, part) for part in LOG_PARTS},
    )


def _comparability_notes(
    runs: Sequence[RunSummary], options: Sequence[Mapping[str, str]]
) -> Iterator[str]:
    """Iterate over reasons why figures of runs are not of the same thing, some sentences each."""
    pretrained = [o for run, o in zip(runs, options, strict=True) if run.kind == "pretrain"]
    tuned = [o for run, o in zip(runs, options, strict=True) if run.kind == "finetune"]
    parents = {run.parent for run in runs if run.kind == "pretrain"}
    is_one_study = len(parents) == 1 and "" not in parents  # one text, tokenized for each kind
    objectives = dict.fromkeys(run.objective for run in runs if run.objective)
    if len(objectives) > 1:
        weighted = " (the loss of rtd is a weighted sum of its generator's and its detector's)"
        yield (
            f"The objectives differ: {', '.join(objectives)}. Each predicts something else, so "
            "losses and accuracies of different objectives cannot be compared with each other"
            f"{weighted if 'rtd' in objectives else ''}. What can be: the scores on one labeled "
            "task on which each is fine-tuned with the same seeds, which a study does for all; "
            "accuracies without fine-tuning (evaluate, task blimp); the time and tokens that "
            "each took."
        )
    elif _differ(pretrained, *_TOKENIZER_KEYS, *(("data",) if is_one_study else ())):
        yield (
            "The tokenizers differ: a loss per token is of other tokens, and of fewer or more of "
            "them. Of causal models, the bits per byte of unmask evaluate can be compared."
        )
    if not is_one_study and _differ(pretrained, *_TEXT_KEYS):
        yield "The texts differ: what is held out for the loss is not the same."
    if _differ(tuned, *_TASK_KEYS):
        yield "The tasks or their files differ: their scores are not of the same rows."
    elif _differ(tuned, *_LOSS_KEYS):
        yield (
            f"The losses of fine-tuning add up different parts ({', '.join(_LOSS_KEYS)}): compare "
            "the scores."
        )


def _differ(options: Sequence[Mapping[str, str]], *keys: str) -> bool:
    return any(len({one.get(key) for one in options}) > 1 for key in keys)


def compare_series(
    index: RunIndex,
    run_ids: Sequence[str],
    column: str,
    part: LogPart = "training",
    max_points: int = MAX_COMPARED_POINTS,
    axis: Axis = "step",
) -> list[ComparedCurve]:
    """Return the curves of one column of several runs, one for each seed; without those of none.

    Along tokens or seconds: a run that did not log them is left out.

    Raises:
        FileNotFoundError: there is no such run.
        ValueError: an id is none, there are too many, or too few points.
    """
    curves: list[ComparedCurve] = []
    for run_id in _checked_ids(run_ids):
        found = index.found(run_id)
        clocks = series_logs(found, TIMING_FILE)
        for seed, path in _part_logs(found, part).items():
            steps, values = downsample(*_read_column(path, part, column), max_points)
            places = along_axis(axis, steps, found.path / seed / LOG_FILE, clocks.get(seed))
            if steps and places:
                curve = ComparedCurve(run_id=run_id, seed=seed, steps=places, values=values)
                curves.append(curve)
    return curves


def compared_stamp(index: RunIndex, run_ids: Sequence[str]) -> str:
    """Return what is other when a log of the runs has changed, without reading any.

    Raises:
        FileNotFoundError: there is no such run.
        ValueError: an id is none, or there are too many.
    """
    found = [index.found(run_id) for run_id in _checked_ids(run_ids)]
    return repr([(one.id, one.stamps, one.seeds) for one in found])


def run_options(workplace: Workplace, found: FoundRun) -> dict[str, str]:
    """Return the options of a run by dotted names; of one whose record is damaged, none."""
    for name in (RUN_FILE, SUITE_FILE, STUDY_FILE):
        if name in found.stamps:
            break
    else:
        return {}
    try:
        record = read_saved(found.path / name)
    except (OSError, ValueError):
        return {}
    recipe = record.get("recipe")
    if isinstance(recipe, dict) and (named := objective_name(recipe)).islower():
        recipe = {**recipe, "objective": named}  # the same objective as a name and as a table
    parts = [recipe, record.get("study")]
    tables = [cast("dict[str, Any]", part) for part in parts if isinstance(part, dict)]
    own = {key: record[key] for key in _OWN_KEYS if key in record}
    merged = own | {key: value for table in tables for key, value in table.items()}
    return dict(flatten_options(workplace.shown(merged)))


def flatten_options(recipe: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Iterate over the options of a recipe as `--set` names them, with their values as text.

    The kind of a part is the value of the part's name: optimizer = AdamW.
    """
    from unmask.reports.formatting import format_expression

    for key, value in recipe.items():
        if key == "kind" and prefix:
            yield prefix.removesuffix("."), str(value)
        elif isinstance(value, dict) and value:
            yield from flatten_options(cast("dict[str, Any]", value), f"{prefix}{key}.")
        elif key != "kind":
            yield prefix + key, format_expression(value)


def _row(key: str, tables: Sequence[Mapping[str, str]]) -> ComparedRow:
    name = key.replace("_", " ").replace(".", ": ")
    values = tuple(table.get(key) for table in tables)
    return ComparedRow(key=key, name=name[:1].upper() + name[1:], values=values)


def _logged_columns(runs: Sequence[FoundRun], part: LogPart) -> tuple[str, ...]:
    found = (column_names(path, part) for run in runs for path in _part_logs(run, part).values())
    return tuple(dict.fromkeys(name for names in found for name in names))


def _part_logs(found: FoundRun, part: LogPart) -> dict[str, Path]:
    """Return the logs of a run by seed."""
    return series_logs(found, TIMING_FILE if part == "timing" else LOG_FILE)


def _read_column(path: Path, part: LogPart, name: str) -> tuple[list[float], Column]:
    """Return the steps and values of a column; without any if it is not there."""
    if (quick := quick_column(path, part, name)) is not None:
        return quick
    columns = read_series(path).part(part)
    values = columns.columns.get(name)
    return ([], []) if values is None else (columns.steps, values)


def _checked_ids(run_ids: Sequence[str]) -> list[str]:
    """Return ids without repetitions.

    Raises:
        ValueError: there are too many.
    """
    kept = list(dict.fromkeys(run_ids))
    if not 1 <= len(kept) <= MAX_COMPARED_RUNS:
        raise ValueError(f"runs: 1 to {MAX_COMPARED_RUNS} can be compared, got {len(kept)}")
    return kept
