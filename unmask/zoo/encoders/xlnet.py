"""XLNet: Yang et al. 2019."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.architecture import POST_NORM
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import COMMON_KEYS, ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping, config_functions
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.layers.attention.query_stream import TwoStreamAttention
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.transformer_xl import TransformerXLPositions
from unmask.objectives.published import XLNET as OBJECTIVE
from unmask.tokenizers.spec import XLNET as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import Unigram
from unmask.zoo.encoders.bert_family.bert import MINI_TRAINING
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="XLNet: Generalized Autoregressive Pretraining for Language Understanding",
    authors="Yang, Dai, Yang, Carbonell, Salakhutdinov, Le",
    year=2019,
    arxiv="1906.08237",
)

LARGE_ARCHITECTURE = Architecture(
    vocab_size=32_000,  # released code
    d_model=1024,  # appendix A.4.1, table 7
    n_layers=24,
    n_heads=16,
    d_ff=4096,
    position=TransformerXLPositions(relative_segments=True),
    norm=LayerNorm(eps=1e-12),  # released code
    norm_placement=POST_NORM,
    biases=frozenset({"feed_forward"}),
    dropout=0.1,
    attention_dropout=0.1,
    activation_dropout=0.1,
    final_dropout=0.1,
    initializer=NormalInit(0.02),
)
HEADS = {
    "language": LanguageModeling(term="permuted", bias=True, query_stream=TwoStreamAttention())
}
CLASSIFICATION_HEAD = SequenceClassification(pooling="last", activation="tanh")
"""The state of the last token, <cls> (released code, `summarize_sequence`)."""

WEIGHT_NAMES = WeightNames(
    """
    backbone.tokens                           transformer.word_embedding
    heads.language.decoder.asks               transformer.mask_emb
    backbone.layers.*.attention.q.weight      transformer.layer.*.rel_attn.q          transposed_in_heads
    backbone.layers.*.attention.k.weight      transformer.layer.*.rel_attn.k          transposed_in_heads
    backbone.layers.*.attention.v.weight      transformer.layer.*.rel_attn.v          transposed_in_heads
    backbone.layers.*.attention.o.weight      transformer.layer.*.rel_attn.o          in_heads
    backbone.layers.*.attention.place.r.weight transformer.layer.*.rel_attn.r         transposed_in_heads
    backbone.layers.*.attention.place.u       transformer.layer.*.rel_attn.r_w_bias
    backbone.layers.*.attention.place.v       transformer.layer.*.rel_attn.r_r_bias
    backbone.layers.*.attention.place.w       transformer.layer.*.rel_attn.r_s_bias
    backbone.layers.*.attention.place.segments transformer.layer.*.rel_attn.seg_embed
    backbone.layers.*.attention_norm.after    transformer.layer.*.rel_attn.layer_norm
    backbone.layers.*.feed_forward.up         transformer.layer.*.ff.layer_1
    backbone.layers.*.feed_forward.down       transformer.layer.*.ff.layer_2
    backbone.layers.*.feed_forward_norm.after transformer.layer.*.ff.layer_norm
    heads.language.bias                       lm_loss.bias
    backbone.tokens                           lm_loss                                 tied
    heads.label.dense                         sequence_summary.summary
    heads.label.out                           logits_proj
    heads.choice.dense                        sequence_summary.summary
    heads.choice.out                          logits_proj
    heads.token_label.out                     classifier
    heads.spans.out                           qa_outputs
    -                                         transformer.mask_emb
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
        "position.max_positions": "mem_len",
        "norm.eps": "layer_norm_eps",
        "activation": "ff_activation",
        "dropout": "dropout",
        "initializer.std": "initializer_range",
    },
    LARGE_ARCHITECTURE,
    {"attn_type": "bi", "untie_r": True, "same_length": False, "bi_data": False},
)


def _read_config(config: Mapping[str, Any]) -> Architecture:
    a = _READ_CONFIG({**config, "mem_len": config.get("mem_len") or None})
    if config.get("d_head") not in (None, a.d_head):
        raise ValueError(f"d_head = {config['d_head']} must be d_model / n_head, {a.d_head}")
    furthest = config.get("clamp_len", -1)
    return replace(
        a,
        position=replace(a.position, clamp_length=furthest if furthest > 0 else None),  # type: ignore[type-var]
        attention_dropout=a.dropout,
        activation_dropout=a.dropout,
        final_dropout=a.dropout,
    )


