"""What a model returns: logits, and losses as sums.

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
    """The loss summed over targets, in nats (or squared error), float32."""
    count: int
    """The number of targets."""
    n_correct: Int[Tensor, ""] | None = None
    """How many predictions are correct; None where that is undefined (regression)."""
    weight: float = 1.0
    """The weight of its mean in the loss."""

    @property
    def loss(self) -> Float[Tensor, ""]:
        """The mean; zero without targets."""
        return self.total / max(self.count, 1)


@dataclass(frozen=True)
class Prediction:
    """The output of a model for a batch."""

    logits: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    """By head: of the targets [n v], of the texts [b labels]."""
    terms: Mapping[str, Term] = field(default_factory=dict[str, Term])

    @property
    def loss(self) -> Float[Tensor, ""]:
        """The sum of the means of all terms, each times its weight."""
        if not self.terms:
            return torch.zeros(())
        return torch.stack([term.weight * term.loss for term in self.terms.values()]).sum()
