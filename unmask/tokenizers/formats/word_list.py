"""A list of words in a file, one a line, which is beside a tokenizer."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from unmask.files import write_atomically

VocabularyT = TypeVar("VocabularyT")


def save_word_list(words: Iterable[str], path: Path) -> None:
    """Write words, whole or not at all."""
    write_atomically(path, "\n".join(words) + "\n")


def read_word_list(
    path: Path, build: Callable[[tuple[str, ...]], VocabularyT]
) -> VocabularyT | None:
    """Read words and make something of them; None: there is no such file.

    Raises:
        ValueError: the file is damaged, or nothing can be made of its words.
    """
    if not path.is_file():
        return None
    try:
        lines = path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
        return build(tuple(line.removesuffix("\r") for line in lines))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
