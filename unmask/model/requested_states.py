"""Which hidden states a network returns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Int
from torch import Tensor, nn

from unmask.batch import Batch, Feature


@dataclass(frozen=True, kw_only=True)
class RequestedStates(Feature):
    """Which hidden states a network returns. Without it: those of the last layer [b t d]."""

    selected_column: Int[Tensor, "b"] | None = None
    """The one column of each row that is returned [b 1 d]: the last layer computes no other. None:
    all."""
    all_layers: bool = False
    """The input of the first layer and the outputs of all layers, side by side
    [b t (1 + layers)*d], behind the final norm where there is one."""
    summary: bool = False
    """One more column comes first: the network's own vector of the text (CANINE). With
    `selected_column` it is returned alone."""


LAST_LAYER = RequestedStates()
"""All columns of the last layer."""


def requested_states(batch: Batch) -> RequestedStates:
    """Return which hidden states of a batch are requested."""
    return batch.feature(RequestedStates) or LAST_LAYER


def record_input(module: nn.Module, run: Callable[[], Tensor]) -> Tensor:
    """Run a network and return what enters one of its modules."""
    seen: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        seen.append(inputs[0])

    hook = module.register_forward_pre_hook(keep)
    try:
        run()
    finally:
        hook.remove()
    return seen[0]
