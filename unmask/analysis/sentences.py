"""Sentences of words of a file, for analyses that need no annotation."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from unmask.analysis.dependencies import read_dependencies
from unmask.text.documents import read_documents
from unmask.text.lines import EncodingErrors, iter_paragraphs
from unmask.text.sentences import sentence_spans

MIN_WORDS, MAX_WORDS = 5, 60
"""Of the sentences that are read; headings and lists have fewer, tables more."""


def read_sentences(
    path: Path, n: int, encoding_errors: EncodingErrors = "strict"
) -> list[tuple[str, ...]]:
    """Return the first sentences of a file, of `MIN_WORDS` to `MAX_WORDS` words each.

    Args:
        path: .conllu, whose words are read, or text of any kind that pretraining reads, whose words
            are between white space.
        n: at most so many.
        encoding_errors: what becomes of bytes that are not UTF-8.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it cannot be read, or has no such sentence.
    """
    sentences = (
        _annotated(path, encoding_errors) if _is_annotated(path) else _plain(path, encoding_errors)
    )
    kept = (words for words in sentences if MIN_WORDS <= len(words) <= MAX_WORDS)
    found = list(islice(kept, n))
    if not found:
        raise ValueError(f"{path}: no sentence of {MIN_WORDS} to {MAX_WORDS} words")
    return found


def _is_annotated(path: Path) -> bool:
    return ".conllu" in path.suffixes


def _annotated(path: Path, encoding_errors: EncodingErrors) -> Iterator[tuple[str, ...]]:
    for tree in read_dependencies(path, encoding_errors):
        yield tuple(tree.words)


def _plain(path: Path, encoding_errors: EncodingErrors) -> Iterator[tuple[str, ...]]:
    for document in read_documents(path, encoding_errors=encoding_errors):
        for paragraph in iter_paragraphs(document.text):
            for start, end in sentence_spans(paragraph):
                yield tuple(paragraph[start:end].split())
