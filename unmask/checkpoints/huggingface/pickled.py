"""Pickled tensors of a stranger: what is looked at before torch's allow-list reader, and after it.

The reader runs no code, but takes what a file declares: records that unpack to a thousand times
their size, tuples of tuples that are hashed for years, tensors of more numbers than are stored.
"""

import io
import pickletools
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple, cast

import torch
from torch import Tensor

_MAX_TUPLE_ITEMS = 100_000
"""Items of a tuple, those of tuples in it counted anew at each place: its hash visits them all."""
_MAX_SHARED = 100
"""Names of one number: models whose layers share their weights have as many as layers."""
_LEGACY_PICKLES = 5
"""A magic number, a version, sizes of types, the table, keys of storages; then the numbers."""


def check_before_loading(path: Path) -> None:
    """Look at a file that torch is to unpickle, without unpickling it.

    Raises:
        ValueError: a record is packed or is there twice, or a tuple has too many items.
        OSError, zipfile.BadZipFile: it cannot be read.
    """
    with path.open("rb") as file:
        if file.read(2) != b"PK":
            file.seek(0)
            size = path.stat().st_size
            for _ in range(_LEGACY_PICKLES):
                if file.tell() < size:
                    _check_operations(file, size)
            return
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if packed := [x.filename for x in members if x.compress_type != zipfile.ZIP_STORED]:
            raise ValueError(f"record {packed[0]!r} is compressed, which torch never does")
        if len({one.filename for one in members}) < len(members):
            raise ValueError("two records have the same name")
        for one in members:
            if one.filename.endswith(".pkl"):
                _check_operations(io.BytesIO(archive.read(one)), path.stat().st_size)


class _Held(NamedTuple):
    """What is known of a value on the stack of a pickle."""

    items: int = 1
    """Of a tuple, and of tuples in it; 1 for all else."""
    largest: int = 0
    """The largest integer that it is, or of its items."""


_UNKNOWN, _MARK = _Held(), _Held(0)
_BUILDING = ("REDUCE", "NEWOBJ", "BINPERSID")
"""Operations that make something of the tuple on top."""


def _check_operations(file: io.BufferedIOBase, n_bytes: int) -> None:
    """Follow the stack of a pickle, of which only tuples and integers are known.

    Raises:
        ValueError: a tuple has too many items, something is to be made of more numbers than there
            are bytes, or these are no operations.
    """
    stack: list[_Held] = []
    memo: dict[object, _Held] = {}
    for operation, argument, _ in pickletools.genops(cast("IO[bytes]", file)):
        name, top = operation.name, stack[-1] if stack else _UNKNOWN
        if name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if argument is None else argument] = top
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo.get(argument, _UNKNOWN))
        elif name == "DUP":
            stack.append(top)
        elif name == "MARK":
            stack.append(_MARK)
        else:
            if name in _BUILDING and top.largest > n_bytes:
                raise ValueError(f"declares {top.largest:,} numbers, but has {n_bytes:,} bytes")
            held = _made(operation, argument, _take(stack, operation.stack_before))
            if held.items > _MAX_TUPLE_ITEMS:
                raise ValueError(f"a tuple has more than {_MAX_TUPLE_ITEMS:,} items")
            stack += [held] * len(operation.stack_after)


def _made(operation: pickletools.OpcodeInfo, argument: object, taken: list[_Held]) -> _Held:
    """Return what an operation puts on the stack."""
    if operation.stack_after == [pickletools.pytuple]:
        return _Held(
            1 + sum(one.items for one in taken), max((one.largest for one in taken), default=0)
        )
    return _Held(1, argument) if isinstance(argument, int) else _UNKNOWN


def _take(stack: list[_Held], before: Sequence[pickletools.StackObject]) -> list[_Held]:
    """Take from a stack what an operation takes, down to a mark where it does so."""
    taken: list[_Held] = []
    kinds = list(before)
    if pickletools.markobject in kinds:
        while stack and (held := stack.pop()) is not _MARK:
            taken.append(held)
        kinds = kinds[: kinds.index(pickletools.markobject)]
    return taken + [stack.pop() if stack else _UNKNOWN for _ in kinds]


def to_plain_tensors(path: Path, state: Mapping[object, Tensor]) -> dict[str, Tensor]:
    """Return tensors without what a file may attach to them, by names that are texts.

    Raises:
        ValueError: one is sparse, quantized or without numbers; or has more than are in the file.
    """
    size = path.stat().st_size
    plain: dict[str, Tensor] = {}
    declared, storages = 0, dict[int, int]()
    for key, value in state.items():
        name = str(key)
        if type(value) not in (Tensor, torch.nn.Parameter):
            raise ValueError(f"{path}: {name} is a tensor of a class of its own")
        tensor = Tensor.detach(value)
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
            raise ValueError(f"{path}: {name} is a sparse or quantized tensor, or has no numbers")
        n_bytes, storage = tensor.numel() * tensor.element_size(), tensor.untyped_storage()
        if n_bytes > storage.nbytes():
            raise ValueError(
                f"{path}: {name} has the shape {list(tensor.shape)}, of {n_bytes:,} bytes, but "
                f"{storage.nbytes():,} are stored"
            )
        declared += n_bytes
        storages[storage.data_ptr()] = storage.nbytes()
        plain[name] = tensor
    if sum(storages.values()) > size or declared > _MAX_SHARED * size:
        raise ValueError(f"{path}: declares {declared:,} bytes of tensors, but has {size:,}")
    return plain
