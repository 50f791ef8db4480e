"""Compression while training: the weights that a model computes with, made of those it learns.

At each step the model has W' = T(W) for the float32 weights W that the optimizer moves. The
gradient for W' becomes that for W by each method's own rule.
"""

from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unmask.compression.activations import MovingRanges
from unmask.compression.config import (
    GivenMask,
    GradualPruning,
    HeadGates,
    KeepZeros,
    MovementPruning,
    QuantizationAware,
    TrainingCompression,
    check_training_methods,
)
from unmask.compression.masks.gates import GatedHeads
from unmask.compression.masks.given import read_masks
from unmask.compression.prune import largest_of_each, layer_matrices
from unmask.compression.quantize import round_weights
from unmask.heads.model import Model

MIN_ENCODED_WEIGHTS = 1024
"""Tensors with fewer weights are stored as they are: their scales would take as much."""
_EMBEDDING_PARTS = {"tokens", "position", "segments"}
"""First words of names of tables within a stack."""


@runtime_checkable
class WeightTransform(Protocol):
    """A method that acts on weights in each step."""

    @property
    def names(self) -> frozenset[str]:
        """Names of the weights that it changes."""
        ...

    def begin_step(self) -> None:
        """Forget what was measured in the step before."""
        ...

    def update(self, weights: Mapping[str, Tensor], step: int, n_steps: int) -> None:
        """Prepare for a step, counted from 1 to n_steps; the same step may be prepared again."""
        ...

    def forward(self, name: str, weight: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """Return what the model computes with."""
        ...

    def backward(
        self, name: str, weight: Float[Tensor, "*n"], gradient: Float[Tensor, "*n"]
    ) -> None:
        """Turn the gradient for the result of `forward` into that for the weight, in place."""
        ...

    def take_step(self, learning_rate_factor: float) -> None:
        """Change what the method learns itself, after the optimizer's step."""
        ...

    def state_tensors(self) -> dict[str, Tensor]:
        """Return what a checkpoint needs, by name; `load_state` takes it."""
        ...

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state_tensors` returned.

        Raises:
            KeyError: a tensor is missing.
        """
        ...


def build_transforms(
    methods: Sequence[TrainingCompression], model: Any
) -> tuple[WeightTransform, ...]:
    """Build the methods of a recipe for a model, in the order in which they are applied.

    Raises:
        ValueError: the model has nothing that they compress, or they do not fit together.
    """
    check_training_methods(tuple(methods))
    if not methods:
        return ()
    if model.adapters:
        raise ValueError(
            "compression: a model with adapters is not compressed while it is trained; merge them "
            "first, or train all of its weights"
        )
    return tuple(_build(method, model) for method in methods)


def encoded_names(model: Model) -> dict[str, bool]:
    """Return the names of the weights that are large enough to quantize; True: an embedding."""
    return {
        name: is_embedding_name(name)
        for name, p in model.named_parameters()
        if p.ndim >= 2 and p.numel() >= MIN_ENCODED_WEIGHTS
    }


def is_embedding_name(name: str) -> bool:
    """Return whether a weight is a table of tokens, positions or segments."""
    parts = set(name.split("."))
    return not {"layers", "heads"} & parts and bool(_EMBEDDING_PARTS & parts)


@singledispatch
def _build(method: TrainingCompression, model: Model) -> WeightTransform:
    raise TypeError(f"no such method: {method}")


@_build.register
def _(method: QuantizationAware, model: Model) -> WeightTransform:
    return _Rounding(method, model)


@_build.register
def _(method: GradualPruning, model: Model) -> WeightTransform:
    return _MagnitudeMasks(method, model)


@_build.register
def _(method: MovementPruning, model: Model) -> WeightTransform:
    return _MovementMasks(method, model)


@_build.register
def _(method: KeepZeros, model: Model) -> WeightTransform:
    return _ZeroMasks(model)


@_build.register
def _(method: GivenMask, model: Model) -> WeightTransform:
    return _GivenMasks(method, model)


@_build.register
def _(method: HeadGates, model: Model) -> WeightTransform:
    return GatedHeads(method, model)


class _Rounding:
    """Weights, and inputs of linear layers if they have codes, as these stand for."""

    def __init__(self, method: QuantizationAware, model: Model) -> None:
        self.method, self._is_embedding = method, encoded_names(model)
        if not self._is_embedding:
            raise ValueError("qat: this model has no matrix that is large enough to quantize")
        self.names = frozenset(self._is_embedding)
        self._active = False
        self._inputs = None if method.activations is None else MovingRanges(model, method)

    def begin_step(self) -> None:
        if self._inputs is not None:
            self._inputs.begin_step()

    def update(self, weights: Mapping[str, Tensor], step: int, n_steps: int) -> None:
        self._active = step > self.method.start * n_steps
        if self._inputs is not None:
            self._inputs.activate(self._active)

    def forward(self, name: str, weight: Tensor) -> Tensor:
        # Weights that are not finite are the loop's to report.
        if not self._active or not bool(weight.isfinite().all()):
            return weight
        return round_weights(self.method, weight, is_embedding=self._is_embedding[name])

    def backward(self, name: str, weight: Tensor, gradient: Tensor) -> None:
        return

    def take_step(self, learning_rate_factor: float) -> None:
        if self._inputs is not None:
            self._inputs.take_step()

    def state_tensors(self) -> dict[str, Tensor]:
        return {} if self._inputs is None else self._inputs.state_tensors()

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        if self._inputs is not None:
            self._inputs.load_state(tensors)


class _Masks:
    """Weights of the layers' matrices, of which some are zero; those have no gradient."""

    def __init__(self, model: Model, word: str) -> None:
        matrices = layer_matrices(model)
        if not matrices:
            raise ValueError(f"{word}: this model has no matrices within layers to prune")
        self.names = frozenset(matrices)
        self.masks: dict[str, Bool[Tensor, "o i"]] = {
            name: torch.ones_like(w, dtype=torch.bool) for name, w in matrices.items()
        }

    def begin_step(self) -> None:
        return

    def forward(self, name: str, weight: Tensor) -> Tensor:
        return weight * self.masks[name]

    def backward(self, name: str, weight: Tensor, gradient: Tensor) -> None:
        gradient.mul_(self.masks[name])

    def take_step(self, learning_rate_factor: float) -> None:
        return

    def state_tensors(self) -> dict[str, Tensor]:
        return {f"mask.{name}": mask.to(torch.uint8) for name, mask in self.masks.items()}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        for name, mask in self.masks.items():
            mask.copy_(tensors[f"mask.{name}"])


class _ZeroMasks(_Masks):
    """Zeros of the initial weights stay."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, "keep_zeros")
        self.masks = {name: w.detach() != 0 for name, w in layer_matrices(model).items()}

    def update(self, weights: Mapping[str, Tensor], step: int, n_steps: int) -> None:
        return


class _GivenMasks(_Masks):
    """Zeros of another model, from a step on."""

    def __init__(self, method: GivenMask, model: Model) -> None:
        super().__init__(model, "mask")
        self.masks, self._start = read_masks(method, model), method.start
        self._active = False

    def update(self, weights: Mapping[str, Tensor], step: int, n_steps: int) -> None:
        self._active = step > self._start * n_steps

    def forward(self, name: str, weight: Tensor) -> Tensor:
        return super().forward(name, weight) if self._active else weight

    def backward(self, name: str, weight: Tensor, gradient: Tensor) -> None:
        if self._active:
            super().backward(name, weight, gradient)


class _MagnitudeMasks(_Masks):
    """Those of the smallest magnitude are zero."""

    def __init__(self, method: GradualPruning, model: Model) -> None:
        super().__init__(model, "gradual")
        self.method = method

    def update(self, weights: Mapping[str, Tensor], step: int, n_steps: int) -> None:
        m = self.method
        if step % m.interval == 0 or step in (1, n_steps):
            fraction = pruned_fraction(m, step, n_steps)
            magnitudes = {name: weights[name].abs() for name in self.masks}
            self.masks = largest_of_each(magnitudes, fraction, m.scope)


class _MovementMasks(_Masks):
    """Those with the smallest scores are zero; scores are learned."""

    def __init__(self, method: MovementPruning, model: Model) -> None:
        super().__init__(model, "movement")
        self.method = method
        self.scores: dict[str, Float[Tensor, "o i"]] = {
            name: torch.zeros_like(w.detach()) for name, w in layer_matrices(model).items()
        }
        self._optimizer = torch.optim.Adam(list(self.scores.values()), method.score_learning_rate)
        self._penalty = 0.0

    def update(self, weights: Mapping[str, Tensor], step: int, n_steps: int) -> None:
        m = self.method
        growth = _growth(m.start, m.end, step, n_steps)
        self._penalty = m.penalty * growth
        if not (step % m.interval == 0 or step in (1, n_steps)):
            return
        if m.threshold is None:
            self.masks = largest_of_each(self.scores, m.fraction * growth, m.scope)
        else:
            self.masks = {n: s.sigmoid() > m.threshold * growth for n, s in self.scores.items()}

    def backward(self, name: str, weight: Tensor, gradient: Tensor) -> None:
        self.scores[name].grad = gradient * weight
        super().backward(name, weight, gradient)

    def take_step(self, learning_rate_factor: float) -> None:
        """Move the scores by Adam."""
        n = sum(s.numel() for s in self.scores.values())
        for s in self.scores.values():
            if self._penalty and s.grad is not None:
                p = s.sigmoid()
                s.grad += self._penalty / n * p * (1 - p)
        for group in self._optimizer.param_groups:
            group["lr"] = self.method.score_learning_rate * learning_rate_factor
        self._optimizer.step()
        self._optimizer.zero_grad()

    def state_tensors(self) -> dict[str, Tensor]:
        moments = {
            f"{key}.{name}": value
            for name, s in self.scores.items()
            for key, value in self._optimizer.state[s].items()
        }
        scores = {f"score.{name}": s for name, s in self.scores.items()}
        return super().state_tensors() | scores | moments

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        super().load_state(tensors)
        for name, s in self.scores.items():
            s.copy_(tensors[f"score.{name}"])
            self._optimizer.state[s] = {
                key: tensors[f"{key}.{name}"].to(s.device if key != "step" else "cpu", copy=True)
                for key in ("step", "exp_avg", "exp_avg_sq")
                if f"{key}.{name}" in tensors  # none without a gradient
            }


def pruned_fraction(method: GradualPruning, step: int, n_steps: int) -> float:
    """Return the fraction of zeros at a step: v_f (1 - (1 - (t - t_0) / (t_1 - t_0))^3).

    Zhu and Gupta 2017, arXiv:1710.01878, equation 1.
    """
    return method.fraction * _growth(method.start, method.end, step, n_steps)


def _growth(start: float, end: float, step: int, n_steps: int) -> float:
    """Return the part of the final fraction that is reached at a step."""
    first, last = start * n_steps, end * n_steps
    if step <= first and last > first:
        return 0.0
    done = 1.0 if last <= first else min((step - first) / (last - first), 1.0)
    return 1 - (1 - done) ** 3
