"""Sentences with one word per line: CoNLL and CoNLL-U files.

Comments are recognized so that no word is lost: in tweets many words begin with "#".
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from unmask.text.formats.delimited import format_field_count
from unmask.text.formats.records import TableRow, format_names, read_whole_lines
from unmask.text.lines import EncodingErrors, split_at_blanks

WORDS_COLUMN = "words"
"""Name of the first column of a .conll file without a header; the others are "2", "3", ..."""
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
    """Read one word per line; columns are separated by tabs or spaces, sentences by blank lines.

    A comment begins with "# " before the first word of a sentence. It is a word if it has as many
    columns as words, and in the last a value that other words have there: "# O", but not "# newdoc"
    or "# sent_id = 1".

    Raises:
        ValueError: lines differ in their number of columns.
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
    """Read CoNLL-U (universaldependencies.org/format.html): words without ranges and empty nodes.

    Raises:
        ValueError: a line has the wrong number of columns, or an invalid id.
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
                    f"has {len(CONLLU_COLUMNS)}, separated by tabs"
                )
            if _RANGE_OR_EMPTY_NODE_ID.fullmatch(fields[0]):  # a range or an empty node
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
    """Yield the lines between blank ones; a line with other white space is not blank."""
    sentence: _SentenceLines = []
    for number, line in read_whole_lines(path, encoding_errors):
        if line.strip(_BLANKS):
            sentence.append((number, line))
        elif sentence:
            yield sentence
            sentence = []
    if sentence:
        yield sentence


def _infer_columns(
    sentences: Sequence[_SentenceLines], header: Sequence[str]
) -> tuple[int, set[str]]:
    """Return the number of columns of words, and the values in the last column."""
    n, last = len(header), set[str]()
    for sentence in sentences:
        in_sentence = False
        for _, line in sentence:
            if line.startswith(_COMMENT_PREFIX) and not in_sentence:
                continue
            fields = _split_fields(line)
            in_sentence = in_sentence or fields[0] != _DOCUMENT_START
            if in_sentence:
                n = n or len(fields)
                last.add(fields[-1])
    return n, last


def _split_fields(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else split_at_blanks(line)


def _unusual_white_space(line: str) -> str:
    """Describe white space in a line that does not separate columns."""
    character = next((c for c in line if c.isspace() and c not in _BLANKS), None)
    if character is None:
        return ""
    name = unicodedata.name(character, "a control character")
    return f"; only spaces and tabs separate columns, not its U+{ord(character):04X} ({name})"
