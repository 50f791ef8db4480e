"""`embed`, `neighbors`, `analogy`: what is near in a space of texts or words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from unmask.config import from_dict
from unmask.evaluation.sentence_embeddings import EmbeddingPooling
from unmask.inference.vectors.load_word_vectors import is_word_vectors
from unmask.inference.vectors.sentence_similarity import sentence_encoder
from unmask.web.worker.open_models import open_models
from unmask.word_vectors.keyed_vectors import AnalogyMethod, KeyedVectors, Neighbor
from unmask.word_vectors.projection import TSNE, PrincipalComponents, Projection

MAX_TEXTS = 1000
_PROJECTIONS: Mapping[str, Projection] = {"pca": PrincipalComponents(), "tsne": TSNE()}


@dataclass(frozen=True, kw_only=True)
class _EmbedArguments:
    model: str
    texts: Sequence[str]
    pooling: EmbeddingPooling | None = None
    layer: int | None = None
    n: int = 5
    """Neighbors of each text."""
    projection: Literal["pca", "tsne"] = "pca"

    def __post_init__(self) -> None:
        if not 1 <= len(self.texts) <= MAX_TEXTS:
            raise ValueError(f"texts must be 1 to {MAX_TEXTS}, got {len(self.texts):,}")
        if self.n < 1:
            raise ValueError(f"n must be at least 1, got {self.n}")


@dataclass(frozen=True, kw_only=True)
class _NeighborsArguments:
    model: str
    word: str
    n: int = 10
    projection: Literal["pca", "tsne"] = "pca"


@dataclass(frozen=True, kw_only=True)
class _AnalogyArguments:
    model: str
    a: str
    b: str
    c: str
    n: int = 10
    method: AnalogyMethod = "add"


def embed(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nearest of the texts to each (by index, with the cosine), and a map of all."""
    given = from_dict(_EmbedArguments, arguments)
    opened, of_words = open_models(), is_word_vectors(given.model)
    model = opened.vectors(given.model) if of_words else opened.pipeline(given.model)
    encode = sentence_encoder(model, pooling=given.pooling, layer=given.layer)
    vectors = np.asarray(encode(list(given.texts)), np.float64)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = vectors / np.maximum(lengths, 1e-300)
    cosines = units @ units.T
    np.fill_diagonal(cosines, -np.inf)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, : min(given.n, len(units) - 1)]
    nearest = [
        [{"index": j, "score": round(float(cosines[i, j]), 6)} for j in row]
        for i, row in enumerate(order.tolist())
    ]
    without = np.flatnonzero(lengths[:, 0] == 0).tolist()
    return {"neighbors": nearest, "without_vector": without} | _map(vectors, given.projection)


def neighbors(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the words nearest to a word, and a map of it and them."""
    given = from_dict(_NeighborsArguments, arguments)
    space = open_models().vectors(given.model)
    (found,) = space.neighbors([given.word], given.n)
    words = [given.word, *(one.word for one in found)]
    vectors = np.stack([space.vector(word) for word in words])
    return {"neighbors": _records(found), "words": words} | _map(vectors, given.projection)


def analogy(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is to `c` as `b` is to `a`: man, king, woman gives queen."""
    given = from_dict(_AnalogyArguments, arguments)
    space: KeyedVectors = open_models().vectors(given.model)
    found = space.analogy(given.a, given.b, given.c, given.n, given.method)
    return {"neighbors": _records(found)}


def _records(found: Sequence[Neighbor]) -> list[dict[str, Any]]:
    return [{"word": one.word, "score": round(float(one.score), 6)} for one in found]


def _map(vectors: Float[np.ndarray, "n d"], projection: str) -> dict[str, Any]:
    if projection == "tsne" and len(vectors) < 4:
        raise ValueError(f"projection tsne needs at least 4 points, got {len(vectors)}")
    points, caption = _PROJECTIONS[projection].project(vectors)
    return {"points": np.round(points, 5).tolist(), "caption": caption}
