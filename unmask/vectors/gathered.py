"""Words and rows of a file, one after the other, until they are a space."""

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from unmask.vectors.space import Composing, Space

_log = logging.getLogger(__name__)

_BLOCK = 2**13  # rows whose numbers are checked together
_STEP = 2**25  # numbers for which there is room at first
_GROWTH = 8  # the matrix grows by one part in so many: what is not used of it stays small


class Gathered:
    """Words and rows so far; of a word that comes again the first stays.

    Args:
        path: of the file, for messages.
        width: numbers of a row.
        where: says where in the file the word of a place stands, "FILE:17" for instance.
        hint: what may be wrong where a number is not finite.
    """

    def __init__(self, path: Path, width: int, where: Callable[[int], str], hint: str = "") -> None:
        self.path, self.where, self.hint = path, where, hint
        self.index: dict[str, int] = {}
        self.again = self.escaped = self.read = 0
        self.first_again = self.first_escaped = ""
        self.step = max(1, min(_BLOCK, _STEP // width))  # what a header says may be a mistake
        self.vectors = np.empty((self.step, width), dtype=np.float32)
        self.places: list[int] = []  # of the rows that are not checked yet

    def add(self, word: bytes, row: Float[np.ndarray, "d"], place: int) -> bool:
        """Take a word and its row; say whether it is kept, as the first of its kind."""
        self.read += 1
        try:
            text = word.decode()
        except UnicodeDecodeError:
            text = word.decode("utf-8", "backslashreplace")
            self.first_escaped = self.first_escaped or f"{text!r}, {self.where(place)}"
            self.escaped += 1
        n = len(self.index)
        if self.index.setdefault(text, n) < n:
            self.first_again = self.first_again or f"{text!r}, {self.where(place)}"
            self.again += 1
            return False
        if n == len(self.vectors):
            # In place: the system moves pages, and copies none of them.
            self.vectors.resize((n + max(n // _GROWTH, self.step), self.width), refcheck=False)
        self.vectors[n] = row
        self.places.append(place)
        if len(self.places) == _BLOCK:
            self._check()
        return True

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return self.vectors.shape[1]

    def _check(self) -> None:
        """Check that the newest rows are finite."""
        n = len(self.index)
        finite = np.isfinite(self.vectors[n - len(self.places) : n])
        if not finite.all():
            row, column = (int(i) for i in np.argwhere(~finite)[0])
            word = list(self.index)[n - len(self.places) + row]
            found = self.vectors[n - len(self.places) + row, column]
            raise ValueError(
                f"{self.where(self.places[row])}: number {column + 1} of {word!r} is {found} "
                f"in float32, but all must be finite{self.hint}"
            )
        self.places.clear()

    def space(
        self, counts: Int[np.ndarray, "n"] | None = None, unseen: Composing | None = None
    ) -> Space:
        """Return what was gathered; say what words were left out or are not UTF-8."""
        self._check()
        if self.again:
            _log.warning(
                "%s: %s that came before are left out (%s)",
                self.path,
                _so_many(self.again),
                self.first_again,
            )
        if self.escaped:
            _log.warning(
                "%s: %s not UTF-8 are read with \\xNN for each such byte (%s)",
                self.path,
                _so_many(self.escaped),
                self.first_escaped,
            )
        self.vectors.resize((len(self.index), self.width), refcheck=False)
        return Space(tuple(self.index), self.vectors, counts, unseen)


def _so_many(n: int) -> str:
    return f"{n:,} word{'' if n == 1 else 's'}"
