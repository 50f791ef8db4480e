"""ELECTRA: Clark et al. 2020, arXiv:2003.10555.

"ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators".
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.generator import Generator
from unmask.heads.labels import Labels
from unmask.heads.language import Language
from unmask.heads.replaced import Replaced
from unmask.hiding.objectives import ELECTRA as FILLED_IN
from unmask.model.architecture import Architecture
from unmask.model.keys import Keys
from unmask.model.names import Fields, Names, by_table, or_forward
from unmask.published import bert
from unmask.published.card import Paper, Published

PAPER = Paper(
    title="ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators",
    authors="Clark, Luong, Le, Manning",
    year=2020,
    arxiv="2003.10555",
)

SMALL = replace(
    bert.BASE,
    d_model=256,  # table 6
    n_layers=12,
    n_heads=4,
    d_ff=1024,
    embed_width=128,
)
HEADS = {"generator": Generator(size=1 / 4), "replaced": Replaced()}

NAMES = Names(
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
_READ, _WRITE = or_forward(
    *by_table({**bert.TABLE, "embed_width": "embedding_size"}, SMALL, bert.FIXED)
)


def _read(theirs: Mapping[str, Any]) -> Architecture:
    a = _READ(theirs)
    return replace(a, embed_width=None if a.embed_width == a.d_model else a.embed_width)


def _write(a: Architecture) -> dict[str, Any]:
    return _WRITE(a) | {"embedding_size": a.d_embed}


KEYS = Keys(
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
    bert.FORWARD,
)
"""Summaries are what its head of choices begins with."""
FIELDS = Fields(
    model_type="electra",
    keys=KEYS,
    read=_read,
    write=_write,
    classes={
        ("replaced",): "ElectraForPreTraining",
        ("language",): "ElectraForMaskedLM",
        ("label",): "ElectraForSequenceClassification",
        ("choice",): "ElectraForMultipleChoice",
        ("token_label",): "ElectraForTokenClassification",
        ("spans",): "ElectraForQuestionAnswering",
        (): "ElectraModel",
    },
    forward={("language",): "ElectraForCausalLM"},
)

ELECTRA_SMALL = Published(
    name="electra-small",
    family="electra",
    paper=PAPER,
    architecture=SMALL,
    heads=HEADS,
    others={"language": Language(term="masked", transform="gelu", bias=True)},  # of generators
    labels=Labels(activation="gelu"),  # released code
    objective=FILLED_IN,
    tokenizer=bert.BERT_BASE_UNCASED.tokenizer,  # section 3.1: BERT's text and vocabulary
    length=128,  # released code, `configure_pretraining.py`
    batch_tokens=128 * 128,  # table 6
    rate=5e-4,  # table 6
    training={
        **bert.SENTENCES,  # released code, `build_pretraining_dataset.py`
        "schedule": {"kind": "Linear", "warmup": 10_000},  # table 6
        "steps": 1_000_000,  # table 6
        "optimizer": {
            "kind": "AdamW", "betas": [0.9, 0.999], "eps": 1e-6, "weight_decay": 0.01,  # table 6
        },
    },
    parameters=13_549_057,
    names=NAMES,
    fields=FIELDS,
    hub="google/electra-small-discriminator",
    note="The discriminator is kept; its generator stands in the folder `generator` of a run. The "
    "released code parts nine rows in ten in two, with [SEP] between; here a row is one text.",
)  # fmt: skip
ELECTRA_BASE = replace(
    ELECTRA_SMALL,
    name="electra-base",
    architecture=bert.BASE,  # table 6
    heads={"generator": Generator(size=1 / 3), "replaced": Replaced()},  # table 6
    length=512,  # same place
    batch_tokens=256 * 512,  # table 6
    rate=2e-4,  # table 6
    training={**ELECTRA_SMALL.training, "steps": 766_000},  # table 6
    parameters=109_483_009,
    hub="google/electra-base-discriminator",
)
ELECTRA_LARGE = replace(
    ELECTRA_BASE,
    name="electra-large",
    architecture=replace(bert.BASE, d_model=1024, n_layers=24, n_heads=16, d_ff=4096),
    heads=HEADS,  # table 6
    objective=replace(FILLED_IN, choose=replace(FILLED_IN.choose, rate=0.25)),  # table 6
    batch_tokens=2048 * 512,  # table 6
    training={**ELECTRA_SMALL.training, "steps": 400_000},  # table 6
    parameters=335_142_913,
    hub="google/electra-large-discriminator",
)
_MINI = bert.BERT_MINI
ELECTRA_MINI = replace(
    ELECTRA_SMALL,
    name="electra-mini",
    architecture=replace(_MINI.architecture, embed_width=128),  # type: ignore[type-var]
    heads={"generator": Generator(size=1 / 2), "replaced": Replaced()},
    tokenizer=_MINI.tokenizer,
    length=_MINI.length,
    batch_tokens=_MINI.batch_tokens,
    rate=_MINI.rate,
    training={**bert.SMALL_BESIDE, **bert.SENTENCES},
    parameters=4_372_737,
    hub=None,
    note="Not in the paper: for two CPU cores, with the width and depth of bert-mini.",
)

CARDS = (ELECTRA_MINI, ELECTRA_SMALL, ELECTRA_BASE, ELECTRA_LARGE)
