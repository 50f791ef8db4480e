"""Mistral 7B: Jiang et al. 2023, "Mistral 7B", arXiv:2310.06825."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.model.architecture import UNBIASED, Architecture
from unmask.model.keys import Keys
from unmask.model.names import Fields
from unmask.model.parts import RMSNorm
from unmask.model.positions import Rotary
from unmask.published import llama
from unmask.published.card import Paper

PAPER = Paper(
    title="Mistral 7B",
    authors="Jiang, Sablayrolles, Mensch, Bamford, Chaplot, de las Casas, Bressand, Lengyel, "
    "Lample, Saulnier, Lavaud, Lachaux, Stock, Le Scao, Lavril, Wang, Lacroix, El Sayed",
    year=2023,
    arxiv="2310.06825",
)


def _read(theirs: Mapping[str, Any]) -> Architecture:
    a = replace(llama.read(theirs), bias=UNBIASED)
    window = theirs.get("sliding_window")
    # theirs counts a token itself among those that it sees
    return replace(a, window=() if window is None else (int(window) - 1,))


def _write(a: Architecture) -> dict[str, Any]:
    if len(a.window) > 1 or a.bias:
        raise ValueError(
            f"Mistral's format has one window for all layers and no bias, got {a.window}, {a.bias}"
        )
    near = a.window[0] if a.window else None
    said = llama.write(a)
    del said["attention_bias"]
    return said | {"sliding_window": None if near is None else near + 1}


KEYS = Keys(
    """
    intermediate_size         used      size       14336
    max_position_embeddings   used      size       131072
    num_key_value_heads       used      size?      8
    sliding_window            used      size?      4096
    attention_bias            harmless
    """,
    llama.KIN,
)

MISTRAL_7B = llama.sized(
    llama.LLAMA_7B, "mistral-7b", 7_241_732_096,
    family="mistral",
    paper=PAPER,
    d_ff=14_336,  # table 1
    n_kv_heads=8,  # table 1
    window=(4095,),  # table 1: 4,096 tokens, the token itself among them (released code)
    position=Rotary(10_000.0, 32_768),  # released code; table 1: a context of 8,192
    norm=RMSNorm(eps=1e-5),  # released code
    length=8192,  # table 1
    fields=Fields(
        model_type="mistral", keys=KEYS, read=_read, write=_write,
        classes=llama.answering("Mistral"),
    ),
    hub="mistralai/Mistral-7B-v0.1",
    note="The paper does not say how it was trained: the recipe is that of Llama 7B.",
)  # fmt: skip
MISTRAL_MINI = llama.mini(
    MISTRAL_7B, "mistral-mini", 7_145_728, n_kv_heads=2, d_ff=704, window=(63,),
    note="Not in the paper: for two CPU cores, with a window of 64 tokens.",
)  # fmt: skip

CARDS = (MISTRAL_MINI, MISTRAL_7B)
