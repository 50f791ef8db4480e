"""MODELS: the dict of all cards. A new family is one line here."""

import difflib
from collections.abc import Mapping
from typing import Any

from unmask.box import BOX
from unmask.published import (
    albert,
    alephbert,
    awd_lstm,
    bart,
    bert,
    byt5,
    canine,
    coco_lm,
    deberta,
    deberta_v2,
    distilbert,
    electra,
    evolved_transformer,
    flaubert,
    gemma,
    gpt,
    gpt1,
    gpt3,
    gpt_bert,
    lamda,
    llama,
    longformer,
    lstm,
    mass,
    mbart,
    meena,
    mistral,
    modernbert,
    mt5,
    neox,
    olmo,
    palm,
    qwen,
    roberta,
    scibert,
    sentence_encoders,
    spanbert,
    t5,
    t5_architectures,
    tinybert,
    transformer,
    transformer_xl,
    ul2,
    unilm,
    word_vectors,
    xlnet,
)
from unmask.published.card import Published
from unmask.published.own import FAMILY, OWN, in_own_words

_FAMILIES = (
    word_vectors, lstm, awd_lstm, sentence_encoders,
    bert, tinybert, scibert, alephbert, roberta, spanbert, albert, electra, distilbert, flaubert,
    deberta, deberta_v2, coco_lm, canine, longformer, modernbert, unilm, gpt_bert, gpt1, gpt, gpt3,
    neox, palm, lamda, llama, mistral, qwen, gemma, olmo, transformer_xl, xlnet, transformer,
    evolved_transformer, t5, t5_architectures, mt5, byt5, ul2, bart, mbart, mass, meena,
)  # fmt: skip
MODELS: Mapping[str, Published] = {card.name: card for family in _FAMILIES for card in family.CARDS}
ALIASES = {
    "bert-base": "bert-base-uncased",
    "bert-large": "bert-large-uncased",
    "bert-base-multilingual": "bert-base-multilingual-cased",
    "tinybert": "tinybert-4l-312d",
    "scibert": "scibert-scivocab-uncased",
    "alephbert": "alephbert-base",
    "gpt2-small": "gpt2",
}
"""Short names that people use."""


def published(name: str) -> Published:
    """Return a card by name.

    Raises:
        ValueError: there is none of this name; the nearest is named.
    """
    name = ALIASES.get(name, name)
    if name in BOX:
        raise ValueError(f"{name!r} is weights, and no card (`unmask models` lists all)")
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}{nearest(name)}")
    return MODELS[name]


def nearest(name: str) -> str:
    """Say which card may have been meant, and where all are listed, after a message."""
    near = difflib.get_close_matches(name, [*BOX, *MODELS, *ALIASES], 1)
    return (f"; did you mean {near[0]!r}?" if near else "") + " (`unmask models` lists all)"


def family(theirs: Mapping[str, Any]) -> Published:
    """Return a card of the family that a configuration of another library is of.

    Raises:
        ValueError: it names no family of the catalogue, or none at all and has the keys of none.
    """
    model_type = theirs.get("model_type")
    if isinstance(model_type, str) and model_type.startswith(OWN):
        short = {"model_type": model_type.removeprefix(OWN)}
        ours = [card for card in MODELS.values() if card.family == theirs.get(FAMILY)]
        if FAMILY in theirs and (not ours or ours[0].fields.model_type != short["model_type"]):
            raise ValueError(f"{model_type} has no family {theirs[FAMILY]!r}")
        return in_own_words(ours[0] if ours else family(short))  # before, folders did not say it
    named = [card for card in MODELS.values() if card.fields.model_type == model_type]
    told = [
        card
        for card in (MODELS.values() if model_type is None else named)
        if card.fields.told_by and card.fields.told_by <= theirs.keys()
    ]
    if named or told:
        return (told or named)[0]
    known = sorted({card.fields.model_type for card in MODELS.values()})
    raise ValueError(f"model_type {str(model_type)!r} is not one of {known}")
