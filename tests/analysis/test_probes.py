"""Probes recover what is planted, not what is random; code lengths equal their formula."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from unmask.analysis.probes.control_tasks import ControlTask
from unmask.analysis.probes.description_length import online_code, portion_ends
from unmask.analysis.probes.features import WordFeatures
from unmask.analysis.probes.layers import (
    ProbedWords,
    ProbingData,
    majority_accuracy,
    probe_layers,
    probe_mixes,
)
from unmask.analysis.probes.probe import (
    LabeledFeatures,
    ProbeNetwork,
    ProbeSettings,
    center_of_gravity,
    expected_layer,
    standardize,
    train_probe,
)

N, D, K = 400, 12, 4
FAST = ProbeSettings(learning_rate=0.05, max_epochs=150, patience=5)


def planted(seed: int, *, hidden: bool = False) -> LabeledFeatures:
    """Labels that are a linear function of features or, with `hidden`, the sign of a product."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(1, N, D, generator=rng)
    if hidden:
        return LabeledFeatures(x, (x[0, :, 0] * x[0, :, 1] > 0).long())
    direction = torch.randn(D, K, generator=torch.Generator().manual_seed(99))
    return LabeledFeatures(x, (x[0] @ direction).argmax(-1))


def words_of(types: list[str], vectors: Tensor, labels: list[str]) -> ProbedWords:
    n = len(types)
    return ProbedWords(
        WordFeatures((vectors,), np.zeros(n, np.int64), np.arange(n)), tuple(types), tuple(labels)
    )


def test_linear_probe_recovers_planted_labels_and_no_random_ones() -> None:
    train, dev, test = (planted(seed) for seed in range(3))
    assert train_probe(train, dev, K, FAST).accuracy(test) > 0.9
    order = torch.randperm(N, generator=torch.Generator().manual_seed(7))
    shuffled = [LabeledFeatures(part.features, part.labels[order]) for part in (train, dev)]
    most_frequent = float(torch.bincount(test.labels).max()) / N
    assert train_probe(shuffled[0], shuffled[1], K, FAST).accuracy(test) < most_frequent + 0.15


def test_only_a_hidden_layer_recovers_a_product() -> None:
    train, dev, test = (planted(seed, hidden=True) for seed in range(3))
    assert train_probe(train, dev, 2, FAST).accuracy(test) < 0.65
    deep = ProbeSettings(hidden_size=32, batch_size=50)
    assert train_probe(train, dev, 2, deep).accuracy(test) > 0.85


def test_result_depends_only_on_data_and_seed() -> None:
    train, dev, _ = (planted(seed) for seed in range(3))
    settings = ProbeSettings(hidden_size=8, batch_size=64, max_epochs=3)

    def run(seed: int) -> Tensor:
        torch.manual_seed(int(torch.randint(1000, ())))  # the state of others has no effect
        chosen = ProbeSettings(**(vars(settings) | {"seed": seed}))
        return train_probe(train, dev, K, chosen).log_probabilities(dev.features)

    before = torch.random.get_rng_state()
    train_probe(train, dev, K, settings)
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))


def test_best_state_on_dev_is_kept() -> None:
    train, dev, _ = (planted(seed) for seed in range(3))
    noisy = LabeledFeatures(train.features[:, :40], train.labels[:40])
    settings = ProbeSettings(hidden_size=64, max_epochs=80, patience=80)
    probe = train_probe(noisy, dev, K, settings)
    logs = probe.log_probabilities(dev.features)
    loss = -float(logs.gather(1, dev.labels[:, None]).mean())
    assert loss == pytest.approx(min(probe.dev_losses), rel=1e-5)  # sums in another order
    assert probe.best_epoch == 1 + int(np.argmin(probe.dev_losses)) < len(probe.dev_losses)


def test_mix_is_the_weighted_sum_in_double_precision() -> None:
    network = ProbeNetwork(3, D, K, None).double()
    x = torch.randn(3, 5, D, dtype=torch.float64)
    with torch.no_grad():
        network.mix.copy_(torch.tensor([0.3, -1.0, 2.0]))
        network.gamma.fill_(1.7)
    shares = np.exp([0.3, -1.0, 2.0]) / np.exp([0.3, -1.0, 2.0]).sum()
    shares = np.array([float(np.float32(s)) for s in shares])
    mixed = 1.7 * sum(w * part for w, part in zip(shares, x.numpy(), strict=True))
    weight, bias = (p.detach().numpy() for p in network.classifier[0].parameters())
    np.testing.assert_allclose(network(x).detach().numpy(), mixed @ weight.T + bias, rtol=1e-5)


def test_mix_finds_the_layer_of_the_label() -> None:
    parts = []
    for seed in range(3):
        found = planted(seed)
        noise = torch.randn(2, N, D, generator=torch.Generator().manual_seed(seed + 50))
        layers = (noise[0], noise[1], found.features[0])
        rows = WordFeatures(layers, np.zeros(N, np.int64), np.arange(N))
        labels = tuple(str(label) for label in found.labels.tolist())
        parts.append(ProbedWords(rows, labels, labels))
    scores = probe_mixes(ProbingData(*parts), FAST)
    assert scores.layer_weights[2] == max(scores.layer_weights)
    assert scores.center_of_gravity > 1.2
    assert scores.cumulative[2] > 0.85 > 0.5 > scores.cumulative[1]
    assert scores.expected_layer is not None
    assert scores.expected_layer > 1.7


