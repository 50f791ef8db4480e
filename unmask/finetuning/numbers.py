"""Regression: numbers are learned around their mean, in units of their spread.

A rate that fits labels then fits any number, be it a share or a price. When the run is over the
scale goes into the head, so that the model says numbers as they are, in any library.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from unmask.finetuning.ask import LABEL, Ask
from unmask.finetuning.by_head import ByHead
from unmask.heads.labels import Labels, LabelsHead
from unmask.heads.model import Model
from unmask.model.architecture import Architecture
from unmask.model.parts import LayerNorm
from unmask.model.transformer import Transformer
from unmask.published.card import Published
from unmask.tasks.task import Item


def scaled(asked: Ask, card: Published, train: Sequence[Item]) -> Ask:
    """Let numbers be asked in the scale of the training file; of other tasks nothing changes."""
    if not isinstance(asked, ByHead) or asked.task.does != "regress":
        return asked
    numbers = np.array([item.truth for item in train], np.float64)
    shift = float(numbers.mean()) if _can_shift(card) else 0.0
    scale = float(np.sqrt(np.mean((numbers - shift) ** 2)))
    return replace(asked, shift=shift, scale=scale or 1.0)


def plain(asked: Ask) -> Ask:
    """Return the task as a finished model is asked, whose head says numbers as they are."""
    return replace(asked, shift=0.0, scale=1.0) if isinstance(asked, ByHead) else asked


def into_scale(model: Model, asked: Ask) -> None:
    """Let a head that says numbers as they are say them in the scale in which they are learned."""
    if isinstance(asked, ByHead) and asked.task.does == "regress":
        _change(model, -asked.shift, 1.0)
        _change(model, 0.0, 1 / asked.scale)


def out_of_scale(model: Model, asked: Ask) -> None:
    """Undo `into_scale`."""
    if isinstance(asked, ByHead) and asked.task.does == "regress":
        _change(model, asked.shift, asked.scale)


def _can_shift(card: Published) -> bool:
    """Say whether the head has a bias, or else the norm before it has one that can do its work."""
    spec, a = card.heads[LABEL], card.architecture
    if not isinstance(spec, Labels) or not isinstance(a, Architecture):
        return False
    normed = a.norm_final and isinstance(a.norm, LayerNorm) and a.norm.bias
    linear = not spec.dense and spec.pool not in ("compare", "both") and spec.layers == "last"
    return spec.bias or (normed and linear)


def _change(model: Model, shift: float, scale: float) -> None:
    """Let the head say its number times `scale` plus `shift`.

    A head without a bias (GPT-2's, in the reference library) has the shift in the bias b of the
    norm before it: w (x + b + w shift / |w|²) = w (x + b) + shift.
    """
    head = model.heads[LABEL]
    assert isinstance(head, LabelsHead)
    with torch.no_grad():
        w = head.out.weight.mul_(scale)
        if head.spec.bias:
            head.out.bias.mul_(scale).add_(shift)
        elif shift:
            assert isinstance(model.backbone, Transformer)
            assert isinstance(model.backbone.final_norm, nn.LayerNorm)
            bias = model.backbone.final_norm.bias
            bias.add_(w[0] * (shift / float((w * w).sum())))
            bias.requires_grad_(True)  # it has been tuned, and is saved with what else was
