"""Attention kernels whose backward adds in one order, where training asks for that."""

import torch
from torch import Tensor

_FUSED_KERNELS = "ScaledDotProduct"
"""What names of torch's graph nodes of fused attention begin with."""
_MAX_DEPTH = 3
"""Nodes to look at: after the kernel its output may be cut or its axes exchanged."""


def make_backward_deterministic(y: Tensor) -> Tensor:
    """Let the backward of fused attention add in one order; return its output.

    Where deterministic kernels are asked for with a warning in place of an error, torch's flash and
    memory-efficient attention only warn, and add by atomic operations. So the error is asked for
    while their own backward runs, and for them there is none.
    """
    if not torch.is_deterministic_algorithms_warn_only_enabled() or torch.compiler.is_compiling():
        return y
    node = y.grad_fn
    for _ in range(_MAX_DEPTH):
        if node is None:
            return y
        if node.name().startswith(_FUSED_KERNELS):
            node.register_prehook(_forbid_others)
            node.register_hook(_warn_of_others)
            return y
        node = next((n for n, _ in node.next_functions), None)
    return y


def _forbid_others(_: object) -> None:
    torch.use_deterministic_algorithms(True)


def _warn_of_others(_: object, __: object) -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
