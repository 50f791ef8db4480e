"""BERT: Devlin et al. 2019, arXiv:1810.04805.

"BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding".
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import COMMON_KEYS, ConfigKeys
from unmask.model.exchange.config_mapping import (
    ConfigMapping,
    config_functions,
    read_activation,
    with_is_decoder,
)
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.learned import LearnedPositions
from unmask.objectives.published import BERT as MASKED_AND_NEXT
from unmask.objectives.published import BERT_WHOLE_WORD as WHOLE_WORDS_AND_NEXT
from unmask.tokenizers.spec import BERT as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import WordPiece
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
    authors="Devlin, Chang, Lee, Toutanova",
    year=2019,
    arxiv="1810.04805",
)
MINIATURES = Paper(
    title="Well-Read Students Learn Better: On the Importance of Pre-training Compact Models",
    authors="Turc, Chang, Lee, Toutanova",
    year=2019,
    arxiv="1908.08962",
)

BASE = Architecture(
    vocab_size=30_522,
    d_model=768,  # section 3
    n_layers=12,
    n_heads=12,
    d_ff=3072,  # four times d_model, section 3, note 3
    n_segments=2,
    position=LearnedPositions(512),  # appendix A.2
    norm=LayerNorm(eps=1e-12),  # released code
    embedding_norm=True,  # released code
    dropout=0.1,  # appendix A.2
    attention_dropout=0.1,
    initializer=NormalInit(0.02, truncated=True),  # released code
)
HEADS = {
    "language": LanguageModeling(term="masked", transform="gelu", bias=True),
    "next_sentence": SequenceClassification(term="next_sentence", n_labels=2),
}
CLASSIFICATION_HEAD = SequenceClassification()

WEIGHT_NAMES = WeightNames(
    """
    backbone.tokens                              bert.embeddings.word_embeddings
    backbone.position.table                      bert.embeddings.position_embeddings
    backbone.segments                            bert.embeddings.token_type_embeddings
    backbone.embed_norm                          bert.embeddings.LayerNorm
    backbone.layers.*.attention.q                bert.encoder.layer.*.attention.self.query
    backbone.layers.*.attention.k                bert.encoder.layer.*.attention.self.key
    backbone.layers.*.attention.v                bert.encoder.layer.*.attention.self.value
    backbone.layers.*.attention.o                bert.encoder.layer.*.attention.output.dense
    backbone.layers.*.attention_norm.after       bert.encoder.layer.*.attention.output.LayerNorm
    backbone.layers.*.feed_forward.up            bert.encoder.layer.*.intermediate.dense
    backbone.layers.*.feed_forward.down          bert.encoder.layer.*.output.dense
    backbone.layers.*.feed_forward_norm.after    bert.encoder.layer.*.output.LayerNorm
    heads.next_sentence.dense                    bert.pooler.dense
    heads.label.dense                            bert.pooler.dense
    heads.choice.dense                           bert.pooler.dense
    pooler.dense                                 bert.pooler.dense
    heads.language.dense                         cls.predictions.transform.dense
    heads.language.norm                          cls.predictions.transform.LayerNorm
    heads.language.bias                          cls.predictions.bias
    heads.language.bias                          cls.predictions.decoder.bias             instead
    heads.language.out                           cls.predictions.decoder
    backbone.tokens                              cls.predictions.decoder                  tied
    heads.next_sentence.out                      cls.seq_relationship
    heads.label.out                              classifier
    heads.choice.out                             classifier
    heads.token_label.out                        classifier
    heads.spans.out                              qa_outputs
    -                                            bert.embeddings.position_ids
    """,
    prefix="bert.",
)


def backbone_names(module: str) -> str:
    """Return the lines of the backbone, for a family with another prefix than `bert`."""
    lines = [line.split() for line in WEIGHT_NAMES.table.splitlines() if line.split()]
    return "\n".join(
        " ".join(line).replace(" bert.", f" {module}.")
        for line in lines
        if line[0].startswith("backbone.") and "tied" not in line
    )


FIELD_TABLE = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "d_ff": "intermediate_size",
    "n_segments": "type_vocab_size",
    "position.max_positions": "max_position_embeddings",
    "norm.eps": "layer_norm_eps",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "initializer.std": "initializer_range",
}
"""Internal field -> configuration key."""
FIXED = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
CONFIG_KEYS = ConfigKeys(
    """
    vocab_size                    used      size
    hidden_size                   used      size
    num_hidden_layers             used      layers
    num_attention_heads           used      size@hidden_size
    intermediate_size             used      size       3072
    hidden_act                    used      word       gelu
    hidden_dropout_prob           used      share      0.1
    attention_probs_dropout_prob  used      share      0.1
    max_position_embeddings       used      size       512
    type_vocab_size               used      size       2
    initializer_range             used      number     0.02
    layer_norm_eps                used      positive   1e-12
    classifier_dropout            harmless  share?
    tie_word_embeddings           used      flag       true
    position_embedding_type       fixed     absolute
    is_decoder                    fixed     false
    add_cross_attention           fixed     false
    """,
    COMMON_KEYS,
)
"""Also of families with BERT's configuration and a few more keys."""
CAUSAL_CLASS_NAMES = ConfigKeys("is_decoder used flag false\nis_causal fixed", CONFIG_KEYS)
"""The same for formats with causal attention by `is_decoder`."""
_READ_CONFIG, _WRITE_CONFIG = with_is_decoder(*config_functions(FIELD_TABLE, BASE, FIXED))
CONFIG_MAPPING = ConfigMapping(
    model_type="bert",
    config_keys=CAUSAL_CLASS_NAMES,
    to_architecture=_READ_CONFIG,
    from_architecture=_WRITE_CONFIG,
    class_names={
        ("language", "next_sentence"): "BertForPreTraining",
        ("language",): "BertForMaskedLM",
        ("next_sentence",): "BertForNextSentencePrediction",
        ("label",): "BertForSequenceClassification",
        ("choice",): "BertForMultipleChoice",
        ("token_label",): "BertForTokenClassification",
        ("spans",): "BertForQuestionAnswering",
        (): "BertModel",
    },
    causal_class_names={("language",): "BertLMHeadModel"},
    read_language_head=lambda theirs: {
        "transform": read_activation(theirs.get("hidden_act", "gelu"), "hidden_act")
    },
)

