"""ALBERT: Lan et al. 2020, arXiv:1909.11942.

"ALBERT: A Lite BERT for Self-supervised Learning of Language Representations".
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping, config_functions, read_activation
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.variants import LayerVariants, Sublayer
from unmask.objectives.published import ALBERT as NGRAMS_AND_ORDER
from unmask.tokenizers.spec import ALBERT as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import Unigram
from unmask.zoo.encoders.bert_family import bert
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="ALBERT: A Lite BERT for Self-supervised Learning of Language Representations",
    authors="Lan, Chen, Goodman, Gimpel, Sharma, Soricut",
    year=2020,
    arxiv="1909.11942",
)

ALL_SUBLAYERS: frozenset[Sublayer] = frozenset({"attention", "feed_forward"})
BASE = replace(
    bert.BASE,
    vocab_size=30_000,  # section 4.1
    embedding_size=128,  # table 1
    # section 3.1; table 4 has the other three
    layers=LayerVariants(shared_sublayers=ALL_SUBLAYERS),
    activation="gelu_tanh",  # released code
    dropout=0.0,  # section 4.8; of the second version for all sizes
    attention_dropout=0.0,
    initializer=NormalInit(0.02, truncated=True),  # released code
)
HEADS = {
    "language": LanguageModeling(term="masked", transform="gelu_tanh", bias=True),
    "sentence_order": SequenceClassification(term="sentence_order", n_labels=2),
}

_LAYER = "albert.encoder.albert_layer_groups.*.albert_layers.0"
_HEADS = """
    heads.sentence_order.dense                   albert.pooler
    heads.label.dense                            albert.pooler
    heads.choice.dense                           albert.pooler
    pooler.dense                                 albert.pooler
    heads.language.dense                         predictions.dense
    heads.language.norm                          predictions.LayerNorm
    heads.language.bias                          predictions.bias
    heads.language.bias                          predictions.decoder.bias                 instead
    heads.language.out                           predictions.decoder
    backbone.tokens                              predictions.decoder                      tied
    heads.sentence_order.out                     sop_classifier.classifier
    heads.label.out                              classifier
    heads.choice.out                             classifier
    heads.token_label.out                        classifier
    heads.spans.out                              qa_outputs
    -                                            albert.embeddings.position_ids
