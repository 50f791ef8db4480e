"""ModernBERT: Warner et al. 2024, arXiv:2412.13663.

"Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder for Fast, Memory Efficient, and
Long Context Finetuning and Inference".
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from unmask.heads.classification.sequence_classification import (
    PredictionHeadTransform,
    SequenceClassification,
    TokenClassification,
)
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.model import Model
from unmask.heads.question_answering import QuestionAnswering
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import NO_BIASES, PRE_NORM
from unmask.model.backbones.transformer import Architecture, Block
from unmask.model.exchange.config_keys import COMMON_KEYS, ConfigKeys
from unmask.model.exchange.config_mapping import (
    ConfigMapping,
    check_fixed_keys,
    config_functions,
    read_activation,
    require_key,
)
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.rotary import LayerwiseRotary, Rotary
from unmask.objectives.published import MODERNBERT as MASKED_30
from unmask.tokenizers.spec import BERT as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import ByteBPE
from unmask.zoo.encoders.bert_family import bert
from unmask.zoo.preset import Paper, Published
from unmask.zoo.rope_parameters import CONFIG_KEYS as ROTARY
from unmask.zoo.rope_parameters import (
    GLOBAL,
    LOCAL,
    parameters_from_rotary,
    require_full_rotary,
    rope_parameters_by_layer_type,
    rotary_from_parameters,
    with_rope_scaling,
)

PAPER = Paper(
    title="Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder for Fast, Memory "
    "Efficient, and Long Context Finetuning and Inference",
    authors="Warner, Chaffin, Clavié, Weller, Hallström, Taghadouini, Gallagher, Biswas, Ladhak, "
    "Aarsen, Cooper, Adams, Howard, Poli",
    year=2024,
    arxiv="2412.13663",
)


def layerwise_rotary(
    length: int, global_theta: float = 160_000.0, local_theta: float = 10_000.0
) -> LayerwiseRotary:
    """Return the rotary schemes of a global layer and of two local ones.

    Section 2.1.2, "Alternating Attention".
    """
    return LayerwiseRotary(
        (Rotary(global_theta, length), Rotary(local_theta, length), Rotary(local_theta, length))
    )


BASE = Architecture(
    vocab_size=50_368,  # table 4
    d_model=768,  # table 4
    n_layers=22,
    n_heads=12,
    d_ff=1152,
    position=layerwise_rotary(8192),  # section 2.1.1, and 2.2.2: 8,192 tokens
    attention_window=(None, 64, 64),  # section 2.1.2: 128 tokens, every third layer global
    norm=LayerNorm(eps=1e-5, bias=False),  # table 4; section 2.1.1
    norm_placement=PRE_NORM,  # section 2.1.1
    embedding_norm=True,
    final_norm=True,
    activation="gelu",
    gated_feed_forward=True,  # section 2.1.1
    biases=NO_BIASES,  # section 2.1.1
    dropout=0.0,  # table 3
    attention_dropout=0.0,  # table 3
    initializer=NormalInit(0.02, truncated=True, n_residual_branches=44),  # table 3: as in Megatron
)
HEADS = {"language": LanguageModeling(term="masked", transform="gelu", bias=True)}
CLASSIFICATION_HEAD = SequenceClassification(
    activation="gelu", norm=True, dropout=0.0
)  # released code
EXTRA_HEADS: Mapping[str, HeadSpec] = {  # released code: the dense layer of all heads
    "token_label": TokenClassification(transform=PredictionHeadTransform(), dropout=0.0),
    "spans": QuestionAnswering(transform=PredictionHeadTransform()),
}


def remove_first_attention_norm(model: Model) -> None:
    """Remove the norm before the first attention, which follows the embedding norm."""
    first = model.get_submodule("backbone.layers.0")
    assert isinstance(first, Block)
    first.attention_norm.into = nn.Identity()


WEIGHT_NAMES = WeightNames(
    """
    backbone.tokens                           model.embeddings.tok_embeddings
    backbone.embed_norm                       model.embeddings.norm
    backbone.layers.*.attention_norm.into     model.layers.*.attn_norm
    backbone.layers.*.attention.q + backbone.layers.*.attention.k + backbone.layers.*.attention.v model.layers.*.attn.Wqkv
    backbone.layers.*.attention.o             model.layers.*.attn.Wo
    backbone.layers.*.feed_forward_norm.into  model.layers.*.mlp_norm
    backbone.layers.*.feed_forward.gate + backbone.layers.*.feed_forward.up model.layers.*.mlp.Wi
    backbone.layers.*.feed_forward.down       model.layers.*.mlp.Wo
    backbone.final_norm                       model.final_norm
    heads.language.dense                      head.dense
    heads.language.norm                       head.norm
    heads.language.bias                       decoder.bias
    heads.language.out                        decoder
    backbone.tokens                           decoder                 tied
    heads.label.dense                         head.dense
    heads.label.norm                          head.norm
    heads.label.out                           classifier
    heads.choice.dense                        head.dense
    heads.choice.norm                         head.norm
    heads.choice.out                          classifier
    heads.token_label.map.dense               head.dense
    heads.token_label.map.norm                head.norm
    heads.token_label.out                     classifier
    heads.spans.map.dense                     head.dense
    heads.spans.map.norm                      head.norm
    heads.spans.out                           classifier
    """,  # noqa: E501 - a line is a rule
    prefix="model.",
)

_READ_CONFIG, _WRITE_CONFIG = config_functions(
    {
        "vocab_size": "vocab_size",
        "d_model": "hidden_size",
        "n_layers": "num_hidden_layers",
        "n_heads": "num_attention_heads",
        "d_ff": "intermediate_size",
        "norm.eps": "norm_eps",
        "norm.bias": "norm_bias",
        "activation": "hidden_activation",
        "dropout": "mlp_dropout",
        "attention_dropout": "attention_dropout",
        "initializer.std": "initializer_range",
    },
    BASE,
    {"attention_bias": False, "mlp_bias": False, "classifier_bias": False, "decoder_bias": True},
)


def _read_config(config: Mapping[str, Any]) -> Architecture:
    a, every = _READ_CONFIG(config), config.get("global_attn_every_n_layers") or 3
    check_fixed_keys(config, {"head_dim": a.d_head})
    kinds = layer_types(config, [LOCAL if i % every else GLOBAL for i in range(a.n_layers)])
    thetas = {
        GLOBAL: config.get("global_rope_theta", 160_000.0),
        LOCAL: config.get("local_rope_theta", 10_000.0),
    }
    for kind, table in (config.get("rope_parameters") or {}).items():
        if kind not in thetas or not isinstance(table, Mapping):
            raise ValueError(f"rope_parameters has {kind!r}, only tables of {[*thetas]}")
    rope = rope_parameters_by_layer_type(with_rope_scaling(config, (GLOBAL, LOCAL)), thetas)
    length = require_key(config, "max_position_embeddings")
    window = config.get("local_attention", 128) // 2
    return replace(
        a,
        position=LayerwiseRotary(
            tuple(rotary_from_parameters(rope[kind], length) for kind in kinds)
        ),
        attention_window=tuple(window if kind == LOCAL else None for kind in kinds),
        initializer=NormalInit(
            a.initializer.std,  # type: ignore[union-attr]
            truncated=True,
            n_residual_branches=2 * a.n_layers,
        ),
    )


def layer_types(config: Mapping[str, Any], default: Sequence[str]) -> Sequence[str]:
    """Return the shortest prefix of `layer_types` that gives all when repeated.

    Args:
        config: the configuration.
        default: the default kinds of all layers.

    Raises:
        ValueError: a kind is unknown, or the number of layers is wrong.
    """
    declared = config.get("layer_types")
    kinds = default if declared is None else declared
    if len(kinds) != len(default):
        raise ValueError(
            f"layer_types has {len(kinds)} layers, but num_hidden_layers = {len(default)}"
        )
    if unknown := set(kinds) - {GLOBAL, LOCAL}:
        raise ValueError(f"layer_types has {sorted(unknown)}, only {GLOBAL!r} and {LOCAL!r}")
    n = len(kinds)
    return next(
        kinds[:k] for k in range(1, n + 1) if all(kinds[i] == kinds[i % k] for i in range(n))
    )


def _write_config(a: Architecture) -> dict[str, Any]:
    position, window = a.position, a.attention_window or (None,)
    if not isinstance(position, LayerwiseRotary) or len(position.schemes) != len(window):
        raise ValueError(
            "ModernBERT's format has a Cycle of Rotary positions, one for each window, "
            f"got {position}"
        )
    kinds = [GLOBAL if w is None else LOCAL for w in window]
    rope = dict(zip(kinds, position.schemes, strict=True))
    if sorted({w for w in window if w is not None})[1:] or any(
        rope[kind] != part for kind, part in zip(kinds, position.schemes, strict=True)
    ):
        raise ValueError("ModernBERT's format has one window and two rotary schemes")
    near = next((w for w in window if w is not None), BASE.attention_window[1])
    usual = {GLOBAL: Rotary(160_000.0), LOCAL: Rotary(10_000.0)}
    unknown = ("pad", "bos", "eos", "cls", "sep")  # defaults are ids of the published vocabulary
    return (
        _WRITE_CONFIG(a)
        | {f"{role}_token_id": None for role in unknown}
        | {
            "embedding_dropout": a.dropout,
            "max_position_embeddings": position.max_positions,
            "local_attention": 2 * (near or 0),
            "layer_types": [kinds[i % len(kinds)] for i in range(a.n_layers)],
            "rope_parameters": {
                kind: parameters_from_rotary(require_full_rotary(part))
                for kind, part in (usual | rope).items()
            },
        }
    )


CONFIG_KEYS = ConfigKeys(
    """
    vocab_size                  used      size
    hidden_size                 used      size
    num_hidden_layers           used      layers
    num_attention_heads         used      size@hidden_size
    head_dim                    used      size       -
    intermediate_size           used      size       1152
    hidden_activation           used      word       gelu
    max_position_embeddings     used      size       8192
    initializer_range           used      number     0.02
    initializer_cutoff_factor   harmless  number
    norm_eps                    used      positive   1e-5
    norm_bias                   used      flag       false
    cls_token_id                harmless
    sep_token_id                harmless
    attention_bias              fixed     false
    attention_dropout           used      share      0.0
    layer_types                 used      words?     null
    global_attn_every_n_layers  used      size       -
    global_rope_theta           used      positive   -
    local_rope_theta            used      positive   -
    local_attention             used      size       128
    embedding_dropout           harmless  share
    mlp_bias                    fixed     false
    mlp_dropout                 used      share      0.0
    decoder_bias                fixed     true
    classifier_pooling          used      cls|mean   cls
    classifier_dropout          harmless  share
    classifier_bias             fixed     false
    classifier_activation       used      word       gelu
    deterministic_flash_attn    harmless
    reference_compile           harmless
    sparse_prediction           harmless
    sparse_pred_ignore_index    harmless
    tie_word_embeddings         used      flag       true
    """,
    COMMON_KEYS,
    ROTARY,
)


def _head_activation(config: Mapping[str, Any]) -> str:
    key = "classifier_activation"
    return read_activation(config.get(key, "gelu"), key)


CONFIG_MAPPING = ConfigMapping(
    model_type="modernbert",
    config_keys=CONFIG_KEYS,
    to_architecture=_read_config,
    from_architecture=_write_config,
    class_names={
        ("language",): "ModernBertForMaskedLM",
        ("label",): "ModernBertForSequenceClassification",
        ("choice",): "ModernBertForMultipleChoice",
        ("token_label",): "ModernBertForTokenClassification",
        ("spans",): "ModernBertForQuestionAnswering",
        (): "ModernBertModel",
    },
    read_language_head=lambda theirs: {"transform": _head_activation(theirs)},
    read_classification_head=lambda theirs: {"activation": _head_activation(theirs)},
    pooling_key=("classifier_pooling", {"cls": "first", "mean": "mean"}),
)


def _training(*, warmup: float, rate: float) -> dict[str, Any]:
    """Return table 3's recipe: shares of 1.7T tokens; decoupled weight decay (A.4)."""
    return {
        "schedule": {"kind": "WSD", "warmup": warmup, "decay": 0.03},
        "optimizer": {
            "kind": "AdamW", "betas": [0.9, 0.98], "eps": 1e-6, "weight_decay": 1e-5 / rate,
        },
    }  # fmt: skip


