"""Words and rows of a file, one after the other, until they are a space."""

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from unmask.word_vectors.keyed_vectors import KeyedVectors, VectorComposer

_log = logging.getLogger(__name__)

_BLOCK = 2**13  # rows whose numbers are checked together
_STEP = 2**25  # numbers for which there is room at first
_GROWTH = 8  # the matrix grows by 1 / GROWTH, so that unused rows stay few


class VectorAccumulator:
    """Words and vectors read so far; of repeated words, the first is kept.

    Args:
        path: path of the file, for messages.
        vector_size: dimension of the vectors.
        location: returns the location of the i-th word in the file, such as "FILE:17".
        hint: possible cause of a number that is not finite.
    """

    def __init__(
        self, path: Path, vector_size: int, location: Callable[[int], str], hint: str = ""
    ) -> None:
        self.path, self.location, self.hint = path, location, hint
        self.index: dict[str, int] = {}
        self.n_duplicates = self.n_escaped = self.n_read = 0
        self.first_duplicate = self.first_escaped = ""
        self.step = max(1, min(_BLOCK, _STEP // vector_size))  # what a header says may be a mistake
        self.vectors = np.empty((self.step, vector_size), dtype=np.float32)
        self.places: list[int] = []  # of the rows that are not checked yet

    def add(self, word: bytes, row: Float[np.ndarray, "d"], place: int) -> bool:
        """Add a word and its vector; return whether it is kept, as its first occurrence."""
        self.n_read += 1
        try:
            text = word.decode()
        except UnicodeDecodeError:
            text = word.decode("utf-8", "backslashreplace")
            self.first_escaped = self.first_escaped or f"{text!r}, {self.location(place)}"
            self.n_escaped += 1
        n = len(self.index)
        if self.index.setdefault(text, n) < n:
            self.first_duplicate = self.first_duplicate or f"{text!r}, {self.location(place)}"
            self.n_duplicates += 1
            return False
        if n == len(self.vectors):
            # In place: the system moves pages, and copies none of them.
            self.vectors.resize(
                (n + max(n // _GROWTH, self.step), self.vector_size), refcheck=False
            )
        self.vectors[n] = row
        self.places.append(place)
        if len(self.places) == _BLOCK:
            self._check_finite()
        return True

    @property
    def vector_size(self) -> int:
        """Numbers of a row."""
        return self.vectors.shape[1]

    def _check_finite(self) -> None:
        """Check that the newest rows are finite."""
        n = len(self.index)
        finite = np.isfinite(self.vectors[n - len(self.places) : n])
        if not finite.all():
            row, column = (int(i) for i in np.argwhere(~finite)[0])
            word = list(self.index)[n - len(self.places) + row]
            found = self.vectors[n - len(self.places) + row, column]
            raise ValueError(
                f"{self.location(self.places[row])}: number {column + 1} of {word!r} is {found} "
                f"in float32, but all must be finite{self.hint}"
            )
        self.places.clear()

    def to_keyed_vectors(
        self, counts: Int[np.ndarray, "n"] | None = None, composer: VectorComposer | None = None
    ) -> KeyedVectors:
        """Return what was gathered; say what words were left out or are not UTF-8."""
        self._check_finite()
        if self.n_duplicates:
            _log.warning(
                "%s: %s that came before are left out (%s)",
                self.path,
                _count_of_words(self.n_duplicates),
                self.first_duplicate,
            )
        if self.n_escaped:
            _log.warning(
                "%s: %s not UTF-8 are read with \\xNN for each such byte (%s)",
                self.path,
                _count_of_words(self.n_escaped),
                self.first_escaped,
            )
        self.vectors.resize((len(self.index), self.vector_size), refcheck=False)
        return KeyedVectors(tuple(self.index), self.vectors, counts, composer)


def _count_of_words(n: int) -> str:
    return f"{n:,} word{'' if n == 1 else 's'}"
