"""Tensors that may be divided among the processes of a run: their parts, the whole, copies, norms.

A divided tensor is torch's DTensor, whose module takes a second to load: where nothing has loaded
it, there is none. A tensor that is not divided is whole and is its own only part.
"""

import sys
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_divided(tensor: Tensor) -> "TypeGuard[DTensor]":
    """Return whether a tensor is divided among processes."""
    if "torch.distributed.tensor" not in sys.modules:
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


def whole_tensor(tensor: Tensor) -> Tensor:
    """Return the whole of a tensor; all processes must ask for it."""
    return tensor.full_tensor() if is_divided(tensor) else tensor


def own_part(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that this process holds, in the same memory."""
    return tensor.to_local() if is_divided(tensor) else tensor


def divided_like(part: Tensor, tensor: Tensor) -> Tensor:
    """Return this process's part as a tensor of the shape and division of another."""
    if not is_divided(tensor):
        return part
    from torch.distributed.tensor import DTensor

    whole: Tensor = tensor
    return DTensor.from_local(
        part,
        tensor.device_mesh,
        tensor.placements,
        run_check=False,
        shape=whole.shape,
        stride=whole.stride(),
    )


def copy_tensor(target: Tensor, source: Tensor) -> None:
    """Copy a tensor to one that may be divided otherwise; all processes must take part."""
    if is_divided(target) and not is_divided(source):
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        shape, start = compute_local_shape_and_global_offset(
            source.shape, target.device_mesh, target.placements
        )
        part = source[tuple(slice(a, a + n) for a, n in zip(start, shape, strict=True))]
        target.to_local().copy_(part)
    elif is_divided(source) and not is_divided(target):
        target.copy_(source.full_tensor())
    else:
        target.copy_(source)


def norm_over_parts(norm: Tensor, tensor: Tensor) -> Tensor:
    """Return the norm of all parts from those of each process, which divide a tensor."""
    if not is_divided(tensor):
        return norm
    square = norm.square()
    torch.distributed.all_reduce(square, group=tensor.device_mesh.get_group())
    return square.sqrt()
