"""SpanBERT: Joshi et al. 2020, arXiv:1907.10529.

"SpanBERT: Improving Pre-training by Representing and Predicting Spans"; BERT's network and format.
"""

from dataclasses import replace

from unmask.heads.pretraining.span_boundary import SpanBoundaryObjective
from unmask.objectives.published import SPANBERT as SPANS
from unmask.zoo.encoders.bert_family import bert
from unmask.zoo.preset import Paper

PAPER = Paper(
    title="SpanBERT: Improving Pre-training by Representing and Predicting Spans",
    authors="Joshi, Chen, Liu, Weld, Zettlemoyer, Levy",
    year=2020,
    arxiv="1907.10529",
)
HEADS = {"language": bert.HEADS["language"], "boundary": SpanBoundaryObjective()}

SPANBERT_LARGE = replace(
    bert.BERT_LARGE_CASED,  # section 4.2
    name="spanbert-large-cased",
    paper=PAPER,
    heads=HEADS,
    pooler_head=None,
    objective=SPANS,
    batch_tokens=256 * 512,  # section 4.2
    learning_rate=1e-4,  # section 4.2
    training_options={
        **bert.NEXT_SENTENCE_TRAINING,  # released code, `no_nsp_span_bert_dataset.py`
        "schedule": {"kind": "Linear", "warmup": 10_000},  # section 4.2
        "steps": 2_400_000,  # section 4.2
        "optimizer": {
            "kind": "AdamW", "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1,
        },
    },
    n_parameters=336_999_976,
    hub_id="SpanBERT/spanbert-large-cased",
    note="The released weights have no head for the boundary objective.",
)  # fmt: skip
SPANBERT_BASE = replace(
    SPANBERT_LARGE,
    name="spanbert-base-cased",
    architecture=bert.BERT_BASE_CASED.architecture,
    n_parameters=110_301_480,
    hub_id="SpanBERT/spanbert-base-cased",
)
SPANBERT_MINI = replace(
    bert.BERT_MINI,
    name="spanbert-mini",
    paper=PAPER,
    heads=HEADS,
    pooler_head=None,
    objective=SPANS,
    training_options={**bert.MINI_MULTI_LOSS_TRAINING, **bert.NEXT_SENTENCE_TRAINING},
    n_parameters=5_724_320,
    note="Not in the paper: for two CPU cores, with the width and depth of bert-mini.",
)

PRESETS = (SPANBERT_MINI, SPANBERT_BASE, SPANBERT_LARGE)
