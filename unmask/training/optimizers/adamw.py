"""AdamW (Loshchilov and Hutter 2019), torch's fused kernel."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from unmask.training.optimizers import config as optimizer_config
from unmask.training.optimizers.state import OptimizedTensor, OptimizerState


class AdamWOptimizer:
    """torch's fused AdamW."""

    def __init__(
        self, config: optimizer_config.AdamW, optimized_tensors: Iterable[OptimizedTensor]
    ) -> None:
        self._config = config
        self._state = OptimizerState(optimized_tensors, ("step", "mean", "square"))
        self._groups: dict[tuple[bool, float], list[OptimizedTensor]] = {}
        for part in self._state.optimized_tensors:
            self._groups.setdefault((part.has_weight_decay, part.learning_rate_factor), []).append(
                part
            )

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Take one step at the learning rate `learning_rate`."""
        for (decays, factor), parts in self._groups.items():
            reached = [part for part in parts if part.master.grad is not None]
            memories = [self._state.state_of(part) for part in reached]
            # The function behind torch.optim.AdamW: the class takes a second to load torch's
            # compiler, and hides its memory.
            adamw(
                [part.master for part in reached],
                [part.master.grad for part in reached if part.master.grad is not None],
                [memory["mean"] for memory in memories],
                [memory["square"] for memory in memories],
                [],
                [memory["step"] for memory in memories],
                fused=True,
                amsgrad=False,
                beta1=self._config.betas[0],
                beta2=self._config.betas[1],
                lr=learning_rate * factor,
                weight_decay=self._config.weight_decay if decays else 0.0,
                eps=self._config.eps,
                maximize=False,
            )

    def state_tensors(self) -> dict[str, Tensor]:
        """Both moments and the number of steps of each tensor that was ever moved."""
        return self._state.state_tensors()

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that `state_tensors` returned."""
        self._state.load_state(tensors)
