"""A map of words: two dimensions of their vectors, with readable labels."""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from unmask.config import check_number_arguments
from unmask.files import write_atomically
from unmask.inference.vectors.load_word_vectors import load_word_vectors
from unmask.output import OutputStream, print_line
from unmask.reports.charts.word_map import render_word_map
from unmask.text.lines import is_blank, read_lines
from unmask.word_vectors.keyed_vectors import KeyedVectors
from unmask.word_vectors.projection import PrincipalComponents, Projection

MAX_WORDS = 2000
"""Maximum number of words, for readability."""
N_DEFAULT_WORDS = 100
"""Default number of words."""
_PRINCIPAL_COMPONENTS = PrincipalComponents()


@check_number_arguments
def draw_word_map(
    word_vectors: str | Path | KeyedVectors,
    words: Sequence[str] = (),
    *,
    out: str | Path,
    file: str | Path | None = None,
    projection: Projection = _PRINCIPAL_COMPONENTS,
    limit: int | None = None,
    terminal: OutputStream | None = sys.stderr,
) -> tuple[str, ...]:
    """Draw words in two dimensions as an SVG file; return the words drawn.

    Vectors are normalized to unit length.

    Args:
        word_vectors: word vectors, or their file.
        words: words to draw.
        out: the file to write (.svg).
        file: a file with more words, one per line; unknown ones are skipped, with a message.
            Without words and file, the first 100 words are drawn.
        projection: `PrincipalComponents()`, which preserves directions, or `TSNE(seed=0)`, which
            preserves neighbors.
        limit: number of word vectors to read, the first ones.
        terminal: stream for the message. None: no message.

    Raises:
        FileNotFoundError: a file or folder is missing.
        ValueError: a word is unknown, or there are too few or too many words.
    """
    out = Path(out)
    if not out.parent.is_dir():
        raise FileNotFoundError(f"{out}: there is no folder {out.parent}")
    if out.exists() and not out.is_file():  # renaming would replace it by a file
        raise ValueError(f"{out}: is a folder or a device; name a file")
    if out.suffix.lower() != ".svg":
        raise ValueError(f"{out}: pictures are drawn as SVG; name a file that ends in .svg")
    listed = [] if file is None else _read_words(Path(file))
    word_vectors = load_word_vectors(word_vectors, limit=limit)
    for word in words:
        word_vectors.row(word)
    unknown = [word for word in listed if word not in word_vectors]
    chosen = [*words, *(word for word in listed if word in word_vectors)]
    words_drawn = (
        tuple(dict.fromkeys(chosen)) if words or listed else word_vectors.words[:N_DEFAULT_WORDS]
    )
    if unknown and terminal is not None:
        ellipsis = ", ..." if len(unknown) > 5 else ""
        print_line(
            f"{file}: {len(unknown):,} of {len(listed):,} words are not known: "
            f"{', '.join(unknown[:5])}{ellipsis}",
            terminal,
        )
    if not 3 <= len(words_drawn) <= MAX_WORDS:
        raise ValueError(f"a picture shows 3 to {MAX_WORDS:,} words, got {len(words_drawn):,}")
    vectors = np.stack([word_vectors.vectors[word_vectors.row(word)] for word in words_drawn])
    points, caption = projection.project(vectors)
    write_atomically(out, render_word_map(words_drawn, points, caption))
    return words_drawn


def _read_words(path: Path) -> list[str]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    words = [line.strip() for _, line, _ in read_lines(path, 2**16) if not is_blank(line)]
    if not words:
        raise ValueError(f"{path}: has no words")
    return words
