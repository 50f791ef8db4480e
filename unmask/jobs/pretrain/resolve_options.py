"""Resolution of `pretrain`'s options to a recipe: preset, recipe file, changes, earlier run."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from unmask.bundled.models import BUNDLED_MODELS
from unmask.checkpoints.huggingface.read import (
    HUB_PREFIX,
    resolve_model_folder,
)
from unmask.compression.options import distillation
from unmask.config import check_value, from_dict, parse_change, read_toml, to_dict
from unmask.jobs.options.pretrain import PretrainOptions
from unmask.jobs.pretrain.apply_recipe import apply_architecture, check_architecture
from unmask.jobs.pretrain.recipe_defaults import (
    drop_unsupported_keys,
    keys_of_changes,
    schedule_note,
    with_fractional_schedule,
    with_steps,
)
from unmask.jobs.pretrain.resumed_run import ResumedRun, merge_with_resumed, open_resumed_run
from unmask.jobs.word_vectors import train as word_vectors
from unmask.output import OutputStream, print_line
from unmask.shards.remote.access import RemoteAccess
from unmask.shards.remote.location import separate_secrets
from unmask.shards.workers import check_workers
from unmask.training import config as recipes
from unmask.training.config import Recipe
from unmask.training.device import distributed
from unmask.zoo.catalogue import get_preset
from unmask.zoo.objectives.adapt_preset import adapt_to_objective

DEFAULT_MICRO_BATCH_TOKENS = 16_384
"""Default tokens per forward pass."""


def preset_recipe(name: str, steps: int | None = None) -> Recipe:
    """Return the recipe of a preset's paper, or the measured one of a small preset.

    Its schedule is in shares of the steps, so that a shorter run has the same shape. If the number
    of steps is unknown, it is as published, or fits `steps`.
    """
    recipe = _published_recipe(name)
    if _has_published_length(name):
        return with_fractional_schedule(recipe)
    return recipe if steps is None or steps < 1 else with_steps(recipe, steps)


def _has_published_length(name: str) -> bool:
    return "steps" in get_preset(name).training_options


def _published_recipe(name: str) -> Recipe:
    card = get_preset(name)
    recipe = Recipe(
        model=card.name,
        sequence_length=card.sequence_length,
        batch_tokens=card.batch_tokens,
        micro_batch_tokens=max(DEFAULT_MICRO_BATCH_TOKENS, card.sequence_length)
        if card.batch_tokens > DEFAULT_MICRO_BATCH_TOKENS
        else None,
        learning_rate=card.learning_rate,
        objective=card.objective,
    )
    return from_dict(Recipe, recipes.merge(to_dict(recipe), card.training_options))


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Settings of a run besides its recipe.

    They do not affect training, except for the number of steps.
    """

    output_folder: Path
    minutes: int | float | None = None
    """Training length in minutes, until the number of steps is measured."""
    resumed_run: ResumedRun | None = None
    """The run in the folder, to be resumed."""
    n_workers: int = 0
    device: str = "auto"
    n_threads: int | None = None
    checkpoint_activations: bool = False
    tensorboard: bool = False
    remote: RemoteAccess = field(default_factory=RemoteAccess)
    """How data is read that is named by a URL."""
    terminal: OutputStream | None = None

    def print_line(self, text: str) -> None:
        """Print a line."""
        if self.terminal is not None:
            print_line(text, self.terminal)


def resolve_options(options: PretrainOptions) -> tuple[Recipe, RunOptions, list[str]]:
    """Return the recipe, the other settings, and a note for each dropped key.

    Raises:
        ValueError: an option is invalid, or two are inconsistent.
    """
    check_run_numbers(
        steps=options.steps, tokens=options.tokens, minutes=options.minutes,
        workers=options.workers, threads=options.threads,
    )  # fmt: skip
    out = Path(options.out)
    resumed = open_resumed_run(out, resume=options.resume or distributed.was_restarted())
    changes = [*options.changes, _recipe_keys(options)]
    recipe = _resolve_recipe(options.model, changes, resumed, out)
    sources, secrets = separate_secrets(recipe.data)
    recipe, remote = replace(recipe, data=sources), options.access(secrets)
    change_texts = [change for change in options.changes if isinstance(change, str)]
    has_word_vectors = word_vectors.word_vector_method(get_preset(recipe.model)) is not None
    if has_word_vectors:
        lengths = (options.steps, options.tokens, options.minutes)
        is_length_given = any(number is not None for number in lengths) or any(
            change.partition("=")[0].strip() == "steps" for change in change_texts
        )
        word_vectors.check_word_vector_recipe(
            recipe, preset_recipe(recipe.model), length_given=is_length_given
        )
    check_architecture(recipe, change_texts)
    if options.tokens is not None:
        recipe = with_run_length(recipe, math.ceil(options.tokens / recipe.batch_tokens))
    recipe, notes = drop_unsupported(recipe, keys_of_changes(changes))
    minutes, threads = options.minutes, options.threads
    if resumed is not None:
        is_counted = options.steps is not None or options.tokens is not None
        steps_given = is_counted or (minutes is None and resumed.minutes is None)
        steps_given = steps_given and not has_word_vectors
        recipe = merge_with_resumed(recipe, resumed, steps_given=steps_given)
        minutes = None if is_counted or resumed.has_known_steps else minutes or resumed.minutes
        if is_counted:
            resumed = replace(resumed, minutes=None)
        threads = threads or resumed.n_threads
    run_options = RunOptions(
        output_folder=out,
        minutes=minutes,
        resumed_run=resumed,
        n_workers=options.workers,
        device=options.device,
        n_threads=threads,
        checkpoint_activations=options.checkpoint_activations,
        tensorboard=options.tensorboard,
        remote=remote,
        terminal=None if options.quiet else sys.stderr,
    )
    return recipe, run_options, notes


