"""Llama 1, 2 and 3: Touvron et al. 2023, arXiv:2302.13971 and arXiv:2307.09288; Meta 2024.

"LLaMA: Open and Efficient Foundation Language Models", "Llama 2: Open Foundation and Fine-Tuned
Chat Models", "The Llama 3 Herd of Models" (Grattafiori et al. 2024, arXiv:2407.21783).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.architecture import NO_BIASES, PRE_NORM, BiasLocation
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import CAUSAL_KEYS, ConfigKeys
from unmask.model.exchange.config_mapping import (
    ConfigMapping,
    read_activation,
    require_key,
    write_activation,
)
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.layers.feed_forward import RMSNorm
from unmask.model.positions.rotary import Llama3Scaling, Rotary
from unmask.model.positions.scheme import PositionScheme
from unmask.objectives.published import CAUSAL_LM as NEXT_TOKEN
from unmask.tokenizers.spec import LLAMA as FRAME
from unmask.tokenizers.spec import LLAMA_3 as FRAME_3
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import ByteBPE, SentencePieceBPE
from unmask.zoo import rope_parameters
from unmask.zoo.encoders.bert_family.bert import MINI_TRAINING
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="LLaMA: Open and Efficient Foundation Language Models",
    authors="Touvron, Lavril, Izacard, Martinet, Lachaux, Lacroix, Rozière, Goyal, Hambro, Azhar, "
    "Rodriguez, Joulin, Grave, Lample",
    year=2023,
    arxiv="2302.13971",
)
LLAMA_2_PAPER = Paper(
    title="Llama 2: Open Foundation and Fine-Tuned Chat Models",
    authors="Touvron, Martin, Stone, et al.",
    year=2023,
    arxiv="2307.09288",
)
LLAMA_3_PAPER = Paper(
    title="The Llama 3 Herd of Models",
    authors="Grattafiori, Dubey, Jauhri, et al.",
    year=2024,
    arxiv="2407.21783",
)

BASE = Architecture(
    vocab_size=32_000,  # released code
    d_model=4096,  # table 2
    n_layers=32,
    n_heads=32,
    d_ff=11_008,  # section 2.2: 2/3 of 4 d_model; to the next multiple of 256 (released code)
    position=Rotary(10_000.0, 2048),  # section 2.2
    norm=RMSNorm(eps=1e-6),  # section 2.2; epsilon from released code
    norm_placement=PRE_NORM,  # section 2.2
    final_norm=True,
    activation="silu",
    gated_feed_forward=True,  # section 2.2
    biases=NO_BIASES,  # released code
    causal=True,
    dropout=0.0,
    attention_dropout=0.0,
    initializer=NormalInit(0.02),  # not stated
)
HEADS = {"language": LanguageModeling(term="next_token", tie_embeddings=False)}
TIED_HEADS = {"language": LanguageModeling(term="next_token")}
CLASSIFICATION_HEAD = SequenceClassification(
    pooling="last", dense_layer=False, bias=False, dropout=0.0
)

WEIGHT_NAMES = WeightNames(
    """
    backbone.tokens                           model.embed_tokens
    backbone.layers.*.attention.q             model.layers.*.self_attn.q_proj
    backbone.layers.*.attention.k             model.layers.*.self_attn.k_proj
    backbone.layers.*.attention.v             model.layers.*.self_attn.v_proj
    backbone.layers.*.attention.o             model.layers.*.self_attn.o_proj
    backbone.layers.*.attention.q_norm.norm   model.layers.*.self_attn.q_norm
    backbone.layers.*.attention.k_norm.norm   model.layers.*.self_attn.k_norm
    backbone.layers.*.attention_norm.into     model.layers.*.input_layernorm
    backbone.layers.*.attention_norm.out      model.layers.*.post_attention_layernorm
    backbone.layers.*.feed_forward_norm.out   model.layers.*.post_feedforward_layernorm
    backbone.layers.*.feed_forward_norm.into  model.layers.*.pre_feedforward_layernorm beside:backbone.layers.*.attention_norm.out
    backbone.layers.*.feed_forward_norm.into  model.layers.*.post_attention_layernorm
    backbone.layers.*.feed_forward.gate       model.layers.*.mlp.gate_proj
    backbone.layers.*.feed_forward.up         model.layers.*.mlp.up_proj
    backbone.layers.*.feed_forward.down       model.layers.*.mlp.down_proj
    backbone.final_norm                       model.norm
    heads.language.out                        lm_head
    backbone.tokens                           lm_head                      tied
    heads.label.out                           score
    heads.token_label.out                     score
    heads.spans.out                           qa_outputs
    -                                         model.layers.*.self_attn.rotary_emb.inv_freq
    """,  # noqa: E501 - a line is a rule
    prefix="model.",
    alias="transformer.",  # of classes that answer questions
)
"""Also of Mistral, Qwen, Gemma and OLMo, with other norm placements."""


def read_config(config: Mapping[str, Any], base: Architecture = BASE) -> Architecture:
    """Read the common configuration of Llama and related families."""
    return read_without_positions(config, base, read_rotary(config))


def read_rotary(config: Mapping[str, Any]) -> Rotary:
    """Read the rotary scheme of all layers."""
    length = config.get("max_position_embeddings") or 2048
    return rope_parameters.rotary_from_parameters(rope_parameters.rope_parameters(config), length)


def read_without_positions(
    config: Mapping[str, Any], base: Architecture, position: PositionScheme
) -> Architecture:
    """Read the same for a family with other position keys."""
    heads = require_key(config, "num_attention_heads")
    groups = config.get("num_key_value_heads") or heads
    if heads % groups:
        raise ValueError(
            f"num_key_value_heads = {groups} must divide num_attention_heads = {heads}"
        )
    width = require_key(config, "hidden_size")
    of_head = _head_dim(config, width, heads)
    return replace(
        base,
        vocab_size=require_key(config, "vocab_size"),
        d_model=width,
        n_layers=require_key(config, "num_hidden_layers"),
        n_heads=heads,
        n_kv_heads=None if groups == heads else groups,
        head_dim=None if of_head * heads == width else of_head,
        d_ff=require_key(config, "intermediate_size"),
        position=position,
        norm=replace(base.norm, eps=float(config.get("rms_norm_eps") or base.norm.eps)),
        activation=cast(Any, read_activation(config.get("hidden_act") or "silu", "hidden_act")),
        biases=read_biases(config),
        attention_dropout=float(config.get("attention_dropout") or 0.0),
        initializer=NormalInit(float(config.get("initializer_range") or 0.02)),
    )


def _head_dim(config: Mapping[str, Any], width: int, heads: int) -> int:
    head_dim = config.get("head_dim")
    if head_dim is None and width % heads:
        raise ValueError(f"num_attention_heads = {heads} must divide hidden_size = {width}")
    of_head = width // heads if head_dim is None else head_dim
    if of_head % 2:
        raise ValueError(
            f"rotary embeddings need an even head_dim, got {of_head}: see head_dim, "
            f"hidden_size and num_attention_heads"
        )
    return of_head


def write_config(a: Architecture) -> dict[str, Any]:
    """Write the common configuration."""
    return {
        "vocab_size": a.vocab_size,
        "hidden_size": a.d_model,
        "num_hidden_layers": a.n_layers,
        "num_attention_heads": a.n_heads,
        "num_key_value_heads": a.n_key_value_heads,
        "head_dim": a.d_head,
        "intermediate_size": a.d_ff,
        "max_position_embeddings": rope_parameters.rotary_of(a).max_positions,
        "rope_parameters": rope_parameters.parameters_from_rotary(
            rope_parameters.require_full_rotary(rope_parameters.rotary_of(a))
        ),
        "rms_norm_eps": a.norm.eps,
        "hidden_act": write_activation(a.activation),
        "attention_bias": "read" in a.biases,
        "attention_dropout": a.attention_dropout,
        "initializer_range": a.initializer.std if isinstance(a.initializer, NormalInit) else 0.02,
    }


def read_biases(config: Mapping[str, Any]) -> frozenset[BiasLocation]:
    """Read which linear maps have a bias."""
    flags: dict[BiasLocation, str] = {
        "read": "attention_bias", "write": "attention_bias", "feed_forward": "mlp_bias",
    }  # fmt: skip
    return frozenset(location for location, key in flags.items() if config.get(key))


def _write_config(a: Architecture) -> dict[str, Any]:
    if ("read" in a.biases) != ("write" in a.biases):
        raise ValueError(f"Llama's format has biases in all of attention or none, got {a.biases}")
    return write_config(a) | {"mlp_bias": "feed_forward" in a.biases}


def class_names(name: str) -> dict[tuple[str, ...], str]:
    """Return the classes of transformers with the prefix `name`."""
    return {
        ("language",): f"{name}ForCausalLM",
        ("label",): f"{name}ForSequenceClassification",
        ("token_label",): f"{name}ForTokenClassification",
        (): f"{name}Model",
    }


RELATED_CONFIG_KEYS = ConfigKeys(
    """
    vocab_size                used      size
    hidden_size               used      size
    num_hidden_layers         used      layers
    num_attention_heads       used      size
    num_key_value_heads       used      size?      null
    head_dim                  used      size?      null
    hidden_act                used      word       silu
    initializer_range         used      number     0.02
    rms_norm_eps              used      positive   1e-6
    attention_bias            used      flag       false
    mlp_bias                  fixed     false
    attention_dropout         used      share      0.0
    tie_word_embeddings       used      flag       false
    classifier_dropout        harmless  share?
    hidden_dropout            harmless  share?
    use_bidirectional_attention fixed   false|null
    """,
    CAUSAL_KEYS,
    rope_parameters.CONFIG_KEYS,
)
"""Keys of Llama and related families."""
CONFIG_KEYS = ConfigKeys(
    """
    intermediate_size         used      size       11008
    max_position_embeddings   used      size       2048
    mlp_bias                  used      flag       false
    attention_dropout         used      share?     0.0
    pretraining_tp            fixed     1
    num_attention_heads       used      size@hidden_size
    """,
    RELATED_CONFIG_KEYS,
)


def class_names_with_question_answering(name: str) -> dict[tuple[str, ...], str]:
    """Return the same classes and that for question answering, which not every family has."""
    return class_names(name) | {("spans",): f"{name}ForQuestionAnswering"}


ALIASED_CLASSES = "ForQuestionAnswering"
"""Suffix of the classes with the network as `transformer`; in Mistral's it is `model`, as in all
others."""
CONFIG_MAPPING = ConfigMapping(
    model_type="llama",
    config_keys=CONFIG_KEYS,
    to_architecture=read_config,
    from_architecture=_write_config,
    class_names=class_names_with_question_answering("Llama"),
    aliased_classes=frozenset({f"Llama{ALIASED_CLASSES}"}),
)

TRAINING: Mapping[str, Any] = {  # section 2.3
    "optimizer": {"kind": "AdamW", "betas": [0.9, 0.95], "weight_decay": 0.1},
    "schedule": {"kind": "Cosine", "warmup": 2000, "final_fraction": 0.1},
    "max_grad_norm": 1.0,
}

LLAMA_7B = Published(
    name="llama-7b",
    family="llama",
    paper=PAPER,
    architecture=BASE,
    heads=HEADS,
    classification_head=CLASSIFICATION_HEAD,
    objective=NEXT_TOKEN,
    tokenizer=TokenizerSpec(SentencePieceBPE(32_000), FRAME),
    sequence_length=2048,  # released code
    batch_tokens=4_000_000,  # table 2: 4M
    learning_rate=3e-4,  # table 2
    training_options=TRAINING,
    n_parameters=6_738_415_616,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="huggyllama/llama-7b",
)


def with_size(preset: Published, name: str, parameters: int, **changes: Any) -> Published:
    """Return another size.

    Changes of fields of `Published` are the preset's, others the architecture's.
    """
    own = {k: changes.pop(k) for k in [*changes] if k in Published.__dataclass_fields__}
    a = replace(cast(Architecture, own.get("architecture", preset.architecture)), **changes)
    own = {"hub_id": None} | own | {"architecture": a}
    return replace(preset, **own, name=name, n_parameters=parameters)


LLAMA_13B = with_size(
    LLAMA_7B, "llama-13b", 13_015_864_320,
    d_model=5120, n_layers=40, n_heads=40, d_ff=13_824, hub_id="huggyllama/llama-13b",
)  # fmt: skip
LLAMA_33B = with_size(
    LLAMA_7B,
    "llama-33b",
    32_528_943_616,
    d_model=6656,
    n_layers=60,
    n_heads=52,
    d_ff=17_920,
    learning_rate=1.5e-4,
    hub_id="huggyllama/llama-30b",
)
LLAMA_65B = with_size(
    LLAMA_7B,
    "llama-65b",
    65_285_660_672,
    d_model=8192,
    n_layers=80,
    n_heads=64,
    d_ff=22_016,
    learning_rate=1.5e-4,
    norm=RMSNorm(eps=1e-5),
    hub_id="huggyllama/llama-65b",
)

LLAMA_2_OPTIONS = {  # Llama 2, table 1: 4k context; the norms' epsilon from released code
    "position": Rotary(10_000.0, 4096),
    "norm": RMSNorm(eps=1e-5),
    "sequence_length": 4096,
    "training_options": {
        **TRAINING,
        "optimizer": {**TRAINING["optimizer"], "eps": 1e-5},
    },  # section 2.2
    "paper": LLAMA_2_PAPER,
}
LLAMA_2_7B = with_size(
    LLAMA_7B, "llama-2-7b", 6_738_415_616, **LLAMA_2_OPTIONS, hub_id="meta-llama/Llama-2-7b-hf"
)
LLAMA_2_13B = with_size(
    LLAMA_13B, "llama-2-13b", 13_015_864_320, **LLAMA_2_OPTIONS, hub_id="meta-llama/Llama-2-13b-hf"
)
LLAMA_2_70B = with_size(
    LLAMA_65B, "llama-2-70b", 68_976_648_192, **LLAMA_2_OPTIONS,
    d_ff=28_672, n_kv_heads=8, hub_id="meta-llama/Llama-2-70b-hf",
)  # fmt: skip

LLAMA_3_8B = with_size(
    LLAMA_2_7B, "llama-3-8b", 8_030_261_248,
    vocab_size=128_256,  # released code; table 3 says 128,000
    d_ff=14_336,  # table 3
    n_kv_heads=8,
    position=Rotary(500_000.0, 8192),
    sequence_length=8192,  # section 3.4.1
    batch_tokens=8_000_000,  # section 3.4.1
    tokenizer=TokenizerSpec(ByteBPE(128_256, pre_tokenization="llama3"), FRAME_3),
    training_options={
        **LLAMA_2_7B.training_options,  # not stated
        "schedule": {"kind": "Cosine", "warmup": 8000, "final_fraction": 0.01},  # section 3.4.1
        "steps": 1_200_000,  # section 3.4.1
    },
    paper=LLAMA_3_PAPER,
    hub_id="meta-llama/Meta-Llama-3-8B",
    note="Rate of table 3; schedule and batch of section 3.4.1, where they are the 405B model's: "
    "4M tokens in rows of 4,096 at first, 16M at last. Betas, decay and clipping are not stated: "
    "Llama 2's.",
)  # fmt: skip
LLAMA_3_70B = with_size(
    LLAMA_3_8B, "llama-3-70b", 70_553_706_496,
    d_model=8192, n_layers=80, n_heads=64, d_ff=28_672, learning_rate=1.5e-4,
    hub_id="meta-llama/Meta-Llama-3-70B",
)  # fmt: skip


def llama3_rotary(factor: float = 8.0) -> Rotary:
    """Return the rotary scheme of Llama 3.1 and 3.2 (released code)."""
    return Rotary(500_000.0, 131_072, scaling=Llama3Scaling(factor=factor))


LLAMA_3_1_8B = with_size(
    LLAMA_3_8B,
    "llama-3.1-8b",
    8_030_261_248,
    position=llama3_rotary(),
    hub_id="meta-llama/Llama-3.1-8B",
)
LLAMA_3_1_70B = with_size(
    LLAMA_3_70B,
    "llama-3.1-70b",
    70_553_706_496,
    position=llama3_rotary(),
    hub_id="meta-llama/Llama-3.1-70B",
)
LLAMA_3_1_405B = with_size(
    LLAMA_3_1_70B, "llama-3.1-405b", 405_853_388_800,
    d_model=16_384, n_layers=126, n_heads=128, d_ff=53_248, learning_rate=8e-5,
    hub_id="meta-llama/Llama-3.1-405B",
)  # fmt: skip
LLAMA_3_2_1B = with_size(
    LLAMA_3_8B,
    "llama-3.2-1b",
    1_235_814_400,
    d_model=2048,
    n_layers=16,
    n_heads=32,
    d_ff=8192,
    position=llama3_rotary(32.0),
    heads=TIED_HEADS,
    hub_id="meta-llama/Llama-3.2-1B",
    note="Pruned from the 8B model and distilled from larger ones; the recipe is Llama 3's.",
)
LLAMA_3_2_3B = with_size(
    LLAMA_3_2_1B, "llama-3.2-3b", 3_212_749_824,
    d_model=3072, n_layers=28, n_heads=24, hub_id="meta-llama/Llama-3.2-3B",
)  # fmt: skip


def mini_preset(preset: Published, name: str, parameters: int, **changes: Any) -> Published:
    """Return a size for two CPU cores, with the width and depth of BERT-mini."""
    small: dict[str, Any] = {
        "vocab_size": 8_192,
        "d_model": 256,
        "n_layers": 4,
        "n_heads": 4,
        "d_ff": 683,
        "position": Rotary(10_000.0, 512),
        "tokenizer": replace(
            preset.tokenizer,
            vocabulary=replace(preset.tokenizer.vocabulary, vocab_size=8_192),  # type: ignore[call-arg]
        ),
        "sequence_length": 256,
        "batch_tokens": 4_096,
        "learning_rate": 3e-3,
        "training_options": MINI_TRAINING,
        "note": "Not in the paper: for two CPU cores, with the width and depth of BERT-mini.",
    }
    return with_size(preset, name, parameters, **small | changes)


LLAMA_MINI = mini_preset(
    LLAMA_3_8B, "llama-mini", 5_048_576, n_kv_heads=2, heads=TIED_HEADS, d_ff=704
)

PRESETS = (
    LLAMA_MINI, LLAMA_7B, LLAMA_13B, LLAMA_33B, LLAMA_65B, LLAMA_2_7B, LLAMA_2_13B, LLAMA_2_70B,
    LLAMA_3_8B, LLAMA_3_70B, LLAMA_3_1_8B, LLAMA_3_1_70B, LLAMA_3_1_405B, LLAMA_3_2_1B,
    LLAMA_3_2_3B,
)  # fmt: skip
