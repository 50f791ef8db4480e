"""The spans that probes label: tokens, words and labels of each."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.analysis.probes.features import WordFeatures
from unmask.analysis.probes.spans.pooling import SpanFeatures, SpanTokens, ranges
from unmask.analysis.probes.spans.targets import SentenceTargets


@dataclass(frozen=True)
class ProbedSpans:
    """Spans of some sentences with features and labels."""

    features: WordFeatures
    """Of the tokens: a row for each, several for a word."""
    token_ranges: tuple[Int[np.ndarray, "n 2"], ...]
    """Of the span, or of both, of each row: first token, and the one after the last."""
    words: tuple[tuple[tuple[str, ...], ...], ...]
    """The words of each span of each row."""
    labels: tuple[str, ...]
    """The label of each row."""

    @classmethod
    def of_sentences(
        cls,
        features: WordFeatures,
        sentences: Sequence[Sequence[str]],
        targets: Sequence[SentenceTargets],
    ) -> "ProbedSpans":
        """Find the tokens of the targets of sentences; those of skipped sentences have no row.

        Args:
            features: of the tokens of these sentences; see `features.token_features`.
            sentences: words.
            targets: of each sentence.

        Raises:
            ValueError: no sentence with features has a target.
        """
        places = list(zip(features.sentences.tolist(), features.words.tolist(), strict=True))
        end = {place: row + 1 for row, place in enumerate(places)}
        first = {place: row for row, place in reversed(list(enumerate(places)))}
        rows = [
            (int(sentence), target)
            for sentence in np.unique(features.sentences)
            for target in targets[int(sentence)]
        ]
        if not rows:
            raise ValueError(f"no spans to probe in {len(sentences):,} sentences")
        found = [
            [(first[sentence, a], end[sentence, b - 1]) for a, b in target.spans]
            for sentence, target in rows
        ]
        words = [
            tuple(tuple(sentences[sentence][a:b]) for a, b in target.spans)
            for sentence, target in rows
        ]
        return cls(
            features,
            tuple(np.array(one) for one in zip(*found, strict=True)),
            tuple(words),
            tuple(target.label for _, target in rows),
        )

    @property
    def word_types(self) -> tuple[str, ...]:
        """The words of the first span of each row: what a control task labels."""
        return tuple(" ".join(spans[0]) for spans in self.words)

    def inputs(self, states: Float[Tensor, "l t d"]) -> SpanFeatures:
        """Return what a probe reads, of states of all tokens."""
        spans: list[SpanTokens] = []
        for one in self.token_ranges:
            starts, ends = torch.from_numpy(one).unbind(1)
            spans.append(SpanTokens(states[:, ranges(starts, ends - starts)], ends - starts))
        return SpanFeatures(tuple(spans))


def word_vote_accuracy(train: ProbedSpans, test: ProbedSpans) -> float:
    """Return the accuracy on test of the label that the words of a row's spans vote for.

    A word's vote is the distribution of the training labels of spans that have it, by whether it is
    in the first span or the second; of spans of one word, the label is the most frequent one of the
    word. If training has seen none of the words: the most frequent label of all.
    """
    every = Counter(train.labels)
    by_word: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
    for spans, label in zip(train.words, train.labels, strict=True):
        for word in {(role, word) for role, span in enumerate(spans) for word in span}:
            by_word[word][label] += 1
    right = 0
    for spans, label in zip(test.words, test.labels, strict=True):
        votes: dict[str, float] = defaultdict(float)
        for counts in [by_word[i, w] for i, s in enumerate(spans) for w in s if (i, w) in by_word]:
            for name, count in counts.items():
                votes[name] += count / counts.total()
        # of equal votes, the more frequent label of all, then the first by name
        chosen = min(votes or every, key=lambda name: (-votes.get(name, 0), -every[name], name))
        right += chosen == label
    return right / len(test.labels)
