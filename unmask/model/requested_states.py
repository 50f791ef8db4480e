"""The hidden states that a network is asked to return, and those that are known already."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.batch import Batch, Feature


@dataclass(frozen=True, kw_only=True)
class RequestedStates(Feature):
    """The hidden states that a network returns. Default: those of the last layer [b t d]."""

    selected_column: Int[Tensor, "b"] | None = None
    """One column of each row, the only one that the last layer computes and returns [b 1 d]. None:
    all columns."""
    all_layers: bool = False
    """Whether to return the input of the first layer and the outputs of all layers, concatenated [b
    t (1 + layers)*d], the last after the final norm, if any."""
    before_layer: int | None = None
    """The index of a layer of a Transformer whose input is returned [b t d]; it and those above it
    are not computed. None: all layers are."""
    summary: bool = False
    """Whether to prepend a column: the network's own vector of the text (CANINE). With
    `selected_column` it is the only one."""


@dataclass(frozen=True, kw_only=True)
class KnownStates(Feature):
    """The input of a layer of a Transformer, in place of what the layers below would compute."""

    hidden: Float[Tensor, "b t d"]
    layer: int


LAST_LAYER = RequestedStates()
"""All columns of the last layer."""


def requested_states(batch: Batch) -> RequestedStates:
    """Return the hidden states that a batch requests."""
    return batch.feature(RequestedStates) or LAST_LAYER


def has_hooks(module: nn.Module, but_for: Collection[int] = ()) -> bool:
    """Return whether something watches or changes what a module is given or returns.

    Args:
        module: the module.
        but_for: ids of handles of hooks that do not count.
    """
    kinds = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
    return any(key not in but_for for kind in kinds for key in vars(module)[kind])


def record_input(module: nn.Module, run: Callable[[], Tensor]) -> Tensor:
    """Run a network and return the input of one of its modules."""
    recorded: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        recorded.append(inputs[0])

    hook = module.register_forward_pre_hook(keep)
    try:
        run()
    finally:
        hook.remove()
    return recorded[0]
