"""The vocabulary of a GGUF file, from the tokenizer.json of a model.

llama.cpp knows a few ways to split and to change text, most of them by name. A tokenizer that is
exactly one of them is written; another is refused. Where both differ in unusual text alone, such as
text in another normal form of Unicode, that is logged.
"""

import base64
import logging
import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from tokenizers import models

from unmask.tokenizers.pipeline import SPACE, byte_characters

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Types of tokens; `gguf.TokenType`."""
_log = logging.getLogger(__name__)
_UNUSED_SCORE = -10_000.0
"""Of tokens that no text has (llama.cpp's converter)."""
_BYTES = {f"<0x{i:02X}>" for i in range(256)}
_SENTINEL = re.compile(r"<extra_id_\d+>")

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_BYTE_LEVEL_NAMES: Mapping[tuple[tuple[str, ...], bool], str] = {
    ((_GPT2,), False): "gpt-2",
    ((_LLAMA3,), False): "smaug-bpe",
    ((_LLAMA3,), True): "llama-bpe",
    ((_QWEN2,), False): "qwen2",
    ((r"\p{N}", _GPT2), False): "smollm",
}
"""Patterns that split text one after another, and whether a word that is a token is not merged ->
llama.cpp's name of both (`llm_tokenizer_bpe` and `llama_vocab::impl::load`, 2026-11).

Names whose patterns are only nearly those of their tokenizer (tekken, gpt-4o: letters of no case
and combining marks) are left out.
"""
_NORMAL_FORMS = ("NFC", "NFKC", "Nmt")
"""Normalizers that change text in another form alone."""
_TRIMS = (
    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": SPACE},
    {"type": "Replace", "pattern": {"Regex": r"\A +| +\z"}, "content": ""},
    {"type": "Replace", "pattern": {"Regex": rf"{SPACE}+\z"}, "content": ""},
    {"type": "Strip", "strip_left": True, "strip_right": True},
    {"type": "Strip", "strip_left": False, "strip_right": True},
)
"""SentencePiece's remove_extra_whitespaces."""
_ESCAPES = (
    {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
    {"type": "Prepend", "prepend": SPACE},
)
_SPLIT_BEFORE_SPACES = f"{SPACE}*[^{SPACE}]+|{SPACE}+"


@dataclass(frozen=True, kw_only=True)
class GgufVocabulary:
    """What a GGUF file says of tokens."""

    model: str
    """`tokenizer.ggml.model`: bert, gpt2, llama (SentencePiece BPE) or t5 (unigram)."""
    pre: str = "default"
    """`tokenizer.ggml.pre`: how text is split before."""
    tokens: tuple[str, ...]
    types: tuple[int, ...]
    scores: tuple[float, ...] | None = None
    settings: Mapping[str, bool] | None = None
    """Further keys below `tokenizer.ggml.`."""
    charsmap: bytes | None = None
    """SentencePiece's table of characters to be replaced."""


def read_vocabulary(
    tokenizer: Mapping[str, Any], size: int, name: str, mask: str | None = None
) -> GgufVocabulary:
    """Return the vocabulary of a tokenizer.json for a table of `size` tokens.

    Args:
        tokenizer: the file.
        size: number of tokens.
        name: of the model, for messages.
        mask: the mask token, which llama.cpp has no use for.

    Raises:
        ValueError: llama.cpp has no such tokenizer.
    """
    return _Reader(tokenizer, size, name, mask).read()


class _Reader:
    """Reads a tokenizer.json, and refuses what llama.cpp does not do."""

    def __init__(
        self, tokenizer: Mapping[str, Any], size: int, name: str, mask: str | None
    ) -> None:
        self.tokenizer, self.name = tokenizer, name
        self.model: Mapping[str, Any] = tokenizer["model"]
        self.normalizers = _steps(tokenizer.get("normalizer"), "normalizers")
        self.pre_tokenizers = _steps(tokenizer.get("pre_tokenizer"), "pretokenizers")
        self.tokens, self.types = _tokens(tokenizer, size)
        for token in tokenizer.get("added_tokens", ()):
            for key in ("lstrip", "rstrip", "single_word"):
                if token.get(key) and token["content"] != mask:
                    self.refuse("added_tokens", f"{token['content']!r} with {key}")

    def refuse(self, key: str, what: Any) -> NoReturn:
        """Refuse what a key says.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"{self.name}: llama.cpp lacks {key} of its tokenizer.json: {what}")

    def warn(self, what: str) -> None:
        """Log where llama.cpp cuts text otherwise."""
        _log.warning("%s: llama.cpp cuts some text into other tokens: %s", self.name, what)

    def normal_tokens(self) -> list[str]:
        """Return the tokens that are made of text."""
        return [t for t, kind in zip(self.tokens, self.types, strict=True) if kind == NORMAL]

    def read(self) -> GgufVocabulary:
        """Return the vocabulary.

        Raises:
            ValueError: llama.cpp has no such tokenizer.
        """
        kind = self.model.get("type")
        if len({*self.tokens}) < len(self.tokens):
            self.refuse("model.vocab", "tokens that are there twice")
        if kind == "WordPiece":
            return self.word_pieces()
        if kind == "Unigram":
            return self.unigram()
        if kind != "BPE":
            self.refuse("model.type", kind)
        for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
            if self.model.get(key):
                self.refuse(f"model.{key}", self.model[key])
        is_byte_level = any(step["type"] == "ByteLevel" for step in self.pre_tokenizers)
        return self.byte_level() if is_byte_level else self.sentencepiece_bpe()

    def check_normalizers(self, *allowed: Mapping[str, Any]) -> None:
        """Check that text is not changed, but into a normal form and as `allowed`.

        Raises:
            ValueError: it is.
        """
        for step in self.normalizers:
            if step["type"] in _NORMAL_FORMS:
                self.warn(f"it does not normalize it by {step['type']}")
            elif step not in allowed:
                self.refuse("normalizer", step)

    def byte_level(self) -> GgufVocabulary:  # noqa: RET503 (`refuse` never returns)
        """Return a byte-level BPE."""
        self.check_normalizers()
        patterns, missing = [], {*byte_characters()} - {*self.tokens}
        if missing and self.model.get("unk_token") is not None:
            self.refuse("model.unk_token", "bytes that are no tokens")
        for i, step in enumerate(self.pre_tokenizers):
            if step["type"] == "ByteLevel" and i == len(self.pre_tokenizers) - 1:
                if step.get("add_prefix_space", True):
                    self.refuse("pre_tokenizer.add_prefix_space", True)
                patterns += [_GPT2] if step.get("use_regex", True) else []
            elif step["type"] == "Digits" and step.get("individual_digits"):
                patterns.append(r"\p{N}")
            elif (step["type"], step.get("behavior"), step.get("invert", False)) == (
                "Split",
                "Isolated",
                False,
            ) and "Regex" in step["pattern"]:
                patterns.append(step["pattern"]["Regex"])
            else:
                self.refuse("pre_tokenizer", step)
        unmerged = _unmerged(self.model, self.normal_tokens())
        for skips_merges in (True, False):
            pre = _BYTE_LEVEL_NAMES.get((tuple(patterns), skips_merges))
            if pre and (not unmerged or skips_merges == self.model.get("ignore_merges", False)):
                return GgufVocabulary(model="gpt2", pre=pre, tokens=self.tokens, types=self.types)
        if any(patterns == [*known] for known, _ in _BYTE_LEVEL_NAMES):
            self.refuse(
                "model.ignore_merges", f"{self.model.get('ignore_merges')} with its pattern"
            )
        self.refuse("pre_tokenizer", f"the patterns {patterns}")

    def word_pieces(self) -> GgufVocabulary:
        """Return a WordPiece vocabulary: words begin with a mark, continuations with none."""
        steps = self.normalizers
        if [step["type"] for step in steps] != ["BertNormalizer"]:
            self.refuse("normalizer", self.tokenizer.get("normalizer"))
        if [step["type"] for step in self.pre_tokenizers] != ["BertPreTokenizer"]:
            self.refuse("pre_tokenizer", self.tokenizer.get("pre_tokenizer"))
        for key in ("clean_text", "handle_chinese_chars"):
            if not steps[0].get(key, True):
                self.refuse(f"normalizer.{key}", False)
        is_lower = bool(steps[0].get("lowercase", True))
        strips = steps[0].get("strip_accents")
        strips = is_lower if strips is None else bool(strips)
        if not (is_lower and strips):
            self.warn("versions before tokenizer.ggml.normalizer.lowercase read it in lower case")
        if strips and any(unicodedata.category(c) == "Mc" for t in self.normal_tokens() for c in t):
            self.warn("it removes spacing marks with accents, such as vowels of Hindi")
        prefix = self.model.get("continuing_subword_prefix", "##")

        def marked(token: str, kind: int) -> str:
            if kind not in (NORMAL, USER_DEFINED):
                return token
            return token.removeprefix(prefix) if token.startswith(prefix) else SPACE + token

        return GgufVocabulary(
            model="bert",
            tokens=tuple(map(marked, self.tokens, self.types)),
            types=self.types,
            settings={"normalizer.lowercase": is_lower, "normalizer.strip_accents": strips},
        )

    def unigram(self) -> GgufVocabulary:
        """Return a unigram vocabulary of SentencePiece."""
        if self.model.get("byte_fallback"):
            self.refuse("model.byte_fallback", "in a unigram model")
        tables = [step for step in self.normalizers if step["type"] == "Precompiled"]
        self.check_normalizers(*tables[:1], *_TRIMS, *_ESCAPES)
        words = any(step["type"] == "WhitespaceSplit" for step in self.pre_tokenizers)
        trims = words or any(step in _TRIMS for step in self.normalizers)
        adds_space = self.adds_space(("WhitespaceSplit",))
        if trims and not adds_space:
            self.refuse("pre_tokenizer.prepend_scheme", "never, where white space is removed")
        size = len(self.tokens)
        scores = [float(score) for _, score in self.model["vocab"]][:size]
        return GgufVocabulary(
            model="t5",
            tokens=self.tokens,
            types=self.types,
            scores=(*scores, *[_UNUSED_SCORE] * (size - len(scores))),
            settings={"add_space_prefix": adds_space, "remove_extra_whitespaces": trims},
            charsmap=base64.b64decode(tables[0]["precompiled_charsmap"]) if tables else None,
        )

    def adds_space(self, allowed: Collection[str] = ()) -> bool:
        """Return whether a text is read as if a space preceded it.

        Raises:
            ValueError: text is split otherwise than before spaces.
        """
        prepends = _ESCAPES[1] in self.normalizers
        splits = False
        for step in self.pre_tokenizers:
            if step["type"] == "Metaspace":
                scheme = step.get("prepend_scheme", "always")
                prepends |= scheme != "never"
                splits |= bool(step.get("split", True))
                if scheme == "first":
                    self.warn("it puts a space after special tokens, too")
                if scheme != "never" and not self.has_trims():
                    self.warn("it puts a space before text that begins with a space, too")
            elif step["type"] == "Split" and step["pattern"] == {"Regex": _SPLIT_BEFORE_SPACES}:
                if any(SPACE in token.lstrip(SPACE) for token in self.normal_tokens()):
                    self.refuse("pre_tokenizer", "words that are split, and tokens of several")
            elif step["type"] not in allowed:
                self.refuse("pre_tokenizer", step)
        if splits and any(SPACE in token[1:] for token in self.normal_tokens()):
            self.refuse("pre_tokenizer.split", "words that are split, and tokens of several")
        if _ESCAPES[0] not in self.normalizers and not any(
            step["type"] == "Metaspace" for step in self.pre_tokenizers
        ):
            self.refuse("pre_tokenizer", f"spaces that are not written {SPACE}")
        return prepends

    def has_trims(self) -> bool:
        """Whether white space around texts is removed."""
        return any(s["type"] == "WhitespaceSplit" for s in self.pre_tokenizers) or any(
            step in _TRIMS for step in self.normalizers
        )

    def sentencepiece_bpe(self) -> GgufVocabulary:
        """Return a SentencePiece BPE: of two pieces, that with the higher score is merged first.

        llama.cpp merges whatever makes a token, not only what is in the list of merges: the same if
        the list makes every token.
        """
        self.check_normalizers(*_ESCAPES)
        if not self.model.get("byte_fallback") or not {*self.tokens} >= _BYTES:
            self.refuse("model.byte_fallback", "false, or bytes that are no tokens")
        if self.model.get("ignore_merges"):
            self.refuse("model.ignore_merges", True)
        adds_space = self.adds_space()
        normal = self.normal_tokens()
        ranks: dict[str, list[int]] = {}
        for rank, (left, right) in enumerate(_merges(self.model)):
            ranks.setdefault(left + right, []).append(rank)
        if any(own[-1] - own[0] >= len(own) for own in ranks.values()):
            self.refuse("model.merges", "a token's merges among those of others")
        known, listed = {*normal}, {*_merges(self.model)}
        for token in _unmerged(self.model, normal):
            cuts = ((token[:i], token[i:]) for i in range(1, len(token)))
            if any({*cut} <= known and cut not in listed for cut in cuts):
                self.refuse("model.merges", f"none that makes {token!r}")
        rest = -float(len(listed))  # single characters are no merge
        scores = [
            0.0 if kind != NORMAL else -float(ranks[token][0]) if token in ranks else rest
            for token, kind in zip(self.tokens, self.types, strict=True)
        ]
        return GgufVocabulary(
            model="llama",
            tokens=self.tokens,
            types=self.types,
            scores=tuple(scores),
            settings={"add_space_prefix": adds_space},
        )


def _steps(component: Any, key: str) -> list[Mapping[str, Any]]:
    """Return the steps of a normalizer or pre-tokenizer."""
    if component is None:
        return []
    if component["type"] != "Sequence":
        return [component]
    return [step for inner in component[key] for step in _steps(inner, key)]


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
    types |= {i: BYTE for i, token in by_id.items() if token in _BYTES}
    for added in tokenizer.get("added_tokens", ()):
        by_id[added["id"]] = added["content"]
        types[added["id"]] = CONTROL if added["special"] else USER_DEFINED
        if _SENTINEL.fullmatch(added["content"]):
            types[added["id"]] = USER_DEFINED
    types |= {i: UNKNOWN for i, token in by_id.items() if token == unknown}
    return (
        tuple(by_id.get(i, f"[PAD{i}]") for i in range(size)),
        tuple(types.get(i, UNUSED) for i in range(size)),
    )


def _merges(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the merges of a BPE, which older files write with a space between both."""
    pairs = (m.split(" ", 1) if isinstance(m, str) else m for m in model["merges"])
    return [(str(left), str(right)) for left, right in pairs]


def _unmerged(model: Mapping[str, Any], tokens: Collection[str]) -> list[str]:
    """Return the tokens that merges do not make of their characters."""
    bpe = models.BPE(dict(model["vocab"]), _merges(model))
    return [token for token in tokens if [x.value for x in bpe.tokenize(token)] != [token]]
