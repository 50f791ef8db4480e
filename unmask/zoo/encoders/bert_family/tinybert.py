"""TinyBERT: Jiao et al. 2020, arXiv:1909.10351.

"TinyBERT: Distilling BERT for Natural Language Understanding"; only the architecture, in BERT's
format.
"""

from dataclasses import replace

from unmask.zoo.encoders.bert_family import bert
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="TinyBERT: Distilling BERT for Natural Language Understanding",
    authors="Jiao, Yin, Shang, Jiang, Chen, Li, Wang, Liu",
    year=2020,
    arxiv="1909.10351",
)


def _with_size(name: str, hub: str, parameters: int, **changes: int) -> Published:
    """Return BERT-base in a size of the paper's students."""
    return replace(
        bert.BERT_BASE_UNCASED,
        name=name,
        paper=PAPER,
        architecture=replace(bert.BASE, **changes),
        sequence_length=128,  # section 4.2, of general distillation
        batch_tokens=256 * 128,  # section 4.2: as BERT
        n_parameters=parameters,
        hub_id=hub,
        note="Only the architecture; the released weights were distilled from BERT's layers.",
    )


TINYBERT_4 = _with_size(
    "tinybert-4l-312d",
    "huawei-noah/TinyBERT_General_4L_312D",
    14_479_676,
    d_model=312,  # section 4.2
    n_layers=4,
    n_heads=12,
    d_ff=1200,
)
TINYBERT_6 = _with_size(
    "tinybert-6l-768d",
    "huawei-noah/TinyBERT_General_6L_768D",
    67_579_196,
    n_layers=6,  # section 4.2; the other sizes are BERT-base's
)

PRESETS = (TINYBERT_4, TINYBERT_6)
