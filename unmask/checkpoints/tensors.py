"""Files of tensors: safetensors, and the older pickled files through torch's allow-list reader.

Nothing is executed.
"""

import errno
import hashlib
import json
import math
import os
import pickle
import re
import struct
import tempfile
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from unmask.checkpoints.huggingface.pickled import check_before_loading, to_plain_tensors
from unmask.checkpoints.packed import PACKED_WEIGHTS, decode_tensors, read_encodings
from unmask.files import checksum, parse_json, parser_errors_as_value_error, read_json_object

SAFETENSORS_WEIGHTS, PICKLED_WEIGHTS = "model.safetensors", "pytorch_model.bin"
METADATA = {"format": "pt"}
"""Header entry expected by other libraries."""
_MAX_NAME = 200
"""Characters of the name of a file in an index: file systems allow 255 bytes."""
CHECKSUM_KEY = "unmask_checksum"
"""Header key of the checksum of the tensors; see `tensors_checksum`."""

_MAX_BYTES_IN_MEMORY = 1 << 30
"""Of weights that may lie on disk."""

# The errors of a pickle reader on other data depend on these data.
_UNPICKLING_ERRORS = (
    pickle.UnpicklingError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
)


def tensors_sha256(tensors: Mapping[str, Tensor]) -> str:
    """Return a SHA-256 of names, shapes and float32 values."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().to("cpu", torch.float32).contiguous().numpy().data)
    return digest.hexdigest()


def tensors_checksum(tensors: Mapping[str, Tensor]) -> str:
    """Return a fast checksum of names, types, shapes and bytes, for the detection of damage."""
    result = 0
    for name, tensor in sorted(tensors.items()):
        result = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode(), result)
        bytes_ = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        result = checksum(bytes_.numpy().data, result)
    return f"{result:08x}"


def to_float32_weight(name: str, tensor: Tensor) -> Tensor:
    """Copy a tensor of a file as float32, so that it is of the file no more.

    Raises:
        ValueError: it has integers, or values that are not finite.
    """
    if not tensor.is_floating_point():
        kind = str(tensor.dtype).removeprefix("torch.")
        raise ValueError(f"tensor {name} must have floating-point values, got {kind}")
    weight = _new_tensor(tensor.shape, torch.float32).copy_(tensor)
    # A sum reads once what `isfinite` copies twice, for a thirtieth of its time; it may overflow.
    if not bool(weight.sum().isfinite()) and not bool(weight.isfinite().all()):
        raise ValueError(f"tensor {name} has values that are not finite")
    return weight


@contextmanager
def large_weights_on_disk(folder: Path) -> Generator[None, None, None]:
    """Let weights that are read meanwhile lie on disk, but for the first 1 GiB of them.

    They are files of `folder` without a name, mapped into memory: a model may be larger than
    memory, as the system writes out what it has no room for. The disk has them again when nothing
    refers to them, or the process ends. Without effect on Windows.

    Raises:
        OSError: within, of what reads weights: the disk is full.
    """
    before = _disk.set(_Disk(folder))
    try:
        yield
    finally:
        _disk.reset(before)


@dataclass
class _Disk:
    folder: Path
    bytes_in_memory: int = 0


_disk = ContextVar[_Disk | None]("disk", default=None)


def _new_tensor(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return a tensor of any values, in memory or on disk; see `large_weights_on_disk`."""
    disk, n = _disk.get(), math.prod(shape)
    if disk is None or not n or os.name != "posix":
        return torch.empty(shape, dtype=dtype)
    if disk.bytes_in_memory + n * dtype.itemsize <= _MAX_BYTES_IN_MEMORY:
        disk.bytes_in_memory += n * dtype.itemsize
        return torch.empty(shape, dtype=dtype)
    try:
        with tempfile.TemporaryFile(dir=disk.folder) as file:
            if hasattr(os, "posix_fallocate"):  # a full disk would end the process later
                os.posix_fallocate(file.fileno(), 0, n * dtype.itemsize)
            name = f"/dev/fd/{file.fileno()}"
            return torch.from_file(name, shared=True, size=n, dtype=dtype).view(*shape)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(disk.folder)) from None
    except RuntimeError:  # torch's, from the system's call
        raise ValueError(
            f"{disk.folder}: files there cannot be mapped into memory, which weights of this size "
            "need: choose a folder on another file system"
        ) from None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read one file of tensors.

    Raises:
        FileNotFoundError: there is none.
        ValueError: the file is truncated or damaged, or has other content than tensors.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    if path.suffix == ".safetensors":
        with _open_safetensors(path) as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            expected = (file.metadata() or {}).get(CHECKSUM_KEY)
        if expected is not None and (actual := tensors_checksum(tensors)) != expected:
            raise ValueError(
                f"{path}: truncated or damaged: its tensors have changed since they were written "
                f"(checksum {actual}, expected {expected})"
            )
        return tensors
    return _read_pickled(path)


