r"""Files of word vectors: what a file is, reading and writing it. Nothing is ever unpickled.

word2vec-text    `.vec`  a header "n d", then a line for each word (word2vec, fastText)
word2vec-binary  `.bin`  the same header, then each word and its numbers as float32
glove            `.txt`  lines without a header
fasttext         `.bin`  a model of fastText: words' vectors are composed of those of their n-grams

Each may be packed (`.gz`, `.xz`, `.zst`). What a file is, its first bytes say, not its name.
"""

import gzip
import lzma
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast, get_args

from unmask.files import atomic_path
from unmask.text.formats.decompress import (
    COMPRESSIONS,
    compression_suffix,
    read_decompressed,
    require_module,
)
from unmask.word_vectors.formats.fasttext_model import MAGIC, FastTextVectors, read_fasttext
from unmask.word_vectors.formats.text import (
    HEADER_PATTERN,
    ends_in_number,
    read_text_vectors,
    write_text_vectors,
)
from unmask.word_vectors.formats.word2vec_binary import MAX_WORD_BYTES, read_binary, write_binary
from unmask.word_vectors.keyed_vectors import KeyedVectors

Format = Literal["word2vec-text", "word2vec-binary", "glove", "fasttext"]
"""Formats that are read and written; the last is written of vectors that have n-grams."""

FORMATS: tuple[Format, ...] = get_args(Format)
FORMAT_OF_SUFFIX: Mapping[str, Format] = {
    ".vec": "word2vec-text",
    ".bin": "word2vec-binary",
    ".txt": "glove",
}
"""What a file is written as whose name ends so, where no format is named."""

_UNSUPPORTED_SUFFIXES = {
    b"\x1f\x8b": "looks like gzip: name it .gz",
    b"\xfd7zXZ\0": "looks like xz: name it .xz",
    b"\x28\xb5\x2f\xfd": "looks like Zstandard: name it .zst",
    b"PK\x03\x04": "is a zip archive: unpack it and name the file of vectors in it",
    b"\x93NUMPY": "is an array of NumPy, without words",
    b"\x89HDF": "is HDF5, which is not read",
    b"\xff\xfe": "looks like UTF-16: write it as UTF-8",
    b"\xfe\xff": "looks like UTF-16: write it as UTF-8",
}
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_WHITE_SPACE = re.compile(r"[ \t\r\n]")


def read_vectors(
    path: str | Path, *, format_name: Format | None = None, limit: int | None = None
) -> KeyedVectors:
    r"""Read a file of word vectors.

    Words may hold spaces in text. Bytes of words that are not UTF-8 are read as "\xNN", so that no
    two words become one; of repeated words, the first is kept. A warning counts both.

    Args:
        path: path of the file.
        format_name: file format. None: detected from the first bytes.
        limit: number of words that are read, from the first; most files are sorted by frequency.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is empty, truncated, of another kind, or has a row that does not fit; the
            line, or the byte, is named.
    """
    path = Path(path)
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    format_name = detect_format(path) if format_name is None else format_name
    if format_name == "fasttext":
        return read_fasttext(path, limit=limit)
    if format_name == "word2vec-binary":
        return read_binary(path, limit=limit)
    if format_name not in FORMATS:
        raise ValueError(f"format_name must be one of {list(FORMATS)}, got {format_name!r}")
    return read_text_vectors(path, header=format_name == "word2vec-text", limit=limit)


def detect_format(path: Path) -> Format:
    """Detect the format of a file of vectors from its first bytes.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is empty, or known to be something else.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if not path.is_file():
        raise ValueError(f"{path}: must be a file of word vectors, got a folder or a device")
    head = next(read_decompressed(path), b"")
    if not head.strip():
        raise ValueError(f"{path}: an empty file, no word vectors")
    if head.startswith(MAGIC):
        return "fasttext"
    if _PICKLE.match(head):
        raise ValueError(
            f"{path}: a pickle, as gensim's own .save writes: it is never opened, since it can run "
            "code; write another file in gensim: vectors.save_word2vec_format('vectors.bin', "
            "binary=True), with vectors = model.wv of a model"
        )
    for begin, said in _UNSUPPORTED_SUFFIXES.items():
        if head.startswith(begin):
            raise ValueError(f"{path}: {said}")
    first, _, rest = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")
    if (header := HEADER_PATTERN.fullmatch(first)) is not None:
        binary = _is_binary(rest, int(header[2]), _suffix(path) == ".bin")
        return "word2vec-binary" if binary else "word2vec-text"
    if _CONTROL.search(head):
        raise ValueError(f"{path}: neither text nor a binary file of vectors that is known")
    return "glove"


def _is_binary(rest: bytes, width: int, named: bool) -> bool:
    """Return whether vectors are binary; by the file's name if their bytes look like text."""
    line = rest.split(b"\n", 1)[0]
    if ends_in_number(line) and not _CONTROL.search(line):
        return False
    numbers = rest.partition(b" ")[2][: 4 * width]
    return bool(_CONTROL.search(numbers)) or not _is_text(numbers) or named


