"""XLM: Conneau and Lample 2019, arXiv:1901.07291.

"Cross-lingual Language Model Pretraining": the network of BERT with language embeddings in place of
segments, trained on streams of many languages and on translation pairs.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.architecture import POST_NORM
from unmask.model.backbones.multilingual import MultilingualArchitecture
from unmask.model.exchange.config_keys import COMMON_KEYS, ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping, config_functions
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.learned import LearnedPositions
from unmask.objectives.published import MASKED_LM, TRANSLATION_LM
from unmask.tokenizers.spec import XLM as FRAME
from unmask.tokenizers.spec import XLM_15 as FRAME_15
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import BPE
from unmask.zoo.encoders.bert_family import bert
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="Cross-lingual Language Model Pretraining",
    authors="Conneau, Lample",
    year=2019,
    arxiv="1901.07291",
)

XNLI_15 = MultilingualArchitecture(
    vocab_size=95_000,  # released configuration
    d_model=1024,  # section 5.1: 1,024 hidden units, 8 heads
    n_layers=12,  # released configuration
    n_heads=8,
    d_ff=4096,  # released code: 4 * d_model
    position=LearnedPositions(512),  # section 5.1: learned; length: released configuration
    norm=LayerNorm(eps=1e-12),  # released code
    embedding_norm=True,  # released code
    dropout=0.1,  # section 5.1
    attention_dropout=0.1,
    initializer=NormalInit(0.02),  # released configuration; there, of token vectors d_model**-0.5
    n_languages=15,  # section 5.2: those of XNLI
)
HEADS = {"language": LanguageModeling(term="masked", bias=True)}
CLASSIFICATION_HEAD = SequenceClassification(dense_layer=False, dropout=0.1)  # section 4.1

WEIGHT_NAMES = WeightNames(
    """
    backbone.tokens                            transformer.embeddings
    backbone.position.table                    transformer.position_embeddings
    backbone.languages                         transformer.lang_embeddings
    backbone.embed_norm                        transformer.layer_norm_emb
    backbone.layers.*.attention.q              transformer.attentions.*.q_lin
    backbone.layers.*.attention.k              transformer.attentions.*.k_lin
    backbone.layers.*.attention.v              transformer.attentions.*.v_lin
    backbone.layers.*.attention.o              transformer.attentions.*.out_lin
    backbone.layers.*.attention_norm.after     transformer.layer_norm1.*
    backbone.layers.*.attention_norm.into      transformer.layer_norm1.*
    backbone.layers.*.feed_forward.up          transformer.ffns.*.lin1
    backbone.layers.*.feed_forward.down        transformer.ffns.*.lin2
    backbone.layers.*.feed_forward_norm.after  transformer.layer_norm2.*
    backbone.layers.*.feed_forward_norm.into   transformer.layer_norm2.*
    heads.language.bias                        pred_layer.proj.bias
    heads.language.out                         pred_layer.proj
    backbone.tokens                            pred_layer.proj                            tied
    heads.label.out                            sequence_summary.summary
    heads.token_label.out                      classifier
    heads.spans.out                            qa_outputs
    -                                          transformer.position_ids
    """,
    prefix="transformer.",
)
"""FlauBERT's, too, whose norms may come before the sublayers."""

_READ_CONFIG, _WRITE_CONFIG = config_functions(
    {
        "vocab_size": "vocab_size",
        "d_model": "emb_dim",
        "n_layers": "n_layers",
        "n_heads": "n_heads",
        "position.max_positions": "max_position_embeddings",
        "norm.eps": "layer_norm_eps",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "initializer.std": "init_std",
        "n_languages": "n_langs",
        "language_embeddings": "use_lang_emb",
    },
    XNLI_15,
    {
        "asm": False,
        "causal": False,
        "is_encoder": True,
        "sinusoidal_embeddings": False,
        "summary_type": "first",
        "summary_use_proj": True,
        "summary_proj_to_labels": True,
        "summary_activation": None,
    },
)


def _read_config(config: Mapping[str, Any]) -> MultilingualArchitecture:
    a = _READ_CONFIG(config)
    return replace(
        a,
        d_ff=4 * a.d_model,
        activation="gelu" if config.get("gelu_activation", True) else "relu",
    )


def _write_config(a: MultilingualArchitecture) -> dict[str, Any]:
    if a.d_ff != 4 * a.d_model or a.norm_placement != POST_NORM:
        raise ValueError(
            "XLM's format has d_ff = 4 * d_model and norms after sublayers, "
            f"got d_ff {a.d_ff}, d_model {a.d_model}, norm_placement {sorted(a.norm_placement)}"
        )
    if a.activation not in ("gelu", "relu"):
        raise ValueError(f"XLM's format has gelu or relu, got {a.activation}")
    return _WRITE_CONFIG(a) | {"gelu_activation": a.activation == "gelu"}


CONFIG_KEYS = ConfigKeys(
    """
    vocab_size               used      size       30145
    n_words                  alias     vocab_size
    emb_dim                  used      size       2048
    n_layers                 used      layers     12
    n_heads                  used      size@emb_dim 16
    hidden_size              alias     emb_dim
    num_hidden_layers        alias     n_layers
    num_attention_heads      alias     n_heads
    max_position_embeddings  used      size       512
    gelu_activation          used      flag       true
    layer_norm_eps           used      positive   1e-12
    dropout                  used      share      0.1
    attention_dropout        used      share      0.1
    embed_init_std           harmless  number
    init_std                 used      number     0.02
    tie_word_embeddings      used      flag       true
    asm                      fixed     false
    causal                   fixed     false
    is_encoder               fixed     true
    n_langs                  used      size       1
    use_lang_emb             used      flag       true
    lang_id                  harmless
    id2lang                  harmless
    lang2id                  harmless
    sinusoidal_embeddings    fixed     false
    summary_type             fixed     first
    summary_use_proj         fixed     true
    summary_activation       fixed     null
    summary_proj_to_labels   fixed     true
    summary_first_dropout    harmless  share
    summary_last_dropout     harmless  share
    start_n_top              harmless
    end_n_top                harmless
    bos_index                alias     bos_token_id
    eos_index                alias     eos_token_id
    pad_index                alias     pad_token_id
    unk_index                harmless
    mask_index               harmless
    mask_token_id            harmless
    asm_cutoffs              harmless
    asm_div_value            harmless
    pad_token_id             used      count      2
    """,
    COMMON_KEYS,
)

