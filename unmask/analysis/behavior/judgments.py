"""How far a network prefers one of two texts as people do: correlation with human judgments."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import norm

from unmask.analysis.behavior.minimal_pairs import MinimalPair, data_files, data_stem
from unmask.analysis.behavior.pair_scores import PairLikelihoods
from unmask.tasks.metrics.intervals import CONFIDENCE
from unmask.tasks.metrics.regression import pearson, spearman
from unmask.tasks.readers.tables import read_table
from unmask.text.formats.records import describe_value, format_names
from unmask.text.lines import EncodingErrors

_DECIMALS = 6
_COLUMNS = ("sentences", "ratio")
_MIN_ITEMS = 4
"""Of a file: the interval of a correlation divides by the number of items less 3."""


@dataclass(frozen=True)
class Judgment:
    """Two texts, and how far people prefer the first."""

    texts: MinimalPair
    """The first text is its good one; its paradigm is the name of the file."""
    rating: float
    """The share of people who prefer the first, or another number that rises with it."""


@dataclass(frozen=True)
class Correlation:
    """A correlation with its 95 % interval; NaN if the network prefers all items alike."""

    value: float
    low: float
    high: float

    def to_json(self) -> dict[str, float | None]:
        """Return the correlation as plain data."""
        found: dict[str, float] = vars(self)
        return {k: None if math.isnan(x) else round(x, _DECIMALS) for k, x in found.items()}


@dataclass(frozen=True, kw_only=True)
class GroupCorrelation:
    """How far the preferences of a network go with those of people, on the items of a file."""

    name: str
    n_items: int
    spearman: Correlation
    """BabyLM's score."""
    pearson: Correlation


@dataclass(frozen=True, kw_only=True)
class NetworkJudgments:
    """The preferences of a network or baseline, beside those of people."""

    name: str
    """trained, random: the same network with random weights, or fewer_tokens: the number of tokens
    that the second text has more."""
    groups: tuple[GroupCorrelation, ...]
    preferences: Float[np.ndarray, "n"]
    """Log-odds of the first text, in nats; tokens of fewer_tokens."""

    def to_json(self) -> dict[str, Any]:
        """Return the correlations as plain data."""
        return {
            one.name: {
                "n_items": one.n_items,
                "spearman": one.spearman.to_json(),
                "pearson": one.pearson.to_json(),
            }
            for one in self.groups
        }


