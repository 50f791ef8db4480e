"""An existing run in a folder, and its comparison with the requested run."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from unmask.checkpoints.folder import has_run, newest_checkpoint
from unmask.config import from_dict, to_dict
from unmask.inference.export import read_run_file
from unmask.objectives.published import changes_during_training
from unmask.reports.report_data import RUN_FILE
from unmask.training.config import Recipe, first_differing_step
from unmask.training.schedules import resolve_steps
from unmask.zoo.objectives.presets import parse_objective

CHANGEABLE_KEYS = ("checkpoint_every", "keep_checkpoints")
"""Keys that may change when a run is resumed: training and logs do not depend on them."""


@dataclass(frozen=True, kw_only=True)
class ResumedRun:
    """A pretraining run, as recorded in `unmask.json`."""

    folder: Path
    recipe: Recipe
    minutes: int | float | None
    """Training length in minutes. None: in steps or tokens."""
    has_known_steps: bool
    """Whether its number of steps is known: given, or measured for minutes."""
    n_threads: int | None
    """Number of threads; with another, sums may be rounded differently."""


def open_resumed_run(folder: Path, *, resume: bool) -> ResumedRun | None:
    """Read the run in a folder; None if it is new or empty.

    Raises:
        ValueError: it is a file, has other content, or has a run and `resume` is False.
    """
    if not has_run(folder, (RUN_FILE,)):
        return None
    facts = read_run_file(folder)
    if facts.get("kind") != "pretrain":
        raise ValueError(f"{folder}: is a {facts.get('kind')} run, not a pretraining run")
    if not resume:
        raise ValueError(
            f"{folder}: holds a run already; continue it with --resume, or name a new folder"
        )
    return _parse_resumed_run(folder, facts)


def recipe_of(folder: Path) -> Recipe | None:
    """Return the recipe of a pretraining run; None: the folder is no such run.

    Raises:
        ValueError: its `unmask.json` is damaged.
    """
    if not (folder / RUN_FILE).is_file():
        return None
    facts = read_run_file(folder)
    return _parse_resumed_run(folder, facts).recipe if facts.get("kind") == "pretrain" else None


def _parse_resumed_run(folder: Path, run_record: dict[str, object]) -> ResumedRun:
    location = folder / RUN_FILE
    plain, around = run_record.get("recipe"), run_record.get("environment")
    if not isinstance(plain, dict) or not isinstance(around, dict):
        raise ValueError(f"{location}: damaged: it lacks the run's recipe or environment")
    recipe_dict = dict(cast("dict[str, object]", plain))
    measured = recipe_dict.get("steps") is not None
    if not measured:
        recipe_dict.pop("steps", None)
    try:
        recipe = from_dict(Recipe, recipe_dict)
    except ValueError as error:
        raise ValueError(f"{location}: recipe: {error}") from None
    threads, minutes = around.get("threads"), run_record.get("minutes")
    return ResumedRun(
        folder=folder,
        recipe=recipe,
        minutes=minutes if isinstance(minutes, int | float) else None,
        has_known_steps=measured,
        n_threads=threads if isinstance(threads, int) else None,
    )


def _extend_run(resumed_run: ResumedRun, requested: Recipe) -> Recipe:
    """Return the earlier recipe with the requested steps and schedule.

    The learning rates of completed steps must be those of a run with the requested steps from its
    start.

    Raises:
        ValueError: one differs; the message has the step and alternatives.
    """
    old = resumed_run.recipe
    checkpoint, _ = newest_checkpoint(resumed_run.folder, clean_up=False)
    n_completed = 0 if checkpoint is None else checkpoint.step
    new = replace(old, steps=requested.steps, schedule=requested.schedule)
    step = first_differing_step(old, new, n_completed)
    restart_hint = (
        f"when finished, a new run can start from its weights: --from {resumed_run.folder}"
    )
    part = "objective" if _objective_changes(old) else None
    if any(method.depends_on_steps for method in old.compression):
        part = "compression"
    if n_completed and part is not None:
        raise ValueError(
            f"{resumed_run.folder}: this run has steps = {old.steps}, not {new.steps}: its {part} "
            f"depends on that number; {restart_hint}"
        )
    if step is None:
        return new
    warmup = resolve_steps(old.schedule.warmup, old.steps)
    same_warmup = replace(new, schedule=replace(new.schedule, warmup=warmup))
    if first_differing_step(old, same_warmup, n_completed) is None:
        hint = f"--set schedule.warmup={warmup} keeps its warm-up"
    else:
        hint = restart_hint
    raise ValueError(
        f"{resumed_run.folder}: this run has steps = {old.steps}, not {new.steps}: its schedule "
        f"depends on that number, and step {step} of {n_completed} completed ones had the rate "
        f"{old.learning_rate_at(step):.3g}, not {new.learning_rate_at(step):.3g}; {hint}"
    )


def _objective_changes(recipe: Recipe) -> bool:
    """Return whether the objective changes in the course of a run."""
    requested = recipe.objective
    objective = parse_objective(requested).objective if isinstance(requested, str) else requested
    return objective is not None and changes_during_training(objective)


def merge_with_resumed(requested: Recipe, resumed_run: ResumedRun, *, steps_given: bool) -> Recipe:
    """Return the recipe of the earlier run, with the changeable keys of the requested one.

    There may be more steps, if the learning rates of completed ones do not depend on it. A finished
    run that is extended has a log line for its earlier last step.

    Args:
        requested: the requested recipe; without data, those of the earlier run are used.
        resumed_run: the earlier run.
        steps_given: whether a number of steps is given; otherwise the earlier run's is used.

    Raises:
        ValueError: a key differs; the message has both values.
    """
    old = resumed_run.recipe
    requested = replace(requested, data=requested.data or old.data)
    if requested.precision == "auto":  # resolved by the earlier run
        requested = replace(requested, precision=old.precision)
    size, recorded = requested.micro_batch_tokens, old.micro_batch_tokens
    if recorded is not None and recorded < (size or requested.batch_tokens):  # more did not fit
        requested = replace(requested, micro_batch_tokens=recorded)
    if not steps_given:
        requested = replace(requested, steps=old.steps)
    elif not resumed_run.has_known_steps:
        old = replace(old, steps=requested.steps)
    elif requested.steps > old.steps:
        old = _extend_run(resumed_run, requested)
    requested_values, old_values = to_dict(requested), to_dict(old)
    for key, value in old_values.items():
        if requested_values[key] != value and key not in CHANGEABLE_KEYS:
            raise ValueError(
                f"{resumed_run.folder}: this run has {key} = {value!r}, "
                f"not {requested_values[key]!r}; "
                "a resumed run must be the same"
            )
    return replace(old, **{key: getattr(requested, key) for key in CHANGEABLE_KEYS})
