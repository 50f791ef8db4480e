"""OLMo 2: OLMo et al. 2024, "2 OLMo 2 Furious", arXiv:2501.00656.

Tables and sections are those of its third version; "released configuration" are the files
`configs/official-*/*-stage1.yaml` of github.com/allenai/OLMo.
"""

from collections.abc import Mapping
from typing import Any

from unmask.model.architecture import OUT, Architecture
from unmask.model.keys import Keys
from unmask.model.names import Fields
from unmask.model.parts import RMSNorm
from unmask.model.positions import Rotary
from unmask.published import llama
from unmask.published.card import Paper
from unmask.tokens.vocabulary import OLMO as FRAME
from unmask.tokens.vocabulary import ByteBPE, TokenizerSpec

PAPER = Paper(
    title="2 OLMo 2 Furious",
    authors="OLMo, Walsh, Soldaini, Groeneveld, Lo, Arora, Bhagia, Gu, Huang, Jordan, et al.",
    year=2024,
    arxiv="2501.00656",
)


def _read(theirs: Mapping[str, Any]) -> Architecture:
    assert isinstance(OLMO_2_7B.architecture, Architecture)
    return llama.read(theirs, OLMO_2_7B.architecture)


def _write(a: Architecture) -> dict[str, Any]:
    said = llama.write(a)
    if a.head_width is not None:
        raise ValueError(f"OLMo 2's heads have d_model / n_heads numbers, got {a.head_width}")
    del said["head_dim"]
    return said


KEYS = Keys(
    """
    intermediate_size         used      size       11008
    max_position_embeddings   used      size       2048
    rms_norm_eps              used      positive   1e-5
    """,
    llama.KIN,
)
LEFT_OUT = (
    "Left out here: the z-loss, token vectors without decay, and weights that begin within three "
    "standard deviations."
)
OLMO_2_7B = llama.sized(
    llama.LLAMA_7B, "olmo-2-7b", 7_298_617_344,
    family="olmo2",
    paper=PAPER,
    vocab_size=100_352,  # released configuration
    norm_at=OUT,  # section 2.1: norms of what a sublayer gives
    query_key_norm="all",  # section 2.1
    norm=RMSNorm(eps=1e-6),  # released configuration
    position=Rotary(500_000.0, 4096),  # section 2.1
    tokenizer=TokenizerSpec(ByteBPE(100_352, cut="llama3"), FRAME),
    length=4096,  # table 3
    batch_tokens=1024 * 4096,  # table 3
    rate=3e-4,  # table 3
    training={
        "optimizer": {
            "kind": "AdamW", "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1,
        },  # released configuration; epsilon: section 3.4.1
        "schedule": {"kind": "Cosine", "warmup": 2000, "floor": 0.1},  # section 2.3, table 3
        "clip": 1.0,  # table 3
    },
    fields=Fields(
        model_type="olmo2", keys=KEYS, read=_read, write=_write,
        classes={
            ("language",): "Olmo2ForCausalLM",
            ("label",): "Olmo2ForSequenceClassification",
            (): "Olmo2Model",
        },
    ),
    hub="allenai/OLMo-2-1124-7B",
    note=f"The cosine is that of 5T tokens; the paper leaves it after 4T. {LEFT_OUT}",
)  # fmt: skip
OLMO_2_1B = llama.sized(
    OLMO_2_7B, "olmo-2-1b", 1_484_916_736,
    d_model=2048, n_layers=16, n_heads=16, d_ff=8192, batch_tokens=512 * 4096, rate=4e-4,
    training={
        **OLMO_2_7B.training, "schedule": {"kind": "Cosine", "warmup": 4000, "floor": 0.1},
    },
    hub="allenai/OLMo-2-0425-1B",
    note=f"Not in the paper: all from the released configuration. {LEFT_OUT}",
)  # fmt: skip
OLMO_2_13B = llama.sized(
    OLMO_2_7B, "olmo-2-13b", 13_716_198_400,
    d_model=5120, n_layers=40, n_heads=40, d_ff=13_824, batch_tokens=2048 * 4096, rate=9e-4,
    hub="allenai/OLMo-2-1124-13B",
    note=f"Rate of table 3; 3e-4 in the released configuration. {LEFT_OUT}",
)  # fmt: skip
OLMO_2_MINI = llama.mini(OLMO_2_7B, "olmo-2-mini", 5_312_768, d_ff=704, heads=llama.TIED)

CARDS = (OLMO_2_MINI, OLMO_2_1B, OLMO_2_7B, OLMO_2_13B)