def _write_config(a: Architecture) -> dict[str, Any]:
    assert isinstance(a.position, TransformerXLPositions)
    rates = {a.dropout, a.attention_dropout, a.activation_dropout, a.final_dropout}
    if len(rates) > 1 or a.head_dim is not None or not a.position.relative_segments:
        raise ValueError("XLNet's format has one dropout, heads as wide as d_model, and segments")
    furthest = a.position.clamp_length
    return _WRITE_CONFIG(a) | {"clamp_len": -1 if furthest is None else furthest}


CONFIG_KEYS = ConfigKeys(
    """
    vocab_size               used      size
    n_token                  alias     vocab_size
    d_model                  used      size
    n_layer                  used      layers
    n_head                   used      size@d_model
    hidden_size              alias     d_model
    num_hidden_layers        alias     n_layer
    num_attention_heads      alias     n_head
    d_inner                  used      size       4096
    d_head                   used      size?      null
    ff_activation            used      word       gelu
    layer_norm_eps           used      positive   1e-12
    dropout                  used      share      0.1
    initializer_range        used      number     0.02
    mem_len                  used      count?     512
    clamp_len                used      integer    -1
    attn_type                fixed     bi
    untie_r                  fixed     true
    bi_data                  fixed     false
    same_length              fixed     false
    reuse_len                harmless  count?
    use_mems_eval            harmless
    use_mems_train           harmless
    summary_type             fixed     last
    summary_use_proj         fixed     true
    summary_activation       fixed     tanh
    summary_proj_to_labels   fixed     false
    summary_first_dropout    harmless  share
    summary_last_dropout     harmless  share
    start_n_top              harmless
    end_n_top                harmless
    tie_word_embeddings      used      flag       true
    """,
    COMMON_KEYS,
)

XLNET_LARGE = Published(
    name="xlnet-large-cased",
    family="xlnet",
    paper=PAPER,
    architecture=LARGE_ARCHITECTURE,
    heads=HEADS,
    classification_head=CLASSIFICATION_HEAD,
    objective=OBJECTIVE,
    tokenizer=TokenizerSpec(Unigram(32_000, normalize_quotes_and_accents=True), FRAME),
    sequence_length=512,  # table 7
    batch_tokens=8192 * 512,  # section 3.1
    learning_rate=4e-4,  # table 7
    training_options={
        "row_unit": "stream",
        "bidirectional_data": True,  # section 2.2, "bidirectional data input pipeline"
        "memory_length": 384,  # released code
        "optimizer": {"kind": "AdamW", "betas": [0.9, 0.999], "eps": 1e-6, "weight_decay": 0.01},
        "schedule": {"kind": "Linear", "warmup": 0.08},  # table 7: 40,000 of 500,000 steps
    },
    n_parameters=360_300_800,
    weight_names=WEIGHT_NAMES,
    config_mapping=ConfigMapping(
        model_type="xlnet",
        config_keys=CONFIG_KEYS,
        to_architecture=_read_config,
        from_architecture=_write_config,
        class_names={
            ("language",): "XLNetLMHeadModel",
            ("label",): "XLNetForSequenceClassification",
            ("choice",): "XLNetForMultipleChoice",
            ("token_label",): "XLNetForTokenClassification",
            ("spans",): "XLNetForQuestionAnsweringSimple",
            (): "XLNetModel",
        },
    ),
    hub_id="xlnet/xlnet-large-cased",
    note="In pretraining each text is read twice, first beyond the memory: as the continuation of "
    "the first half of a row.",
)
XLNET_BASE = replace(
    XLNET_LARGE,
    name="xlnet-base-cased",
    architecture=replace(LARGE_ARCHITECTURE, d_model=768, n_layers=12, n_heads=12, d_ff=3072),
    n_parameters=116_750_336,
    hub_id="xlnet/xlnet-base-cased",
)
XLNET_MINI = replace(
    XLNET_LARGE,
    name="xlnet-mini",
    architecture=replace(
        LARGE_ARCHITECTURE,
        vocab_size=8_192,
        d_model=256,
        n_layers=4,
        n_heads=4,
        d_ff=1024,
        initializer=NormalInit(0.05),
    ),
    tokenizer=TokenizerSpec(Unigram(8_192, normalize_quotes_and_accents=True), FRAME),
    sequence_length=128,
    batch_tokens=4_096,
    learning_rate=3e-3,
    training_options={
        **MINI_TRAINING,
        "row_unit": "stream",
        "bidirectional_data": True,
        "memory_length": 96,
    },
    n_parameters=5_527_808,
    hub_id=None,
    note="Not in the paper: for two CPU cores, with the width and depth of bert-mini.",
)

PRESETS = (XLNET_MINI, XLNET_BASE, XLNET_LARGE)
