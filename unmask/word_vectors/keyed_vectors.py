"""Words and their vectors, the neighbors of a word, and what is to one word as two others are."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

AnalogyMethod = Literal["add", "multiply"]
"""3CosAdd, the cosine with the sum; 3CosMul, the product of cosines over another."""

COS_MUL_EPSILON = 0.001
"""What keeps 3CosMul from dividing by zero (Levy and Goldberg 2014, section 6)."""

BLOCK = 2**13  # rows in one block: 10 MB of 300 numbers each
_QUERIES_PER_BLOCK = 2**8  # queries that are
_FLOAT32_SLACK = (
    1e-5  # by which a cosine in float32 may be wrong: 300 products of at most 1e-7 each
)

RowIndices = Int[np.ndarray, "k"]
RowScores = Float[np.ndarray, "k"]
Vector = Float[np.ndarray, "d"]


class Neighbor(NamedTuple):
    """A word that was found, and how near it is: the higher the nearer."""

    word: str
    score: float


@runtime_checkable
class VectorComposer(Protocol):
    """What composes the vectors of words of their parts, also of words that nobody has seen."""

    def vector(self, word: str) -> Vector | None:
        """Compose the vector of a word; None: it has no parts."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class KeyedVectors:
    """Words and their vectors.

    Raises:
        ValueError: there are no words, a word is repeated, the numbers of rows or counts and words
            differ, or a number is not finite in float32.
    """

    words: tuple[str, ...]
    """The word of each row; each once; the most frequent first, where that is known."""
    vectors: Float[np.ndarray, "n d"]
    """A row for each word, in float32; numbers of another width are converted."""
    counts: Int[np.ndarray, "n"] | None = None
    """How often each word was seen, where that is known."""
    composer: VectorComposer | None = None
    """What gives the vectors of words that have no row; None: nothing does."""

    def __post_init__(self) -> None:
        _check_shapes(self.words, self.vectors, self.counts)
        if self.vectors.dtype != np.float32:
            with np.errstate(over="ignore"):  # reported below
                object.__setattr__(self, "vectors", self.vectors.astype(np.float32))
        if len(self.index) < len(self.words):
            row, word = next((i, w) for i, w in enumerate(self.words) if self.index[w] != i)
            # The index has the last row of a repeated word.
            raise ValueError(
                f"the word {word!r} stands twice, in rows {row} and {self.index[word]} (from 0)"
            )
        for start, stop in _blocks(len(self)):
            finite = np.isfinite(self.vectors[start:stop])
            if not finite.all():
                row, column = (int(i) for i in np.argwhere(~finite)[0])
                found = self.vectors[start + row, column]
                raise ValueError(
                    f"the vector of {self.words[start + row]!r} (row {start + row} from 0) has "
                    f"{found} at place {column}; all numbers must be finite in float32"
                )

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.index

    def __repr__(self) -> str:
        return f"<Space of {len(self):,} words, {self.vector_size} numbers each>"

    @property
    def vector_size(self) -> int:
        """How many numbers a vector has."""
        return self.vectors.shape[1]

    @cached_property
    def index(self) -> dict[str, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.words)}

    @cached_property
    def norms(self) -> Float[np.ndarray, "n"]:
        """The length of each row, in float64; it is never infinite."""
        found = np.empty(len(self))
        for start, stop in _blocks(len(self)):
            wide = self.vectors[start:stop].astype(np.float64)
            found[start:stop] = np.sqrt(np.einsum("nd,nd->n", wide, wide))
        return found

    @cached_property
    def unit_vectors(self) -> Float[np.ndarray, "n d"]:
        """Rows normalized to length 1, in float32; rows of zeros stay zero.

        It takes as much memory as the vectors. Neighbors are computed without it, block by block,
        and faster once it exists.
        """
        found = np.empty_like(self.vectors, order="C")
        for start, stop in _blocks(len(self)):
            found[start:stop] = self._unit_rows(slice(start, stop))
        return found

    def row(self, word: str) -> int:
        """Return the row of a word.

        Raises:
            ValueError: the word is not in the vocabulary.
        """
        if word in self.index:
            return self.index[word]
        others = dict.fromkeys((word.lower(), word.capitalize(), word.title(), word.upper()))
        there = [repr(other) for other in others if other in self.index]
        hint = f"; {' and '.join(there)} {'is' if len(there) == 1 else 'are'}" if there else ""
        raise ValueError(f"{word!r} is not among the {len(self):,} words{hint}")

    def vector(self, word: str) -> Vector:
        """Return the vector of a word: its row, or a vector composed of its n-grams.

        Raises:
            ValueError: the word is not in the vocabulary and cannot be composed.
        """
        found = None
        if word not in self.index and self.composer is not None:
            found = self.composer.vector(word)
        return self.vectors[self.row(word)] if found is None else found

    def has_vector(self, word: str) -> bool:
        """Return whether a word is in the vocabulary or can be composed."""
        return word in self.index or (
            self.composer is not None and self.composer.vector(word) is not None
        )

    def cosine(self, word: str, other: str) -> float:
        """Return the cosine of the angle between two words; 0 where a vector is all zeros.

        Raises:
            ValueError: one has no vector.
        """
        one, two = (self._unit64(self.vector(each)) for each in (word, other))
        return float((one * two).sum())

    def most_frequent(self, n: int) -> "KeyedVectors":
        """Return a space of the first `n` words: the most frequent, where that is known."""
        if n < 1:
            raise ValueError(f"a space has at least one word, got first({n})")
        counts = None if self.counts is None else self.counts[:n]
        return (
            self
            if n >= len(self)
            else KeyedVectors(self.words[:n], self.vectors[:n], counts, self.composer)
        )

    def neighbors(
        self,
        queries: Sequence[str] | Float[np.ndarray, "q d"],
        k: int = 10,
        exclude: Sequence[str] = (),
    ) -> list[list[Neighbor]]:
        """Find the `k` nearest words of each query by cosine, the nearest first.

        Ties are ordered by row.

        Args:
            queries: words, which are not neighbors of themselves, or vectors.
            k: maximum number of neighbors.
            exclude: words that are left out.

        Raises:
            ValueError: a word has no vector, or a vector has another width.
        """
        _check_positive_k(k)
        out = [self.row(word) for word in exclude]
        if isinstance(queries, np.ndarray):
            self._check_width(queries)
            vectors, own = queries, [out] * len(queries)
        else:
            if isinstance(queries, str):
                raise TypeError(f"queries must be several words, got the one string {queries!r}")
            vectors = np.array([self.vector(word) for word in queries]).reshape(
                -1, self.vector_size
            )
            own = [[self.index[word], *out] if word in self.index else out for word in queries]
        found: list[list[Neighbor]] = []
        for start in range(0, len(vectors), _QUERIES_PER_BLOCK):
            some = slice(start, start + _QUERIES_PER_BLOCK)
            found += self._nearest_rows(vectors[some], k, own[some])
        return found

    def analogy(
        self, a: str, b: str, c: str, k: int = 10, method: AnalogyMethod = "add"
    ) -> list[Neighbor]:
        """Find the word that is to `c` as `b` is to `a`: man, king, woman gives queen.

        Raises:
            ValueError: a word is not in the vocabulary.
        """
        return self.most_similar([b, c], [a], k, method)

    def most_similar(
        self,
        positive: Sequence[str],
        negative: Sequence[str] = (),
        k: int = 10,
        method: AnalogyMethod = "add",
    ) -> list[Neighbor]:
        """Find the words nearest to some words and far from others; those are no answers.

        By "add" the score is the cosine with the sum of the vectors of length 1, those of
        `negative` subtracted (3CosAdd). By "multiply" it is the product of (cosine + 1) / 2 with
        each of `positive`, over that with each of `negative` plus 0.001 (3CosMul; Levy and Goldberg
        2014, W14-1618, equation 4; other numbers of words than two and one are gensim's extension).

        Raises:
            ValueError: there is nothing to add, nothing is left of it, or a word has no vector.
        """
        _check_positive_k(k)
        if method not in get_args(AnalogyMethod):
            allowed = list(get_args(AnalogyMethod))
            raise ValueError(f"method must be one of {allowed}, got {method!r}")
        if not positive:
            raise ValueError("at least one word must be added")
        units = np.stack([self._unit64(self.vector(word)) for word in (*positive, *negative)])
        rows = [self.index[word] for word in (*positive, *negative) if word in self.index]
        if method == "add":
            sum_ = units[: len(positive)].sum(0) - units[len(positive) :].sum(0)
            if not sum_.any():
                raise ValueError("the vectors cancel each other, or are all zeros")
            return self._nearest_rows(sum_[None], k, [rows])[0]
        best = _TopK(k, rows)
        for start, stop in _blocks(len(self)):
            above, below = _multiplicative_terms(
                units.astype(np.float32) @ self._unit_block(start, stop).T, len(positive)
            )
            scores = above / below
            best.add_block(
                start, scores, _FLOAT32_SLACK * (len(positive) + len(negative) * scores) / below
            )

        def exact(some: RowIndices) -> RowScores:
            above, below = _multiplicative_terms(
                np.stack([self._cosines(u, some) for u in units]), len(positive)
            )
            return above / below

        return self._to_neighbors(best.result(exact))

    @classmethod
    def from_gensim(cls, vectors: Any) -> "KeyedVectors":
        """Take the words and vectors of gensim's `KeyedVectors`, or of a model's `wv`.

        Raises:
            ValueError: its keys are not words, or see `KeyedVectors`.
        """
        vectors = getattr(vectors, "wv", vectors)
        words = tuple(vectors.index_to_key)
        other = next((word for word in words if not isinstance(word, str)), None)
        if other is not None:
            raise ValueError(f"the keys must be words, got {type(other).__name__} {other!r}")
        counts = vectors.expandos.get("count")
        if counts is not None:
            counts = np.asarray(counts, dtype=np.int64)
            # gensim gives words that were read from a file counts n, n - 1, ..., 1.
            made_up = len(counts) != len(words) or (counts == np.arange(len(words), 0, -1)).all()
            counts = None if made_up else counts
        return cls(words, np.asarray(vectors.vectors), counts)

    def to_gensim(self) -> Any:
        """Return gensim's `KeyedVectors` with a copy of the vectors.

        Raises:
            ImportError: gensim is not installed.
        """
        try:
            from gensim.models import KeyedVectors
        except ModuleNotFoundError as error:
            raise ImportError("to_gensim needs gensim: pip install gensim") from error
        made = KeyedVectors(self.vector_size, count=len(self), dtype=np.float32)
        made.index_to_key = list(self.words)
        made.key_to_index = dict(self.index)
        made.vectors = self.vectors.copy()
        made.next_index = len(self)
        if self.counts is not None:
            made.expandos["count"] = self.counts.astype(np.int64)
        return made

    def _nearest_rows(
        self, vectors: Float[np.ndarray, "q d"], k: int, exclude: Sequence[Sequence[int]]
    ) -> list[list[Neighbor]]:
        """Look for candidates in float32, with some slack, and settle their order in float64."""
        queries = np.stack([self._unit64(vector) for vector in vectors])
        best = [_TopK(k, rows) for rows in exclude]
        for start, stop in _blocks(len(self)):
            cosines = queries.astype(np.float32) @ self._unit_block(start, stop).T
            for one, scores in zip(best, cosines, strict=True):
                one.add_block(start, scores, _FLOAT32_SLACK)
        return [
            self._to_neighbors(one.result(lambda rows, query=query: self._cosines(query, rows)))
            for one, query in zip(best, queries, strict=True)
        ]

    def _to_neighbors(self, found: tuple[RowIndices, RowScores]) -> list[Neighbor]:
        return [Neighbor(self.words[row], float(score)) for row, score in zip(*found, strict=True)]

    def _cosines(self, query: Vector, rows: RowIndices) -> RowScores:
        """Return cosines in float64; the same for the same numbers, whichever row has them."""
        return (self._unit_rows(rows, np.float64) * query).sum(1)

    def _unit_block(self, start: int, stop: int) -> Float[np.ndarray, "b d"]:
        if "unit" in self.__dict__:
            return self.unit_vectors[start:stop]
        return self._unit_rows(slice(start, stop))

    def _unit_rows(
        self, rows: RowIndices | slice, dtype: type[Any] = np.float32
    ) -> Float[np.ndarray, "b d"]:
        lengths = self.norms[rows, None]
        wide = self.vectors[rows].astype(np.float64)
        return np.divide(wide, lengths, where=lengths > 0, out=wide).astype(dtype, copy=False)

    def _unit64(self, vector: Vector) -> Vector:
        wide = vector.astype(np.float64)
        # No square of a number of float32 is too large for float64, but one of float64 is.
        most = float(np.abs(wide).max())
        if not math.isfinite(most):
            raise ValueError("a vector that is looked for has a number that is not finite")
        wide = wide / most if most else wide
        return wide / np.sqrt((wide * wide).sum()) if most else wide

    def _check_width(self, queries: Float[np.ndarray, "q d"]) -> None:
        if queries.ndim != 2 or queries.shape[1] != self.vector_size:
            raise ValueError(
                f"the vectors that are looked for must be [q {self.vector_size}], got "
                f"{list(queries.shape)}"
            )


