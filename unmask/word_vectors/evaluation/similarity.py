"""What vectors of words are worth by themselves: people's judgements of pairs, and analogies.

Pairs of words with a score each, which cosines should rank as people did; questions "a is to b as c
is to ?", which 3CosAdd and 3CosMul should answer with d (Mikolov et al. 2013, arXiv 1301.3781; Levy
and Goldberg 2014, W14-1618).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from jaxtyping import Float, Int

from unmask.config import check_word
from unmask.text.formats.decompress import COMPRESSIONS
from unmask.text.lines import EncodingErrors, is_blank, read_lines, split_at_blanks
from unmask.word_vectors.keyed_vectors import COS_MUL_EPSILON, KeyedVectors

CaseHandling = Literal["auto", "keep", "lower"]
"""Words of a file as they are or in lower case; "auto": in lower case where all of a space are."""

_MAX_LINE_LENGTH = 2**20  # characters of a line
_MAX_UPPERCASE_SHARE = (
    0.001  # share of words with upper case in a space that has none but in odd names
)
_BLOCK, _QUESTIONS_PER_BLOCK = (
    2**12,
    2**8,
)  # words and questions in one block: 4 MB
_FORMATS = (
    "word pairs are 'word1 word2 score', analogies are four words a line behind a line ': section'"
)

AnalogyWords = tuple[str, str, str, str]


@dataclass(frozen=True, kw_only=True)
class WordSimilarityTest:
    """Pairs of words, each with how alike people find them."""

    name: str
    pairs: tuple[tuple[str, str], ...]
    scores: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class AnalogyTest:
    """Analogies in sections: a is to b as c is to d."""

    name: str
    sections: tuple[tuple[str, tuple[AnalogyWords, ...]], ...]


@dataclass(frozen=True, kw_only=True)
class WordSimilarityScore:
    """How well cosines rank pairs of words.

    `spearman` is the rank correlation over the pairs of which both words are known, ties averaged;
    in `spearman_all` unknown pairs have the cosine of vectors composed of the words' parts, where
    the space composes them, else the mean cosine of the known ones. None: it is not defined, for
    want of two different values.
    """

    name: str
    n_pairs: int
    n_known: int
    spearman: float | None
    spearman_all: float | None
    lowercased: bool  # the file's words were put in lower case


@dataclass(frozen=True)
class AnalogyCounts:
    """Questions of a section or of several: all, those whose four words are known, those right."""

    name: str
    n_questions: int
    n_known: int
    n_correct_add: int
    n_correct_multiply: int

    @property
    def accuracy_add(self) -> float | None:
        """The share of known questions that 3CosAdd answers; None if there are none."""
        return self.n_correct_add / self.n_known if self.n_known else None

    @property
    def accuracy_multiply(self) -> float | None:
        """The share of known questions that 3CosMul answers; None if there are none."""
        return self.n_correct_multiply / self.n_known if self.n_known else None

    @property
    def syntactic(self) -> bool:
        """Whether it tests morphology: Mikolov's sections "gram1-adjective-..."."""
        return self.name.startswith("gram")


@dataclass(frozen=True, kw_only=True)
class AnalogyScore:
    """How many questions are answered, by section."""

    name: str
    sections: tuple[AnalogyCounts, ...]
    lowercased: bool
    restrict_vocab: int  # words that could be an answer

    @property
    def total(self) -> AnalogyCounts:
        """All questions."""
        return _total("total", self.sections)

    @property
    def semantic(self) -> AnalogyCounts:
        """Those of the sections whose name does not begin with "gram"."""
        return _total("semantic", [one for one in self.sections if not one.syntactic])

    @property
    def syntactic(self) -> AnalogyCounts:
        """Those of the sections whose name begins with "gram"."""
        return _total("syntactic", [one for one in self.sections if one.syntactic])


