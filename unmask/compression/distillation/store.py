"""ScoreStore: what teachers predicted for the batches of a run, on disk.

A teacher's prediction depends on its weights and on the batch alone: the texts, and what an
objective masked in them, which is drawn by seed, epoch and example. Predictions are found by a hash
of the batch, so none is used for another draw.

`scores.bin` has a record for each micro-batch: hash [16 bytes], number of bytes [8], the tensors as
safetensors, and a hash of all of that [16]. Records are appended; one that was cut short, as by a
killed process, is removed when the store is opened.
"""

import dataclasses
import errno
import hashlib
import json
import logging
import os
import struct
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from unmask.batch import Batch
from unmask.compression.distillation.terms import Distillation
from unmask.files import lock_run_folder, read_json_object, remove_partial_files, write_atomically
from unmask.heads.model import Model
from unmask.tokenizers.encode import Tokenizer

_log = logging.getLogger(__name__)

FACTS_FILE, SCORES_FILE = "store.json", "scores.bin"
_HASH_BYTES = 16
_HEADER = struct.Struct(f"<{_HASH_BYTES}sQ")


class ScoreStore:
    """Predictions by batch: those that are there, and those that are added."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """Open a store, or begin one.

        Args:
            folder: its folder, a new one or one of the same facts.
            facts: what the predictions depend on, as plain data.

        Raises:
            ValueError: the folder holds something else, a store of other facts, or another process
                uses it.
        """
        self.folder = folder
        self.n_found = self.n_added = 0
        others = folder.is_dir() and any(not p.name.startswith(".") for p in folder.iterdir())
        if others and not (folder / FACTS_FILE).is_file():
            raise ValueError(f"{folder}: holds files, but no teacher's scores; name a new folder")
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder}: is a file; name a new folder")
        if (folder / FACTS_FILE).is_file():
            _check_facts(folder, facts)
        folder.mkdir(parents=True, exist_ok=True)
        opened = ExitStack()
        self.close = weakref.finalize(self, opened.close)
        """Close the file, and let other processes use the store; also done at its end of life."""
        opened.enter_context(lock_run_folder(folder))
        remove_partial_files(folder)
        if not (folder / FACTS_FILE).is_file():
            write_atomically(folder / FACTS_FILE, json.dumps(dict(facts), indent=2) + "\n")
        self._file = opened.enter_context((folder / SCORES_FILE).open("a+b", buffering=0))
        self._places = self._scan()

    def __len__(self) -> int:
        return len(self._places)

    def _scan(self) -> dict[bytes, tuple[int, int]]:
        """Return where each record is, and its bytes; remove one that was cut short."""
        descriptor = self._file.fileno()
        size, at = os.fstat(descriptor).st_size, 0
        places: dict[bytes, tuple[int, int]] = {}
        while at < size:
            header = os.pread(descriptor, _HEADER.size, at)
            key, n = _HEADER.unpack(header) if len(header) == _HEADER.size else (b"", size)
            end = at + _HEADER.size + n + _HASH_BYTES
            if end > size:
                _log.warning(
                    "%s: the last record was cut short, %d bytes; it is made again",
                    self.folder / SCORES_FILE,
                    size - at,
                )
                os.ftruncate(descriptor, at)
                break
            places[key] = at, n
            at = end
        return places

    def get(self, key: bytes) -> dict[str, Tensor] | None:
        """Return the tensors of a batch; None: there are none.

        Raises:
            ValueError: the record is damaged.
        """
        if key not in self._places:
            return None
        at, n = self._places[key]
        record = os.pread(self._file.fileno(), _HEADER.size + n + _HASH_BYTES, at)
        body, found = record[:-_HASH_BYTES], record[-_HASH_BYTES:]
        if hashlib.blake2b(body, digest_size=_HASH_BYTES).digest() != found:
            raise ValueError(
                f"{self.folder / SCORES_FILE}: the record at byte {at:,} is damaged; remove the "
                "folder, and its teacher's scores are made again"
            )
        self.n_found += 1
        return load_tensors(body[_HEADER.size :])

    def add(self, key: bytes, tensors: Mapping[str, Tensor]) -> None:
        """Append the tensors of a batch.

        Raises:
            OSError: the disk has no room for all of them; nothing of them is left.
        """
        data = save_tensors({name: x.cpu().contiguous() for name, x in tensors.items()})
        body = _HEADER.pack(key, len(data)) + data
        record = body + hashlib.blake2b(body, digest_size=_HASH_BYTES).digest()
        at = os.fstat(self._file.fileno()).st_size
        n_written = self._file.write(record)
        if n_written != len(record):
            os.ftruncate(self._file.fileno(), at)
            path = self.folder / SCORES_FILE
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        self._places[key] = at, len(data)
        self.n_added += 1


def _check_facts(folder: Path, facts: Mapping[str, Any]) -> None:
    """Check that a store was made of the same.

    Raises:
        ValueError: it was not, or its file of facts is damaged.
    """
    known = read_json_object(folder / FACTS_FILE)
    for name, value in facts.items():
        if known.get(name) != value:
            shown = [str(x)[:64] for x in (known.get(name), value)]
            raise ValueError(
                f"{folder}: was made with {name.replace('_', ' ')} {shown[0]}, this run has "
                f"{shown[1]}; name a new folder"
            )


def open_store(
    distillation: Distillation,
    teachers: Sequence[Model],
    tokenizer: Tokenizer | None,
    seed: int,
    first_step: Callable[[], Iterable[Batch]],
) -> ScoreStore | None:
    """Open the store of a run, if it has one, which must be of the same teachers and data.

    Args:
        distillation: the configuration.
        teachers: as they are run.
        tokenizer: the student's and the teachers'.
        seed: of the run.
        first_step: makes the micro-batches of the run's first step, which stand for its data:
            texts, objective, size and order.

    Raises:
        ValueError: it is of others, or another process uses it.
    """
    if distillation.store is None:
        return None
    soft = distillation.soft_targets
    vocabulary = "" if tokenizer is None else tokenizer.pieces(range(tokenizer.vocab_size))
    facts = {
        "seed": seed,
        "precision": distillation.teacher_precision,
        "soft_targets": {n: v for n, v in vars(soft).items() if n != "weight"} if soft else {},
        "tokenizer": hashlib.blake2b(repr(vocabulary).encode(), digest_size=16).hexdigest(),
        "teachers": ", ".join(map(_model_hash, teachers)),
        "data": hashlib.blake2b(
            b"".join(map(batch_hash, first_step())), digest_size=16
        ).hexdigest(),
    }
    return ScoreStore(Path(distillation.store), facts)


def _model_hash(model: Model) -> str:
    total = hashlib.blake2b(digest_size=16)
    for name, x in sorted(model.named_parameters()):
        total.update(f"{name} {x.dtype} {list(x.shape)}".encode())
        total.update(_bytes_of(x.detach()))
    return total.hexdigest()


def _bytes_of(x: Tensor) -> Any:
    return x.cpu().contiguous().flatten().view(torch.uint8).numpy()


def batch_hash(batch: Batch) -> bytes:
    """Return a hash of all that a batch holds, on whatever device it is."""
    total = hashlib.blake2b(digest_size=_HASH_BYTES)
    _update(total, batch)
    return total.digest()


def _update(total: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        total.update(f"{value.dtype} {list(value.shape)}".encode())
        total.update(_bytes_of(value))
    elif dataclasses.is_dataclass(value):
        total.update(type(value).__name__.encode())
        for field in dataclasses.fields(value):
            _update(total, getattr(value, field.name))
    elif isinstance(value, tuple | list):
        total.update(f"{len(value)} of".encode())
        for one in value:
            _update(total, one)
    elif value is None or isinstance(value, bool | int | float | str):
        total.update(f"{value!r};".encode())
    else:
        raise TypeError(f"a batch with {type(value).__name__} has no hash")
