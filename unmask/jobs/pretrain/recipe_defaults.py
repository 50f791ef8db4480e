"""A preset's recipe after changes: keys that it then does not support are dropped, with a note."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from unmask.model.previous_token_heads import check_previous_token_heads
from unmask.objectives.published import ObjectiveSpec
from unmask.objectives.sentence_pairs.tasks import SINGLE_DOCUMENT_TERMS
from unmask.training.config import Recipe
from unmask.training.schedules import Schedule, resolve_steps
from unmask.word_vectors.train.trainer import WORD_VECTOR_METHODS
from unmask.zoo.preset import Published

_STEP_COUNT_KEYS = ("warmup", "decay", "constant_warmup", "constant_steps")
"""Keys of a schedule that are numbers of steps, or shares of them."""


def keys_of_changes(changes: Sequence[str | Mapping[str, Any]]) -> frozenset[str]:
    """Return the keys of a recipe that changes name."""
    found: set[str] = set()
    for change in changes:
        if isinstance(change, str):
            found.add(change.partition("=")[0].split(".")[0].strip())
        else:
            found |= change.keys()
    return frozenset(found)


def drop_unsupported_keys(
    recipe: Recipe,
    preset_recipe: Recipe,
    presets: tuple[Published, Published],
    given_keys: Collection[str],
) -> tuple[Recipe, list[str]]:
    """Leave out of a recipe what only its card as it is can do.

    Args:
        recipe: what is asked for.
        preset_recipe: the card's own.
        presets: the card, and what it becomes with another network or objective.
        given_keys: keys that were named: they are kept, whatever comes of it.

    Returns:
        The recipe, and a line for each key that was left out.
    """
    card, adapted = presets
    if isinstance(adapted.objective, WORD_VECTOR_METHODS) or isinstance(
        card.objective, WORD_VECTOR_METHODS
    ):
        return recipe, []
    free = {
        key for key in _DROPPABLE_KEYS if getattr(recipe, key) == getattr(preset_recipe, key)
    } - set(given_keys)
    notes: list[str] = []
    recipe = _as_document_rows(recipe, card.objective, adapted.objective, free, notes)
    if adapted.architecture == card.architecture and adapted.heads == card.heads:
        return recipe, notes
    model = adapted.build_without_memory()
    if recipe.memory_length and "memory_length" in free:
        try:
            model.check_supports_memory()
        except ValueError as error:
            notes.append(f"memory_length = {recipe.memory_length} is not used: {error}")
            recipe = replace(recipe, memory_length=0, bidirectional_data=False)
    if recipe.init_previous_token_heads and "init_previous_token_heads" in free:
        try:
            check_previous_token_heads(model.networks)
        except ValueError as error:
            reason = str(error).removesuffix("; use 0")
            notes.append(
                f"init_previous_token_heads = {recipe.init_previous_token_heads} is not used: "
                f"{reason}"
            )
            recipe = replace(recipe, init_previous_token_heads=0)
    return recipe, notes


_DROPPABLE_KEYS = (
    "row_unit",
    "memory_length",
    "bidirectional_data",
    "sequence_length_jitter",
    "init_previous_token_heads",
)


def _as_document_rows(
    recipe: Recipe,
    preset_objective: ObjectiveSpec,
    requested_objective: ObjectiveSpec,
    droppable_keys: Collection[str],
    notes: list[str],
) -> Recipe:
    """Take documents as rows where an objective cannot be asked of the card's own rows."""
    if requested_objective == preset_objective or "row_unit" not in droppable_keys:
        return recipe
    question = next(
        (name for name in SINGLE_DOCUMENT_TERMS if name in requested_objective.loss_terms), None
    )
    if recipe.row_unit == "corpus" and question is not None:
        notes.append(
            f"row_unit = document, not the card's corpus: {question} is asked of one document"
        )
        return replace(recipe, row_unit="document")
    stream_keys = {"memory_length", "bidirectional_data", "sequence_length_jitter"}
    if recipe.row_unit == "stream" and stream_keys <= set(droppable_keys):
        notes.append(
            "row_unit = document, not the card's stream: rows that go on with those before them "
            "are for the card's own objective"
        )
        return replace(
            recipe,
            row_unit="document",
            memory_length=0,
            bidirectional_data=False,
            sequence_length_jitter=0.0,
        )
    return recipe


def with_fractional_schedule(recipe: Recipe) -> Recipe:
    """Return a published recipe whose schedule is in shares of its steps, not in whole numbers.

    So a shorter run has the same shape as the published one.
    """
    shares = {
        key: _exact_fraction(n, recipe.steps)
        for key, n in _absolute_step_counts(recipe.schedule).items()
    }
    return replace(recipe, schedule=replace(recipe.schedule, **shares)) if shares else recipe


def with_steps(recipe: Recipe, steps: int) -> Recipe:
    """Return a recipe of so many steps, of whose published length nothing is known.

    Where its whole numbers of steps do not fit, the usual shares of its schedule take their place.
    """
    counted, schedule = _absolute_step_counts(recipe.schedule), recipe.schedule
    if sum(counted.values()) > steps:
        usual = type(schedule)()
        schedule = replace(schedule, **{key: getattr(usual, key) for key in counted})
    return replace(recipe, steps=steps, schedule=schedule)


def _absolute_step_counts(schedule: Schedule) -> dict[str, int]:
    """Return what a schedule says in whole numbers of steps."""
    there = {
        f.name: getattr(schedule, f.name) for f in fields(schedule) if f.name in _STEP_COUNT_KEYS
    }
    return {key: n for key, n in there.items() if type(n) is int and n > 0}


def _exact_fraction(n_steps: int, steps: int) -> float:
    """Return the share of steps that is rounded up to `n_steps`."""
    share = n_steps / steps
    while math.ceil(share * steps) > n_steps:
        share = math.nextafter(share, 0.0)
    return share


def schedule_note(
    published_recipe: Recipe, recipe: Recipe, *, has_published_length: bool
) -> str | None:
    """Return a note on the warm-up if the length of the run changes it; else None.

    Args:
        published_recipe: the card's recipe, with whole numbers of steps.
        recipe: that of the run.
        has_published_length: the card says how many steps there were.
    """
    whole, warmup = published_recipe.schedule.warmup, recipe.schedule.warmup
    if type(whole) is not int or whole == 0 or type(warmup) is not float:
        return None
    made = (
        with_fractional_schedule(published_recipe)
        if has_published_length
        else with_steps(published_recipe, recipe.steps)
    )
    if recipe.schedule != made.schedule or recipe.steps == published_recipe.steps:
        return None
    here = (
        f"schedule: a warm-up of {resolve_steps(warmup, recipe.steps):,} of {recipe.steps:,} steps"
    )
    if has_published_length:
        return f"{here}, the card's share ({whole:,} of {published_recipe.steps:,})"
    return f"{here}: the card's {whole:,} are of a longer run, it does not say of how many steps"