def read_word_vector_test(
    path: str | Path, errors: EncodingErrors = "strict"
) -> WordSimilarityTest | AnalogyTest:
    """Read a file of word pairs or of analogies; what it is, it says itself.

    Pairs are "word1 word2 score" with tabs or spaces between (commas in .csv), with or without a
    header. Analogies are in the format of `questions-words.txt`: a line ": name" begins a section,
    any other is four words. Lines that begin with "#" and are neither are passed over.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is neither, or a line does not fit.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    name = path.name
    while Path(name).suffix.lower() in (*COMPRESSIONS, ".txt", ".tsv", ".csv"):
        name = Path(name).stem
    rows = list(_rows(path, errors))
    if not rows:
        raise ValueError(f"{path}: empty; {_FORMATS}")
    if rows[0][1][0].startswith(":"):
        return AnalogyTest(name=name, sections=_sections(path, rows))
    return _pairs(path, name, rows)


def evaluate_word_similarity(
    space: KeyedVectors,
    test: WordSimilarityTest,
    *,
    case: CaseHandling = "auto",
    unknown_cosine: float | None = None,
) -> WordSimilarityScore:
    """Correlate the cosines of pairs with their scores.

    Args:
        space: the vectors.
        test: pairs and scores.
        case: whether words of the file are lowercased.
        unknown_cosine: the cosine that unknown pairs have in `spearman_all` if their vectors cannot
            be composed; None: the mean of the known ones.
    """
    lowered = uses_lower_case(space, case)
    rows = [tuple(_row(space, word, lowered) for word in pair) for pair in test.pairs]
    known = np.array([None not in pair for pair in rows])
    cosines = np.zeros(len(rows))
    at = np.array([pair for pair in rows if None not in pair], dtype=np.int64).reshape(-1, 2)
    one, other = (_unit(space, at[:, side]).astype(np.float64) for side in (0, 1))
    cosines[known] = (one * other).sum(1)
    if not known.all():
        mean = float(cosines[known].mean()) if known.any() else 0.0
        cosines[~known] = mean if unknown_cosine is None else unknown_cosine
        for i in np.flatnonzero(~known):
            pair = [word.lower() if lowered else word for word in test.pairs[i]]
            if all(space.has_vector(word) for word in pair):
                cosines[i] = space.cosine(*pair)
    scores = np.array(test.scores)
    return WordSimilarityScore(
        name=test.name,
        n_pairs=len(rows),
        n_known=int(known.sum()),
        spearman=_spearman(cosines[known], scores[known]),
        spearman_all=_spearman(cosines, scores),
        lowercased=lowered,
    )


def evaluate_analogies(
    space: KeyedVectors,
    test: AnalogyTest,
    *,
    case: CaseHandling = "auto",
    restrict_vocab: int | None = None,
) -> AnalogyScore:
    """Answer analogies by 3CosAdd and 3CosMul, excluding the three words of each question.

    Args:
        space: the vectors.
        test: the analogies.
        case: whether words of the file are lowercased.
        restrict_vocab: number of words, from the first, that are known and can be answers.
    """
    space = space if restrict_vocab is None else space.most_frequent(restrict_vocab)
    lowered = uses_lower_case(space, case)
    asked: list[list[int]] = []
    sections: list[int] = []
    for number, (_, questions) in enumerate(test.sections):
        for question in questions:
            rows = [_row(space, word, lowered) for word in question]
            if None not in rows:
                asked.append([row for row in rows if row is not None])
                sections.append(number)
    rows = np.array(asked, dtype=np.int64).reshape(-1, 4)
    answers = _answer_rows(space, rows[:, :3])
    section = np.array(sections, dtype=np.int64)
    n_sections = len(test.sections)
    known, add, multiply = (
        np.bincount(section[chosen], minlength=n_sections).tolist()
        for chosen in (slice(None), *(found == rows[:, 3] for found in answers))
    )
    tallies = [
        AnalogyCounts(name, len(questions), known[i], add[i], multiply[i])
        for i, (name, questions) in enumerate(test.sections)
    ]
    return AnalogyScore(
        name=test.name, sections=tuple(tallies), lowercased=lowered, restrict_vocab=len(space)
    )


def is_lower_case(space: KeyedVectors) -> bool:
    """Return whether a space is lowercase, except special tokens and one word in a thousand."""
    upper = sum(word != word.lower() and word[:1] not in "<[" for word in space.words)
    return upper <= _MAX_UPPERCASE_SHARE * len(space)


def _rows(path: Path, errors: EncodingErrors) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and fields of each line that is not a comment."""
    stem = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    commas = stem.suffix.lower() == ".csv"
    for number, line, goes_on in read_lines(path, _MAX_LINE_LENGTH, errors):
        if goes_on:
            raise ValueError(
                f"{path}:{number}: a line of more than {_MAX_LINE_LENGTH:,} characters"
            )
        if is_blank(line):
            continue
        if line.startswith(":"):
            yield number, [":", line[1:].strip()]
            continue
        separator = "," if commas else "\t" if "\t" in line else ""
        found = line.split(separator) if separator else split_at_blanks(line)
        fields = [field.strip() for field in found]
        if not line.startswith("#") or _is_row(fields):
            yield number, fields


def _is_row(fields: Sequence[str]) -> bool:
    return len(fields) == 4 or (len(fields) == 3 and _number(fields[2]) is not None)


def _number(field: str) -> float | None:
    try:
        return float(field)
    except ValueError:
        return None


