"""Layers of the Evolved Transformer, So et al. 2019, arXiv:1901.11117, as values.

A block of the paper is two layers here: one of these, and one of attention and a feed-forward.
`unmask.model.evolved_layers` has what they build: that needs attention, which needs the
architecture that names these.
"""

from dataclasses import dataclass
from typing import ClassVar

from unmask.model.parts import Sizes


@dataclass(frozen=True)
class GatedConvolutions:
    """The first half of an encoder's block: a gated linear unit, then convolutions side by side.

    So et al. 2019, figure 3, left; widths and places of norms and dropout are those of the released
    code (tensor2tensor, `evolved_transformer_encoder`).
    """

    attends: ClassVar[bool] = False
    reaches: ClassVar[tuple[int, ...]] = ()
    narrow: int = 3
    """Tokens that the plain convolution reads at once."""
    wide: int = 9
    """Tokens that the separable one behind it reads at once."""

    def __post_init__(self) -> None:
        _check_odd(narrow=self.narrow, wide=self.wide)

    def weights(self, sizes: Sizes) -> int:
        """Count the weights that multiply a token's vector, attention apart."""
        d, half = sizes.d_model, sizes.d_model // 2
        return 2 * d * d + 4 * d * d + self.narrow * d * half + self.wide * 4 * d + 4 * d * half


@dataclass(frozen=True)
class AttendedConvolutions:
    """The first half of a decoder's block: two attentions, then two convolutions, side by side.

    So et al. 2019, figure 3, right; widths and places of norms and dropout are those of the
    released code (tensor2tensor, `evolved_transformer_decoder`). Convolutions read what stands
    before a token, and itself.
    """

    attends: ClassVar[bool] = True
    heads: int = 16
    """Of the attention to the decoder's own tokens, or the architecture's, if those are more."""
    wide: int = 11
    """Tokens that the convolution reads at once which is activated."""
    narrow: int = 7
    """Tokens that the one beside it, and the one behind both, read at once."""

    def __post_init__(self) -> None:
        if min(self.heads, self.wide, self.narrow) < 1:
            raise ValueError(f"heads, wide and narrow must be at least 1, got {self}")

    @property
    def reaches(self) -> tuple[int, int]:
        """How many columns back convolutions read: of what enters, and of what leaves the first."""
        return max(self.wide, self.narrow) - 1, self.narrow - 1

    def weights(self, sizes: Sizes) -> int:
        """Count the weights that multiply a token's vector, attention apart."""
        d = sizes.d_model
        first = (self.wide + self.narrow) * d + 2 * d * d + d * (d // 2)
        return first + self.narrow * 2 * d + 2 * d * d


def _check_odd(**widths: int) -> None:
    for name, width in widths.items():
        if width < 1 or width % 2 == 0:
            raise ValueError(f"{name} must be odd and at least 1, got {width}")


LayerKind = GatedConvolutions | AttendedConvolutions
"""What a layer may be beside attention and a feed-forward."""