@dataclass(frozen=True, kw_only=True)
class JudgmentFindings:
    """Correlations of a network, its control and a baseline with the same judgments."""

    model: str
    data: str
    likelihood: str
    """What the likelihood of a text is."""
    judgments: tuple[Judgment, ...]
    networks: tuple[NetworkJudgments, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the findings as plain data."""
        items = [
            {
                "first": one.texts.good,
                "second": one.texts.bad,
                "group": one.texts.paradigm,
                "rating": one.rating,
                "preference": round(float(preference), _DECIMALS),
            }
            for one, preference in zip(self.judgments, self.networks[0].preferences, strict=True)
        ]
        return {
            "model": self.model,
            "data": self.data,
            "likelihood": self.likelihood,
            "networks": {one.name: one.to_json() for one in self.networks},
            "items": items,
        }


def read_judgments(
    path: str | Path, encoding_errors: EncodingErrors = "strict"
) -> tuple[Judgment, ...]:
    """Read the judgments of a file, or of all .jsonl files of a folder, optionally compressed.

    Columns are sentences, two texts with a tab between, and ratio, as in BabyLM's tests of new
    words (after Hofmann et al. 2024, arXiv:2411.07990, and Weissweiler et al. 2023,
    arXiv:2310.15113).

    Raises:
        FileNotFoundError: there is no such file, or the folder has none.
        ValueError: a file is empty, lacks a column or a number, or has too few items or the same
            number everywhere.
    """
    return tuple(
        judgment for one in data_files(Path(path)) for judgment in _read_file(one, encoding_errors)
    )


def measure_judgments(
    name: str, judgments: Sequence[Judgment], preferences: Float[np.ndarray, "n"]
) -> NetworkJudgments:
    """Correlate preferences with those of people, by file.

    Args:
        name: of the network or baseline.
        judgments: of people.
        preferences: log-odds of the first text of each, log p(first) - log p(second).
    """
    of_item = np.array([one.texts.paradigm for one in judgments], object)
    ratings = np.array([one.rating for one in judgments])
    groups = [
        _correlate(group, preferences[of_item == group], ratings[of_item == group])
        for group in dict.fromkeys(of_item.tolist())
    ]
    return NetworkJudgments(name=name, groups=tuple(groups), preferences=preferences)


def log_odds(likelihoods: PairLikelihoods) -> Float[np.ndarray, "n"]:
    """Return log p(first) - log p(second)."""
    return likelihoods.good - likelihoods.bad


def spearman_interval(r: float, n: int) -> Correlation:
    """Return a rank correlation of `n` items with its interval (Bonett and Wright 2000).

    tanh(artanh(r) ± z sqrt((1 + r²/2) / (n - 3))), doi:10.1007/BF02294183.

    Example:
        >>> one = spearman_interval(0.5, 100)
        >>> f"{one.low:.3f} {one.high:.3f}"
        '0.323 0.643'
    """
    return _fisher_interval(r, math.sqrt((1 + r * r / 2) / (n - 3)))


def pearson_interval(r: float, n: int) -> Correlation:
    """Return a correlation of `n` items with its interval, tanh(artanh(r) ± z / sqrt(n - 3))."""
    return _fisher_interval(r, 1 / math.sqrt(n - 3))


def _fisher_interval(r: float, error: float) -> Correlation:
    if abs(r) >= 1:
        return Correlation(r, r, r)
    half = float(norm.ppf((1 + CONFIDENCE) / 2)) * error
    return Correlation(r, math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half))


def _correlate(
    name: str, preferences: Float[np.ndarray, "n"], ratings: Float[np.ndarray, "n"]
) -> GroupCorrelation:
    n = len(ratings)
    shares = np.exp(-np.logaddexp(0, -preferences))  # p(first) / (p(first) + p(second))
    # ranks of log-odds are those of shares, without the ties of shares that round to 0 or 1
    rank = spearman(ratings, preferences) if np.ptp(preferences) > 0 else math.nan
    linear = pearson(ratings, shares) if np.ptp(shares) > 0 else math.nan
    return GroupCorrelation(
        name=name,
        n_items=n,
        spearman=spearman_interval(rank, n),
        pearson=pearson_interval(linear, n),
    )


def _read_file(path: Path, encoding_errors: EncodingErrors) -> list[Judgment]:
    table = read_table(path, encoding_errors=encoding_errors)
    for name in _COLUMNS:
        if name not in table.columns:
            raise ValueError(
                f"{path}: judgments need a column {name!r} (columns: {format_names(table.columns)})"
            )
    stem = data_stem(path)
    judgments: list[Judgment] = []
    columns = zip(*(table.column(name) for name in _COLUMNS), strict=True)
    for i, (texts, ratio) in enumerate(columns):
        first, _, second = texts.partition("\t") if isinstance(texts, str) else ("", "", "")
        if not first.strip() or not second.strip() or "\t" in second:
            raise ValueError(
                f"{table.location(i)}: sentences must be two texts with a tab between, "
                f"got {describe_value(texts)}"
            )
        pair = MinimalPair(first, second, stem, stem)
        judgments.append(Judgment(pair, _read_number(ratio, table.location(i))))
    if len(judgments) < _MIN_ITEMS or len({one.rating for one in judgments}) < 2:
        raise ValueError(
            f"{path}: a correlation needs {_MIN_ITEMS} items or more whose ratios differ, "
            f"got {len(judgments)} with {len({one.rating for one in judgments})} different ratios"
        )
    return judgments


def _read_number(value: object, location: str) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{location}: ratio must be a number, got {describe_value(value)}")
    return number
