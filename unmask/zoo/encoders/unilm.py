"""UniLM: Dong et al. 2019, arXiv:1905.03197.

"Unified Language Model Pre-training for Natural Language Understanding and Generation": BERT's
network with masked tokens under bidirectional, unidirectional and seq2seq attention. "Released
code" is the folder unilm-v1 of github.com/microsoft/unilm.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import AppendedMaskGeneration, LanguageModeling
from unmask.heads.model import Model
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.model.exchange.config_mapping import config_functions
from unmask.objectives.published import UNILM as FOUR_WAYS
from unmask.objectives.unified_lm.masked_target import MaskedTarget
from unmask.zoo.encoders.bert_family import bert
from unmask.zoo.preset import FinetuningDefaults, Paper, Published

PAPER = Paper(
    title="Unified Language Model Pre-training for Natural Language Understanding and Generation",
    authors="Dong, Yang, Wang, Wei, Liu, Wang, Gao, Zhou, Hon",
    year=2019,
    arxiv="1905.03197",
)

SEGMENTS = {0: 0, 1: 1, 2: 0, 3: 0, 4: 0, 5: 1}
"""BERT's segment that initializes each segment (released code, `from_pretrained`)."""
FORWARD_SEGMENT, SOURCE_SEGMENT, TARGET_SEGMENT = 2, 4, 5
BASE = replace(
    bert.BASE,
    vocab_size=28_996,  # section 2.4
    n_segments=len(SEGMENTS),  # section 2.1: they mark the attention pattern; number: released code
)
HEADS = {
    "language": LanguageModeling(
        term="masked",
        transform="gelu",
        bias=True,
        generation=AppendedMaskGeneration(FORWARD_SEGMENT),
    ),
    "next_sentence": SequenceClassification(
        term="next_sentence", n_labels=2
    ),  # section 2.3, "Bidirectional LM"
}

FINE_TUNING = FinetuningDefaults(
    seq2seq_target=MaskedTarget(rate=0.7, segment_ids=(SOURCE_SEGMENT, TARGET_SEGMENT))
)  # section 2.5

_READ_CONFIG, _WRITE_CONFIG = config_functions(bert.FIELD_TABLE, BASE, bert.FIXED)
_KEYS = {"source_type_id": SOURCE_SEGMENT, "target_type_id": TARGET_SEGMENT}
"""Keys that BERT's configuration lacks (the authors' folder s2s-ft, `UnilmConfig`)."""
_GENERATION_KEYS = "answers_sources"
"""Unmask's key in the configuration of a model fine-tuned on sources and targets."""


def _write_config(a: Architecture) -> dict[str, Any]:
    return _WRITE_CONFIG(a) | _KEYS


def _read_language_head(config: Mapping[str, Any]) -> dict[str, Any]:
    value = {"generation": FINE_TUNING.generation} if config.get(_GENERATION_KEYS) else {}
    return bert.CONFIG_MAPPING.read_language_head(config) | value


def _write_language_head(spec: LanguageModeling) -> dict[str, Any]:
    return {_GENERATION_KEYS: True} if spec.generation == FINE_TUNING.generation else {}


CONFIG_KEYS = ConfigKeys(
    """
    source_type_id    used  count  -
    target_type_id    used  count  -
    answers_sources   used  flag   -
    """,
    bert.CONFIG_KEYS,
)
CONFIG_MAPPING = replace(
    bert.CONFIG_MAPPING,
    config_keys=CONFIG_KEYS,
    to_architecture=_READ_CONFIG,
    from_architecture=_write_config,
    causal_class_names={},
    read_language_head=_read_language_head,
    write_language_head=_write_language_head,
    identifying_keys=frozenset(_KEYS),
)


@torch.no_grad()
def convert_from_bert(short: Model, requested: Architecture) -> Model:
    """Give BERT the segments of UniLM, initialized as copies of its two (released code).

    Raises:
        ValueError: it does not have two segments, or the requested number is not UniLM's.
    """
    theirs, n = short.architecture, requested.n_segments
    if not isinstance(theirs, Architecture) or theirs.n_segments != 2 or n != len(SEGMENTS):
        raise ValueError(
            f"UniLM is initialized from a BERT of two segments and has {len(SEGMENTS)}"
        )
    specs = {
        name: replace(spec, generation=AppendedMaskGeneration(FORWARD_SEGMENT))
        if isinstance(spec, LanguageModeling)
        else spec
        for name, spec in short.head_specs.items()
    }
    model = Model(replace(theirs, n_segments=n), specs, short.unused_pooler)
    weights = short.state_dict()
    name = "backbone.segments.weight"
    weights[name] = weights[name][torch.tensor(list(SEGMENTS.values()))]
    model.load_state_dict(weights)
    return model.train(short.training)


UNILM_LARGE = Published(
    name="unilm-large-cased",
    family="unilm",
    paper=PAPER,
    architecture=replace(BASE, d_model=1024, n_layers=24, n_heads=16, d_ff=4096),  # section 2.4
    heads=HEADS,
    classification_head=bert.CLASSIFICATION_HEAD,
    pooler_head="next_sentence",
    finetuning=FINE_TUNING,
    objective=FOUR_WAYS,
    tokenizer=bert.BERT_LARGE_CASED.tokenizer,  # section 2.4
    sequence_length=512,  # section 2.4
    batch_tokens=330 * 512,  # section 2.4
    learning_rate=3e-5,  # section 2.4
    training_options={
        "schedule": {"kind": "Linear", "warmup": 40_000},  # section 2.4
        "steps": 770_000,  # section 2.4
        "optimizer": {"kind": "AdamW", "betas": [0.9, 0.999], "weight_decay": 0.01},  # section 2.4
    },
    n_parameters=334_666_054,
    weight_names=bert.WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    weight_converters={"bert": convert_from_bert},
    hub_id="microsoft/unilm-large-cased",
    note="Initialized from bert-large-cased (`--from`). Text is generated by masks, with causal "
    "attention; fine-tuned (`--task generate`), which masks only target tokens, it generates "
    "targets with bidirectional attention to sources.",
)
UNILM_BASE = replace(
    UNILM_LARGE,
    name="unilm-base-cased",
    architecture=BASE,  # released weights; not in the paper
    n_parameters=108_936_006,
    hub_id="microsoft/unilm-base-cased",
)
_MINI = bert.BERT_MINI
UNILM_MINI = replace(
    UNILM_BASE,
    name="unilm-mini",
    architecture=replace(_MINI.architecture, n_segments=len(SEGMENTS)),  # type: ignore[type-var]
    tokenizer=_MINI.tokenizer,
    sequence_length=_MINI.sequence_length,
    batch_tokens=_MINI.batch_tokens,
    learning_rate=_MINI.learning_rate,
    training_options=bert.MINI_MULTI_LOSS_TRAINING,
    n_parameters=5_530_114,
    hub_id=None,
    note="Not in the paper: for two CPU cores, with the width and depth of bert-mini; from "
    "scratch, or with bert-mini's weights.",
)

PRESETS = (UNILM_MINI, UNILM_BASE, UNILM_LARGE)
