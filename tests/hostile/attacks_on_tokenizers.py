"""Attacks by tokenizers: patterns that backtrack, impossible ids, huge tables, damaged messages."""

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attack import Attack

from unmask.bundled.models import BUNDLED_MODELS

KNOWN = json.loads((BUNDLED_MODELS["unmask-mini-en"] / "tokenizer.json").read_text("utf-8"))
CONFIG = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}


def tokenizer(*path: str | int, to: Any) -> Callable[[Path], object]:
    """Return what writes a tokenizer.json with another value at a place."""

    def make(file: Path) -> object:
        state = json.loads(json.dumps(KNOWN))
        here = state
        for key in path[:-1]:
            here = here[key]
        here[path[-1]] = to
        (file.parent / "tokenizer_config.json").write_text(json.dumps(CONFIG))
        return file.write_text(json.dumps(state))

    return make


def split(rule: str) -> Callable[[Path], object]:
    """Return what writes a tokenizer that splits texts by a pattern."""
    step = {"type": "Split", "pattern": {"Regex": rule}, "behavior": "Isolated", "invert": False}
    return tokenizer("pre_tokenizer", to=step)


def replace(rule: str, content: str) -> Callable[[Path], object]:
    """Return what writes a tokenizer that replaces what a pattern matches."""
    step = {"type": "Replace", "pattern": {"Regex": rule}, "content": content}
    return tokenizer("normalizer", to=step)


def message(*pieces: bytes, trainer: bytes = b"", normalizer: bytes = b"") -> bytes:
    """Return a SentencePiece model of pieces."""
    parts = [(1, piece) for piece in pieces] + [(2, trainer), (3, normalizer)]
    return b"".join(bytes([field << 3 | 2]) + _varint(len(x)) + x for field, x in parts)


def _varint(n: int) -> bytes:
    data = bytearray()
    while n > 127:
        data.append(n & 127 | 128)
        n >>= 7
    return bytes(data) + bytes([n])


def piece(text: str, score: float = 0.0, kind: int = 1) -> bytes:
    """Return a piece."""
    data = text.encode()
    return (
        b"\x0a"
        + _varint(len(data))
        + data
        + b"\x15"
        + struct.pack("<f", score)
        + b"\x18"
        + bytes([kind])
    )


BASIC = (piece("<pad>", kind=3), piece("</s>", kind=3), piece("<unk>", kind=2), piece("▁a"))


def sentencepiece(data: bytes) -> Callable[[Path], object]:
    """Return what writes a model of T5's family."""

    def make(path: Path) -> object:
        config = {"tokenizer_class": "T5Tokenizer", "extra_ids": 0}
        (path.parent / "tokenizer_config.json").write_text(json.dumps(config))
        return path.write_bytes(data)

    return make


PATTERNS = (
    "(a+)+$",
    "(a|a)*b",
    "(a|aa)+$",
    "(.*)*x",
    "(?:a?){60}a{60}",
    r"(\w+\s?)*!",
    "(?=(a+)+$)",
    "([a-z]+)*!",
    "(a*)*(b*)*c",
    ".*.*.*.*.*.*.*.*x",
    r"(?:a{1,1000}){1,1000}b",
    r"((((a*)*)*)*)*b",
    "(?<!a{100})b",
    r"(a)\1{100000}",
    "(" * 500 + ")" * 500,
    "(?#" + "x" * 10**5 + ")a",
    "[^a]*[^b]*[^c]*d",
)


def _rules(seed: int) -> bytes:
    draw = random.Random(seed)
    table = b"".join(
        struct.pack("<I", draw.choice((0, 2**32 - 1, draw.getrandbits(32), 0x3FF << 10, 1 << 9)))
        for _ in range(64)
    )
    data = struct.pack("<I", len(table)) + table + b"abc\0\xff\0"
    return b"\x12" + _varint(len(data)) + data


