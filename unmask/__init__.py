"""Unmask: pretrain once, fine-tune many times.

Every family of pretrained language model, from one small core. Nothing heavy is imported until it
is used: `import unmask` does not import torch.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unmask.adapters.bottleneck import AdaMix, HoulsbyAdapter, PfeifferAdapter
    from unmask.adapters.ia3 import IA3
    from unmask.adapters.lora import LoRA
    from unmask.adapters.prefix import PrefixTuning, PromptTuning
    from unmask.adapters.scalar_mix import ScalarMix
    from unmask.finetuning.methods.adapt_first import TaskAdaptivePretraining
    from unmask.finetuning.methods.method import (
        BitFit,
        FrozenFeatures,
        FullFinetuning,
        GradualUnfreezing,
        SourceEncoder,
        TopLayers,
    )
    from unmask.finetuning.suite import finetune_suite
    from unmask.generation.settings import BeamSearch, BestOfN, GenerationConfig, Greedy, Sampling
    from unmask.inference.ensemble import Ensemble
    from unmask.inference.expand_vocabulary import expand_vocabulary
    from unmask.inference.open_model import load
    from unmask.inference.pipeline import Pipeline
    from unmask.inference.several_adapters import MultiAdapter
    from unmask.inference.vectors.load_word_vectors import (
        convert_word_vectors,
        evaluate_word_vectors,
        load_word_vectors,
    )
    from unmask.inference.vectors.sentence_similarity import (
        evaluate_sentence_similarity,
        nearest_sentences,
    )
    from unmask.jobs.augment.augment import augment
    from unmask.jobs.catalogue.describe import describe
    from unmask.jobs.catalogue.hide import hide
    from unmask.jobs.compress import compress
    from unmask.jobs.corpus.prepare import prepare
    from unmask.jobs.evaluate import evaluate_tasks
    from unmask.jobs.finetune import finetune
    from unmask.jobs.pretrain.plan import plan
    from unmask.jobs.pretrain.pretrain import pretrain
    from unmask.jobs.probe.probe import probe
    from unmask.jobs.word_vectors.align.align import align
    from unmask.jobs.word_vectors.draw_word_map import draw_word_map
    from unmask.preferences.job.prefer import prefer
    from unmask.reports.page import write_report
    from unmask.studies.run_study import run_study
    from unmask.training.config import Recipe
    from unmask.word_vectors.keyed_vectors import KeyedVectors
    from unmask.word_vectors.projection import TSNE, PrincipalComponents
    from unmask.zoo.catalogue import MODELS

__version__ = "0.1.0"
__all__ = [
    "IA3",
    "MODELS",
    "TSNE",
    "AdaMix",
    "BeamSearch",
    "BestOfN",
    "BitFit",
    "Ensemble",
    "FrozenFeatures",
    "FullFinetuning",
    "GenerationConfig",
    "GradualUnfreezing",
    "Greedy",
    "HoulsbyAdapter",
    "KeyedVectors",
    "LoRA",
    "MultiAdapter",
    "PfeifferAdapter",
    "Pipeline",
    "PrefixTuning",
    "PrincipalComponents",
    "PromptTuning",
    "Recipe",
    "Sampling",
    "ScalarMix",
    "SourceEncoder",
    "TaskAdaptivePretraining",
    "TopLayers",
    "align",
    "augment",
    "compress",
    "convert_word_vectors",
    "describe",
    "draw_word_map",
    "evaluate_sentence_similarity",
    "evaluate_tasks",
    "evaluate_word_vectors",
    "expand_vocabulary",
    "finetune",
    "finetune_suite",
    "hide",
    "load",
    "load_word_vectors",
    "nearest_sentences",
    "plan",
    "prefer",
    "prepare",
    "pretrain",
    "probe",
    "run_study",
    "write_report",
]

_MODULE_OF_NAME = {
    "IA3": "unmask.adapters.ia3",
    "MODELS": "unmask.zoo.catalogue",
    "AdaMix": "unmask.adapters.bottleneck",
    "BeamSearch": "unmask.generation.settings",
    "BestOfN": "unmask.generation.settings",
    "BitFit": "unmask.finetuning.methods.method",
    "Ensemble": "unmask.inference.ensemble",
    "FrozenFeatures": "unmask.finetuning.methods.method",
    "FullFinetuning": "unmask.finetuning.methods.method",
    "GenerationConfig": "unmask.generation.settings",
    "GradualUnfreezing": "unmask.finetuning.methods.method",
    "Greedy": "unmask.generation.settings",
    "HoulsbyAdapter": "unmask.adapters.bottleneck",
    "KeyedVectors": "unmask.word_vectors.keyed_vectors",
    "LoRA": "unmask.adapters.lora",
    "MultiAdapter": "unmask.inference.several_adapters",
    "PfeifferAdapter": "unmask.adapters.bottleneck",
    "Pipeline": "unmask.inference.pipeline",
    "PrefixTuning": "unmask.adapters.prefix",
    "PrincipalComponents": "unmask.word_vectors.projection",
    "PromptTuning": "unmask.adapters.prefix",
    "Recipe": "unmask.training.config",
    "Sampling": "unmask.generation.settings",
    "ScalarMix": "unmask.adapters.scalar_mix",
    "SourceEncoder": "unmask.finetuning.methods.method",
    "TSNE": "unmask.word_vectors.projection",
    "TaskAdaptivePretraining": "unmask.finetuning.methods.adapt_first",
    "TopLayers": "unmask.finetuning.methods.method",
    "align": "unmask.jobs.word_vectors.align.align",
    "augment": "unmask.jobs.augment.augment",
    "compress": "unmask.jobs.compress",
    "convert_word_vectors": "unmask.inference.vectors.load_word_vectors",
    "describe": "unmask.jobs.catalogue.describe",
    "draw_word_map": "unmask.jobs.word_vectors.draw_word_map",
    "evaluate_sentence_similarity": "unmask.inference.vectors.sentence_similarity",
    "evaluate_tasks": "unmask.jobs.evaluate",
    "evaluate_word_vectors": "unmask.inference.vectors.load_word_vectors",
    "expand_vocabulary": "unmask.inference.expand_vocabulary",
    "finetune": "unmask.jobs.finetune",
    "finetune_suite": "unmask.finetuning.suite",
    "hide": "unmask.jobs.catalogue.hide",
    "load": "unmask.inference.open_model",
    "load_word_vectors": "unmask.inference.vectors.load_word_vectors",
    "nearest_sentences": "unmask.inference.vectors.sentence_similarity",
    "plan": "unmask.jobs.pretrain.plan",
    "prefer": "unmask.preferences.job.prefer",
    "prepare": "unmask.jobs.corpus.prepare",
    "pretrain": "unmask.jobs.pretrain.pretrain",
    "probe": "unmask.jobs.probe.probe",
    "run_study": "unmask.studies.run_study",
    "write_report": "unmask.reports.page",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module 'unmask' has no attribute {name!r}")
    with _without_collections():
        return getattr(import_module(_MODULE_OF_NAME[name]), name)


@contextmanager
def _without_collections() -> Generator[None]:
    """Import without looking for garbage, and count what was imported among the old objects.

    Hundreds of modules, torch's among them, are a million objects and none of them garbage: a third
    of the time of their import went into searching them again and again.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # whoever froze objects wants them to stay frozen
            gc.freeze()
            gc.unfreeze()  # into the oldest generation, unsearched
        gc.enable()


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