def _recipe_keys(options: PretrainOptions) -> dict[str, Any]:
    """Return the recipe keys set by options."""
    keys = options.recipe_keys()
    if (teachers := distillation(options)) is not None:
        keys["distillation"] = to_dict(teachers)
        if not keys.keys() & {"tokenizer", "init_from"}:
            keys["tokenizer"] = str(resolve_model_folder(teachers.teacher[0]))
    return keys


def check_run_numbers(
    *,
    steps: int | None = None,
    tokens: int | None = None,
    minutes: int | float | None = None,
    workers: int = 0,
    threads: int | None = None,
) -> None:
    """Check the numbers that are not in the recipe.

    Raises:
        ValueError: a number is invalid, or several give the training length.
    """
    spans = {"steps": steps, "tokens": tokens, "minutes": minutes}
    for name, value in spans.items():
        check_value(float | None if name == "minutes" else int | None, value, name)
    check_value(int, workers, "workers")
    check_value(int | None, threads, "threads")
    given = [name for name, value in spans.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"give one of steps, tokens and minutes, got {' and '.join(given)}")
    if minutes is not None and not 0 < minutes < math.inf:
        raise ValueError(f"minutes must be above 0, got {minutes}")
    if tokens is not None and tokens < 1:
        raise ValueError(f"tokens must be at least 1, got {tokens}")
    check_workers(workers)
    distributed.check_threads(threads)


def _resolve_recipe(
    model: str | Path | Recipe | None,
    changes: Sequence[str | Mapping[str, Any]],
    resumed_run: ResumedRun | None,
    output_folder: Path,
) -> Recipe:
    """Return the requested recipe, or that of the resumed run."""
    if model is not None:
        return resolve_recipe(model, changes)
    if resumed_run is None:
        raise ValueError(
            f"{output_folder}: has no run to continue; to start one, give a preset or a recipe file"
        )
    return recipes.apply_changes(resumed_run.recipe, changes)


def resolve_recipe(
    model: str | Path | Recipe, changes: Sequence[str | Mapping[str, Any]]
) -> Recipe:
    """Return the recipe of a preset, a recipe file or a given one, after changes.

    Raises:
        ValueError: the model is a folder of weights, or a key or value is invalid.
    """
    if isinstance(model, Recipe):
        return recipes.apply_changes(model, changes)
    if Path(model).is_dir() or str(model).startswith(HUB_PREFIX) or str(model) in BUNDLED_MODELS:
        raise ValueError(
            f"{model}: is no preset; to train from its weights, give its preset, and it by --from"
        )
    base = partial(preset_recipe, steps=_requested_steps(model, changes))
    return recipes.read_recipe(model, base=base, changes=changes)


def with_run_length(recipe: Recipe, steps: int) -> Recipe:
    """Return a recipe with `steps`; the preset's schedule is adapted."""
    if recipe.schedule == preset_recipe(recipe.model).schedule:
        return with_steps(recipe, steps)
    return replace(recipe, steps=steps)


def published_schedule_note(recipe: Recipe) -> str | None:
    """Return how the schedule differs from that of the preset's paper, if it does."""
    name = recipe.model
    return schedule_note(
        _published_recipe(name), recipe, has_published_length=_has_published_length(name)
    )


def drop_unsupported(recipe: Recipe, given_keys: frozenset[str]) -> tuple[Recipe, list[str]]:
    """Drop keys of the preset's recipe that another network or objective does not support.

    Returns:
        The recipe, and a line for each key that was left out.

    Raises:
        ValueError: the network does not support the objective.
    """
    preset = get_preset(recipe.model)
    adapted = replace(
        preset, architecture=apply_architecture(preset.architecture, recipe.architecture)
    )
    if recipe.objective is not None:
        adapted = adapt_to_objective(adapted, recipe.objective)
    return drop_unsupported_keys(recipe, preset_recipe(recipe.model), (preset, adapted), given_keys)


def _requested_steps(model: str | Path, changes: Sequence[str | Mapping[str, Any]]) -> int | None:
    """Return the number of steps in changes, or else in a recipe file."""
    keys: dict[str, Any] = {}
    if str(model).endswith(".toml") and Path(model).is_file():
        keys |= read_toml(Path(model))
    for change in changes:
        if not isinstance(change, str):
            keys |= change
        elif change.partition("=")[0].strip() == "steps":
            keys |= parse_change(change)
    steps = keys.get("steps")
    return steps if type(steps) is int else None
