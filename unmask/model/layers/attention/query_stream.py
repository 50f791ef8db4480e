"""What stands between a backbone's last layer but one and the scores of hidden tokens."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.model.layers.feed_forward import Dropout, ModelDimensions
from unmask.model.positions.scheme import LearnedPositions, LearnedPositionsModule


@dataclass(frozen=True)
class EnhancedMaskDecoder:
    """Absolute places enter behind the backbone: the enhanced mask decoder.

    He et al. 2021, arXiv:2006.03654, section 3.2 and appendix A.8. What the last layer but one
    says, H, stays the context; H plus a vector for each place asks it, through the last layer;
    what comes of it asks again, through the same layer. So the last layer's reading of H itself is
    not made (released code, `EnhancedMaskDecoder`).

    Deviates: all tokens ask, as in the released code; those that are hidden would do (appendix
    A.7).
    """

    max_positions: int = 512
    """How many places there are: the longest text."""
    n_passes: int = 2
    """How often the last layer is asked (appendix A.8: n)."""

    def __post_init__(self) -> None:
        if self.n_passes < 1:
            raise ValueError(f"n_passes must be at least 1, got {self.n_passes}")

    def build(self, dimensions: ModelDimensions) -> "EnhancedMaskDecoderModule":
        """Build the table of places [length d].

        Raises:
            ValueError: token vectors are narrower than hidden states.
        """
        if dimensions.d_embed != dimensions.d_model:
            raise ValueError(
                f"a mask decoder adds places to hidden states of width {dimensions.d_model}, but "
                f"vectors of tokens and places have {dimensions.d_embed}"
            )
        return EnhancedMaskDecoderModule(self, dimensions)


class EnhancedMaskDecoderModule(LearnedPositionsModule):
    """Says what asks first; the layer that is asked is the backbone's."""

    excludes_self: ClassVar[bool] = False

    def __init__(self, part: EnhancedMaskDecoder, dimensions: ModelDimensions) -> None:
        super().__init__(LearnedPositions(part.max_positions), dimensions)
        self.n_passes = part.n_passes

    def extra_cost(self, n_layers: int) -> float:
        """Count what it makes of more work, as a share of that of all layers."""
        return (self.n_passes - 1) / n_layers

    def forward(
        self, hidden: Float[Tensor, "b t d"], position_ids: Int[Tensor, "#b t"]
    ) -> Float[Tensor, "b t d"]:
        """Add the vector of each place."""
        return hidden + self.embed(position_ids)


@dataclass(frozen=True)
class TwoStreamAttention:
    """What asks for a token knows where it is, and what it may see, but not the token itself.

    Yang et al. 2019, arXiv:1906.08237, section 2.3: a second stream begins with one learned vector
    in all places, goes through all layers, reads the first stream below it, and is read by nobody.
    """

    def build(self, dimensions: ModelDimensions) -> "TwoStreamAttentionModule":
        """Build the vector that asks [d]."""
        return TwoStreamAttentionModule(dimensions)


class TwoStreamAttentionModule(nn.Module):
    """Says what asks first; the layers that are asked are the backbone's."""

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
        """Count what it makes of more work, as a share of that of all layers."""
        return 1.0

    def forward(
        self, hidden: Float[Tensor, "b t d"], position_ids: Int[Tensor, "#b t"]
    ) -> Float[Tensor, "b t d"]:
        """Give all places the same vector."""
        return self.dropout(self.asks.expand_as(hidden))


QueryStream = EnhancedMaskDecoderModule | TwoStreamAttentionModule
"""`strict`: it asks in all layers, and may not see its own place; otherwise in the last alone."""
