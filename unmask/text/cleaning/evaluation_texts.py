"""Texts of evaluation, which must not be in the training text."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unmask.text.cleaning.rule import Cleaned, Removal
from unmask.text.cleaning.word_hashes import fold_windows, hash_normalized_words
from unmask.text.formats.decompress import compression_suffix
from unmask.text.formats.delimited import read_delimited
from unmask.text.formats.json_lines import read_json_rows
from unmask.text.lines import read_lines

_MAX_LINE_CHARACTERS = 2**20
_CHUNK = 1000  # texts whose words are hashed at once


@dataclass(frozen=True)
class Decontamination:
    """Removal of paragraphs that share 13 words in a row with evaluation files.

    Brown et al. 2020, arXiv:2005.14165, appendix C. Words are compared without case and
    punctuation. An evaluation text of fewer than 13 words is not looked for.

    Deviates: the paper removes the 13 words and 200 characters on each side, and splits the
    document there; here the paragraphs in which they are go. It looks for fewer words where most
    texts of a task are shorter; here `ngram` says how many.
    """

    files: tuple[str, ...]
    """Evaluation files: .jsonl, .csv, .tsv (all columns), .txt; each may be compressed."""
    ngram: int = 13
    """Words in a row."""

    def __post_init__(self) -> None:
        if self.ngram < 1:
            raise ValueError(f"ngram must be at least 1, got {self.ngram}")

    def clean(self, text: str) -> Cleaned:
        """Remove paragraphs."""
        lines = text.split("\n")
        words, counts = hash_normalized_words(lines)
        if len(words) < self.ngram:
            return Cleaned(text)
        begins = np.arange(len(words) - self.ngram + 1)
        hits = begins[_is_in(fold_windows(words, begins, self.ngram), self._grams)]
        if not len(hits):
            return Cleaned(text)
        line_of_word = np.repeat(np.arange(len(lines)), counts)
        removed = np.zeros(len(lines), bool)
        for offset in range(self.ngram):
            removed[line_of_word[hits + offset]] = True
        reason = f"evaluation: {self.ngram} words in a row of an evaluation file"
        removals = [
            Removal(reason, line) for line, gone in zip(lines, removed, strict=True) if gone
        ]
        kept = [line for line, gone in zip(lines, removed, strict=True) if not gone]
        return Cleaned("\n".join(kept), tuple(removals))

    @cached_property
    def _grams(self) -> NDArray[np.uint64]:
        """The n-grams of all evaluation texts, sorted.

        Raises:
            ValueError: a file cannot be read, or no text in it has as many words.
        """
        found = [np.zeros(0, np.uint64)]
        for file in self.files:
            n = 0
            for texts in _in_chunks(_read_fields(Path(file))):
                grams = _all_grams(texts, self.ngram)
                n += len(grams)
                found.append(grams)
            if not n:
                raise ValueError(f"{file}: no text of {self.ngram} words in it")
        return np.unique(np.concatenate(found))

    def check(self) -> None:
        """Read the evaluation files.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: a file cannot be read, or no text in it has as many words.
        """
        for file in self.files:
            if not Path(file).is_file():
                raise FileNotFoundError(f"{file}: no such file")
        _ = self._grams


def _is_in(grams: NDArray[np.uint64], ordered: NDArray[np.uint64]) -> NDArray[np.bool_]:
    at = np.searchsorted(ordered, grams)
    at[at == len(ordered)] = 0
    return ordered[at] == grams


def _all_grams(texts: list[str], n: int) -> NDArray[np.uint64]:
    words, counts = hash_normalized_words(texts)
    n_grams = np.maximum(counts - n + 1, 0)
    first = np.cumsum(counts) - counts
    within = np.arange(int(n_grams.sum())) - np.repeat(np.cumsum(n_grams) - n_grams, n_grams)
    return fold_windows(words, np.repeat(first, n_grams) + within, n)


def _in_chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    for text in texts:
        chunk.append(text)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _read_fields(path: Path) -> Iterator[str]:
    """Yield all texts of a file."""
    inner = path.with_suffix("") if compression_suffix(path) else path
    match inner.suffix.lower():
        case ".jsonl":
            for _, fields in read_json_rows(path, "replace"):
                yield from _strings(fields)
        case ".csv" | ".tsv":
            for _, row in read_delimited(path, (), "replace").rows:
                yield from row
        case ".txt":
            for _, line, _ in read_lines(path, _MAX_LINE_CHARACTERS, "replace"):
                yield line
        case other:
            raise ValueError(
                f"{path}: an evaluation file must be .jsonl, .csv, .tsv or .txt, got {other!r}"
            )


def _strings(value: object) -> Iterator[str]:
    """Yield the strings of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)
    elif isinstance(value, dict):
        yield from _strings(list(value.values()))