def test_centers_of_layers_equal_their_formulas() -> None:
    assert center_of_gravity(torch.tensor([0.5, 0.25, 0.25])) == 0.75
    assert expected_layer([0.5, 0.7, 0.9]) == pytest.approx((1 * 0.2 + 2 * 0.2) / 0.4)
    with pytest.raises(ValueError, match="add nothing"):
        expected_layer([0.5, 0.7, 0.5])


def test_control_labels_are_of_types_with_the_distribution_of_the_task() -> None:
    task = ControlTask.of_labels(np.array([0] * 7 + [1] * 2 + [2]), 3, seed=5)
    types = [f"word{i}" for i in range(2000)]
    labels = task.labels(types)
    np.testing.assert_allclose(np.bincount(labels) / 2000, [0.7, 0.2, 0.1], atol=0.03)
    assert np.array_equal(labels[::-1], task.labels(types[::-1]))
    assert not np.array_equal(labels, ControlTask(task.distribution, seed=6).labels(types))


@pytest.mark.thorough
def test_features_that_only_identify_words_have_no_selectivity() -> None:
    rng = np.random.default_rng(0)
    vocabulary = [f"w{i}" for i in range(60)]
    vectors = torch.randn(60, 80, generator=torch.Generator().manual_seed(1))
    of_type = rng.integers(4, size=60)
    parts = []
    for _ in range(3):
        ids = rng.integers(60, size=N)
        parts.append(
            words_of(
                [vocabulary[i] for i in ids],
                vectors[torch.from_numpy(ids)],
                [f"L{of_type[i]}" for i in ids],
            )
        )
    data = ProbingData(*parts)
    scores = probe_layers(data, FAST)[0]
    assert scores.accuracy > 0.97
    assert abs(scores.selectivity) < 0.03
    assert majority_accuracy(data) > 0.97


class KnownProbabilities:
    """Gives the right label, which is the first feature, a probability that grows with training."""

    def __init__(self, n: int) -> None:
        self.right = n / (n + 4.0)

    def log_probabilities(self, features: Tensor) -> Tensor:
        labels = features[0, :, 0].long()
        wrong = (1 - self.right) / (K - 1)
        p = torch.full((len(labels), K), wrong, dtype=torch.float64)
        p[torch.arange(len(labels)), labels] = self.right
        return p.log()


def test_online_code_equals_its_formula() -> None:
    labels = torch.arange(2000) % K
    code = online_code(
        labels[None, :, None].float(), labels, K, lambda x, y: KnownProbabilities(len(y))
    )
    ends = [2, 4, 8, 16, 32, 64, 125, 250, 500, 1000, 2000]
    assert list(code.portion_ends) == ends
    wanted = 2 * math.log2(K)
    for start, end in pairwise(ends):
        wanted += (end - start) * -math.log2(start / (start + 4))
    assert code.bits == pytest.approx(wanted, rel=1e-12)
    assert code.uniform_bits == 2000 * math.log2(K)
    assert code.compression == pytest.approx(2000 * math.log2(K) / wanted, rel=1e-12)


def test_portions_of_few_examples_are_merged() -> None:
    assert portion_ends(12) == [1, 2, 3, 6, 12]
    with pytest.raises(ValueError, match="rise"):
        portion_ends(10, (0.5, 0.2, 1.0))


@pytest.mark.thorough
def test_planted_labels_have_shorter_codes_than_random_ones() -> None:
    train, dev, _ = (planted(seed) for seed in range(3))

    def code(labels: Tensor, dev_labels: Tensor) -> float:
        held_out = LabeledFeatures(dev.features, dev_labels)
        return online_code(
            train.features,
            labels,
            K,
            lambda x, y: train_probe(LabeledFeatures(x, y), held_out, K, FAST),
        ).compression

    assert code(train.labels, dev.labels) > 1.8
    rng = torch.Generator().manual_seed(4)
    random = [torch.randint(K, (N,), generator=rng) for _ in range(2)]
    assert 0.8 < code(random[0], random[1]) < 1.02


def test_standardized_by_the_first_part() -> None:
    x = torch.randn(2, 50, 3, dtype=torch.float64) * 5 + 2
    x[:, :, 2] = 7.0
    first, second = standardize([x, x[:, :10]])
    torch.testing.assert_close(first.mean(1), torch.zeros(2, 3, dtype=torch.float64))
    torch.testing.assert_close(
        first.std(1, correction=0)[:, :2], torch.ones(2, 2, dtype=torch.float64)
    )
    assert torch.equal(second, first[:, :10])


def test_bad_inputs_are_refused() -> None:
    x = torch.zeros(1, 3, 2)
    with pytest.raises(ValueError, match="each word needs a label"):
        LabeledFeatures(x[:, :0], torch.zeros(0, dtype=torch.long))
    with pytest.raises(ValueError, match="patience must be at least 1, got 0"):
        ProbeSettings(patience=0)
    with pytest.raises(ValueError, match="two labels, got 3 and 1"):
        online_code(x, torch.zeros(3, dtype=torch.long), 1, lambda a, b: KnownProbabilities(1))
    one = words_of(["a", "b"], torch.zeros(2, 2), ["x", "x"])
    with pytest.raises(ValueError, match="at least two labels, got x"):
        probe_layers(ProbingData(one, one, one))
