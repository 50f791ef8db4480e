"""A word list of a tokenizer: a file with one word per line."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from unmask.files import read_bytes, write_atomically

VocabularyT = TypeVar("VocabularyT")


def save_word_list(words: Iterable[str], path: Path) -> None:
    """Write words atomically."""
    write_atomically(path, "\n".join(words) + "\n")


def read_word_list(
    path: Path, build: Callable[[tuple[str, ...]], VocabularyT]
) -> VocabularyT | None:
    """Read words and build a vocabulary of them; None: there is no such file.

    Raises:
        ValueError: the file is damaged, or its words are invalid.
    """
    if not path.is_file():
        return None
    try:
        lines = read_bytes(path).decode("utf-8").removesuffix("\n").split("\n")
        return build(tuple(line.removesuffix("\r") for line in lines))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
