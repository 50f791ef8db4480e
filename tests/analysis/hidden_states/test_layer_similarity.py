"""CKA equals its formula with Gram matrices, SVCCA that of scikit-learn's CCA in a small case."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import make

from unmask.analysis.hidden_states.similarity import (
    common_words,
    linear_cka,
    svcca,
    weight_changes,
)
from unmask.analysis.probes.features import WordFeatures


def drawn(n: int, *widths: int) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    return [torch.randn(n, d, generator=rng, dtype=torch.float64) for d in widths]


def test_cka_equals_the_formula_with_gram_matrices() -> None:
    x, y = drawn(40, 7, 12)
    x = x + 3
    y[:, :7] += 2 * x
    n = len(x)
    h = torch.eye(n, dtype=torch.float64) - 1 / n

    def hsic(k: torch.Tensor, m: torch.Tensor) -> torch.Tensor:  # equation 3 of the paper
        return torch.trace(k @ h @ m @ h) / (n - 1) ** 2

    k, m = x @ x.mT, y @ y.mT
    wanted = hsic(k, m) / (hsic(k, k) * hsic(m, m)).sqrt()  # equation 4
    assert linear_cka(x, y) == pytest.approx(float(wanted), abs=1e-12)
    assert 0.1 < linear_cka(x, y) < 0.99


def test_similarity_ignores_rotations_and_scales() -> None:
    x, _ = drawn(60, 8, 8)
    rotation = torch.linalg.qr(drawn(8, 8)[0]).Q
    for measure in (linear_cka, svcca):
        assert measure(x, 5 * x @ rotation + 2) == pytest.approx(1, abs=1e-9)
        assert measure(x, torch.ones_like(x)) == 0


def test_cca_ignores_every_linear_map_and_cka_does_not() -> None:
    x, _ = drawn(60, 4, 4)
    y = x @ torch.diag(torch.tensor([1.0, 1.0, 0.8, 0.7], dtype=torch.float64))
    assert svcca(x, y) == pytest.approx(1, abs=1e-9)
    assert linear_cka(x, y) < 0.999


def test_canonical_correlations_by_eigenvalues() -> None:
    x, y = drawn(80, 3, 3)
    y = y + x
    x, y = x - x.mean(0), y - y.mean(0)
    a, b, c = x.mT @ x, y.mT @ y, x.mT @ y
    squared = torch.linalg.eigvals(torch.linalg.solve(a, c) @ torch.linalg.solve(b, c.mT)).real
    assert svcca(x, y) == pytest.approx(float(squared.sqrt().mean()), abs=1e-9)


def test_few_words_of_a_wide_layer_are_alike_by_chance_in_cca_alone() -> None:
    x, y = drawn(30, 40, 40)
    assert svcca(x, y) > 0.8
    x, y = drawn(5000, 4, 4)
    assert linear_cka(x, y) < 0.01
    assert svcca(x, y) < 0.05


def test_words_that_both_read() -> None:
    def features(rows: list[tuple[int, int]], seed: int) -> WordFeatures:
        layer = torch.tensor([[10.0 * i + k + seed] for i, k in rows])
        places = np.array(rows)
        return WordFeatures((layer,), places[:, 0], places[:, 1])

    (own,), (other,) = common_words(
        features([(0, 0), (1, 0), (1, 1)], 0), features([(1, 0), (1, 1), (2, 0)], 100)
    )
    assert own.flatten().tolist() == [10, 11]
    assert other.flatten().tolist() == [110, 111]


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_change_of_weights(family: str, tmp_path: Path) -> None:
    _, loaded = make(family, tmp_path)
    model, moved = loaded.model, copy.deepcopy(loaded.model)
    stack = moved.backbone.stacks[-1]
    with torch.no_grad():
        for weight in stack.layers[1].parameters():
            weight.mul_(1.25)
    found = {one.part: one.change for one in weight_changes(moved, model)}
    name = "decoder layer 2" if family == "t5" else "layer 2"
    assert found.pop(name) == pytest.approx(0.25, abs=1e-6)
    assert set(found.values()) == {0}
    assert len(found) == (6 if family == "t5" else 3)
