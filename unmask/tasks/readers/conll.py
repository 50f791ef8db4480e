"""Sentences with a word a line: CoNLL's files, and CoNLL-U's.

What is a comment is decided so that no word is lost: in files of tweets many words begin with "#".
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from unmask.text.delimited import format_field_count
from unmask.text.lines import EncodingErrors, split_at_blanks
from unmask.text.records import TableRow, format_names, read_whole_lines

WORDS_COLUMN = "words"
"""What the first column of a .conll file is called, which has no header; the others are "2", "3",
..."""
CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
"""The columns of a .conllu file."""

_BLANKS = " \t"
_COMMENT_PREFIX = "# "
_DOCUMENT_START = "-DOCSTART-"
_WORD_ID = re.compile("[1-9][0-9]*")
_RANGE_OR_EMPTY_NODE_ID = re.compile(r"[1-9][0-9]*-[1-9][0-9]*|[0-9]+\.[1-9][0-9]*")

_SentenceLines = list[tuple[int, str]]


def read_conll(
    path: Path, header: Sequence[str], encoding_errors: EncodingErrors
) -> tuple[tuple[str, ...], list[TableRow]]:
    """Read a word a line, its columns parted by tabs or else spaces, sentences by blank lines.

    A comment is a line that begins with "# " before the first word of a sentence. Such a line is a
    word itself where it has as many columns as words have, and in the last of them what another
    word has there: "# O", but not "# newdoc" or "# sent_id = 1".

    Raises:
        ValueError: a line has not as many columns as others.
    """
    sentences = list(_split_sentences(path, encoding_errors))
    n, last = _infer_columns(sentences, header)
    columns = tuple(header) or (WORDS_COLUMN, *(str(i) for i in range(2, n + 1)))
    rows: list[TableRow] = []
    for sentence in sentences:
        words: list[list[str]] = []
        begin = 0
        for number, line in sentence:
            fields = _split_fields(line)
            comment = line.startswith(_COMMENT_PREFIX) and not (
                len(fields) == len(columns) and fields[-1] in last
            )
            if fields[0] == _DOCUMENT_START or (comment and not words):
                continue
            if len(fields) != len(columns):
                raise ValueError(
                    f"{path}:{number}: {format_field_count(len(fields))}, but there are "
                    f"{len(columns)} columns "
                    f"({format_names(columns)}){_unusual_white_space(line)}"
                )
            begin = begin or number
            words.append(fields)
        if words:
            rows.append((begin, tuple(list(column) for column in zip(*words, strict=True))))
    return columns, rows


def read_conllu(path: Path, encoding_errors: EncodingErrors) -> Iterator[TableRow]:
    """Read CoNLL-U (universaldependencies.org/format.html): words, no ranges and empty nodes.

    Raises:
        ValueError: a line has other columns than a word, or no number where they begin.
    """
    for sentence in _split_sentences(path, encoding_errors):
        words: list[list[str]] = []
        begin = 0
        for number, line in sentence:
            fields = line.split("\t")
            if line.startswith("#") and len(fields) != len(CONLLU_COLUMNS):
                continue
            if len(fields) != len(CONLLU_COLUMNS):
                raise ValueError(
                    f"{path}:{number}: {format_field_count(len(fields))}, but a word of .conllu "
                    f"has {len(CONLLU_COLUMNS)}, parted by tabs"
                )
            if _RANGE_OR_EMPTY_NODE_ID.fullmatch(
                fields[0]
            ):  # a word that is written out below, or not written
                continue
            if not _WORD_ID.fullmatch(fields[0]):
                raise ValueError(
                    f"{path}:{number}: a word's id must be a number (1), a range (1-2) or an empty "
                    f"node's (1.1), got {format_names([fields[0]])}"
                )
            begin = begin or number
            words.append(fields)
        if words:
            yield begin, tuple(list(column) for column in zip(*words, strict=True))


def _split_sentences(path: Path, encoding_errors: EncodingErrors) -> Iterator[_SentenceLines]:
    """Yield the lines between blank ones; what else is white space does not make a line blank."""
    held: _SentenceLines = []
    for number, line in read_whole_lines(path, encoding_errors):
        if line.strip(_BLANKS):
            held.append((number, line))
        elif held:
            yield held
            held = []
    if held:
        yield held


def _infer_columns(
    sentences: Sequence[_SentenceLines], header: Sequence[str]
) -> tuple[int, set[str]]:
    """Return how many columns words have, and what is in the last, of lines that are words."""
    n, last = len(header), set[str]()
    for sentence in sentences:
        begun = False
        for _, line in sentence:
            if line.startswith(_COMMENT_PREFIX) and not begun:
                continue
            fields = _split_fields(line)
            begun = begun or fields[0] != _DOCUMENT_START
            if begun:
                n = n or len(fields)
                last.add(fields[-1])
    return n, last


def _split_fields(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else split_at_blanks(line)


def _unusual_white_space(line: str) -> str:
    """Name white space of a line that parts no columns."""
    odd = next((c for c in line if c.isspace() and c not in _BLANKS), None)
    if odd is None:
        return ""
    name = unicodedata.name(odd, "a control character")
    return f"; only spaces and tabs part columns, not its U+{ord(odd):04X} ({name})"
