"""Mistral 7B: Jiang et al. 2023, "Mistral 7B", arXiv:2310.06825."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.model.architecture import NO_BIASES
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping
from unmask.model.layers.feed_forward import RMSNorm
from unmask.model.positions.rotary import Rotary
from unmask.zoo.decoders import llama
from unmask.zoo.preset import Paper

PAPER = Paper(
    title="Mistral 7B",
    authors="Jiang, Sablayrolles, Mensch, Bamford, Chaplot, de las Casas, Bressand, Lengyel, "
    "Lample, Saulnier, Lavaud, Lachaux, Stock, Le Scao, Lavril, Wang, Lacroix, El Sayed",
    year=2023,
    arxiv="2310.06825",
)


def _read_config(config: Mapping[str, Any]) -> Architecture:
    a = replace(llama.read_config(config), biases=NO_BIASES)
    window = config.get("sliding_window")
    # there the window includes the token itself
    return replace(a, attention_window=() if window is None else (int(window) - 1,))


def _write_config(a: Architecture) -> dict[str, Any]:
    if len(a.attention_window) > 1 or a.biases:
        raise ValueError(
            "Mistral's format has one window for all layers and no bias, got "
            f"{a.attention_window}, {a.biases}"
        )
    window = a.attention_window[0] if a.attention_window else None
    said = llama.write_config(a)
    del said["attention_bias"]
    return said | {"sliding_window": None if window is None else window + 1}


CONFIG_KEYS = ConfigKeys(
    """
    intermediate_size         used      size       14336
    max_position_embeddings   used      size       131072
    num_key_value_heads       used      size?      8
    sliding_window            used      size?      4096
    attention_bias            harmless
    """,
    llama.RELATED_CONFIG_KEYS,
)

MISTRAL_7B = llama.with_size(
    llama.LLAMA_7B,
    "mistral-7b",
    7_241_732_096,
    family="mistral",
    paper=PAPER,
    d_ff=14_336,  # table 1
    n_kv_heads=8,  # table 1
    attention_window=(4095,),  # table 1: 4,096 tokens, including the token itself (released code)
    position=Rotary(10_000.0, 32_768),  # released code; table 1: a context of 8,192
    norm=RMSNorm(eps=1e-5),  # released code
    sequence_length=8192,  # table 1
    config_mapping=ConfigMapping(
        model_type="mistral",
        config_keys=CONFIG_KEYS,
        to_architecture=_read_config,
        from_architecture=_write_config,
        class_names=llama.class_names_with_question_answering("Mistral"),
    ),
    hub_id="mistralai/Mistral-7B-v0.1",
    note="The paper gives no recipe: it is that of Llama 7B.",
)
MISTRAL_MINI = llama.mini_preset(
    MISTRAL_7B, "mistral-mini", 7_145_728, n_kv_heads=2, d_ff=704, attention_window=(63,),
    note="Not in the paper: for two CPU cores, with a window of 64 tokens.",
)  # fmt: skip

PRESETS = (MISTRAL_MINI, MISTRAL_7B)
