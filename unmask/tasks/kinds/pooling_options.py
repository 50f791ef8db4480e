"""Pooling options, shared by all kinds with a classification head."""

from dataclasses import dataclass
from typing import Literal

from unmask.heads.classification.sequence_classification import (
    PooledLayers,
    Pooling,
)

AddedTokens = Literal["own", "added"]


@dataclass(frozen=True, kw_only=True)
class PoolingOptions:
    """How token vectors are pooled for the classification head."""

    pooling: Pooling | None = None
    """Pooling: one token, the mean, the maximum, all three concatenated, attention, a comparison of
    two texts encoded separately, or the last tokens of both orders of two texts (see
    `SequenceClassification.pooling`). None: the model's own, the first token of an encoder (Devlin
    et al. 2019, section 4.1) and the last of a decoder (Radford et al. 2018, section 3.2); without
    a trained pooler "compare" for two texts, and the mean for frozen features of one (see
    `without_trained_pooler`)."""
    pooled_layers: PooledLayers | None = None
    """Layers to pool: the last, or all, concatenated (see `SequenceClassification.pooled_layers`).
    None: the last; all with "compare", and for frozen features without a trained pooler."""
    special_tokens: AddedTokens | None = None
    """Special tokens around texts: those of the tokenizer ("own"), or tokens added to a decoder's
    vocabulary (see `unmask.finetuning.initial_model.task_tokens`). None: as in the model's
    paper."""
    order_invariant: bool | None = None
    """Whether the prediction must not depend on the order of two texts: a decoder with added tokens
    reads both orders (Radford et al. 2018, section 3.3, similarity), other models ignore it. None:
    true for regression, false for labels."""
