"""What surprisal adds to the prediction of reading times by frequency, length and position."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import f as f_distribution
from scipy.stats import t as t_distribution

from unmask.analysis.behavior.blanks import ClozeItem, choice_likelihoods, fits
from unmask.analysis.behavior.reading_data import ReadingData, WordInContext
from unmask.heads.model import Model
from unmask.tasks.metrics.intervals import CONFIDENCE
from unmask.tokenizers.encode import Tokenizer

_DECIMALS = 6


@dataclass(frozen=True)
class WordSurprisals:
    """Surprisal and tokens of words; NaN where there is no word, or its text does not fit."""

    bits: Float[np.ndarray, "n"]
    n_tokens: Float[np.ndarray, "n"]


@dataclass(frozen=True, kw_only=True)
class SurprisalEffect:
    """A linear model of a measure with surprisal, beside the same one without."""

    measure: str
    n_words: int
    r2_baseline: float
    """Of frequency, length and position, their products, with spillover length and surprisal of the
    previous word, and the number of tokens if asked for."""
    r2: float
    """With surprisal."""
    slope: float
    """Units of the measure for each bit."""
    slope_low: float
    slope_high: float
    """Bounds of the 95 % interval."""
    p_value: float
    """Of the F test of the two models."""

    @property
    def gain(self) -> float:
        """What surprisal adds to R²."""
        return self.r2 - self.r2_baseline

    @property
    def partial_r2(self) -> float:
        """The share of what the baseline leaves unexplained, BabyLM's score."""
        return self.gain / (1 - self.r2_baseline)

    def to_json(self) -> dict[str, Any]:
        """Return the effect as plain data."""
        rounded = {
            name: round(value, _DECIMALS) if isinstance(value, float) else value
            for name, value in vars(self).items()
            if name != "p_value"
        }
        more = {"gain": self.gain, "partial_r2": self.partial_r2}
        return (
            rounded | {k: round(v, _DECIMALS) for k, v in more.items()} | {"p_value": self.p_value}
        )


