"""Tensors that processes write together: each its part, in safetensors files of one folder.

torch's distributed checkpoint plans who writes and reads what; its storage in the layout of Hugging
Face has where each part begins in the headers of the files, as JSON, so that nothing is pickled.
Any number of processes reads them.
"""

import errno
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def write_shards(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors to a new folder; all processes of the run must call it.

    Raises:
        OSError: a process cannot write its part, for instance because the disk is full.
    """
    from torch.distributed import checkpoint

    writer = checkpoint.HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        checkpoint.save(dict(tensors), storage_writer=writer)
    except checkpoint.CheckpointException as error:
        raise _os_error(error.failures, folder) from None


def _os_error(failures: Mapping[int, Any], folder: Path) -> OSError:
    """Return the error of the first process that failed, by its number if it is the system's."""
    cause, *_ = next(iter(failures.values()))  # with its traceback
    number = cause.errno if isinstance(cause, OSError) else None
    return OSError(number or errno.EIO, str(cause), str(folder))


def read_shards(folder: Path, mesh: Any = None) -> dict[str, Tensor]:
    """Read the tensors of a folder: whole, or divided among the processes of a device mesh.

    With a mesh, all its processes must call it, and each reads its parts alone.

    Raises:
        ValueError: a file is damaged, or the parts of a tensor do not make up the whole.
    """
    from safetensors import SafetensorError
    from torch.distributed import checkpoint

    reader = checkpoint.HuggingFaceStorageReader(str(folder))
    try:
        metadata = reader.read_metadata().state_dict_metadata
        tensors = {name: _empty(folder, name, entry, mesh) for name, entry in metadata.items()}
        checkpoint.load(tensors, storage_reader=reader, no_dist=mesh is None)
    except (SafetensorError, KeyError, checkpoint.CheckpointException) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{folder}: truncated or damaged: {reason}") from None
    return tensors


def _empty(folder: Path, name: str, entry: Any, mesh: Any) -> Tensor:
    """Return a tensor to read into, once the sizes of its parts are compared with its own."""
    shape, dtype = entry.size, entry.properties.dtype
    n_stored = sum(math.prod(part.sizes) for part in entry.chunks)
    if n_stored != math.prod(shape):
        raise ValueError(
            f"{folder}: damaged: the parts of tensor {name} have {n_stored:,} values, but its "
            f"shape is {list(shape)}"
        )
    if mesh is None or not shape:
        return torch.empty(shape, dtype=dtype)
    from torch.distributed.tensor import Shard, zeros

    return zeros(shape, dtype=dtype, device_mesh=mesh, placements=[Shard(0)])
