"""Checkpoints of a training run: save, find the newest, restore exactly."""

import functools
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unmask.checkpoints import folder as checkpoints
from unmask.checkpoints.folder import Checkpoint
from unmask.checkpoints.shards import write_shards
from unmask.checkpoints.tensors import tensors_sha256
from unmask.config import from_dict, to_dict
from unmask.training.config import Recipe
from unmask.training.device.distributed import World
from unmask.training.device.divided_tensors import copy_tensor, whole_tensor
from unmask.training.interrupt import StopRequest as StopRequest
from unmask.training.interrupt import stop_after_step as stop_after_step
from unmask.training.run import (
    RunProgress,
    TrainingRun,
)

_FROZEN_DIGEST_KEY = "frozen"
"""In a checkpoint's progress: the digest of the weights that are not trained, if there are any."""


def trained_tensors(run: TrainingRun) -> dict[str, Tensor]:
    """Return the float32 weights that are trained, by name, and the model's persistent buffers.

    Shared ones once.
    """
    state = run.model.state_dict()
    buffers = {name: state[name] for name, _ in run.model.named_buffers() if name in state}
    return {name: run.weights.masters[name] for name in run.weights.trained_names} | buffers


def _frozen_tensors(run: TrainingRun) -> dict[str, Tensor]:
    """Return the float32 weights that are not trained; a checkpoint has but their digest."""
    trained = set(run.weights.trained_names)
    return {n: whole_tensor(x) for n, x in run.weights.masters.items() if n not in trained}


def save_checkpoint(run: TrainingRun, folder: Path) -> Path | None:
    """Write a checkpoint of the run to its folder; all processes must call it.

    The first process writes it, of a run that is divided among them each its part. Log and evaluate
    before, not after: the checkpoint says how long the logs are.

    Raises:
        OSError: it cannot be written; earlier checkpoints are untouched.
        RuntimeError: the last step was broken off halfway, by a second Ctrl-C for instance.
    """
    if run.is_updating:
        raise RuntimeError(
            f"step {run.progress.step + 1} was broken off: its weights are not saved"
        )
    memories = (
        run.world.all_gather_tensors(run.memories.tensors()) if run.recipe.memory_length else []
    )
    memory = {f"{rank}.{name}": x for rank, each in enumerate(memories) for name, x in each.items()}
    own = {"memory": memory} if memory else {}
    if run.sharded is not None:
        return _save_sharded(run, folder, own)
    if run.world.rank:
        return None
    return checkpoints.write_checkpoint(
        folder,
        run.progress.step,
        state_tensors(run) | own,
        progress_record(run),
        n_kept=run.recipe.keep_checkpoints,
    )


def _save_sharded(
    run: TrainingRun, folder: Path, tensors: dict[str, dict[str, Tensor]]
) -> Path | None:
    """Write a checkpoint in which each process has its parts, and the first one `tensors`."""
    world, state, progress = run.world, state_tensors(run), progress_record(run)

    def write_parts(path: Path) -> None:
        for name, parts in state.items():
            write_shards(path / name, parts)

    if world.rank:
        if (shared := world.broadcast_object(None)) is not None:
            write_parts(Path(shared))
        return None
    shared_paths: list[str] = []

    def share_path(path: Path) -> None:
        shared_paths.append(world.broadcast_object(str(path.absolute())))
        write_parts(path)

    try:
        return checkpoints.write_checkpoint(
            folder,
            run.progress.step,
            tensors,
            progress,
            n_kept=run.recipe.keep_checkpoints,
            write_more=share_path,
        )
    finally:
        if not shared_paths:  # it is there already, or cannot be written
            world.broadcast_object(None)


def state_tensors(run: TrainingRun) -> dict[str, dict[str, Tensor]]:
    """Return the tensors of a checkpoint by file: model, optimizer, compression if there is any."""
    tensors = {"model": trained_tensors(run), "optimizer": run.optimizer.state_tensors()}
    if run.weights.transforms:
        tensors["compression"] = run.weights.transform_state()
    return tensors


def progress_record(run: TrainingRun) -> dict[str, Any]:
    """Return the progress of a run, and what its checkpoint depends on."""
    frozen = _frozen_tensors(run)
    kept = {_FROZEN_DIGEST_KEY: tensors_sha256(frozen)} if frozen else {}
    return (
        to_dict(run.progress)
        | _fixed_settings(run.recipe)
        | kept
        | {"versions": library_versions()}
    )