BERT_BASE_UNCASED = Published(
    name="bert-base-uncased",
    family="bert",
    paper=PAPER,
    architecture=BASE,
    heads=HEADS,
    classification_head=CLASSIFICATION_HEAD,
    pooler_head="next_sentence",
    objective=MASKED_AND_NEXT,
    tokenizer=TokenizerSpec(WordPiece(30_522, lowercase=True), FRAME),
    sequence_length=512,  # appendix A.2: 128 for 90 % of the steps
    batch_tokens=256 * 512,  # appendix A.2
    learning_rate=1e-4,  # appendix A.2
    training_options={
        "schedule": {"kind": "Linear", "warmup": 10_000},  # appendix A.2
        "steps": 1_000_000,
        "optimizer": {"kind": "AdamW", "betas": [0.9, 0.999], "weight_decay": 0.01},
    },
    n_parameters=110_106_428,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="google-bert/bert-base-uncased",
)


def _with_size(name: str, parameters: int, **changes: int) -> Published:
    """Return the uncased model in another size."""
    architecture = replace(BASE, **changes)
    return replace(
        BERT_BASE_UNCASED,
        name=name,
        architecture=architecture,
        n_parameters=parameters,
        hub_id=f"google-bert/{name}",
    )


BERT_LARGE_UNCASED = _with_size(
    "bert-large-uncased", 336_226_108, d_model=1024, n_layers=24, n_heads=16, d_ff=4096
)
BERT_LARGE_WHOLE_WORD = replace(
    BERT_LARGE_UNCASED,
    name="bert-large-uncased-whole-word-masking",
    hub_id="google-bert/bert-large-uncased-whole-word-masking",
    objective=WHOLE_WORDS_AND_NEXT,
    note="Whole-word masking: released code of 31 May 2019, not in the paper.",
)
BERT_BASE_CASED = replace(
    _with_size("bert-base-cased", 108_932_934, vocab_size=28_996),
    tokenizer=TokenizerSpec(WordPiece(28_996, lowercase=False), FRAME),
)
BERT_LARGE_CASED = replace(
    BERT_LARGE_UNCASED,
    name="bert-large-cased",
    hub_id="google-bert/bert-large-cased",
    architecture=replace(BERT_LARGE_UNCASED.architecture, vocab_size=28_996),
    n_parameters=334_661_958,
    tokenizer=BERT_BASE_CASED.tokenizer,
)
BERT_BASE_MULTILINGUAL = replace(
    _with_size("bert-base-multilingual-cased", 178_566_653, vocab_size=119_547),
    tokenizer=TokenizerSpec(WordPiece(119_547, lowercase=False), FRAME),
    note="104 languages, smaller ones sampled more often (released notes): "
    "`--sampling-exponent 0.7`.",
)

