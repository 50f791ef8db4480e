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


def role_tokens(special_tokens: SpecialTokens) -> dict[str, str]:
    """Return the special tokens by their roles in transformers: {"eos_token": "</s>"}.

    BERT's begin and end of a text are `cls_token` and `sep_token`, and no `bos_token` and
    `eos_token`; RoBERTa's are both.
    """
    names, prefix = special_tokens, special_tokens.prefix[:1]
    as_bert = pipeline.uses_segments(names) and names.summary is None
    roles = {"pad_token": names.pad, "unk_token": names.unknown, "mask_token": names.mask}
    if prefix and names.mask is not None:
        roles |= {"cls_token": prefix[0], "sep_token": names.end}
    if names.summary is not None:
        roles |= {"cls_token": names.summary, "sep_token": names.separator[0]}
    if names.start == names.end or not (as_bert or names.start == names.pad):
        roles["bos_token"] = prefix[0] if prefix else names.start
    if not as_bert:
        roles["eos_token"] = names.end
    return {role: token for role, token in roles.items() if token is not None}


def transformers_config(special_tokens: SpecialTokens, backend: Tokenizer) -> dict[str, Any]:
    """Return tokenizer_config.json of a tokenizer.json with these special tokens."""
    segments = pipeline.uses_segments(special_tokens)
    special = {t.content for t in backend.get_added_tokens_decoder().values() if t.special}
    roles = role_tokens(special_tokens)
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_input_names": [
            "input_ids", *(["token_type_ids"] if segments else []), "attention_mask",
        ],
        **{role: token for role, token in roles.items() if token in special},
    }  # fmt: skip
    if special_tokens.summary is not None:
        config["padding_side"] = "left"  # the last column summarizes a text
    languages = () if special_tokens.language_embeddings else special_tokens.languages
    if marks := (*sentinel_names(special_tokens), *languages):
        config["extra_special_tokens"] = [mark for mark in marks if mark in special]
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
