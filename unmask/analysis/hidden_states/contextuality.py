"""How contextual hidden states are: words in several sentences, layer by layer.

Ethayarajh 2019, arXiv:1909.00512, section 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.analysis.probes.features import WordFeatures

SAMPLED_WORDS = 1000
"""Words whose similarity to each other is the anisotropy."""
_DECIMALS = 6
_LEAST_VARIANCE = 1e-8
"""Of a direction that is whitened, as a share of the largest."""


@dataclass(frozen=True, kw_only=True)
class LayerContextuality:
    """How contextual one layer is."""

    layer: int
    """0: the input of the first layer."""
    anisotropy: float
    """Mean cosine of two words drawn from all sentences."""
    self_similarity: float
    """Mean cosine of two occurrences of one word, averaged over words."""
    intra_sentence: float
    """Mean cosine of a word and the mean of its sentence, averaged over sentences."""
    explained: float
    """Share of the first singular direction in the occurrences of a word (maximum explainable
    variance), averaged over words."""
    explained_of_random: float
    """The same of as many words drawn from all sentences."""

    @property
    def adjusted(self) -> tuple[float, float, float]:
        """The three measures less what any words have: section 3.4."""
        return (
            self.self_similarity - self.anisotropy,
            self.intra_sentence - self.anisotropy,
            self.explained - self.explained_of_random,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        measures = {name: x for name, x in vars(self).items() if name != "layer"}
        names = ("adjusted_self_similarity", "adjusted_intra_sentence", "adjusted_explained")
        measures |= dict(zip(names, self.adjusted, strict=True))
        return {"layer": self.layer} | {k: round(float(x), _DECIMALS) for k, x in measures.items()}


@dataclass(frozen=True, kw_only=True)
class ContextualityFindings:
    """How contextual the layers of a model are, whitened, and with random weights."""

    model: str
    data: str
    n_sentences: int
    n_words: int
    n_types: int
    """Words that occur in enough sentences."""
    networks: dict[str, tuple[LayerContextuality, ...]]
    """trained; whitened: the same states, whitened; random: the network with random weights."""

    def to_json(self) -> dict[str, Any]:
        """Return the findings as plain data."""
        facts = {name: value for name, value in vars(self).items() if name != "networks"}
        layers = {name: [one.to_json() for one in some] for name, some in self.networks.items()}
        return facts | {"networks": layers}


def occurrences(
    features: WordFeatures, sentences: Sequence[Sequence[str]], least: int
) -> list[Int[np.ndarray, "_"]]:
    """Return the rows of each word that is in `least` sentences or more, one row a sentence.

    Raises:
        ValueError: no word is.
    """
    rows: dict[str, dict[int, int]] = {}
    words = features.select(sentences)
    for row, (word, sentence) in enumerate(zip(words, features.sentences.tolist(), strict=True)):
        rows.setdefault(word, {}).setdefault(int(sentence), row)
    found = [np.array(list(some.values())) for some in rows.values() if len(some) >= least]
    if not found:
        raise ValueError(
            f"no word is in {least} of {len(sentences):,} sentences; read more, or set min_contexts"
        )
    return found


def measure_layers(
    features: WordFeatures, occurring: Sequence[Int[np.ndarray, "_"]], seed: int
) -> tuple[LayerContextuality, ...]:
    """Measure each layer.

    Args:
        features: hidden states of words.
        occurring: rows of each word; see `occurrences`.
        seed: random seed of the words that are drawn.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(len(features))[:SAMPLED_WORDS]
    random = [rng.permutation(len(features))[: len(rows)] for rows in occurring]
    by_sentence = [np.flatnonzero(features.sentences == i) for i in np.unique(features.sentences)]
    measured: list[LayerContextuality] = []
    for layer, x in enumerate(features.layers):
        x = x.double()
        measured.append(
            LayerContextuality(
                layer=layer,
                anisotropy=mean_cosine(x[drawn]),
                self_similarity=_mean([mean_cosine(x[rows]) for rows in occurring]),
                intra_sentence=_mean([intra_sentence_similarity(x[rows]) for rows in by_sentence]),
                explained=_mean([explained_variance(x[rows]) for rows in occurring]),
                explained_of_random=_mean([explained_variance(x[rows]) for rows in random]),
            )
        )
    return tuple(measured)


def mean_cosine(x: Float[Tensor, "n d"]) -> float:
    """Return the mean cosine of all pairs of rows (definition 1): of unit rows, from their sum."""
    n = len(x)
    total = float(_unit(x).sum(0).square().sum())
    return (total - n) / (n * (n - 1))


def intra_sentence_similarity(x: Float[Tensor, "n d"]) -> float:
    """Return the mean cosine of the words of a sentence and their mean (definition 2)."""
    return float((_unit(x) @ _unit(x.mean(0, keepdim=True))[0]).mean())


def explained_variance(x: Float[Tensor, "n d"]) -> float:
    """Return the first squared singular value by the sum of all (definition 3)."""
    squares = torch.linalg.svdvals(x).square()
    total = float(squares.sum())
    return float(squares[0]) / total if total else 1.0


def whitened(features: WordFeatures) -> WordFeatures:
    """Return features whose components have mean 0, variance 1 and no correlation, by layer.

    The control of anisotropy: in whitened layers two words have a mean cosine of about 0.
    Directions without variance are left out (Su et al. 2021, arXiv:2103.15316, section 2.2).
    """
    layers: list[Tensor] = []
    for x in features.layers:
        x = x.double() - x.double().mean(0)
        variance, directions = torch.linalg.eigh(x.mT @ x / len(x))
        kept = variance > _LEAST_VARIANCE * variance.max()
        layers.append(x @ directions[:, kept] / variance[kept].sqrt())
    return WordFeatures(tuple(layers), features.sentences, features.words, features.n_skipped)


def _unit(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    return torch.nn.functional.normalize(x, dim=-1)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
