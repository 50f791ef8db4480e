"""Reading times of words in sentences, with what else is known to slow readers down."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from unmask.tasks.readers.tables import Table, read_table
from unmask.text.formats.records import describe_value, format_names
from unmask.text.lines import EncodingErrors

_TEXTS = ("item", "word", "prev_item", "prev_word")
_NUMBERS = ("Subtlex_log10", "length", "context_length", "prev_length")
_MISSING = ("", "NA", "nan")


@dataclass(frozen=True)
class WordInContext:
    """A word and the text before it."""

    before: str
    word: str


@dataclass(frozen=True, kw_only=True)
class ReadingData:
    """Words in contexts, and numbers of each; NaN where one is missing."""

    words: tuple[WordInContext, ...]
    previous: tuple[WordInContext | None, ...]
    """The word before each; None for the first of a sentence."""
    frequency: Float[np.ndarray, "n"]
    """Log frequency."""
    length: Float[np.ndarray, "n"]
    """Letters."""
    position: Float[np.ndarray, "n"]
    """Number of words before."""
    previous_length: Float[np.ndarray, "n"]
    measures: dict[str, Float[np.ndarray, "n"]]
    """Reading times or amplitudes by name."""


def read_reading_times(
    path: str | Path, measures: Sequence[str], encoding_errors: EncodingErrors = "strict"
) -> ReadingData:
    """Read a table in the layout of BabyLM's (de Varda et al. 2023, Behavior Research Methods).

    Columns are item (the text before a word), word, prev_item, prev_word, Subtlex_log10, length,
    context_length, prev_length and the measures.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is empty, lacks a column or a word, or a number is none.
    """
    table = read_table(path, encoding_errors=encoding_errors)
    for name in (*_TEXTS, *_NUMBERS, *measures):
        if name not in table.columns:
            raise ValueError(
                f"{path}: reading times need a column {name!r} "
                f"(columns: {format_names(table.columns)})"
            )
    items, words, previous_items, previous_words = (_texts(table, name) for name in _TEXTS)
    for i, word in enumerate(words):
        if not word:
            raise ValueError(f"{table.location(i)}: there is no word")
    frequency, length, position, previous_length = (_numbers(table, name) for name in _NUMBERS)
    return ReadingData(
        words=tuple(map(WordInContext, items, words)),
        previous=tuple(
            WordInContext(before, word) if word else None
            for before, word in zip(previous_items, previous_words, strict=True)
        ),
        frequency=frequency,
        length=length,
        position=position,
        previous_length=previous_length,
        measures={name: _numbers(table, name) for name in measures},
    )


def _texts(table: Table, name: str) -> list[str]:
    return ["" if value is None else str(value).strip() for value in table.column(name)]


def _numbers(table: Table, name: str) -> Float[np.ndarray, "n"]:
    """Return the numbers of a column.

    Raises:
        ValueError: a value is neither a finite number nor missing.
    """
    numbers: list[float] = []
    for i, value in enumerate(table.column(name)):
        if value is None or str(value).strip() in _MISSING:
            numbers.append(math.nan)
            continue
        try:
            number = float(str(value))
        except ValueError:
            number = math.inf
        if not math.isfinite(number):
            raise ValueError(
                f"{table.location(i)}: {name} must be a number, or empty, "
                f"got {describe_value(value)}"
            )
        numbers.append(number)
    return np.array(numbers, np.float64)
