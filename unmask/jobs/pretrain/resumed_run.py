"""The run that a folder holds already: what it was, and whether it is the one that is asked for."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from unmask.checkpoints.folder import newest_checkpoint
from unmask.config import from_dict, to_dict
from unmask.inference.export import read_run_file
from unmask.objectives.published import changes_during_training
from unmask.reports.report_data import RUN_FILE
from unmask.training.config import Recipe, first_differing_step
from unmask.training.schedules import resolve_steps
from unmask.zoo.objectives.presets import parse_objective

CHANGEABLE_KEYS = ("checkpoint_every", "keep_checkpoints")
"""What a resumed run may have otherwise: nothing that is learned or logged depends on it."""


@dataclass(frozen=True, kw_only=True)
class ResumedRun:
    """A run of pretraining, as its `unmask.json` says it."""

    folder: Path
    recipe: Recipe
    minutes: int | float | None
    """That it was given. None: it was given steps or tokens."""
    has_known_steps: bool
    """Its number of steps is known: if it was given minutes, they have been measured."""
    n_threads: int | None
    """That computed: with another number, sums may be rounded otherwise."""


def open_resumed_run(folder: Path, *, resume: bool) -> ResumedRun | None:
    """Read what run a folder holds; None where it is new or empty.

    Raises:
        ValueError: it is a file, holds something else, or holds a run that is not to be resumed.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: is a file; a run needs a folder")
    if not folder.is_dir() or not any(map(_is_run_content, folder.iterdir())):
        return None
    if not (folder / RUN_FILE).is_file():
        raise ValueError(f"{folder}: holds files, but not a run; name a new folder")
    facts = read_run_file(folder)
    if facts.get("kind") != "pretrain":
        raise ValueError(f"{folder}: is a {facts.get('kind')} run, not one of pretraining")
    if not resume:
        raise ValueError(
            f"{folder}: holds a run already; go on with it by --resume, or name a new folder"
        )
    return _parse_resumed_run(folder, facts)


def recipe_of(folder: Path) -> Recipe | None:
    """Return the recipe of a run of pretraining; None: the folder is no such run.

    Raises:
        ValueError: it is one, and its `unmask.json` is damaged.
    """
    if not (folder / RUN_FILE).is_file():
        return None
    facts = read_run_file(folder)
    return _parse_resumed_run(folder, facts).recipe if facts.get("kind") == "pretrain" else None


def _is_run_content(path: Path) -> bool:
    """Return whether a file is more than the leftovers of a run that never started."""
    left = path.name.startswith(".") and path.name.endswith(".part")
    return path.name != ".lock" and not left


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
    """Return the earlier recipe with more steps, and the schedule that is asked for.

    The steps that were taken must have had the rates that they would have had, had the run been as
    long from its beginning: it then becomes that run.

    Raises:
        ValueError: one had another; it is named, with what can be done.
    """
    old = resumed_run.recipe
    checkpoint, _ = newest_checkpoint(resumed_run.folder, clean_up=False)
    taken = 0 if checkpoint is None else checkpoint.step
    new = replace(old, steps=requested.steps, schedule=requested.schedule)
    step = first_differing_step(old, new, taken)
    anew = f"once it has ended, a new run can begin with its weights: --from {resumed_run.folder}"
    if taken and _objective_changes(old):
        raise ValueError(
            f"{resumed_run.folder}: this run has steps = {old.steps}, not {new.steps}: what it "
            f"hides depends on that number; {anew}"
        )
    if step is None:
        return new
    warmup = resolve_steps(old.schedule.warmup, old.steps)
    same_warmup = replace(new, schedule=replace(new.schedule, warmup=warmup))
    if first_differing_step(old, same_warmup, taken) is None:
        instead = f"--set schedule.warmup={warmup} keeps its warm-up"
    else:
        instead = anew
    raise ValueError(
        f"{resumed_run.folder}: this run has steps = {old.steps}, not {new.steps}: its schedule "
        f"depends on that number, and step {step} of the {taken} that were taken had the rate "
        f"{old.learning_rate_at(step):.3g}, not {new.learning_rate_at(step):.3g}; {instead}"
    )


def _objective_changes(recipe: Recipe) -> bool:
    """Return whether what a run hides is not the same from its first step to its last."""
    requested = recipe.objective
    objective = parse_objective(requested).objective if isinstance(requested, str) else requested
    return objective is not None and changes_during_training(objective)


def merge_with_resumed(requested: Recipe, resumed_run: ResumedRun, *, steps_given: bool) -> Recipe:
    """Return the recipe of the earlier run, with what of the asked one may differ.

    There may be more steps, if the schedule's rates for those taken do not depend on it. The run
    then becomes that longer one; but if it had ended, its log has a line for its last step.

    Args:
        requested: where it names no data, those of the earlier run are meant.
        resumed_run: the earlier run.
        steps_given: a number of steps is asked for; else the earlier run's is meant.

    Raises:
        ValueError: another run is asked for; the key is named, with both values.
    """
    old = resumed_run.recipe
    requested = replace(requested, data=requested.data or old.data)
    if requested.precision == "auto":  # which the earlier run has resolved when it began
        requested = replace(requested, precision=old.precision)
    if not steps_given:
        requested = replace(requested, steps=old.steps)
    elif not resumed_run.has_known_steps:
        old = replace(old, steps=requested.steps)
    elif requested.steps > old.steps:
        old = _extend_run(resumed_run, requested)
    mine, theirs = to_dict(requested), to_dict(old)
    for key, value in theirs.items():
        if mine[key] != value and key not in CHANGEABLE_KEYS:
            raise ValueError(
                f"{resumed_run.folder}: this run has {key} = {value!r}, not {mine[key]!r}; "
                "a resumed run must be the same"
            )
    return replace(old, **{key: getattr(requested, key) for key in CHANGEABLE_KEYS})
