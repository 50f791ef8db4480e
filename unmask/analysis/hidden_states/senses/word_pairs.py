"""Pairs of occurrences of a word, in one sense or in two: WiC's files, and pseudo-words of a text.

Pilehvar and Camacho-Collados 2019, arXiv:1808.09121.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unmask.tasks.readers.tables import Table, read_table
from unmask.text.formats.records import describe_value, format_names
from unmask.text.lines import EncodingErrors

_COLUMNS = ("word", "indices", "sentence1", "sentence2", "label")
_N_FIELDS = 5
"""Of a line of WiC's data: word, part of speech, indices, both sentences."""
_DATA_FILE, _GOLD_FILE = ".data.txt", ".gold.txt"
_LABELS = {"T": True, "F": False, "TRUE": True, "FALSE": False, "1": True, "0": False}
_INDICES = re.compile(r"(\d+)-(\d+)")
_LEAST_LETTERS = 4
"""Of the words that pseudo-words are made of: shorter ones are mostly function words."""


@dataclass(frozen=True, kw_only=True)
class WordPair:
    """Two sentences with the same word."""

    word: str
    """Its lemma, or a pseudo-word."""
    first: tuple[str, ...]
    second: tuple[str, ...]
    first_index: int
    """Of the word in the first sentence."""
    second_index: int
    same: bool
    """Whether the word has the same sense in both."""


def read_word_pairs(path: Path, encoding_errors: EncodingErrors = "strict") -> list[WordPair]:
    """Read pairs of sentences with a word each, in WiC's layout.

    NAME.data.txt has word, part of speech, indices ("2-1"), and both sentences, separated by tabs,
    NAME.gold.txt beside it T or F on each line. Other tables have the columns word, indices,
    sentence1, sentence2 and label (T or F, true or false, 1 or 0). Words of a sentence are between
    spaces.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is empty, or lacks a column or a value, or an index is of no word.
    """
    table = read_table(path, encoding_errors=encoding_errors)
    if _DATA_FILE in path.name:
        rows = _wic_rows(table, encoding_errors)
    else:
        for name in _COLUMNS:
            if name not in table.columns:
                raise ValueError(
                    f"{path}: pairs of occurrences need a column {name!r} "
                    f"(columns: {format_names(table.columns)})"
                )
        rows = list(zip(*(table.column(name) for name in _COLUMNS), strict=True))
    return [_read_pair(row, table.location(i)) for i, row in enumerate(rows)]


