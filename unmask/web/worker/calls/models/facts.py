"""`describe`, `models`: what a model is and can do, and which there are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from unmask.adapters.prefix import max_text_length
from unmask.analysis.saliency.labels import check_explained
from unmask.analysis.saliency.tokens import check_predicts_tokens
from unmask.bundled.models import BUNDLED_MODELS
from unmask.config import from_dict, to_dict
from unmask.generation.fill_mask import unsupported_reason
from unmask.inference.pipeline import Pipeline
from unmask.inference.vectors.load_word_vectors import is_word_vectors
from unmask.jobs.catalogue.describe import bundled_presets
from unmask.model.recording import recordable_stacks
from unmask.planning.flops import (
    default_target_fraction,
    six_nd,
    training_flops_per_token,
)
from unmask.planning.plan import DEFAULT_UTILIZATION
from unmask.planning.this_machine import measure_this_cpu
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.training.device.distributed import set_threads
from unmask.web.worker.calls.hiding import check_answers
from unmask.web.worker.open_models import check_weights, open_models
from unmask.word_vectors.train.trainer import WORD_VECTOR_FAMILY
from unmask.zoo.catalogue import MODELS, get_preset, is_preset_name
from unmask.zoo.preset import Published

if TYPE_CHECKING:
    from unmask.studies.read_study import AnyStudy

MINUTES_HERE, MILLION_TOKENS_HERE = 60.0, 5.0
"""A model trains on this machine if it reads so many million tokens in so many minutes."""
COUNTED_PARAMETERS = 50_000_000
"""Up to so many, FLOP are counted layer by layer: 92 models in a second."""
_RECURRENT = frozenset(("RecurrentArchitecture", "ElmoArchitecture"))

Ability = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class _DescribeArguments:
    model: str


def describe_model(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a model, a preset or word vectors are, and "abilities": what they can do.

    An ability is {"can": true} with what is to know of it, or {"can": false, "reason": a line}.
    """
    name = from_dict(_DescribeArguments, arguments).model
    if is_word_vectors(name):
        return _describe_vectors(name)
    if is_preset_name(name):
        preset = get_preset(name)
        facts = _preset_facts(preset)
        return facts | {"has_weights": False, "abilities": {"hide": {"can": True}}}
    return _describe_pipeline(open_models().pipeline(name))


def _describe_vectors(name: str) -> dict[str, Any]:
    space = open_models().vectors(name)
    can = {"can": True}
    return {
        "kind": "word vectors",
        "has_weights": True,
        "words": len(space),
        "width": space.vector_size,
        "first": list(space.words[:20]),
        "abilities": {"neighbors": can, "analogy": can, "embed": can},
    }


def _describe_pipeline(pipeline: Pipeline) -> dict[str, Any]:
    loaded, special = pipeline.loaded_model, None
    if loaded.tokenizer is not None:
        special = loaded.tokenizer.special_ids
    return _preset_facts(pipeline.preset) | {
        "has_weights": True,
        "parameters": pipeline.model.parameter_count(),
        "max_length": max_text_length(pipeline.model, pipeline.model.backbone.encoder_stack),
        "vocab_size": None if loaded.tokenizer is None else loaded.tokenizer.vocab_size,
        "languages": [] if special is None else [code for code, _ in special.languages],
        "missing": list(loaded.missing),
        "unexpected": list(loaded.unexpected),
        "abilities": _abilities(pipeline),
    }


def _abilities(pipeline: Pipeline) -> dict[str, Ability]:
    model, preset = pipeline.model, pipeline.preset
    texts = preset.reads_texts and pipeline.loaded_model.tokenizer is not None
    if not texts:
        reason = f"{preset.name} reads pictures" if preset.reads_pictures else "it has no tokenizer"
        names = ("fill", "generate", "chat", "embed", "attention", "saliency", "hide_answers")
        others = {name: _cannot(reason) for name in names}
        hides = None if "patches" in model.head_specs else "it does not reconstruct pictures"
        return {"predict": _predict_ability(pipeline), "reconstruct": _ability(hides), **others}
    describes = pipeline.describes_pictures
    writes = describes or (model.can_generate and not preset.reads_pictures)
    return {
        "fill": _ability(unsupported_reason(model, pipeline.tokenizer)),
        "generate": {
            "can": True,
            "continues": pipeline.continues_prompt and not describes,
            "reads": "pictures" if describes else "texts",
        }
        if writes
        else _cannot("it does not write"),
        "chat": {"can": True} if pipeline.can_chat else _cannot("it has no chat template"),
        "predict": _predict_ability(pipeline),
        "embed": {"can": True, "pooling": preset.pooling},
        "hide": {"can": True},
        "hide_answers": _checked(lambda: check_answers(pipeline)),
        "attention": _checked(lambda: recordable_stacks(model.backbone)),
        "saliency": _checked(lambda: _check_saliency(pipeline)),
    }


