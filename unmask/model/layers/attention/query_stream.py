"""Query streams: what predicts a token without its own content (DeBERTa, XLNet)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.model.layers.feed_forward import Dropout, ModelDimensions
from unmask.model.positions.scheme import LearnedPositions, LearnedPositionsModule


@dataclass(frozen=True)
class EnhancedMaskDecoder:
    """Absolute positions are added behind the backbone: the enhanced mask decoder.

    He et al. 2021, arXiv:2006.03654, section 3.2 and appendix A.8. The output of the last layer but
    one, H, stays the keys and values; H plus position embeddings is the query of the last layer,
    whose output is the query of the same layer again. So the last layer's output for H itself is
    not computed (released code, `EnhancedMaskDecoder`).

    Deviates: all tokens are queries, as in the released code; the masked ones would do (appendix
    A.7).
    """

    max_positions: int = 512
    """Length of the longest text."""
    n_passes: int = 2
    """How often the last layer is applied (appendix A.8: n)."""

    def __post_init__(self) -> None:
        if self.n_passes < 1:
            raise ValueError(f"n_passes must be at least 1, got {self.n_passes}")

    def build(self, dimensions: ModelDimensions) -> "EnhancedMaskDecoderModule":
        """Build the position embeddings [max_positions d].

        Raises:
            ValueError: token embeddings are smaller than hidden states.
        """
        if dimensions.d_embed != dimensions.d_model:
            raise ValueError(
                "EnhancedMaskDecoder adds position embeddings to hidden states of size "
                f"{dimensions.d_model}, but embedding_size is {dimensions.d_embed}"
            )
        return EnhancedMaskDecoderModule(self, dimensions)


class EnhancedMaskDecoderModule(LearnedPositionsModule):
    """Makes the first queries; the layer that they go through is the backbone's."""

    excludes_self: ClassVar[bool] = False

    def __init__(self, part: EnhancedMaskDecoder, dimensions: ModelDimensions) -> None:
        super().__init__(LearnedPositions(part.max_positions), dimensions)
        self.n_passes = part.n_passes

    def extra_cost(self, n_layers: int) -> float:
        """Return the additional FLOPs as a fraction of those of all layers."""
        return (self.n_passes - 1) / n_layers

    def forward(
        self, hidden: Float[Tensor, "b t d"], position_ids: Int[Tensor, "#b t"]
    ) -> Float[Tensor, "b t d"]:
        """Add the embedding of each position."""
        return hidden + self.embed(position_ids)


@dataclass(frozen=True)
class TwoStreamAttention:
    """The query of a token knows its position and its context, but not the token itself.

    Yang et al. 2019, arXiv:1906.08237, section 2.3: the query stream begins with one learned vector
    at all positions, goes through all layers and attends to the content stream of each.
    """

    def build(self, dimensions: ModelDimensions) -> "TwoStreamAttentionModule":
        """Build the initial query vector [d]."""
        return TwoStreamAttentionModule(dimensions)


class TwoStreamAttentionModule(nn.Module):
    """Makes the first queries; the layers that they go through are the backbone's."""

    excludes_self: ClassVar[bool] = True
    n_passes: ClassVar[int] = 1

    def __init__(self, dimensions: ModelDimensions) -> None:
        super().__init__()
        self.asks = nn.Parameter(torch.empty(1, 1, dimensions.d_model))
        self.dropout = Dropout(dimensions.dropout)

    def initialize_parameters(self) -> None:
        """Fill the vector from N(0, 0.02) (released code, `initializer_range`)."""
        nn.init.normal_(self.asks, std=0.02)

    def extra_cost(self, n_layers: int) -> float:
        """Return the additional FLOPs as a fraction of those of all layers."""
        return 1.0

    def forward(
        self, hidden: Float[Tensor, "b t d"], position_ids: Int[Tensor, "#b t"]
    ) -> Float[Tensor, "b t d"]:
        """Give all positions the same vector."""
        return self.dropout(self.asks.expand_as(hidden))


QueryStream = EnhancedMaskDecoderModule | TwoStreamAttentionModule
"""With `excludes_self` it goes through all layers and does not see its own position; otherwise it
goes through the last layer alone."""
