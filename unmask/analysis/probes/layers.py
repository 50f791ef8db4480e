"""Probes of every layer of a network, each beside its control task and its code length."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.analysis.probes.control_tasks import ControlTask, selectivity
from unmask.analysis.probes.description_length import DescriptionLength, online_code
from unmask.analysis.probes.features import WordFeatures
from unmask.analysis.probes.probe import (
    LabeledFeatures,
    ProbeSettings,
    TrainedProbe,
    center_of_gravity,
    expected_layer,
    standardize,
    train_probe,
)
from unmask.analysis.probes.spans.pooling import RowFeatures


@runtime_checkable
class ProbedRows(Protocol):
    """What probes label, with features and labels: words, pairs of words, or spans."""

    @property
    def features(self) -> WordFeatures:
        """Hidden states."""
        ...

    @property
    def word_types(self) -> tuple[str, ...]:
        """Of each row, what a control task labels."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each row."""
        ...

    def inputs(self, states: Float[Tensor, "l n d"]) -> RowFeatures:
        """Return what a probe reads, of states of all rows of `features`."""
        ...


@dataclass(frozen=True)
class ProbedWords:
    """Words of some sentences with features and labels."""

    features: WordFeatures
    word_types: tuple[str, ...]
    """The word of each row: what a control task labels."""
    labels: tuple[str, ...]
    """The label of each row."""

    @classmethod
    def of_sentences(
        cls,
        features: WordFeatures,
        sentences: Sequence[Sequence[str]],
        labels: Sequence[Sequence[str]],
    ) -> "ProbedWords":
        """Join features with the words and labels of the same sentences."""
        return cls(features, tuple(features.select(sentences)), tuple(features.select(labels)))

    def inputs(self, states: Float[Tensor, "l n d"]) -> RowFeatures:
        """Return the states as they are."""
        return states


@dataclass(frozen=True)
class ProbingData:
    """The words or spans on which probes are trained, stopped and scored."""

    train: ProbedRows
    dev: ProbedRows
    test: ProbedRows

    @property
    def parts(self) -> tuple[ProbedRows, ProbedRows, ProbedRows]:
        """All three."""
        return self.train, self.dev, self.test

    @property
    def label_names(self) -> tuple[str, ...]:
        """The labels, in the order of their numbers."""
        return tuple(sorted({label for part in self.parts for label in part.labels}))


@dataclass(frozen=True, kw_only=True)
class LayerScores:
    """What a probe reads from one layer."""

    layer: int
    """0: the input of the first layer."""
    accuracy: float
    """On test, from 0 to 1."""
    control_accuracy: float
    """The same probe's accuracy on the control task."""
    description_length: DescriptionLength
    """Of the training labels."""

    @property
    def selectivity(self) -> float:
        """Accuracy - control accuracy."""
        return selectivity(self.accuracy, self.control_accuracy)


@dataclass(frozen=True, kw_only=True)
class MixScores:
    """What probes read from scalar mixes of layers: Tenney et al. 2019, arXiv:1905.05950."""

    accuracy: float
    """Of the mix of all layers, on test."""
    control_accuracy: float
    """The same probe's accuracy on the control task."""
    description_length: DescriptionLength
    """Of the training labels, by the mix of all layers."""
    layer_weights: tuple[float, ...]
    cumulative: tuple[float, ...]
    """Accuracy of the mix of layers 0 .. l, on test, for each l."""

    @property
    def center_of_gravity(self) -> float:
        """Mean layer by the weights of the mix."""
        return center_of_gravity(torch.tensor(self.layer_weights, dtype=torch.float64))

    @property
    def selectivity(self) -> float:
        """Accuracy - control accuracy."""
        return selectivity(self.accuracy, self.control_accuracy)

    @property
    def expected_layer(self) -> float | None:
        """Mean layer by what each adds to the cumulative score; see `probe.expected_layer`.

        None: the layers add nothing to the score of layer 0.
        """
        return (
            expected_layer(self.cumulative) if self.cumulative[-1] != self.cumulative[0] else None
        )


