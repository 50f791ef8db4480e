"""How well the cosine of two occurrences of a word tells one sense from two, by layer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unmask.analysis.behavior.accuracy import GroupAccuracy
from unmask.analysis.hidden_states.senses.word_pairs import WordPair
from unmask.analysis.probes.features import WordFeatures

_DECIMALS = 6


@dataclass(frozen=True, kw_only=True)
class LayerSenses:
    """How well one layer tells senses apart."""

    layer: int
    """0: the input of the first layer."""
    threshold: float
    """Cosine from which the sense is said to be the same, chosen on the training pairs."""
    train_accuracy: float
    scored: GroupAccuracy
    """Of the scored pairs."""
    same_cosine: float
    """Mean cosine of the scored pairs of one sense."""
    different_cosine: float

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        facts = {
            name: round(value, _DECIMALS) if isinstance(value, float) else value
            for name, value in vars(self).items()
            if name != "scored"
        }
        return facts | {"accuracy": self.scored.to_json()}


@dataclass(frozen=True)
class PairRows:
    """Rows of the words of pairs among the features of all their sentences."""

    first: Int[np.ndarray, "n"]
    second: Int[np.ndarray, "n"]
    same: Bool[np.ndarray, "n"]


@dataclass(frozen=True)
class SplitPairs:
    """Rows of the pairs that choose thresholds, and of those that are scored."""

    train: PairRows
    scored: PairRows
    n_skipped: int
    """Pairs with a sentence that is longer than the model's positions."""


def sentences_of(pairs: Sequence[WordPair]) -> list[tuple[str, ...]]:
    """Return both sentences of each pair in turn."""
    return [sentence for pair in pairs for sentence in (pair.first, pair.second)]


def split_rows(
    features: WordFeatures, train: Sequence[WordPair], scored: Sequence[WordPair]
) -> SplitPairs:
    """Find the rows of pairs in the features of `sentences_of([*train, *scored])`.

    Raises:
        ValueError: no pair is left to choose a threshold, or to be scored.
    """
    places = zip(features.sentences.tolist(), features.words.tolist(), strict=True)
    row_of = {place: row for row, place in enumerate(places)}
    found: list[tuple[int, int, bool] | None] = []
    for i, pair in enumerate([*train, *scored]):
        first = row_of.get((2 * i, pair.first_index))
        second = row_of.get((2 * i + 1, pair.second_index))
        if first is None or second is None:
            found.append(None)
        else:
            found.append((first, second, pair.same))
    parts: list[PairRows] = []
    for some in (found[: len(train)], found[len(train) :]):
        kept = [one for one in some if one is not None]
        if len({same for _, _, same in kept}) < 2:
            raise ValueError(
                f"{len(kept):,} pairs fit the model's positions, and must have both labels, to "
                "choose a threshold and to be scored"
            )
        columns = [np.array(column) for column in zip(*kept, strict=True)]
        parts.append(PairRows(columns[0], columns[1], columns[2]))
    return SplitPairs(parts[0], parts[1], found.count(None))


def measure_senses(features: WordFeatures, pairs: SplitPairs) -> tuple[LayerSenses, ...]:
    """Choose a threshold of each layer on the training pairs, and score the others.

    Pilehvar and Camacho-Collados 2019, arXiv:1808.09121, section 4.1: thresholds of the cosine.
    """
    return tuple(
        _measure(layer, _cosines(x, pairs.train), _cosines(x, pairs.scored), pairs)
        for layer, x in enumerate(features.layers)
    )


def measure_other_words(
    features: WordFeatures, given: Sequence[WordPair], pairs: SplitPairs
) -> LayerSenses:
    """Score the baseline of the sentences: the cosine of the means of all their other words.

    Means are of the input of the first layer: static vectors, and positions if they are added.

    Args:
        features: of the sentences of all pairs.
        given: training pairs, then scored pairs.
        pairs: rows of those that fit.
    """
    x = features.layers[0].double()
    sums = torch.zeros(2 * len(given), x.shape[1], dtype=x.dtype)
    owner = torch.from_numpy(features.sentences)
    sums.index_add_(0, owner, x)
    around = sums[owner] - x  # without the word itself, for every row
    return _measure(0, _cosines(around, pairs.train), _cosines(around, pairs.scored), pairs)


def best_threshold(cosines: Float[np.ndarray, "n"], same: Bool[np.ndarray, "n"]) -> float:
    """Return the threshold of the highest accuracy, halfway between two cosines.

    Of several it is the middle one. The sense is said to be the same at the threshold or above.

    Example:
        >>> best_threshold(np.array([0.1, 0.3, 0.7, 0.9]), np.array([False, False, True, True]))
        0.5
    """
    order = np.argsort(cosines, kind="stable")
    values, truth = cosines[order], same[order]
    # k pairs below the threshold: right are the different ones below, the same ones above
    right = np.concatenate(([0], np.cumsum(~truth))) + truth.sum()
    right = right - np.concatenate(([0], np.cumsum(truth)))
    allowed = np.ones(len(values) + 1, bool)
    allowed[1:-1] = values[1:] > values[:-1]
    best = np.flatnonzero(allowed & (right == right[allowed].max()))
    k = int(best[len(best) // 2])
    if k in (0, len(values)):
        return float(values[0] if k == 0 else np.nextafter(values[-1], np.inf))
    return float((values[k - 1] + values[k]) / 2)


def _measure(
    layer: int,
    train: Float[np.ndarray, "n"],
    scored: Float[np.ndarray, "m"],
    pairs: SplitPairs,
) -> LayerSenses:
    threshold = best_threshold(train, pairs.train.same)
    same = pairs.scored.same
    return LayerSenses(
        layer=layer,
        threshold=threshold,
        train_accuracy=float(((train >= threshold) == pairs.train.same).mean()),
        scored=GroupAccuracy.of("all", ((scored >= threshold) == same).astype(np.float64)),
        same_cosine=float(scored[same].mean()),
        different_cosine=float(scored[~same].mean()),
    )


def _cosines(x: Float[Tensor, "r d"], rows: PairRows) -> Float[np.ndarray, "n"]:
    first, second = (x[torch.from_numpy(one)].double() for one in (rows.first, rows.second))
    return torch.nn.functional.cosine_similarity(first, second).numpy()
