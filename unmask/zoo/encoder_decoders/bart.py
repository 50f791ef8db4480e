"""BART: Lewis et al. 2020, arXiv:1910.13461.

"BART: Denoising Sequence-to-Sequence Pre-training for Natural Language Generation, Translation, and
Comprehension".
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.architecture import NormSlot
from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.learned import LearnedPositions
from unmask.objectives.published import BART as DENOISING
from unmask.tokenizers.spec import BART as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import ByteBPE
from unmask.zoo.encoder_decoders import transformer
from unmask.zoo.encoders.bert_family import roberta
from unmask.zoo.encoders.bert_family.bert import MINI_TRAINING, NEXT_SENTENCE_TRAINING
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="BART: Denoising Sequence-to-Sequence Pre-training for Natural Language Generation, "
    "Translation, and Comprehension",
    authors="Lewis, Liu, Goyal, Ghazvininejad, Mohamed, Levy, Stoyanov, Zettlemoyer",
    year=2020,
    arxiv="1910.13461",
)

OFFSET = 2
"""First position in both tables, independent of the padding id (transformers; in fairseq that + 1,
which is 2)."""
ENCODER = Architecture(
    vocab_size=50_265,  # section 5.1: GPT-2's byte pairs; released code
    d_model=768,  # section 4, base
    n_layers=6,  # section 2.1
    n_heads=12,
    d_ff=3072,
    position=LearnedPositions(
        1024, OFFSET
    ),  # released code, as what follows but for the activation
    norm=LayerNorm(eps=1e-5),
    embedding_norm=True,
    activation="gelu",  # section 2.1
    dropout=0.1,
    attention_dropout=0.1,  # released command
    initializer=NormalInit(0.02),  # section 2.1
)
HEADS = {"language": LanguageModeling(term="denoised")}
CLASSIFICATION_HEAD = SequenceClassification(pooling="last", dropout=0.0)
"""Section 3.1: the last state of the decoder; the dense layer is of released code."""


def weight_names(slot: NormSlot) -> WeightNames:
    """Return the name table of a family with this norm slot."""
    return transformer.weight_names(slot, _STACK_NAMES, _EXTRA_NAMES)


_STACK_NAMES = (
    "backbone.{side}.position.table model.{side}.embed_positions",
    "backbone.{side}.embed_norm model.{side}.layernorm_embedding",
    "backbone.{side}.final_norm model.{side}.layer_norm",
    "- model.{side}.version",
)
_EXTRA_NAMES = """
    heads.label.dense    classification_head.dense
    heads.label.out      classification_head.out_proj
    heads.spans.out      qa_outputs
"""
WEIGHT_NAMES = weight_names("after")

CONFIG_KEYS = ConfigKeys(
    """
    classifier_dropout          harmless  share
    normalize_before            fixed     false
    normalize_embedding         fixed     true
    add_final_layer_norm        fixed     false
    static_position_embeddings  fixed     false
    gradient_checkpointing      harmless
    """,
    transformer.SHARED_CONFIG_KEYS,
)
"""Fixed keys are of transformers 3 and earlier."""


def _position_keys(length: int) -> LearnedPositions:
    return LearnedPositions(length, OFFSET)


def _read_config(base: Architecture, config: Mapping[str, Any]) -> EncoderDecoderArchitecture:
    return transformer.read_encoder_decoder(config, base, _position_keys)


def _write_config(a: EncoderDecoderArchitecture) -> dict[str, Any]:
    places = a.encoder.position
    length = (
        places.max_positions
        if isinstance(places, LearnedPositions) and places.offset == OFFSET
        else None
    )
    return transformer.write_encoder_decoder(a, "BART", f"learned places from {OFFSET} on", length)


def config_mapping(
    model_type: str,
    name: str,
    base: Architecture,
    keys: ConfigKeys,
) -> ConfigMapping:
    """Return the mapping of a family with the class prefix `name`.

    Args:
        model_type: its name in configurations.
        name: the class prefix.
        base: default values of the encoder.
        keys: the configuration keys.
    """
    return ConfigMapping(
        model_type=model_type,
        config_keys=keys,
        to_architecture=partial(_read_config, base),
        from_architecture=_write_config,
        # Released folders name `BartModel`; the tied head needs no further weights.
        class_names={
            ("language",): f"{name}ForConditionalGeneration",
            ("label",): f"{name}ForSequenceClassification",
            ("spans",): f"{name}ForQuestionAnswering",
            (): f"{name}ForConditionalGeneration",
        },
    )


CONFIG_MAPPING = config_mapping("bart", "Bart", ENCODER, CONFIG_KEYS)

_DROPOUT = "Dropout stays on in the last 10 % of the steps (section 5.1: off). "

BART_LARGE = Published(
    name="bart-large",
    family="bart",
    paper=PAPER,
    architecture=transformer.encoder_decoder(
        replace(ENCODER, d_model=1024, n_layers=12, n_heads=16, d_ff=4096)
    ),
    heads=HEADS,
    classification_head=CLASSIFICATION_HEAD,
    objective=DENOISING,
    tokenizer=TokenizerSpec(ByteBPE(50_265), FRAME),  # section 5.1
    sequence_length=512,  # released code, `tokens_per_sample`
    batch_tokens=8000 * 512,  # section 5.1
    learning_rate=4e-4,  # released command: the authors', as fairseq's issue 1899 quotes it
    training_options={
        **roberta.TRAINING,
        **NEXT_SENTENCE_TRAINING,  # released code, `sample_break_mode`
        "schedule": {"kind": "Linear", "warmup": 10_000},  # released command
        "steps": 500_000,  # section 5.1
        "max_grad_norm": 0.1,  # released command
    },
    n_parameters=406_291_456,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="facebook/bart-large",
    note=_DROPOUT
    + "The paper does not give rate, warm-up and clipping, which are those of the command "
    "released later (fairseq, issue 1899), as quoted there; Adam's betas and epsilon, "
    "not given there, are RoBERTa's. It differs from the paper in spans of 3.5 words on "
    "average, in masks of which 10 % are random tokens, and in about 6,400 rows a step.",
)
BART_BASE = replace(
    BART_LARGE,
    name="bart-base",
    architecture=transformer.encoder_decoder(ENCODER),
    learning_rate=roberta.ROBERTA_BASE.learning_rate,
    training_options={**roberta.TRAINING, **NEXT_SENTENCE_TRAINING, "steps": 1_000_000},  # table 1
    n_parameters=139_420_416,
    hub_id="facebook/bart-base",
    note=_DROPOUT + "Batch as that of bart-large; rate, warm-up and optimizer are RoBERTa's, since "
    "unpublished. It is the base size of section 4, trained on books and Wikipedia only.",
)
BART_MINI = replace(
    BART_BASE,
    name="bart-mini",
    architecture=transformer.encoder_decoder(
        replace(
            ENCODER,
            vocab_size=8_192,
            d_model=256,
            n_layers=4,
            n_heads=4,
            d_ff=1024,
            position=LearnedPositions(512, OFFSET),
            attention_dropout=0.0,
            initializer=NormalInit(0.05),
        )
    ),
    tokenizer=TokenizerSpec(ByteBPE(8_192), FRAME),
    sequence_length=128,
    batch_tokens=4_096,
    learning_rate=3e-3,
    training_options={**MINI_TRAINING, **NEXT_SENTENCE_TRAINING},
    n_parameters=9_734_144,
    hub_id=None,
    note="Not in the paper: for two CPU cores, with the width and depth of BERT-mini.",
)

PRESETS = (BART_MINI, BART_BASE, BART_LARGE)
