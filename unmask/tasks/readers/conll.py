"""Sentences with a word a line: CoNLL's files, and CoNLL-U's.

What is a comment is decided so that no word is lost: in files of tweets many words begin with "#".
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from unmask.text.lines import EncodingErrors, parts
from unmask.text.records import listed, whole_lines

WORDS = "words"
"""What the first column of a .conll file is called, which has no header; the others are "2", "3",
..."""
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
"""The columns of a .conllu file."""

_BLANKS = " \t"
_COMMENT = "# "
_DOCUMENT = "-DOCSTART-"
_WORD = re.compile("[1-9][0-9]*")
_BESIDE = re.compile(r"[1-9][0-9]*-[1-9][0-9]*|[0-9]+\.[1-9][0-9]*")

Sentence = tuple[int, tuple[object, ...]]
"""The line at which a sentence begins, from 1, and its columns, each a list."""
_Lines = list[tuple[int, str]]


def conll(
    path: Path, header: Sequence[str], errors: EncodingErrors
) -> tuple[tuple[str, ...], list[Sentence]]:
    """Read a word a line, its columns parted by tabs or else spaces, sentences by blank lines.

    A comment is a line that begins with "# " before the first word of a sentence. Such a line is a
    word itself where it has as many columns as words have, and in the last of them what another
    word has there: "# O", but not "# newdoc" or "# sent_id = 1".

    Raises:
        ValueError: a line has not as many columns as others.
    """
    sentences = list(_sentences(path, errors))
    n, last = _shape(sentences, header)
    columns = tuple(header) or (WORDS, *(str(i) for i in range(2, n + 1)))
    rows: list[Sentence] = []
    for sentence in sentences:
        words: list[list[str]] = []
        begin = 0
        for number, line in sentence:
            fields = _fields(line)
            comment = line.startswith(_COMMENT) and not (
                len(fields) == len(columns) and fields[-1] in last
            )
            if fields[0] == _DOCUMENT or (comment and not words):
                continue
            if len(fields) != len(columns):
                raise ValueError(
                    f"{path}:{number}: {count(len(fields))}, but there are {len(columns)} columns "
                    f"({listed(columns)}){_odd(line)}"
                )
            begin = begin or number
            words.append(fields)
        if words:
            rows.append((begin, tuple(list(column) for column in zip(*words, strict=True))))
    return columns, rows


def conllu(path: Path, errors: EncodingErrors) -> Iterator[Sentence]:
    """Read CoNLL-U (universaldependencies.org/format.html): words, no ranges and empty nodes.

    Raises:
        ValueError: a line has other columns than a word, or no number where they begin.
    """
    for sentence in _sentences(path, errors):
        words: list[list[str]] = []
        begin = 0
        for number, line in sentence:
            fields = line.split("\t")
            if line.startswith("#") and len(fields) != len(CONLLU):
                continue
            if len(fields) != len(CONLLU):
                raise ValueError(
                    f"{path}:{number}: {count(len(fields))}, but a word of .conllu has "
                    f"{len(CONLLU)}, parted by tabs"
                )
            if _BESIDE.fullmatch(fields[0]):  # a word that is written out below, or not written
                continue
            if not _WORD.fullmatch(fields[0]):
                raise ValueError(
                    f"{path}:{number}: a word's id must be a number (1), a range (1-2) or an empty "
                    f"node's (1.1), got {listed([fields[0]])}"
                )
            begin = begin or number
            words.append(fields)
        if words:
            yield begin, tuple(list(column) for column in zip(*words, strict=True))


def count(n: int) -> str:
    """Say how many fields there are."""
    return "1 field" if n == 1 else f"{n} fields"


def _sentences(path: Path, errors: EncodingErrors) -> Iterator[_Lines]:
    """Yield the lines between blank ones; what else is white space does not make a line blank."""
    held: _Lines = []
    for number, line in whole_lines(path, errors):
        if line.strip(_BLANKS):
            held.append((number, line))
        elif held:
            yield held
            held = []
    if held:
        yield held


def _shape(sentences: Sequence[_Lines], header: Sequence[str]) -> tuple[int, set[str]]:
    """Return how many columns words have, and what stands in the last, of lines that are words."""
    n, last = len(header), set[str]()
    for sentence in sentences:
        begun = False
        for _, line in sentence:
            if line.startswith(_COMMENT) and not begun:
                continue
            fields = _fields(line)
            begun = begun or fields[0] != _DOCUMENT
            if begun:
                n = n or len(fields)
                last.add(fields[-1])
    return n, last


def _fields(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else parts(line)


def _odd(line: str) -> str:
    """Name white space of a line that parts no columns."""
    odd = next((c for c in line if c.isspace() and c not in _BLANKS), None)
    if odd is None:
        return ""
    name = unicodedata.name(odd, "a control character")
    return f"; only spaces and tabs part columns, not its U+{ord(odd):04X} ({name})"
