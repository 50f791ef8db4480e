"""Word vectors in two dimensions: principal components, or t-SNE."""

from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from jaxtyping import Float

from unmask.config import check_number_fields

Points = Float[np.ndarray, "n 2"]


@runtime_checkable
class Projection(Protocol):
    """A way to lay vectors out in two dimensions."""

    def project(self, vectors: Float[np.ndarray, "n d"]) -> tuple[Points, str]:
        """Return points for the vectors, at length 1, and a caption."""
        ...


@dataclass(frozen=True)
class PrincipalComponents:
    """The two directions of greatest variance; keeps directions."""

    def project(self, vectors: Float[np.ndarray, "n d"]) -> tuple[Points, str]:
        """Return points for the vectors, at length 1, and a caption."""
        points, share = _principal_components(_centered(vectors))
        says = f"two principal components of vectors of length 1: {share:.0f} % of the variance"
        return points, says


@dataclass(frozen=True)
class TSNE:
    """t-SNE (van der Maaten and Hinton 2008), initialized with the principal components.

    Raises:
        ValueError: the seed is out of range.
    """

    seed: int = 0

    def __post_init__(self) -> None:
        check_number_fields(self)
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be from 0 to 2^32 - 1, got {self.seed}")

    def project(self, vectors: Float[np.ndarray, "n d"]) -> tuple[Points, str]:
        """Return points for the vectors, at length 1, and a caption."""
        from sklearn import manifold

        centered = _centered(vectors)
        points, _ = _principal_components(centered)
        made = cast("Any", manifold).TSNE(
            perplexity=min(30.0, (len(vectors) - 1) / 3),
            init=(points / max(float(points[:, 0].std()), 1e-300) * 1e-4).astype(np.float32),
            random_state=self.seed,
        )
        points = np.asarray(made.fit_transform(centered), dtype=np.float64)
        return points, "t-SNE of vectors of length 1: near words are neighbors, far ones say little"


def _centered(vectors: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    wide = vectors.astype(np.float64)
    wide /= np.maximum(np.abs(wide).max(1, keepdims=True), 1e-300)
    wide /= np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-300)
    return wide - wide.mean(0)


def _principal_components(vectors: Float[np.ndarray, "n d"]) -> tuple[Points, float]:
    """Return principal components, and the share of the variance in percent."""
    left, sizes, _ = np.linalg.svd(vectors, full_matrices=False)
    sizes = np.append(sizes, 0.0)[:2]  # vectors may have one number
    points = np.zeros((len(vectors), 2))
    found = left[:, :2] * sizes[: left[:, :2].shape[1]]
    found *= np.where(found[np.abs(found).argmax(0), np.arange(found.shape[1])] < 0, -1, 1)
    points[:, : found.shape[1]] = found
    whole = float((vectors**2).sum())
    share = 100 * float((sizes**2).sum()) / whole if whole else 0.0
    return points, share
