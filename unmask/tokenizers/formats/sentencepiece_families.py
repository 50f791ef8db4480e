"""What a SentencePiece file does not say: the special tokens and the habits of its family."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tokenizers import normalizers

from unmask.tokenizers import pipeline
from unmask.tokenizers.formats.sentencepiece import CONTROL, SentencePieceEntry, SentencePieceModel
from unmask.tokenizers.spec import (
    ALBERT,
    DEBERTA,
    LLAMA,
    MBART,
    MBART_50,
    ROBERTA,
    T5,
    XLNET,
    SpecialTokens,
)


@dataclass(frozen=True, kw_only=True)
class SentencePieceFamily:
    """A way of using SentencePiece files."""

    classes: tuple[str, ...]
    """Its tokenizers' classes in transformers, without "Tokenizer" and "Fast"."""
    special_tokens: SpecialTokens
    n_sentinels: int = 0
    """Sentinels above the file's pieces, if tokenizer_config.json (extra_ids) does not say another
    number."""
    configurable_ends: bool = False
    """tokenizer_config.json says whether a text begins and ends with special tokens (add_bos_token,
    add_eos_token)."""
    added_tokens: frozenset[str] = frozenset()
    """Special tokens that the file may lack; they come after its pieces."""
    normalizes_quotes_and_accents: bool = False
    """Quotes are made plain and accents taken away, letters lowered if tokenizer_config.json says
    so."""
    lowercase: bool = False
    """What do_lower_case is if it is not said."""
    fairseq_ids: bool = False
    """Ids are fairseq's: four special tokens, then the pieces but the file's own first three."""


_ALBERT = SentencePieceFamily(
    classes=("Albert",),
    normalizes_quotes_and_accents=True,
    lowercase=True,
    special_tokens=ALBERT,
)
_DEBERTA = SentencePieceFamily(
    classes=("DebertaV2",), added_tokens=frozenset({"[MASK]"}), special_tokens=DEBERTA
)
_LLAMA = SentencePieceFamily(
    classes=("Llama", "CodeLlama", "Gemma"),
    configurable_ends=True,
    special_tokens=LLAMA,
)
_T5 = SentencePieceFamily(
    classes=("T5", "MT5"), n_sentinels=100, special_tokens=replace(T5, n_sentinels=0)
)
_XLM_R = SentencePieceFamily(
    classes=("XLMRoberta",),
    fairseq_ids=True,
    added_tokens=frozenset({"<mask>"}),
    special_tokens=ROBERTA,
)
_MBART, _MBART_50 = (
    SentencePieceFamily(
        classes=(name,),
        fairseq_ids=True,
        added_tokens=frozenset({*frame.languages, "<mask>"}),
        special_tokens=frame,
    )
    for name, frame in (("MBart", MBART), ("MBart50", MBART_50))
)
_XLNET = SentencePieceFamily(
    classes=("XLNet",), normalizes_quotes_and_accents=True, special_tokens=XLNET
)

SENTINEL_PATTERN = re.compile(r"▁?(<extra_id_\d+>)\Z")
FAMILIES = (_ALBERT, _DEBERTA, _LLAMA, _T5, _XLM_R, _MBART, _MBART_50, _XLNET)


def punctuation_starts_words(tokenizer_class: str, model_type: str) -> bool:
    """Return whether a punctuation mark begins a word in the code of a family.

    For `SpecialTokens.punctuation_starts_words`.

    Args:
        tokenizer_class: of tokenizer_config.json, in short.
        model_type: of config.json.
    """
    known = {"albert", "xlnet", "deberta", "debertav2"}
    return bool(known & {tokenizer_class.lower(), model_type.replace("-", "")})


def family_of(
    model: SentencePieceModel,
    tokenizer_class: str,
    model_type: str,
    *,
    numbered_elsewhere: bool = False,
) -> SentencePieceFamily:
    """Find the family of a file: by what the folder says, otherwise by the special tokens in it.

    Args:
        model: the file.
        tokenizer_class: of tokenizer_config.json, in short ("Llama"); "" if it is not said.
        model_type: of config.json.
        numbered_elsewhere: there is a dict.txt beside it.

    Raises:
        ValueError: the folder names a class that is not known here, or nothing tells the family.
    """
    if tokenizer_class:
        for family in FAMILIES:
            if tokenizer_class in family.classes:
                return family
        raise ValueError(
            f"what a {tokenizer_class}Tokenizer does besides is not known; "
            "save it with transformers as tokenizer.json first"
        )
    kind = model_type.replace("-", "").replace("_", "")
    for family in FAMILIES:
        if kind in [name.lower() for name in family.classes]:
            return family
    if numbered_elsewhere:
        raise ValueError(
            "dict.txt beside it gives its pieces other ids, as the code of their model reads them "
            "(fairseq, COCO-LM), which is not supported; save it as tokenizer.json first"
        )
    return _family_by_tokens(model)


