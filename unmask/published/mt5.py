"""mT5: Xue et al. 2021, arXiv:2010.11934.

"mT5: A Massively Multilingual Pre-trained Text-to-Text Transformer".
"""

from dataclasses import replace

from unmask.model.architecture import Architecture, EncoderDecoderArchitecture
from unmask.model.keys import Keys
from unmask.published import t5
from unmask.published.bert import SMALL_SCALE
from unmask.published.card import Paper, Published, resized
from unmask.tokens.vocabulary import T5 as FRAME
from unmask.tokens.vocabulary import TokenizerSpec, Unigram

PAPER = Paper(
    title="mT5: A Massively Multilingual Pre-trained Text-to-Text Transformer",
    authors="Xue, Constant, Roberts, Kale, Al-Rfou, Siddhant, Barua, Raffel",
    year=2021,
    arxiv="2010.11934",
)

ROWS = 250_112
"""Of the table of tokens: 250,000 pieces and 100 sentinels, padded to a multiple of 128."""


FIELDS = replace(
    t5.FIELDS,
    model_type="mt5",
    keys=Keys("d_ff used size 1024\nfeed_forward_proj used word gated-gelu", t5.KEYS),
    classes={("language",): "MT5ForConditionalGeneration", (): "MT5Model"},
    language=lambda theirs: {},  # never scaled, whatever their file says of tied tables
)


def _like(card: Published, name: str, parameters: int) -> Published:
    """Return the card with the network of T5 1.1 in one of its sizes (section 3.2)."""
    return replace(
        card,
        name=name,
        family="mt5",
        paper=PAPER,
        architecture=resized(card.architecture, ROWS),
        tokenizer=TokenizerSpec(Unigram(250_000), FRAME),  # section 3.2
        length=1024,  # section 4, as the next two
        batch_tokens=1024 * 1024,
        training=t5.training(1_000_000),
        parameters=parameters,
        fields=FIELDS,
        hub=f"google/{name}",
        note="101 languages, smaller ones sampled more often (section 3.2): `--sampling 0.3`. The "
        "published tokenizer writes rare characters as bytes; a Unigram learned here does not.",
    )


MT5_SMALL = _like(t5.V1_1_SMALL, "mt5-small", 300_176_768)
MT5_BASE = _like(t5.V1_1_BASE, "mt5-base", 582_401_280)
MT5_LARGE = _like(t5.V1_1_LARGE, "mt5-large", 1_229_581_312)
MT5_XL = _like(t5.V1_1_XL, "mt5-xl", 3_742_619_648)
MT5_XXL = _like(t5.V1_1_XXL, "mt5-xxl", 12_921_057_280)


def for_two_cores(card: Published, name: str, parameters: int, **changes: int) -> Published:
    """Return a size of ours for small texts."""
    a = card.architecture
    assert isinstance(a, EncoderDecoderArchitecture)
    deep = changes.pop("n_decoder_layers", None)
    encoder: Architecture = replace(a.encoder, d_model=256, n_heads=4, d_ff=512, **changes)
    return replace(
        card,
        name=name,
        architecture=t5.both(encoder, deep),
        batch_tokens=4_096,
        rate=3e-3,
        training=SMALL_SCALE,
        parameters=parameters,
        hub=None,
    )


MT5_MINI = replace(
    for_two_cores(MT5_SMALL, "mt5-mini", 10_542_848, n_layers=4, vocab_size=8_292),
    tokenizer=TokenizerSpec(Unigram(8_192), FRAME),
    length=128,
    note="Not in the paper: for two CPU cores, with the width and depth of BERT-mini. Several "
    "languages: `--sampling 0.3`.",
)

CARDS = (MT5_MINI, MT5_SMALL, MT5_BASE, MT5_LARGE, MT5_XL, MT5_XXL)
