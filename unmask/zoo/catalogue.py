"""MODELS: all presets by name. A new family is one line here."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unmask.bundled.models import BUNDLED_MODELS
from unmask.config import near_hint
from unmask.zoo.decoders import (
    gemma,
    gpt_neox,
    lamda,
    llama,
    mistral,
    olmo,
    palm,
    qwen,
    transformer_xl,
)
from unmask.zoo.decoders.gpt import gpt1, gpt2, gpt3
from unmask.zoo.encoder_decoders import (
    bart,
    byt5,
    evolved_transformer,
    mass,
    mbart,
    meena,
    mt5,
    t5,
    t5_architectures,
    transformer,
    ul2,
)
from unmask.zoo.encoders import (
    canine,
    coco_lm,
    deberta,
    deberta_v2,
    electra,
    gpt_bert,
    longformer,
    modernbert,
    mpnet,
    unilm,
    xlnet,
)
from unmask.zoo.encoders.bert_family import (
    albert,
    alephbert,
    bert,
    distilbert,
    flaubert,
    roberta,
    scibert,
    spanbert,
    tinybert,
    xlm,
)
from unmask.zoo.native_format import FAMILY_KEY, NATIVE_PREFIX, with_native_format
from unmask.zoo.preset import Published
from unmask.zoo.recurrent import awd_lstm, elmo, lstm, sentence_encoders, skip_thoughts
from unmask.zoo.vision import (
    clip,
    deit,
    mae,
    show_and_tell,
    show_attend_and_tell,
    vision_encoder_decoder,
    vit,
)
from unmask.zoo.word_vectors import word2vec

_FAMILIES = (
    word2vec, lstm, awd_lstm, elmo, skip_thoughts, sentence_encoders,
    bert, tinybert, scibert, alephbert, roberta, spanbert, albert, electra, distilbert, flaubert,
    xlm, deberta, deberta_v2, coco_lm, canine, longformer, modernbert, mpnet, unilm, gpt_bert,
    gpt1, gpt2, gpt3, gpt_neox, palm, lamda, llama, mistral, qwen, gemma, olmo, transformer_xl,
    xlnet, transformer, evolved_transformer, t5, t5_architectures, mt5, byt5, ul2, bart, mbart,
    mass, meena, vit, deit, mae, clip, vision_encoder_decoder, show_and_tell,
    show_attend_and_tell,
)  # fmt: skip
MODELS: Mapping[str, Published] = {
    card.name: card for family in _FAMILIES for card in family.PRESETS
}
TEXT_MODELS: Mapping[str, Published] = {
    name: card for name, card in MODELS.items() if not card.reads_pictures
}
"""Those that read texts."""
HUB_PREFIX = "hf:"
"""Of the names of models on the Hub."""
ALIASES = {
    "bert-base": "bert-base-uncased",
    "bert-large": "bert-large-uncased",
    "bert-base-multilingual": "bert-base-multilingual-cased",
    "tinybert": "tinybert-4l-312d",
    "scibert": "scibert-scivocab-uncased",
    "alephbert": "alephbert-base",
    "gpt2-small": "gpt2",
}
"""Common short names."""


def is_preset_name(model: str) -> bool:
    """Return whether a name can only be a preset: known, or neither on the disk nor on the Hub."""
    if Path(model).is_dir() or model in BUNDLED_MODELS:
        return False
    named = model in MODELS or model in ALIASES
    return named or not (model.startswith(HUB_PREFIX) or os.sep in model or Path(model).exists())


def get_preset(name: str) -> Published:
    """Return a preset by name.

    Raises:
        ValueError: there is no such preset; the message suggests the nearest.
    """
    name = ALIASES.get(name, name)
    if name in BUNDLED_MODELS:
        raise ValueError(f"{name!r} is a bundled model, not a preset (`unmask models` lists all)")
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}{did_you_mean(name)}")
    return MODELS[name]


def did_you_mean(name: str) -> str:
    """Return the end of a message: the nearest preset, and where all are listed."""
    names = [*BUNDLED_MODELS, *MODELS, *ALIASES]
    longer = next((other for other in names if other.startswith(f"{name}-")), None)
    return near_hint(name, names, longer) + " (`unmask models` lists all)"


def preset_for_config(config: Mapping[str, Any]) -> Published:
    """Return a preset of the family of a configuration of another library.

    Raises:
        ValueError: the family is unknown, or cannot be inferred from the keys.
    """
    model_type = config.get("model_type")
    if isinstance(model_type, str) and model_type.startswith(NATIVE_PREFIX):
        short = {"model_type": model_type.removeprefix(NATIVE_PREFIX)}
        ours = [card for card in MODELS.values() if card.family == config.get(FAMILY_KEY)]
        if FAMILY_KEY in config and (
            not ours or ours[0].config_mapping.model_type != short["model_type"]
        ):
            raise ValueError(f"{model_type} has no family {config[FAMILY_KEY]!r}")
        return with_native_format(
            ours[0] if ours else preset_for_config(short)
        )  # older folders lack it
    named = [card for card in MODELS.values() if card.config_mapping.model_type == model_type]
    told = [
        card
        for card in (MODELS.values() if model_type is None else named)
        if card.config_mapping.identifying_keys
        and card.config_mapping.identifying_keys <= config.keys()
    ]
    if named or told:
        return (told or named)[0]
    known = sorted({card.config_mapping.model_type for card in MODELS.values()})
    raise ValueError(f"model_type {str(model_type)!r} is not one of {known}")
