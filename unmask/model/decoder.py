"""What stands between a backbone's last layer but one and the scores of hidden tokens."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.model.parts import Dropout, Sizes
from unmask.model.positions import Learned, LearnedModule


@dataclass(frozen=True)
class MaskDecoder:
    """Absolute places enter behind the backbone: the enhanced mask decoder.

    He et al. 2021, arXiv:2006.03654, section 3.2 and appendix A.8. What the last layer but one
    says, H, stays the context; H plus a vector for each place asks it, through the last layer;
    what comes of it asks again, through the same layer. So the last layer's reading of H itself is
    not made (released code, `EnhancedMaskDecoder`).

    Deviates: all tokens ask, as in the released code; those that are hidden would do (appendix
    A.7).
    """

    length: int = 512
    """How many places there are: the longest text."""
    times: int = 2
    """How often the last layer is asked (appendix A.8: n)."""

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ValueError(f"times must be at least 1, got {self.times}")

    def build(self, sizes: Sizes) -> "MaskDecoderModule":
        """Build the table of places [length d].

        Raises:
            ValueError: token vectors are narrower than hidden states.
        """
        if sizes.d_embed != sizes.d_model:
            raise ValueError(
                f"a mask decoder adds places to hidden states of width {sizes.d_model}, but "
                f"vectors of tokens and places have {sizes.d_embed}"
            )
        return MaskDecoderModule(self, sizes)


class MaskDecoderModule(LearnedModule):
    """Says what asks first; the layer that is asked is the backbone's."""

    strict: ClassVar[bool] = False

    def __init__(self, part: MaskDecoder, sizes: Sizes) -> None:
        super().__init__(Learned(part.length), sizes)
        self.times = part.times

    def more(self, n_layers: int) -> float:
        """Count what it makes of more work, as a share of that of all layers."""
        return (self.times - 1) / n_layers

    def forward(
        self, hidden: Float[Tensor, "b t d"], place: Int[Tensor, "#b t"]
    ) -> Float[Tensor, "b t d"]:
        """Add the vector of each place."""
        return hidden + self.embed(place)


@dataclass(frozen=True)
class TwoStreams:
    """What asks for a token knows where it is, and what it may see, but not the token itself.

    Yang et al. 2019, arXiv:1906.08237, section 2.3: a second stream begins with one learned vector
    in all places, goes through all layers, reads the first stream below it, and is read by nobody.
    """

    def build(self, sizes: Sizes) -> "TwoStreamsModule":
        """Build the vector that asks [d]."""
        return TwoStreamsModule(sizes)


class TwoStreamsModule(nn.Module):
    """Says what asks first; the layers that are asked are the backbone's."""

    strict: ClassVar[bool] = True
    times: ClassVar[int] = 1

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.asks = nn.Parameter(torch.empty(1, 1, sizes.d_model))
        self.dropout = Dropout(sizes.dropout)

    def draw(self) -> None:
        """Fill the vector from N(0, 0.02) (released code, `initializer_range`)."""
        nn.init.normal_(self.asks, std=0.02)

    def more(self, n_layers: int) -> float:
        """Count what it makes of more work, as a share of that of all layers."""
        return 1.0

    def forward(
        self, hidden: Float[Tensor, "b t d"], place: Int[Tensor, "#b t"]
    ) -> Float[Tensor, "b t d"]:
        """Give all places the same vector."""
        return self.dropout(self.asks.expand_as(hidden))


Asker = MaskDecoderModule | TwoStreamsModule
"""`strict`: it asks in all layers, and may not see its own place; otherwise in the last alone."""
