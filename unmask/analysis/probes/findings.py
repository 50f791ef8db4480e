"""What probes of a network and of its control find, as values."""

from dataclasses import asdict, dataclass
from typing import Any

from unmask.analysis.probes.annotations import ProbeTask
from unmask.analysis.probes.layers import LayerScores, MixScores
from unmask.analysis.probes.structural import DepthScores, StructuralScores
from unmask.tasks.metrics.intervals import wilson_interval

_DECIMALS = 6


@dataclass(frozen=True, kw_only=True)
class NetworkLabelProbes:
    """What probes read from one network about the labels of one task."""

    name: str
    """trained, or random: the same network with random weights."""
    layers: tuple[LayerScores, ...]
    mix: MixScores | None
    """None: layers have different widths, or mixes were not asked for."""
    has_several_widths: bool = False
    """Whether layers have different widths."""

    @property
    def best(self) -> LayerScores:
        """The layer with the highest accuracy, the lowest of equal ones."""
        return max(self.layers, key=lambda one: (one.accuracy, -one.layer))

    def to_json(self) -> dict[str, Any]:
        """Return the scores as plain data."""
        return {
            "layers": [
                {
                    "layer": one.layer,
                    "accuracy": _rounded(one.accuracy),
                    "control_accuracy": _rounded(one.control_accuracy),
                    "selectivity": _rounded(one.selectivity),
                    "code_length_bits": round(one.description_length.bits, 1),
                    "uniform_code_length_bits": round(one.description_length.uniform_bits, 1),
                    "compression": _rounded(one.description_length.compression),
                }
                for one in self.layers
            ],
            "mix": None
            if self.mix is None
            else {
                "accuracy": _rounded(self.mix.accuracy),
                "layer_weights": [_rounded(x) for x in self.mix.layer_weights],
                "center_of_gravity": _rounded(self.mix.center_of_gravity),
                "cumulative_accuracies": [_rounded(x) for x in self.mix.cumulative],
                "expected_layer": _rounded(self.mix.expected_layer),
            },
        }


@dataclass(frozen=True, kw_only=True)
class LabelProbes:
    """What probes of a network, and of its control, read about the labels of one task."""

    task: ProbeTask
    n_words: tuple[int, int, int]
    """Words, pairs of words, or spans, that fit probes, stop their training, and are scored."""
    n_labels: int
    majority: float
    """Accuracy of the most frequent label of each word type; of spans, of the votes of their
    words."""
    networks: tuple[NetworkLabelProbes, ...]

    def interval(self, accuracy: float) -> tuple[float, float]:
        """Return the binomial 95 % interval of an accuracy on the scored words."""
        n = self.n_words[2]
        return wilson_interval(accuracy * n, n)

    def to_json(self) -> dict[str, Any]:
        """Return the scores as plain data."""
        fit, stop, scored = self.n_words
        return {
            "words": {"fit": fit, "stop": stop, "scored": scored},
            "labels": self.n_labels,
            "majority_accuracy": _rounded(self.majority),
            "networks": {one.name: one.to_json() for one in self.networks},
        }


@dataclass(frozen=True, kw_only=True)
class NetworkTreeProbes:
    """What structural probes read from each layer of one network."""

    name: str
    """trained, or random."""
    distances: tuple[StructuralScores, ...]
    """Of each layer. Empty: not asked for."""
    depths: tuple[DepthScores, ...]
    """Of each layer. Empty: not asked for."""


@dataclass(frozen=True, kw_only=True)
class TreeProbes:
    """What structural probes of a network, and of its control, read about dependency trees."""

    n_sentences: tuple[int, int, int]
    """Sentences that fit projections, stop their training, and are scored."""
    rank: int
    networks: tuple[NetworkTreeProbes, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the scores as plain data."""
        fit, stop, scored = self.n_sentences
        return {
            "sentences": {"fit": fit, "stop": stop, "scored": scored},
            "rank": self.rank,
            "networks": {
                one.name: {
                    task: [
                        {"layer": i} | {name: _rounded(x) for name, x in asdict(scores).items()}
                        for i, scores in enumerate(layers)
                    ]
                    for task, layers in (("distances", one.distances), ("depths", one.depths))
                    if layers
                }
                for one in self.networks
            },
        }


@dataclass(frozen=True, kw_only=True)
class ProbeFindings:
    """All probes of a network and of its control."""

    model: str
    data: str
    hidden_size: int | None
    """Of the probes of labels. None: linear."""
    n_fit: int
    """Sentences that fit probes."""
    n_stop: int
    """Sentences that stop their training."""
    n_scored: int
    """Sentences on which they are scored."""
    n_skipped: int
    """Sentences that are longer than the model's positions."""
    labels: tuple[LabelProbes, ...]
    trees: TreeProbes | None
    """None: not asked for."""

    def to_json(self) -> dict[str, Any]:
        """Return the findings as plain data."""
        facts = {name: x for name, x in vars(self).items() if name not in ("labels", "trees")}
        return facts | {
            "tasks": {one.task: one.to_json() for one in self.labels},
            "trees": None if self.trees is None else self.trees.to_json(),
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DECIMALS)
