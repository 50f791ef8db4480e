"""Gemma 1, 2 and 3 (text): Gemma Team 2024, arXiv:2403.08295 and 2408.00118; 2025, 2503.19786.

"Gemma: Open Models Based on Gemini Research and Technology", "Gemma 2: Improving Open Language
Models at a Practical Size", "Gemma 3 Technical Report".
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.architecture import SANDWICH_NORM
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping, read_activation, require_key
from unmask.model.layers.feed_forward import RMSNorm
from unmask.model.positions.rotary import LayerwiseRotary, LinearScaling, Rotary
from unmask.model.positions.scheme import PositionScheme
from unmask.model.variants import AttentionVariant
from unmask.tokenizers.spec import GEMMA as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import SentencePieceBPE
from unmask.zoo import rope_parameters
from unmask.zoo.decoders import llama
from unmask.zoo.encoders.modernbert import layer_types
from unmask.zoo.preset import Paper
from unmask.zoo.rope_parameters import GLOBAL, LOCAL

GEMMA_PAPER = Paper(
    title="Gemma: Open Models Based on Gemini Research and Technology",
    authors="Gemma Team",
    year=2024,
    arxiv="2403.08295",
)
GEMMA_2_PAPER = Paper(
    title="Gemma 2: Improving Open Language Models at a Practical Size",
    authors="Gemma Team",
    year=2024,
    arxiv="2408.00118",
)
GEMMA_3_PAPER = Paper(
    title="Gemma 3 Technical Report", authors="Gemma Team", year=2025, arxiv="2503.19786"
)

GEMMA_BASE = replace(
    llama.BASE,
    vocab_size=256_000,  # released code; table 1 says 256,128
    d_model=2048,  # table 1
    n_layers=18,
    n_heads=8,
    n_kv_heads=1,  # section 2: one in the 2B model
    d_ff=16_384,  # table 1 counts both halves of it, 32,768
    position=Rotary(10_000.0, 8192),  # table 1
    norm=RMSNorm(eps=1e-6, offset=1.0),  # section 2; the offset from released code
    activation="gelu_tanh",  # section 2: GeGLU
    scale_embedding=True,  # released code
)
GEMMA_2_BASE = replace(
    GEMMA_BASE,
    d_model=2304,  # table 1
    n_layers=26,
    n_heads=8,
    n_kv_heads=4,
    head_dim=256,
    d_ff=9216,  # table 1 counts both halves of it, 18,432
    norm_placement=SANDWICH_NORM,  # section 2
    attention_window=(
        4095,
        None,
    ),  # section 2: 4,096 tokens, including the token itself (released code)
    attention=AttentionVariant(logit_softcapping=50.0),  # section 2
)
LOCAL_ROTARY, GLOBAL_ROTARY = (
    Rotary(10_000.0, 131_072),
    Rotary(1_000_000.0, 131_072, scaling=LinearScaling(8.0)),
)
GEMMA_3_BASE = replace(
    GEMMA_2_BASE,
    vocab_size=262_208,  # released code: of the multimodal models
    d_model=2560,
    n_layers=34,
    d_ff=10_240,
    attention=AttentionVariant(query_key_norm="head"),  # section 2: replaces the cap
    attention_window=(1023,) * 5
    + (None,),  # section 2: five local, then one global layer; released code
    position=LayerwiseRotary((LOCAL_ROTARY,) * 5 + (GLOBAL_ROTARY,)),  # section 2, "Long context"
)


def _read_1(config: Mapping[str, Any]) -> Architecture:
    name = config.get("hidden_act")
    if name == "gelu":  # means the tanh form there (`GemmaConfig`)
        name = "gelu_pytorch_tanh"
    config = {**config, "hidden_act": name}
    return llama.read_without_positions(config, GEMMA_BASE, llama.read_rotary(config))


def _read_later(
    config: Mapping[str, Any], base: Architecture, places: PositionScheme
) -> Architecture:
    """Read the keys shared by the second and third version."""
    name = config.get("hidden_activation", "gelu_pytorch_tanh")
    read_activation(name, "hidden_activation")
    a = llama.read_without_positions({**config, "hidden_act": name}, base, places)
    of = float(config.get("query_pre_attn_scalar") or 256)
    cap = config.get("attn_logit_softcapping")
    scale = None if of == a.d_head else of**-0.5
    cap = None if cap is None else float(cap)
    return replace(a, attention=replace(a.attention, scale=scale, logit_softcapping=cap))


def _layer_types(config: Mapping[str, Any], period: int) -> Sequence[str]:
    """Read the layer types, as the shortest list that gives all when repeated.

    By default every `period`-th layer is global.
    """
    n = require_key(config, "num_hidden_layers")
    usual = [LOCAL if (i + 1) % period else GLOBAL for i in range(n)]
    return layer_types(config, usual)


def _attention_windows(config: Mapping[str, Any], kinds: Sequence[str]) -> tuple[int | None, ...]:
    window = config.get("sliding_window")
    if window is None and LOCAL in kinds:
        raise ValueError(f"sliding_window is null, but layer_types has {LOCAL!r}")
    # there the window includes the token itself
    return tuple((window or 0) - 1 if kind == LOCAL else None for kind in kinds)


def _read_2(config: Mapping[str, Any]) -> Architecture:
    a = _read_later(config, GEMMA_2_BASE, llama.read_rotary(config))
    return replace(a, attention_window=_attention_windows(config, _layer_types(config, 2)))


def _read_3(config: Mapping[str, Any]) -> Architecture:
    kinds = _layer_types(config, config.get("sliding_window_pattern") or 6)
    length = config.get("max_position_embeddings") or 131_072
    thetas = {
        GLOBAL: config.get("rope_theta", 1_000_000.0),
        LOCAL: config.get("rope_local_base_freq", 10_000.0),
    }
    tables = rope_parameters.rope_parameters_by_layer_type(
        rope_parameters.with_rope_scaling(config, (GLOBAL,)), thetas
    )
    places = LayerwiseRotary(
        tuple(rope_parameters.rotary_from_parameters(tables[kind], length) for kind in kinds)
    )
    return replace(
        _read_later(config, GEMMA_3_BASE, places),
        attention_window=_attention_windows(config, kinds),
    )


def _write_1(a: Architecture) -> dict[str, Any]:
    said = llama.write_config(a)
    if a.activation == "gelu_tanh":  # which has two names there
        said["hidden_act"] = "gelu_pytorch_tanh"
    return said


def _write_2(a: Architecture) -> dict[str, Any]:
    said = _write_1(a)
    windows = a.attention_window or (None,)
    kinds = [LOCAL if w is not None else GLOBAL for w in windows]
    near = {w for w in windows if w is not None}
    if len(near) > 1:
        raise ValueError(f"Gemma's format has one window, got {a.attention_window}")
    return {k: x for k, x in said.items() if k != "hidden_act"} | {
        "hidden_activation": said["hidden_act"],
        "query_pre_attn_scalar": a.d_head
        if a.attention.scale is None
        else round(a.attention.scale**-2),
        "attn_logit_softcapping": a.attention.logit_softcapping,
        "sliding_window": 1 + next(iter(near), 4095),
        "layer_types": [kinds[i % len(kinds)] for i in range(a.n_layers)],
    }


def _write_3(a: Architecture) -> dict[str, Any]:
    position, windows = a.position, a.attention_window or (None,)
    if not isinstance(position, LayerwiseRotary) or len(position.schemes) != len(windows):
        raise ValueError(
            f"Gemma 3's format has a Cycle of Rotary positions, one for each window, got {position}"
        )
    if a.attention.logit_softcapping is not None:
        raise ValueError(
            "Gemma 3's classes do not cap scores, got logit_softcapping = "
            f"{a.attention.logit_softcapping}"
        )
    kinds = [GLOBAL if w is None else LOCAL for w in windows]
    tables = {LOCAL: LOCAL_ROTARY, GLOBAL: replace(GLOBAL_ROTARY, scaling=None)}
    tables |= dict(zip(kinds, position.schemes, strict=True))
    if any(tables[kind] != part for kind, part in zip(kinds, position.schemes, strict=True)):
        raise ValueError("Gemma 3's format has only one local and one global rotary scheme")
    return _write_2(replace(a, position=position.schemes[0])) | {
        "max_position_embeddings": position.max_positions,
        "rope_parameters": {
            kind: rope_parameters.parameters_from_rotary(rope_parameters.require_full_rotary(part))
            for kind, part in tables.items()
        },
    }


def _read_softcapping(config: Mapping[str, Any]) -> dict[str, Any]:
    cap = config.get("final_logit_softcapping")
    return {"logit_softcapping": None if cap is None else float(cap)}


def _write_softcapping(spec: LanguageModeling) -> dict[str, Any]:
    return {"final_logit_softcapping": spec.logit_softcapping}


CONFIG_KEYS = ConfigKeys(
    """
    intermediate_size           used      size       24576
    max_position_embeddings     used      size       8192
    num_key_value_heads         used      size       16
    head_dim                    used      size       256
    hidden_act                  used      word       gelu_pytorch_tanh
    tie_word_embeddings         used      flag       true
    """,
    llama.RELATED_CONFIG_KEYS,
)
LATER_KEYS = ConfigKeys(
    """
    intermediate_size           used      size       9216
    num_attention_heads         used      size@hidden_size
    num_key_value_heads         used      size       4
    hidden_act                  harmless
    hidden_activation           used      word       gelu_pytorch_tanh
    attention_dropout           used      share?     0.0
    query_pre_attn_scalar       used      positive   256
    sliding_window              used      size?      4096
    layer_types                 used      words?     null
    final_logit_softcapping     used      positive?  30.0
    attn_logit_softcapping      used      positive?  50.0
    """,
    CONFIG_KEYS,
)
KEYS_3 = ConfigKeys(
    """
    max_position_embeddings     used      size       131072
    final_logit_softcapping     used      positive?  null
    attn_logit_softcapping      fixed     null
    sliding_window_pattern      used      size       -
    rope_local_base_freq        used      positive   -
    """,
    LATER_KEYS,
)

GEMMA_2B = llama.with_size(
    llama.LLAMA_7B,
    "gemma-2b",
    2_506_172_416,
    family="gemma",
    paper=GEMMA_PAPER,
    architecture=GEMMA_BASE,
    heads=llama.TIED_HEADS,  # section 2
    tokenizer=TokenizerSpec(SentencePieceBPE(256_000, add_dummy_prefix=False), FRAME),
    sequence_length=8192,  # section 2
    config_mapping=ConfigMapping(
        model_type="gemma",
        config_keys=CONFIG_KEYS,
        to_architecture=_read_1,
        from_architecture=_write_1,
        class_names=llama.class_names("Gemma"),
    ),
    hub_id="google/gemma-2b",
    note="The report gives no rate, batch or schedule of pretraining: they are those of Llama 7B.",
)
GEMMA_7B = llama.with_size(
    GEMMA_2B, "gemma-7b", 8_537_680_896,
    d_model=3072, n_layers=28, n_heads=16, n_kv_heads=None, head_dim=256,
    d_ff=24_576, hub_id="google/gemma-7b",
)  # fmt: skip
GEMMA_MINI = llama.mini_preset(
    GEMMA_2B, "gemma-mini", 4_917_504, n_kv_heads=1, head_dim=None, d_ff=704,
)  # fmt: skip

GEMMA_2_2B = llama.with_size(
    GEMMA_2B,
    "gemma-2-2b",
    2_614_341_888,
    family="gemma2",
    paper=GEMMA_2_PAPER,
    architecture=GEMMA_2_BASE,
    heads={"language": LanguageModeling(term="next_token", logit_softcapping=30.0)},  # section 2
    config_mapping=ConfigMapping(
        model_type="gemma2",
        config_keys=LATER_KEYS,
        to_architecture=_read_2,
        from_architecture=_write_2,
        class_names=llama.class_names("Gemma2"),
        read_language_head=lambda theirs: _read_softcapping(
            {"final_logit_softcapping": 30.0} | dict(theirs)
        ),
        write_language_head=_write_softcapping,
    ),
    hub_id="google/gemma-2-2b",
    note=f"{GEMMA_2B.note} This size was distilled from a larger model (section 3).",
)
GEMMA_2_9B = llama.with_size(
    GEMMA_2_2B, "gemma-2-9b", 9_241_705_984,
    d_model=3584, n_layers=42, n_heads=16, n_kv_heads=8, d_ff=14_336, hub_id="google/gemma-2-9b",
)  # fmt: skip
GEMMA_2_27B = llama.with_size(
    GEMMA_2_2B, "gemma-2-27b", 27_227_128_320,
    d_model=4608, n_layers=46, n_heads=32, n_kv_heads=16, head_dim=128, d_ff=36_864,
    # released code: d_model / n_heads
    attention=AttentionVariant(scale=144**-0.5, logit_softcapping=50.0),
    hub_id="google/gemma-2-27b",
    note=GEMMA_2B.note,
)  # fmt: skip
GEMMA_2_MINI = llama.mini_preset(
    GEMMA_2_2B, "gemma-2-mini", 5_050_624,
    n_kv_heads=2, head_dim=None, d_ff=704, attention_window=(63, None),
    note="Not in the paper: for two CPU cores, with a window of 64 tokens in every other layer.",
)  # fmt: skip

_NAMES_3 = ("Gemma3ForCausalLM", "Gemma3TextForSequenceClassification", "Gemma3TextModel")
GEMMA_3_4B = llama.with_size(
    GEMMA_2B,
    "gemma-3-4b",
    3_880_263_168,
    family="gemma3",
    paper=GEMMA_3_PAPER,
    architecture=GEMMA_3_BASE,
    tokenizer=TokenizerSpec(
        SentencePieceBPE(262_144, add_dummy_prefix=False), FRAME
    ),  # section 2.2
    config_mapping=ConfigMapping(
        model_type="gemma3_text",
        config_keys=KEYS_3,
        to_architecture=_read_3,
        from_architecture=_write_3,
        class_names=dict(zip((("language",), ("label",), ()), _NAMES_3, strict=True)),
        read_language_head=_read_softcapping,
        write_language_head=_write_softcapping,
    ),
    note="The text part, distilled from a larger model (section 2.2). The report gives no "
    "rate, batch or schedule of pretraining: they are those of Llama 7B.",
)
GEMMA_3_1B = llama.with_size(
    GEMMA_3_4B, "gemma-3-1b", 999_885_952,
    vocab_size=262_144, d_model=1152, n_layers=26, n_heads=4, n_kv_heads=1, d_ff=6912,
    attention_window=(511,) * 5 + (None,),  # released code
    position=LayerwiseRotary((Rotary(10_000.0, 32_768),) * 5 + (Rotary(1_000_000.0, 32_768),)),
    hub_id="google/gemma-3-1b-pt",
)  # fmt: skip
GEMMA_3_12B = llama.with_size(
    GEMMA_3_4B, "gemma-3-12b", 11_766_034_176,
    d_model=3840, n_layers=48, n_heads=16, n_kv_heads=8, d_ff=15_360,
)  # fmt: skip
GEMMA_3_27B = llama.with_size(
    GEMMA_3_4B, "gemma-3-27b", 27_009_346_304,
    d_model=5376, n_layers=62, n_heads=32, n_kv_heads=16, head_dim=128, d_ff=21_504,
    # released code: d_model / n_heads
    attention=AttentionVariant(scale=168**-0.5, query_key_norm="head"),
)  # fmt: skip
GEMMA_3_MINI = llama.mini_preset(
    GEMMA_3_4B, "gemma-3-mini", 5_051_136, n_kv_heads=2, head_dim=None, d_ff=704,
    attention_window=(31, 31, 31, None),
    position=LayerwiseRotary((Rotary(10_000.0, 512),) * 3 + (Rotary(100_000.0, 512),)),
    note="Not in the paper: for two CPU cores, three layers with a window of 32 tokens, then a "
    "global one.",
)  # fmt: skip

PRESETS = (
    GEMMA_MINI, GEMMA_2B, GEMMA_7B, GEMMA_2_MINI, GEMMA_2_2B, GEMMA_2_9B, GEMMA_2_27B,
    GEMMA_3_MINI, GEMMA_3_1B, GEMMA_3_4B, GEMMA_3_12B, GEMMA_3_27B,
)  # fmt: skip
