"""Read SentencePiece's .model files: a small reader of their protocol-buffer message.

The fields are those of `sentencepiece_model.proto` of the SentencePiece project (Kudo and
Richardson 2018, arXiv:1808.06226). Only fields needed for tokenization are read; unknown fields are
skipped. Nothing in a file is executed, and lengths are checked against its size.
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Types of a piece."""
MAX_PIECES = 2**20
"""Pieces of a model; XLM-V's, the largest published one, has 901,629."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_ALGORITHMS: dict[int, Literal["unigram", "bpe", "word", "char"]] = {
    1: "unigram", 2: "bpe", 3: "word", 4: "char",
}  # fmt: skip


@dataclass(frozen=True)
class SentencePieceEntry:
    """One entry of the vocabulary; its id is its index."""

    text: str
    score: float
    piece_type: int


@dataclass(frozen=True, kw_only=True)
class SentencePieceModel:
    """Contents of a .model file."""

    pieces: tuple[SentencePieceEntry, ...]
    algorithm: Literal["unigram", "bpe", "word", "char"]
    charsmap: bytes
    """The compiled normalization rules; empty: none."""
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    escape_whitespaces: bool
    whitespace_as_suffix: bool
    byte_fallback: bool
    unk_id: int
    bos_id: int | None
    """Ids of <unk>, <s>, </s> and <pad>; None if missing."""
    eos_id: int | None
    pad_id: int | None


def parse_sentencepiece(data: bytes) -> SentencePieceModel:
    """Parse the bytes of a .model file.

    Raises:
        ValueError: the bytes are not a SentencePiece model, or truncated.
    """
    messages: list[bytes] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] | None = None
    for field, value in _message_fields(data):
        if field == 1:
            if len(messages) == MAX_PIECES:
                raise ValueError(f"it has more than {MAX_PIECES:,} pieces")
            messages.append(_as_bytes(value, "pieces"))
        elif field == 2:
            trainer = dict(_message_fields(_as_bytes(value, "trainer_spec")))
        elif field == 3:
            normalizer = dict(_message_fields(_as_bytes(value, "normalizer_spec")))
    if not messages:
        raise ValueError("it has no pieces")
    pieces = [_parse_piece(message) for message in messages]
    if normalizer is None:
        raise ValueError("it ends before normalizer_spec")
    algorithm = _ALGORITHMS.get(_as_number(trainer, 3, 1))
    if algorithm is None:
        raise ValueError(f"trainer_spec.model_type must be 1 to 4, got {_as_number(trainer, 3, 1)}")
    charsmap = normalizer.get(2, b"")
    control = {p.text: i for i, p in enumerate(pieces) if p.piece_type == CONTROL}
    unknown = [i for i, p in enumerate(pieces) if p.piece_type == UNKNOWN]
    if len(unknown) != 1:
        raise ValueError(f"{len(unknown)} pieces have the type UNKNOWN, one is needed")
    return SentencePieceModel(
        pieces=tuple(pieces),
        algorithm=algorithm,
        charsmap=_as_bytes(charsmap, "precompiled_charsmap"),
        add_dummy_prefix=bool(_as_number(normalizer, 3, 1)),
        remove_extra_whitespaces=bool(_as_number(normalizer, 4, 1)),
        escape_whitespaces=bool(_as_number(normalizer, 5, 1)),
        whitespace_as_suffix=bool(_as_number(trainer, 24, 0)),
        byte_fallback=bool(_as_number(trainer, 35, 0)),
        unk_id=unknown[0],
        bos_id=control.get(_as_text(trainer, 46, "<s>")),
        eos_id=control.get(_as_text(trainer, 47, "</s>")),
        pad_id=control.get(_as_text(trainer, 48, "<pad>")),
    )


def _message_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the (number, value) pairs of a message; fixed-width numbers as raw bytes."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        field, wire = tag >> 3, tag & 7
        if field == 0:
            raise ValueError(f"byte {position}: a field has the number 0")
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield field, value
            continue
        if wire == _BYTES:
            length, position = _varint(data, position)
        elif wire in (_FIXED32, _FIXED64):
            length = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"byte {position}: wire type {wire} is not used in such files")
        if position + length > len(data):
            raise ValueError(
                f"it is truncated: {length} bytes are declared at byte {position}, "
                f"{len(data) - position} follow"
            )
        yield field, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for i in range(10):
        if position + i >= len(data):
            raise ValueError(f"it is truncated within the number at byte {position}")
        byte = data[position + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, position + i + 1
    raise ValueError(f"byte {position}: a number is longer than ten bytes")


def _parse_piece(data: bytes) -> SentencePieceEntry:
    fields = dict(_message_fields(data))
    score = _as_bytes(fields.get(2, b"\0\0\0\0"), "score")
    if len(score) != 4:
        raise ValueError("the score of a piece is not a 32-bit number")
    (number,) = struct.unpack("<f", score)
    text = _as_text(fields, 1, "")
    if not math.isfinite(number):
        raise ValueError(f"the score of the piece {text[:80]!r} must be finite, got {number}")
    return SentencePieceEntry(text, number, _as_number(fields, 3, NORMAL))


def _as_bytes(value: int | bytes, name: str) -> bytes:
    if isinstance(value, int):
        raise ValueError(f"{name} is a number, not a message")
    return value


def _as_number(fields: dict[int, int | bytes], field: int, default: int) -> int:
    value = fields.get(field, default)
    if not isinstance(value, int):
        raise ValueError(f"field {field} is not a number")
    return value


def _as_text(fields: dict[int, int | bytes], field: int, default: str) -> str:
    value = fields.get(field)
    return default if value is None else _as_bytes(value, f"field {field}").decode("utf-8")
