"""CompressionOptions: compression and distillation as options of jobs that train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unmask.compression.config import (
    TRAINING_METHODS,
    TrainingCompression,
    check_training_methods,
)
from unmask.compression.distillation.terms import (
    DISTILLATION_TERMS,
    Distillation,
    ObjectiveWeight,
    TeacherSettings,
)
from unmask.config import parse_variant
from unmask.options import flag


@dataclass(frozen=True, kw_only=True)
class CompressionOptions:
    """How a model is made smaller, and of whom it learns, while it is trained."""

    compression: Sequence[Any] = field(default=(), metadata=flag("--compress", metavar="METHOD"))
    """Compression while training: gradual, movement, keep_zeros or mask (weights become zero) or
    gates (heads are removed), then qat (weights are rounded); with settings: qat:bits=4
    (docs/compression.md)."""
    teacher: str | Path | Sequence[str | Path] = field(default=(), metadata=flag(metavar="MODEL"))
    """Teacher of distillation, with the same tokenizer and, for a task, the same labels; of several
    teachers, the mean prediction."""
    distill: Sequence[Any] = field(default=(), metadata=flag(metavar="TERM", shown_default="soft"))
    """Term of the distillation loss: soft, hard, cosine, hidden, attention, relations, or objective
    (the model's own loss); with settings: soft:temperature=2,weight=5 (docs/distillation.md)."""


_TERMS: dict[str, Any] = DISTILLATION_TERMS | {
    "objective": ObjectiveWeight,
    "teacher": TeacherSettings,
}


def training_methods(options: CompressionOptions) -> tuple[TrainingCompression, ...]:
    """Return the methods that options name.

    Raises:
        ValueError: there is no such method, it has no such setting, or they do not fit together.
    """
    given = options.compression
    methods = tuple(
        parse_variant(TRAINING_METHODS, one, "compress") if isinstance(one, str) else one
        for one in ([given] if isinstance(given, str) else given)
    )
    check_training_methods(methods)
    return methods


def distillation(options: CompressionOptions) -> Distillation | None:
    """Return the distillation that options describe. None: there is no teacher.

    Raises:
        ValueError: there is no such term, it has no such setting, or terms are given without a
            teacher.
    """
    given, teachers = options.distill, options.teacher
    terms = [
        parse_variant(_TERMS, one, "distill") if isinstance(one, str) else one
        for one in ([given] if isinstance(given, str) else given)
    ]
    names = [teachers] if isinstance(teachers, str | Path) else list(teachers)
    if not names:
        if terms:
            raise ValueError("distill needs a teacher")
        return None
    default = Distillation(teacher=tuple(map(str, names)))
    settings = [term for term in terms if type(term) in (ObjectiveWeight, TeacherSettings)]
    compared = tuple(term for term in terms if term not in settings)
    found = replace(default, terms=compared) if compared else default
    for setting in settings:
        found = setting.add_to(found)
    return found
