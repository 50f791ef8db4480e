"""Writes texts in every format and compression, for the tests of reading."""

import csv
import gzip
import io
import json
import lzma
from collections.abc import Sequence
from pathlib import Path

import pyarrow
import zstandard
from pyarrow import parquet

COMPRESSIONS = ("", ".gz", ".zst", ".xz")
FORMATS = (".txt", ".jsonl", ".csv", ".parquet")


def compressed(data: bytes, ending: str) -> bytes:
    if ending == ".gz":
        return gzip.compress(data, 6)
    if ending == ".xz":
        return lzma.compress(data, preset=0)
    if ending == ".zst":
        return zstandard.ZstdCompressor(write_checksum=True).compress(data)
    return data


def stored(texts: Sequence[str], ending: str) -> bytes:
    """Store texts as the records of a file, or as blocks of lines."""
    if ending == ".txt":
        return "\n\n".join(texts).encode()
    if ending == ".jsonl":
        return "".join(
            json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(texts)
        ).encode()
    if ending == ".csv":
        file = io.StringIO(newline="")
        rows = csv.writer(file)
        rows.writerow(["id", "text"])
        rows.writerows(enumerate(texts))
        return file.getvalue().encode()
    sink = io.BytesIO()
    table = pyarrow.table({"id": range(len(texts)), "text": pyarrow.array(texts, pyarrow.string())})
    parquet.write_table(table, sink, row_group_size=7)
    return sink.getvalue()


def write(path: Path, texts: Sequence[str]) -> Path:
    """Write a file in the format of its name."""
    inner, outer = path, ""
    if path.suffix in COMPRESSIONS:
        inner, outer = path.with_suffix(""), path.suffix
    path.write_bytes(compressed(stored(texts, inner.suffix), outer))
    return path
