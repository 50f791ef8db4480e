"""What stands between a backbone's last layer but one and the scores of hidden tokens."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from unmask.model.parts import Sizes
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

    def __init__(self, part: MaskDecoder, sizes: Sizes) -> None:
        super().__init__(Learned(part.length), sizes)
        self.times = part.times

    def forward(
        self, hidden: Float[Tensor, "b t d"], place: Int[Tensor, "#b t"]
    ) -> Float[Tensor, "b t d"]:
        """Add the vector of each place."""
        return hidden + self.embed(place)
