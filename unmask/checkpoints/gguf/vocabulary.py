"""The vocabulary of a GGUF file, from the tokenizer.json of a model."""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Types of tokens; `gguf.TokenType`."""
_log = logging.getLogger(__name__)
_SPACE = "\u2581"
"""Marks the start of a word in SentencePiece."""
_UNUSED_SCORE = -10_000.0
"""Of tokens that no text has (llama.cpp's converter)."""
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_SENTINEL = re.compile(r"<extra_id_\d+>")
_DIGIT_RULES = {r"\p{N}{1,3}": "llama-bpe", r"\p{N}": "qwen2"}
"""How the words of a byte-level BPE split numbers -> llama.cpp's name of the whole rule."""


@dataclass(frozen=True, kw_only=True)
class GgufVocabulary:
    """What a GGUF file says of tokens."""

    model: str
    """`tokenizer.ggml.model`: bert, gpt2, llama (SentencePiece BPE) or t5 (unigram)."""
    pre: str
    """`tokenizer.ggml.pre`: how text is split before."""
    tokens: tuple[str, ...]
    types: tuple[int, ...]
    scores: tuple[float, ...] | None = None
    has_merges: bool = False
    """Whether the list of merges belongs to it."""
    add_space_prefix: bool | None = None
    """Whether a text begins with a space that is not there."""
    charsmap: bytes | None = None
    """SentencePiece's table of characters to be replaced."""


def read_vocabulary(tokenizer: Mapping[str, Any], size: int, name: str) -> GgufVocabulary:
    """Return the vocabulary of a tokenizer.json for a table of `size` tokens.

    Raises:
        ValueError: llama.cpp has no such tokenizer.
    """
    kind = tokenizer["model"].get("type")
    if kind == "WordPiece":
        return _word_pieces(tokenizer, size, name)
    if kind == "Unigram":
        return _unigram(tokenizer, size)
    if kind != "BPE":
        raise ValueError(f"{name}: llama.cpp has no tokenizer of the kind {kind}")
    if _has_part(tokenizer.get("pre_tokenizer"), "ByteLevel"):
        tokens, types = _tokens(tokenizer, size)
        return GgufVocabulary(
            model="gpt2",
            pre=_pre_tokenizer(tokenizer["pre_tokenizer"], name),
            tokens=tokens,
            types=types,
            has_merges=True,
        )
    return _sentencepiece_bpe(tokenizer, size, name)


def _parts(component: Any) -> list[Mapping[str, Any]]:
    """Return the steps of a normalizer or pre-tokenizer."""
    if component is None:
        return []
    inner = component.get("pretokenizers") or component.get("normalizers")
    return [component] if inner is None else list(inner)


def _has_part(component: Any, kind: str) -> bool:
    return any(part["type"] == kind for part in _parts(component))


def _tokens(tokenizer: Mapping[str, Any], size: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the tokens by id and their types."""
    model = tokenizer["model"]
    vocab = model["vocab"]
    if isinstance(vocab, Mapping):
        by_id = {int(i): str(token) for token, i in vocab.items()}
    else:
        by_id = {i: str(token) for i, (token, _) in enumerate(vocab)}
    unknown = model.get("unk_token")
    if (unknown_id := model.get("unk_id")) is not None:
        unknown = by_id[unknown_id]
    types = dict.fromkeys(by_id, NORMAL)
    types |= {i: BYTE for i, token in by_id.items() if _BYTE.fullmatch(token)}
    for one in tokenizer.get("added_tokens", ()):
        by_id[one["id"]] = one["content"]
        types[one["id"]] = CONTROL if one["special"] else USER_DEFINED
        if _SENTINEL.fullmatch(one["content"]):
            types[one["id"]] = USER_DEFINED
    types |= {i: UNKNOWN for i, token in by_id.items() if token == unknown}
    return (
        tuple(by_id.get(i, f"[PAD{i}]") for i in range(size)),
        tuple(types.get(i, UNUSED) for i in range(size)),
    )


def _pre_tokenizer(pre_tokenizer: Mapping[str, Any], name: str) -> str:
    """Return llama.cpp's name of how a byte-level BPE splits text.

    Raises:
        ValueError: it has none.
    """
    splits = [part for part in _parts(pre_tokenizer) if part["type"] == "Split"]
    if not splits:
        return "gpt-2"
    rules = str(splits[0]["pattern"].get("Regex", "")).split("|")
    for digits, pre in _DIGIT_RULES.items():
        if len(splits) == 1 and digits in rules:
            return pre
    raise ValueError(f"{name}: llama.cpp has no name for how its tokenizer splits text")


def _word_pieces(tokenizer: Mapping[str, Any], size: int, name: str) -> GgufVocabulary:
    """Return a WordPiece vocabulary: words begin with a mark, continuations with none."""
    if not any(part.get("lowercase") for part in _parts(tokenizer.get("normalizer"))):
        _log.warning("%s: llama.cpp reads text in lower case, this model does not", name)
    tokens, types = _tokens(tokenizer, size)
    prefix = tokenizer["model"].get("continuing_subword_prefix", "##")

    def marked(token: str, kind: int) -> str:
        if kind in (CONTROL, UNUSED):
            return token
        return token.removeprefix(prefix) if token.startswith(prefix) else _SPACE + token

    return GgufVocabulary(
        model="bert",
        pre="default",
        tokens=tuple(map(marked, tokens, types)),
        types=types,
    )


def _unigram(tokenizer: Mapping[str, Any], size: int) -> GgufVocabulary:
    tokens, types = _tokens(tokenizer, size)
    scores = [float(score) for _, score in tokenizer["model"]["vocab"]][:size]
    scores += [_UNUSED_SCORE] * (size - len(scores))
    return GgufVocabulary(
        model="t5",
        pre="default",
        tokens=tokens,
        types=types,
        scores=tuple(scores),
        add_space_prefix=_adds_space(tokenizer),
        charsmap=_charsmap(tokenizer),
    )


def _charsmap(tokenizer: Mapping[str, Any]) -> bytes | None:
    from base64 import b64decode

    parts = _parts(tokenizer.get("normalizer"))
    tables = [part["precompiled_charsmap"] for part in parts if part["type"] == "Precompiled"]
    return b64decode(tables[0]) if tables else None


def _adds_space(tokenizer: Mapping[str, Any]) -> bool:
    """Return whether a text is read as if a space preceded it."""
    spaces = [p for p in _parts(tokenizer.get("pre_tokenizer")) if p["type"] == "Metaspace"]
    prepended = _has_part(tokenizer.get("normalizer"), "Prepend")
    return prepended or any(part.get("prepend_scheme") != "never" for part in spaces)


def _sentencepiece_bpe(tokenizer: Mapping[str, Any], size: int, name: str) -> GgufVocabulary:
    """Return a SentencePiece BPE: of two pieces, that with the higher score is merged first.

    Raises:
        ValueError: it marks the ends of words.
    """
    model = tokenizer["model"]
    if model.get("end_of_word_suffix") or model.get("continuing_subword_prefix"):
        raise ValueError(f"{name}: llama.cpp has no BPE that marks the ends of words")
    tokens, types = _tokens(tokenizer, size)
    merged: dict[str, float] = {}
    merges: Sequence[Any] = model["merges"]
    for rank, merge in enumerate(merges):
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        merged.setdefault(left + right, -float(rank))
    rest = -float(len(merges))  # single characters are no merge
    scores = [
        0.0 if kind != NORMAL else merged.get(token, rest)
        for token, kind in zip(tokens, types, strict=True)
    ]
    return GgufVocabulary(
        model="llama",
        pre="default",
        tokens=tokens,
        types=types,
        scores=tuple(scores),
        add_space_prefix=_adds_space(tokenizer),
    )
