"""Layers of the Evolved Transformer, So et al. 2019, arXiv:1901.11117, as values.

A block of the paper is two layers here: one of these, then attention and a feed-forward layer. The
modules are in `unmask.model.backbones.evolved.layers`: they need attention, which needs the
architecture, which names these values.
"""

from dataclasses import dataclass
from typing import ClassVar

from unmask.model.layers.feed_forward import ModelDimensions


@dataclass(frozen=True)
class EvolvedEncoderConvolutions:
    """The first half of an encoder's block: a gated linear unit, then parallel convolutions.

    So et al. 2019, figure 3, left; widths and places of norms and dropout are those of the released
    code (tensor2tensor, `evolved_transformer_encoder`).
    """

    has_attention: ClassVar[bool] = False
    cache_spans: ClassVar[tuple[int, ...]] = ()
    narrow_kernel_size: int = 3
    """Kernel size of the plain convolution."""
    wide_kernel_size: int = 9
    """Kernel size of the separable convolution after it."""

    @property
    def reach(self) -> int:
        """Columns that both convolutions, one after the other, read on either side."""
        return self.narrow_kernel_size // 2 + self.wide_kernel_size // 2

    def __post_init__(self) -> None:
        for name in ("narrow_kernel_size", "wide_kernel_size"):
            if (size := getattr(self, name)) < 1 or size % 2 == 0:
                raise ValueError(f"{name} must be odd and at least 1, got {size}")

    def n_weights(self, dimensions: ModelDimensions) -> int:
        """Count the weights that multiply a token's vector, attention apart."""
        d, half = dimensions.d_model, dimensions.d_model // 2
        return (
            2 * d * d
            + 4 * d * d
            + self.narrow_kernel_size * d * half
            + self.wide_kernel_size * 4 * d
            + 4 * d * half
        )


@dataclass(frozen=True)
class EvolvedDecoderConvolutions:
    """The first half of a decoder's block: two attentions, then two convolutions, in parallel.

    So et al. 2019, figure 3, right; widths and places of norms and dropout are those of the
    released code (tensor2tensor, `evolved_transformer_decoder`). Convolutions are causal.
    """

    has_attention: ClassVar[bool] = True
    reach: ClassVar[int] = 0
    n_heads: int = 16
    """Heads of self-attention, if more than the architecture's."""
    wide_kernel_size: int = 11
    """Kernel size of the convolution with an activation."""
    narrow_kernel_size: int = 7
    """Kernel size of the convolution parallel to it, and of the one after both."""

    def __post_init__(self) -> None:
        if min(self.n_heads, self.wide_kernel_size, self.narrow_kernel_size) < 1:
            raise ValueError(
                "n_heads, wide_kernel_size and narrow_kernel_size must be at least 1, got "
                f"{self.n_heads}, {self.wide_kernel_size} and {self.narrow_kernel_size}"
            )

    @property
    def cache_spans(self) -> tuple[int, int]:
        """Numbers of earlier columns that the two levels of convolutions read."""
        return max(self.wide_kernel_size, self.narrow_kernel_size) - 1, self.narrow_kernel_size - 1

    def n_weights(self, dimensions: ModelDimensions) -> int:
        """Count the weights that multiply a token's vector, attention apart."""
        d = dimensions.d_model
        first = (self.wide_kernel_size + self.narrow_kernel_size) * d + 2 * d * d + d * (d // 2)
        return first + self.narrow_kernel_size * 2 * d + 2 * d * d


LayerType = EvolvedEncoderConvolutions | EvolvedDecoderConvolutions
"""Layers other than attention followed by a feed-forward layer."""