MODERNBERT_BASE = Published(
    name="modernbert-base",
    family="modernbert",
    paper=PAPER,
    architecture=BASE,
    heads=HEADS,
    extra_heads=EXTRA_HEADS,
    classification_head=CLASSIFICATION_HEAD,
    objective=MASKED_30,
    tokenizer=TokenizerSpec(ByteBPE(50_368, nfc_normalization=True), FRAME),  # table 4
    sequence_length=1024,  # section 2.2.2: 8,192 at the end
    batch_tokens=4608 * 1024,  # table 3
    learning_rate=8e-4,  # table 3
    training_options=_training(warmup=0.002, rate=8e-4),
    n_parameters=149_655_232,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    post_build=remove_first_attention_norm,
    hub_id="answerdotai/ModernBERT-base",
    note="The paper's optimizer is StableAdamW, and attention outputs have a dropout of 0.1, "
    "which is not implemented.",
)
MODERNBERT_LARGE = replace(
    MODERNBERT_BASE,
    name="modernbert-large",
    architecture=replace(
        BASE, d_model=1024, n_layers=28, n_heads=16, d_ff=2624,
        initializer=NormalInit(0.02, truncated=True, n_residual_branches=56),
    ),
    batch_tokens=4928 * 1024,  # table 3
    learning_rate=5e-4,  # table 3: 5e-5 after 900B tokens
    training_options=_training(warmup=0.0012, rate=5e-4),
    n_parameters=395_881_664,
    hub_id="answerdotai/ModernBERT-large",
)  # fmt: skip
MODERNBERT_MINI = replace(
    MODERNBERT_BASE,
    name="modernbert-mini",
    architecture=replace(
        BASE, vocab_size=8_192, d_model=256, n_layers=4, n_heads=4, d_ff=384,
        position=layerwise_rotary(1024), attention_window=(None, 16, 16),
        initializer=NormalInit(0.05, truncated=True, n_residual_branches=8),
    ),
    tokenizer=TokenizerSpec(ByteBPE(8_192, nfc_normalization=True), FRAME),
    sequence_length=128,
    batch_tokens=4_096,
    learning_rate=3e-3,
    training_options=bert.MINI_TRAINING,
    n_parameters=4_401_664,
    hub_id=None,
    note="Not in the paper: for two CPU cores, with a window of 32 tokens.",
)  # fmt: skip

PRESETS = (MODERNBERT_MINI, MODERNBERT_BASE, MODERNBERT_LARGE)
