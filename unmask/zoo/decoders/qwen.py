"""Qwen2 and Qwen3: Yang et al. 2024, arXiv:2407.10671, and 2025, arXiv:2505.09388.

"Qwen2 Technical Report", "Qwen3 Technical Report".
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.model.architecture import NO_BIASES, BiasLocation
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping
from unmask.model.layers.feed_forward import RMSNorm
from unmask.model.positions.rotary import Rotary
from unmask.model.variants import AttentionVariant
from unmask.tokenizers.spec import QWEN as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import ByteBPE
from unmask.zoo import rope_parameters
from unmask.zoo.decoders import llama
from unmask.zoo.encoders.modernbert import layer_types
from unmask.zoo.preset import Paper

QWEN_2_PAPER = Paper(
    title="Qwen2 Technical Report",
    authors="Yang, Yang, Hui, et al.",
    year=2024,
    arxiv="2407.10671",
)
QWEN_3_PAPER = Paper(
    title="Qwen3 Technical Report", authors="Yang, Li, Yang, et al.", year=2025, arxiv="2505.09388"
)
QUERY_KEY_VALUE_BIAS: frozenset[BiasLocation] = frozenset({"read"})


_KEYS = ConfigKeys(
    """
    intermediate_size         used      size       22016
    max_position_embeddings   used      size       32768
    num_key_value_heads       used      size?      32
    use_sliding_window        fixed     false
    sliding_window            harmless  size?
    max_window_layers         harmless  count
    layer_types               used      words?     null
    """,
    llama.RELATED_CONFIG_KEYS,
)
KEYS_2 = ConfigKeys("attention_bias harmless", _KEYS)
KEYS_3 = ConfigKeys("head_dim used size 128", _KEYS)


def _check_no_windows(config: Mapping[str, Any]) -> None:
    """Reject layers with windows, which no published model has."""
    usual = [rope_parameters.GLOBAL] * config["num_hidden_layers"]
    if set(layer_types(config, usual)) != {rope_parameters.GLOBAL}:
        raise ValueError(
            f"layer_types has {rope_parameters.LOCAL!r}, only {rope_parameters.GLOBAL!r}"
        )


def _read_2(config: Mapping[str, Any]) -> Architecture:
    _check_no_windows(config)
    return replace(llama.read_config(config, QWEN_2_BASE), biases=QUERY_KEY_VALUE_BIAS)


def _write_2(a: Architecture) -> dict[str, Any]:
    if a.biases != QUERY_KEY_VALUE_BIAS:
        raise ValueError(
            f"Qwen2's format has biases of queries, keys and values, got {sorted(a.biases)}"
        )
    said = llama.write_config(a)
    del said["attention_bias"]
    return said | {"use_sliding_window": False}


def _read_3(config: Mapping[str, Any]) -> Architecture:
    _check_no_windows(config)
    return llama.read_config(config, QWEN_3_BASE)


def _write_3(a: Architecture) -> dict[str, Any]:
    return llama.write_config(a) | {"use_sliding_window": False}


QWEN_2_BASE = replace(
    llama.BASE,
    vocab_size=151_936,  # released code: table 1's 151,646, rounded up
    d_model=896,  # table 1
    n_layers=24,
    n_heads=14,
    n_kv_heads=2,
    d_ff=4864,
    biases=QUERY_KEY_VALUE_BIAS,  # section 2.2.1
    position=Rotary(1_000_000.0, 131_072),  # section 3.2; length from released code
    norm=RMSNorm(eps=1e-6),  # released code
)
QWEN_3_BASE = replace(
    QWEN_2_BASE,
    d_model=1024,
    n_layers=28,  # table 1
    n_heads=16,
    n_kv_heads=8,
    head_dim=128,
    d_ff=3072,  # released code
    biases=NO_BIASES,  # section 2
    attention=AttentionVariant(query_key_norm="head"),  # section 2
    position=Rotary(1_000_000.0, 32_768),  # section 3.2; table 1
)

QWEN_2_05B = llama.with_size(
    llama.LLAMA_7B,
    "qwen2-0.5b",
    494_032_768,
    family="qwen2",
    paper=QWEN_2_PAPER,
    architecture=QWEN_2_BASE,
    heads=llama.TIED_HEADS,
    tokenizer=TokenizerSpec(
        ByteBPE(151_936, pre_tokenization="qwen2", nfc_normalization=True), FRAME
    ),
    sequence_length=4096,  # section 3.2; 32,768 at the end
    config_mapping=ConfigMapping(
        model_type="qwen2",
        config_keys=KEYS_2,
        to_architecture=_read_2,
        from_architecture=_write_2,
        class_names=llama.class_names_with_question_answering("Qwen2"),
        aliased_classes=frozenset({f"Qwen2{llama.ALIASED_CLASSES}"}),
    ),
    hub_id="Qwen/Qwen2-0.5B",
    note="The report gives no rate, batch or schedule of pretraining: they are those of Llama 7B.",
)
QWEN_2_15B = llama.with_size(
    QWEN_2_05B, "qwen2-1.5b", 1_543_714_304,
    d_model=1536, n_layers=28, n_heads=12, d_ff=8960, hub_id="Qwen/Qwen2-1.5B",
)  # fmt: skip
QWEN_2_7B = llama.with_size(
    QWEN_2_05B, "qwen2-7b", 7_615_616_512,
    vocab_size=152_064, d_model=3584, n_layers=28, n_heads=28, n_kv_heads=4, d_ff=18_944,
    heads=llama.HEADS, hub_id="Qwen/Qwen2-7B",
)  # fmt: skip
QWEN_2_72B = llama.with_size(
    QWEN_2_7B, "qwen2-72b", 72_706_203_648,
    d_model=8192, n_layers=80, n_heads=64, n_kv_heads=8, d_ff=29_568,
    norm=RMSNorm(eps=1e-5),  # released code
    hub_id="Qwen/Qwen2-72B",
)  # fmt: skip
QWEN_2_MINI = llama.mini_preset(QWEN_2_05B, "qwen2-mini", 5_050_624, n_kv_heads=2, d_ff=704)

QWEN_3_06B = llama.with_size(
    QWEN_2_05B, "qwen3-0.6b", 596_049_920,
    family="qwen3",
    paper=QWEN_3_PAPER,
    architecture=QWEN_3_BASE,
    config_mapping=ConfigMapping(
        model_type="qwen3", config_keys=KEYS_3, to_architecture=_read_3, from_architecture=_write_3,
        class_names=llama.class_names_with_question_answering("Qwen3"),
        aliased_classes=frozenset({f"Qwen3{llama.ALIASED_CLASSES}"}),
    ),
    hub_id="Qwen/Qwen3-0.6B-Base",
)  # fmt: skip
QWEN_3_17B = llama.with_size(
    QWEN_3_06B, "qwen3-1.7b", 1_720_574_976,
    d_model=2048, head_dim=None, d_ff=6144, hub_id="Qwen/Qwen3-1.7B-Base",
)  # fmt: skip
QWEN_3_4B = llama.with_size(
    QWEN_3_06B, "qwen3-4b", 4_022_468_096,
    d_model=2560, n_layers=36, n_heads=32, d_ff=9728, hub_id="Qwen/Qwen3-4B-Base",
)  # fmt: skip
QWEN_3_8B = llama.with_size(
    QWEN_3_4B, "qwen3-8b", 8_190_735_360,
    d_model=4096, head_dim=None, d_ff=12_288, heads=llama.HEADS, hub_id="Qwen/Qwen3-8B-Base",
)  # fmt: skip
QWEN_3_14B = llama.with_size(
    QWEN_3_8B, "qwen3-14b", 14_768_307_200,
    d_model=5120, n_layers=40, n_heads=40, d_ff=17_408, hub_id="Qwen/Qwen3-14B-Base",
)  # fmt: skip
QWEN_3_32B = llama.with_size(
    QWEN_3_8B, "qwen3-32b", 32_762_123_264,
    d_model=5120, n_layers=64, n_heads=64, head_dim=128, d_ff=25_600, hub_id="Qwen/Qwen3-32B",
)  # fmt: skip
QWEN_3_MINI = llama.mini_preset(
    QWEN_3_06B, "qwen3-mini", 5_049_088, n_kv_heads=2, d_ff=704, head_dim=None
)

PRESETS = (
    QWEN_2_MINI, QWEN_2_05B, QWEN_2_15B, QWEN_2_7B, QWEN_2_72B,
    QWEN_3_MINI, QWEN_3_06B, QWEN_3_17B, QWEN_3_4B, QWEN_3_8B, QWEN_3_14B, QWEN_3_32B,
)  # fmt: skip
