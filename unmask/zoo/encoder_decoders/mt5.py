"""mT5: Xue et al. 2021, arXiv:2010.11934.

"mT5: A Massively Multilingual Pre-trained Text-to-Text Transformer".
"""

from dataclasses import replace

from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.tokenizers.spec import T5 as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import Unigram
from unmask.zoo.encoder_decoders import t5
from unmask.zoo.encoders.bert_family.bert import MINI_TRAINING
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="mT5: A Massively Multilingual Pre-trained Text-to-Text Transformer",
    authors="Xue, Constant, Roberts, Kale, Al-Rfou, Siddhant, Barua, Raffel",
    year=2021,
    arxiv="2010.11934",
)

VOCAB_SIZE = 250_112
"""Embedding rows: 250,000 pieces and 100 sentinels, padded to a multiple of 128."""


CONFIG_MAPPING = replace(
    t5.CONFIG_MAPPING,
    model_type="mt5",
    config_keys=ConfigKeys(
        "d_ff used size 1024\nfeed_forward_proj used word gated-gelu", t5.CONFIG_KEYS
    ),
    class_names={("language",): "MT5ForConditionalGeneration", (): "MT5Model"},
    read_language_head=lambda theirs: {},  # never scaled, regardless of tied embeddings
)


def _from_t5_size(preset: Published, name: str, parameters: int) -> Published:
    """Return the preset with the network of T5 1.1 in one of its sizes (section 3.2)."""
    return replace(
        preset,
        name=name,
        family="mt5",
        paper=PAPER,
        architecture=preset.architecture.with_vocab_size(VOCAB_SIZE),
        tokenizer=TokenizerSpec(Unigram(250_000), FRAME),  # section 3.2
        sequence_length=1024,  # section 4, as the next two
        batch_tokens=1024 * 1024,
        training_options=t5.training_options(1_000_000),
        n_parameters=parameters,
        config_mapping=CONFIG_MAPPING,
        hub_id=f"google/{name}",
        note="101 languages, smaller ones sampled more often (section 3.2): `--sampling-exponent "
        "0.3`. The published tokenizer falls back to bytes; a Unigram trained here "
        "does not.",
    )


MT5_SMALL = _from_t5_size(t5.V1_1_SMALL, "mt5-small", 300_176_768)
MT5_BASE = _from_t5_size(t5.V1_1_BASE, "mt5-base", 582_401_280)
MT5_LARGE = _from_t5_size(t5.V1_1_LARGE, "mt5-large", 1_229_581_312)
MT5_XL = _from_t5_size(t5.V1_1_XL, "mt5-xl", 3_742_619_648)
MT5_XXL = _from_t5_size(t5.V1_1_XXL, "mt5-xxl", 12_921_057_280)


def mini_preset(preset: Published, name: str, parameters: int, **changes: int) -> Published:
    """Return a size for small texts, not in the paper."""
    a = preset.architecture
    assert isinstance(a, EncoderDecoderArchitecture)
    deep = changes.pop("n_decoder_layers", None)
    encoder: Architecture = replace(a.encoder, d_model=256, n_heads=4, d_ff=512, **changes)
    return replace(
        preset,
        name=name,
        architecture=t5.encoder_decoder(encoder, deep),
        batch_tokens=4_096,
        learning_rate=3e-3,
        training_options=MINI_TRAINING,
        n_parameters=parameters,
        hub_id=None,
    )


MT5_MINI = replace(
    mini_preset(MT5_SMALL, "mt5-mini", 10_542_848, n_layers=4, vocab_size=8_292),
    tokenizer=TokenizerSpec(Unigram(8_192), FRAME),
    sequence_length=128,
    note="Not in the paper: for two CPU cores, with the width and depth of BERT-mini. Several "
    "languages: `--sampling-exponent 0.3`.",
)

PRESETS = (MT5_MINI, MT5_SMALL, MT5_BASE, MT5_LARGE, MT5_XL, MT5_XXL)