def _predict_ability(pipeline: Pipeline) -> Ability:
    if pipeline.compares_pictures:
        purpose = "label pictures by the names of classes"
        return {"can": True, "task": "pictures", "purpose": purpose, "labels": []}
    if not pipeline.can_predict:
        return _cannot("it is not fine-tuned for a task")
    task = pipeline.required_task()
    kind = TASK_KINDS[task.task_kind]
    return {
        "can": True,
        "task": task.task_kind,
        "purpose": kind.wording.purpose,
        "labels": list(task.labels),
        "columns": to_dict(task.columns),
        "predicts_number": kind.predicts_number,
        "max_length": task.max_length,
        "metric": task.metric,
    }


def _check_saliency(pipeline: Pipeline) -> None:
    check_weights(pipeline)
    if pipeline.can_predict:
        check_explained(pipeline.required_task())
    else:
        check_predicts_tokens(pipeline.model, pipeline.tokenizer)


def _checked(check: Callable[[], object]) -> Ability:
    try:
        check()
    except ValueError as error:
        return _cannot(str(error))
    return {"can": True}


def _ability(reason: str | None) -> Ability:
    return {"can": True} if reason is None else _cannot(reason)


def _cannot(reason: str) -> Ability:
    return {"can": False, "reason": reason}


def list_models(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bundled models and the catalogue, smallest first, and the sizes of each family.

    `minutes_per_million_tokens` is at a third of this processor's peak, measured once; of a model
    above `COUNTED_PARAMETERS` by 6 N D FLOP, which is more than it computes. `trains_here`: whether
    `MILLION_TOKENS_HERE` take `MINUTES_HERE` at most. `unmask plan` knows more.
    """
    from_dict(_NoArguments, arguments)
    bundled = [_entry(one, is_bundled=True) for one in _bundled()]
    presets = sorted(MODELS.values(), key=lambda one: (one.n_parameters, one.name))
    families: dict[str, list[str]] = {}
    for preset in presets:
        families.setdefault(preset.family, []).append(preset.name)
    entries = bundled + [_entry(one, is_bundled=False) for one in presets]
    return {"models": entries, "families": families}


def list_studies(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the published studies: their question, the names of their cells, tokens of each."""
    from unmask.studies.published_studies import ALL_STUDIES

    from_dict(_NoArguments, arguments)
    return {"studies": [_study_facts(name, one) for name, one in ALL_STUDIES.items()]}


def _study_facts(name: str, study: "AnyStudy") -> dict[str, Any]:
    plain = to_dict(study)
    cells = [one["name"] for one in plain.get("cells", ())]
    return {
        "name": name,
        "question": plain.get("question", ""),
        "cells": cells,
        "tokens": plain.get("tokens"),
        "paper": plain.get("paper", ""),
    }


@dataclass(frozen=True)
class _NoArguments:
    """No arguments."""


@cache
def _bundled() -> tuple[Published, ...]:
    named = zip(BUNDLED_MODELS, bundled_presets(), strict=True)
    return tuple(replace(preset, name=name, note="") for name, preset in named)


@cache
def _peak_flops() -> float:
    """Measure this processor, once."""
    set_threads()
    return measure_this_cpu("float32").peak("float32")


@cache
def _training_flops(name: str) -> float:
    """Count FLOP per token of a preset."""
    preset = MODELS[name]
    if preset.n_parameters > COUNTED_PARAMETERS:
        return six_nd(preset.n_parameters, 1)
    fraction = default_target_fraction(preset.objective.loss_terms)
    return training_flops_per_token(preset.build_without_memory(), preset.sequence_length, fraction)


def _entry(preset: Published, *, is_bundled: bool) -> dict[str, Any]:
    n = preset.n_parameters
    flops = six_nd(n, 1) if is_bundled else _training_flops(preset.name)
    minutes = 1e6 * flops / (_peak_flops() * DEFAULT_UTILIZATION["cpu"]) / 60
    return _preset_facts(preset) | {
        "has_weights": is_bundled,
        "minutes_per_million_tokens": minutes,
        "trains_here": minutes * MILLION_TOKENS_HERE <= MINUTES_HERE,
    }


def _preset_facts(preset: Published) -> dict[str, Any]:
    paper = preset.paper
    first = paper.authors.split(",")[0]
    return {
        "name": preset.name,
        "family": preset.family,
        "kind": _kind(preset),
        "parameters": preset.n_parameters,
        "paper": to_dict(paper),
        "year": paper.year,
        "line": f"{paper.title} ({first} {paper.year})",
        "note": preset.note,
        "length": preset.sequence_length,
        "hub": preset.hub_id,
        "asks": list(preset.objective.loss_terms),
    }


def _kind(preset: Published) -> str:
    """Name the kind of network, as the page groups them."""
    architecture = preset.architecture
    if preset.family == WORD_VECTOR_FAMILY:
        return "word vectors"
    if preset.reads_pictures:
        return "images"
    if type(architecture).__name__ in _RECURRENT:
        return "recurrent"
    if architecture.is_encoder_decoder:
        return "encoder-decoder"
    return "decoder" if architecture.is_decoder_only else "encoder"
