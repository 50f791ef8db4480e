"""What a model knows of the senses of words, beside its controls."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unmask.analysis.hidden_states.senses.neighbors import OccurrenceNeighbors
from unmask.analysis.hidden_states.senses.thresholds import LayerSenses


@dataclass(frozen=True, kw_only=True)
class SensesFindings:
    """How well each layer of a model tells senses apart, whitened, and with random weights."""

    model: str
    data: str
    are_pseudo_words: bool
    """Whether the words are pairs of words of a text taken for one; False: given pairs."""
    n_train: int
    n_scored: int
    n_skipped: int
    """Pairs with a sentence that is longer than the model's positions."""
    majority: float
    """Share of the more frequent label of the training pairs among the scored pairs."""
    other_words: LayerSenses
    """The baseline: static vectors of the other words of both sentences."""
    networks: Mapping[str, tuple[LayerSenses, ...]]
    """trained; whitened: the same states, whitened; random: the network with random weights."""
    corpus: str = ""
    """The text of the neighbors."""
    neighbors: tuple[OccurrenceNeighbors, ...] = ()
    """By the layer that is best on the training pairs."""

    def best(self, network: str) -> LayerSenses:
        """Return the layer of a network that is best on the training pairs."""
        return max(self.networks[network], key=lambda one: one.train_accuracy)

    def to_json(self) -> dict[str, Any]:
        """Return the findings as plain data."""
        nested = ("other_words", "networks", "neighbors")
        facts = {name: value for name, value in vars(self).items() if name not in nested}
        return facts | {
            "majority": round(self.majority, 6),
            "other_words": self.other_words.to_json(),
            "networks": {
                name: [one.to_json() for one in layers] for name, layers in self.networks.items()
            },
            "best_layers": {name: self.best(name).layer for name in self.networks},
            "neighbors": [one.to_json() for one in self.neighbors],
        }
