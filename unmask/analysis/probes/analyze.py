"""Probes of every layer of a network and of its control, for each task that the data have."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from unmask.analysis.probes.annotations import AnnotatedSentences, ProbeTask
from unmask.analysis.probes.edges import relation_words, words_without_punctuation
from unmask.analysis.probes.features import WordFeatures, token_features, word_features
from unmask.analysis.probes.findings import (
    LabelProbes,
    NetworkLabelProbes,
    NetworkTreeProbes,
    TreeProbes,
)
from unmask.analysis.probes.layers import (
    ProbedWords,
    ProbingData,
    majority_accuracy,
    probe_layers,
    probe_mixes,
)
from unmask.analysis.probes.probe import ProbeSettings, standardize
from unmask.analysis.probes.spans.rows import ProbedSpans, word_vote_accuracy
from unmask.analysis.probes.structural import (
    StructuralSettings,
    TreeFeatures,
    score_depth_probe,
    score_structural_probe,
    train_depth_probe,
    train_structural_probe,
    tree_sentences,
)
from unmask.heads.model import Model
from unmask.tokenizers.encode import Tokenizer

WORD_TASKS: tuple[ProbeTask, ...] = ("tags", "labels", "relations")
"""Tasks of labels of words or of pairs of words."""


@dataclass(frozen=True, kw_only=True)
class ProbeParts:
    """The sentences that fit probes, those that stop the training, and those that are scored."""

    fit: AnnotatedSentences
    stop: AnnotatedSentences
    scored: AnnotatedSentences

    @property
    def all(self) -> tuple[AnnotatedSentences, AnnotatedSentences, AnnotatedSentences]:
        """All three."""
        return self.fit, self.stop, self.scored


@dataclass(frozen=True, kw_only=True)
class AnalyzeSettings:
    """Which probes are trained, and how."""

    tasks: tuple[ProbeTask, ...]
    mix: bool
    """Whether scalar mixes of layers are probed, too."""
    probe: ProbeSettings
    structural: StructuralSettings


@dataclass(frozen=True, kw_only=True)
class AnalyzedProbes:
    """What all probes found."""

    labels: tuple[LabelProbes, ...]
    trees: TreeProbes | None
    n_skipped: int


def analyze_probes(
    networks: Mapping[str, Model],
    tokenizer: Tokenizer,
    parts: ProbeParts,
    settings: AnalyzeSettings,
    show: Callable[[str], None],
) -> AnalyzedProbes:
    """Probe every layer of networks that read texts alike.

    Args:
        networks: by name, the trained one first.
        tokenizer: of all networks.
        parts: the sentences.
        settings: how.
        show: shows progress.

    Raises:
        ValueError: there are no words, a task has less than two labels, or trees have no edges.
        FloatingPointError: hidden states are not finite.
    """
    labels: dict[ProbeTask, list[_LabelTask]] = {}
    trees: list[tuple[tuple[int, int, int], NetworkTreeProbes]] = []
    n_skipped = 0
    for name, model in networks.items():
        if settings.tasks != ("spans",):
            show(f"probes: hidden states of {name} weights")
            features = [word_features(model, tokenizer, part.words) for part in parts.all]
            n_skipped = sum(one.n_skipped for one in features)
            for task in WORD_TASKS:
                if task in settings.tasks:
                    show(f"probes: {task}, {name} weights")
                    found = _probe_words(task, name, features, parts, settings)
                    labels.setdefault(task, []).append(found)
            if {"distances", "depths"} & set(settings.tasks):
                show(f"probes: trees, {name} weights")
                trees.append(_probe_trees(name, features, parts, settings))
        if "spans" in settings.tasks:
            show(f"probes: spans, {name} weights")
            features = [token_features(model, tokenizer, part.words) for part in parts.all]
            n_skipped = sum(one.n_skipped for one in features)
            labels.setdefault("spans", []).append(_probe_spans(name, features, parts, settings))
    return AnalyzedProbes(
        labels=tuple(_join_labels(task, found) for task, found in labels.items()),
        trees=TreeProbes(
            n_sentences=trees[0][0],
            rank=settings.structural.rank,
            networks=tuple(one for _, one in trees),
        )
        if trees
        else None,
        n_skipped=n_skipped,
    )


@dataclass(frozen=True, kw_only=True)
class _LabelTask:
    """A task of labels with the features of one network, and what probes read from them."""

    data: ProbingData
    majority: float
    found: NetworkLabelProbes


def _probe_words(
    task: ProbeTask,
    name: str,
    features: Sequence[WordFeatures],
    parts: ProbeParts,
    settings: AnalyzeSettings,
) -> _LabelTask:
    pairs = list(zip(features, parts.all, strict=True))
    if task == "relations":
        rows = [relation_words(one, part.trees) for one, part in pairs]
    else:
        rows = [ProbedWords.of_sentences(one, p.words, p.labels) for one, p in pairs]
    data = ProbingData(*rows)
    return _LabelTask(
        data=data,
        majority=majority_accuracy(data),
        found=_probe_labels(name, data, settings),
    )


def _probe_spans(
    name: str, features: Sequence[WordFeatures], parts: ProbeParts, settings: AnalyzeSettings
) -> _LabelTask:
    rows = [
        ProbedSpans.of_sentences(one, part.words, part.spans)
        for one, part in zip(features, parts.all, strict=True)
    ]
    data = ProbingData(*rows)
    return _LabelTask(
        data=data,
        majority=word_vote_accuracy(rows[0], rows[2]),
        found=_probe_labels(name, data, settings),
    )


def _probe_labels(name: str, data: ProbingData, settings: AnalyzeSettings) -> NetworkLabelProbes:
    widths = {layer.shape[1] for layer in data.train.features.layers}
    return NetworkLabelProbes(
        name=name,
        layers=tuple(probe_layers(data, settings.probe)),
        mix=probe_mixes(data, settings.probe) if settings.mix and len(widths) == 1 else None,
        has_several_widths=len(widths) > 1,
    )


def _join_labels(task: ProbeTask, found: Sequence[_LabelTask]) -> LabelProbes:
    data = found[0].data
    fit, stop, scored = (len(part.labels) for part in data.parts)
    return LabelProbes(
        task=task,
        n_words=(fit, stop, scored),
        n_labels=len(data.label_names),
        majority=found[0].majority,
        networks=tuple(one.found for one in found),
    )


def _probe_trees(
    name: str, features: Sequence[WordFeatures], parts: ProbeParts, settings: AnalyzeSettings
) -> tuple[tuple[int, int, int], NetworkTreeProbes]:
    """Return numbers of sentences, and the scores of each layer.

    Deviates: the paper reads features as they are; here they are standardized, as for all probes.
    """
    layers = [
        _tree_layer(features, parts, layer) for layer in range(len(features[0].layers))
    ]  # [layer][part][sentence]
    how = settings.structural
    fit, stop, scored = (len(part) for part in layers[0])
    return (fit, stop, scored), NetworkTreeProbes(
        name=name,
        distances=tuple(
            score_structural_probe(train_structural_probe(some[0], some[1], how), some[2])
            for some in layers
            if "distances" in settings.tasks
        ),
        depths=tuple(
            score_depth_probe(train_depth_probe(some[0], some[1], how), some[2])
            for some in layers
            if "depths" in settings.tasks
        ),
    )


def _tree_layer(
    features: Sequence[WordFeatures], parts: ProbeParts, layer: int
) -> list[list[TreeFeatures]]:
    states = standardize([one.layers[layer][None] for one in features])
    return [
        tree_sentences(
            WordFeatures((state[0],), one.sentences, one.words),
            0,
            [tree.heads for tree in part.trees],
            [words_without_punctuation(tree) for tree in part.trees],
        )
        for state, one, part in zip(states, features, parts.all, strict=True)
    ]