def pseudo_word_pairs(
    sentences: Sequence[tuple[str, ...]], n_words: int, per_word: int, seed: int
) -> list[WordPair]:
    """Make pseudo-words of a text: two words of about the same frequency taken for one.

    "banana" and "door" both become "banana/door" in their sentences; two occurrences have the same
    sense if the same word was there (Gale, Church and Yarowsky 1992, Work on statistical methods
    for word sense disambiguation, section 3; Schütze 1998, J98-1004, section 5). Half of the pairs
    of each pseudo-word have the same sense, each word as often; no occurrence is in two pairs.

    Args:
        sentences: words of each sentence.
        n_words: pseudo-words, of the most frequent words that have enough occurrences.
        per_word: pairs of each, a multiple of four.
        seed: random seed of which words and which sentences belong together.

    Raises:
        ValueError: too few words are in enough sentences.
    """
    rng = np.random.default_rng(seed)
    places = _places(sentences)
    least = per_word  # a quarter of the pairs takes two of a word, a half one
    words = [word for word, found in places.items() if len(found) >= least]
    words.sort(key=lambda word: (-len(places[word]), word))
    if len(words) < 2 * n_words:
        raise ValueError(
            f"pseudo-words need {2 * n_words} words of {_LEAST_LETTERS} letters or more that are "
            f"once in {least} sentences, got {len(words)}: read more sentences, or set "
            "pseudo_words or per_word"
        )
    pairs: list[WordPair] = []
    for i in range(n_words):
        a, b = (words[2 * i + k] for k in rng.permutation(2).tolist())
        first, second = (
            [places[word][k] for k in rng.permutation(len(places[word]))[:least].tolist()]
            for word in (a, b)
        )
        half = per_word // 2
        both = [(first[2 * k], first[2 * k + 1], True) for k in range(half // 2)]
        both += [(second[2 * k], second[2 * k + 1], True) for k in range(half // 2)]
        both += [(x, y, False) for x, y in zip(first[half:], second[half:], strict=True)]
        pairs += [_conflated(f"{a}/{b}", sentences, *one) for one in both]
    return pairs


def split_by_word(pairs: Sequence[WordPair]) -> tuple[list[WordPair], list[WordPair]]:
    """Return the pairs of every second word, and those of the others."""
    words = dict.fromkeys(pair.word for pair in pairs)
    rank = {word: i for i, word in enumerate(words)}
    first, second = ([pair for pair in pairs if rank[pair.word] % 2 == k] for k in (0, 1))
    return first, second


def _places(sentences: Sequence[tuple[str, ...]]) -> dict[str, list[tuple[int, int]]]:
    """Return sentence and index of each word of small letters, where a sentence has it once."""
    places: dict[str, list[tuple[int, int]]] = {}
    for i, words in enumerate(sentences):
        for k, word in enumerate(words):
            plain = word.isalpha() and word.islower() and len(word) >= _LEAST_LETTERS
            if plain and words.count(word) == 1:
                places.setdefault(word, []).append((i, k))
    return places


def _conflated(
    word: str,
    sentences: Sequence[tuple[str, ...]],
    one: tuple[int, int],
    other: tuple[int, int],
    same: bool,
) -> WordPair:
    texts = [(*sentences[i][:k], word, *sentences[i][k + 1 :]) for i, k in (one, other)]
    return WordPair(
        word=word, first=texts[0], second=texts[1], first_index=one[1], second_index=other[1],
        same=same,
    )  # fmt: skip


def _wic_rows(table: Table, encoding_errors: EncodingErrors) -> list[tuple[object, ...]]:
    """Return word, indices, both sentences and label of each line of WiC's two files."""
    gold = table.path.with_name(table.path.name.replace(_DATA_FILE, _GOLD_FILE))
    if not gold.is_file():
        raise FileNotFoundError(f"{gold}: no such file, with the labels of {table.path.name}")
    labels = read_table(gold, encoding_errors=encoding_errors)
    if len(labels) != len(table):
        raise ValueError(
            f"{table.path} has {len(table):,} lines and {gold} {len(labels):,}; the lines must "
            "correspond"
        )
    rows: list[tuple[object, ...]] = []
    lines = (file.column(file.columns[0]) for file in (table, labels))
    for i, (line, label) in enumerate(zip(*lines, strict=True)):
        fields = str(line).split("\t")
        if len(fields) != _N_FIELDS:
            raise ValueError(
                f"{table.location(i)}: a line must have word, part of speech, indices and two "
                f"sentences with tabs between, got {len(fields)} fields"
            )
        rows.append((fields[0], *fields[2:], label))
    return rows


def _read_pair(row: tuple[object, ...], location: str) -> WordPair:
    word, indices, *texts, label = row
    found = _INDICES.fullmatch(str(indices).strip())
    if found is None:
        raise ValueError(
            f'{location}: indices must be two numbers like "2-1", got {describe_value(indices)}'
        )
    sentences = [tuple(str(text or "").split()) for text in texts]
    places = [int(one) for one in found.groups()]
    for sentence, place in zip(sentences, places, strict=True):
        if place >= len(sentence):
            raise ValueError(
                f"{location}: a sentence of {len(sentence)} words has no word {place} (the first "
                "is 0)"
            )
    if (same := _LABELS.get(str(label).strip().upper())) is None:
        raise ValueError(f"{location}: label must be T or F, got {describe_value(label)}")
    return WordPair(
        word=str(word), first=sentences[0], second=sentences[1], first_index=places[0],
        second_index=places[1], same=same,
    )  # fmt: skip
