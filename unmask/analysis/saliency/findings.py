"""What an analysis of saliency finds, as values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from unmask.analysis.saliency.attributions import Method
from unmask.analysis.saliency.faithfulness import FRACTIONS

_DECIMALS = 6

Baseline = Literal["mask", "pad", "zero"]
"""What stands for a removed word: the embedding of the mask token, of padding, or zeros."""


@dataclass(frozen=True, kw_only=True)
class ExplainedText:
    """A decision about a text, and what is attributed to its words."""

    labels: tuple[str, ...]
    """Words and special tokens."""
    word_of_label: tuple[int, ...]
    """Index of the word; -1 for special tokens."""
    predicted: str
    target: str | None
    probability: float
    """Of what is predicted; of a regression, the number."""
    attributions: Mapping[Method, Sequence[float]]
    """By method, for each word; positive: it speaks for what is predicted."""
    completeness_gap: float
    """|sum of integrated gradients - (F(x) - F(x'))|, in log-odds."""
    difference: float
    """F(x) - F(x')."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "tokens": list(self.labels),
            "words": list(self.word_of_label),
            "predicted": self.predicted,
            "target": self.target,
            "probability": _rounded(self.probability),
            "attributions": {k: _all_rounded(v) for k, v in self.attributions.items()},
            "completeness_gap": _rounded(self.completeness_gap),
            "difference": _rounded(self.difference),
        }


@dataclass(frozen=True, kw_only=True)
class MethodScores:
    """How faithful the attributions of a method are, averaged over texts."""

    method: Method
    comprehensiveness: tuple[float, ...]
    """At each of `FRACTIONS`."""
    sufficiency: tuple[float, ...]
    comprehensiveness_area: float
    """The area over the perturbation curve."""
    sufficiency_area: float
    above_random: tuple[float, float]
    """95 % interval of how much the area of comprehensiveness exceeds that of random, over
    texts."""
    below_random: tuple[float, float]
    """95 % interval of how much the area of sufficiency is lower than that of random."""
    rank_correlation: float | None
    """Spearman's, with the attributions of the same network with random weights; None: not
    computed."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        found: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, tuple):
                found[name] = _all_rounded(value)
            else:
                found[name] = _rounded(value) if isinstance(value, float) else value
        return found


@dataclass(frozen=True, kw_only=True)
class SaliencyFindings:
    """What the decisions of a model rest on."""

    model: str
    data: str
    """Name of the file; "" for given texts."""
    decides: Literal["labels", "numbers", "tokens"]
    baseline: Baseline
    steps: int
    """Gradients of an integrated gradient."""
    n_skipped: int
    """Texts without words, or longer than the model's positions."""
    left_out: str | None
    """Why attention rollout is left out; None: it is not."""
    texts: tuple[ExplainedText, ...]
    n_shown: int
    """Texts that the page shows."""
    methods: tuple[MethodScores, ...]

    @property
    def shown(self) -> tuple[ExplainedText, ...]:
        """The texts that the page shows."""
        return self.texts[: self.n_shown]

    @property
    def accuracy(self) -> float | None:
        """Share of right decisions among those of which it is known; None: it is of none."""
        known = [one for one in self.texts if one.target is not None]
        if not known or self.decides == "numbers":
            return None
        return sum(one.predicted == one.target for one in known) / len(known)

    @property
    def gaps(self) -> tuple[float, float]:
        """The mean and the largest completeness gap."""
        gaps = [one.completeness_gap for one in self.texts]
        return sum(gaps) / len(gaps), max(gaps)

    @property
    def mean_difference(self) -> float:
        """Mean of |F(x) - F(x')|, beside which a gap is large or small."""
        return sum(abs(one.difference) for one in self.texts) / len(self.texts)

    def to_json(self) -> dict[str, Any]:
        """Return the findings as plain data."""
        accuracy = self.accuracy
        return {
            "model": self.model,
            "data": self.data,
            "decides": self.decides,
            "baseline": self.baseline,
            "steps": self.steps,
            "n_texts": len(self.texts),
            "n_skipped": self.n_skipped,
            "left_out": self.left_out,
            "accuracy": None if accuracy is None else _rounded(accuracy),
            "completeness_gap": {
                "mean": _rounded(self.gaps[0]),
                "largest": _rounded(self.gaps[1]),
                "mean_difference": _rounded(self.mean_difference),
            },
            "fractions": list(FRACTIONS),
            "methods": [one.to_json() for one in self.methods],
            "texts": [one.to_json() for one in self.texts],
        }


def _rounded(value: float) -> float:
    return round(float(value), _DECIMALS)


def _all_rounded(values: Sequence[float]) -> list[float]:
    return [_rounded(value) for value in values]
