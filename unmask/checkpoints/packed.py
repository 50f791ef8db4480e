"""Packed: tensors of few bits, or of few numbers that are not zero; floats when they are read.

A folder has `model.packed.safetensors` in place of `model.safetensors`, so that no library that
does not know the encoding reads it as something else, and `packed.json`, which gives the encoding
of each tensor. What is not encoded is in the same file as it is.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from unmask.config import from_dict, to_dict
from unmask.files import encode_utf8, read_json_object

PACKED_WEIGHTS, PACKED_RECORD = "model.packed.safetensors", "packed.json"
Levels = Literal[2, 3, 4, 8, 16, 256]
"""Number of values that a code has: 1, log2(3), 2, 3, 4 or 8 bits."""
_TRITS_PER_BYTE = 5
_CODES_AND_BYTES: Mapping[int, tuple[int, int]] = {
    2: (8, 1), 4: (4, 1), 8: (8, 3), 16: (2, 1), 256: (1, 1),
}  # fmt: skip
"""How many codes stand in how many bytes, by the number of levels that is a power of two."""


@runtime_checkable
class Encoding(Protocol):
    """How one tensor is written as others."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        ...

    def part_shapes(self) -> Mapping[str, tuple[tuple[int, ...], bool]]:
        """Return the shape of each part, by its suffix, and whether it is floating-point."""
        ...

    def decode(self, parts: Mapping[str, Tensor]) -> Tensor:
        """Return the tensor in float32."""
        ...


@dataclass(frozen=True, kw_only=True)
class IntegerEncoding:
    """Weights as codes of few bits: `scale * (code - center) + offset`.

    A row is all but the last dimension; a scale belongs to `group` successive weights of a row
    (None: to a row; 0: to the tensor). Codes of all rows follow each other in the bytes, the first
    in the lowest bits; codes with three levels are five to a byte, base 3.
    """

    shape: tuple[int, ...]
    levels: Levels
    group: int | None = None
    has_offset: bool = False
    """Whether each scale has an offset; otherwise codes are centered."""
    transposed: bool = False
    """Whether the rows are the columns of the matrix, which is written transposed."""

    def __post_init__(self) -> None:
        _check_shape(self.shape)
        if self.transposed and len(self.shape) != 2:
            raise ValueError(f"transposed must be false for {len(self.shape)} dimensions")
        if self.group is not None and self.group < 0:
            raise ValueError(f"group must be at least 0, got {self.group}")

    @property
    def n_codes(self) -> int:
        """Number of weights."""
        return math.prod(self.shape)

    @property
    def row_size(self) -> int:
        """Number of weights of a row."""
        return self.shape[0] if self.transposed else self.shape[-1]

    @property
    def scale_shape(self) -> tuple[int, int]:
        """Rows and groups of the scales."""
        last = self.row_size
        if self.group == 0:
            return 1, 1
        return self.n_codes // max(last, 1), 1 if self.group is None else -(-last // self.group)

    @property
    def center(self) -> float:
        """The code of zero, where there is no offset."""
        if self.has_offset:
            return 0.0
        return {2: 0.5, 3: 1.0}.get(self.levels, self.levels / 2)

    def part_shapes(self) -> Mapping[str, tuple[tuple[int, ...], bool]]:
        """Return the shape of each part, by its suffix, and whether it is floating-point."""
        scale = {"scale": (self.scale_shape, True)}
        offset = {"offset": (self.scale_shape, True)} if self.has_offset else {}
        return {"codes": ((packed_size(self.n_codes, self.levels),), False), **scale, **offset}

    def decode(self, parts: Mapping[str, Tensor]) -> Tensor:
        """Return the tensor in float32."""
        codes = unpack_codes(parts["codes"], self.n_codes, self.levels)
        weights = codes.to(torch.float32).reshape(-1, self.row_size) - self.center
        if self.levels == 2 and not self.has_offset:
            weights = weights * 2
        weights = weights * self.per_weight(parts["scale"].to(torch.float32))
        if self.has_offset:
            weights = weights + self.per_weight(parts["offset"].to(torch.float32))
        return weights.mT.contiguous() if self.transposed else weights.reshape(self.shape)

    def per_weight(self, scale: Float[Tensor, "r g"]) -> Float[Tensor, "r c"]:
        """Return scales such that they multiply weights [rows columns]."""
        if self.group:
            return scale.repeat_interleave(self.group, 1)[:, : self.row_size]
        return scale


@dataclass(frozen=True, kw_only=True)
class SparseEncoding:
    """A bit for each weight, whether it is kept, and the weights that are; the others are zero."""

    shape: tuple[int, ...]
    n_kept: int

    def __post_init__(self) -> None:
        _check_shape(self.shape)

    def part_shapes(self) -> Mapping[str, tuple[tuple[int, ...], bool]]:
        """Return the shape of each part, by its suffix, and whether it is floating-point."""
        n = packed_size(math.prod(self.shape), 2)
        return {"mask": ((n,), False), "values": ((self.n_kept,), True)}

    def decode(self, parts: Mapping[str, Tensor]) -> Tensor:
        """Return the tensor in float32.

        Raises:
            ValueError: the bits are of another number of weights.
        """
        kept = unpack_codes(parts["mask"], math.prod(self.shape), 2).bool()
        if int(kept.sum()) != self.n_kept:
            raise ValueError(f"the mask keeps {int(kept.sum())} weights, not {self.n_kept}")
        found = torch.zeros(kept.shape)
        found[kept] = parts["values"].to(torch.float32)
        return found.reshape(self.shape)

    @classmethod
    def encode(cls, weights: Tensor) -> "EncodedTensor":
        """Encode what is not zero."""
        flat = weights.detach().reshape(-1)
        kept = flat != 0
        encoding = cls(shape=tuple(weights.shape), n_kept=int(kept.sum()))
        mask = pack_codes(kept.to(torch.uint8), 2)
        return EncodedTensor(encoding, {"mask": mask, "values": flat[kept].clone()})


