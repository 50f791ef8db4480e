"""METEOR of 2005: words matched exactly or by their stems, recall above precision, few chunks.

Banerjee and Lavie 2005, aclanthology.org/W05-0909, section 2.2.

Deviates: synonyms of WordNet, the third stage of matching, are left out. Later versions, such as
METEOR 1.5 of coco-caption, also match paraphrases, weigh function words less and have parameters
fitted to people's judgments: their values are not comparable with these.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from unmask.tasks.metrics.captioning.words import caption_words, porter_stem
from unmask.tasks.metrics.generation import References, check_references

_RECALL_WEIGHT = 9.0
_PENALTY_FACTOR, _PENALTY_EXPONENT = 0.5, 3
_BEAM = 32  # alignments kept after each word; captions have few words that occur twice

Link = tuple[int, int]
"""Positions of a matched word: in the text, and in the reference."""


@dataclass(frozen=True, kw_only=True)
class MeteorCounts:
    """What METEOR counts in a text and a reference, or in several."""

    n_matches: int = 0
    n_chunks: int = 0
    """Runs of matches that are adjacent, in the same order, in text and reference."""
    n_words: int = 0
    n_reference_words: int = 0

    def __add__(self, other: "MeteorCounts") -> "MeteorCounts":
        """Add the counts of other texts."""
        return MeteorCounts(
            n_matches=self.n_matches + other.n_matches,
            n_chunks=self.n_chunks + other.n_chunks,
            n_words=self.n_words + other.n_words,
            n_reference_words=self.n_reference_words + other.n_reference_words,
        )

    @property
    def score(self) -> float:
        """METEOR: 10 P R / (R + 9 P) (1 - 0.5 (chunks / matches)³); 0 without matches.

        P is the share of matched words of the texts, R that of the references.
        """
        if not self.n_matches:
            return 0.0
        p, r = self.n_matches / self.n_words, self.n_matches / self.n_reference_words
        mean = (1 + _RECALL_WEIGHT) * p * r / (r + _RECALL_WEIGHT * p)
        fragments = self.n_chunks / self.n_matches
        return mean * (1 - _PENALTY_FACTOR * fragments**_PENALTY_EXPONENT)


def meteor(labels: References, predictions: Sequence[str]) -> float:
    """Compute METEOR of a corpus, from 0 to 1; 0 without texts.

    The formula is applied to the sums of counts, of each text those beside its best reference.

    Args:
        labels: the references of each text, in English.
        predictions: the texts.

    Raises:
        ImportError: NLTK, which has the stems, is not installed.
        ValueError: a text has no reference.
    """
    return sum(_best_counts(labels, predictions), MeteorCounts()).score


def meteor_scores(labels: References, predictions: Sequence[str]) -> Float[np.ndarray, "n"]:
    """Compute METEOR of each text: the highest over its references; see `meteor`.

    Raises:
        ImportError: NLTK, which has the stems, is not installed.
        ValueError: a text has no reference.
    """
    return np.array([counts.score for counts in _best_counts(labels, predictions)], np.float64)


def meteor_counts(reference: Sequence[str], words: Sequence[str]) -> MeteorCounts:
    """Count matches and chunks of a text's words beside a reference's.

    Raises:
        ImportError: NLTK, which has the stems, is not installed.
    """
    links = align_words(reference, words)
    starts = [link for link in links if (link[0] - 1, link[1] - 1) not in links]
    return MeteorCounts(
        n_matches=len(links),
        n_chunks=len(starts),
        n_words=len(words),
        n_reference_words=len(reference),
    )


def align_words(reference: Sequence[str], words: Sequence[str]) -> set[Link]:
    """Match words with those of a reference: first equal ones, then those of equal stems.

    Each stage matches as many of the remaining words as it can. Of all ways to do so, that with the
    fewest crossing pairs of matches is chosen, those of the earlier stage included, of equal ones
    that with the fewest chunks. Deviates: of texts in which many words recur, a beam search may
    miss it.

    Raises:
        ImportError: NLTK, which has the stems, is not installed.
    """
    links = dict[int, int]()
    for stage in (str, porter_stem):
        matched = set(links.values())
        links = _Stage.of(
            {j: stage(word) for j, word in enumerate(reference) if j not in matched},
            {i: stage(word) for i, word in enumerate(words) if i not in links},
            links,
        ).extend(len(words))
    return set(links.items())


@dataclass(frozen=True, kw_only=True)
class _Alignment:
    """The links of the words of a text up to some position."""

    crossings: int = 0
    chunks: int = 0
    used: int = 0
    """Bit mask of the reference's linked positions."""
    links: tuple[Link, ...] = ()

    def link(self, i: int, j: int) -> "_Alignment":
        begins = not self.links or self.links[-1] != (i - 1, j - 1)
        return _Alignment(
            crossings=self.crossings + (self.used >> j).bit_count(),
            chunks=self.chunks + begins,
            used=self.used | 1 << j,
            links=(*self.links, (i, j)),
        )


@dataclass(frozen=True)
class _Stage:
    """A stage of matching: words and reference words that are free, by what has to be equal."""

    keys: Mapping[int, str]
    positions: Mapping[str, Sequence[int]]
    """Positions of each key in the reference, ascending."""
    links: Mapping[int, int]
    """Links of earlier stages."""

    @staticmethod
    def of(
        reference: Mapping[int, str], words: Mapping[int, str], links: Mapping[int, int]
    ) -> "_Stage":
        positions = dict[str, list[int]]()
        for j, key in reference.items():
            positions.setdefault(key, []).append(j)
        return _Stage({i: k for i, k in words.items() if k in positions}, positions, links)

    def extend(self, n_words: int) -> dict[int, int]:
        """Return the links with those of this stage."""
        beam, left = [_Alignment()], Counter(self.keys.values())
        needed = {key: min(n, len(self.positions[key])) for key, n in left.items()}
        for i in range(n_words):
            if i in self.links:
                beam = [one.link(i, self.links[i]) for one in beam]
            elif (key := self.keys.get(i)) is not None:
                left[key] -= 1
                found = [
                    new
                    for one in beam
                    for new in self._choices(one, i, self.positions[key], needed[key], left[key])
                ]
                beam = sorted(found, key=lambda one: (one.crossings, one.chunks))[:_BEAM]
        return dict(beam[0].links)

    @staticmethod
    def _choices(
        one: _Alignment, i: int, positions: Sequence[int], needed: int, left: int
    ) -> Iterator[_Alignment]:
        """Link a word, or leave it out, so that all `needed` words of its key can be linked.

        Equal words are linked in order: exchanging two of them never adds a crossing.
        """
        linked = [n for n, j in enumerate(positions) if one.used >> j & 1]
        missing = needed - len(linked)
        if missing:
            for n in range(linked[-1] + 1 if linked else 0, len(positions) - missing + 1):
                yield one.link(i, positions[n])
        if left >= missing:
            yield one


def _best_counts(labels: References, predictions: Sequence[str]) -> Iterator[MeteorCounts]:
    check_references(labels, predictions)
    for texts, prediction in zip(labels, predictions, strict=True):
        words = caption_words(prediction)
        yield max(
            (meteor_counts(caption_words(text), words) for text in texts),
            key=lambda counts: counts.score,
        )
