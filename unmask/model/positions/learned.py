"""Learned position embeddings."""

from dataclasses import dataclass, replace
from typing import ClassVar

from jaxtyping import Int
from torch import Tensor, nn

from unmask.model.layers.feed_forward import AttentionDimensions
from unmask.model.positions.module import PositionModule, PositionSpec


@dataclass(frozen=True)
class LearnedPositions(PositionSpec):
    """Position embeddings (Gehring et al. 2017; BERT, GPT-2)."""

    max_positions: int = 512
    """Length of the longest text."""
    offset: int = 0
    """Unused rows of the table before that of position 0: RoBERTa's released code counts positions
    from the padding's id + 1."""

    only_in_embeddings: ClassVar[bool] = True

    def with_padding_id(self, padding_id: int) -> "LearnedPositions":
        """Return the scheme for another padding id, if positions are counted from it."""
        return replace(self, offset=padding_id + 1) if self.offset else self

    def build(self, dimensions: AttentionDimensions) -> PositionModule:
        """Build the table [offset + max_positions d_embed]."""
        return LearnedPositionsModule(self, dimensions)


class LearnedPositionsModule(PositionModule):
    """Looks up the embedding of each position."""

    reads_position_ids: ClassVar[bool] = True

    def __init__(self, scheme: LearnedPositions, dimensions: AttentionDimensions) -> None:
        super().__init__()
        self.max_positions, self.offset = scheme.max_positions, scheme.offset
        self.table = nn.Embedding(scheme.offset + scheme.max_positions, dimensions.d_embed)

    def embed(self, position_ids: Int[Tensor, "b t"]) -> Tensor:
        """Look up [b t d]."""
        if (
            position_ids.shape[1] > self.max_positions
            and (last := int(position_ids.max())) >= self.max_positions
        ):
            raise ValueError(
                f"a text of {last + 1} tokens is longer than the model's {self.max_positions} "
                "positions"
            )
        return self.table(position_ids + self.offset)

    def share_embeddings(self, other: "LearnedPositionsModule") -> None:
        """Share the other's table."""
        self.table = other.table
