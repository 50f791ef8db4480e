"""OLMo 2: OLMo et al. 2024, "2 OLMo 2 Furious", arXiv:2501.00656.

Tables and sections are those of its third version; "released configuration" are the files
`configs/official-*/*-stage1.yaml` of github.com/allenai/OLMo.
"""

from collections.abc import Mapping
from typing import Any

from unmask.model.architecture import OUTPUT_NORM
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping
from unmask.model.layers.feed_forward import RMSNorm
from unmask.model.positions.rotary import Rotary
from unmask.model.variants import AttentionVariant
from unmask.tokenizers.spec import OLMO as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import ByteBPE
from unmask.zoo.decoders import llama
from unmask.zoo.preset import Paper

PAPER = Paper(
    title="2 OLMo 2 Furious",
    authors="OLMo, Walsh, Soldaini, Groeneveld, Lo, Arora, Bhagia, Gu, Huang, Jordan, et al.",
    year=2024,
    arxiv="2501.00656",
)


def _read_config(config: Mapping[str, Any]) -> Architecture:
    assert isinstance(OLMO_2_7B.architecture, Architecture)
    return llama.read_config(config, OLMO_2_7B.architecture)


def _write_config(a: Architecture) -> dict[str, Any]:
    said = llama.write_config(a)
    if a.head_dim is not None:
        raise ValueError(f"OLMo 2's heads have d_model / n_heads numbers, got {a.head_dim}")
    del said["head_dim"]
    return said


CONFIG_KEYS = ConfigKeys(
    """
    intermediate_size         used      size       11008
    max_position_embeddings   used      size       2048
    rms_norm_eps              used      positive   1e-5
    """,
    llama.RELATED_CONFIG_KEYS,
)
DIFFERENCES_NOTE = (
    "Not implemented: the z-loss, embeddings without weight decay, and initialization "
    "truncated at three standard deviations."
)
OLMO_2_7B = llama.with_size(
    llama.LLAMA_7B,
    "olmo-2-7b",
    7_298_617_344,
    family="olmo2",
    paper=PAPER,
    vocab_size=100_352,  # released configuration
    norm_placement=OUTPUT_NORM,  # section 2.1: norms of sublayer outputs
    attention=AttentionVariant(query_key_norm="all"),  # section 2.1
    norm=RMSNorm(eps=1e-6),  # released configuration
    position=Rotary(500_000.0, 4096),  # section 2.1
    tokenizer=TokenizerSpec(ByteBPE(100_352, pre_tokenization="llama3"), FRAME),
    sequence_length=4096,  # table 3
    batch_tokens=1024 * 4096,  # table 3
    learning_rate=3e-4,  # table 3
    training_options={
        "optimizer": {
            "kind": "AdamW",
            "betas": [0.9, 0.95],
            "eps": 1e-8,
            "weight_decay": 0.1,
        },  # released configuration; epsilon: section 3.4.1
        "schedule": {
            "kind": "Cosine",
            "warmup": 2000,
            "final_fraction": 0.1,
        },  # section 2.3, table 3
        "max_grad_norm": 1.0,  # table 3
    },
    config_mapping=ConfigMapping(
        model_type="olmo2",
        config_keys=CONFIG_KEYS,
        to_architecture=_read_config,
        from_architecture=_write_config,
        class_names={
            ("language",): "Olmo2ForCausalLM",
            ("label",): "Olmo2ForSequenceClassification",
            (): "Olmo2Model",
        },
    ),
    hub_id="allenai/OLMo-2-1124-7B",
    note=f"The cosine is that of 5T tokens; the paper stops it after 4T. {DIFFERENCES_NOTE}",
)
OLMO_2_1B = llama.with_size(
    OLMO_2_7B,
    "olmo-2-1b",
    1_484_916_736,
    d_model=2048,
    n_layers=16,
    n_heads=16,
    d_ff=8192,
    batch_tokens=512 * 4096,
    learning_rate=4e-4,
    training_options={
        **OLMO_2_7B.training_options,
        "schedule": {"kind": "Cosine", "warmup": 4000, "final_fraction": 0.1},
    },
    hub_id="allenai/OLMo-2-0425-1B",
    note=f"Not in the paper: all from the released configuration. {DIFFERENCES_NOTE}",
)
OLMO_2_13B = llama.with_size(
    OLMO_2_7B,
    "olmo-2-13b",
    13_716_198_400,
    d_model=5120,
    n_layers=40,
    n_heads=40,
    d_ff=13_824,
    batch_tokens=2048 * 4096,
    learning_rate=9e-4,
    hub_id="allenai/OLMo-2-1124-13B",
    note=f"Rate of table 3; 3e-4 in the released configuration. {DIFFERENCES_NOTE}",
)
OLMO_2_MINI = llama.mini_preset(
    OLMO_2_7B, "olmo-2-mini", 5_312_768, d_ff=704, heads=llama.TIED_HEADS
)

PRESETS = (OLMO_2_MINI, OLMO_2_1B, OLMO_2_7B, OLMO_2_13B)
