"""The positions at which a language-modeling head returns logits, where it is not the targets."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Int

from unmask.batch import Feature


@dataclass(frozen=True)
class ScoredPositions(Feature):
    """Logits are returned at these positions; the loss stays that of the targets."""

    positions: Int[Any, "n"]
    """In the flattened [b t]."""
