"""What an analysis of attention finds, as values."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from unmask.analysis.attention.clusters import HeadClusters
from unmask.analysis.attention.parser import ParserScores
from unmask.analysis.attention.statistics import STATISTICS, HeadStatistics, mean_by_layer
from unmask.analysis.attention.syntax import DIRECTIONS, SyntaxScores

_DECIMALS = 6


@dataclass(frozen=True)
class AttentionView:
    """The maps of all heads for one text, to look at."""

    labels: tuple[str, ...]
    """Words and special tokens."""
    is_special: tuple[bool, ...]
    maps: Float[np.ndarray, "k g g"]


@dataclass(frozen=True, kw_only=True)
class NetworkAttention:
    """What the heads of a network attend to."""

    name: str
    """trained, or random: the same network with random weights."""
    statistics: tuple[HeadStatistics, ...]
    syntax: SyntaxScores
    clusters: HeadClusters
    parser: ParserScores | None
    """None: not asked for."""
    views: tuple[AttentionView, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the findings as plain data, without the maps of texts."""
        names = [one.head for one in self.statistics]
        return {
            "heads": [str(name) for name in names],
            "statistics": [
                {"head": str(one.head)} | {k: _rounded(vars(one)[k]) for k in STATISTICS}
                for one in self.statistics
            ],
            "by_layer": {
                name: [_rounded(x) for x in mean_by_layer(self.statistics, name).values()]
                for name in STATISTICS
            },
            "relations": [
                {
                    "relation": one.relation,
                    "words": one.n_words,
                    "head": str(one.head),
                    "direction": one.direction,
                    "accuracy": _rounded(one.accuracy),
                    "offset": one.offset,
                    "offset_accuracy": _rounded(one.offset_accuracy),
                    "p_value": one.p_value,
                    "adjusted_p_value": one.adjusted_p_value,
                    "beats_offset": one.beats_offset,
                }
                for one in self.syntax.best
            ],
            "relations_above_offset": self.syntax.n_above_offset,
            "accuracies": {
                direction: np.round(part, _DECIMALS).tolist()
                for direction, part in zip(DIRECTIONS, self.syntax.accuracies, strict=True)
            },
            "clusters": {
                "distances": np.round(self.clusters.distances, _DECIMALS).tolist(),
                "positions": np.round(self.clusters.positions, _DECIMALS).tolist(),
                "cluster": self.clusters.clusters.tolist(),
                "within_layers": _rounded(self.clusters.within_layers),
                "between_layers": _rounded(self.clusters.between_layers),
            },
            "parser": None
            if self.parser is None
            else {name: round(value, _DECIMALS) for name, value in vars(self.parser).items()},
        }


@dataclass(frozen=True, kw_only=True)
class AttentionFindings:
    """The findings for a network and its control, on the same sentences."""

    model: str
    data: str
    n_train: int
    """Sentences on which heads and offsets are chosen."""
    n_test: int
    """Sentences on which they are scored."""
    n_skipped: int
    """Sentences longer than the model's positions."""
    networks: tuple[NetworkAttention, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the findings as plain data."""
        facts = {name: value for name, value in vars(self).items() if name != "networks"}
        return facts | {"networks": {one.name: one.to_json() for one in self.networks}}


def _rounded(value: float) -> float:
    return round(float(value), _DECIMALS)