def _read_pickled(path: Path) -> dict[str, Tensor]:
    try:
        check_before_loading(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on damaged files
            state = torch.load(path, map_location="cpu", weights_only=True)
    except _UNPICKLING_ERRORS as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0]}" if str(error) else ""
        if isinstance(error, pickle.UnpicklingError):  # its advice is to disable the checks
            reason = "only a file with nothing but tensors is read"
        raise ValueError(f"{path}: refused or damaged ({reason[:160]})") from None
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        state = state["state_dict"]
    if not isinstance(state, Mapping) or not all(isinstance(x, Tensor) for x in state.values()):
        raise ValueError(f"{path}: must be a table of tensors by name")
    return to_plain_tensors(path, cast("Mapping[object, Tensor]", state))


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file, with a checksum in its header; the caller makes it atomic.

    Raises:
        OSError: it cannot be written, for instance because the disk is full.
    """
    path.touch()
    # The library creates files for the owner only, ignoring the umask.
    mode = path.stat().st_mode
    written = {name: _contiguous(x.detach().cpu()) for name, x in tensors.items()}
    digits = tensors_checksum(written)
    try:
        save_file(written, path, METADATA | {CHECKSUM_KEY: digits})
        _order_metadata(path, digits)
        path.chmod(mode)
    except SafetensorError as error:
        # The error number is only in the message of the library.
        match = re.search(r"os error (\d+)", str(error))
        number = int(match[1]) if match else errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from error


def _contiguous(tensor: Tensor) -> Tensor:
    if tensor.is_contiguous():
        return tensor
    return _new_tensor(tensor.shape, tensor.dtype).copy_(tensor)


def _order_metadata(path: Path, checksum_value: str) -> None:
    """Write the header's metadata in a fixed order: that of the library varies by process."""
    ordered, reordered = (
        json.dumps(metadata, separators=(",", ":")).encode()
        for metadata in (
            METADATA | {CHECKSUM_KEY: checksum_value},
            {CHECKSUM_KEY: checksum_value} | METADATA,
        )
    )
    with path.open("r+b") as file:
        head = file.read(int.from_bytes(file.read(8), "little"))
        if reordered in head:
            file.seek(8 + head.index(reordered))
            file.write(ordered)


def read_model_tensors(folder: Path) -> dict[str, Tensor]:
    """Read the weights of a folder in the Hugging Face layout.

    One file or several, packed before safetensors before pickled.

    Raises:
        FileNotFoundError: the folder has no weights, or an index names a file that is not there.
        ValueError: a file is damaged, an encoding does not match its tensors, or an index has a
            path outside the folder.
    """
    if (folder / PACKED_WEIGHTS).is_file():
        return decode_tensors(folder, read_tensors(folder / PACKED_WEIGHTS))
    for name in (SAFETENSORS_WEIGHTS, PICKLED_WEIGHTS):
        if (folder / name).is_file():
            return read_tensors(folder / name)
        index = folder / f"{name}.index.json"
        if index.is_file():
            return _read_weight_shards(folder, index)
    raise FileNotFoundError(
        f"{folder}: no weights (looked for {SAFETENSORS_WEIGHTS}, {PICKLED_WEIGHTS} and their "
        ".index.json)"
    )


def tensor_names(folder: Path) -> list[str]:
    """Return the names of the tensors of `read_model_tensors`, from headers only.

    Empty if the files have no headers.

    Raises:
        ValueError: a file is damaged.
    """
    if (folder / PACKED_WEIGHTS).is_file():
        encoded = read_encodings(folder)
        with _open_safetensors(folder / PACKED_WEIGHTS) as file:
            plain = [name for name in file.keys() if name.rpartition(":")[0] not in encoded]  # noqa: SIM118
        return [*plain, *encoded]
    if (folder / SAFETENSORS_WEIGHTS).is_file():
        with _open_safetensors(folder / SAFETENSORS_WEIGHTS) as file:
            return list(file.keys())
    if (folder / PICKLED_WEIGHTS).is_file():
        return []
    for name in (SAFETENSORS_WEIGHTS, PICKLED_WEIGHTS):
        index = folder / f"{name}.index.json"
        if index.is_file():
            table = read_json_file(index).get("weight_map")
            return list(map(str, table)) if isinstance(table, dict) else []
    return []


@contextmanager
def _utf8_path(path: Path) -> Generator[str, None, None]:
    """Yield a UTF-8 path of a file: the library rejects other bytes, possible on Linux."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            yield f"/dev/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        yield str(path)


@contextmanager
def _open_safetensors(path: Path) -> Generator[Any, None, None]:
    """Open a safetensors file."""
    try:
        with _utf8_path(path) as name, safe_open(name, framework="pt") as file:
            _check_names(path)
            yield file
    except SafetensorError as error:
        size = path.stat().st_size
        raise ValueError(f"{path}: truncated or damaged ({size:,} bytes): {error}") from None


def _check_names(path: Path) -> None:
    """Check that no name is twice in a header, of which each library would take another one.

    Raises:
        ValueError: one is.
    """
    with path.open("rb") as file:
        head = file.read(int.from_bytes(file.read(8), "little"))  # its length has been checked
    with parser_errors_as_value_error(path):
        parse_json(head, partial(json.loads, object_pairs_hook=_unique_names))


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"damaged: its header has the name {name[:_MAX_NAME]!r} twice")
    return found


def _read_weight_shards(folder: Path, index: Path) -> dict[str, Tensor]:
    table = read_json_file(index).get("weight_map")
    if not isinstance(table, dict):
        raise ValueError(f"{index}: lacks the table 'weight_map'")
    state: dict[str, Tensor] = {}
    for name in sorted(set(map(str, table.values()))):
        # A link inside the folder may point to the Hub's cache; a name in the index must be in the
        # folder.
        if Path(name).name != name or "\0" in name or len(name) > _MAX_NAME:
            raise ValueError(f"{index}: {name[:_MAX_NAME]!r} is not a file of this folder")
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name}: no such file, but {index.name} names it")
        state |= read_tensors(folder / name)
    if missing := sorted(set(table) - set(state)):
        raise ValueError(f"{index}: {len(missing)} tensors are in no file: {missing[:3]}")
    return state


def read_json_file(path: Path) -> dict[str, object]:
    """Read a JSON object.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not JSON, or not an object.
    """
    return read_json_object(path)
