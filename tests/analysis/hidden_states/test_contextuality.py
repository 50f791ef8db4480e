"""Measures of contextuality equal their definitions, pair by pair; whitening removes anisotropy."""

from itertools import combinations

import numpy as np
import pytest
import torch

from unmask.analysis.hidden_states.contextuality import (
    explained_variance,
    intra_sentence_similarity,
    mean_cosine,
    measure_layers,
    occurrences,
    whitened,
)
from unmask.analysis.probes.features import WordFeatures


def drawn(n: int, d: int, shift: float = 1.0) -> torch.Tensor:
    rng = torch.Generator().manual_seed(n)
    return torch.randn(n, d, generator=rng, dtype=torch.float64) + shift


def test_definitions_pair_by_pair() -> None:
    x = drawn(9, 5)
    cosine = torch.nn.functional.cosine_similarity
    pairs = [float(cosine(a, b, dim=0)) for a, b in combinations(x, 2)]
    assert mean_cosine(x) == pytest.approx(np.mean(pairs), abs=1e-12)
    to_mean = [float(cosine(a, x.mean(0), dim=0)) for a in x]
    assert intra_sentence_similarity(x) == pytest.approx(np.mean(to_mean), abs=1e-12)
    values = torch.linalg.eigvalsh(x @ x.mT)
    assert explained_variance(x) == pytest.approx(float(values[-1] / values.sum()), abs=1e-12)
    assert explained_variance(x[:1].expand(4, -1)) == pytest.approx(1)


def features(layers: list[torch.Tensor], n_words: int) -> WordFeatures:
    places = np.arange(len(layers[0]))
    return WordFeatures(tuple(layers), places // n_words, places % n_words)


def test_occurrences_are_of_different_sentences() -> None:
    sentences = [("a", "b", "a"), ("b", "a", "c"), ("a", "c", "c")]
    found = occurrences(features([drawn(9, 2)], 3), sentences, 2)
    assert [rows.tolist() for rows in found] == [[0, 4, 6], [1, 3], [5, 7]]
    with pytest.raises(ValueError, match="no word is in 4 of 3 sentences"):
        occurrences(features([drawn(9, 2)], 3), sentences, 4)


def test_whitening_leaves_no_correlation_and_no_anisotropy() -> None:
    x = drawn(4000, 6, shift=3.0) @ drawn(6, 6)
    x = torch.cat((x, x[:, :1]), 1)  # a direction without variance
    white = whitened(features([x], 4)).layers[0]
    assert white.shape == (4000, 6)
    covariance = white.mT @ white / 4000
    torch.testing.assert_close(covariance, torch.eye(6, dtype=torch.float64), atol=1e-6, rtol=0)
    assert mean_cosine(x) > 0.3
    assert abs(mean_cosine(white)) < 1e-2


def test_static_vectors_do_not_depend_on_the_sentence_and_random_ones_do() -> None:
    table, words = drawn(10, 8, shift=0.0), torch.arange(400) % 10
    static, contextual = table[words], drawn(400, 8, shift=0.0)
    some = features([static, contextual], 10)
    sentences = [tuple(str(i) for i in range(10))] * 40
    own = occurrences(some, sentences, 5)
    assert len(own) == 10
    first, second = measure_layers(some, own, seed=0)
    assert first.self_similarity == pytest.approx(1)
    assert first.explained == pytest.approx(1)
    assert second.self_similarity == pytest.approx(0, abs=0.05)
    assert second.adjusted[0] == pytest.approx(0, abs=0.05)
    assert second.adjusted[2] == pytest.approx(0, abs=0.05)
