"""Low rank: linear maps within the layers become two factors, by their singular values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.batch import Batch
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.compression.calibration import watch_inputs
from unmask.compression.config import Scope
from unmask.compression.prune import layer_matrices
from unmask.compression.structure.rebuild import check_no_adapters, rebuild
from unmask.compression.structure.widths import require_transformer_stacks
from unmask.config import check_number_fields
from unmask.heads.model import Model
from unmask.model.layers.per_layer import FactorizedMap

_RIDGE = 1e-6
"""Of the largest: smaller eigenvalues of the second moments count as this, so that directions in
which the calibration texts have no activations keep some weight."""


@dataclass(frozen=True, kw_only=True)
class LowRank:
    """The linear maps within the layers become products of two, W = A B.

    The best approximation of W of rank r is that of its r largest singular values (Eckart and Young
    1936, doi:10.1007/BF02288367). With calibration texts it is that of W C^(1/2) for the second
    moments C = E[x x'] of the map's inputs x, times C^(-1/2), which minimizes E|W x - A B x|^2
    (Wang et al. 2024, arXiv:2403.07378, section 3; Yuan et al. 2023, arXiv:2312.05821, scale by the
    diagonal alone).
    """

    rank: int | None = None
    """Rank of all maps. None: chosen for `fraction`."""
    fraction: float = 0.5
    """Fraction of the maps' weights that is left, above 0 and below 1, if `rank` is not given."""
    scope: Scope = "layer"
    """How `fraction` is spent: the same in each map; or on the singular values of all maps that
    have most of the energy of their own map for their number of weights."""

    makes_smaller: ClassVar[bool] = True
    makes_zeros: ClassVar[bool] = False
    uses_texts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number_fields(self)
        if not 0 < self.fraction < 1:
            raise ValueError(f"fraction must be above 0 and below 1, got {self.fraction:g}")
        if self.rank is not None and self.rank < 1:
            raise ValueError(f"rank must be at least 1, got {self.rank}")

    def restructure(self, loaded_model: LoadedModel, batches: Sequence[Batch] = ()) -> LoadedModel:
        """Return a model with factors where they have fewer weights than the whole map.

        Raises:
            ValueError: the network has no Transformer blocks, or no map becomes smaller.
        """
        check_no_adapters(loaded_model, "lowrank")
        stacks = require_transformer_stacks(loaded_model.model.architecture, "lowrank")
        matrices = _whole_maps(loaded_model.model)
        moments = second_moments(loaded_model.model, matrices, batches) if batches else {}
        factors = {name: decompose(w, moments.get(name)) for name, w in matrices.items()}
        ranks = self.ranks({name: found.energies for name, found in factors.items()}, matrices)
        if not ranks:
            raise ValueError(
                "lowrank: no linear map has fewer weights as two factors of this rank; lower it"
            )
        weights = loaded_model.model.own_weights()
        parts: dict[str, list[FactorizedMap]] = {side: [] for side in stacks}
        for name, rank in ranks.items():
            narrow, widen = factors[name].of_rank(rank)
            whole = weights.pop(f"{name}.weight")
            weights[f"{name}.narrow.weight"] = narrow.to(whole.dtype)
            weights[f"{name}.widen.weight"] = widen.to(whole.dtype)
            if (bias := weights.pop(f"{name}.bias", None)) is not None:
                weights[f"{name}.widen.bias"] = bias
            side, within = _stack_of(name, stacks)
            parts[side].append(FactorizedMap(name=within, rank=rank))
        divided = {
            side: replace(
                a, layers=replace(a.layers, factorized=(*a.layers.factorized, *parts[side]))
            )
            for side, a in stacks.items()
        }
        architecture = loaded_model.model.architecture.with_stacks(divided)
        return rebuild(loaded_model, architecture, weights)

    def ranks(
        self,
        energies: Mapping[str, Float[Tensor, "k"]],
        matrices: Mapping[str, Float[Tensor, "o i"]],
    ) -> dict[str, int]:
        """Return the rank of each map that becomes smaller.

        Args:
            energies: squares of the singular values of each map, largest first.
            matrices: the maps.
        """
        limits = {name: _largest_rank(w) for name, w in matrices.items()}
        if self.rank is not None:
            return {name: self.rank for name, most in limits.items() if self.rank <= most}
        if self.scope == "layer":
            found = {
                name: max(int(self.fraction * w.numel() / sum(w.shape)), 1)
                for name, w in matrices.items()
            }
            return {name: min(rank, limits[name]) for name, rank in found.items() if limits[name]}
        return self._ranks_of_all(energies, matrices, limits)

    def _ranks_of_all(
        self,
        energies: Mapping[str, Float[Tensor, "k"]],
        matrices: Mapping[str, Float[Tensor, "o i"]],
        limits: Mapping[str, int],
    ) -> dict[str, int]:
        """Spend the budget on singular values in the order of energy per weight."""
        found = {name: 1 for name, most in limits.items() if most}
        budget = self.fraction * sum(matrices[name].numel() for name in found)
        budget -= sum(sum(matrices[name].shape) for name in found)
        gains = sorted(
            (
                (-float(gain), k, name)
                for name in found
                for k, gain in enumerate(
                    (energies[name] / energies[name].sum().clamp_min(_tiny(energies[name])))[
                        1 : limits[name]
                    ]
                    / sum(matrices[name].shape)
                )
            ),
        )
        for _, _, name in gains:
            if sum(matrices[name].shape) <= budget:
                found[name] += 1
                budget -= sum(matrices[name].shape)
        return found


@dataclass(frozen=True)
class Decomposition:
    """A map W as U S V' R, where R undoes the weighting of its inputs."""

    u: Float[Tensor, "o k"]
    singular_values: Float[Tensor, "k"]
    vr: Float[Tensor, "k i"]

    @property
    def energies(self) -> Float[Tensor, "k"]:
        """Squares of the singular values."""
        return self.singular_values.square()

    def of_rank(self, rank: int) -> tuple[Float[Tensor, "r i"], Float[Tensor, "o r"]]:
        """Return both factors, which share the singular values equally."""
        roots = self.singular_values[:rank].sqrt()
        return roots[:, None] * self.vr[:rank], self.u[:, :rank] * roots


def decompose(
    weight: Float[Tensor, "o i"], moments: Float[Tensor, "i i"] | None = None
) -> Decomposition:
    """Return the singular value decomposition of W C^(1/2), times C^(-1/2); in float64.

    Without the second moments C of the inputs it is that of W.

    Raises:
        FloatingPointError: numbers are not finite.
    """
    matrix = weight.detach().double().cpu()
    if not bool(matrix.isfinite().all()):
        raise FloatingPointError("weights that are not finite have no singular values")
    if moments is None:
        u, s, v = torch.linalg.svd(matrix, full_matrices=False)
        return Decomposition(u, s, v)
    values, vectors = torch.linalg.eigh(moments)
    roots = values.clamp_min(max(float(values[-1]) * _RIDGE, _tiny(values))).sqrt()
    u, s, v = torch.linalg.svd(matrix @ (vectors * roots) @ vectors.mT, full_matrices=False)
    return Decomposition(u, s, v @ (vectors / roots) @ vectors.mT)


def second_moments(
    model: Model, maps: Mapping[str, Tensor], batches: Sequence[Batch]
) -> dict[str, Float[Tensor, "i i"]]:
    """Return C = E[x x'] of the inputs x of some linear maps, without padding, in float64.

    A map that is not used on these texts is left out.

    Raises:
        FloatingPointError: an activation is not finite.
    """
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}

    def add(name: str, inputs: Tensor) -> None:
        x = inputs.double().cpu()
        sums[name] = sums.get(name, 0) + x.mT @ x
        counts[name] = counts.get(name, 0) + len(x)

    watch_inputs(model, maps, batches, add)
    for name, total in sums.items():
        if not bool(total.isfinite().all()):
            raise FloatingPointError(f"an input of {name} is not finite: the weights are damaged")
    return {name: total / counts[name] for name, total in sums.items() if counts[name]}


def _whole_maps(model: Model) -> dict[str, Float[Tensor, "o i"]]:
    """Return the matrices of the maps that are not factors already, by the maps' names."""
    return {
        name.removesuffix(".weight"): w
        for name, w in layer_matrices(model).items()
        if not name.endswith((".narrow.weight", ".widen.weight"))
    }


def _stack_of(name: str, sides: Mapping[str, object]) -> tuple[str, str]:
    """Return the stack of a map, and its name within the stack."""
    within = name.removeprefix("backbone.")
    for side in sides:
        if side and within.startswith(f"{side}."):
            return side, within.removeprefix(f"{side}.")
    return "", within


def _largest_rank(weight: Float[Tensor, "o i"]) -> int:
    """Return the largest rank whose factors have fewer weights than the map; 0: there is none."""
    return (weight.numel() - 1) // sum(weight.shape)


def _tiny(like: Tensor) -> float:
    return torch.finfo(like.dtype).tiny
