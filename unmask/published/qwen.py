"""Qwen2 and Qwen3: Yang et al. 2024, arXiv:2407.10671, and 2025, arXiv:2505.09388.

"Qwen2 Technical Report", "Qwen3 Technical Report".
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.model.architecture import UNBIASED, Architecture, Biased
from unmask.model.keys import Keys
from unmask.model.names import Fields
from unmask.model.parts import RMSNorm
from unmask.model.positions import Rotary
from unmask.published import llama, rotary
from unmask.published.card import Paper
from unmask.published.modernbert import layer_types
from unmask.tokens.vocabulary import QWEN as FRAME
from unmask.tokens.vocabulary import ByteBPE, TokenizerSpec

SECOND = Paper(
    title="Qwen2 Technical Report",
    authors="Yang, Yang, Hui, et al.",
    year=2024,
    arxiv="2407.10671",
)
THIRD = Paper(
    title="Qwen3 Technical Report", authors="Yang, Li, Yang, et al.", year=2025, arxiv="2505.09388"
)
READ: frozenset[Biased] = frozenset({"read"})


_KEYS = Keys(
    """
    intermediate_size         used      size       22016
    max_position_embeddings   used      size       32768
    num_key_value_heads       used      size?      32
    use_sliding_window        fixed     false
    sliding_window            harmless  size?
    max_window_layers         harmless  count
    layer_types               used      words?     null
    """,
    llama.KIN,
)
KEYS_2 = Keys("attention_bias harmless", _KEYS)
KEYS_3 = Keys("head_dim used size 128", _KEYS)


def _windowed(theirs: Mapping[str, Any]) -> None:
    """Refuse layers with windows: no published model has them."""
    usual = [rotary.GLOBAL] * theirs["num_hidden_layers"]
    if set(layer_types(theirs, usual)) != {rotary.GLOBAL}:
        raise ValueError(f"layer_types has {rotary.LOCAL!r}, only {rotary.GLOBAL!r}")


def _read_2(theirs: Mapping[str, Any]) -> Architecture:
    _windowed(theirs)
    return replace(llama.read(theirs, QWEN_2_BASE), bias=READ)


def _write_2(a: Architecture) -> dict[str, Any]:
    if a.bias != READ:
        raise ValueError(f"Qwen2's format has biases where attention reads, got {sorted(a.bias)}")
    said = llama.write(a)
    del said["attention_bias"]
    return said | {"use_sliding_window": False}


def _read_3(theirs: Mapping[str, Any]) -> Architecture:
    _windowed(theirs)
    return llama.read(theirs, QWEN_3_BASE)


def _write_3(a: Architecture) -> dict[str, Any]:
    return llama.write(a) | {"use_sliding_window": False}


QWEN_2_BASE = replace(
    llama.BASE,
    vocab_size=151_936,  # released code: table 1's 151,646, rounded up
    d_model=896,  # table 1
    n_layers=24,
    n_heads=14,
    n_kv_heads=2,
    d_ff=4864,
    bias=READ,  # section 2.2.1
    position=Rotary(1_000_000.0, 131_072),  # section 3.2; length from released code
    norm=RMSNorm(eps=1e-6),  # released code
)
QWEN_3_BASE = replace(
    QWEN_2_BASE,
    d_model=1024,
    n_layers=28,  # table 1
    n_heads=16,
    n_kv_heads=8,
    head_width=128,
    d_ff=3072,  # released code
    bias=UNBIASED,  # section 2
    query_key_norm="head",  # section 2
    position=Rotary(1_000_000.0, 32_768),  # section 3.2; table 1
)

QWEN_2_05B = llama.sized(
    llama.LLAMA_7B, "qwen2-0.5b", 494_032_768,
    family="qwen2",
    paper=SECOND,
    architecture=QWEN_2_BASE,
    heads=llama.TIED,
    tokenizer=TokenizerSpec(ByteBPE(151_936, cut="qwen2", nfc=True), FRAME),
    length=4096,  # section 3.2; 32,768 at the end
    fields=Fields(
        model_type="qwen2", keys=KEYS_2, read=_read_2, write=_write_2,
        classes=llama.answering("Qwen2"),
        aliased=frozenset({f"Qwen2{llama.ALIASED}"}),
    ),
    hub="Qwen/Qwen2-0.5B",
    note="The report says no rate, batch or schedule of pretraining: they are those of Llama 7B.",
)  # fmt: skip
QWEN_2_15B = llama.sized(
    QWEN_2_05B, "qwen2-1.5b", 1_543_714_304,
    d_model=1536, n_layers=28, n_heads=12, d_ff=8960, hub="Qwen/Qwen2-1.5B",
)  # fmt: skip
QWEN_2_7B = llama.sized(
    QWEN_2_05B, "qwen2-7b", 7_615_616_512,
    vocab_size=152_064, d_model=3584, n_layers=28, n_heads=28, n_kv_heads=4, d_ff=18_944,
    heads=llama.HEADS, hub="Qwen/Qwen2-7B",
)  # fmt: skip
QWEN_2_72B = llama.sized(
    QWEN_2_7B, "qwen2-72b", 72_706_203_648,
    d_model=8192, n_layers=80, n_heads=64, n_kv_heads=8, d_ff=29_568,
    norm=RMSNorm(eps=1e-5),  # released code
    hub="Qwen/Qwen2-72B",
)  # fmt: skip
QWEN_2_MINI = llama.mini(QWEN_2_05B, "qwen2-mini", 5_050_624, n_kv_heads=2, d_ff=704)

QWEN_3_06B = llama.sized(
    QWEN_2_05B, "qwen3-0.6b", 596_049_920,
    family="qwen3",
    paper=THIRD,
    architecture=QWEN_3_BASE,
    fields=Fields(
        model_type="qwen3", keys=KEYS_3, read=_read_3, write=_write_3,
        classes=llama.answering("Qwen3"),
        aliased=frozenset({f"Qwen3{llama.ALIASED}"}),
    ),
    hub="Qwen/Qwen3-0.6B-Base",
)  # fmt: skip
QWEN_3_17B = llama.sized(
    QWEN_3_06B, "qwen3-1.7b", 1_720_574_976,
    d_model=2048, head_width=None, d_ff=6144, hub="Qwen/Qwen3-1.7B-Base",
)  # fmt: skip
QWEN_3_4B = llama.sized(
    QWEN_3_06B, "qwen3-4b", 4_022_468_096,
    d_model=2560, n_layers=36, n_heads=32, d_ff=9728, hub="Qwen/Qwen3-4B-Base",
)  # fmt: skip
QWEN_3_8B = llama.sized(
    QWEN_3_4B, "qwen3-8b", 8_190_735_360,
    d_model=4096, head_width=None, d_ff=12_288, heads=llama.HEADS, hub="Qwen/Qwen3-8B-Base",
)  # fmt: skip
QWEN_3_14B = llama.sized(
    QWEN_3_8B, "qwen3-14b", 14_768_307_200,
    d_model=5120, n_layers=40, n_heads=40, d_ff=17_408, hub="Qwen/Qwen3-14B-Base",
)  # fmt: skip
QWEN_3_32B = llama.sized(
    QWEN_3_8B, "qwen3-32b", 32_762_123_264,
    d_model=5120, n_layers=64, n_heads=64, head_width=128, d_ff=25_600, hub="Qwen/Qwen3-32B",
)  # fmt: skip
QWEN_3_MINI = llama.mini(
    QWEN_3_06B, "qwen3-mini", 5_049_088, n_kv_heads=2, d_ff=704, head_width=None
)

CARDS = (
    QWEN_2_MINI, QWEN_2_05B, QWEN_2_15B, QWEN_2_7B, QWEN_2_72B,
    QWEN_3_MINI, QWEN_3_06B, QWEN_3_17B, QWEN_3_4B, QWEN_3_8B, QWEN_3_14B, QWEN_3_32B,
)  # fmt: skip
