"""Sinusoidal position embeddings."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from unmask.model.layers.feed_forward import AttentionDimensions
from unmask.model.positions.module import PositionModule, PositionSpec


@dataclass(frozen=True)
class Sinusoidal(PositionSpec):
    """Sines and cosines of the position, added to token embeddings; there are no weights.

    Vaswani et al. 2017, arXiv:1706.03762, section 3.5: of d dimensions, those of pair i are the
    sine and the cosine of position / 10,000^(2i / d).
    """

    max_positions: int = 1024
    """Maximum text length in pretraining."""
    layout: Literal["halves", "pairs"] = "halves"
    """"halves": all sines before all cosines (released code, `get_timing_signal_1d`, with other
    frequencies; Marian); "pairs": each sine before its cosine (the paper). The two are the same
    network with its dimensions in another order."""

    only_in_embeddings: ClassVar[bool] = True

    def build(self, dimensions: AttentionDimensions) -> PositionModule:
        """Build the module that computes the sinusoids.

        Raises:
            ValueError: the size is odd.
        """
        return SinusoidalModule(self, dimensions)


class SinusoidalModule(PositionModule):
    """Computes the sines and cosines of positions."""

    reads_position_ids: ClassVar[bool] = True

    def __init__(self, scheme: Sinusoidal, dimensions: AttentionDimensions) -> None:
        super().__init__()
        self.scheme, self.width = scheme, dimensions.d_embed
        if self.width % 2:
            raise ValueError(
                f"sines and cosines come in pairs: the size must be even, got {self.width}"
            )

    def embed(self, position_ids: Int[Tensor, "b t"]) -> Tensor:
        """Compute [b t d] in float32, from angles in float64 if the device supports it."""
        if (
            position_ids.shape[1] > self.scheme.max_positions
            and (last := int(position_ids.max())) >= self.scheme.max_positions
        ):
            raise ValueError(
                f"a text of {last + 1} tokens is longer than the model's "
                f"{self.scheme.max_positions} positions"
            )
        exact = torch.float32 if position_ids.device.type == "mps" else torch.float64
        pairs = torch.arange(0, self.width, 2, device=position_ids.device).to(exact) / self.width
        angle = position_ids[..., None].to(exact) * 10_000.0**-pairs
        both = angle.sin(), angle.cos()
        table = torch.cat(both, -1) if self.scheme.layout == "halves" else torch.stack(both, -1)
        return table.flatten(2).float()
