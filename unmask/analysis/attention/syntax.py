"""Heads against dependency relations: Clark et al. 2019, arXiv:1906.04341, section 4.2."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.stats import binomtest
from torch import Tensor

from unmask.analysis.attention.sentences import HeadName, SentenceMaps
from unmask.analysis.dependencies import DependencyTree

Direction = Literal["dependent to head", "head to dependent"]
"""Which of the two attends: the dependent to its head; or the head, whose most attentive word is
taken for it."""
DIRECTIONS: tuple[Direction, ...] = ("dependent to head", "head to dependent")
ALL_RELATIONS = "all"
OFFSETS = tuple(offset for offset in range(-10, 11) if offset)
"""Distances of the baseline from a word to its head. 1: the next word."""
SIGNIFICANCE = 0.05
"""Level of the test that a head beats an offset."""


@dataclass(frozen=True)
class HeadPredictions:
    """Whether each head finds the head of each scored word, and each offset does."""

    relations: tuple[str, ...]
    """Relation of each scored word."""
    by_head: Bool[np.ndarray, "2 k n"]
    """For both `DIRECTIONS`."""
    by_offset: Bool[np.ndarray, "o n"]

    def of_relation(self, relation: str) -> Bool[np.ndarray, "n"]:
        """Return which words have a relation."""
        if relation == ALL_RELATIONS:
            return np.ones(len(self.relations), bool)
        return np.array([one == relation for one in self.relations], bool)


@dataclass(frozen=True, kw_only=True)
class RelationScore:
    """The best head of a relation beside the best offset; both are chosen on other sentences."""

    relation: str
    n_words: int
    head: HeadName
    direction: Direction
    accuracy: float
    offset: int
    offset_accuracy: float
    p_value: float
    """Of an exact one-sided McNemar test (on words where only one of the two is right)."""
    adjusted_p_value: float
    """After Holm's correction (1979) for the number of relations."""

    @property
    def beats_offset(self) -> bool:
        """Whether the head is better than the offset, at the level of `SIGNIFICANCE`."""
        return self.adjusted_p_value < SIGNIFICANCE


@dataclass(frozen=True, kw_only=True)
class SyntaxScores:
    """Accuracy of each head at each relation, and the best of each relation."""

    heads: tuple[HeadName, ...]
    relations: tuple[str, ...]
    """The first is all of them."""
    accuracies: Float[np.ndarray, "2 k r"]
    """On the test sentences, for both `DIRECTIONS`."""
    best: tuple[RelationScore, ...]
    """One for each relation."""

    @property
    def n_above_offset(self) -> int:
        """Number of relations, all of them apart, whose best head beats the best offset."""
        return sum(one.beats_offset for one in self.best if one.relation != ALL_RELATIONS)


def predict_heads(
    trees: Sequence[DependencyTree], sentences: Iterable[SentenceMaps]
) -> HeadPredictions:
    """Compare the word to which each word attends most with its head in the tree.

    Special tokens and the word itself are left out (released code). A word that attends to no other
    word has no prediction.

    Raises:
        ValueError: no word has a head.
    """
    relations: list[str] = []
    by_head: list[Tensor] = []
    by_offset: list[np.ndarray] = []
    for one in sentences:
        tree = trees[one.index]
        words = one.words
        scored = tree.scored
        wanted = torch.tensor([tree.heads[i] for i in scored], dtype=torch.long)
        predicted = torch.stack([most_attended(words), most_attended(words.mT)])  # [2 k w]
        by_head.append(predicted[:, :, scored] == wanted)
        by_offset.append(
            np.array([[tree.heads[i] - i == o for i in scored] for o in OFFSETS], bool)
        )
        relations += [tree.relations[i] for i in scored]
    if not relations:
        raise ValueError("no word of these sentences has a head: every tree is a root alone")
    return HeadPredictions(
        tuple(relations), torch.cat(by_head, 2).numpy(), np.concatenate(by_offset, 1)
    )


def most_attended(maps: Float[Tensor, "k w w"]) -> Int[Tensor, "k w"]:
    """Return the other word with the largest weight in each row; -1 if none has any."""
    others = maps.clone()
    others.diagonal(dim1=1, dim2=2).zero_()
    largest, index = others.max(-1)
    return torch.where(largest > 0, index, -1)


def frequent_relations(
    train: HeadPredictions, test: HeadPredictions, n: int, min_count: int
) -> tuple[str, ...]:
    """Return the relations most frequent in `test`, with at least `min_count` words in both.

    The first is `ALL_RELATIONS`.
    """
    known, counts = Counter(train.relations), Counter(test.relations)
    enough = [name for name, count in counts.most_common() if min(count, known[name]) >= min_count]
    return (ALL_RELATIONS, *enough[:n])


def score_relations(
    heads: Sequence[HeadName],
    train: HeadPredictions,
    test: HeadPredictions,
    relations: Sequence[str],
) -> SyntaxScores:
    """Choose head, direction and offset of each relation on `train`, and score them on `test`."""
    accuracies = np.stack(
        [test.by_head[:, :, test.of_relation(one)].mean(2) for one in relations], 2
    )
    best = [_score_relation(heads, train, test, one) for one in relations]
    adjusted = adjust_p_values([one.p_value for one in best if one.relation != ALL_RELATIONS])
    by_relation = dict(zip([r for r in relations if r != ALL_RELATIONS], adjusted, strict=True))
    return SyntaxScores(
        heads=tuple(heads),
        relations=tuple(relations),
        accuracies=accuracies,
        best=tuple(
            replace(one, adjusted_p_value=by_relation.get(one.relation, one.p_value))
            for one in best
        ),
    )


def adjust_p_values(p_values: Sequence[float]) -> list[float]:
    """Return p-values after the step-down correction of Holm (1979) for several tests.

    ```python
    >>> adjust_p_values([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]

    ```
    """
    order = np.argsort(p_values)
    factors = len(p_values) - np.arange(len(p_values))
    steps = np.maximum.accumulate(np.array(p_values)[order] * factors)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(steps, 1)
    return adjusted.tolist()


def _score_relation(
    heads: Sequence[HeadName], train: HeadPredictions, test: HeadPredictions, relation: str
) -> RelationScore:
    chosen, scored = train.of_relation(relation), test.of_relation(relation)
    n_right = train.by_head[:, :, chosen].sum(2)
    direction, k = divmod(int(n_right.argmax()), n_right.shape[1])
    offset = int(train.by_offset[:, chosen].sum(1).argmax())
    ours = test.by_head[direction, k, scored]
    baseline = test.by_offset[offset, scored]
    only_ours, only_baseline = int((ours & ~baseline).sum()), int((~ours & baseline).sum())
    differing = only_ours + only_baseline
    p_value = binomtest(only_ours, differing, alternative="greater").pvalue if differing else 1.0
    return RelationScore(
        relation=relation,
        n_words=int(scored.sum()),
        head=heads[k],
        direction=DIRECTIONS[direction],
        accuracy=float(ours.mean()),
        offset=OFFSETS[offset],
        offset_accuracy=float(baseline.mean()),
        p_value=float(p_value),
        adjusted_p_value=float(p_value),
    )
