"""The output of a model: logits, and losses as sums.

Sums can be added up over micro-batches, processes and batches.
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
    """Number of correct predictions. None: undefined (regression)."""
    weight: float = 1.0
    """Weight of the term's mean in the loss."""

    @property
    def loss(self) -> Float[Tensor, ""]:
        """The mean over targets; zero if there are none."""
        return self.total / max(self.count, 1)


@dataclass(frozen=True)
class Prediction:
    """The output of a model for a batch."""

    logits: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    """Logits by head: of targets [n v], or of texts [b labels]."""
    terms: Mapping[str, Term] = field(default_factory=dict[str, Term])

    @property
    def loss(self) -> Float[Tensor, ""]:
        """The weighted sum of the means of all terms."""
        if not self.terms:
            return torch.zeros(())
        return torch.stack([term.weight * term.loss for term in self.terms.values()]).sum()
