"""Families of SentencePiece files: special tokens and conventions outside the file."""

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
    """Conventions of a family of models with SentencePiece files."""

    classes: tuple[str, ...]
    """Tokenizer classes in transformers, without "Tokenizer" and "Fast"."""
    special_tokens: SpecialTokens
    n_sentinels: int = 0
    """Number of sentinels above the file's pieces, unless set in tokenizer_config.json
    (extra_ids)."""
    configurable_ends: bool = False
    """Whether tokenizer_config.json sets the tokens around a text (add_bos_token,
    add_eos_token)."""
    added_tokens: frozenset[str] = frozenset()
    """Special tokens that the file may lack; they are added after its pieces."""
    normalizes_quotes_and_accents: bool = False
    """Whether quotes are normalized and accents removed; letters are lowercased if
    tokenizer_config.json says so."""
    lowercase: bool = False
    """Default of do_lower_case."""
    fairseq_ids: bool = False
    """Whether ids are fairseq's: four special tokens, then the pieces without the first three."""


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
    """Return whether punctuation marks start words in the code of a family.

    For `SpecialTokens.punctuation_starts_words`.

    Args:
        tokenizer_class: short name, from tokenizer_config.json.
        model_type: from config.json.
    """
    families = {"albert", "xlnet", "deberta", "debertav2"}
    return bool(families & {tokenizer_class.lower(), model_type.replace("-", "")})


def family_of(
    model: SentencePieceModel,
    tokenizer_class: str,
    model_type: str,
    *,
    numbered_elsewhere: bool = False,
) -> SentencePieceFamily:
    """Find the family of a file: as declared in the folder, otherwise by its special tokens.

    Args:
        model: the file.
        tokenizer_class: short name ("Llama"), from tokenizer_config.json; "" if undeclared.
        model_type: from config.json.
        numbered_elsewhere: whether the folder has a dict.txt.

    Raises:
        ValueError: the class is unknown, or the family cannot be determined.
    """
    if tokenizer_class:
        for family in FAMILIES:
            if tokenizer_class in family.classes:
                return family
        raise ValueError(
            f"{tokenizer_class}Tokenizer is not supported; "
            "save it with transformers as tokenizer.json first"
        )
    kind = model_type.replace("-", "").replace("_", "")
    for family in FAMILIES:
        if kind in [name.lower() for name in family.classes]:
            return family
    if numbered_elsewhere:
        raise ValueError(
            "its dict.txt gives the pieces other ids, as in the code of their model "
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
        f"its special tokens ({', '.join(sorted(special)) or 'none'}) do not identify its family; "
        "tokenizer_config.json must name it (tokenizer_class)"
    )


def special_tokens_of(
    family: SentencePieceFamily, model: SentencePieceModel, config: Mapping[str, Any]
) -> SpecialTokens:
    """Return the family's special tokens, with the changes of tokenizer_config.json."""
    n_sentinels = read_count(config, "extra_ids", family.n_sentinels)
    n = (
        sum(
            p.piece_type == CONTROL and SENTINEL_PATTERN.match(p.text) is not None
            for p in model.pieces
        )
        or n_sentinels
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
    """Return a number of tokens from tokenizer_config.json.

    Raises:
        ValueError: it is not a number from 0 to 100,000.
    """
    value = config.get(key, default)
    if type(value) is not int or not 0 <= value <= 100_000:
        raise ValueError(
            f"tokenizer_config.json: {key} must be a number up to 100000, got {value!r}"
        )
    return value


def renumber_pieces(family: SentencePieceFamily, model: SentencePieceModel) -> SentencePieceModel:
    """Give pieces the ids of the family's models, and sentinels their names.

    mT5's file contains the sentinels, as ▁<extra_id_0> and so on.
    """
    matches = [SENTINEL_PATTERN.match(piece.text) for piece in model.pieces]
    if family.n_sentinels and any(matches):
        each = zip(model.pieces, matches, strict=True)
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
    """List the normalizers that the family's code applies before SentencePiece."""
    if config.get("split_by_punct"):
        raise ValueError("tokenizer_config.json: split_by_punct is not supported")
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
