"""Similarity of the layers of two networks on the same words, and how far their weights moved."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unmask.analysis.probes.features import WordFeatures
from unmask.heads.model import Model

EXPLAINED_VARIANCE = 0.99
"""Of the singular directions that SVCCA keeps (Raghu et al. 2017, section 2.1)."""
_DECIMALS = 6
_LAYER = re.compile(r"^(?:backbone\.)?((?:[a-z_]+\.)?)layers\.(\d+)\.")


@dataclass(frozen=True)
class LayerSimilarity:
    """How similar each layer of a network is to each of another."""

    cka: Float[np.ndarray, "l k"]
    """Linear centered kernel alignment, from 0 to 1."""
    svcca: Float[np.ndarray, "l k"]
    """Mean canonical correlation of the directions that hold 99 % of the variance."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {name: np.round(x, _DECIMALS).tolist() for name, x in vars(self).items()}


@dataclass(frozen=True)
class WeightChange:
    """How far the weights of a part of a network are from those of another."""

    part: str
    """embeddings, or layer and its number, from 1."""
    change: float
    """||W - W_other|| / ||W_other||, of all weights of the part together."""


@dataclass(frozen=True, kw_only=True)
class SimilarityFindings:
    """The layers of a model beside those of another, and of random weights."""

    model: str
    other: str
    data: str
    n_sentences: int
    n_words: int
    to_other: LayerSimilarity
    to_random: LayerSimilarity | None
    """Beside random weights of the other; None: not computed."""
    changes: tuple[WeightChange, ...]
    """Empty: the architectures have no weights in common."""

    def to_json(self) -> dict[str, Any]:
        """Return the findings as plain data."""
        facts = {
            name: value
            for name, value in vars(self).items()
            if name not in ("to_other", "to_random", "changes")
        }
        return facts | {
            "to_other": self.to_other.to_json(),
            "to_random": None if self.to_random is None else self.to_random.to_json(),
            "weight_changes": {one.part: round(one.change, _DECIMALS) for one in self.changes},
        }


def linear_cka(x: Float[Tensor, "n d"], y: Float[Tensor, "n e"]) -> float:
    """Return the linear centered kernel alignment of two layers on the same words.

    ||Y'X||^2 / (||X'X|| ||Y'Y||) in Frobenius norms, of centered columns (Kornblith et al. 2019,
    arXiv:1905.00414, equation 5 and section 3). It does not change with rotations and isotropic
    scaling; of constant features it is 0.
    """
    x, y = _centered(x), _centered(y)
    norm = float((x.mT @ x).norm() * (y.mT @ y).norm())
    return float((y.mT @ x).square().sum()) / norm if norm else 0.0


def svcca(x: Float[Tensor, "n d"], y: Float[Tensor, "n e"]) -> float:
    """Return the mean canonical correlation of the principal directions of two layers.

    Raghu et al. 2017, arXiv:1706.05806, section 2.1: singular directions that hold 99 % of the
    variance of each, then canonical correlations of these; their mean, over as many as the smaller
    has.
    """
    a, b = _principal(x), _principal(y)
    if not a.shape[1] or not b.shape[1]:
        return 0.0
    return float(torch.linalg.svdvals(a.mT @ b).clamp(max=1).mean())


def layer_similarity(
    own: Sequence[Float[Tensor, "n _"]], other: Sequence[Float[Tensor, "n _"]]
) -> LayerSimilarity:
    """Compare each layer of a network with each of another on the same words."""
    cka = [[linear_cka(x, y) for y in other] for x in own]
    correlations = [[svcca(x, y) for y in other] for x in own]
    return LayerSimilarity(np.array(cka), np.array(correlations))


def common_words(
    own: WordFeatures, other: WordFeatures
) -> tuple[list[Float[Tensor, "n _"]], list[Float[Tensor, "n _"]]]:
    """Return the layers of two networks for the words that both read, in the same order."""
    places = [
        list(zip(one.sentences.tolist(), one.words.tolist(), strict=True)) for one in (own, other)
    ]
    both = set(places[0]) & set(places[1])
    rows = [torch.tensor([i for i, at in enumerate(some) if at in both]) for some in places]
    return [x[rows[0]] for x in own.layers], [x[rows[1]] for x in other.layers]


def weight_changes(model: Model, other: Model) -> list[WeightChange]:
    """Return how far the weights of each layer are from those of the same layer of another.

    Weights of one name and shape are compared; heads are not.
    """
    own, theirs = model.own_weights(), other.own_weights()
    sums: dict[str, tuple[float, float]] = {}
    for name, x in own.items():
        y = theirs.get(name)
        if not name.startswith("backbone.") or y is None or y.shape != x.shape:
            continue
        part = _part_of(name)
        moved, size = sums.get(part, (0.0, 0.0))
        x, y = x.double().cpu(), y.double().cpu()
        sums[part] = moved + float((x - y).square().sum()), size + float(y.square().sum())
    return [WeightChange(part, (a / b) ** 0.5 if b else 0.0) for part, (a, b) in sums.items()]


def _part_of(name: str) -> str:
    if (found := _LAYER.match(name)) is None:
        return "embeddings and norms"
    return f"{found[1].replace('.', ' ')}layer {int(found[2]) + 1}"


def _centered(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    x = x.double()
    return x - x.mean(0)


def _principal(x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
    """Return an orthonormal basis of the directions that hold most of the variance."""
    u, s, _ = torch.linalg.svd(_centered(x), full_matrices=False)
    shares = s.square().cumsum(0) / s.square().sum().clamp(min=torch.finfo(s.dtype).tiny)
    n = int((shares < EXPLAINED_VARIANCE).sum()) + 1
    return u[:, :n][:, s[:n] > 0]
