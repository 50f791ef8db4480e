"""Muon (Jordan et al. 2024) for hidden matrices, AdamW for the rest."""

import math
from collections.abc import Iterable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.training.device.divided_tensors import copy_tensor, whole_tensor
from unmask.training.optimizers import config as optimizer_config
from unmask.training.optimizers.adamw import AdamWOptimizer
from unmask.training.optimizers.state import OptimizedTensor, OptimizerState


class MuonOptimizer:
    """Muon for hidden matrices, AdamW for the rest.

    An update is Nesterov momentum, made near-orthogonal (Jordan et al. 2024), times
    0.2 sqrt(max(rows, columns)), so that its root mean square is AdamW's (Liu et al. 2025,
    equation 4).
    """

    def __init__(
        self,
        config: optimizer_config.Muon,
        optimized_tensors: Iterable[OptimizedTensor],
        other_optimizer: AdamWOptimizer,
        dtype: torch.dtype,
    ) -> None:
        self._config, self._other_optimizer, self._dtype = config, other_optimizer, dtype
        self._state = OptimizerState(optimized_tensors, ("momentum",))

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Take one step at the learning rate `learning_rate`."""
        for part in self._state.optimized_tensors:
            if part.master.grad is not None:
                self._update(part, part.master.grad, learning_rate * part.learning_rate_factor)
        self._other_optimizer.step(learning_rate)

    def _update(self, optimized: OptimizedTensor, gradient: Tensor, learning_rate: float) -> None:
        beta = self._config.momentum
        momentum = self._state.state_of(optimized)["momentum"].mul_(beta).add_(gradient)
        update = torch.add(gradient, momentum, alpha=beta)
        # Of a matrix that is divided, each process makes the whole, rather than sums of parts.
        copy_tensor(update, orthogonalize(whole_tensor(update), self._dtype))
        optimized.master.mul_(1 - learning_rate * self._config.weight_decay)
        optimized.master.add_(
            update, alpha=-learning_rate * 0.2 * math.sqrt(max(optimized.master.shape))
        )

    def state_tensors(self) -> dict[str, Tensor]:
        """The momentum of each matrix, and what AdamW remembers of the rest."""
        return self._state.state_tensors() | self._other_optimizer.state_tensors()

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that `state_tensors` returned."""
        mine = {name: t for name, t in tensors.items() if name.endswith(".momentum")}
        self._state.load_state(mine)
        self._other_optimizer.load_state(
            {name: t for name, t in tensors.items() if name not in mine}
        )


def orthogonalize(
    matrix: Float[Tensor, "m n"], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "m n"]:
    """Bring a matrix's singular values near 1 (0.7 to 1.2) by five Newton-Schulz steps.

    The coefficients are Jordan et al. 2024's: the steepest at zero for which the iteration stays
    near 1. They bear bfloat16, so the products are made in the precision of the model.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.to(dtype)
    tall = x.shape[0] > x.shape[1]
    x = x.mT if tall else x
    x = x / (torch.linalg.vector_norm(x) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return (x.mT if tall else x).float()