class _TopK:
    """The candidates for the `k` highest scores, block after block."""

    def __init__(self, k: int, excluded: Sequence[int]) -> None:
        self.k = k
        self.excluded = np.unique(np.array(excluded, dtype=np.int64))
        self.rows = np.zeros(0, dtype=np.int64)
        self.lows, self.highs = np.zeros((2, 0))  # between which the score of each is
        self.threshold = -math.inf  # so much `k` of them score at least

    def add_block(self, start: int, scores: RowScores, slack: float | RowScores) -> None:
        """Keep the candidates of a block that may be best, given scores exact up to `slack`."""
        highs = scores + slack
        inside = self.excluded[(self.excluded >= start) & (self.excluded < start + len(scores))]
        highs[inside - start] = -math.inf
        rows = np.flatnonzero((highs >= self.threshold) & (highs > -math.inf))
        if not len(rows):
            return
        self.rows = np.concatenate([self.rows, rows + start])
        self.lows = np.concatenate([self.lows, (scores - slack)[rows]])
        self.highs = np.concatenate([self.highs, highs[rows]])
        if len(self.rows) > self.k:
            at = len(self.rows) - self.k
            self.threshold = float(np.partition(self.lows, at)[at])
            near = self.highs >= self.threshold
            self.rows, self.lows, self.highs = self.rows[near], self.lows[near], self.highs[near]

    def result(self, exact: Callable[[RowIndices], RowScores]) -> tuple[RowIndices, RowScores]:
        """Return the best rows and their exact scores; of equal ones the lower row first."""
        scores = [exact(self.rows[start:stop]) for start, stop in _blocks(len(self.rows))]
        found = np.concatenate([np.zeros(0), *scores])
        order = np.lexsort((self.rows, -found))[: self.k]
        return self.rows[order], found[order]


def _multiplicative_terms(
    cosines: Float[np.ndarray, "q n"], n_plus: int
) -> tuple[RowScores, RowScores]:
    """Return the product of the first cosines and that of the others, all moved to 0 ... 1."""
    moved = np.clip((cosines.astype(np.float64) + 1) / 2, 0, 1)
    return moved[:n_plus].prod(0), moved[n_plus:].prod(0) + COS_MUL_EPSILON


def _blocks(n: int) -> Iterator[tuple[int, int]]:
    for start in range(0, n, BLOCK):
        yield start, min(start + BLOCK, n)


def _check_positive_k(k: int) -> None:
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")


def _check_shapes(words: tuple[str, ...], vectors: Any, counts: Any) -> None:
    if not words:
        raise ValueError("a space has at least one word, got none")
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise ValueError(f"vectors must be rows of numbers, [n d], got {list(vectors.shape)}")
    if len(vectors) != len(words):
        raise ValueError(f"{len(words):,} words, but {len(vectors):,} vectors")
    if counts is not None and counts.shape != (len(words),):
        raise ValueError(f"{len(words):,} words, but counts are {list(counts.shape)}")
