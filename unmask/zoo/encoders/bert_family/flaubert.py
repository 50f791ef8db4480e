"""FlauBERT: Le et al. 2020, arXiv:1912.05372.

"FlauBERT: Unsupervised Language Model Pre-training for French", with the network of XLM (Lample and
Conneau 2019, arXiv:1901.07291) for one language.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.model.architecture import POST_NORM, PRE_NORM
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import COMMON_KEYS, ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping, config_functions
from unmask.model.initialize import NormalInit
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.learned import LearnedPositions
from unmask.objectives.published import MASKED_LM
from unmask.tokenizers.spec import XLM as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import BPE
from unmask.zoo.encoders.bert_family import bert, xlm
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="FlauBERT: Unsupervised Language Model Pre-training for French",
    authors="Le, Vial, Frej, Segonne, Coavoux, Lecouteux, Allauzen, Crabbé, Besacier, Schwab",
    year=2020,
    arxiv="1912.05372",
)

BASE = Architecture(
    vocab_size=68_729,  # released configuration
    d_model=768,  # section 3.2: as BERT's
    n_layers=12,
    n_heads=12,
    d_ff=3072,
    position=LearnedPositions(512),  # released configuration
    norm=LayerNorm(eps=1e-12),  # released configuration
    embedding_norm=True,  # released code
    dropout=0.1,  # released code
    attention_dropout=0.1,
    initializer=NormalInit(0.02),  # released configuration; there, of token vectors 0.022
)
_PRE_NORM_OPTIONS = {"norm": LayerNorm(eps=1e-6), "norm_placement": PRE_NORM, "layer_dropout": 0.2}
"""Pre-norm without a final norm, and stochastic depth of one layer in five (released configurations
and code; section 3.2 of the large one)."""
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
        "layer_dropout": "layerdrop",
        "initializer.std": "init_std",
    },
    BASE,
    {
        "asm": False,
        "causal": False,
        "is_encoder": True,
        "n_langs": 1,
        "sinusoidal_embeddings": False,
        "summary_type": "first",
        "summary_use_proj": True,
        "summary_proj_to_labels": True,
        "summary_activation": None,
    },
)


def _read_config(config: Mapping[str, Any]) -> Architecture:
    a = _READ_CONFIG(config)
    return replace(
        a,
        d_ff=4 * a.d_model,
        norm_placement=PRE_NORM if config.get("pre_norm", False) else POST_NORM,
        activation="gelu" if config.get("gelu_activation", True) else "relu",
    )


def _write_config(a: Architecture) -> dict[str, Any]:
    if a.d_ff != 4 * a.d_model or a.norm_placement not in (PRE_NORM, POST_NORM):
        raise ValueError(
            "FlauBERT's format has d_ff = 4 * d_model and norms before or after sublayers, "
            f"got d_ff {a.d_ff}, d_model {a.d_model}, norm_at {sorted(a.norm_placement)}"
        )
    if a.activation not in ("gelu", "relu"):
        raise ValueError(f"FlauBERT's format has gelu or relu, got {a.activation}")
    return _WRITE_CONFIG(a) | {
        "pre_norm": a.norm_placement == PRE_NORM,
        "gelu_activation": a.activation == "gelu",
    }


CONFIG_KEYS = ConfigKeys(
    """
    vocab_size               used      size
    n_words                  alias     vocab_size
    emb_dim                  used      size
    n_layers                 used      layers
    n_heads                  used      size@emb_dim
    hidden_size              alias     emb_dim
    num_hidden_layers        alias     n_layers
    num_attention_heads      alias     n_heads
    max_position_embeddings  used      size       512
    pre_norm                 used      flag       false
    gelu_activation          used      flag       true
    layer_norm_eps           used      positive   1e-12
    dropout                  used      share      0.1
    attention_dropout        used      share      0.1
    layerdrop                used      share      0.0
    embed_init_std           harmless  number
    init_std                 used      number     0.02
    tie_word_embeddings      used      flag       true
    asm                      fixed     false
    causal                   fixed     false
    is_encoder               fixed     true
    n_langs                  fixed     1
    use_lang_emb             harmless
    lang_id                  harmless
    sinusoidal_embeddings    fixed     false
    summary_type             fixed     first
    summary_use_proj         fixed     true
    summary_activation       fixed     null
    summary_proj_to_labels   fixed     true
    summary_first_dropout    harmless  share
    summary_last_dropout     harmless  share
    start_n_top              harmless
    end_n_top                harmless
    bos_index                harmless
    eos_index                harmless
    pad_index                harmless
    unk_index                harmless
    mask_index               harmless
    mask_token_id            harmless
    asm_cutoffs              harmless
    asm_div_value            harmless
    id2lang                  harmless
    lang2id                  harmless
    """,
    COMMON_KEYS,
)


def _unsupported_combination(a: Architecture, specs: Mapping[str, Any]) -> str | None:
    if a.norm_placement != PRE_NORM:
        return None
    return (
        "transformers 5.23 raises an error for FlauBERT with pre-norm (it asks "
        "its cache for a layer); `unmask.load` loads it"
    )


CONFIG_MAPPING = ConfigMapping(
    model_type="flaubert",
    config_keys=CONFIG_KEYS,
    to_architecture=_read_config,
    from_architecture=_write_config,
    difference=_unsupported_combination,
    class_names={
        ("language",): "FlaubertWithLMHeadModel",
        ("label",): "FlaubertForSequenceClassification",
        ("token_label",): "FlaubertForTokenClassification",
        ("spans",): "FlaubertForQuestionAnsweringSimple",
        (): "FlaubertModel",
    },
)

FLAUBERT_BASE_CASED = Published(
    name="flaubert-base-cased",
    family="flaubert",
    paper=PAPER,
    architecture=BASE,
    heads=xlm.HEADS,
    classification_head=xlm.CLASSIFICATION_HEAD,  # released code
    objective=MASKED_LM,  # section 3.2: no next sentence
    tokenizer=TokenizerSpec(BPE(vocab_size=68_729), FRAME),
    sequence_length=512,  # released code
    batch_tokens=8192 * 512,  # section 3.2
    learning_rate=6e-4,  # section 3.2
    training_options={
        "schedule": {"kind": "InverseSquareRoot", "warmup": 24_000},  # section 3.2; released code
        "steps": 500_000,  # as RoBERTa: section 3.2 gives hours, 410 on 32 V100
        "optimizer": {
            "kind": "AdamW", "betas": [0.9, 0.98], "eps": 1e-6, "weight_decay": 0.01,
        },  # section 3.2
    },
    n_parameters=138_301_817,
    weight_names=xlm.WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="flaubert/flaubert_base_cased",
    note="Pre-tokenized by Moses (section 3.2); vocabularies trained here, as BERT's.",
)  # fmt: skip
FLAUBERT_BASE_UNCASED = replace(
    FLAUBERT_BASE_CASED,
    name="flaubert-base-uncased",
    architecture=replace(BASE, vocab_size=67_542),
    tokenizer=TokenizerSpec(BPE(vocab_size=67_542, lowercase=True), FRAME),
    n_parameters=137_389_014,
    hub_id="flaubert/flaubert_base_uncased",
)
FLAUBERT_SMALL_CASED = replace(
    FLAUBERT_BASE_CASED,
    name="flaubert-small-cased",
    architecture=replace(BASE, d_model=512, n_layers=6, n_heads=8, d_ff=2048, **_PRE_NORM_OPTIONS),  # type: ignore[arg-type]
    n_parameters=54_435_449,
    hub_id="flaubert/flaubert_small_cased",
    note="Not in the paper, and only partly trained (released notes).",
)
FLAUBERT_LARGE_CASED = replace(
    FLAUBERT_BASE_CASED,
    name="flaubert-large-cased",
    architecture=replace(
        BASE, d_model=1024, n_layers=24, n_heads=16, d_ff=4096, **_PRE_NORM_OPTIONS
    ),  # type: ignore[arg-type]
    learning_rate=3e-4,  # section 3.2
    training_options={
        **FLAUBERT_BASE_CASED.training_options,
        "schedule": {"kind": "InverseSquareRoot", "warmup": 30_000},  # section 3.2
    },
    n_parameters=373_282_937,
    hub_id="flaubert/flaubert_large_cased",
    note="Pre-norm, and stochastic depth (section 3.2).",
)
_MINI = bert.BERT_MINI
FLAUBERT_MINI = replace(
    FLAUBERT_BASE_CASED,
    name="flaubert-mini",
    architecture=replace(
        BASE, vocab_size=8_192, d_model=256, n_layers=4, n_heads=4, d_ff=1024,
        initializer=NormalInit(0.05),
    ),
    tokenizer=TokenizerSpec(BPE(vocab_size=8_192), FRAME),
    sequence_length=_MINI.sequence_length,
    batch_tokens=_MINI.batch_tokens,
    learning_rate=_MINI.learning_rate,
    training_options=_MINI.training_options,
    n_parameters=5_395_968,
    hub_id=None,
    note="Not in the paper: for two CPU cores, with the width and depth of bert-mini.",
)  # fmt: skip

PRESETS = (
    FLAUBERT_MINI,
    FLAUBERT_SMALL_CASED,
    FLAUBERT_BASE_UNCASED,
    FLAUBERT_BASE_CASED,
    FLAUBERT_LARGE_CASED,
)