def _sections(
    path: Path, rows: Sequence[tuple[int, list[str]]]
) -> tuple[tuple[str, tuple[AnalogyWords, ...]], ...]:
    found: list[tuple[str, list[AnalogyWords]]] = []
    for number, fields in rows:
        if fields[0] == ":":
            found.append((fields[1], []))
        elif len(fields) == 4:
            a, b, c, d = fields
            found[-1][1].append((a, b, c, d))
        else:
            raise ValueError(
                f"{path}:{number}: an analogy must be four words, got {len(fields)}: "
                f"{' '.join(fields)[:60]!r}"
            )
    if not any(questions for _, questions in found):
        raise ValueError(f"{path}: no question in its sections")
    return tuple((name, tuple(questions)) for name, questions in found)


def _pairs(path: Path, name: str, rows: Sequence[tuple[int, list[str]]]) -> WordSimilarityTest:
    pairs: list[tuple[str, str]] = []
    scores: list[float] = []
    for i, (number, fields) in enumerate(rows):
        if len(fields) != 3:
            raise ValueError(
                f"{path}:{number}: {len(fields)} fields, {' '.join(fields)[:60]!r}, where "
                f"{_FORMATS}"
            )
        score = _number(fields[2])
        if score is None and i == 0:
            continue  # a header
        if score is None or not math.isfinite(score):
            raise ValueError(f"{path}:{number}: {fields[2][:60]!r} is no score of two words")
        pairs.append((fields[0], fields[1]))
        scores.append(score)
    if not pairs:
        raise ValueError(f"{path}: a header, but no pair of words")
    return WordSimilarityTest(name=name, pairs=tuple(pairs), scores=tuple(scores))


def uses_lower_case(space: KeyedVectors, case: CaseHandling) -> bool:
    """Return whether words are lowercased for lookup.

    Raises:
        ValueError: there is no such case.
    """
    check_word("case", case, CaseHandling)
    return case == "lower" or (case == "auto" and is_lower_case(space))


def _row(space: KeyedVectors, word: str, lowered: bool) -> int | None:
    return space.index.get(word.lower() if lowered else word)


def _unit(space: KeyedVectors, rows: Int[np.ndarray, "k"]) -> Float[np.ndarray, "k d"]:
    """Return rows of length 1; a row of zeros stays so."""
    length = space.norms[rows, None]
    return (space.vectors[rows] / np.where(length > 0, length, 1)).astype(np.float32)


def _spearman(one: Float[np.ndarray, "p"], other: Float[np.ndarray, "p"]) -> float | None:
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return None
    from scipy.stats import spearmanr

    return float(cast("Any", spearmanr(one, other)).statistic)


def _answer_rows(
    space: KeyedVectors, rows: Int[np.ndarray, "q 3"]
) -> tuple[Int[np.ndarray, "q"], Int[np.ndarray, "q"]]:
    """Return the row that answers each question, by 3CosAdd and by 3CosMul.

    Questions share words: the cosines of each word with a block of the space are computed once, and
    added and multiplied from there.
    """
    words, places = np.unique(rows, return_inverse=True)
    places = places.reshape(rows.shape)
    known = _unit(space, words)
    best = np.full((2, len(rows)), -np.inf, dtype=np.float32)
    found = np.full((2, len(rows)), -1, dtype=np.int64)
    for start in range(0, len(space), _BLOCK):
        block = np.arange(start, min(start + _BLOCK, len(space)))
        cosines = known @ _unit(space, block).T
        moved = np.clip((cosines + 1) / 2, 0, 1)
        over = 1 / (moved + np.float32(COS_MUL_EPSILON))
        for some in range(0, len(rows), _QUESTIONS_PER_BLOCK):
            part = slice(some, some + _QUESTIONS_PER_BLOCK)
            a, b, c = places[part].T
            inside = (rows[part] >= start) & (rows[part] <= block[-1])
            question, side = np.nonzero(inside)
            word = rows[part][question, side] - start
            for how, scores in enumerate(
                (cosines[b] - cosines[a] + cosines[c], moved[b] * moved[c] * over[a])
            ):
                scores[question, word] = -np.inf
                at = scores.argmax(1)
                score = scores[np.arange(len(at)), at]
                better = score > best[how, part]  # of equal ones the lower row stays
                best[how, part][better] = score[better]
                found[how, part][better] = at[better] + start
    return found[0], found[1]


def _total(name: str, some: Sequence[AnalogyCounts]) -> AnalogyCounts:
    return AnalogyCounts(
        name,
        sum(one.n_questions for one in some),
        sum(one.n_known for one in some),
        sum(one.n_correct_add for one in some),
        sum(one.n_correct_multiply for one in some),
    )
