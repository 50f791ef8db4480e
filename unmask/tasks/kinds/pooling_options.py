"""What stands for a text, or for two: an option of every kind that a head of labels answers."""

from dataclasses import dataclass
from typing import Literal

from unmask.heads.classification.sequence_classification import (
    PooledLayers,
    Pooling,
)

AddedTokens = Literal["own", "added"]


@dataclass(frozen=True, kw_only=True)
class PoolingOptions:
    """What a head of labels reads of a text."""

    pooling: Pooling | None = None
    """The token whose vector stands for a text, the mean over all, their largest numbers, all three
    side by side, a mean with learned weights, or of two texts, each read by itself, their means,
    compared, or of both their orders the last tokens (see `SequenceClassification.pooling`). None:
    the model's own, the first of an encoder (Devlin et al. 2019, section 4.1) and the last of a
    decoder (Radford et al. 2018, section 3.2); but of a model without a trained pooler the mean, or
    "compare" (see `without_trained_pooler`)."""
    pooled_layers: PooledLayers | None = None
    """Whose vectors are read: those of the last layer, or of all, side by side (see
    `SequenceClassification.pooled_layers`). None: the last one's, but all to compare two texts, and
    of a model without a trained pooler."""
    special_tokens: AddedTokens | None = None
    """What is around texts: what the tokenizer puts there ("own"), or tokens that are added to a
    decoder's vocabulary (see `unmask.finetuning.initial_model.task_tokens`). None: what the model's
    paper does."""
    order_invariant: bool | None = None
    """The answer is the same in whichever order two texts are given: of a decoder with added tokens
    both orders are read (Radford et al. 2018, section 3.3, similarity), other models do not ask.
    None: that of a number is, and that of labels is not."""
