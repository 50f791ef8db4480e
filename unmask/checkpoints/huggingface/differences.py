"""Parts of a model that transformers cannot load, or computes differently."""

from collections.abc import Mapping

import torch
from torch import Tensor

from unmask.heads.classification.sequence_classification import (
    SequenceClassification,
    TokenClassification,
)
from unmask.heads.language.language_modeling import (
    AppendedMaskGeneration,
    LanguageModeling,
)
from unmask.heads.pretraining.autoregressive_characters import AutoregressiveCharacters
from unmask.heads.question_answering import QuestionAnswering
from unmask.heads.spec import HeadSpec
from unmask.heads.tagging.bilstm_crf import BiLSTMCRF
from unmask.zoo.catalogue import MODELS
from unmask.zoo.native_format import NATIVE_PREFIX as OWN_WORDS
from unmask.zoo.native_format import inexpressible_keys
from unmask.zoo.preset import (
    Published,
    question_answering_head,
    token_classification_head,
)
from unmask.zoo.unsupported_classes import CLASS_SUFFIXES, unsupported_reason


def heads_without_transformers_class(
    preset: Published, head_specs: Mapping[str, HeadSpec]
) -> dict[str, str]:
    """Describe the heads without a class in transformers, by name.

    The class is the one with most of the other heads.
    """
    unsupported = {
        n: description
        for n, s in head_specs.items()
        if (description := _head_without_class(preset, s)) is not None
    }
    others = [
        n for n, s in head_specs.items() if n not in unsupported and s.is_kept_after_pretraining
    ]
    classes = preset.config_mapping.class_names_of(preset.architecture)
    class_of = max((k for k in classes if set(k) <= set(others)), key=len)
    return unsupported | {n: type(head_specs[n]).__name__ for n in others if n not in class_of}


def refusing_tensors(preset: Published, head_specs: Mapping[str, HeadSpec]) -> dict[str, Tensor]:
    """Return empty tensors with which AutoModelForSequenceClassification and the like refuse heads.

    They are for heads without a class, and for labels that are predicted as words. Without them
    these classes would initialize a head at random. The shape fits no head; classes without one
    ignore the tensors.
    """
    language_terms = {s.term for s in head_specs.values() if s.scores_vocabulary}
    refused = {*heads_without_transformers_class(preset, head_specs), *language_terms}
    if refused.isdisjoint(CLASS_SUFFIXES):
        return {}
    return {name: torch.empty(0) for name in task_head_tensors(preset)}


def task_head_tensors(preset: Published) -> set[str]:
    """Return the names in transformers of the output layers of all heads for tasks."""
    return {
        name
        for head in CLASS_SUFFIXES
        for name in preset.weight_names.external_names(f"heads.{head}.out.weight")
    }


def transformers_difference(preset: Published, head_specs: Mapping[str, HeadSpec]) -> str | None:
    """Describe how transformers computes a loaded model differently; None: it does not."""
    is_supported = preset.config_mapping.in_transformers
    return (
        preset.config_mapping.difference(preset.architecture, head_specs) if is_supported else None
    )


def opening_note(preset: Published, head_specs: Mapping[str, HeadSpec]) -> str | None:
    """Describe what transformers lacks of a model; None: nothing."""
    if not preset.config_mapping.in_transformers:
        return (
            f"{_native_format_note(preset)}transformers has no class for this network: "
            "`unmask.load` loads it"
        )
    difference = transformers_difference(preset, head_specs)
    unsupported = heads_without_transformers_class(preset, head_specs)
    lines = [
        line
        for line in (_missing_head_note(preset, head_specs, unsupported), difference)
        if line is not None
    ]
    return "; ".join(lines) or None


def _missing_head_note(
    preset: Published, head_specs: Mapping[str, HeadSpec], native_heads: Mapping[str, str]
) -> str | None:
    """Describe the head that transformers does not load, and the reason if it has the class."""
    if not native_heads:
        return next(
            (difference for spec in head_specs.values() if (difference := _head_difference(spec))),
            None,
        )
    article, remainder = (
        ("its", "model below the head") if len(native_heads) == len(head_specs) else ("a", "rest")
    )
    name, head = next(iter(native_heads.items()))
    reason = unsupported_reason(name, preset.config_mapping.class_names[()])
    return (
        f"{article} head is {head}, which transformers lacks"
        f"{'' if reason is None else f' ({reason})'}: it loads the {remainder}, "
        f"`unmask.load` loads both{_refusal_note(preset, name, head_specs[name])}"
    )


def _refusal_note(preset: Published, name: str, spec: HeadSpec) -> str:
    """Name the class that refuses a head, and the option with which the head has that class."""
    class_name, usual = preset.config_mapping.class_names.get((name,)), preset.classification_head
    if class_name is None:
        return ""
    if not isinstance(spec, SequenceClassification) or usual is None:
        return f", {class_name} refuses it"
    key = "pooled_layers" if spec.pooling == usual.pooling else "pooling"
    option = f"--option {key}={getattr(usual, key)}"
    return f", {class_name} refuses it ({option} gives a head that it has)"


def _native_format_note(preset: Published) -> str:
    """Describe the settings that the family's format cannot express; empty if it can."""
    if not preset.config_mapping.model_type.startswith(OWN_WORDS):
        return ""
    keys = inexpressible_keys(
        preset, next(other for other in MODELS.values() if other.family == preset.family)
    )
    settings = ", ".join(f"architecture.{key}" for key in keys) or "this architecture"
    return f"the format of {preset.family} cannot express {settings}, so Unmask's is used: "


def _head_difference(spec: HeadSpec) -> str | None:
    """Describe how transformers treats a supported head differently."""
    forward = spec.generation if isinstance(spec, LanguageModeling) else None
    if spec.scores_vocabulary and spec.term in CLASS_SUFFIXES:
        return (
            f"it predicts labels as words: AutoModel{CLASS_SUFFIXES[spec.term]} refuses it, "
            "`unmask.load` gives their probabilities"
        )
    if isinstance(forward, AppendedMaskGeneration) and forward.answers_source:
        return "transformers uses it to fill masks, not to generate; `unmask.load` does both"
    if forward is not None and forward.shifted_targets:
        return (
            "each position predicts the next token, which transformers takes for the same one; "
            "`unmask.load` fills masks as trained"
        )
    if forward is not None and forward.bidirectional_prompt:
        return (
            "its attention over a prompt is bidirectional, in transformers causal; `unmask.load` "
            "computes it as trained"
        )
    return None


def _head_without_class(preset: Published, spec: HeadSpec) -> str | None:
    if isinstance(spec, BiLSTMCRF | AutoregressiveCharacters):
        return type(spec).__name__
    if isinstance(spec, TokenClassification | QuestionAnswering):
        usual = (
            token_classification_head(preset)
            if isinstance(spec, TokenClassification)
            else question_answering_head(preset)
        )
        return (
            None
            if spec.transform == usual.transform
            else f"{type(spec).__name__}(transform={spec.transform})"
        )
    if not isinstance(spec, SequenceClassification) or preset.classification_head is None:
        return None
    _, poolings = preset.config_mapping.pooling_key
    pool = {} if spec.pooling in poolings.values() else {"pooling": spec.pooling}
    options = {**pool, "pooled_layers": spec.pooled_layers}
    differing = [
        f"{n}={x!r}" for n, x in options.items() if x != getattr(preset.classification_head, n)
    ]
    return f"{type(spec).__name__}({', '.join(differing)})" if differing else None
