"""Unmask: pretrain once, fine-tune many times.

Every family of pretrained language model, from one small core. Nothing heavy is imported until it
is used: `import unmask` does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unmask.adapters.bottleneck import AdaMix, HoulsbyAdapter, PfeifferAdapter
    from unmask.adapters.lora import LoRA
    from unmask.adapters.mix import ScalarMix
    from unmask.adapters.prefix import PrefixTuning, PromptTuning
    from unmask.adapters.scale import IA3
    from unmask.finetuning.in_domain import TaskAdaptivePretraining
    from unmask.finetuning.methods import BitFit, FrozenFeatures, FullFinetuning, GradualUnfreezing, SourceEncoder, TopLayers
    from unmask.finetuning.suite import finetune_suite
    from unmask.generation.settings import BeamSearch, GenerationConfig, Greedy, BestOfN, Sampling
    from unmask.published.catalogue import MODELS
    from unmask.serving.align import align
    from unmask.serving.describe import describe
    from unmask.serving.ensemble import Ensemble
    from unmask.serving.evaluating import evaluate_tasks
    from unmask.serving.expand import expand_vocabulary
    from unmask.serving.finetune import finetune
    from unmask.serving.hide import hide
    from unmask.serving.pipeline import Pipeline, load
    from unmask.serving.prepare import prepare
    from unmask.serving.pretrain import pretrain
    from unmask.serving.report import write_report
    from unmask.serving.sentences import evaluate_sentence_similarity, nearest_sentences
    from unmask.serving.several import MultiAdapter
    from unmask.serving.spaces import convert_word_vectors, evaluate_word_vectors, load_word_vectors
    from unmask.serving.word_map import draw_word_map
    from unmask.studies.run import run_study
    from unmask.training.recipe import Recipe
    from unmask.vectors.space import KeyedVectors

__version__ = "0.1.0"
__all__ = [
    "IA3",
    "MODELS",
    "AdaMix",
    "BeamSearch",
    "BitFit",
    "GenerationConfig",
    "Ensemble",
    "FrozenFeatures",
    "FullFinetuning",
    "GradualUnfreezing",
    "Greedy",
    "HoulsbyAdapter",
    "TaskAdaptivePretraining",
    "LoRA",
    "ScalarMix",
    "PfeifferAdapter",
    "Pipeline",
    "PrefixTuning",
    "PromptTuning",
    "BestOfN",
    "Recipe",
    "Sampling",
    "MultiAdapter",
    "SourceEncoder",
    "KeyedVectors",
    "TopLayers",
    "align",
    "convert_word_vectors",
    "describe",
    "evaluate_sentence_similarity",
    "evaluate_word_vectors",
    "evaluate_tasks",
    "expand_vocabulary",
    "finetune",
    "finetune_suite",
    "hide",
    "load",
    "nearest_sentences",
    "load_word_vectors",
    "draw_word_map",
    "prepare",
    "pretrain",
    "run_study",
    "write_report",
]

_MODULE_OF_NAME = {
    "IA3": "unmask.adapters.scale",
    "MODELS": "unmask.published.catalogue",
    "AdaMix": "unmask.adapters.bottleneck",
    "BeamSearch": "unmask.generation.settings",
    "BitFit": "unmask.finetuning.methods",
    "GenerationConfig": "unmask.generation.settings",
    "Ensemble": "unmask.serving.ensemble",
    "FrozenFeatures": "unmask.finetuning.methods",
    "FullFinetuning": "unmask.finetuning.methods",
    "GradualUnfreezing": "unmask.finetuning.methods",
    "Greedy": "unmask.generation.settings",
    "HoulsbyAdapter": "unmask.adapters.bottleneck",
    "TaskAdaptivePretraining": "unmask.finetuning.in_domain",
    "LoRA": "unmask.adapters.lora",
    "Mix": "unmask.adapters.mix",
    "PfeifferAdapter": "unmask.adapters.bottleneck",
    "Pipeline": "unmask.serving.pipeline",
    "PrefixTuning": "unmask.adapters.prefix",
    "Prompt": "unmask.adapters.prefix",
    "BestOfN": "unmask.generation.settings",
    "Recipe": "unmask.training.recipe",
    "Sampling": "unmask.generation.settings",
    "MultiAdapter": "unmask.serving.several",
    "SourceEncoder": "unmask.finetuning.methods",
    "KeyedVectors": "unmask.vectors.space",
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
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module 'unmask' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF_NAME[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
