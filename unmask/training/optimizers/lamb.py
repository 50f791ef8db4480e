"""LAMB (You et al. 2020): AdamW's step of each tensor, scaled to the norm of its weights."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from unmask.training.optimizers import config as optimizer_config
from unmask.training.optimizers.state import OptimizedTensor, OptimizerState


class LAMBOptimizer:
    """LAMB: You et al. 2020, algorithm 2, with the norm itself as phi and Adam's bias correction.

    Biases, norms and other vectors are neither decayed nor scaled to their norm (released code,
    `LAMBOptimizer`).
    """

    def __init__(
        self, config: optimizer_config.LAMB, optimized_tensors: Iterable[OptimizedTensor]
    ) -> None:
        self._config = config
        self._state = OptimizerState(optimized_tensors, ("step", "mean", "square"))

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Take one step at the learning rate `learning_rate`."""
        for part in self._state.optimized_tensors:
            if part.master.grad is not None:
                self._update(part, part.master.grad, learning_rate * part.learning_rate_factor)

    def _update(self, optimized: OptimizedTensor, gradient: Tensor, learning_rate: float) -> None:
        beta1, beta2 = self._config.betas
        memory = self._state.state_of(optimized)
        n = memory["step"].add_(1).double()
        mean = memory["mean"].mul_(beta1).add_(gradient, alpha=1 - beta1)
        square = memory["square"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        scale = (square / (1 - beta2**n)).sqrt_().add_(self._config.eps)
        update = (mean / (1 - beta1**n)).div_(scale)
        if not optimized.has_weight_decay:
            optimized.master.add_(update, alpha=-learning_rate)
            return
        update.add_(optimized.master, alpha=self._config.weight_decay)
        long, wide = torch.linalg.vector_norm(optimized.master), torch.linalg.vector_norm(update)
        trust = torch.where((long > 0) & (wide > 0), long / wide, torch.ones_like(long))
        optimized.master.sub_(update.mul_(trust * learning_rate))

    def state_tensors(self) -> dict[str, Tensor]:
        """Both moments and the number of steps of each tensor that was ever moved."""
        return self._state.state_tensors()

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that `state_tensors` returned."""
        self._state.load_state(tensors)