@dataclass(frozen=True, kw_only=True)
class NetworkReading:
    """The effects of a network's surprisal, or of the number of tokens in its place."""

    name: str
    """trained, random: the same network with random weights, or tokens: the number of tokens of a
    word, of which the surprisal of an untrained network is a multiple."""
    mean_surprisal: float
    """Bits for each word, or tokens."""
    frequency_correlation: float
    """Pearson's, of surprisal and log frequency."""
    effects: tuple[SurprisalEffect, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the effects as plain data."""
        return {
            "mean_surprisal": round(self.mean_surprisal, _DECIMALS),
            "frequency_correlation": round(self.frequency_correlation, _DECIMALS),
            "measures": {one.measure: one.to_json() for one in self.effects},
        }


@dataclass(frozen=True, kw_only=True)
class ReadingFindings:
    """The effects of surprisal by a network and its control on the same words."""

    model: str
    data: str
    n_words: int
    n_too_long: int
    """Words whose text is longer than the model's positions, left out."""
    spillover: tuple[str, ...]
    """Measures whose baseline has the previous word's length and surprisal."""
    token_count: bool
    """Whether all baselines have the number of tokens."""
    networks: tuple[NetworkReading, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the findings as plain data."""
        facts = {name: value for name, value in vars(self).items() if name != "networks"}
        return facts | {"networks": {one.name: one.to_json() for one in self.networks}}


def surprisals(
    model: Model,
    tokenizer: Tokenizer,
    words: Sequence[WordInContext | None],
    ending_masks: int = 3,
) -> WordSurprisals:
    """Return -log2 p(word | words before it); NaN for None and where the text does not fit.

    A masked model predicts the word with its later tokens masked and mask tokens after it, without
    which it would predict the end of a text (Samuel 2024, arXiv:2406.04823). An encoder-decoder
    predicts it in the last blank of a text.

    Raises:
        ValueError: the model has no language head or no blank.
        FloatingPointError: a logit is not a number.
    """
    known = {word: i for i, word in enumerate(dict.fromkeys(filter(None, words)))}
    items = [
        ClozeItem(f"{one.before} " if one.before else "", "", (one.word,), 0, "") for one in known
    ]
    fitting = fits(model, tokenizer, items, ending_masks)
    some = [item for item, fit in zip(items, fitting, strict=True) if fit]
    found = iter(
        choice_likelihoods(model, tokenizer, some, reads_on=False, ending_masks=ending_masks)
    )
    missing = (math.nan, math.nan)
    each = [
        (-(one := next(found)[0]).log_likelihood / math.log(2), float(one.n_tokens))
        if fit
        else missing
        for fit in fitting
    ]
    rows = [missing if word is None else each[known[word]] for word in words]
    bits, n_tokens = np.array(rows, np.float64).reshape(-1, 2).T
    return WordSurprisals(bits, n_tokens)


def measure_network(
    name: str,
    data: ReadingData,
    bits: Float[np.ndarray, "n"],
    previous_bits: Float[np.ndarray, "n"],
    spillover: Sequence[str],
    n_tokens: Float[np.ndarray, "n"] | None = None,
) -> NetworkReading:
    """Return the effect of surprisal on each measure.

    Args:
        name: of the network.
        data: words with measures.
        bits: surprisal of each word.
        previous_bits: surprisal of the word before each.
        spillover: measures whose baseline has the previous word's length and surprisal.
        n_tokens: of each word, for all baselines. None: not for them.

    Raises:
        ValueError: too few words have all numbers.
    """
    of_word = [data.frequency, data.length, data.position]
    of_tokens = [] if n_tokens is None else [n_tokens]
    of_previous = [data.previous_length, previous_bits]
    effects = [
        surprisal_effect(
            measure,
            values,
            bits,
            of_word,
            [*of_tokens, *(of_previous if measure in spillover else [])],
        )
        for measure, values in data.measures.items()
    ]
    there = np.isfinite(bits) & np.isfinite(data.frequency)
    return NetworkReading(
        name=name,
        mean_surprisal=float(np.nanmean(bits)),
        frequency_correlation=float(np.corrcoef(bits[there], data.frequency[there])[0, 1]),
        effects=tuple(effects),
    )


def surprisal_effect(
    measure: str,
    values: Float[np.ndarray, "n"],
    bits: Float[np.ndarray, "n"],
    multiplied: Sequence[Float[np.ndarray, "n"]],
    added: Sequence[Float[np.ndarray, "n"]],
) -> SurprisalEffect:
    """Compare linear models of a measure with and without surprisal, by least squares.

    Args:
        measure: name of the measure.
        values: measure of each word.
        bits: surprisal of each word.
        multiplied: predictors of the baseline that also enter as products of two.
        added: further predictors of the baseline.

    Raises:
        ValueError: too few words have all numbers, or all have the same.
    """
    plain = [*multiplied, *added, bits]
    there = np.isfinite(values) & np.all(np.isfinite(plain), 0)
    y, n = values[there], int(there.sum())
    scaled = [_standardize(column[there]) for column in multiplied]
    columns = [*scaled, *(a * b for a, b in combinations(scaled, 2))]
    columns += [_standardize(column[there]) for column in added]
    n_coefficients = len(columns) + 2
    if n <= n_coefficients or np.ptp(y) == 0:
        raise ValueError(
            f"{measure}: {n} words have all numbers, or all have the same; a linear model of "
            f"{n_coefficients} coefficients needs more"
        )
    baseline = np.column_stack([np.ones(n), *columns])
    rest = _residuals(baseline, y)
    surprisal = _residuals(baseline, bits[there])
    # Frisch and Waugh 1933: the slope of what the baseline leaves of both
    slope = float(surprisal @ rest / (surprisal @ surprisal))
    left = rest - slope * surprisal
    total, before, after = (float(x @ x) for x in (y - y.mean(), rest, left))
    degrees = n - n_coefficients
    error = math.sqrt(after / degrees / float(surprisal @ surprisal))
    half = float(t_distribution.ppf((1 + CONFIDENCE) / 2, degrees)) * error
    return SurprisalEffect(
        measure=measure,
        n_words=n,
        r2_baseline=1 - before / total,
        r2=1 - after / total,
        slope=slope,
        slope_low=slope - half,
        slope_high=slope + half,
        p_value=float(f_distribution.sf((before - after) / (after / degrees), 1, degrees)),
    )


def _standardize(column: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Return a column of mean 0 and deviation 1, which makes products and rounding harmless."""
    spread = column.std()
    return (column - column.mean()) / (spread if spread > 0 else 1.0)


def _residuals(
    columns: Float[np.ndarray, "n k"], y: Float[np.ndarray, "n"]
) -> Float[np.ndarray, "n"]:
    """Return what least squares leave."""
    coefficients = np.linalg.lstsq(columns, y, rcond=None)[0]
    return y - columns @ coefficients