def write_vectors(
    space: KeyedVectors,
    path: str | Path,
    format_name: Format | None = None,
    *,
    white_space_replacement: str | None = None,
) -> None:
    """Write a file of word vectors, whole or not at all; others read back the same numbers.

    Args:
        space: the words and vectors.
        path: of the file; it is packed if its name ends so (.gz, .xz, .zst).
        format_name: the format; None: what the file's name says (.vec, .bin, .txt).
        white_space_replacement: what is written for each white space within a word, "_" for
            instance; no format can say it. None: such a word is an error.

    Raises:
        ValueError: the name says no format, a word cannot be written, or these vectors are not
            composed of n-grams, for a model of fastText.
        OSError: the file cannot be written.
    """
    path = Path(path)
    format_name = format_of(path) if format_name is None else format_name
    if format_name not in FORMATS:
        raise ValueError(f"the format must be one of {list(FORMATS)}, got {format_name!r}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {path.parent}")
    if path.exists() and not path.is_file():  # renaming would put a file in its place
        raise ValueError(f"{path}: is a folder or a device; name a file")
    if format_name == "fasttext":
        data = _fasttext_bytes(space)
    else:
        words = _encoded_words(space, white_space_replacement)
        _check_readable(space, words, format_name)
        if format_name == "word2vec-binary":
            data = write_binary(space, words)
        else:
            data = write_text_vectors(space, words, header=format_name == "word2vec-text")
    with atomic_path(path) as beside:
        _write_compressed(beside, compression_suffix(path), data)


def format_of(path: Path) -> Format:
    """Return the format that the name of a file says.

    Raises:
        ValueError: it says none.
    """
    ending = _suffix(path)
    if ending not in FORMAT_OF_SUFFIX:
        known = ", ".join(f"{e} ({f})" for e, f in FORMAT_OF_SUFFIX.items())
        raise ValueError(f"{path}: name the format, or end the name in one of {known}")
    return FORMAT_OF_SUFFIX[ending]


def _suffix(path: Path) -> str:
    """Return the ending of a file's name, without that of its compression."""
    return (path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path).suffix.lower()


def _fasttext_bytes(space: KeyedVectors) -> Iterator[bytes]:
    """Return the bytes of the model that a space was read of, or a run has written."""
    model = space.composer
    if not isinstance(model, FastTextVectors):
        raise ValueError(
            "a model of fastText has n-grams, and these vectors have none: only a run of fasttext, "
            "or such a model, is written as one"
        )
    if len(space) < len(model.words):
        raise ValueError(
            f"a model of fastText is written whole, with its {len(model.words):,} words, "
            f"got {len(space):,} of them"
        )
    return read_decompressed(model.path)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"  # where it was cut
    return True


def _encoded_words(space: KeyedVectors, white: str | None) -> list[bytes]:
    """Return words as bytes, of which none holds white space."""
    found = [word for word in space.words if _WHITE_SPACE.search(word)]
    words: Iterable[str] = space.words
    if found:
        if white is None:
            raise ValueError(
                f"words with white space cannot be written so that others read them: {found[0]!r} "
                f"and {len(found) - 1:,} more; say what to write instead of it, '_' for instance"
            )
        if _WHITE_SPACE.search(white):
            raise ValueError(f"what is written for white space must hold none, got {white!r}")
        words = [_replace_white_space(word, white) for word in space.words]
        if len(set(words)) < len(words):
            twice, _ = Counter(words).most_common(1)[0]
            raise ValueError(f"with {white!r} for white space two words become {twice!r}")
    try:
        return [word.encode() for word in words]
    except UnicodeEncodeError as error:
        raise ValueError(f"the word {error.object!a} is no text that UTF-8 can say") from None


def _check_readable(space: KeyedVectors, words: list[bytes], form: Format) -> None:
    """Refuse words with which a file would not be read back.

    Raises:
        ValueError: there is one; it is named.
    """
    if form == "word2vec-binary":
        for n, word in enumerate(words, 1):
            if len(word) > MAX_WORD_BYTES:
                raise ValueError(
                    f"word {n} has {len(word):,} bytes, of which a binary file holds at most "
                    f"{MAX_WORD_BYTES:,}; write it as word2vec-text"
                )
    if form != "glove":
        return
    odd = next((word for word in words if _CONTROL.search(word)), None)
    if odd is not None:
        raise ValueError(
            f"the word {odd.decode()!a} holds a control character, by which a file without a "
            "header is taken for a binary one; write it as word2vec-text"
        )
    first = b"".join(write_text_vectors(space.most_frequent(1), words[:1], header=False)).rstrip(
        b"\n"
    )
    if HEADER_PATTERN.fullmatch(first):
        raise ValueError(
            f"the first line would be {first.decode()!a}, which is read as a header; write it as "
            "word2vec-text"
        )


def _replace_white_space(word: str, white: str) -> str:
    return white.join(_WHITE_SPACE.split(word))


def _write_compressed(path: Path, packing: str | None, data: Iterable[bytes]) -> None:
    if packing == ".zst":
        require_module("zstandard", "writing .zst")
        import zstandard

        opened: Any = zstandard.open(path, "wb")
    else:
        open_: Callable[[Path, str], Any]
        open_ = {None: open, ".gz": gzip.open, ".xz": lzma.open}[packing]
        opened = open_(path, "wb")
    with cast("BinaryIO", opened) as file:
        for piece in data:
            file.write(piece)
