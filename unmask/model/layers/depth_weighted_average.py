"""Learned weighted sums of all states of the residual stream so far (DenseFormer)."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


class DepthWeightedAverage(nn.Module):
    """The weights of `n` sums; the first has two terms, and each next one has one more.

    Pagliardini et al. 2024, arXiv:2402.02622, section 3. Initially each sum equals its last term.
    """

    def __init__(self, n: int) -> None:
        super().__init__()
        for i in range(n):
            self.register_parameter(str(i), nn.Parameter(torch.empty(i + 2)))
        self.initialize_parameters()

    @torch.no_grad()
    def initialize_parameters(self) -> None:
        """Fill the weights, deterministically."""
        for weight in self.parameters():
            weight.zero_()
            weight[-1] = 1

    def start(self, x: Float[Tensor, "b t d"]) -> Callable[[Tensor], Tensor]:
        """Return a function from each state to its weighted sum with x and earlier states."""
        before, weights = [x], iter(self.parameters())

        def mixed(x: Tensor) -> Tensor:
            before.append(x)
            return _WeightedSum.apply(next(weights), *before)  # pyright: ignore[reportReturnType]

        return mixed


class _WeightedSum(torch.autograd.Function):
    """A weighted sum, without copies of its terms or products."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, *terms: Tensor) -> Tensor:
        ctx.save_for_backward(weight, *terms)
        y = terms[0] * weight[0]
        for w, x in zip(weight[1:], terms[1:], strict=True):
            y.addcmul_(x, w)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        (grad,) = grads
        weight, *terms = ctx.saved_tensors
        weight_gradients = [(grad * x).sum(dtype=torch.float32) for x in terms]
        return torch.stack(weight_gradients).to(weight.dtype), *(grad * w for w in weight)