def find_newest_checkpoint(folder: Path, world: World) -> tuple[Checkpoint | None, list[str]]:
    """Find the newest whole checkpoint; the first process looks and tells the others.

    Returns it, and a line for each newer one that is damaged.
    """
    found, damaged = checkpoints.newest_checkpoint(folder) if world.rank == 0 else (None, [])
    path = world.broadcast_object(None if found is None else str(found.path))
    if world.rank and path is not None:
        progress = checkpoints.read_progress(Path(path))
        found = Checkpoint(Path(path), progress["step"], progress)
    return found, damaged


def restore_run(run: TrainingRun, checkpoint: Checkpoint) -> None:
    """Bring a run that was just started to where it was when it was saved.

    Raises:
        ValueError: the checkpoint is not of this recipe: other weights, optimizer, seed or
            precision; or what is not trained has changed.
    """
    check_frozen_weights(checkpoint, _frozen_tensors(run))
    said = dict(checkpoint.progress)
    for name, value in _fixed_settings(run.recipe).items():
        if said[name] != value:
            raise ValueError(
                f"{checkpoint.path}: {name} was {said[name]!r}, the recipe says {value!r}"
            )
    names = [name for name in to_dict(RunProgress()) if name != "kind"]
    fields = {name: said[name] for name in names if name in said}  # earlier versions had fewer
    try:
        if run.weights.transforms:
            run.weights.load_transform_state(checkpoint.tensors("compression"))
        mesh = None if run.sharded is None else run.sharded.mesh
        load_state(run, checkpoint.tensors("model", mesh), checkpoint.tensors("optimizer", mesh))
    except ValueError as error:
        raise ValueError(f"{checkpoint.path}: {error}") from None
    if run.recipe.memory_length:
        own = f"{run.world.rank}."
        known = checkpoint.tensors("memory").items()
        run.memories.load(
            {
                name.removeprefix(own): x.to(run.world.device)
                for name, x in known
                if name.startswith(own)
            }
        )
    run.progress = from_dict(RunProgress, fields)


def check_frozen_weights(checkpoint: Checkpoint, weights: Mapping[str, Tensor]) -> None:
    """Check that the frozen weights are those that a checkpoint was made with.

    Raises:
        ValueError: they differ.
    """
    was, now = (
        checkpoint.progress.get(_FROZEN_DIGEST_KEY),
        tensors_sha256(weights) if weights else None,
    )
    if was != now:
        raise ValueError(
            f"{checkpoint.path}: the weights that are not trained have changed since this run "
            f"began (SHA-256 {was or 'none'}, now {now or 'none'}): it can go on only with the "
            "model that it began with"
        )


def _fixed_settings(recipe: Recipe) -> dict[str, Any]:
    """Return the settings of a recipe that a checkpoint depends on beyond shapes."""
    return {
        "seed": recipe.seed,
        "precision": recipe.precision,
        "optimizer": type(recipe.optimizer).__name__,
    }


def load_state(
    run: TrainingRun, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]
) -> None:
    """Set the weights and the optimizer's state of a run.

    Raises:
        ValueError: they are of another model.
    """
    mine = trained_tensors(run)
    if odd := sorted(set(mine) ^ set(model)):
        raise ValueError(
            f"these weights are of another model: only one of the two has {', '.join(odd[:3])}"
            + (f" and {len(odd) - 3} more" if len(odd) > 3 else "")
        )
    for name, tensor in mine.items():
        if tensor.shape != model[name].shape:
            raise ValueError(
                f"these weights are of another model: {name} is {list(model[name].shape)}, "
                f"not {list(tensor.shape)}"
            )
    with torch.no_grad():
        for name, tensor in mine.items():
            copy_tensor(tensor, model[name])
    run.weights.copy_to_model()
    run.optimizer.load_state(optimizer)


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that a run uses."""
    return dict(_installed_versions())


@functools.cache
def _installed_versions() -> Mapping[str, str]:
    """Read the versions once a process: each is in a file of its own."""
    found = {"python": platform.python_version()}
    for name in ("unmask", "torch", "numpy", "tokenizers", "safetensors"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # used from its source tree
            found[name] = "unknown"
    return found
