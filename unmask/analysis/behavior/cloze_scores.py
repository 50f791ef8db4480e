"""How often a network gives the right answer in a blank, among answers and among all tokens."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from unmask.analysis.behavior.accuracy import GroupAccuracy, group_accuracies
from unmask.analysis.behavior.blanks import AnswerMasking, ClozeItem, choice_likelihoods
from unmask.evaluation.answer_methods import choice_credit
from unmask.heads.model import Model
from unmask.tokenizers.encode import Tokenizer

_DECIMALS = 6


@dataclass(frozen=True, kw_only=True)
class ClozeAccuracies:
    """The accuracy of a network or baseline in the blanks of texts."""

    name: str
    """trained, random: the same network with random weights, or frequent: the answer that is most
    often right in other items of the group."""
    overall: GroupAccuracy
    by_group: tuple[GroupAccuracy, ...]
    first_by_group: tuple[GroupAccuracy, ...] | None
    """Share of items whose right answer is the most likely of all tokens, at each of its places;
    None where there is no such distribution."""

    @property
    def group_mean(self) -> float:
        """The mean accuracy of groups."""
        return float(np.mean([one.accuracy for one in self.by_group]))

    @property
    def first_mean(self) -> float | None:
        """The mean over groups of the share of right answers that are first of all tokens."""
        if self.first_by_group is None:
            return None
        return float(np.mean([one.accuracy for one in self.first_by_group]))

    @staticmethod
    def of(
        name: str,
        items: Sequence[ClozeItem],
        credits: Float[np.ndarray, "n"],
        first: Float[np.ndarray, "n"] | None = None,
    ) -> "ClozeAccuracies":
        """Average the credits of items."""
        groups = [one.group for one in items]
        return ClozeAccuracies(
            name=name,
            overall=GroupAccuracy.of("all", credits),
            by_group=group_accuracies(groups, credits),
            first_by_group=None if first is None else group_accuracies(groups, first),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the accuracies as plain data."""
        first = self.first_by_group
        return {
            "overall": self.overall.to_json(),
            "group_mean": round(self.group_mean, _DECIMALS),
            "groups": [one.to_json() for one in self.by_group],
            "first_mean": None if self.first_mean is None else round(self.first_mean, _DECIMALS),
            "first_groups": None if first is None else [one.to_json() for one in first],
        }


@dataclass(frozen=True, kw_only=True)
class ClozeFindings:
    """The accuracies of a network, its control and a baseline on the same texts."""

    model: str
    data: str
    are_facts: bool
    n_items: int
    n_in_data: int
    n_too_long: int
    """Texts longer than the model's positions, left out."""
    n_several_tokens: int
    """Of facts: those left out because their object is not one token, or the only such one of its
    relation. Of multiple choice: scored texts with an answer of several tokens."""
    accuracies: tuple[ClozeAccuracies, ...]
    chance: tuple[float, ...]
    """Of each group, the mean of 1 / number of answers."""
    overall_chance: float

    def to_json(self) -> dict[str, Any]:
        """Return the findings as plain data."""
        facts = {
            name: value
            for name, value in vars(self).items()
            if name not in ("accuracies", "chance", "overall_chance")
        }
        groups = [one.name for one in self.accuracies[0].by_group]
        rounded = [round(one, _DECIMALS) for one in self.chance]
        return facts | {
            "chance": dict(zip(groups, rounded, strict=True)),
            "overall_chance": round(self.overall_chance, _DECIMALS),
            "accuracies": {one.name: one.to_json() for one in self.accuracies},
        }


def score_cloze(
    name: str,
    model: Model,
    tokenizer: Tokenizer,
    items: Sequence[ClozeItem],
    *,
    are_facts: bool,
    answer_masking: AnswerMasking = "answer",
) -> ClozeAccuracies:
    """Score a network: the answer of the highest likelihood is taken, ties count in equal parts.

    A decoder reads the text before the blank only where facts are asked (Petroni et al. 2019,
    arXiv:1909.01066, section 4.2), and scores the whole text where answers differ by what follows.

    Raises:
        ValueError: the model has no language head or no blank, or a text is too long.
        FloatingPointError: a logit is not a number.
    """
    found = choice_likelihoods(
        model, tokenizer, items, reads_on=not are_facts, answer_masking=answer_masking
    )
    credits = [
        choice_credit([one.log_likelihood for one in scores], item.target)
        for item, scores in zip(items, found, strict=True)
    ]
    first = [
        float(scores[item.target].is_greedy) for item, scores in zip(items, found, strict=True)
    ]
    whole_texts = model.predicts_next_token and not model.architecture.is_encoder_decoder
    return ClozeAccuracies.of(
        name,
        items,
        np.array(credits, np.float64),
        None if whole_texts and not are_facts else np.array(first, np.float64),
    )


def score_most_frequent(items: Sequence[ClozeItem]) -> ClozeAccuracies:
    """Score the baseline that takes the answer that is most often right elsewhere in its group.

    Items at even places of a group are answered by those at odd places, and the reverse: an answer
    that is right once is no evidence for itself.
    """
    places: Counter[str] = Counter()
    halves: list[int] = []
    counts: dict[tuple[str, int], Counter[str]] = {}
    for item in items:
        half = places[item.group] % 2
        places[item.group] += 1
        halves.append(half)
        counts.setdefault((item.group, half), Counter())[item.choices[item.target]] += 1
    credits: list[float] = []
    for item, half in zip(items, halves, strict=True):
        other = counts.get((item.group, 1 - half), Counter())
        credits.append(choice_credit([float(other[c]) for c in item.choices], item.target))
    return ClozeAccuracies.of("frequent", items, np.array(credits, np.float64))


def chance_by_group(items: Sequence[ClozeItem]) -> tuple[tuple[float, ...], float]:
    """Return the accuracy of guessing in each group, and overall."""
    each = np.array([1 / len(item.choices) for item in items])
    groups = group_accuracies([item.group for item in items], each)
    return tuple(one.accuracy for one in groups), float(each.mean())
