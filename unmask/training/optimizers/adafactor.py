"""Adafactor (Shazeer and Stern 2018): second moments of a matrix by row and column."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor
from torch.optim._adafactor import adafactor

from unmask.training.device.divided_tensors import copy_tensor, is_divided, whole_tensor
from unmask.training.optimizers import config as optimizer_config
from unmask.training.optimizers.state import OptimizedTensor, OptimizerState


class AdafactorOptimizer:
    """torch's Adafactor: what is remembered of a matrix is as long as its sides together."""

    def __init__(
        self, config: optimizer_config.Adafactor, optimized_tensors: Iterable[OptimizedTensor]
    ) -> None:
        self._config, optimized_tensors = config, list(optimized_tensors)
        self._matrix_state = OptimizerState(
            [p for p in optimized_tensors if p.master.ndim > 1], _MATRIX_STATE_NAMES
        )
        self._vector_state = OptimizerState(
            [p for p in optimized_tensors if p.master.ndim <= 1], ("count", "square")
        )

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Take one step at the relative rate `learning_rate`."""
        for memory in (self._matrix_state, self._vector_state):
            groups: dict[tuple[bool, float], list[OptimizedTensor]] = {}
            for part in memory.optimized_tensors:
                if part.master.grad is not None:
                    groups.setdefault(
                        (part.has_weight_decay, part.learning_rate_factor), []
                    ).append(part)
            for (decays, factor), reached in groups.items():
                weight_decay = self._config.weight_decay if decays else 0.0
                for some in _gathered_together(reached):
                    self._update(memory, some, learning_rate * factor, weight_decay)

    def _update(
        self,
        state: OptimizerState,
        optimized_tensors: list[OptimizedTensor],
        learning_rate: float,
        weight_decay: float,
    ) -> None:
        kept = [state.state_of(part) for part in optimized_tensors]
        # Means of rows and columns are of whole matrices: one that is divided is gathered.
        masters = [whole_tensor(part.master) for part in optimized_tensors]
        squares = [whole_tensor(one["square"]) if "square" in one else None for one in kept]
        # The function behind torch.optim.Adafactor, as with AdamW.
        adafactor(
            masters,
            [whole_tensor(p.master.grad) for p in optimized_tensors if p.master.grad is not None],
            [one.get("rows") for one in kept],
            [one.get("columns") for one in kept],
            squares,
            [one["count"] for one in kept],
            d=self._config.clip_threshold,
            lr=learning_rate,
            beta2_decay=-self._config.decay_rate,
            weight_decay=weight_decay,
            eps1=self._config.eps,
            eps2=self._config.min_parameter_scale,
            maximize=False,
        )
        for part, master, one, square in zip(
            optimized_tensors, masters, kept, squares, strict=True
        ):
            if master is not part.master:
                copy_tensor(part.master, master)
            if square is not None and square is not one["square"]:
                copy_tensor(one["square"], square)

    def state_tensors(self) -> dict[str, Tensor]:
        """Sums of squares and the number of steps of each tensor that was ever moved."""
        return self._matrix_state.state_tensors() | self._vector_state.state_tensors()

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that `state_tensors` returned."""
        names = tuple(f"{part.name}." for part in self._vector_state.optimized_tensors)
        vectors = {name: t for name, t in tensors.items() if name.startswith(names)}
        self._vector_state.load_state(vectors)
        self._matrix_state.load_state(
            {name: t for name, t in tensors.items() if name not in vectors}
        )


_MATRIX_STATE_NAMES = ("count", "rows", "columns")


def _gathered_together(parts: list[OptimizedTensor]) -> list[list[OptimizedTensor]]:
    """Split tensors into those that are updated at once: all, or one by one if they are divided."""
    some_are_divided = any(is_divided(part.master) for part in parts)
    return [[part] for part in parts] if some_are_divided else [parts]