@dataclass(frozen=True)
class EncodedTensor:
    """A tensor in its encoding."""

    encoding: Encoding
    parts: Mapping[str, Tensor]

    def decode(self) -> Tensor:
        """Return the tensor in float32."""
        return self.encoding.decode(self.parts)

    @property
    def n_bytes(self) -> int:
        """Bytes of the parts."""
        return sum(part.numel() * part.element_size() for part in self.parts.values())


def _check_shape(shape: tuple[int, ...]) -> None:
    if not shape or min(shape) < 1:
        raise ValueError(f"shape must be of sizes from 1, got {list(shape)}")


@dataclass(frozen=True)
class _PackedRecord:
    """What packed.json holds."""

    tensors: Mapping[str, IntegerEncoding | SparseEncoding]


def packed_size(n_codes: int, levels: int) -> int:
    """Return the number of bytes of so many codes."""
    if levels == 3:
        return -(-n_codes // _TRITS_PER_BYTE)
    codes, n_bytes = _CODES_AND_BYTES[levels]
    return -(-n_codes // codes) * n_bytes


def pack_codes(codes: UInt8[Tensor, "n"], levels: int) -> UInt8[Tensor, "bytes"]:
    """Write codes below `levels` one after the other."""
    if levels == 256:
        return codes.clone()
    per_block = _TRITS_PER_BYTE if levels == 3 else _CODES_AND_BYTES[levels][0]
    padding = -len(codes) % per_block
    blocks = torch.nn.functional.pad(codes.to(torch.int32), (0, padding)).reshape(-1, per_block)
    number = (blocks * levels ** torch.arange(per_block, dtype=torch.int32)).sum(1)
    n_bytes = 1 if levels == 3 else _CODES_AND_BYTES[levels][1]
    shifts = 8 * torch.arange(n_bytes, dtype=torch.int64)
    return ((number[:, None] >> shifts) & 255).to(torch.uint8).reshape(-1)


def unpack_codes(packed: UInt8[Tensor, "bytes"], n_codes: int, levels: int) -> UInt8[Tensor, "n"]:
    """Read codes that `pack_codes` wrote."""
    if levels == 256:
        return packed[:n_codes]
    per_block = _TRITS_PER_BYTE if levels == 3 else _CODES_AND_BYTES[levels][0]
    n_bytes = 1 if levels == 3 else _CODES_AND_BYTES[levels][1]
    shifts = 8 * torch.arange(n_bytes, dtype=torch.int32)
    number = (packed.reshape(-1, n_bytes).to(torch.int32) << shifts).sum(1)
    divisors = levels ** torch.arange(per_block, dtype=torch.int64)
    return (number[:, None] // divisors % levels).to(torch.uint8).reshape(-1)[:n_codes]


def split_encoded(
    tensors: Mapping[str, Tensor | EncodedTensor],
) -> tuple[dict[str, Tensor], bytes]:
    """Return the tensors of the packed file, and packed.json."""
    plain: dict[str, Tensor] = {}
    record: dict[str, Any] = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, Tensor):
            plain[name] = tensor
            continue
        record[name] = to_dict(tensor.encoding)
        plain |= {f"{name}:{part}": values for part, values in tensor.parts.items()}
    return plain, encode_utf8(json.dumps({"tensors": record}, indent=1) + "\n")


def read_encodings(folder: Path) -> dict[str, Encoding]:
    """Read packed.json.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it does not give encodings.
    """
    path = folder / PACKED_RECORD
    plain = read_json_object(path)
    try:
        return dict(from_dict(_PackedRecord, plain).tensors)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def decode_tensors(folder: Path, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a folder, decoded; each part is compared with its encoding first.

    Raises:
        ValueError: a part is missing, or of another shape or type than packed.json says.
    """
    decoded, used = dict[str, Tensor](), set[str]()
    for name, encoding in read_encodings(folder).items():
        parts: dict[str, Tensor] = {}
        for part, (shape, is_float) in encoding.part_shapes().items():
            key = f"{name}:{part}"
            tensor = tensors.get(key)
            if tensor is None:
                raise ValueError(f"{folder / PACKED_WEIGHTS}: no tensor {key}")
            fits = tensor.dtype.is_floating_point if is_float else tensor.dtype == torch.uint8
            if tuple(tensor.shape) != shape or not fits:
                raise ValueError(
                    f"{folder / PACKED_WEIGHTS}: {key} has the shape {list(tensor.shape)} "
                    f"({tensor.dtype}), expected {list(shape)}"
                )
            parts[part] = tensor
            used.add(key)
        decoded[name] = EncodedTensor(encoding, parts).decode()
    rest = {name: tensor for name, tensor in tensors.items() if name not in used}
    if twice := sorted(rest.keys() & decoded.keys()):
        raise ValueError(f"{folder / PACKED_RECORD}: {twice[0]} is encoded and plain at once")
    return rest | decoded
