import gzip
import lzma
import random
import sys
import tracemalloc
import zlib
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from storing import COMPRESSIONS, compressed

from unmask.text.formats import decompress as module
from unmask.text.formats.decompress import CHUNK_BYTES, read_decompressed, require_module

REAL = COMPRESSIONS[1:]


def write(folder: Path, ending: str, data: bytes) -> Path:
    path = folder / f"x.txt{ending}"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("ending", COMPRESSIONS)
@given(data=st.binary(max_size=5000), times=st.integers(1, 400))
def test_bytes_round_trip(
    ending: str, data: bytes, times: int, tmp_path_factory: pytest.TempPathFactory
):
    data = data * times
    path = write(tmp_path_factory.getbasetemp(), ending, compressed(data, ending))
    assert b"".join(read_decompressed(path)) == data


@pytest.mark.parametrize("ending", REAL)
def test_concatenated_streams_are_joined(ending: str, tmp_path: Path):
    streams = [b"one " * 1000, b"", b"two"]
    data = b"".join(compressed(stream, ending) for stream in streams)
    assert b"".join(read_decompressed(write(tmp_path, ending, data))) == b"".join(streams)


@pytest.mark.parametrize("ending", [".gz", ".xz"])
def test_zeros_between_and_after_streams_are_padding(ending: str, tmp_path: Path):
    one = compressed(b"one", ending)
    data = one + bytes(2048) + one + bytes(4096)
    assert b"".join(read_decompressed(write(tmp_path, ending, data))) == b"oneone"


def test_skippable_frames_are_skipped(tmp_path: Path):
    skippable = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"12345"
    frame = compressed(b"text", ".zst")
    data = skippable + frame + skippable
    assert b"".join(read_decompressed(write(tmp_path, ".zst", data))) == b"text"


@pytest.mark.parametrize("ending", REAL)
def test_suffix_is_recognized_in_capitals(ending: str, tmp_path: Path):
    path = write(tmp_path, ending.upper(), compressed(b"text", ending))
    assert b"".join(read_decompressed(path)) == b"text"


@pytest.mark.parametrize("ending", REAL)
@given(share=st.floats(0, 1, exclude_max=True))
def test_truncated_data_is_refused_at_any_length(
    ending: str, share: float, tmp_path_factory: pytest.TempPathFactory
):
    data = compressed(bytes(range(256)) * 20, ending)
    path = write(tmp_path_factory.getbasetemp(), ending, data[: int(share * len(data))])
    with pytest.raises(ValueError, match=rf"x\.txt\{ending}: .* ends too early, after \d+ bytes"):
        list(read_decompressed(path))


@pytest.mark.parametrize("ending", REAL)
def test_damaged_data_is_refused(ending: str, tmp_path: Path):
    data = bytearray(compressed(bytes(range(256)) * 50, ending))
    data[len(data) // 2 : len(data) // 2 + 8] = b"\xff" * 8
    with pytest.raises(ValueError, match=r"x\.txt\.\w+: (damaged|the)"):
        list(read_decompressed(write(tmp_path, ending, bytes(data))))


@pytest.mark.parametrize("ending", REAL)
@pytest.mark.parametrize("data", [b"plain text, not compressed", bytes(32)])
def test_uncompressed_data_is_refused(ending: str, data: bytes, tmp_path: Path):
    with pytest.raises(ValueError, match=f"damaged, or not {ending} at all"):
        list(read_decompressed(write(tmp_path, ending, data)))


@pytest.mark.parametrize("ending", REAL)
def test_text_after_the_last_stream_is_refused(ending: str, tmp_path: Path):
    data = compressed(b"text", ending) + b"and more that is not compressed"
    with pytest.raises(ValueError, match="damaged"):
        list(read_decompressed(write(tmp_path, ending, data)))


def opened(path: Path, ending: str):
    if ending == ".gz":
        return gzip.open(path, "wb")
    return lzma.open(path, "wb", preset=0) if ending == ".xz" else zstandard.open(path, "wb")


@pytest.mark.thorough
@pytest.mark.parametrize("ending", REAL)
def test_large_file_is_read_in_bounded_memory(ending: str, tmp_path: Path):
    size, draw = 100 * 2**20, random.Random(0)
    path = tmp_path / f"x.txt{ending}"
    with opened(path, ending) as writer:
        for _ in range(size // 2**20):
            writer.write(draw.randbytes(2**14).hex().encode() * 32)  # 64 times as much as its bits
    tracemalloc.start()
    seen = longest = 0
    for piece in read_decompressed(path):
        seen, longest = seen + len(piece), max(longest, len(piece))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seen == size
    assert longest <= 2 * CHUNK_BYTES
    assert peak < 50 * 2**20


def test_implausible_expansion_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_BOMB_SIZE", 2**20)
    bomb = write(tmp_path, ".xz", lzma.compress(b"a" * 2**22))
    with pytest.raises(ValueError, match=r"expands more than 250 times.*decompress it first"):
        list(read_decompressed(bomb))
    text = " ".join(str(i) for i in range(300_000)).encode()
    assert (
        b"".join(read_decompressed(write(tmp_path, ".xz", lzma.compress(text, preset=0)))) == text
    )


def test_xz_file_cannot_request_gigabytes(tmp_path: Path):
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**20}]
    data = bytearray(lzma.compress(b"a" * 1000, filters=filters))
    # The dictionary's size is one byte of the block's header, which ends with its checksum.
    at = data.index(b"\x21\x01", 12) + 2
    data[at] = 40  # 4 GiB - 1
    start, length = 12, (data[12] + 1) * 4
    checksum = zlib.crc32(data[start : start + length - 4])
    data[start + length - 4 : start + length] = checksum.to_bytes(4, "little")
    with pytest.raises(ValueError, match=r"x\.txt\.xz: .*[Mm]emory"):
        list(read_decompressed(write(tmp_path, ".xz", bytes(data))))


def test_zst_file_cannot_request_gigabytes(tmp_path: Path):
    # Magic number, a descriptor without sizes, a window of 2**31 bytes, one empty last block.
    data = b"\x28\xb5\x2f\xfd" + b"\x00" + bytes([(31 - 10) << 3]) + b"\x01\x00\x00"
    with pytest.raises(ValueError, match=r"x\.txt\.zst: .*memory"):
        list(read_decompressed(write(tmp_path, ".zst", data)))


def test_chunks_are_of_moderate_size(tmp_path: Path):
    text = " ".join(str(i) for i in range(200_000)).encode()
    for ending in COMPRESSIONS:
        sizes = [
            len(p) for p in read_decompressed(write(tmp_path, ending, compressed(text, ending)))
        ]
        assert len(sizes) > 3
        assert max(sizes) <= 2 * CHUNK_BYTES


def test_missing_module_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(tmp_path, ".zst", compressed(b"text", ".zst"))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ImportError, match=r"zstandard: pip install 'unmask\[data\]'"):
        list(read_decompressed(path))
    with pytest.raises(ImportError, match="reading lots needs nowhere_to_be_found"):
        require_module("nowhere_to_be_found", "reading lots")
