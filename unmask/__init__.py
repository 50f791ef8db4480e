"""Unmask: pretrain once, fine-tune many times.

Every family of pretrained language model, from one small core. Nothing heavy is imported until it
is used: `import unmask` does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unmask.adapters.bottleneck import AdaMix, Houlsby, Pfeiffer
    from unmask.adapters.lora import LoRA
    from unmask.adapters.mix import Mix
    from unmask.adapters.prefix import Prefix, Prompt
    from unmask.adapters.scale import IA3
    from unmask.finetuning.in_domain import InDomain
    from unmask.finetuning.methods import BitFit, Frozen, Full, Gradual, SourceEncoder, TopLayers
    from unmask.finetuning.suite import finetune_suite
    from unmask.generation.settings import Beam, Decoding, Greedy, Ranked, Sample
    from unmask.published.catalogue import MODELS
    from unmask.serving.align import align
    from unmask.serving.describe import describe
    from unmask.serving.ensemble import Ensemble
    from unmask.serving.evaluating import evaluate_tasks
    from unmask.serving.expand import expand
    from unmask.serving.finetune import finetune
    from unmask.serving.hide import hidden
    from unmask.serving.pipeline import Pipeline, load
    from unmask.serving.prepare import prepare
    from unmask.serving.pretrain import pretrain
    from unmask.serving.report import write_report
    from unmask.serving.sentences import evaluate_similarity, nearest_sentences
    from unmask.serving.several import Several
    from unmask.serving.spaces import convert_space, evaluate_space, open_space
    from unmask.serving.word_map import picture
    from unmask.studies.run import run_study
    from unmask.training.recipe import Recipe
    from unmask.vectors.space import Space

__version__ = "0.1.0"
__all__ = [
    "IA3",
    "MODELS",
    "AdaMix",
    "Beam",
    "BitFit",
    "Decoding",
    "Ensemble",
    "Frozen",
    "Full",
    "Gradual",
    "Greedy",
    "Houlsby",
    "InDomain",
    "LoRA",
    "Mix",
    "Pfeiffer",
    "Pipeline",
    "Prefix",
    "Prompt",
    "Ranked",
    "Recipe",
    "Sample",
    "Several",
    "SourceEncoder",
    "Space",
    "TopLayers",
    "align",
    "convert_space",
    "describe",
    "evaluate_similarity",
    "evaluate_space",
    "evaluate_tasks",
    "expand",
    "finetune",
    "finetune_suite",
    "hidden",
    "load",
    "nearest_sentences",
    "open_space",
    "picture",
    "prepare",
    "pretrain",
    "run_study",
    "write_report",
]

_HOME = {
    "IA3": "unmask.adapters.scale",
    "MODELS": "unmask.published.catalogue",
    "AdaMix": "unmask.adapters.bottleneck",
    "Beam": "unmask.generation.settings",
    "BitFit": "unmask.finetuning.methods",
    "Decoding": "unmask.generation.settings",
    "Ensemble": "unmask.serving.ensemble",
    "Frozen": "unmask.finetuning.methods",
    "Full": "unmask.finetuning.methods",
    "Gradual": "unmask.finetuning.methods",
    "Greedy": "unmask.generation.settings",
    "Houlsby": "unmask.adapters.bottleneck",
    "InDomain": "unmask.finetuning.in_domain",
    "LoRA": "unmask.adapters.lora",
    "Mix": "unmask.adapters.mix",
    "Pfeiffer": "unmask.adapters.bottleneck",
    "Pipeline": "unmask.serving.pipeline",
    "Prefix": "unmask.adapters.prefix",
    "Prompt": "unmask.adapters.prefix",
    "Ranked": "unmask.generation.settings",
    "Recipe": "unmask.training.recipe",
    "Sample": "unmask.generation.settings",
    "Several": "unmask.serving.several",
    "SourceEncoder": "unmask.finetuning.methods",
    "Space": "unmask.vectors.space",
    "TopLayers": "unmask.finetuning.methods",
    "align": "unmask.serving.align",
    "convert_space": "unmask.serving.spaces",
    "describe": "unmask.serving.describe",
    "evaluate_similarity": "unmask.serving.sentences",
    "evaluate_space": "unmask.serving.spaces",
    "evaluate_tasks": "unmask.serving.evaluating",
    "expand": "unmask.serving.expand",
    "finetune": "unmask.serving.finetune",
    "finetune_suite": "unmask.finetuning.suite",
    "hidden": "unmask.serving.hide",
    "load": "unmask.serving.pipeline",
    "nearest_sentences": "unmask.serving.sentences",
    "open_space": "unmask.serving.spaces",
    "picture": "unmask.serving.word_map",
    "prepare": "unmask.serving.prepare",
    "pretrain": "unmask.serving.pretrain",
    "run_study": "unmask.studies.run",
    "write_report": "unmask.serving.report",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'unmask' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
