"""What every optimizer has: the tensors that it trains, and its state."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from unmask.training.device.divided_tensors import copy_tensor


@runtime_checkable
class Optimizer(Protocol):
    """What changes masters by their gradients."""

    def step(self, learning_rate: float) -> None:
        """Take one step at the learning rate `learning_rate`."""
        ...

    def state_tensors(self) -> dict[str, Tensor]:
        """Everything that it remembers from step to step, by name."""
        ...

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that `state_tensors` returned, also in another process."""
        ...


@runtime_checkable
class AveragingOptimizer(Protocol):
    """An optimizer that may keep the mean of the weights, to be used in their place."""

    def update_dev_loss(self, loss: float) -> None:
        """Take note of the loss on held-out text."""
        ...

    @property
    def averaged_weights(self) -> Mapping[str, Tensor]:
        """The mean of each tensor, by name; none: it keeps none."""
        ...


@dataclass(frozen=True, kw_only=True)
class OptimizedTensor:
    """One tensor that an optimizer moves."""

    name: str
    master: Tensor
    has_weight_decay: bool
    learning_rate_factor: float
    """Factor of the learning rate."""


class OptimizerState:
    """What an optimizer remembers from step to step of each tensor that it has ever moved."""

    def __init__(
        self, optimized_tensors: Iterable[OptimizedTensor], state_names: tuple[str, ...]
    ) -> None:
        self.optimized_tensors, self._state_names = list(optimized_tensors), state_names
        self._state: dict[str, dict[str, Tensor]] = {}

    def state_of(self, optimized: OptimizedTensor) -> dict[str, Tensor]:
        """Everything of one tensor; zeros at first: see `_initial_state`."""
        if optimized.name not in self._state:
            self._state[optimized.name] = {
                key: _initial_state(key, optimized.master) for key in self._state_names
            }
        return self._state[optimized.name]

    def state_tensors(self) -> dict[str, Tensor]:
        """Everything, by name."""
        return {f"{name}.{key}": t for name, kept in self._state.items() for key, t in kept.items()}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that `state_tensors` returned, copied into aligned memory.

        Raises:
            ValueError: the state belongs to another optimizer or model.
        """
        self._state = {}
        known = {
            f"{part.name}.{key}": (part, key)
            for part in self.optimized_tensors
            for key in self._state_names
        }
        for name, tensor in tensors.items():
            if name not in known:
                raise ValueError(
                    f"the optimizer's memory does not fit this model and optimizer: {name!r}"
                )
            part, key = known[name]
            mine = self.state_of(part)[key]
            if mine.shape != tensor.shape:
                raise ValueError(
                    f"the optimizer's memory does not fit this model: {name!r} has shape "
                    f"{list(tensor.shape)}, not {list(mine.shape)}"
                )
            copy_tensor(mine, tensor)


def _initial_state(key: str, like: Tensor) -> Tensor:
    """Begin what is remembered of a tensor.

    "step" is a single number, "count" one that is read each step, "rows" and "columns" are one for
    each row or column of a matrix; all else is as large as the tensor.
    """
    if key == "count":
        return torch.zeros(())
    shapes = {
        "step": (),
        "rows": (*like.shape[:-1], 1),
        "columns": (*like.shape[:-2], 1, *like.shape[-1:]),
    }
    if key in shapes:  # whole also of a tensor that is divided
        return torch.zeros(shapes[key], dtype=like.dtype, device=like.device)
    return torch.zeros_like(like)
