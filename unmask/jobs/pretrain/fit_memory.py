"""The plan of a run against the memory that is free: smaller micro-batches, or a refusal."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from unmask.checkpoints.folder import newest_checkpoint
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.heads.model import Model
from unmask.jobs.pretrain.apply_recipe import check_sequence_length
from unmask.jobs.pretrain.data.planned_rows import make_planned_rows
from unmask.jobs.pretrain.network import freeze_parameters
from unmask.jobs.pretrain.resolve_options import RunOptions
from unmask.planning.flops import default_target_fraction
from unmask.planning.memory import MemorySettings, TrainingMemory, training_memory
from unmask.planning.rows import RowShape
from unmask.planning.this_machine import RUN_PROCESS_BYTES
from unmask.reports.formatting import NARROW_SPACE, format_bytes
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.training.config import Recipe
from unmask.training.device.activation_memory import free_memory_bytes
from unmask.training.device.distributed import World, resolve_precision
from unmask.word_vectors.train.trainer import WORD_VECTOR_METHODS
from unmask.zoo.preset import Published

_SHORTEST = 16
"""Tokens of the shortest rows that are proposed."""
_USABLE_FRACTION = 0.8
"""Of the free memory that a plan may fill: other programs want some, and bert-base with 16,384
tokens took a seventh more than planned (with 2,048 and 4,096 within a twelfth)."""


def fit_into_memory(
    recipe: Recipe,
    preset: Published,
    special_ids: SpecialTokenIds,
    initial_model: LoadedModel | None,
    options: RunOptions,
    world: World,
) -> Recipe:
    """Return the recipe with micro-batches that fit into the free memory.

    A run that fits, or that has a checkpoint, stays as it is. The batch stays the same.

    Raises:
        ValueError: not one row fits.
    """
    if options.resumed_run is not None:
        checkpoint, _ = newest_checkpoint(options.output_folder, clean_up=False)
        if checkpoint is not None:
            return recipe
    free = _free_bytes(world)
    if free is None:
        return recipe
    model = preset.with_vocabulary(special_ids).build_without_memory()
    freeze_parameters(model, recipe.frozen)
    held = 0 if initial_model is None else sum(p.nbytes for p in model.parameters())
    needed = _memory_of_rows(recipe, model, options, world)
    length = check_sequence_length(recipe, preset)
    of_process = recipe.batch_tokens // world.size
    tokens = min(recipe.micro_batch_tokens or of_process, of_process)
    coarse = _longest_rows(model, length)
    most = int(_USABLE_FRACTION * free) + held
    most -= RUN_PROCESS_BYTES if world.device.type == "cpu" else 0
    if needed(coarse, tokens).total <= most:
        return recipe
    shape = _planned_shape(recipe, preset, coarse)
    fitting = tokens
    while fitting > shape.length and needed(shape, fitting).total > most:
        fitting = max(fitting // 2 // shape.length, 1) * shape.length
    if _of_step(needed(shape, fitting)) > free + held:
        raise ValueError(_refusal(needed, shape, recipe, (free, free + held)))
    if fitting == tokens:
        return recipe
    if contrasts := [n for n, one in model.head_specs.items() if one.compares_rows]:
        raise ValueError(
            f"memory: micro-batches of {tokens:,} tokens do not fit into the {_size(free)} that "
            f"are free; the loss of {contrasts[0]} compares the rows of a micro-batch, so that "
            f"smaller ones are an easier task: --set micro_batch_tokens={fitting} to allow it"
        )
    options.print_line(
        f"micro_batch_tokens = {fitting:,} in place of {tokens:,}, to fit into the "
        f"{_size(free)} that are free; a step still has {recipe.batch_tokens:,} tokens"
    )
    return replace(recipe, micro_batch_tokens=fitting)


def _free_bytes(world: World) -> int | None:
    """Return what every process may take: of those of one machine each its part of the memory."""
    free = free_memory_bytes(world.device)
    if free is not None and world.device.type == "cpu":
        free //= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return min((n for n in world.all_gather_object(free) if n is not None), default=None)


_Needed = Callable[[RowShape, int], TrainingMemory]


def _memory_of_rows(recipe: Recipe, model: Model, options: RunOptions, world: World) -> _Needed:
    """Return what counts the memory of a process, by the shape of rows and micro-batch tokens."""
    settings = MemorySettings(
        precision=resolve_precision(recipe.precision, world.device),
        strategy="fsdp" if world.is_sharded else "ddp",
        n_devices=world.size,
        checkpoint_activations=options.checkpoint_activations,
        on_cpu=world.device.type == "cpu",
    )
    return lambda shape, tokens: training_memory(model, recipe.optimizer, shape, tokens, settings)


def _longest_rows(model: Model, length: int) -> RowShape:
    """Return rows that need at least what real ones do: both sides of a pair are full."""
    return RowShape(
        length=length,
        decoder_ratio=float(model.architecture.is_encoder_decoder),
        target_fraction=default_target_fraction(model.head_specs),
    )


def _planned_shape(recipe: Recipe, preset: Published, otherwise: RowShape) -> RowShape:
    """Return the shape of rows that `unmask plan` counts."""
    objective = preset.objective
    assert not isinstance(objective, WORD_VECTOR_METHODS)
    with TemporaryDirectory() as folder:
        try:
            return make_planned_rows(recipe, preset, objective, Path(folder)).shape
        except ValueError:  # an objective of labels, which the bundled text has not
            return otherwise


def _of_step(memory: TrainingMemory) -> int:
    """Return what a step cannot do without."""
    return memory.total - memory.allocator


def _refusal(
    needed: _Needed,
    shape: RowShape,
    recipe: Recipe,
    sizes: tuple[int, int],
) -> str:
    """Say what a step needs, and the line to type."""
    free, most = sizes
    memory = needed(shape, shape.length)
    begin = (
        f"memory: a step of {recipe.model} with one row of {shape.length:,} tokens needs "
        f"{_size(_of_step(memory))}, and {_size(free)} are free"
    )
    length = shape.length // 2
    while length >= _SHORTEST:
        if _of_step(needed(replace(shape, length=length), length)) <= most:
            return f"{begin}; shorter rows fit: --sequence-length {length}"
        length //= 2
    state = memory.weights + memory.gradients + memory.optimizer
    return (
        f"{begin}; its weights, gradients and optimizer state alone are {_size(state)}: take a "
        f"smaller model, or other hardware: unmask plan {recipe.model} --hardware h100"
    )


def _size(n_bytes: int) -> str:
    return format_bytes(n_bytes).replace(NARROW_SPACE, " ")