def _family_by_tokens(model: SentencePieceModel) -> SentencePieceFamily:
    special = {p.text for p in model.pieces if p.piece_type == CONTROL}
    if {"[CLS]", "[SEP]"} <= special:
        return _DEBERTA if "[PAD]" in special else _ALBERT
    if {"<cls>", "<sep>"} <= special:
        return _XLNET
    if model.bos_id is None and model.eos_id is not None and model.pad_id is not None:
        return _T5
    if model.bos_id is not None and model.eos_id is not None and model.algorithm == "bpe":
        return _LLAMA
    raise ValueError(
        f"its special tokens ({', '.join(sorted(special)) or 'none'}) do not tell its family; "
        "tokenizer_config.json must name it (tokenizer_class)"
    )


def special_tokens_of(
    family: SentencePieceFamily, model: SentencePieceModel, config: Mapping[str, Any]
) -> SpecialTokens:
    """Return the family's frame, as tokenizer_config.json changes it."""
    asked = read_count(config, "extra_ids", family.n_sentinels)
    n = (
        sum(
            p.piece_type == CONTROL and SENTINEL_PATTERN.match(p.text) is not None
            for p in model.pieces
        )
        or asked
    )
    frame = replace(family.special_tokens, n_sentinels=n)
    begins, ends = config.get("add_bos_token"), config.get("add_eos_token")
    if family.configurable_ends:
        if model.pad_id is not None:
            frame = replace(frame, pad=model.pieces[model.pad_id].text)
        begin = () if begins is False else frame.prefix
        finish = (frame.end,) if ends and frame.end else ()
        frame = replace(frame, prefix=begin, separator=finish + begin, suffix=finish)
    return frame


def read_count(config: Mapping[str, Any], key: str, default: int) -> int:
    """Return a number of tokens that tokenizer_config.json may say.

    Raises:
        ValueError: it is no such number.
    """
    value = config.get(key, default)
    if type(value) is not int or not 0 <= value <= 100_000:
        raise ValueError(
            f"tokenizer_config.json: {key} must be a number up to 100000, got {value!r}"
        )
    return value


def renumber_pieces(family: SentencePieceFamily, model: SentencePieceModel) -> SentencePieceModel:
    """Give the pieces the ids that the family's models have, and sentinels their names.

    mT5's file has the sentinels itself, as ▁<extra_id_0> and so on.
    """
    found = [SENTINEL_PATTERN.match(piece.text) for piece in model.pieces]
    if family.n_sentinels and any(found):
        each = zip(model.pieces, found, strict=True)
        return replace(
            model, pieces=tuple(SentencePieceEntry(m[1], 0.0, CONTROL) if m else p for p, m in each)
        )
    if not family.fairseq_ids:
        return model
    first = tuple(SentencePieceEntry(name, 0.0, CONTROL) for name in ("<s>", "<pad>", "</s>"))
    pieces = (*first, model.pieces[model.unk_id], *model.pieces[3:])
    return replace(model, pieces=pieces, unk_id=3, bos_id=0, pad_id=1, eos_id=2)


def normalizer_rules(
    family: SentencePieceFamily, config: Mapping[str, Any]
) -> list[normalizers.Normalizer]:
    """List what the family's code does to a text before SentencePiece reads it."""
    if config.get("split_by_punct"):
        raise ValueError("tokenizer_config.json asks for split_by_punct, which is not supported")
    if config.get("add_prefix_space") is False:
        raise ValueError(
            "tokenizer_config.json: add_prefix_space = false is not supported with such a file; "
            "save it with transformers as tokenizer.json first"
        )
    lowercase = bool(config.get("do_lower_case", family.lowercase))
    if family.normalizes_quotes_and_accents:
        accents = bool(config.get("keep_accents", False))
        return pipeline.plain_text_normalizers(keep_accents=accents, lowercase=lowercase)
    return [normalizers.Lowercase()] if lowercase else []
