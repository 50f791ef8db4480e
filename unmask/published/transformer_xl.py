"""Transformer-XL: Dai et al. 2019."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.labels import Labels
from unmask.heads.language import Language
from unmask.hiding.objectives import GPT as NEXT_TOKEN
from unmask.model.adaptive import Adaptive
from unmask.model.architecture import POST, PRE, Architecture
from unmask.model.initialize import Normal
from unmask.model.keys import COMMON, Keys
from unmask.model.names import Fields, Names, by_table
from unmask.model.parts import LayerNorm
from unmask.model.positions import Relative
from unmask.published.bert import SMALL_SCALE
from unmask.published.card import Paper, Published
from unmask.tokens.vocabulary import GPT2 as FRAME
from unmask.tokens.vocabulary import WORDS as WORD_FRAME
from unmask.tokens.vocabulary import ByteBPE, TokenizerSpec, Words

PAPER = Paper(
    title="Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context",
    authors="Dai, Yang, Yang, Carbonell, Le, Salakhutdinov",
    year=2019,
    arxiv="1901.02860",
)

LARGE = Architecture(  # released code, `run_wt103_large.sh` and the configuration of its weights
    vocab_size=267_735,  # words of WikiText-103
    adaptive=Adaptive((20_000, 40_000, 200_000)),
    d_model=1024,
    n_layers=18,
    n_heads=16,
    d_ff=4096,
    tokens_scaled=True,  # released code, `emb_scale`
    position=Relative(furthest=1000, length=384),
    window=(1599,),  # in evaluation each token reads as many: `same_length`, `mem_len`
    norm=LayerNorm(eps=1e-5),
    norm_at=POST,
    activation="relu",
    bias=frozenset({"feed_forward"}),
    causal=True,
    dropout=0.2,
    attention_dropout=0.2,
    feed_forward_dropout=0.2,
    final_dropout=0.2,
    initialize=Normal(0.02),
)
HEADS = {"language": Language(term="next_token", bias=True)}
STREAM = {"unit": "stream", "memory": 384}
LABELS = Labels(pool="last", dense=False, bias=False, dropout=0.0)

NAMES = Names(
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

_READ, _WRITE = by_table(
    {
        "vocab_size": "vocab_size",
        "d_model": "d_model",
        "n_layers": "n_layer",
        "n_heads": "n_head",
        "d_ff": "d_inner",
        "head_width": "d_head",
        "position.length": "tgt_len",
        "norm.eps": "layer_norm_epsilon",
        "dropout": "dropout",
        "attention_dropout": "dropatt",
        "initialize.std": "init_std",
    },
    LARGE,
    {
        "attn_type": 0,
        "untie_r": True,
        "proj_share_all_but_first": True,
        "tie_word_embeddings": True,
    },
)


def _read(theirs: Mapping[str, Any]) -> Architecture:
    a = _READ(theirs)
    cutoffs, factor = tuple(theirs.get("cutoffs", ())), theirs.get("div_val", 4)
    furthest = theirs.get("clamp_len", -1)
    memory = theirs.get("mem_len", 0)
    return replace(
        a,
        adaptive=Adaptive(cutoffs, factor) if cutoffs else None,
        head_width=None if a.head_width == a.d_model // a.n_heads else a.head_width,
        norm_at=PRE if theirs.get("pre_lnorm") else POST,
        position=replace(a.position, furthest=furthest if furthest > 0 else None),  # type: ignore[type-var]
        window=(memory - 1,) if theirs.get("same_length") and memory else (),
        feed_forward_dropout=a.dropout,
        final_dropout=a.dropout,
    )


def _write(a: Architecture) -> dict[str, Any]:
    position = a.position
    assert isinstance(position, Relative)
    if a.feed_forward_dropout != a.dropout or a.final_dropout != a.dropout:
        raise ValueError("Transformer-XL's format has one dropout for all but attention")
    if len(a.window) > 1 or position.segments:
        raise ValueError("Transformer-XL's format has one window, and distances alone")
    return _WRITE(replace(a, head_width=a.d_head)) | {
        "d_embed": a.d_model,
        "cutoffs": list(a.adaptive.cutoffs) if a.adaptive else [],
        "div_val": a.adaptive.factor if a.adaptive else 1,
        "pre_lnorm": a.norm_at == PRE,
        "clamp_len": -1 if position.furthest is None else position.furthest,
        "same_length": bool(a.window),
        "mem_len": (a.window[0] or 0) + 1 if a.window else position.length,
    }


KEYS = Keys(
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
    COMMON,
)
"""The class is of transformers 4: nothing of it can be compared today."""

TRANSFORMER_XL = Published(
    name="transformer-xl",
    family="transformer-xl",
    paper=PAPER,
    architecture=LARGE,
    heads=HEADS,
    labels=LABELS,
    objective=NEXT_TOKEN,
    tokenizer=TokenizerSpec(Words(267_735), WORD_FRAME),
    length=384,
    batch_tokens=128 * 384,
    rate=2.5e-4,
    training={
        **STREAM,
        "optimizer": {"kind": "AdamW", "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0},
        "schedule": {"kind": "Cosine", "warmup": 0.004, "floor": 0.0},
        "clip": 0.25,
    },
    parameters=285_205_322,
    names=NAMES,
    fields=Fields(
        model_type="transfo-xl",
        keys=KEYS,
        read=_read,
        write=_write,
        classes={
            ("language",): "TransfoXLLMHeadModel",
            ("label",): "TransfoXLForSequenceClassification",
            (): "TransfoXLModel",
        },
        in_transformers=False,
    ),
    hub="transfo-xl/transfo-xl-wt103",
    note="Training as in the released code's scripts. transformers had the family up to 4.57.",
)

TRANSFORMER_XL_BASE = replace(
    TRANSFORMER_XL,
    name="transformer-xl-base",
    architecture=replace(  # released code, `run_wt103_base.sh`: table 1's "Standard"
        LARGE,
        adaptive=Adaptive((20_000, 40_000, 200_000), factor=1),
        d_model=410,
        n_layers=16,
        n_heads=10,
        d_ff=2100,
        position=Relative(furthest=400, length=150),
        window=(639,),
        dropout=0.1,
        attention_dropout=0.0,
        feed_forward_dropout=0.1,
        final_dropout=0.1,
    ),
    length=150,
    batch_tokens=60 * 150,
    training={
        **TRANSFORMER_XL.training,
        "memory": 150,
        "schedule": {"kind": "Cosine", "warmup": 0.0, "floor": 0.0},
    },
    parameters=151_119_838,
    hub=None,
    note="Training and evaluation as in the released code's scripts; no weights were released.",
)

_SMALL = replace(
    LARGE,
    vocab_size=8_192,
    adaptive=None,
    d_model=256,
    n_layers=4,
    n_heads=4,
    d_ff=1024,
    position=Relative(length=128),
    window=(),
    initialize=Normal(0.02),
)
TRANSFORMER_XL_MINI = replace(
    TRANSFORMER_XL,
    name="transformer-xl-mini",
    architecture=_SMALL,
    tokenizer=TokenizerSpec(ByteBPE(8_192), FRAME),
    length=128,
    batch_tokens=4_096,
    rate=3e-3,
    training={**SMALL_SCALE, "unit": "stream", "memory": 128},
    parameters=5_524_480,
    hub=None,
    note="Not in the paper: for two CPU cores, with the width and depth of gpt2-mini.",
)
WORDS_MINI = replace(
    TRANSFORMER_XL_MINI,
    name="transformer-xl-words-mini",
    architecture=replace(_SMALL, vocab_size=32_000, adaptive=Adaptive((4_000, 16_000))),
    tokenizer=TokenizerSpec(Words(32_000), WORD_FRAME),
    parameters=5_651_202,
    note="Not in the paper: for two CPU cores and text in words, as WikiText and PTB are.",
)

CARDS = (TRANSFORMER_XL_MINI, WORDS_MINI, TRANSFORMER_XL_BASE, TRANSFORMER_XL)