CONFIG_MAPPING = ConfigMapping(
    model_type="xlm",
    config_keys=CONFIG_KEYS,
    to_architecture=_read_config,
    from_architecture=_write_config,
    class_names={
        ("language",): "XLMWithLMHeadModel",
        ("label",): "XLMForSequenceClassification",
        ("token_label",): "XLMForTokenClassification",
        ("spans",): "XLMForQuestionAnsweringSimple",
        (): "XLMModel",
    },
)

_LANGUAGES_NOTE = (
    "Each source has a language (`--data en=FILE de=FILE`), a translation pair two "
    "(`de=FILE+en=FILE`, line by line); the languages of a run are those of its sources. "
    "Sources are sampled with exponent 0.7 in the paper, 0.5 for the vocabulary: "
    "`--sampling-exponent`. "
)
_NOT_MOSES_NOTE = "Pre-tokenized by Moses (section 5.2); vocabularies trained here, as BERT's."

XLM_MLM_TLM_XNLI15_1024 = Published(
    name="xlm-mlm-tlm-xnli15-1024",
    family="xlm",
    paper=PAPER,
    architecture=XNLI_15,
    heads=HEADS,
    classification_head=CLASSIFICATION_HEAD,
    objective=TRANSLATION_LM,  # section 3.5: with monolingual streams, MLM+TLM
    tokenizer=TokenizerSpec(BPE(vocab_size=95_000), FRAME_15),
    sequence_length=256,  # section 5.1: streams of 256 tokens
    batch_tokens=64 * 256,  # section 5.1: mini-batches of 64 streams
    learning_rate=1e-4,  # section 5.1: from 1e-4 to 5e-4
    training_options={
        "row_unit": "corpus",  # section 3.3: streams of sentences
        "schedule": {"kind": "InverseSquareRoot", "warmup": 30_000},  # released code
        "steps": 500_000,  # Deviates: trained until validation perplexity stops falling
        "optimizer": {"kind": "AdamW", "betas": [0.9, 0.98], "eps": 1e-6, "weight_decay": 0.0},
    },
    n_parameters=249_071_384,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="FacebookAI/xlm-mlm-tlm-xnli15-1024",
    note=_LANGUAGES_NOTE + _NOT_MOSES_NOTE,
)  # fmt: skip
XLM_MLM_XNLI15_1024 = replace(
    XLM_MLM_TLM_XNLI15_1024,
    name="xlm-mlm-xnli15-1024",
    objective=MASKED_LM,
    hub_id="FacebookAI/xlm-mlm-xnli15-1024",
    note="Streams alone, no translation pairs (section 3.3). " + _LANGUAGES_NOTE + _NOT_MOSES_NOTE,
)
XLM_MLM_EN_2048 = replace(
    XLM_MLM_TLM_XNLI15_1024,
    name="xlm-mlm-en-2048",
    architecture=replace(
        XNLI_15, vocab_size=30_145, d_model=2048, n_heads=16, d_ff=8192, n_languages=1
    ),  # released configuration
    tokenizer=TokenizerSpec(BPE(vocab_size=30_145), FRAME),
    objective=MASKED_LM,
    n_parameters=667_119_041,
    hub_id="FacebookAI/xlm-mlm-en-2048",
    note="Not in the paper: English alone (released configuration). " + _NOT_MOSES_NOTE,
)
XLM_MLM_100_1280 = replace(
    XLM_MLM_EN_2048,
    name="xlm-mlm-100-1280",
    architecture=replace(
        XNLI_15, vocab_size=200_000, d_model=1280, n_layers=16, n_heads=16, d_ff=5120,
        n_languages=100, language_embeddings=False,
    ),
    tokenizer=TokenizerSpec(BPE(vocab_size=200_000), FRAME),
    n_parameters=571_696_960,
    hub_id="FacebookAI/xlm-mlm-100-1280",
    note="Not in the paper: 100 languages, which no embedding tells apart (released "
    "configuration). " + _NOT_MOSES_NOTE,
)  # fmt: skip
_MINI = bert.BERT_MINI
XLM_MINI = replace(
    XLM_MLM_TLM_XNLI15_1024,
    name="xlm-mini",
    architecture=replace(
        XNLI_15, vocab_size=8_192, d_model=128, n_layers=3, n_heads=2, d_ff=512,
        initializer=NormalInit(0.05),
    ),
    tokenizer=TokenizerSpec(BPE(vocab_size=8_192), FRAME_15),
    sequence_length=_MINI.sequence_length,
    batch_tokens=_MINI.batch_tokens,
    learning_rate=_MINI.learning_rate,
    training_options={**_MINI.training_options, "row_unit": "corpus"},
    n_parameters=1_719_296,
    hub_id=None,
    note="Not in the paper: for two CPU cores. " + _LANGUAGES_NOTE,
)  # fmt: skip

PRESETS = (
    XLM_MINI,
    XLM_MLM_XNLI15_1024,
    XLM_MLM_TLM_XNLI15_1024,
    XLM_MLM_EN_2048,
    XLM_MLM_100_1280,
)
