"""Gradient descent, with momentum or averaged weights (NT-ASGD, Merity et al. 2018)."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from unmask.training.optimizers import config as optimizer_config
from unmask.training.optimizers.state import OptimizedTensor, OptimizerState


class SGDOptimizer:
    """Gradient descent, with the mean of the weights once evaluations no longer get better."""

    def __init__(
        self, config: optimizer_config.SGD, optimized_tensors: Iterable[OptimizedTensor]
    ) -> None:
        self._config, optimized_tensors = config, list(optimized_tensors)
        self._momentum_state = OptimizerState(
            optimized_tensors, ("velocity",) if config.momentum else ()
        )
        self._average_state = OptimizerState(optimized_tensors, ("mean",))
        self._dev_losses: list[float] = []
        self._n_averaged_steps: int | None = None
        """Steps whose weights are in the mean; None: there is none yet."""

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Take one step at the learning rate `learning_rate`."""
        for part in self._momentum_state.optimized_tensors:
            if part.master.grad is not None:
                self._update(part, part.master.grad, learning_rate * part.learning_rate_factor)
        if self._n_averaged_steps is not None:
            self._n_averaged_steps += 1
            for part in self._average_state.optimized_tensors:
                self._average_state.state_of(part)["mean"].lerp_(
                    part.master, 1 / self._n_averaged_steps
                )

    def _update(self, optimized: OptimizedTensor, gradient: Tensor, learning_rate: float) -> None:
        if self._config.momentum:
            velocity = self._momentum_state.state_of(optimized)["velocity"]
            gradient = velocity.mul_(self._config.momentum).add_(gradient)
        if optimized.has_weight_decay:
            optimized.master.mul_(1 - learning_rate * self._config.weight_decay)
        optimized.master.add_(gradient, alpha=-learning_rate)

    def update_dev_loss(self, loss: float) -> None:
        """Take note of the loss on held-out text; begin the mean where it is time to."""
        patience = self._config.averaging_patience
        if patience is None:
            return
        before = self._dev_losses[:-patience]
        if self._n_averaged_steps is None and before and loss > min(before):
            self._n_averaged_steps = 0
        self._dev_losses.append(loss)

    @property
    def averaged_weights(self) -> Mapping[str, Tensor]:
        """The mean of each tensor over the steps since evaluations no longer got better."""
        if not self._n_averaged_steps:
            return {}
        return {
            part.name: self._average_state.state_of(part)["mean"]
            for part in self._average_state.optimized_tensors
        }

    def state_tensors(self) -> dict[str, Tensor]:
        """What each tensor was moved by, its mean, the losses heard and the steps averaged."""
        said = torch.tensor(self._dev_losses, dtype=torch.float64)
        taken = torch.tensor(-1 if self._n_averaged_steps is None else self._n_averaged_steps)
        own = (
            {_DEV_LOSSES_KEY: said, _N_AVERAGED_KEY: taken}
            if self._config.averaging_patience
            else {}
        )
        return self._momentum_state.state_tensors() | self._average_state.state_tensors() | own

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that `state_tensors` returned."""
        left = dict(tensors)
        if self._config.averaging_patience:
            self._dev_losses = left.pop(_DEV_LOSSES_KEY, torch.zeros(0)).tolist()
            taken = int(left.pop(_N_AVERAGED_KEY, torch.tensor(-1)))
            self._n_averaged_steps = None if taken < 0 else taken
        means = {name: t for name, t in left.items() if name.endswith(".mean")}
        self._average_state.load_state(means)
        self._momentum_state.load_state({name: t for name, t in left.items() if name not in means})


_DEV_LOSSES_KEY, _N_AVERAGED_KEY = "heard", "taken"
