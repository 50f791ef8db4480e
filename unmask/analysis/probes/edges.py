"""Edge probing of two words: features and labels of a word with its head.

Tenney et al. 2019, arXiv:1905.06316, section 3, with spans of one word.
"""

from collections.abc import Sequence

import numpy as np
import torch

from unmask.analysis.dependencies import PUNCTUATION_RELATION, DependencyTree
from unmask.analysis.probes.features import WordFeatures
from unmask.analysis.probes.layers import ProbedWords


def relation_words(features: WordFeatures, trees: Sequence[DependencyTree]) -> ProbedWords:
    """Return a row for each word with a head: both vectors, [h_word; h_head], and the relation.

    Punctuation has no row, as in scores of parsers; nor has a word whose vector or whose head's
    vector is missing. The word type of a row is the dependent's: what a control task labels.

    Deviates: the paper projects each vector first, which a probe's first layer does as well.

    Raises:
        ValueError: there is no such word.
    """
    row_of = {
        place: row
        for row, place in enumerate(
            zip(features.sentences.tolist(), features.words.tolist(), strict=True)
        )
    }
    edges = [
        (row_of[sentence, word], row_of[sentence, trees[sentence].heads[word]])
        for sentence in np.unique(features.sentences).tolist()
        for word in trees[sentence].scored
        if {(sentence, word), (sentence, trees[sentence].heads[word])} <= row_of.keys()
    ]
    if not edges:
        raise ValueError("no word has a head: sentences of one word, or punctuation only")
    rows = np.array([row for row, _ in edges])
    dependents = torch.from_numpy(rows)
    heads = torch.tensor([head for _, head in edges])
    paired = WordFeatures(
        tuple(torch.cat((x[dependents], x[heads]), 1) for x in features.layers),
        features.sentences[rows],
        features.words[rows],
        features.n_skipped,
    )
    return ProbedWords(
        paired,
        tuple(paired.select([tree.words for tree in trees])),
        tuple(paired.select([tree.relations for tree in trees])),
    )


def words_without_punctuation(tree: DependencyTree) -> tuple[bool, ...]:
    """Return which words of a tree are no punctuation, by their relation; the root is one."""
    return tuple(name.partition(":")[0] != PUNCTUATION_RELATION for name in tree.relations)