"""
WEIGHT_NAMES = WeightNames(
    f"""
    backbone.tokens                              albert.embeddings.word_embeddings
    backbone.position.table                      albert.embeddings.position_embeddings
    backbone.segments                            albert.embeddings.token_type_embeddings
    backbone.embed_norm                          albert.embeddings.LayerNorm
    backbone.widen                               albert.encoder.embedding_hidden_mapping_in
    backbone.layers.*.attention.q                {_LAYER}.attention.query
    backbone.layers.*.attention.k                {_LAYER}.attention.key
    backbone.layers.*.attention.v                {_LAYER}.attention.value
    backbone.layers.*.attention.o                {_LAYER}.attention.dense
    backbone.layers.*.attention_norm.after       {_LAYER}.attention.LayerNorm
    backbone.layers.*.feed_forward.up            {_LAYER}.ffn
    backbone.layers.*.feed_forward.down          {_LAYER}.ffn_output
    backbone.layers.*.feed_forward_norm.after    {_LAYER}.full_layer_layer_norm
    {_HEADS}
    """,
    prefix="albert.",
)
_READ_CONFIG, _WRITE_CONFIG = config_functions(
    {**bert.FIELD_TABLE, "embedding_size": "embedding_size"}, BASE, bert.FIXED
)


def _read_config(config: Mapping[str, Any]) -> Architecture:
    a, groups = _READ_CONFIG(config), config.get("num_hidden_groups", 1)
    if groups not in (1, a.n_layers):
        raise ValueError(
            f"num_hidden_groups = {groups} is not supported, only 1 (all layers shared) "
            f"and {a.n_layers} (none)"
        )
    shared = ALL_SUBLAYERS if groups == 1 else frozenset[Sublayer]()
    return replace(a, layers=LayerVariants(shared_sublayers=shared))


def _write_config(a: Architecture) -> dict[str, Any]:
    if a.layers.shared_sublayers not in (ALL_SUBLAYERS, frozenset()):
        raise ValueError(
            "ALBERT's format has layers that share all or nothing, got "
            f"{sorted(a.layers.shared_sublayers)}"
        )
    return _WRITE_CONFIG(a) | {"num_hidden_groups": 1 if a.layers.shared_sublayers else a.n_layers}


CONFIG_KEYS = ConfigKeys(
    """
    embedding_size                used      size       128
    intermediate_size             used      size       16384
    hidden_act                    used      word       gelu_new
    hidden_dropout_prob           used      share      0.0
    attention_probs_dropout_prob  used      share      0.0
    classifier_dropout_prob       harmless  share
    num_hidden_groups             used      size       1
    inner_group_num               fixed     1
    """,
    bert.CONFIG_KEYS,
)
CONFIG_MAPPING = ConfigMapping(
    model_type="albert",
    config_keys=CONFIG_KEYS,
    to_architecture=_read_config,
    from_architecture=_write_config,
    class_names={
        ("language", "sentence_order"): "AlbertForPreTraining",
        ("language",): "AlbertForMaskedLM",
        ("label",): "AlbertForSequenceClassification",
        ("choice",): "AlbertForMultipleChoice",
        ("token_label",): "AlbertForTokenClassification",
        ("spans",): "AlbertForQuestionAnswering",
        (): "AlbertModel",
    },
    read_language_head=lambda theirs: {
        "transform": read_activation(theirs.get("hidden_act", "gelu_new"), "hidden_act")
    },
)

ALBERT_BASE = Published(
    name="albert-base-v2",
    family="albert",
    paper=PAPER,
    architecture=BASE,
    heads=HEADS,
    classification_head=SequenceClassification(),
    pooler_head="sentence_order",
    objective=NGRAMS_AND_ORDER,
    tokenizer=TokenizerSpec(
        Unigram(30_000, normalize_quotes_and_accents=True, lowercase=True), FRAME
    ),
    sequence_length=512,  # section 4.1
    batch_tokens=4096 * 512,  # section 4.1
    learning_rate=0.00176,  # section 4.1
    training_options={
        **bert.NEXT_SENTENCE_TRAINING,  # released code, `create_instances_from_document`
        "optimizer": {"kind": "LAMB"},  # section 4.1
        "steps": 125_000,  # section 4.1
        "schedule": {"kind": "Linear", "warmup": 3_125},  # released code
    },
    n_parameters=11_813_810,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="albert/albert-base-v2",
    note="The first version has dropout 0.1 except in its largest size.",
)


def _with_size(name: str, parameters: int, **changes: int) -> Published:
    """Return another row of the paper's table 1."""
    return replace(
        ALBERT_BASE,
        name=name,
        architecture=replace(BASE, **changes),
        n_parameters=parameters,
        hub_id=f"albert/{name}",
        note="",
    )


ALBERT_LARGE = _with_size(
    "albert-large-v2", 17_847_474, d_model=1024, n_layers=24, n_heads=16, d_ff=4096
)
ALBERT_XLARGE = _with_size(
    "albert-xlarge-v2", 59_021_490, d_model=2048, n_layers=24, n_heads=16, d_ff=8192
)
ALBERT_XXLARGE = _with_size(
    "albert-xxlarge-v2", 223_158_450, d_model=4096, n_layers=12, n_heads=64, d_ff=16_384
)
_MINI = bert.BERT_MINI
ALBERT_MINI = replace(
    ALBERT_BASE,
    name="albert-mini",
    architecture=replace(
        BASE,
        vocab_size=8_192,
        embedding_size=128,
        d_model=256,
        n_layers=4,
        n_heads=4,
        d_ff=1024,
        initializer=NormalInit(0.05, truncated=True),
    ),
    tokenizer=TokenizerSpec(
        Unigram(8_192, normalize_quotes_and_accents=True, lowercase=True), FRAME
    ),
    sequence_length=_MINI.sequence_length,
    batch_tokens=_MINI.batch_tokens,
    learning_rate=_MINI.learning_rate,
    training_options={**bert.MINI_MULTI_LOSS_TRAINING, **bert.NEXT_SENTENCE_TRAINING},
    n_parameters=2_045_058,
    hub_id=None,
    note="Not in the paper: for two CPU cores, with the width and depth of bert-mini.",
)

PRESETS = (ALBERT_MINI, ALBERT_BASE, ALBERT_LARGE, ALBERT_XLARGE, ALBERT_XXLARGE)
