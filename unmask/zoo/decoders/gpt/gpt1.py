"""GPT: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training"."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from unmask.model.architecture import POST_NORM
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping, config_functions, read_activation
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.positions.learned import LearnedPositions
from unmask.tokenizers.spec import GPT as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import BPE
from unmask.zoo.decoders import llama
from unmask.zoo.decoders.gpt import gpt2
from unmask.zoo.preset import FinetuningDefaults, Paper

PAPER = Paper(
    title="Improving Language Understanding by Generative Pre-Training",
    authors="Radford, Narasimhan, Salimans, Sutskever",
    year=2018,
    url="https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf",
)

BASE = replace(
    gpt2.SMALL_ARCHITECTURE,
    vocab_size=40_478,  # released code: section 4.1's 40,000 merges, and 478 characters
    position=LearnedPositions(512),  # section 4.1
    norm_placement=POST_NORM,
    final_norm=False,
    initializer=NormalInit(0.02),  # section 4.1
)

WEIGHT_NAMES = WeightNames(
    """
    backbone.tokens                            transformer.tokens_embed
    backbone.position.table                    transformer.positions_embed
    backbone.layers.*.attention.q + backbone.layers.*.attention.k + backbone.layers.*.attention.v transformer.h.*.attn.c_attn transposed
    backbone.layers.*.attention.o              transformer.h.*.attn.c_proj  transposed
    backbone.layers.*.attention_norm.after     transformer.h.*.ln_1
    backbone.layers.*.feed_forward.up          transformer.h.*.mlp.c_fc     transposed
    backbone.layers.*.feed_forward.down        transformer.h.*.mlp.c_proj   transposed
    backbone.layers.*.feed_forward_norm.after  transformer.h.*.ln_2
    heads.language.out                         lm_head
    backbone.tokens                            lm_head                      tied
    heads.label.out                            score
    -                                          transformer.h.*.attn
    -                                          transformer.position_ids
    """,  # noqa: E501 - a line is a rule
    prefix="transformer.",
)

_READ_CONFIG, _WRITE_CONFIG = config_functions(
    {
        "vocab_size": "vocab_size",
        "d_model": "n_embd",
        "n_layers": "n_layer",
        "n_heads": "n_head",
        "position.max_positions": "n_positions",
        "norm.eps": "layer_norm_epsilon",
        "dropout": "resid_pdrop",
        "attention_dropout": "attn_pdrop",
        "initializer.std": "initializer_range",
    },
    BASE,
    {},
)
_ACTIVATIONS = {"gelu": "gelu_new", "silu": "silu", "swish": "silu", "relu": "relu"}
"""Names of activations in the format, where "gelu" is the tanh form (released code, `gelu`)."""


def _read_config(config: Mapping[str, Any]) -> Architecture:
    a, name = _READ_CONFIG(config), str(config.get("afn") or "gelu")
    if name not in _ACTIVATIONS:
        raise ValueError(f"afn {name!r} is not one of {sorted(_ACTIVATIONS)}")
    return replace(a, d_ff=4 * a.d_model, activation=cast(Any, read_activation(_ACTIVATIONS[name])))


def _write_config(a: Architecture) -> dict[str, Any]:
    if a.d_ff != 4 * a.d_model:
        raise ValueError(f"GPT's format has d_ff = 4 d_model, {4 * a.d_model}, got {a.d_ff}")
    names = {read_activation(key): name for name, key in reversed(_ACTIVATIONS.items())}
    if a.activation not in names:
        raise ValueError(f"GPT's format has no activation {a.activation}, only {sorted(names)}")
    return _WRITE_CONFIG(a) | {"embd_pdrop": a.dropout, "afn": names[a.activation]}


GPT = replace(
    gpt2.GPT2,
    name="gpt",
    family="gpt",
    paper=PAPER,
    architecture=BASE,
    classification_head=replace(gpt2.CLASSIFICATION_HEAD, dropout=0.1),  # section 4.1
    finetuning=FinetuningDefaults(
        special_tokens="added", lm_loss_weight=0.5
    ),  # sections 3.3 and 4.1
    tokenizer=TokenizerSpec(BPE(vocab_size=40_478, lowercase=True), FRAME),
    sequence_length=512,  # section 4.1
    batch_tokens=64 * 512,  # section 4.1
    learning_rate=2.5e-4,  # section 4.1
    training_options={  # section 4.1; betas and epsilon from released code, which fine-tunes
        "optimizer": {"kind": "AdamW", "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01},
        "schedule": {"kind": "Cosine", "warmup": 2000, "final_fraction": 0.0},
    },
    n_parameters=116_534_784,
    weight_names=WEIGHT_NAMES,
    config_mapping=ConfigMapping(
        model_type="openai-gpt",
        config_keys=ConfigKeys("n_positions used size 512\nafn used word gelu", gpt2.CONFIG_KEYS),
        to_architecture=_read_config,
        from_architecture=_write_config,
        class_names={
            ("language",): "OpenAIGPTLMHeadModel",
            ("label",): "OpenAIGPTForSequenceClassification",
            (): "OpenAIGPTModel",
        },
    ),
    hub_id="openai-community/openai-gpt",
    note="",
)
GPT_MINI = llama.mini_preset(
    GPT, "gpt-mini", 5_387_264, d_ff=1024, position=LearnedPositions(512),
    tokenizer=TokenizerSpec(BPE(vocab_size=8_192, lowercase=True), FRAME),
)  # fmt: skip

PRESETS = (GPT_MINI, GPT)
