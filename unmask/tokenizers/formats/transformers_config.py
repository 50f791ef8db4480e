"""tokenizer_config.json in the format of transformers."""

import json
from typing import Any

from tokenizers import Tokenizer

from unmask.config import to_dict
from unmask.tokenizers import pipeline
from unmask.tokenizers.spec import (
    SpecialTokens,
    sentinel_names,
)


def transformers_config(special_tokens: SpecialTokens, backend: Tokenizer) -> dict[str, Any]:
    """Return tokenizer_config.json of a tokenizer.json with these special tokens."""
    segments = pipeline.uses_segments(special_tokens)
    as_bert = segments and special_tokens.summary is None
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_input_names": [
            "input_ids", *(["token_type_ids"] if segments else []), "attention_mask",
        ],
        "pad_token": special_tokens.pad,
    }  # fmt: skip
    if special_tokens.unknown is not None:
        config["unk_token"] = special_tokens.unknown
    if special_tokens.mask is not None:
        config["mask_token"] = special_tokens.mask
    if special_tokens.prefix and special_tokens.mask is not None:
        config["cls_token"] = special_tokens.prefix[0]
    if special_tokens.summary is not None:
        config |= {"cls_token": special_tokens.summary, "sep_token": special_tokens.separator[0]}
        config["padding_side"] = "left"  # the last column summarizes a text
    if (
        not as_bert and special_tokens.start != special_tokens.pad
    ) or special_tokens.start == special_tokens.end:
        config["bos_token"] = special_tokens.start
    if special_tokens.end is not None:
        if special_tokens.prefix and special_tokens.mask is not None:
            config["sep_token"] = special_tokens.end
        if not as_bert:
            config["eos_token"] = special_tokens.end
    languages = () if special_tokens.language_embeddings else special_tokens.languages
    if marks := (*sentinel_names(special_tokens), *languages):
        config["extra_special_tokens"] = list(marks)
    unmask = {"special_tokens": to_dict(special_tokens)}
    return config | {"unmask": unmask} | _bert_options(backend)


def _bert_options(backend: Tokenizer) -> dict[str, bool | None]:
    """Return the options that BERT's class in transformers needs, or assumes by default."""
    normalizer = json.loads(backend.to_str())["normalizer"] or {}
    if normalizer.get("type") != "BertNormalizer":
        return {}
    return {
        "do_lower_case": normalizer["lowercase"],
        "strip_accents": normalizer["strip_accents"],
        "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
    }
