"""Tensors that may be divided among the processes of a run: their parts, the whole, copies, norms.

A divided tensor is torch's DTensor, known here by what it can do, since its module takes a second to
load. A tensor that is not divided is whole and is its own only part.
"""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class DividedTensor(Protocol):
    """What is used of torch's DTensor."""

    @property
    def device_mesh(self) -> Any:
        """The processes."""
        ...

    @property
    def placements(self) -> Sequence[Any]:
        """The dimension that is divided among them."""
        ...

    def to_local(self) -> Tensor:
        """Return the part of this process."""
        ...

    def full_tensor(self) -> Tensor:
        """Gather the whole."""
        ...


def whole_tensor(tensor: Tensor) -> Tensor:
    """Return the whole of a tensor; all processes must ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DividedTensor) else tensor


def own_part(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that this process holds, in the same memory."""
    return tensor.to_local() if isinstance(tensor, DividedTensor) else tensor


def divided_like(part: Tensor, tensor: Tensor) -> Tensor:
    """Return this process's part as a tensor of the shape and division of another."""
    if not isinstance(tensor, DividedTensor):
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
    if isinstance(target, DividedTensor) and not isinstance(source, DividedTensor):
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        shape, start = compute_local_shape_and_global_offset(
            source.shape, target.device_mesh, target.placements
        )
        part = source[tuple(slice(a, a + n) for a, n in zip(start, shape, strict=True))]
        target.to_local().copy_(part)
    elif isinstance(source, DividedTensor) and not isinstance(target, DividedTensor):
        target.copy_(source.full_tensor())
    else:
        target.copy_(source)


def norm_over_parts(norm: Tensor, tensor: Tensor) -> Tensor:
    """Return the norm of all parts from those of each process, which divide a tensor."""
    if not isinstance(tensor, DividedTensor):
        return norm
    square = norm.square()
    torch.distributed.all_reduce(square, group=tensor.device_mesh.get_group())
    return square.sqrt()
