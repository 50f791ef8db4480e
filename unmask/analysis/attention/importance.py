"""What a model loses without some of its heads: Michel et al. 2019, arXiv:1905.10650."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.compression.structure.importance import masked_loss
from unmask.compression.structure.widths import head_scores, heads_of_projections
from unmask.heads.model import Model

N_RANDOM_ORDERS = 3
"""Orders drawn at random, whose losses are averaged."""
_METHOD = "importance"
_DECIMALS = 6


@dataclass(frozen=True, kw_only=True)
class LayerHeads:
    """The heads of one attention sublayer; those that share keys and values are one."""

    name: str
    """Of the sublayer: layer 1, encoder 1, decoder 1, or decoder 1, cross."""
    importance: Float[np.ndarray, "n"]
    """E |dL/dm| of a mask m of the head's output, by the norm of the layer's (equation 2, section
    2.3): that by which `heads` of `unmask compress` chooses."""
    increases: Float[np.ndarray, "n"]
    """Of the loss without this head alone, in nats (section 3.2)."""
    without_others: Float[np.ndarray, "n"]
    """Of the loss with this head as the only one of its layer, in nats (section 3.3)."""


@dataclass(frozen=True, kw_only=True)
class ImportanceFindings:
    """The heads of a model by what it loses without them."""

    model: str
    data: str
    n_texts: int
    loss: float
    """Of the whole model, in nats of a target."""
    layers: tuple[LayerHeads, ...]
    fractions: tuple[float, ...]
    """Of all heads that are removed."""
    curves: Mapping[str, tuple[float, ...]]
    """Losses at the fractions, by the order of removal: importance, magnitude (of W_O W_V), random
    (the mean of some orders)."""
    correlation: float
    """Of importance with the increases of the loss, over all heads (Spearman's)."""

    @property
    def n_heads(self) -> int:
        """Heads of all layers."""
        return sum(len(one.importance) for one in self.layers)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        names = ("importance", "increases", "without_others")
        return {
            "model": self.model,
            "data": self.data,
            "n_texts": self.n_texts,
            "loss": round(self.loss, _DECIMALS),
            "correlation": round(self.correlation, _DECIMALS),
            "layers": [
                {"name": one.name}
                | {name: np.round(getattr(one, name), _DECIMALS).tolist() for name in names}
                for one in self.layers
            ],
            "fractions": list(self.fractions),
            "curves": {k: [round(x, _DECIMALS) for x in v] for k, v in self.curves.items()},
        }


def measure_heads(
    model: Model,
    batches: Sequence[Batch],
    *,
    fractions: Sequence[float],
    seed: int = 0,
    show: Callable[[str], None] = lambda _: None,
) -> tuple[float, list[LayerHeads], dict[str, tuple[float, ...]]]:
    """Measure the loss without heads.

    Args:
        model: with a head for the targets of the batches.
        batches: texts with targets.
        fractions: of all heads that are removed, in each of three orders.
        seed: of random orders.
        show: progress.

    Returns:
        The loss of the whole model in nats, its layers, and losses at the fractions by the order.

    Raises:
        ValueError: the network has no heads that can be removed, or the texts have no targets.
    """
    modules = heads_of_projections(model, _METHOD)
    scores = {
        "importance": head_scores(model, batches, _METHOD),
        "magnitude": head_scores(model, (), _METHOD),
    }
    loss = masked_loss(model, modules, {}, batches)
    show(f"importance: each of {sum(n for _, n in modules.values())} heads removed by itself")
    layers = [
        _measure_layer(model, modules, batches, name, scores["importance"][name], loss)
        for name in modules
    ]
    show("importance: heads removed in three orders")
    orders = {name: [_order(values)] for name, values in scores.items()}
    random = np.random.default_rng(seed)
    orders["random"] = [
        [one[int(i)] for i in random.permutation(len(one))]
        for one in orders["importance"] * N_RANDOM_ORDERS
    ]
    curves = {
        name: tuple(
            float(np.mean([_loss_without(model, modules, batches, one, f) for one in some]))
            for f in fractions
        )
        for name, some in orders.items()
    }
    return loss, layers, curves


def _measure_layer(
    model: Model,
    modules: Mapping[str, tuple[nn.Module, int]],
    batches: Sequence[Batch],
    name: str,
    importance: Float[Tensor, "n"],
    loss: float,
) -> LayerHeads:
    n = modules[name][1]
    only = torch.eye(n)
    without = [masked_loss(model, modules, {name: 1 - row}, batches) - loss for row in only]
    alone = [masked_loss(model, modules, {name: row}, batches) - loss for row in only]
    return LayerHeads(
        name=_title(name),
        importance=importance.numpy(),
        increases=np.array(without),
        without_others=np.array(alone),
    )


def _title(name: str) -> str:
    """Return what people call a sublayer; its layers count from 1."""
    side, _, rest = name.removeprefix("backbone.").rpartition("layers.")
    i, _, part = rest.partition(".")
    title = f"{side.rstrip('.') or 'layer'} {int(i) + 1}"
    return f"{title}, cross" if part == "cross" else title


def _order(scores: Mapping[str, Float[Tensor, "n"]]) -> list[tuple[str, int]]:
    """Return all heads, the one with the lowest score first."""
    heads = [(name, i) for name, values in scores.items() for i in range(len(values))]
    return sorted(heads, key=lambda head: float(scores[head[0]][head[1]]))


def _loss_without(
    model: Model,
    modules: Mapping[str, tuple[nn.Module, int]],
    batches: Sequence[Batch],
    order: Sequence[tuple[str, int]],
    fraction: float,
) -> float:
    """Return the loss without the first heads of an order; a layer may be left with none."""
    masks = {name: torch.ones(n) for name, (_, n) in modules.items()}
    for name, i in order[: round(fraction * len(order))]:
        masks[name][i] = 0
    return masked_loss(model, modules, masks, batches)
