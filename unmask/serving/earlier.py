"""The run that a folder holds already: what it was, and whether it is the one that is asked for."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from unmask.checkpoints.folder import newest
from unmask.config import from_dict, to_dict
from unmask.hiding.objectives import changes
from unmask.published.objectives import read_objective
from unmask.serving.folders import read_facts
from unmask.serving.record import FACTS
from unmask.training.recipe import Recipe, first_other_rate
from unmask.training.schedule import count

LOOSE = ("checkpoint_every", "keep")
"""What a resumed run may have otherwise: nothing that is learned or logged depends on it."""


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """A run of pretraining, as its `unmask.json` says it."""

    folder: Path
    recipe: Recipe
    minutes: int | float | None
    """That it was given. None: it was given steps or tokens."""
    measured: bool
    """Its number of steps is known: if it was given minutes, they have been measured."""
    threads: int | None
    """That computed: with another number, sums may be rounded otherwise."""


def earlier(folder: Path, *, resume: bool) -> Earlier | None:
    """Read what run a folder holds; None where it is new or empty.

    Raises:
        ValueError: it is a file, holds something else, or holds a run that is not to be resumed.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: is a file; a run needs a folder")
    if not folder.is_dir() or not any(map(_counts, folder.iterdir())):
        return None
    if not (folder / FACTS).is_file():
        raise ValueError(f"{folder}: holds files, but not a run; name a new folder")
    facts = read_facts(folder)
    if facts.get("kind") != "pretrain":
        raise ValueError(f"{folder}: is a {facts.get('kind')} run, not one of pretraining")
    if not resume:
        raise ValueError(
            f"{folder}: holds a run already; go on with it by --resume, or name a new folder"
        )
    return _read(folder, facts)


def recipe_of(folder: Path) -> Recipe | None:
    """Return the recipe of a run of pretraining; None: the folder is no such run.

    Raises:
        ValueError: it is one, and its `unmask.json` is damaged.
    """
    if not (folder / FACTS).is_file():
        return None
    facts = read_facts(folder)
    return _read(folder, facts).recipe if facts.get("kind") == "pretrain" else None


def _counts(path: Path) -> bool:
    """Say whether a file is more than what a run that never began leaves behind."""
    left = path.name.startswith(".") and path.name.endswith(".part")
    return path.name != ".lock" and not left


def _read(folder: Path, facts: dict[str, object]) -> Earlier:
    where = folder / FACTS
    plain, around = facts.get("recipe"), facts.get("environment")
    if not isinstance(plain, dict) or not isinstance(around, dict):
        raise ValueError(f"{where}: damaged: it lacks the run's recipe or environment")
    said = dict(cast("dict[str, object]", plain))
    measured = said.get("steps") is not None
    if not measured:
        said.pop("steps", None)
    try:
        recipe = from_dict(Recipe, said)
    except ValueError as error:
        raise ValueError(f"{where}: recipe: {error}") from None
    threads, minutes = around.get("threads"), facts.get("minutes")
    return Earlier(
        folder=folder,
        recipe=recipe,
        minutes=minutes if isinstance(minutes, int | float) else None,
        measured=measured,
        threads=threads if isinstance(threads, int) else None,
    )


def _longer(was: Earlier, asked: Recipe) -> Recipe:
    """Return the earlier recipe with more steps, and the schedule that is asked for.

    The steps that were taken must have had the rates that they would have had, had the run been as
    long from its beginning: it then becomes that run.

    Raises:
        ValueError: one had another; it is named, with what can be done.
    """
    old = was.recipe
    checkpoint, _ = newest(was.folder, tidy=False)
    taken = 0 if checkpoint is None else checkpoint.step
    new = replace(old, steps=asked.steps, schedule=asked.schedule)
    step = first_other_rate(old, new, taken)
    anew = f"once it has ended, a new run can begin with its weights: --from {was.folder}"
    if taken and _changes(old):
        raise ValueError(
            f"{was.folder}: this run has steps = {old.steps}, not {new.steps}: what it hides "
            f"depends on that number; {anew}"
        )
    if step is None:
        return new
    warmup = count(old.schedule.warmup, old.steps)
    kept = replace(new, schedule=replace(new.schedule, warmup=warmup))
    if first_other_rate(old, kept, taken) is None:
        instead = f"--set schedule.warmup={warmup} keeps its warm-up"
    else:
        instead = anew
    raise ValueError(
        f"{was.folder}: this run has steps = {old.steps}, not {new.steps}: its schedule depends on "
        f"that number, and step {step} of the {taken} that were taken had the rate "
        f"{old.rate_at(step):.3g}, not {new.rate_at(step):.3g}; {instead}"
    )


def _changes(recipe: Recipe) -> bool:
    """Say whether what a run hides is not the same from its first step to its last."""
    asked = recipe.objective
    objective = read_objective(asked).objective if isinstance(asked, str) else asked
    return objective is not None and changes(objective)


def same(asked: Recipe, was: Earlier, *, steps: bool) -> Recipe:
    """Return the recipe of the earlier run, with what of the asked one may differ.

    There may be more steps, if the schedule's rates for those taken do not depend on it. The run
    then becomes that longer one; but if it had ended, its log has a line for its last step.

    Args:
        asked: where it names no data, those of the earlier run are meant.
        was: the earlier run.
        steps: a number of steps is asked for; else the earlier run's is meant.

    Raises:
        ValueError: another run is asked for; the key is named, with both values.
    """
    old = was.recipe
    asked = replace(asked, data=asked.data or old.data)
    if asked.precision == "auto":  # which the earlier run has resolved when it began
        asked = replace(asked, precision=old.precision)
    if not steps:
        asked = replace(asked, steps=old.steps)
    elif not was.measured:
        old = replace(old, steps=asked.steps)
    elif asked.steps > old.steps:
        old = _longer(was, asked)
    mine, theirs = to_dict(asked), to_dict(old)
    for key, value in theirs.items():
        if mine[key] != value and key not in LOOSE:
            raise ValueError(
                f"{was.folder}: this run has {key} = {value!r}, not {mine[key]!r}; "
                "a resumed run must be the same"
            )
    return replace(old, **{key: getattr(asked, key) for key in LOOSE})
