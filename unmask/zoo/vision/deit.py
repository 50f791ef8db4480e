"""DeiT: Touvron et al. 2021, arXiv:2012.12877.

"Training data-efficient image transformers & distillation through attention".
"""

from dataclasses import replace
from typing import Any

from unmask.heads.vision.distilled_classification import DistilledClassification
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.positions.grid import GridPositions
from unmask.zoo.preset import Paper, Published
from unmask.zoo.vision import vit

PAPER = Paper(
    title="Training data-efficient image transformers & distillation through attention",
    authors="Touvron, Cord, Douze, Massa, Sablayrolles, Jégou",
    year=2021,
    arxiv="2012.12877",
)
BASE = replace(vit.BASE, position=GridPositions(14, 14, n_special=2))
"""ViT's, with a distillation token (section 4)."""

WEIGHT_NAMES = WeightNames(
    vit.backbone_names("deit")
    + """heads.distilled.out                        cls_classifier
    heads.distilled.distillation               distillation_classifier
    heads.label.out                            classifier
    """,
    prefix="deit.",
)
CONFIG_MAPPING = vit.config_mapping(
    "deit",
    BASE,
    {
        ("distilled",): "DeiTForImageClassificationWithTeacher",
        ("label",): "DeiTForImageClassification",
        ("patches",): "DeiTForMaskedImageModeling",
        (): "DeiTModel",
    },
)

DEIT_BASE = Published(
    name="deit-base-distilled-patch16-224",
    family="deit",
    paper=PAPER,
    architecture=BASE,
    heads={"distilled": DistilledClassification(n_labels=vit.CLASSES)},
    extra_heads=vit.VIT_BASE.extra_heads,
    classification_head=vit.classification_head(),
    pooling="first",
    objective=vit.VIT_BASE.objective,
    tokenizer=vit.VIT_BASE.tokenizer,
    sequence_length=198,
    batch_tokens=1024 * 198,  # table 9
    learning_rate=1e-3,  # table 9: 5e-4 x batch / 512
    training_options={
        "schedule": {"kind": "Cosine", "warmup": 5 / 300},  # table 9: 5 of 300 epochs
        "optimizer": {"kind": "AdamW", "betas": [0.9, 0.999], "weight_decay": 0.05},
    },
    n_parameters=87_338_192,  # table 1: 86 million without the second classifier
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="facebook/deit-base-distilled-patch16-224",
)


def _with_size(name: str, parameters: int, **changes: Any) -> Published:
    """Return a size of table 1."""
    return replace(
        DEIT_BASE,
        name=name,
        architecture=replace(BASE, **changes),
        n_parameters=parameters,
        hub_id=f"facebook/{name}",
    )


DEIT_TINY = _with_size(
    "deit-tiny-distilled-patch16-224", 5_910_800, d_model=192, n_heads=3, d_ff=768
)
DEIT_SMALL = _with_size(
    "deit-small-distilled-patch16-224", 22_436_432, d_model=384, n_heads=6, d_ff=1536
)
DEIT_MINI = replace(
    DEIT_BASE,
    name="deit-mini",
    architecture=replace(
        vit.VIT_MINI.architecture, position=GridPositions(8, 8, n_special=2), mask_token=False
    ),
    sequence_length=66,
    batch_tokens=64 * 66,
    training_options=vit.VIT_MINI.training_options,
    n_parameters=3_078_032,
    hub_id=None,
    note="Not in the paper: the size of vit-mini, for pictures of 32 x 32.",
)

PRESETS = (DEIT_MINI, DEIT_TINY, DEIT_SMALL, DEIT_BASE)
