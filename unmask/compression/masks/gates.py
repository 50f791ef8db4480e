"""Gates: heads that an L0 penalty closes while a model is trained (Hard Concrete distribution).

A gate g in [0, 1] multiplies the output of a head, and so the columns of W_O that read it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.compression.config import HeadGates, TrainingCompression
from unmask.compression.structure.widths import gated_projections, keep_heads
from unmask.heads.model import Model

BETA, GAMMA, ZETA = 2 / 3, -0.1, 1.1
"""Temperature and bounds of the stretched interval (Louizos et al. 2018, arXiv:1712.01312, section
4.1)."""
_SMALLEST_NOISE = 1e-6
"""Uniform noise is between this and one minus this, where its logit is finite (released code)."""


def sample_gates(log_alpha: Float[Tensor, "*n"], noise: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Return g = min(1, max(0, s (zeta - gamma) + gamma)), s = sigmoid((logit u + log a) / beta).

    Louizos et al. 2018, arXiv:1712.01312, equations 10 and 11, for uniform noise u.
    """
    s = torch.sigmoid((torch.logit(noise) + log_alpha) / BETA)
    return (s * (ZETA - GAMMA) + GAMMA).clamp(0, 1)


def sample_derivatives(
    log_alpha: Float[Tensor, "*n"], noise: Float[Tensor, "*n"]
) -> Float[Tensor, "*n"]:
    """Return dg / d log a of `sample_gates`: zero where a gate is 0 or 1."""
    s = torch.sigmoid((torch.logit(noise) + log_alpha) / BETA)
    stretched = s * (ZETA - GAMMA) + GAMMA
    inside = (stretched > 0) & (stretched < 1)
    return inside * (ZETA - GAMMA) / BETA * s * (1 - s)


def open_probabilities(log_alpha: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Return P(g != 0) = sigmoid(log a - beta log(-gamma / zeta)) (Louizos et al., equation 12)."""
    return torch.sigmoid(log_alpha - BETA * math.log(-GAMMA / ZETA))


def final_gates(log_alpha: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Return the gates without noise: min(1, max(0, sigmoid(log a) (zeta - gamma) + gamma)).

    Louizos et al., equation 13.
    """
    return (torch.sigmoid(log_alpha) * (ZETA - GAMMA) + GAMMA).clamp(0, 1)


@dataclass(frozen=True)
class _Gated:
    """Gates of one sublayer: of its heads, or of groups of heads that share keys and values."""

    log_alpha: Float[Tensor, "n"]
    n_columns: int
    """Columns of W_O that a gate multiplies."""


class GatedHeads:
    """W_O with the columns of each head times its gate (Voita et al. 2019, arXiv:1905.09418)."""

    def __init__(self, method: HeadGates, model: Model) -> None:
        projections = gated_projections(model, "gates")
        self.method = method
        self._gated = {
            name: _Gated(
                torch.full_like(
                    weight[0, :n],
                    method.initial,
                    dtype=torch.promote_types(weight.dtype, torch.float32),
                    requires_grad=False,
                ),
                weight.shape[1] // n,
            )
            for name, (weight, n) in projections.items()
        }
        self.names = frozenset(self._gated)
        self._optimizer = torch.optim.Adam(
            [one.log_alpha for one in self._gated.values()], method.gate_learning_rate
        )
        self._noise: dict[str, Tensor] = {}
        """Of this step; empty once gates are final."""

    def begin_step(self) -> None:
        """Nothing is measured in a step."""

    def update(self, weights: Mapping[str, Tensor], step: int, n_steps: int) -> None:
        """Draw the noise of a step, the same for the same step."""
        self._noise = {}
        if step > self.method.end * n_steps or step == n_steps:
            return
        generator = torch.Generator().manual_seed(self.method.seed * 2**32 + step)
        for name, one in sorted(self._gated.items()):
            noise = torch.rand(one.log_alpha.shape, generator=generator)
            noise = noise.clamp(_SMALLEST_NOISE, 1 - _SMALLEST_NOISE)
            self._noise[name] = noise.to(one.log_alpha)

    def forward(self, name: str, weight: Float[Tensor, "o i"]) -> Float[Tensor, "o i"]:
        """Return W_O times its gates."""
        return weight * self._columns(name)

    def backward(
        self, name: str, weight: Float[Tensor, "o i"], gradient: Float[Tensor, "o i"]
    ) -> None:
        """Turn the gradient for the result of `forward` into those of W_O and of log a."""
        one = self._gated[name]
        if name in self._noise:
            of_gates = (gradient * weight).sum(0).unflatten(0, (-1, one.n_columns)).sum(1)
            one.log_alpha.grad = of_gates * sample_derivatives(one.log_alpha, self._noise[name])
        gradient.mul_(self._columns(name))

    def take_step(self, learning_rate_factor: float) -> None:
        """Move log a by Adam, with the gradient of lambda sum P(g != 0)."""
        if not self._noise:
            return
        for one in self._gated.values():
            p = open_probabilities(one.log_alpha)
            of_penalty = self.method.penalty * p * (1 - p)
            before = one.log_alpha.grad
            one.log_alpha.grad = of_penalty if before is None else before + of_penalty
        for group in self._optimizer.param_groups:
            group["lr"] = self.method.gate_learning_rate * learning_rate_factor
        self._optimizer.step()
        self._optimizer.zero_grad()

    def state_tensors(self) -> dict[str, Tensor]:
        """Return log a and the moments of its optimizer."""
        moments = {
            f"{key}.{name}": value
            for name, one in self._gated.items()
            for key, value in self._optimizer.state[one.log_alpha].items()
        }
        return {f"log_alpha.{name}": one.log_alpha for name, one in self._gated.items()} | moments

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state_tensors` returned."""
        for name, one in self._gated.items():
            one.log_alpha.copy_(tensors[f"log_alpha.{name}"])
            self._optimizer.state[one.log_alpha] = {
                key: tensors[f"{key}.{name}"].to(
                    "cpu" if key == "step" else one.log_alpha.device, copy=True
                )
                for key in ("step", "exp_avg", "exp_avg_sq")
                if f"{key}.{name}" in tensors  # none before the first step
            }

    def _columns(self, name: str) -> Float[Tensor, "i"]:
        one, noise = self._gated[name], self._noise.get(name)
        gates = final_gates(one.log_alpha) if noise is None else sample_gates(one.log_alpha, noise)
        return gates.repeat_interleave(one.n_columns)


def remove_closed_heads(
    loaded_model: LoadedModel, methods: Sequence[TrainingCompression]
) -> LoadedModel:
    """Return a trained model without the heads whose gates are closed.

    One head of each layer stays. The model itself, if it was trained without gates.
    """
    if not any(isinstance(method, HeadGates) for method in methods):
        return loaded_model
    kept: dict[str, list[int]] = {}
    for name, (weight, n) in gated_projections(loaded_model.model, "gates").items():
        is_open = (weight.unflatten(1, (n, -1)) != 0).any(2).any(0).tolist()
        kept[name.rpartition(".o.")[0]] = [i for i in range(n) if is_open[i]] or [0]
    found = keep_heads(loaded_model, kept, "gates")
    return replace(found, source=loaded_model.source)
