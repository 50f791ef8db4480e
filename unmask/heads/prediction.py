"""What a model returns: scores, and losses as sums.

The sums add up over micro-batches, processes and batches.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Term:
    """One named part of the loss."""

    total: Float[Tensor, ""]
    """Summed over the places asked, in nats (or squared error), float32."""
    count: int
    """Places asked."""
    n_correct: Int[Tensor, ""] | None = None
    """How many of them the model got right; None where that means nothing (regression)."""
    weight: float = 1.0
    """Of its mean in the loss."""

    @property
    def loss(self) -> Float[Tensor, ""]:
        """The mean; zero where nothing is asked."""
        return self.total / max(self.count, 1)


@dataclass(frozen=True)
class Prediction:
    """What a model says of a batch."""

    logits: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    """By head: of the places asked [n v], of the texts [b labels]."""
    terms: Mapping[str, Term] = field(default_factory=dict[str, Term])

    @property
    def loss(self) -> Float[Tensor, ""]:
        """The sum of the means of all terms, each times its weight."""
        if not self.terms:
            return torch.zeros(())
        return torch.stack([term.weight * term.loss for term in self.terms.values()]).sum()
