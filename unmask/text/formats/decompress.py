"""The first step of the data's path: the bytes of a file, decompressed, piece by piece.

Memory stays bounded whatever the file holds: compressed bytes are fed in slices so small that even
a bomb's slice expands to little (DEFLATE at most 1032 times, LZMA about 7000, Zstandard 32768).
"""

import importlib.util
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol, runtime_checkable

COMPRESSIONS = (".gz", ".zst", ".xz")
"""Endings of compressed files; any other file is read as it is."""

CHUNK_BYTES = 2**18
"""Bytes yielded at a time: at least this many while the file continues, at most twice as many."""

_INPUT_SLICE_BYTES = 512  # compressed bytes fed at once: 16 MiB at Zstandard's highest ratio
_XZ_MEMORY_BYTES = 2**28  # bytes that an .xz file may ask for (`xz -9` asks for 65 MiB)
_ZSTD_WINDOW_BYTES = 2**27  # bytes that a .zst file may look back (`zstd --long`)

# Text shrinks 3 to 20 times, a short one repeated more: beyond 4 MiB, 250 times is no text.
_BOMB_SIZE, _BOMB_RATIO = 2**22, 250


def compression_suffix(path: Path) -> str | None:
    """Return the compression that the name of a file ends in, or None."""
    ending = path.suffix.lower()
    return ending if ending in COMPRESSIONS else None


def require_module(module: str, what: str, *, extra: str = "data") -> None:
    """Return which extra to install where an optional module is missing.

    Raises:
        ImportError: `module` is not installed.
    """
    if importlib.util.find_spec(module) is None:
        raise ImportError(f"{what} needs {module}: pip install 'unmask[{extra}]'")


def read_decompressed(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, decompressed if its name says so, about `CHUNK_BYTES` at a time.

    Raises:
        ValueError: the compressed data is truncated or damaged, asks for too much memory, or
            expands as no text does.
    """
    kind = compression_suffix(path)
    with path.open("rb") as file:
        if kind is None:
            while data := file.read(CHUNK_BYTES):
                yield data
        else:
            yield from _rechunk(_decompress(file, path, kind))


@runtime_checkable
class _Decompressor(Protocol):
    """What zlib, lzma and zstandard agree on: one stream (member, frame), fed in slices."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def _new_decompressor(suffix: str) -> _Decompressor:
    if suffix == ".gz":
        return zlib.decompressobj(wbits=31)  # 31: a gzip header, the largest window
    if suffix == ".xz":
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)
    require_module("zstandard", "reading .zst")
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).decompressobj()


def _damage_errors(suffix: str) -> tuple[type[Exception], ...]:
    if suffix == ".gz":
        return (zlib.error,)
    if suffix == ".xz":
        return (lzma.LZMAError,)
    import zstandard

    return (zstandard.ZstdError,)


def _decompress(file: BinaryIO, path: Path, suffix: str) -> Iterator[bytes]:
    """Decompress all streams of a file: tools may join them, and pad between them with zeros."""
    decompressor, read, written = _new_decompressor(suffix), 0, 0
    damage = _damage_errors(suffix)
    while data := file.read(_INPUT_SLICE_BYTES):
        read += len(data)
        while data:
            if decompressor.eof:
                data = data.lstrip(b"\0")
                if not data:
                    break
                decompressor = _new_decompressor(suffix)
            try:
                text = decompressor.decompress(data)
            except damage as error:
                raise ValueError(
                    f"{path}: damaged, or not {suffix} at all, near its byte {read}: {error}"
                ) from error
            written += len(text)
            if written > max(_BOMB_SIZE, _BOMB_RATIO * read):
                raise ValueError(
                    f"{path}: expands more than {_BOMB_RATIO} times, to over {written} bytes, "
                    "as no text does; if it is meant to, decompress it first"
                )
            yield text
            data = decompressor.unused_data if decompressor.eof else b""
    if not decompressor.eof:
        raise ValueError(
            f"{path}: the {suffix} data ends too early, after {read} bytes: the file is truncated"
        )


def _rechunk(texts: Iterator[bytes]) -> Iterator[bytes]:
    """Join short pieces, and cut long ones."""
    held: list[bytes] = []
    size = 0
    for text in texts:
        for start in range(0, len(text), CHUNK_BYTES):
            held.append(text[start : start + CHUNK_BYTES])
            size += len(held[-1])
            if size >= CHUNK_BYTES:
                yield b"".join(held)
                held, size = [], 0
    if held:
        yield b"".join(held)
