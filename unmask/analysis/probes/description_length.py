"""Minimum description length of labels given features: Voita and Titov 2020, arXiv:2003.12298."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from jaxtyping import Float, Int
from torch import Tensor

from unmask.analysis.probes.spans.pooling import RowFeatures

PORTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""Ends of the portions that are sent one after the other, as fractions."""


class LabelModel(Protocol):
    """What gives labels a probability from features."""

    def log_probabilities(self, features: RowFeatures) -> Float[Tensor, "n k"]:
        """Return the natural logarithms of the probabilities of all labels."""
        ...


Fit = Callable[[RowFeatures, Int[Tensor, "n"]], LabelModel]
"""Trains a probe on features and labels."""


@dataclass(frozen=True, kw_only=True)
class DescriptionLength:
    """How many bits send the labels to one who has the features."""

    portion_ends: tuple[int, ...]
    """Number of examples up to the end of each portion."""
    portion_bits: tuple[float, ...]
    """Bits of each portion; the first is sent with uniform probabilities."""
    n_labels: int

    @property
    def bits(self) -> float:
        """Online code length: the sum over portions."""
        return math.fsum(self.portion_bits)

    @property
    def uniform_bits(self) -> float:
        """Code length n log2 K of uniform probabilities."""
        return self.portion_ends[-1] * math.log2(self.n_labels)

    @property
    def compression(self) -> float:
        """Uniform code length / online code length."""
        return self.uniform_bits / self.bits


def online_code(
    features: RowFeatures,
    labels: Int[Tensor, "n"],
    n_labels: int,
    fit: Fit,
    portions: Sequence[float] = PORTIONS,
) -> DescriptionLength:
    """Compute the online (prequential) code length of labels (section 2.2.2).

    L = t_1 log2 K - Σ_i log2 p_θi(y of t_i+1 .. t_(i+1) | x), where θ_i is trained on the first t_i
    examples. The order of examples is the order of sending: shuffle sentences before.

    Args:
        features: of one layer (l = 1), or of all.
        labels: from 0.
        n_labels: K, at least 2.
        fit: trains the probe.
        portions: ends of portions as rising fractions, the last one 1. Those that round to the same
            number of examples are one.

    Raises:
        ValueError: there is no example, less than two labels, or the portions do not rise to 1.
    """
    n = len(labels)
    if n < 1 or n_labels < 2:
        raise ValueError(
            f"a description length needs an example and two labels, got {n} and {n_labels}"
        )
    ends = portion_ends(n, portions)
    bits = [ends[0] * math.log2(n_labels)]
    for start, end in itertools.pairwise(ends):
        probe = fit(features[:, :start], labels[:start])
        logs = probe.log_probabilities(features[:, start:end]).double()
        sent = logs.gather(1, labels[start:end, None])
        bits.append(-float(sent.sum()) / math.log(2))
    return DescriptionLength(portion_ends=tuple(ends), portion_bits=tuple(bits), n_labels=n_labels)


def portion_ends(n: int, portions: Sequence[float] = PORTIONS) -> list[int]:
    """Return the number of examples up to the end of each portion, at least one.

    Raises:
        ValueError: portions do not rise to 1.

    Example:
        >>> portion_ends(100, (0.001, 0.002, 0.5, 1.0))
        [1, 50, 100]
    """
    rising = all(a < b for a, b in itertools.pairwise(portions))
    if not rising or portions[0] <= 0 or portions[-1] != 1:
        raise ValueError(f"portions must rise from above 0 to 1, got {tuple(portions)}")
    return sorted({max(1, round(n * fraction)) for fraction in portions})