BERT_MEDIUM = replace(
    _with_size("bert-medium", 41_668_412, d_model=512, n_layers=8, n_heads=8, d_ff=2048),
    paper=MINIATURES,
    hub_id="google/bert_uncased_L-8_H-512_A-8",
)
BERT_SMALL = replace(
    _with_size("bert-small", 29_058_876, d_model=512, n_layers=4, n_heads=8, d_ff=2048),
    paper=MINIATURES,
    hub_id="google/bert_uncased_L-4_H-512_A-8",
)


MINI_TRAINING: Mapping[str, Any] = {
    "optimizer": {"kind": "Muon"},
    "schedule": {"kind": "WSD", "warmup": 0.02, "decay": 0.3},
    "dropout": 0.0,
}
"""Settings that leave the unigram plateau within minutes: docs/log.md, 2026-11-21."""
MINI_MULTI_LOSS_TRAINING: Mapping[str, Any] = {**MINI_TRAINING, "init_previous_token_heads": 2}
"""The same for masked models with learned positions: docs/log.md, 2026-11-22."""


NEXT_SENTENCE_TRAINING: Mapping[str, Any] = {"row_unit": "sentences"}
"""Rows of full sentences of one document, as in released code. A small network with learned
positions leaves the unigram plateau much sooner than with arbitrary rows (docs/log.md); in ALBERT's
sentence order, a truncated start would give the label away."""


def _mini(name: str, parameters: int, **changes: int) -> Published:
    """Return a size of Turc et al. 2019 with a small vocabulary and length."""
    architecture = replace(
        BASE, vocab_size=8_192, initializer=NormalInit(0.05, truncated=True), **changes
    )
    return replace(
        BERT_BASE_UNCASED,
        name=name,
        paper=MINIATURES,
        architecture=architecture,
        tokenizer=TokenizerSpec(WordPiece(8_192, lowercase=True), FRAME),
        sequence_length=128,
        batch_tokens=4_096,
        learning_rate=3e-3,
        training_options=MINI_MULTI_LOSS_TRAINING,
        n_parameters=parameters,
        hub_id=None,
        note="Width and depth of Turc et al. 2019; the vocabulary is 8,192 tokens, there 30,522.",
    )


BERT_MINI = _mini("bert-mini", 5_529_090, d_model=256, n_layers=4, n_heads=4, d_ff=1024)
BERT_TINY = _mini("bert-tiny", 1_552_898, d_model=128, n_layers=2, n_heads=2, d_ff=512)

PRESETS = (
    BERT_TINY,
    BERT_MINI,
    BERT_SMALL,
    BERT_MEDIUM,
    BERT_BASE_UNCASED,
    BERT_BASE_CASED,
    BERT_LARGE_UNCASED,
    BERT_LARGE_CASED,
    BERT_LARGE_WHOLE_WORD,
    BERT_BASE_MULTILINGUAL,
)
