"""Fuzz the readers of pickled tensors, safetensors and shards, guided by coverage.

    pip install -e '.[fuzz]'
    python scripts/fuzz_readers.py pickle --seconds 300

What a reader makes of a file must be tensors, or a ValueError or OSError of one line, within two
seconds and two gigabytes. A file for which that does not hold is written to the folder of findings;
it belongs into `tests/hostile`, then. Needs atheris (libFuzzer for Python).
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris
import numpy as np
import torch
from safetensors.torch import save

with atheris.instrument_imports(include=["unmask"]):
    from unmask.bundled.models import BUNDLED_MODELS
    from unmask.checkpoints.tensors import read_tensors
    from unmask.shards.manifest import folder_sha256
    from unmask.shards.read import TokenShards

ALLOWED_SECONDS, ALLOWED_MEGABYTES, MAX_BYTES = 2, 2048, 4096
TENSORS = {"a": torch.arange(4.0), "b.weight": torch.ones(2, 3, dtype=torch.float16)}


def read_pickle(folder: Path, data: bytes) -> None:
    """Read a file as pickled tensors."""
    path = folder / "pytorch_model.bin"
    path.write_bytes(data)
    read_tensors(path)


def read_safetensors(folder: Path, data: bytes) -> None:
    """Read a file as safetensors."""
    path = folder / "model.safetensors"
    path.write_bytes(data)
    read_tensors(path)


def read_shards(folder: Path, data: bytes) -> None:
    """Read a folder of one shard: its manifest, and after a line end the bytes of its arrays."""
    manifest, _, numbers = data.partition(b"\n")
    (folder / "shards.json").write_bytes(manifest)
    n = len(numbers) // 5
    for kind, start, end in (("tokens", 0, 2), ("marks", 2, 3), ("documents", 3, 5)):
        (folder / f"00000.{kind}").write_bytes(numbers[start * n : end * n])
    shards = TokenShards.open(folder)
    for start, end in shards.document_spans[:10].tolist():
        shards.read_tokens(start, end)
    shards.row_spans(4, "sentences")


def pickle_seeds() -> list[bytes]:
    """Return files in both layouts."""
    seeds: list[bytes] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a"
        for zipped in (True, False):
            for state in (TENSORS, {"state_dict": TENSORS, "epoch": 3}, {}):
                torch.save(state, path, _use_new_zipfile_serialization=zipped)
                seeds.append(path.read_bytes())
    return seeds


def safetensors_seeds() -> list[bytes]:
    """Return files of a few tensors."""
    return [save(TENSORS), save({}), save(TENSORS, {"unmask_checksum": "00000000"})]


def shard_seeds() -> list[bytes]:
    """Return a folder of one shard of twelve tokens, as `read_shards` takes it."""
    numbers = np.zeros(12, "<u2").tobytes() + bytes(12) + np.array([0, 5, 12], "<i8").tobytes()
    sizes = {kind: {"size": 24, "sha256": ""} for kind in ("tokens", "marks", "documents")}
    sizes["marks"]["size"] = 12
    counts = {"n_tokens": 12, "n_documents": 2, "n_bytes": 9}
    shard = sizes | counts | {"n_documents_read": 2, "source_sha256": ""}
    tokenizer = folder_sha256(BUNDLED_MODELS["unmask-mini-en"])
    manifest = {
        "format": 2, "tokenizer_sha256": tokenizer, "vocab_size": 100, "dtype": "uint16",
        "shard_tokens": 100, "shards": [shard],
    }  # fmt: skip
    return [json.dumps(manifest | counts).encode() + b"\n" + numbers]


READERS: dict[str, tuple[Callable[[Path, bytes], None], Callable[[], list[bytes]]]] = {
    "pickle": (read_pickle, pickle_seeds),
    "safetensors": (read_safetensors, safetensors_seeds),
    "shards": (read_shards, shard_seeds),
}


def main() -> None:
    """Fuzz one reader for so many seconds; libFuzzer prints how many files were tried."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("reader", choices=READERS)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--findings", type=Path, default=Path("findings"))
    given = parser.parse_args()
    read, seeds = READERS[given.reader]
    work = Path(tempfile.mkdtemp())
    corpus = work / "corpus"
    corpus.mkdir()
    given.findings.mkdir(exist_ok=True)
    for i, seed in enumerate(seeds()):
        (corpus / str(i)).write_bytes(seed)

    def check(data: bytes) -> None:
        try:
            read(work, data)
        except (ValueError, OSError) as error:
            if "\n" in str(error):
                raise AssertionError(f"more than one line: {error}") from error

    words = [sys.argv[0], str(corpus), f"-max_total_time={given.seconds}", "-print_final_stats=1"]
    words += [f"-timeout={ALLOWED_SECONDS}", f"-rss_limit_mb={ALLOWED_MEGABYTES}"]
    words += [f"-max_len={MAX_BYTES}", f"-artifact_prefix={given.findings}/{given.reader}-"]
    try:
        atheris.Setup(words, check)
        atheris.Fuzz()
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
