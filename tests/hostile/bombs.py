"""Compressed data of a few kilobytes that unpack to gigabytes, made at once of one block."""

import bz2
import io
import lzma
import struct
import zipfile
import zlib
from functools import cache

BLOCK = 2**24


@cache
def deflated(n_blocks: int, fill: bytes = b"\0") -> bytes:
    """Return a raw DEFLATE stream of so many blocks of 16 MiB."""
    data = fill * (BLOCK // len(fill))
    packer = zlib.compressobj(9, wbits=-15)
    first = packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH)
    return first * n_blocks + packer.flush()


def gzipped(n_blocks: int, fill: bytes = b"\0") -> bytes:
    """Return a gzip file of it; its checksum, at the end, is wrong."""
    end = struct.pack("<2I", 0, n_blocks * BLOCK % 2**32)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + deflated(n_blocks, fill) + end


def xz(n_blocks: int, fill: bytes = b"\0") -> bytes:
    """Return a .xz file of as many streams."""
    return lzma.compress(fill * (BLOCK // len(fill))) * n_blocks


def bz2_file(n_blocks: int, fill: bytes = b"\0") -> bytes:
    """Return a .bz2 file of as many streams."""
    return bz2.compress(fill * (BLOCK // len(fill))) * n_blocks


def zst(n_blocks: int, fill: bytes = b"\0") -> bytes:
    """Return a .zst file of as many frames."""
    import zstandard

    return zstandard.ZstdCompressor(level=3).compress(fill * (BLOCK // len(fill))) * n_blocks


def zip_of(
    members: dict[str, bytes], bomb: str, n_blocks: int, before: bytes = b"", fill: bytes = b"\0"
) -> bytes:
    """Return a zip archive with a member that begins with `before`, then unpacks to that much."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.writestr(bomb, b"")
    packer = zlib.compressobj(9, wbits=-15)
    head = packer.compress(before) + packer.flush(zlib.Z_FULL_FLUSH)
    stream, whole = head + deflated(n_blocks, fill), len(before) + n_blocks * BLOCK
    return _with_last_member(file.getvalue(), stream, whole)


def _with_last_member(data: bytes, stream: bytes, whole: int) -> bytes:
    """Put a stream in the place of the last member, which is empty."""
    directory = data.rindex(b"PK\x05\x06")
    (begin,) = struct.unpack_from("<I", data, directory + 16)
    local, central = data.rindex(b"PK\x03\x04"), data.rindex(b"PK\x01\x02")
    sizes = struct.pack("<3I", 0, len(stream), whole)
    head = data[local : local + 14] + sizes + data[local + 26 : begin - 2]
    entry = data[central : central + 16] + sizes + data[central + 28 : directory]
    body = data[:local] + head + stream
    end = data[directory : directory + 16] + struct.pack("<I", len(body)) + b"\0\0"
    return body + data[begin:central] + entry + end
