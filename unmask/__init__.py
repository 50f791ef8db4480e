"""Unmask: pretrain once, fine-tune many times.

Every family of pretrained language model, from one small core. Nothing heavy is imported until it
is used: `import unmask` does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unmask.finetuning.suite import finetune_suite
    from unmask.finetuning.tune import finetune
    from unmask.generation.decode import Decoding
    from unmask.published.catalogue import MODELS
    from unmask.serving.describe import describe
    from unmask.serving.hide import hidden
    from unmask.serving.pipeline import Pipeline, load
    from unmask.serving.prepare import prepare
    from unmask.serving.pretrain import pretrain
    from unmask.serving.report import write_report
    from unmask.serving.several import Several
    from unmask.training.recipe import Recipe

__version__ = "0.1.0"
__all__ = [
    "MODELS",
    "Decoding",
    "Pipeline",
    "Recipe",
    "Several",
    "describe",
    "finetune",
    "finetune_suite",
    "hidden",
    "load",
    "prepare",
    "pretrain",
    "write_report",
]

_HOME = {
    "MODELS": "unmask.published.catalogue",
    "Decoding": "unmask.generation.decode",
    "Pipeline": "unmask.serving.pipeline",
    "Recipe": "unmask.training.recipe",
    "Several": "unmask.serving.several",
    "describe": "unmask.serving.describe",
    "finetune": "unmask.finetuning.tune",
    "finetune_suite": "unmask.finetuning.suite",
    "hidden": "unmask.serving.hide",
    "load": "unmask.serving.pipeline",
    "prepare": "unmask.serving.prepare",
    "pretrain": "unmask.serving.pretrain",
    "write_report": "unmask.serving.report",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'unmask' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
