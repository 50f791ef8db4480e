"""Pruning: weights of the layers' matrices that are set to zero, by their magnitude."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.compression.config import Scope, check_fraction
from unmask.compression.structure.rebuild import check_no_adapters
from unmask.config import check_number_fields
from unmask.heads.model import Model


@dataclass(frozen=True, kw_only=True)
class MagnitudePruning:
    """The smallest weights of the matrices within the layers become zero.

    Tables of tokens and positions, biases, norms and heads stay. Among weights of equal magnitude
    the first ones stay.
    """

    fraction: float = 0.5
    """Fraction of the weights that become zero, from 0 to below 1."""
    scope: Scope = "global"
    """Weights that are compared: of all matrices together, or of each matrix by itself (Zhu and
    Gupta 2017, arXiv:1710.01878, prune each by itself)."""
    pattern: str | None = None
    """Structured sparsity N:M, such as 2:4: of each M successive inputs the N largest stay (Mishra
    et al. 2021, arXiv:2104.08378). `fraction` and `scope` are then not used."""

    makes_smaller: ClassVar[bool] = False
    makes_zeros: ClassVar[bool] = True
    uses_texts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number_fields(self)
        check_fraction("fraction", self.fraction)
        if self.pattern is not None:
            self._kept_of()

    def _kept_of(self) -> tuple[int, int]:
        n, colon, m = str(self.pattern).partition(":")
        if not (colon and n.isdecimal() and m.isdecimal() and 0 < int(n) < int(m) <= 1024):
            raise ValueError(f"pattern must be N:M with N below M, such as 2:4, got {self.pattern}")
        return int(n), int(m)

    def masks(self, model: Model) -> dict[str, Bool[Tensor, "o i"]]:
        """Return which weights of each matrix stay.

        Raises:
            ValueError: the model has no matrices within layers, or a pattern does not fit a matrix.
        """
        matrices = layer_matrices(model)
        if not matrices:
            raise ValueError("this model has no matrices within layers that could be pruned")
        if self.pattern is not None:
            return {name: self._pattern_mask(name, w) for name, w in matrices.items()}
        magnitudes = {name: w.detach().abs() for name, w in matrices.items()}
        return largest_of_each(magnitudes, self.fraction, self.scope)

    def apply(self, model: Model) -> float:
        """Set weights to zero, in place; return the fraction of all parameters that are zero."""
        matrices = layer_matrices(model)
        with torch.no_grad():
            for name, mask in self.masks(model).items():
                matrices[name].mul_(mask)
        weights = list(model.own_weights().values())
        return sum(int((w == 0).sum()) for w in weights) / sum(w.numel() for w in weights)

    def restructure(self, loaded_model: LoadedModel, batches: Sequence[Batch] = ()) -> LoadedModel:
        """Return the model itself, with weights that are zero now.

        Raises:
            ValueError: as `masks`, or the model has adapters.
        """
        check_no_adapters(loaded_model, "prune")
        self.apply(loaded_model.model)
        return loaded_model

    def _pattern_mask(self, name: str, weights: Float[Tensor, "o i"]) -> Bool[Tensor, "o i"]:
        n, m = self._kept_of()
        if weights.shape[1] % m:
            raise ValueError(
                f"pattern {self.pattern}: {name} has {weights.shape[1]} inputs, no multiple of {m}"
            )
        grouped = weights.detach().abs().reshape(-1, m)
        order = grouped.argsort(dim=1, descending=True, stable=True)
        mask = torch.zeros_like(grouped, dtype=torch.bool).scatter_(1, order[:, :n], True)
        return mask.reshape(weights.shape)


def layer_matrices(model: Model) -> Mapping[str, Float[Tensor, "o i"]]:
    """Return the weights of the linear maps within the layers of all stacks, by name; each once."""
    found: dict[str, Float[Tensor, "o i"]] = {}
    seen: set[int] = set()
    for name, module in model.named_modules():
        shared = isinstance(module, nn.Linear) and id(module.weight) in seen
        within = name.startswith("backbone.") and "layers." in name
        if isinstance(module, nn.Linear) and within and not shared:
            seen.add(id(module.weight))
            found[f"{name}.weight"] = module.weight
    return found


def largest_of_each(
    scores: Mapping[str, Float[Tensor, "o i"]], fraction: float, scope: Scope
) -> dict[str, Bool[Tensor, "o i"]]:
    """Return masks without a fraction of the smallest scores, of all matrices or of each."""
    if scope == "layer":
        return {name: largest(s, fraction) for name, s in scores.items()}
    kept = largest(torch.cat([s.reshape(-1) for s in scores.values()]), fraction)
    parts = kept.split([s.numel() for s in scores.values()])
    return {n: m.view_as(s) for (n, s), m in zip(scores.items(), parts, strict=True)}


def largest(magnitudes: Float[Tensor, "*n"], fraction: float) -> Bool[Tensor, "*n"]:
    """Return a mask without the smallest `fraction`."""
    n_pruned = round(fraction * magnitudes.numel())
    flat = magnitudes.detach().reshape(-1)
    order = flat.argsort(descending=True, stable=True)
    mask = torch.ones_like(flat, dtype=torch.bool)
    mask[order[flat.numel() - n_pruned :]] = False
    return mask.reshape(magnitudes.shape)
