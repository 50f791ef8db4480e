"""Standardization of regression targets: mean 0 and standard deviation 1 in training.

A learning rate that works for classification then works for numbers of any scale. At the end of the
run the scale is folded into the head, so that the model predicts numbers in their original units,
in any library.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

import numpy as np
import torch
from torch import nn

from unmask.finetuning.formulations.classification_head import ClassificationFormulation
from unmask.finetuning.formulations.formulation import LABEL_HEAD, TaskFormulation
from unmask.heads.classification.sequence_classification import (
    SequenceClassification,
    SequenceClassificationHead,
)
from unmask.heads.model import Model
from unmask.model.architecture import StackArchitecture
from unmask.model.backbones.transformer import Architecture, Transformer
from unmask.model.layers.feed_forward import LayerNorm
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.task import TaskExample
from unmask.zoo.preset import Published


def with_target_scale(
    formulation: TaskFormulation, preset: Published, train: Sequence[TaskExample]
) -> TaskFormulation:
    """Return the formulation with standardized targets; other tasks are unchanged."""
    if not _is_regression(formulation):
        return formulation
    numbers = np.array([item.label for item in train], np.float64)
    shift = float(numbers.mean()) if _can_absorb_shift(preset) else 0.0
    scale = float(np.sqrt(np.mean((numbers - shift) ** 2)))
    return replace(formulation, target_shift=shift, target_scale=scale or 1.0)


def without_target_scale(formulation: TaskFormulation) -> TaskFormulation:
    """Return the formulation for a finished model, which predicts in original units."""
    return (
        replace(formulation, target_shift=0.0, target_scale=1.0)
        if isinstance(formulation, ClassificationFormulation)
        else formulation
    )


def normalize_head(model: Model, formulation: TaskFormulation) -> None:
    """Rescale a head from original units to standardized targets."""
    if _is_regression(formulation):
        _rescale_head(model, -formulation.target_shift, 1.0)
        _rescale_head(model, 0.0, 1 / formulation.target_scale)


def denormalize_head(model: Model, formulation: TaskFormulation) -> None:
    """Undo `normalize_head`."""
    if _is_regression(formulation):
        _rescale_head(model, formulation.target_shift, formulation.target_scale)


def _is_regression(formulation: TaskFormulation) -> TypeGuard[ClassificationFormulation]:
    """Return whether a head predicts a number."""
    return (
        isinstance(formulation, ClassificationFormulation)
        and TASK_KINDS[formulation.task.task_kind].predicts_number
    )


def _can_absorb_shift(preset: Published) -> bool:
    """Return whether the head, or the norm before it, has a bias that can absorb the shift."""
    spec, a = preset.heads[LABEL_HEAD], preset.architecture
    if not isinstance(spec, SequenceClassification) or not isinstance(a, StackArchitecture):
        return False
    last = isinstance(a, Architecture) and a.final_norm
    normed = last and isinstance(a.norm, LayerNorm) and a.norm.bias
    linear = (
        not spec.dense_layer
        and spec.pooling not in ("compare", "both")
        and spec.pooled_layers == "last"
    )
    return spec.bias or (normed and linear)


def _rescale_head(model: Model, shift: float, scale: float) -> None:
    """Multiply the output of the head by `scale` and add `shift`.

    For a head without a bias (GPT-2's, in the reference library), the shift goes into the bias b of
    the norm before it: w (x + b + w shift / |w|²) = w (x + b) + shift.
    """
    head = model.heads[LABEL_HEAD]
    assert isinstance(head, SequenceClassificationHead)
    with torch.no_grad():
        w = head.out.weight.mul_(scale)
        if head.spec.bias:
            head.out.bias.mul_(scale).add_(shift)
        elif shift:
            assert isinstance(model.backbone, Transformer)
            assert isinstance(model.backbone.final_norm, nn.LayerNorm)
            bias = model.backbone.final_norm.bias
            bias.add_(w[0] * (shift / float((w * w).sum())))
            bias.requires_grad_(True)  # so that it is saved with the other trained weights
