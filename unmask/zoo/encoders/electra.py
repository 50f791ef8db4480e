"""ELECTRA: Clark et al. 2020, arXiv:2003.10555.

"ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators".
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.pretraining.generator import Generator
from unmask.heads.pretraining.replaced_token_detection import ReplacedTokenDetection
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping, config_functions, with_is_decoder
from unmask.model.exchange.weight_names import WeightNames
from unmask.objectives.published import ELECTRA as FILLED_IN
from unmask.zoo.encoders.bert_family import bert
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators",
    authors="Clark, Luong, Le, Manning",
    year=2020,
    arxiv="2003.10555",
)

SMALL_ARCHITECTURE = replace(
    bert.BASE,
    d_model=256,  # table 6
    n_layers=12,
    n_heads=4,
    d_ff=1024,
    embedding_size=128,
)
HEADS = {"generator": Generator(width_factor=1 / 4), "replaced": ReplacedTokenDetection()}

WEIGHT_NAMES = WeightNames(
    bert.backbone_names("electra")
    + """
    backbone.widen                               electra.embeddings_project
    heads.replaced.dense                         discriminator_predictions.dense
    heads.replaced.out                           discriminator_predictions.dense_prediction
    heads.language.dense                         generator_predictions.dense
    heads.language.norm                          generator_predictions.LayerNorm
    heads.language.bias                          generator_lm_head.bias
    heads.language.out                           generator_lm_head
    backbone.tokens                              generator_lm_head                        tied
    heads.label.dense                            classifier.dense
    heads.label.out                              classifier.out_proj
    heads.choice.dense                           sequence_summary.summary
    heads.choice.out                             classifier
    heads.token_label.out                        classifier
    heads.spans.out                              qa_outputs
    -                                            electra.embeddings.position_ids
    """,
    prefix="electra.",
)
_READ_CONFIG, _WRITE_CONFIG = with_is_decoder(
    *config_functions(
        {**bert.FIELD_TABLE, "embedding_size": "embedding_size"}, SMALL_ARCHITECTURE, bert.FIXED
    )
)


def _read_config(config: Mapping[str, Any]) -> Architecture:
    a = _READ_CONFIG(config)
    return replace(a, embedding_size=None if a.embedding_size == a.d_model else a.embedding_size)


def _write_config(a: Architecture) -> dict[str, Any]:
    return _WRITE_CONFIG(a) | {"embedding_size": a.d_embed}


CONFIG_KEYS = ConfigKeys(
    """
    embedding_size          used      size       128
    intermediate_size       used      size       1024
    summary_type            fixed     first
    summary_use_proj        fixed     true
    summary_activation      fixed     gelu
    summary_proj_to_labels  fixed     false
    summary_first_dropout   harmless  share
    summary_last_dropout    harmless  share
    """,
    bert.CAUSAL_CLASS_NAMES,
)
"""Summary keys are for the multiple-choice head."""
CONFIG_MAPPING = ConfigMapping(
    model_type="electra",
    config_keys=CONFIG_KEYS,
    to_architecture=_read_config,
    from_architecture=_write_config,
    class_names={
        ("replaced",): "ElectraForPreTraining",
        ("language",): "ElectraForMaskedLM",
        ("label",): "ElectraForSequenceClassification",
        ("choice",): "ElectraForMultipleChoice",
        ("token_label",): "ElectraForTokenClassification",
        ("spans",): "ElectraForQuestionAnswering",
        (): "ElectraModel",
    },
    causal_class_names={("language",): "ElectraForCausalLM"},
)

ELECTRA_SMALL = Published(
    name="electra-small",
    family="electra",
    paper=PAPER,
    architecture=SMALL_ARCHITECTURE,
    heads=HEADS,
    extra_heads={
        "language": LanguageModeling(term="masked", transform="gelu", bias=True)
    },  # of generators
    classification_head=SequenceClassification(activation="gelu"),  # released code
    objective=FILLED_IN,
    tokenizer=bert.BERT_BASE_UNCASED.tokenizer,  # section 3.1: BERT's text and vocabulary
    sequence_length=128,  # released code, `configure_pretraining.py`
    batch_tokens=128 * 128,  # table 6
    learning_rate=5e-4,  # table 6
    training_options={
        **bert.NEXT_SENTENCE_TRAINING,  # released code, `build_pretraining_dataset.py`
        "schedule": {"kind": "Linear", "warmup": 10_000},  # table 6
        "steps": 1_000_000,  # table 6
        "optimizer": {
            "kind": "AdamW",
            "betas": [0.9, 0.999],
            "eps": 1e-6,
            "weight_decay": 0.01,  # table 6
        },
    },
    n_parameters=13_549_057,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="google/electra-small-discriminator",
    note="The discriminator is saved; its generator is in the folder `generator` of a run. The "
    "released code splits nine rows of ten in two, separated by [SEP]; here a row is one text.",
)
ELECTRA_BASE = replace(
    ELECTRA_SMALL,
    name="electra-base",
    architecture=bert.BASE,  # table 6
    heads={
        "generator": Generator(width_factor=1 / 3),
        "replaced": ReplacedTokenDetection(),
    },  # table 6
    sequence_length=512,  # same place
    batch_tokens=256 * 512,  # table 6
    learning_rate=2e-4,  # table 6
    training_options={**ELECTRA_SMALL.training_options, "steps": 766_000},  # table 6
    n_parameters=109_483_009,
    hub_id="google/electra-base-discriminator",
)
ELECTRA_LARGE = replace(
    ELECTRA_BASE,
    name="electra-large",
    architecture=replace(bert.BASE, d_model=1024, n_layers=24, n_heads=16, d_ff=4096),
    heads=HEADS,  # table 6
    objective=replace(FILLED_IN, select=replace(FILLED_IN.select, rate=0.25)),  # table 6
    batch_tokens=2048 * 512,  # table 6
    training_options={**ELECTRA_SMALL.training_options, "steps": 400_000},  # table 6
    n_parameters=335_142_913,
    hub_id="google/electra-large-discriminator",
)
_MINI = bert.BERT_MINI
ELECTRA_MINI = replace(
    ELECTRA_SMALL,
    name="electra-mini",
    architecture=replace(_MINI.architecture, embedding_size=128),  # type: ignore[type-var]
    heads={"generator": Generator(width_factor=1 / 2), "replaced": ReplacedTokenDetection()},
    tokenizer=_MINI.tokenizer,
    sequence_length=_MINI.sequence_length,
    batch_tokens=_MINI.batch_tokens,
    learning_rate=_MINI.learning_rate,
    training_options={**bert.MINI_MULTI_LOSS_TRAINING, **bert.NEXT_SENTENCE_TRAINING},
    n_parameters=4_372_737,
    hub_id=None,
    note="Not in the paper: for two CPU cores, with the width and depth of bert-mini.",
)

PRESETS = (ELECTRA_MINI, ELECTRA_SMALL, ELECTRA_BASE, ELECTRA_LARGE)
