"""UniLM: Dong et al. 2019, arXiv:1905.03197.

"Unified Language Model Pre-training for Natural Language Understanding and Generation": BERT's
network, asked for hidden tokens that see all of a text, one side of it, or what a target may see.
"Released code" is the folder unilm-v1 of github.com/microsoft/unilm.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from unmask.heads.labels import Labels
from unmask.heads.language import ByMask, Language
from unmask.heads.model import Model
from unmask.hiding.objectives import UNILM as FOUR_WAYS
from unmask.hiding.targets import HiddenTarget
from unmask.model.architecture import Architecture
from unmask.model.keys import Keys
from unmask.model.names import by_table
from unmask.published import bert
from unmask.published.card import FineTuning, Paper, Published

PAPER = Paper(
    title="Unified Language Model Pre-training for Natural Language Understanding and Generation",
    authors="Dong, Yang, Wang, Wei, Liu, Wang, Gao, Zhou, Hon",
    year=2019,
    arxiv="1905.03197",
)

SEGMENTS = {0: 0, 1: 1, 2: 0, 3: 0, 4: 0, 5: 1}
"""Which of BERT's two segments each begins as (released code, `from_pretrained`)."""
FORWARD, SOURCE, TARGET = 2, 4, 5
BASE = replace(
    bert.BASE,
    vocab_size=28_996,  # section 2.4
    n_segments=len(SEGMENTS),  # section 2.1: they tell how a text is read; how many: released code
)
HEADS = {
    "language": Language(term="masked", transform="gelu", bias=True, forward=ByMask(FORWARD)),
    "next_sentence": Labels(term="next_sentence", n_labels=2),  # section 2.3, "Bidirectional LM"
}

FINE_TUNING = FineTuning(target=HiddenTarget(rate=0.7, segments=(SOURCE, TARGET)))  # section 2.5

_READ, _WRITE = by_table(bert.TABLE, BASE, bert.FIXED)
_KEYS = {"source_type_id": SOURCE, "target_type_id": TARGET}
"""What no configuration of BERT's has (the authors' folder s2s-ft, `UnilmConfig`)."""
_ANSWERS = "answers_sources"
"""Our word in the configuration of a model that was fine-tuned to write targets for sources."""


def _write(a: Architecture) -> dict[str, Any]:
    return _WRITE(a) | _KEYS


def _language(theirs: Mapping[str, Any]) -> dict[str, Any]:
    said = {"forward": FINE_TUNING.answers} if theirs.get(_ANSWERS) else {}
    return bert.FIELDS.language(theirs) | said


def _of_language(spec: Language) -> dict[str, Any]:
    return {_ANSWERS: True} if spec.forward == FINE_TUNING.answers else {}


KEYS = Keys(
    """
    source_type_id    used  count  -
    target_type_id    used  count  -
    answers_sources   used  flag   -
    """,
    bert.KEYS,
)
FIELDS = replace(
    bert.FIELDS,
    keys=KEYS,
    read=_READ,
    write=_write,
    forward={},
    language=_language,
    of_language=_of_language,
    told_by=frozenset(_KEYS),
)


@torch.no_grad()
def from_bert(short: Model, wanted: Architecture) -> Model:
    """Give BERT the segments of UniLM, which begin as copies of its two (released code).

    Raises:
        ValueError: it has not two segments, or is to have another number than UniLM.
    """
    theirs, n = short.architecture, wanted.n_segments
    if not isinstance(theirs, Architecture) or theirs.n_segments != 2 or n != len(SEGMENTS):
        raise ValueError(f"UniLM begins with a BERT of two segments and has {len(SEGMENTS)}")
    specs = {
        name: replace(spec, forward=ByMask(FORWARD)) if isinstance(spec, Language) else spec
        for name, spec in short.specs.items()
    }
    model = Model(replace(theirs, n_segments=n), specs, short.pooled)
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
    labels=bert.LABELS,
    pooler="next_sentence",
    finetuning=FINE_TUNING,
    objective=FOUR_WAYS,
    tokenizer=bert.BERT_LARGE_CASED.tokenizer,  # section 2.4
    length=512,  # section 2.4
    batch_tokens=330 * 512,  # section 2.4
    rate=3e-5,  # section 2.4
    training={
        "schedule": {"kind": "Linear", "warmup": 40_000},  # section 2.4
        "steps": 770_000,  # section 2.4
        "optimizer": {"kind": "AdamW", "betas": [0.9, 0.999], "weight_decay": 0.01},  # section 2.4
    },
    parameters=334_666_054,
    names=bert.NAMES,
    fields=FIELDS,
    grows={"bert": from_bert},
    hub="microsoft/unilm-large-cased",
    note="Begins with the weights of bert-large-cased (`--from`). Text is said by masks, read "
    "forward; fine-tuned (`--task generate`), which hides tokens of the target alone, it says "
    "targets for sources that it sees as a whole.",
)
UNILM_BASE = replace(
    UNILM_LARGE,
    name="unilm-base-cased",
    architecture=BASE,  # released weights; not in the paper
    parameters=108_936_006,
    hub="microsoft/unilm-base-cased",
)
_MINI = bert.BERT_MINI
UNILM_MINI = replace(
    UNILM_BASE,
    name="unilm-mini",
    architecture=replace(_MINI.architecture, n_segments=len(SEGMENTS)),  # type: ignore[type-var]
    tokenizer=_MINI.tokenizer,
    length=_MINI.length,
    batch_tokens=_MINI.batch_tokens,
    rate=_MINI.rate,
    training=bert.SMALL_BESIDE,
    parameters=5_530_114,
    hub=None,
    note="Not in the paper: for two CPU cores, with the width and depth of bert-mini; from "
    "scratch, or with bert-mini's weights.",
)

CARDS = (UNILM_MINI, UNILM_BASE, UNILM_LARGE)