SENTENCEPIECE: dict[str, bytes] = {
    "a length beyond the end": b"\x0a\xff\xff\xff\xff\x0fab",
    "a length of 2^63": b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7fab",
    "endless numbers": b"\xff" * 1000,
    "groups": b"\x0b" * 1000,
    "two unknown pieces": message(*BASIC, piece("x", kind=2)),
    "no unknown piece": message(*BASIC[:2], BASIC[3]),
    "a piece twice": message(*BASIC, piece("▁a")),
    "a piece that is no text": message(*BASIC, b"\x0a\x01\xff"),
    "a score of infinity": message(*BASIC, piece("x", float("inf"))),
    "a score that is no number": message(*BASIC, piece("x", float("nan"))),
    "scores of minus infinity": message(*BASIC, *(piece(x, float("-inf")) for x in "abc")),
    "an unknown algorithm": message(*BASIC, trainer=b"\x18\x63"),
    "rules that are noise": message(*BASIC, normalizer=b"\x12\x10" + b"\xff" * 16),
    **{
        f"rules of a table of noise, {seed}": message(*BASIC, normalizer=_rules(seed))
        for seed in range(20)
    },
    "rules of a huge table": message(*BASIC, normalizer=b"\x12\x08" + b"\xff\xff\xff\x7fabcd"),
    "bytes of which some are missing": message(
        *BASIC, piece("<0x00>", kind=6), trainer=b"\x98\x02\x01"
    ),
    "ten million empty pieces": message(*BASIC) + b"\x0a\x00" * 10**7,
}
SPARSE = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 2**31 - 1}
JSONS: dict[str, Callable[[Path], object]] = {
    "an id of billions": tokenizer("model", "vocab", to=SPARSE),
    "a negative id": tokenizer("model", "vocab", to=SPARSE | {"[MASK]": -4}),
    "an id of a fraction": tokenizer("model", "vocab", to=SPARSE | {"[MASK]": 4.5}),
    "an id of 2^70": tokenizer("model", "vocab", to=SPARSE | {"[MASK]": 2**70}),
    "an id that is a truth": tokenizer("model", "vocab", to=SPARSE | {"[MASK]": True}),
    "an added id of billions": tokenizer("added_tokens", 0, "id", to=2**31),
    "a piece of a megabyte": tokenizer("model", "vocab", to=SPARSE | {"[MASK]": 4, "a" * 2**20: 5}),
    "a table of steps": tokenizer(
        "pre_tokenizer", to={"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}] * 10**5}
    ),
    "steps in steps": tokenizer(
        "normalizer",
        to=json.loads('{"type":"Sequence","normalizers":[' * 90 + '{"type":"NFC"}' + "]}" * 90),
    ),
    "replacements that double": tokenizer(
        "normalizer",
        to={
            "type": "Sequence",
            "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 40,
        },
    ),
    "a replacement of a megabyte": replace("a", "b" * 2**20),
    "a replacement of nothing": replace("", "b" * 2**10),
    "a prepended megabyte": tokenizer("normalizer", to={"type": "Prepend", "prepend": "b" * 2**20}),
    "an unknown step": tokenizer("pre_tokenizer", to={"type": "Python", "code": "os.system('x')"}),
    "a template of a million tokens": tokenizer(
        "post_processor",
        to={
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}] * 10**4,
            "pair": [],
            "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}},
        },
    ),
    "a dropout of all": tokenizer("model", "dropout", to=1.0),
    "words of no length": tokenizer("model", "max_input_chars_per_word", to=0),
    "words of any length": tokenizer("model", "max_input_chars_per_word", to=2**62),
    "words of negative length": tokenizer("model", "max_input_chars_per_word", to=-1),
    "padding to billions": tokenizer(
        "padding",
        to={
            "strategy": {"Fixed": 2**40},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        },
    ),
    "a precompiled table of noise": tokenizer(
        "normalizer", to={"type": "Precompiled", "precompiled_charsmap": "/////w=="}
    ),
}


def _lines(path: Path) -> object:
    return path.write_bytes(b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n" + b"\n" * 10**8)


def _merges(lines: bytes) -> Callable[[Path], object]:
    def make(path: Path) -> object:
        (path.parent / "vocab.json").write_text('{"a": 0, "b": 1, "ab": 2}')
        return path.write_bytes(lines)

    return make


ATTACKS: dict[str, Attack] = {
    "a tokenizer, unchanged": Attack("tokenizer", tokenizer("version", to="1.0"), harmless=True),
    **{
        f"a split at {rule[:30]}": Attack("tokenizer", split(rule), harmless=True)
        for rule in PATTERNS
    },
    **{
        f"a replacement of {rule[:30]}": Attack("tokenizer", replace(rule, "x"), harmless=True)
        for rule in PATTERNS
    },
    **{
        f"a tokenizer of {name}": Attack("tokenizer", make, harmless=True)
        for name, make in JSONS.items()
    },
    "SentencePiece, none": Attack("SentencePiece", sentencepiece(message(*BASIC)), harmless=True),
    **{
        f"SentencePiece of {n}": Attack("SentencePiece", sentencepiece(x), harmless=True, seconds=8)
        for n, x in SENTENCEPIECE.items()
    },
    "a vocabulary of empty lines": Attack("vocabulary", _lines, harmless=True, seconds=8),
    "merges of noise": Attack("merges", _merges(b"\xff" * 1000)),
    "merges of spaces": Attack("merges", _merges(b"a  b\n" * 1000)),
    "merges of empty lines": Attack("merges", _merges(b"\n" * 10**7)),
}
