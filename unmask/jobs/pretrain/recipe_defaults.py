"""A preset's recipe after changes: unsupported keys are dropped, with a note."""

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
"""Keys of a schedule that are step counts or shares."""


def keys_of_changes(changes: Sequence[str | Mapping[str, Any]]) -> frozenset[str]:
    """Return the recipe keys of changes."""
    keys: set[str] = set()
    for change in changes:
        if isinstance(change, str):
            keys.add(change.partition("=")[0].split(".")[0].strip())
        else:
            keys |= change.keys()
    return frozenset(keys)


def drop_unsupported_keys(
    recipe: Recipe,
    preset_recipe: Recipe,
    presets: tuple[Published, Published],
    given_keys: Collection[str],
) -> tuple[Recipe, list[str]]:
    """Drop keys of a preset's recipe that a changed network or objective does not support.

    Args:
        recipe: the requested recipe.
        preset_recipe: the preset's recipe.
        presets: the preset, and its version with another network or objective.
        given_keys: explicitly given keys, which are always kept.

    Returns:
        The recipe, and a line for each dropped key.
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
    """Use documents as rows if the objective does not support the preset's rows."""
    if requested_objective == preset_objective or "row_unit" not in droppable_keys:
        return recipe
    question = next(
        (name for name in SINGLE_DOCUMENT_TERMS if name in requested_objective.loss_terms), None
    )
    if recipe.row_unit == "corpus" and question is not None:
        notes.append(
            f"row_unit = document, not the preset's corpus: {question} needs single documents"
        )
        return replace(recipe, row_unit="document")
    stream_keys = {"memory_length", "bidirectional_data", "sequence_length_jitter"}
    if recipe.row_unit == "stream" and stream_keys <= set(droppable_keys):
        notes.append(
            "row_unit = document, not the preset's stream: rows that continue previous ones "
            "are for the preset's own objective"
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
    """Return a published recipe with the schedule in shares of its steps, not in step counts.

    So a shorter run has the same schedule shape.
    """
    shares = {
        key: _exact_fraction(n, recipe.steps)
        for key, n in _absolute_step_counts(recipe.schedule).items()
    }
    return replace(recipe, schedule=replace(recipe.schedule, **shares)) if shares else recipe


def with_steps(recipe: Recipe, steps: int) -> Recipe:
    """Return a recipe with `steps`, for presets of unknown published length.

    If its step counts do not fit, the usual shares of its schedule replace them.
    """
    counted, schedule = _absolute_step_counts(recipe.schedule), recipe.schedule
    if sum(counted.values()) > steps:
        usual = type(schedule)()
        schedule = replace(schedule, **{key: getattr(usual, key) for key in counted})
    return replace(recipe, steps=steps, schedule=schedule)


def _absolute_step_counts(schedule: Schedule) -> dict[str, int]:
    """Return the step counts of a schedule."""
    there = {
        f.name: getattr(schedule, f.name) for f in fields(schedule) if f.name in _STEP_COUNT_KEYS
    }
    return {key: n for key, n in there.items() if type(n) is int and n > 0}


def _exact_fraction(n_steps: int, steps: int) -> float:
    """Return the share of steps that rounds up to `n_steps`."""
    share = n_steps / steps
    while math.ceil(share * steps) > n_steps:
        share = math.nextafter(share, 0.0)
    return share


def schedule_note(
    published_recipe: Recipe, recipe: Recipe, *, has_published_length: bool
) -> str | None:
    """Return a note on the warm-up if the length of the run changes it; else None.

    Args:
        published_recipe: the preset's recipe, with step counts.
        recipe: the recipe of the run.
        has_published_length: whether the preset has its number of steps.
    """
    published_warmup, warmup = published_recipe.schedule.warmup, recipe.schedule.warmup
    if type(published_warmup) is not int or published_warmup == 0 or type(warmup) is not float:
        return None
    expected = (
        with_fractional_schedule(published_recipe)
        if has_published_length
        else with_steps(published_recipe, recipe.steps)
    )
    if recipe.schedule != expected.schedule or recipe.steps == published_recipe.steps:
        return None
    warmup_text = (
        f"schedule: a warm-up of {resolve_steps(warmup, recipe.steps):,} of {recipe.steps:,} steps"
    )
    if has_published_length:
        share = f"{published_warmup:,} of {published_recipe.steps:,}"
        return f"{warmup_text}, the preset's share ({share})"
    return f"{warmup_text}: the preset's {published_warmup:,} are of a longer run of unknown length"
