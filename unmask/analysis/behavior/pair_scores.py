"""How often a network gives the acceptable sentence of a minimal pair the higher likelihood."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from unmask.analysis.behavior.accuracy import GroupAccuracy, group_accuracies
from unmask.analysis.behavior.minimal_pairs import Compared, MinimalPair
from unmask.analysis.behavior.sentences import sentence_likelihoods
from unmask.evaluation.likelihood import PseudoLikelihoodMasking
from unmask.heads.model import Model
from unmask.tokenizers.encode import Tokenizer


@dataclass(frozen=True)
class PairLikelihoods:
    """The likelihood of both sentences of each pair."""

    good: Float[np.ndarray, "n"]
    bad: Float[np.ndarray, "n"]
    """Nats."""
    n_good_tokens: Int[np.ndarray, "n"]
    n_bad_tokens: Int[np.ndarray, "n"]

    @property
    def credits(self) -> Float[np.ndarray, "n"]:
        """1 where the good sentence is more likely, a half where both are equally likely."""
        return _compare(self.good, self.bad)

    @property
    def length_credits(self) -> Float[np.ndarray, "n"]:
        """1 where the good sentence has fewer tokens, a half where both have as many."""
        return _compare(-self.n_good_tokens, -self.n_bad_tokens)


@dataclass(frozen=True, kw_only=True)
class PairAccuracies:
    """The accuracy of a network or baseline on minimal pairs."""

    name: str
    """trained, random: the same network with random weights, or fewer_tokens: the sentence of
    fewer tokens is taken."""
    overall: GroupAccuracy
    by_phenomenon: tuple[GroupAccuracy, ...]
    by_paradigm: tuple[GroupAccuracy, ...]

    @staticmethod
    def of(
        name: str, pairs: Sequence[MinimalPair], credits: Float[np.ndarray, "n"]
    ) -> "PairAccuracies":
        """Average the credits of pairs."""
        return PairAccuracies(
            name=name,
            overall=GroupAccuracy.of("all", credits),
            by_phenomenon=group_accuracies([one.phenomenon for one in pairs], credits),
            by_paradigm=group_accuracies([one.paradigm for one in pairs], credits),
        )

    @property
    def paradigm_mean(self) -> float:
        """The mean accuracy of paradigms, BLiMP's overall score."""
        return float(np.mean([one.accuracy for one in self.by_paradigm]))

    def to_json(self) -> dict[str, Any]:
        """Return the accuracies as plain data."""
        return {
            "overall": self.overall.to_json(),
            "paradigm_mean": round(self.paradigm_mean, 6),
            "phenomena": [one.to_json() for one in self.by_phenomenon],
            "paradigms": [one.to_json() for one in self.by_paradigm],
        }


@dataclass(frozen=True)
class ShownPair:
    """A pair and how much more likely the good sentence is."""

    pair: MinimalPair
    margin: float
    """Log-likelihood of the good sentence minus that of the bad one, in nats."""


@dataclass(frozen=True, kw_only=True)
class PairFindings:
    """The accuracies of a network, its control and a baseline on the same pairs."""

    model: str
    data: str
    likelihood: str
    """What the likelihood of a sentence is."""
    compared: Compared | None = None
    """What differs within a pair whose sentences have contexts; None: none has one."""
    n_pairs: int
    n_pairs_in_data: int
    accuracies: tuple[PairAccuracies, ...]
    phenomenon_of: dict[str, str]
    """The phenomenon of each paradigm."""
    errors: tuple[ShownPair, ...]
    """Pairs with the largest margins of the bad sentence, of the trained network."""

    def to_json(self) -> dict[str, Any]:
        """Return the findings as plain data."""
        return {
            "model": self.model,
            "data": self.data,
            "likelihood": self.likelihood,
            "compared": self.compared,
            "n_pairs": self.n_pairs,
            "n_pairs_in_data": self.n_pairs_in_data,
            "phenomenon_of": self.phenomenon_of,
            "accuracies": {one.name: one.to_json() for one in self.accuracies},
            "errors": [vars(one.pair) | {"margin": round(one.margin, 6)} for one in self.errors],
        }


def score_pairs(
    model: Model,
    tokenizer: Tokenizer,
    pairs: Sequence[MinimalPair],
    pll_masking: PseudoLikelihoodMasking = "word",
) -> PairLikelihoods:
    """Compute the likelihood of both sentences of each pair, each after its context.

    Raises:
        ValueError: a sentence has no token, or the model gives sentences no likelihood.
        FloatingPointError: a logit is not a number.
    """
    sentences = [text for pair in pairs for text in (pair.good, pair.bad)]
    contexts = [text for pair in pairs for text in (pair.good_context, pair.bad_context)]
    found = sentence_likelihoods(
        model, tokenizer, sentences, contexts=contexts, pll_masking=pll_masking
    )
    scores = np.array([one.log_likelihood for one in found])
    lengths = np.array([one.n_tokens for one in found])
    return PairLikelihoods(scores[::2], scores[1::2], lengths[::2], lengths[1::2])


def worst_errors(
    pairs: Sequence[MinimalPair], likelihoods: PairLikelihoods, n: int
) -> tuple[ShownPair, ...]:
    """Return up to `n` pairs whose bad sentence is more likely, one of each paradigm at most."""
    margins = likelihoods.good - likelihoods.bad
    worst: dict[str, ShownPair] = {}
    for i in np.argsort(margins, kind="stable").tolist():
        if margins[i] < 0:
            worst.setdefault(pairs[i].paradigm, ShownPair(pairs[i], float(margins[i])))
    return tuple(worst.values())[:n]


def _compare(a: np.ndarray, b: np.ndarray) -> Float[np.ndarray, "n"]:
    return (a > b) + 0.5 * (a == b)
