"""A card's recipe, for what was changed of the card: what then cannot be is left out, and told."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import torch

from unmask.hiding.objectives import Objective
from unmask.hiding.questions import ABOUT_ONE
from unmask.model.beside import check_beside
from unmask.published.card import Published
from unmask.training.recipe import Recipe
from unmask.training.schedule import Schedule, count
from unmask.vectors.learning import METHODS

_IN_STEPS = ("warmup", "decay", "flat")
"""Keys of a schedule that are numbers of steps, or shares of them."""


def said_keys(changes: Sequence[str | Mapping[str, Any]]) -> frozenset[str]:
    """Return the keys of a recipe that changes name."""
    found: set[str] = set()
    for change in changes:
        if isinstance(change, str):
            found.add(change.partition("=")[0].split(".")[0].strip())
        else:
            found |= change.keys()
    return frozenset(found)


def suited(
    recipe: Recipe, usual: Recipe, cards: tuple[Published, Published], said: Collection[str]
) -> tuple[Recipe, list[str]]:
    """Leave out of a recipe what only its card as it is can do.

    Args:
        recipe: what is asked for.
        usual: the card's own.
        cards: the card, and what it becomes with another network or objective.
        said: keys that were named: they are kept, whatever comes of it.

    Returns:
        The recipe, and a line for each key that was left out.
    """
    card, asked = cards
    if isinstance(asked.objective, METHODS) or isinstance(card.objective, METHODS):
        return recipe, []
    free = {key for key in _KEYS if getattr(recipe, key) == getattr(usual, key)} - set(said)
    notes: list[str] = []
    recipe = _rows(recipe, card.objective, asked.objective, free, notes)
    if asked.architecture == card.architecture and asked.heads == card.heads:
        return recipe, notes
    with torch.device("meta"):
        model = asked.build()
    if recipe.memory and "memory" in free:
        try:
            model.check_recalls()
        except ValueError as error:
            notes.append(f"memory = {recipe.memory} is not used: {error}")
            recipe = replace(recipe, memory=0, both_ways=False)
    if recipe.look_beside and "look_beside" in free:
        try:
            check_beside(model.stacks)
        except ValueError as error:
            reason = str(error).removesuffix("; use 0")
            notes.append(f"look_beside = {recipe.look_beside} is not used: {reason}")
            recipe = replace(recipe, look_beside=0)
    return recipe, notes


_KEYS = ("unit", "memory", "both_ways", "jitter", "look_beside")


def _rows(
    recipe: Recipe, own: Objective, asked: Objective, free: Collection[str], notes: list[str]
) -> Recipe:
    """Take documents as rows where an objective cannot be asked of the card's own rows."""
    if asked == own or "unit" not in free:
        return recipe
    question = next((name for name in ABOUT_ONE if name in asked.asks), None)
    if recipe.unit == "corpus" and question is not None:
        notes.append(f"unit = document, not the card's corpus: {question} is asked of one document")
        return replace(recipe, unit="document")
    if recipe.unit == "stream" and {"memory", "both_ways", "jitter"} <= set(free):
        notes.append(
            "unit = document, not the card's stream: rows that go on with those before them are "
            "for the card's own objective"
        )
        return replace(recipe, unit="document", memory=0, both_ways=False, jitter=0.0)
    return recipe


def in_shares(recipe: Recipe) -> Recipe:
    """Return a published recipe whose schedule is in shares of its steps, not in whole numbers.

    So a shorter run has the same shape as the published one.
    """
    shares = {key: _share(n, recipe.steps) for key, n in _counted(recipe.schedule).items()}
    return replace(recipe, schedule=replace(recipe.schedule, **shares)) if shares else recipe


def shortened(recipe: Recipe, steps: int) -> Recipe:
    """Return a recipe of so many steps, of whose published length nothing is known.

    Where its whole numbers of steps do not fit, the usual shares of its schedule take their place.
    """
    counted, schedule = _counted(recipe.schedule), recipe.schedule
    if sum(counted.values()) > steps:
        usual = type(schedule)()
        schedule = replace(schedule, **{key: getattr(usual, key) for key in counted})
    return replace(recipe, steps=steps, schedule=schedule)


def _counted(schedule: Schedule) -> dict[str, int]:
    """Return what a schedule says in whole numbers of steps."""
    there = {f.name: getattr(schedule, f.name) for f in fields(schedule) if f.name in _IN_STEPS}
    return {key: n for key, n in there.items() if type(n) is int and n > 0}


def _share(n: int, steps: int) -> float:
    """Return the share of steps that is rounded up to `n`."""
    share = n / steps
    while math.ceil(share * steps) > n:
        share = math.nextafter(share, 0.0)
    return share


def told_schedule(published: Recipe, recipe: Recipe, *, length: bool) -> str | None:
    """Say how long a warm-up is in a run that is not as long as the published one; None: as there.

    Args:
        published: the card's recipe, with whole numbers of steps.
        recipe: that of the run.
        length: the card says how many steps there were.
    """
    whole, warmup = published.schedule.warmup, recipe.schedule.warmup
    if type(whole) is not int or whole == 0 or type(warmup) is not float:
        return None
    made = in_shares(published) if length else shortened(published, recipe.steps)
    if recipe.schedule != made.schedule or recipe.steps == published.steps:
        return None
    here = f"schedule: a warm-up of {count(warmup, recipe.steps):,} of {recipe.steps:,} steps"
    if length:
        return f"{here}, the card's share ({whole:,} of {published.steps:,})"
    return f"{here}: the card's {whole:,} are of a longer run, it does not say of how many steps"
