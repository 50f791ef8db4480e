"""Build the optimizer that a recipe names, with its groups of parameters."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from unmask.training.optimizers import config as optimizer_config
from unmask.training.optimizers.adafactor import AdafactorOptimizer
from unmask.training.optimizers.adamw import AdamWOptimizer
from unmask.training.optimizers.lamb import LAMBOptimizer
from unmask.training.optimizers.master_weights import MasterWeights
from unmask.training.optimizers.muon import MuonOptimizer
from unmask.training.optimizers.sgd import SGDOptimizer
from unmask.training.optimizers.state import OptimizedTensor, Optimizer

_OPTIMIZERS: Mapping[type, Callable[[Any, list[OptimizedTensor]], Optimizer]] = {
    optimizer_config.AdamW: AdamWOptimizer,
    optimizer_config.LAMB: LAMBOptimizer,
    optimizer_config.Adafactor: AdafactorOptimizer,
    optimizer_config.SGD: SGDOptimizer,
}


def build_optimizer(
    config: optimizer_config.OptimizerConfig,
    model: nn.Module,
    weights: MasterWeights,
    *,
    learning_rate_factors: Mapping[str, float] | None = None,
    dtype: torch.dtype | None = None,
) -> Optimizer:
    """Build the optimizer of a model's weights.

    Args:
        config: which, with its numbers.
        model: says which tensors are hidden matrices, for Muon.
        weights: the masters that are moved.
        learning_rate_factors: factors of the learning rate by parameter name, 1 for those not
            named (discriminative rates).
        dtype: the type in which Muon multiplies. None: that of the model's own weights.
    """
    parts = [
        OptimizedTensor(
            name=name,
            master=weights.masters[name],
            has_weight_decay=uses_weight_decay(name, weights.masters[name]),
            learning_rate_factor=1.0
            if learning_rate_factors is None
            else learning_rate_factors.get(name, 1.0),
        )
        for name in weights.trained_names
    ]
    if not isinstance(config, optimizer_config.Muon):
        return _OPTIMIZERS[type(config)](config, parts)
    matrices = hidden_matrix_names(model)
    return MuonOptimizer(
        config,
        [part for part in parts if part.name in matrices],
        AdamWOptimizer(
            config.other_parameters, [part for part in parts if part.name not in matrices]
        ),
        dtype or weights.dtype,
    )


def uses_weight_decay(name: str, tensor: Tensor) -> bool:
    """Return whether weight decay applies: to matrices and tables, not to biases, norms, vectors.

    BERT's rule (released code, `optimization.py`, `exclude_from_weight_decay`), by shape instead of
    by name.
    """
    return tensor.ndim >= 2 and name.rsplit(".", 1)[-1] != "bias"


def hidden_matrix_names(model: nn.Module) -> frozenset[str]:
    """Name the weights of linear maps in layers: no table, and nothing of a head but its layers."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    linear = {id(m.weight) for m in model.modules() if isinstance(m, nn.Linear)} - tables
    return frozenset(
        name
        for name, p in model.named_parameters()
        if id(p) in linear
        and (name.split(".", 1)[0] not in ("heads", "head") or ".layers." in name)
    )