def probe_layers(data: ProbingData, settings: ProbeSettings | None = None) -> list[LayerScores]:
    """Probe every layer, and its control task, and measure the code length of the labels.

    Raises:
        ValueError: there are less than two labels.
    """
    settings = settings or ProbeSettings()
    names, labels, control = _both_tasks(data, settings)
    found: list[LayerScores] = []
    for layer in range(len(data.train.features.layers)):
        states = standardize([part.features.layers[layer][None] for part in data.parts])
        tasks = [_label(data, states, some) for some in (labels, control)]
        accuracies = [_fit(parts, len(names), settings).accuracy(parts[2]) for parts in tasks]
        found.append(
            LayerScores(
                layer=layer,
                accuracy=accuracies[0],
                control_accuracy=accuracies[1],
                description_length=_code(tasks[0], len(names), settings),
            )
        )
    return found


def probe_mixes(data: ProbingData, settings: ProbeSettings | None = None) -> MixScores:
    """Probe the scalar mix of layers 0 .. l, for each l.

    Raises:
        ValueError: there are less than two labels, or widths of layers differ.
    """
    settings = settings or ProbeSettings()
    names, labels, control = _both_tasks(data, settings)
    stacked = standardize([part.features.stacked() for part in data.parts])
    scores: list[float] = []
    weights: tuple[float, ...] = ()
    for n in range(1, len(stacked[0]) + 1):
        parts = _label(data, [states[:n] for states in stacked], labels)
        probe = _fit(parts, len(names), settings)
        scores.append(probe.accuracy(parts[2]))
        weights = tuple(probe.layer_weights.tolist())
    tasks = [_label(data, stacked, some) for some in (labels, control)]
    return MixScores(
        accuracy=scores[-1],
        control_accuracy=_fit(tasks[1], len(names), settings).accuracy(tasks[1][2]),
        description_length=_code(tasks[0], len(names), settings),
        layer_weights=weights,
        cumulative=tuple(scores),
    )


def majority_accuracy(data: ProbingData) -> float:
    """Return the accuracy on test of the most frequent training label of each word type.

    Of types that training has not seen: the most frequent label of all (Belinkov et al. 2017,
    arXiv:1704.03471).
    """
    every = Counter(data.train.labels)
    by_type: dict[str, Counter[str]] = defaultdict(Counter)
    for word, label in zip(data.train.word_types, data.train.labels, strict=True):
        by_type[word][label] += 1
    right = [
        by_type.get(word, every).most_common(1)[0][0] == label
        for word, label in zip(data.test.word_types, data.test.labels, strict=True)
    ]
    return sum(right) / len(right)


def _both_tasks(
    data: ProbingData, settings: ProbeSettings
) -> tuple[tuple[str, ...], list[Tensor], list[Tensor]]:
    """Return the names of labels, the labels of all parts, and those of the control task."""
    names = _checked_labels(data)
    labels = [_label_indices(part, names) for part in data.parts]
    task = ControlTask.of_labels(labels[0].numpy(), len(names), settings.seed)
    return names, labels, [torch.from_numpy(task.labels(part.word_types)) for part in data.parts]


def _checked_labels(data: ProbingData) -> tuple[str, ...]:
    if len(names := data.label_names) < 2:
        raise ValueError(f"a probe needs at least two labels, got {', '.join(names)}")
    return names


def _label_indices(part: ProbedRows, names: Sequence[str]) -> Tensor:
    index = {name: i for i, name in enumerate(names)}
    return torch.tensor([index[label] for label in part.labels])


def _label(
    data: ProbingData, states: Sequence[Tensor], labels: Sequence[Tensor]
) -> list[LabeledFeatures]:
    return [
        LabeledFeatures(part.inputs(x), y)
        for part, x, y in zip(data.parts, states, labels, strict=True)
    ]


def _fit(parts: Sequence[LabeledFeatures], n_labels: int, settings: ProbeSettings) -> TrainedProbe:
    return train_probe(parts[0], parts[1], n_labels, settings)


def _code(
    parts: Sequence[LabeledFeatures], n_labels: int, settings: ProbeSettings
) -> DescriptionLength:
    """Send the training labels; dev stops the training of every probe, as in the paper."""

    def fit(features: RowFeatures, labels: Tensor) -> TrainedProbe:
        return train_probe(LabeledFeatures(features, labels), parts[1], n_labels, settings)

    return online_code(parts[0].features, parts[0].labels, n_labels, fit)
