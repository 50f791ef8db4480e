"""Transformer-XL: Dai et al. 2019."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.architecture import POST_NORM, PRE_NORM
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import COMMON_KEYS, ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping, config_functions
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.layers.embeddings.adaptive import AdaptiveInput
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.transformer_xl import TransformerXLPositions
from unmask.objectives.published import CAUSAL_LM as NEXT_TOKEN
from unmask.tokenizers.spec import GPT2 as FRAME
from unmask.tokenizers.spec import WORD_LEVEL as WORD_FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import ByteBPE, WordLevel
from unmask.zoo.encoders.bert_family.bert import MINI_TRAINING
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context",
    authors="Dai, Yang, Yang, Carbonell, Le, Salakhutdinov",
    year=2019,
    arxiv="1901.02860",
)

LARGE_ARCHITECTURE = (
    Architecture(  # released code, `run_wt103_large.sh` and the configuration of its weights
        vocab_size=267_735,  # words of WikiText-103
        adaptive_input=AdaptiveInput((20_000, 40_000, 200_000)),
        d_model=1024,
        n_layers=18,
        n_heads=16,
        d_ff=4096,
        scale_embedding=True,  # released code, `emb_scale`
        position=TransformerXLPositions(clamp_length=1000, max_positions=384),
        attention_window=(1599,),  # evaluation has equal contexts: `same_length`, `mem_len`
        norm=LayerNorm(eps=1e-5),
        norm_placement=POST_NORM,
        activation="relu",
        biases=frozenset({"feed_forward"}),
        causal=True,
        dropout=0.2,
        attention_dropout=0.2,
        activation_dropout=0.2,
        final_dropout=0.2,
        initializer=NormalInit(0.02),
    )
)
HEADS = {"language": LanguageModeling(term="next_token", bias=True)}
STREAM_TRAINING = {"row_unit": "stream", "memory_length": 384}
CLASSIFICATION_HEAD = SequenceClassification(
    pooling="last", dense_layer=False, bias=False, dropout=0.0
)

WEIGHT_NAMES = WeightNames(
    """
    backbone.tokens.tables.*                 transformer.word_emb.emb_layers.*
    backbone.tokens                          transformer.word_emb.emb_layers.0
    backbone.tokens.maps.*.weight            transformer.word_emb.emb_projs.*
    backbone.layers.*.attention.q + backbone.layers.*.attention.k + backbone.layers.*.attention.v transformer.layers.*.dec_attn.qkv_net
    backbone.layers.*.attention.o            transformer.layers.*.dec_attn.o_net
    backbone.layers.*.attention.place.r      transformer.layers.*.dec_attn.r_net
    backbone.layers.*.attention.place.u      transformer.layers.*.dec_attn.r_w_bias
    backbone.layers.*.attention.place.v      transformer.layers.*.dec_attn.r_r_bias
    backbone.layers.*.attention_norm.after   transformer.layers.*.dec_attn.layer_norm
    backbone.layers.*.attention_norm.into    transformer.layers.*.dec_attn.layer_norm
    backbone.layers.*.feed_forward.up        transformer.layers.*.pos_ff.CoreNet.0
    backbone.layers.*.feed_forward.down      transformer.layers.*.pos_ff.CoreNet.3
    backbone.layers.*.feed_forward_norm.after transformer.layers.*.pos_ff.layer_norm
    backbone.layers.*.feed_forward_norm.into transformer.layers.*.pos_ff.layer_norm
    heads.language.clusters.weight           crit.cluster_weight
    heads.language.clusters.bias             crit.cluster_bias
    heads.language.first.weight              crit.out_projs.0                         transposed
    heads.language.biases.*                  crit.out_layers.*.bias
    heads.language.bias                      crit.out_layers.0.bias
    backbone.tokens.tables.*.weight          crit.out_layers.*.weight                 tied
    backbone.tokens.weight                   crit.out_layers.0.weight                 tied
    backbone.tokens.maps.*.weight            crit.out_projs.*                         tied
    heads.label.out                          score
    -                                        transformer.pos_emb.inv_freq
    """,  # noqa: E501 - a line is a rule
    prefix="transformer.",
)

_READ_CONFIG, _WRITE_CONFIG = config_functions(
    {
        "vocab_size": "vocab_size",
        "d_model": "d_model",
        "n_layers": "n_layer",
        "n_heads": "n_head",
        "d_ff": "d_inner",
        "head_dim": "d_head",
        "position.max_positions": "tgt_len",
        "norm.eps": "layer_norm_epsilon",
        "dropout": "dropout",
        "attention_dropout": "dropatt",
        "initializer.std": "init_std",
    },
    LARGE_ARCHITECTURE,
    {
        "attn_type": 0,
        "untie_r": True,
        "proj_share_all_but_first": True,
        "tie_word_embeddings": True,
    },
)


def _read_config(config: Mapping[str, Any]) -> Architecture:
    a = _READ_CONFIG(config)
    cutoffs, factor = tuple(config.get("cutoffs", ())), config.get("div_val", 4)
    furthest = config.get("clamp_len", -1)
    memory = config.get("mem_len", 0)
    return replace(
        a,
        adaptive_input=AdaptiveInput(cutoffs, factor) if cutoffs else None,
        head_dim=None if a.head_dim == a.d_model // a.n_heads else a.head_dim,
        norm_placement=PRE_NORM if config.get("pre_lnorm") else POST_NORM,
        position=replace(a.position, clamp_length=furthest if furthest > 0 else None),  # type: ignore[type-var]
        attention_window=(memory - 1,) if config.get("same_length") and memory else (),
        activation_dropout=a.dropout,
        final_dropout=a.dropout,
    )


def _write_config(a: Architecture) -> dict[str, Any]:
    position = a.position
    assert isinstance(position, TransformerXLPositions)
    if a.activation_dropout != a.dropout or a.final_dropout != a.dropout:
        raise ValueError("Transformer-XL's format has one dropout for all but attention")
    if len(a.attention_window) > 1 or position.relative_segments:
        raise ValueError("Transformer-XL's format has one window, and only relative positions")
    return _WRITE_CONFIG(replace(a, head_dim=a.d_head)) | {
        "d_embed": a.d_model,
        "cutoffs": list(a.adaptive_input.cutoffs) if a.adaptive_input else [],
        "div_val": a.adaptive_input.reduction_factor if a.adaptive_input else 1,
        "pre_lnorm": a.norm_placement == PRE_NORM,
        "clamp_len": -1 if position.clamp_length is None else position.clamp_length,
        "same_length": bool(a.attention_window),
        "mem_len": (a.attention_window[0] or 0) + 1
        if a.attention_window
        else position.max_positions,
    }


CONFIG_KEYS = ConfigKeys(
    """
    vocab_size                used      size
    d_model                   used      size
    n_layer                   used      layers
    n_head                    used      size
    d_head                    used      size       64
    d_inner                   used      size       4096
    d_embed                   fixed     @d_model
    div_val                   used      size       -
    cutoffs                   used      anything   -
    pre_lnorm                 used      flag       false
    tgt_len                   used      size       -
    mem_len                   used      count      -
    clamp_len                 used      integer    -
    same_length               used      flag       -
    layer_norm_epsilon        used      positive   1e-5
    dropout                   used      share      0.1
    dropatt                   used      share      0.0
    init_std                  used      number     0.02
    attn_type                 fixed     0
    untie_r                   fixed     true
    proj_share_all_but_first  fixed     true
    tie_word_embeddings       fixed     true
    """,
    COMMON_KEYS,
)
"""The class is of transformers 4, so that parity cannot be tested today."""

TRANSFORMER_XL = Published(
    name="transformer-xl",
    family="transformer-xl",
    paper=PAPER,
    architecture=LARGE_ARCHITECTURE,
    heads=HEADS,
    classification_head=CLASSIFICATION_HEAD,
    objective=NEXT_TOKEN,
    tokenizer=TokenizerSpec(WordLevel(267_735), WORD_FRAME),
    sequence_length=384,
    batch_tokens=128 * 384,
    learning_rate=2.5e-4,
    training_options={
        **STREAM_TRAINING,
        "optimizer": {"kind": "AdamW", "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0},
        "schedule": {"kind": "Cosine", "warmup": 0.004, "final_fraction": 0.0},
        "max_grad_norm": 0.25,
    },
    n_parameters=285_205_322,
    weight_names=WEIGHT_NAMES,
    config_mapping=ConfigMapping(
        model_type="transfo-xl",
        config_keys=CONFIG_KEYS,
        to_architecture=_read_config,
        from_architecture=_write_config,
        class_names={
            ("language",): "TransfoXLLMHeadModel",
            ("label",): "TransfoXLForSequenceClassification",
            (): "TransfoXLModel",
        },
        in_transformers=False,
    ),
    hub_id="transfo-xl/transfo-xl-wt103",
    note="Training as in the released code's scripts. transformers had the family up to 4.57.",
)

TRANSFORMER_XL_BASE = replace(
    TRANSFORMER_XL,
    name="transformer-xl-base",
    architecture=replace(  # released code, `run_wt103_base.sh`: table 1's "Standard"
        LARGE_ARCHITECTURE,
        adaptive_input=AdaptiveInput((20_000, 40_000, 200_000), reduction_factor=1),
        d_model=410,
        n_layers=16,
        n_heads=10,
        d_ff=2100,
        position=TransformerXLPositions(clamp_length=400, max_positions=150),
        attention_window=(639,),
        dropout=0.1,
        attention_dropout=0.0,
        activation_dropout=0.1,
        final_dropout=0.1,
    ),
    sequence_length=150,
    batch_tokens=60 * 150,
    training_options={
        **TRANSFORMER_XL.training_options,
        "memory_length": 150,
        "schedule": {"kind": "Cosine", "warmup": 0.0, "final_fraction": 0.0},
    },
    n_parameters=151_119_838,
    hub_id=None,
    note="Training and evaluation as in the released code's scripts; no weights were released.",
)

_SMALL = replace(
    LARGE_ARCHITECTURE,
    vocab_size=8_192,
    adaptive_input=None,
    d_model=256,
    n_layers=4,
    n_heads=4,
    d_ff=1024,
    position=TransformerXLPositions(max_positions=128),
    attention_window=(),
    initializer=NormalInit(0.02),
)
TRANSFORMER_XL_MINI = replace(
    TRANSFORMER_XL,
    name="transformer-xl-mini",
    architecture=_SMALL,
    tokenizer=TokenizerSpec(ByteBPE(8_192), FRAME),
    sequence_length=128,
    batch_tokens=4_096,
    learning_rate=3e-3,
    training_options={**MINI_TRAINING, "row_unit": "stream", "memory_length": 128},
    n_parameters=5_524_480,
    hub_id=None,
    note="Not in the paper: for two CPU cores, with the width and depth of gpt2-mini.",
)
WORDS_MINI = replace(
    TRANSFORMER_XL_MINI,
    name="transformer-xl-words-mini",
    architecture=replace(_SMALL, vocab_size=32_000, adaptive_input=AdaptiveInput((4_000, 16_000))),
    tokenizer=TokenizerSpec(WordLevel(32_000), WORD_FRAME),
    n_parameters=5_651_202,
    note="Not in the paper: for two CPU cores and text in words, as WikiText and PTB are.",
)

PRESETS = (TRANSFORMER_XL_MINI, WORDS_MINI, TRANSFORMER_XL_BASE, TRANSFORMER_XL)
