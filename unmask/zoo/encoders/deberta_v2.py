"""DeBERTa's second version, He et al. 2021, arXiv:2006.03654, section 5.3; and its third.

He, Gao, Chen 2021, arXiv:2111.09543, "DeBERTaV3: Improving DeBERTa using ELECTRA-Style Pre-Training
with Gradient-Disentangled Embedding Sharing". The network is the same.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.pretraining.generator import Generator
from unmask.heads.pretraining.replaced_token_detection import ReplacedTokenDetection
from unmask.heads.spec import HeadSpec
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.model.exchange.config_mapping import (
    check_fixed_keys,
    config_functions,
    read_activation,
    write_activation,
)
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.layers.convolution import NgramInputEncoding
from unmask.model.positions.disentangled import DisentangledAttention
from unmask.model.variants import LayerVariants
from unmask.objectives.published import DEBERTA_V3 as FILLED_IN
from unmask.tokenizers.spec import DEBERTA as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import Unigram
from unmask.zoo.encoders import deberta
from unmask.zoo.encoders.bert_family import bert
from unmask.zoo.preset import Paper, Published, no_adjustment

V3 = Paper(
    title="DeBERTaV3: Improving DeBERTa using ELECTRA-Style Pre-Training with "
    "Gradient-Disentangled Embedding Sharing",
    authors="He, Gao, Chen",
    year=2021,
    arxiv="2111.09543",
)

VOCAB_SIZE = 128_100
"""128,000 SentencePiece pieces and 100 reserved ids (released code); 128K in both papers, section
5.3 and table 1."""
BASE = replace(
    deberta.BASE,
    vocab_size=VOCAB_SIZE,
    position=DisentangledAttention(
        512, n_buckets=256, share_projections=True, distance_norm=True
    ),  # section 5.3; released code
)
CONVOLUTION = NgramInputEncoding(3, "gelu")  # section 5.3; released code

_SELF = "deberta.encoder.layer.*.attention.self"
WEIGHT_NAMES = WeightNames(
    f"""
    backbone.layers.*.attention.q                {_SELF}.query_proj
    backbone.layers.*.attention.k                {_SELF}.key_proj
    backbone.layers.*.attention.v                {_SELF}.value_proj
    {deberta.NON_ATTENTION_NAMES}
    """,
    prefix="deberta.",
)

_READ_CONFIG, _WRITE_CONFIG = config_functions(deberta.FIELD_TABLE, BASE, {})
_NORMS = {"layer_norm": True, "none": False}


def _read_config(config: Mapping[str, Any]) -> Architecture:
    if not config.get("share_att_key"):
        raise ValueError("share_att_key must be true, as in all published models")
    a = _READ_CONFIG(config)
    check_fixed_keys(config, {"attention_head_size": a.d_head})
    norm = str(config.get("norm_rel_ebd", "none"))
    if norm not in _NORMS:
        raise ValueError(f"norm_rel_ebd {norm!r} is not one of {sorted(_NORMS)}")
    buckets, width = config.get("position_buckets", -1), config.get("conv_kernel_size", 0)
    position = replace(
        deberta.read_position(config),
        n_buckets=buckets if buckets > 0 else None,
        share_projections=True,
        distance_norm=_NORMS[norm],
    )
    if width <= 0:
        return replace(a, position=position)
    if width % 2 == 0:
        raise ValueError(f"conv_kernel_size must be odd, got {width}")
    act = read_activation(config.get("conv_act", "tanh"), "conv_act")
    beside = NgramInputEncoding(width, act, config.get("conv_groups", 1))  # type: ignore[arg-type]
    return replace(a, position=position, layers=LayerVariants(ngram_encoding=beside))


def _write_config(a: Architecture) -> dict[str, Any]:
    position, beside = a.position, a.layers.ngram_encoding
    if not isinstance(position, DisentangledAttention) or not position.share_projections:
        raise ValueError(
            "DeBERTa-v2's format has Disentangled positions with the projections of content, got "
            f"{position}"
        )
    return (
        _WRITE_CONFIG(a)
        | deberta.write_position(position)
        | {
            "share_att_key": True,
            "position_buckets": position.n_buckets or -1,
            "norm_rel_ebd": next(k for k, norm in _NORMS.items() if norm == position.distance_norm),
        }
        | ({} if beside is None else _write_convolution(beside))
    )


def _write_convolution(beside: NgramInputEncoding) -> dict[str, Any]:
    return {
        "conv_kernel_size": beside.kernel_size,
        "conv_act": write_activation(beside.activation),
        "conv_groups": beside.groups,
    }


CONFIG_KEYS = ConfigKeys(
    """
    intermediate_size        used      size       6144
    share_att_key            used      flag       false
    attention_head_size      used      size       -
    position_buckets         used      integer    -1
    norm_rel_ebd             used      word       none
    conv_kernel_size         used      count      0
    conv_act                 used      word       tanh
    conv_groups              used      size       1
    """,
    deberta.CONFIG_KEYS,
)
_FIELDS = deberta.config_mapping(
    "deberta-v2", "DebertaV2", _read_config, _write_config, CONFIG_KEYS
)
CONFIG_MAPPING = replace(
    _FIELDS, class_names={**_FIELDS.class_names, ("choice",): "DebertaV2ForMultipleChoice"}
)

_LARGE = {"d_model": 1536, "n_layers": 24, "n_heads": 24, "d_ff": 6144}
XLARGE = replace(
    deberta.DEBERTA_BASE,
    name="deberta-v2-xlarge",
    family="deberta-v2",
    architecture=replace(BASE, layers=LayerVariants(ngram_encoding=CONVOLUTION), **_LARGE),  # type: ignore[arg-type]
    tokenizer=TokenizerSpec(Unigram(VOCAB_SIZE), FRAME),
    learning_rate=1.5e-4,  # table 8, of the larger one
    n_parameters=887_871_588,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    post_build=no_adjustment,
    hub_id="microsoft/deberta-v2-xlarge",
    note="DeBERTa 900M in the paper's table 12.",
)
XXLARGE = replace(
    XLARGE,
    name="deberta-v2-xxlarge",
    architecture=replace(XLARGE.architecture, n_layers=48),  # type: ignore[type-var]  # section 5.3
    learning_rate=1.5e-4,  # table 8
    n_parameters=1_567_828_068,
    hub_id="microsoft/deberta-v2-xxlarge",
    note="DeBERTa 1.5B in the paper.",
)

DISCRIMINATOR_NOTE = (
    "The discriminator is saved; its generator is in the folder `generator` of a run."
)


def heads(n_layers: int) -> dict[str, HeadSpec]:
    """Return the pretraining heads of the third version, with a generator of `n_layers`."""
    half = Generator(
        width_factor=1.0, n_layers=n_layers // 2, embedding_sharing="disentangled"
    )  # section 3.1, 3.3
    return {"generator": half, "replaced": ReplacedTokenDetection()}


V3_BASE = replace(
    XLARGE,
    name="deberta-v3-base",
    paper=V3,
    architecture=BASE,
    batch_tokens=8192 * 512,  # not verified, as the rest of the recipe
    learning_rate=6e-4,
    training_options={
        "schedule": {"kind": "Linear", "warmup": 10_000},
        "steps": 500_000,
        "optimizer": {
            "kind": "AdamW",
            "betas": [0.9, 0.98],
            "eps": 1e-6,
            "weight_decay": 0.01,
        },
    },
    n_parameters=184_422_913,
    heads=heads(12),
    extra_heads=deberta.HEADS,
    objective=FILLED_IN,
    note=f"{DISCRIMINATOR_NOTE} Rate, batch, steps and optimizer could not be verified in "
    "the paper.",
    hub_id="microsoft/deberta-v3-base",
)


def _v3_with_size(name: str, parameters: int, rate: float, **changes: int) -> Published:
    """Return another size of the third version."""
    architecture = replace(BASE, **changes)
    return replace(
        V3_BASE,
        name=name,
        architecture=architecture,
        heads=heads(architecture.n_layers),
        learning_rate=rate,
        n_parameters=parameters,
        hub_id=f"microsoft/{name}",
    )


V3_XSMALL = _v3_with_size(
    "deberta-v3-xsmall", 70_830_337, 6e-4, d_model=384, n_heads=6, d_ff=1536
)  # released code
V3_SMALL = _v3_with_size("deberta-v3-small", 141_895_681, 6e-4, n_layers=6)
V3_LARGE = _v3_with_size(
    "deberta-v3-large", 435_062_785, 3e-4, d_model=1024, n_layers=24, n_heads=16, d_ff=4096
)
M_V3_BASE = replace(
    V3_BASE,
    name="mdeberta-v3-base",
    architecture=replace(BASE, vocab_size=251_000),  # released code: 250K pieces
    tokenizer=TokenizerSpec(Unigram(251_000), FRAME),
    n_parameters=278_810_113,
    hub_id="microsoft/mdeberta-v3-base",
    note=f"The languages of XLM-R. {V3_BASE.note}",
)
_MINI = deberta.DEBERTA_MINI
V3_MINI = replace(
    V3_BASE,
    name="deberta-v3-mini",
    architecture=replace(
        BASE,
        vocab_size=8_192,
        d_model=256,
        n_layers=4,
        n_heads=4,
        d_ff=1024,
        position=DisentangledAttention(
            128, n_buckets=64, share_projections=True, distance_norm=True
        ),
        initializer=NormalInit(0.05),
    ),
    tokenizer=TokenizerSpec(Unigram(8_192), FRAME),
    sequence_length=_MINI.sequence_length,
    batch_tokens=_MINI.batch_tokens,
    learning_rate=_MINI.learning_rate,
    training_options=bert.MINI_TRAINING,
    n_parameters=5_356_033,
    hub_id=None,
    heads=heads(4),
    note=_MINI.note,
)

V2_MINI = replace(
    XLARGE,
    name="deberta-v2-mini",
    architecture=replace(V3_MINI.architecture, layers=LayerVariants(ngram_encoding=CONVOLUTION)),  # type: ignore[type-var]
    tokenizer=V3_MINI.tokenizer,
    sequence_length=_MINI.sequence_length,
    batch_tokens=_MINI.batch_tokens,
    learning_rate=_MINI.learning_rate,
    training_options=bert.MINI_TRAINING,
    n_parameters=5_692_928,
    hub_id=None,
    note=_MINI.note,
)

PRESETS = (
    V3_MINI, V3_XSMALL, V3_SMALL, V3_BASE, V3_LARGE, M_V3_BASE, V2_MINI, XLARGE, XXLARGE,
)  # fmt: skip
