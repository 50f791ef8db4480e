"""Pairs of words: read from a file or found in the spaces, and how well a map finds them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from unmask.text.formats.records import format_names
from unmask.text.lines import is_blank, read_lines, split_at_blanks
from unmask.word_vectors.alignment.retrieval import CSLS, Retrieval, ranks
from unmask.word_vectors.keyed_vectors import KeyedVectors

BilingualDictionary = tuple[tuple[str, str], ...]
"""Words and their translations, each pair once, in their order."""
RowPairs = Int[np.ndarray, "p 2"]
"""Rows of the source and the target."""

MAX_LINE_LENGTH = 2**16
"""Characters of a line of a dictionary."""
CHANCE_LEVEL = 1e-3
"""Significance level: the probability of as many hits by chance, below which they are
significant."""
_DIGITS = re.compile("[0-9]+")


def read_dictionary(path: Path, lowercase: bool = False) -> BilingualDictionary:
    """Read pairs of words, one a line: parted by a tab, or by white space where there is no tab.

    Raises:
        ValueError: a line has not two words, or there is none.
    """
    found = dict[tuple[str, str], None]()
    for number, line, cut in read_lines(path, MAX_LINE_LENGTH):
        if cut:
            raise ValueError(f"{path}:{number}: a line of more than {MAX_LINE_LENGTH:,} characters")
        if is_blank(line):
            continue
        line = line.lower() if lowercase else line
        words = [
            word.strip() for word in (line.split("\t") if "\t" in line else split_at_blanks(line))
        ]
        if len(words) != 2 or not all(words):
            raise ValueError(
                f"{path}:{number}: a line must be a word, a tab or a space, and its translation; "
                f"got {len([word for word in words if word])} words: {format_names([line])}"
            )
        found[words[0], words[1]] = None
    if not found:
        raise ValueError(f"{path}: no pair of words in it")
    return tuple(found)


def known_pairs(
    dictionary: BilingualDictionary, source: KeyedVectors, target: KeyedVectors
) -> tuple[BilingualDictionary, RowPairs]:
    """Keep the pairs of which both words are known, and give their rows, too.

    Raises:
        ValueError: there is none.
    """
    kept = tuple(p for p in dictionary if p[0] in source.index and p[1] in target.index)
    if not kept:
        raise ValueError(_unknown_words_error(dictionary, source, target))
    return kept, _row_pairs((source.index[one], target.index[other]) for one, other in kept)


def _unknown_words_error(
    dictionary: BilingualDictionary, source: KeyedVectors, target: KeyedVectors
) -> str:
    if not dictionary:
        return "the dictionary is empty"
    n = len(dictionary)
    sources = sum(one in source.index for one, _ in dictionary)
    targets = sum(other in target.index for _, other in dictionary)
    line = (
        f"the dictionary's {n:,} pairs have none of which both words are known: of {sources:,} the "
        f"source word is, of {targets:,} the target word, in spaces of {len(source.words):,} and "
        f"{len(target.words):,} words"
    )
    swapped = sum(o in source.index and t in target.index for t, o in dictionary)
    lowered = sum(s.lower() in source.index and t.lower() in target.index for s, t in dictionary)
    if swapped:
        return f"{line}; the other way round, {swapped:,} are: are source and target swapped?"
    return f"{line}; in lower case, {lowered:,} are" if lowered else line


def numeral_pairs(source: KeyedVectors, target: KeyedVectors) -> RowPairs:
    """Pair the words of digits alone that both spaces have (Artetxe et al. 2017, P17-1042).

    Raises:
        ValueError: there is none.
    """
    found = _shared_pairs(source, target, [w for w in source.words if _DIGITS.fullmatch(w)])
    if not len(found):
        raise ValueError("the spaces have no numeral (digits alone, as 1984) in common")
    return found


def identical_pairs(
    source: KeyedVectors, target: KeyedVectors, words: Iterable[str] | None = None
) -> RowPairs:
    """Pair the words that are written alike in both spaces; only some `words`, where given.

    Raises:
        ValueError: there is none.
    """
    found = _shared_pairs(source, target, source.words if words is None else dict.fromkeys(words))
    if not len(found):
        given = "" if words is None else "of those that were given, "
        raise ValueError(
            f"{given}the spaces have no word in common: the first are "
            f"{format_names(source.words[:3])} and {format_names(target.words[:3])}"
        )
    return found


def _shared_pairs(source: KeyedVectors, target: KeyedVectors, words: Iterable[str]) -> RowPairs:
    return _row_pairs(
        (source.index[w], target.index[w]) for w in words if w in source.index and w in target.index
    )


def _row_pairs(rows: Iterable[tuple[int, int]]) -> RowPairs:
    return np.array(list(rows), np.int64).reshape(-1, 2)


@dataclass(frozen=True, kw_only=True)
class DictionaryInductionScores:
    """Accuracy of word translation: how often a correct target is among the best retrieved words.

    A source word may have several correct targets; the best ranked one counts. Words that a space
    lacks are not errors of the map: they are counted separately.
    """

    n_evaluated: int
    """Source words, of which the space has them and one of their targets."""
    n_source_unknown: int
    """Source words that the source space lacks."""
    n_target_unknown: int
    """Source words that it has, but the target space none of their targets."""
    precision_at_1: float
    precision_at_5: float
    mean_reciprocal_rank: float
    chance_precision: float
    """Expected P@1 if the same answers were randomly permuted among the queries."""
    chance_p_value: float
    """The probability that as many are right by chance."""
    n_seed_words: int = 0
    """Number of evaluated source words that are also seeds."""

    @property
    def above_chance(self) -> bool:
        """Whether more are right than by chance."""
        return self.chance_p_value < CHANCE_LEVEL

    @property
    def n_source_words(self) -> int:
        """Source words of the dictionary."""
        return self.n_evaluated + self.n_source_unknown + self.n_target_unknown

    @property
    def coverage(self) -> float:
        """The fraction of source words that both spaces cover."""
        return self.n_evaluated / self.n_source_words


def score_dictionary(
    source: KeyedVectors,
    target: KeyedVectors,
    dictionary: BilingualDictionary,
    retrieval: Retrieval | None = None,
    seeds: RowPairs | None = None,
) -> DictionaryInductionScores:
    """Score a mapped source space by a dictionary: P@1, P@5, mean reciprocal rank.

    Args:
        source: source space, mapped into the target space.
        target: space in which the nearest words are retrieved.
        dictionary: source words and their correct targets.
        retrieval: retrieval method. Default: CSLS with k = 10.
        seeds: pairs that the map was trained on; evaluated words among them are counted.

    Raises:
        ValueError: there is no pair of which both words are known, or there are fewer words than
            `retrieval` needs.
    """
    _, pairs = known_pairs(dictionary, source, target)
    right = dict[int, list[int]]()
    for one, other in pairs.tolist():
        right.setdefault(one, []).append(other)
    asked = np.array(list(right), np.int64)
    measure = (retrieval or CSLS()).adjustment(source.unit_vectors, target.unit_vectors, asked)
    rank, first = ranks(
        source.unit_vectors[asked], target.unit_vectors, list(right.values()), measure
    )
    words = {one for one, _ in dictionary}
    unknown = sum(one not in source.index for one in words)
    chance = _chance_precision(list(right.values()), first)
    hits = int(np.count_nonzero(rank == 1))
    return DictionaryInductionScores(
        n_evaluated=len(asked),
        n_source_unknown=unknown,
        n_target_unknown=len(words) - unknown - len(asked),
        precision_at_1=hits / len(asked),
        precision_at_5=float((rank <= 5).mean()),
        mean_reciprocal_rank=float((1 / rank).mean()),
        chance_precision=chance,
        chance_p_value=_binomial_tail(hits, len(asked), chance),
        n_seed_words=0 if seeds is None else int(np.isin(asked, seeds[:, 0]).sum()),
    )


def _chance_precision(right: Sequence[Sequence[int]], found: Int[np.ndarray, "q"]) -> float:
    times = Counter(found.tolist())
    return sum(times[target] for targets in right for target in targets) / len(right) ** 2


def _binomial_tail(hits: int, asked: int, rate: float) -> float:
    """Compute the probability of `hits` or more successes in `asked` trials: a binomial tail."""
    from math import exp, fsum, lgamma, log, log1p

    if hits == 0 or rate >= 1:
        return 1.0

    def terms() -> Iterator[float]:
        for k in range(hits, asked + 1):
            ways = lgamma(asked + 1) - lgamma(k + 1) - lgamma(asked - k + 1)
            others = (asked - k) * log1p(-rate)
            yield exp(ways + k * log(rate) + others)

    return min(1.0, fsum(terms()))
