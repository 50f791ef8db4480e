"""Fixed positions of the patches of a picture: sines and cosines of their row and column."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.model.layers.feed_forward import AttentionDimensions
from unmask.model.positions.grid import GridPositions, GridPositionsModule

_BASE = 10_000.0
"""Longest wavelength / 2 pi (Vaswani et al. 2017, arXiv:1706.03762, section 3.5)."""


@dataclass(frozen=True)
class GridSinusoidal(GridPositions):
    """A fixed vector for each patch: half of it says its column, half its row.

    He et al. 2022, arXiv:2111.06377, appendix A.1; special tokens have zeros (released code).
    """

    def build(self, dimensions: AttentionDimensions) -> "GridSinusoidalModule":
        """Build the table [1 n_special+rows*columns d_embed].

        Raises:
            ValueError: the width is not a multiple of 4.
        """
        if dimensions.d_embed % 4:
            raise ValueError(
                f"GridSinusoidal needs a width that is a multiple of 4, got {dimensions.d_embed}"
            )
        return GridSinusoidalModule(self, dimensions)


class GridSinusoidalModule(GridPositionsModule):
    """Looks up vectors that no gradient reaches; they are saved with the weights, as published."""

    def initialize_parameters(self) -> None:
        """Fill the table: sines and cosines of the column, then those of the row."""
        own, d = self.scheme, self.table.shape[-1]
        rows = sinusoids(own.rows, d // 2)[:, None].expand(-1, own.columns, -1)
        columns = sinusoids(own.columns, d // 2)[None].expand(own.rows, -1, -1)
        grid = torch.cat((columns, rows), -1).flatten(0, 1)
        with torch.no_grad():
            self.table.zero_()
            self.table[0, own.n_special :] = grid.to(self.table)

    def embed(self, position_ids: Int[Tensor, "b t"]) -> Tensor:
        """Look up [b t d] in a picture of the table's size."""
        return super().embed(position_ids).detach()

    def resized(self, rows: int, columns: int) -> Float[Tensor, "1 n d"]:
        """Return the table for pictures of another size, interpolated as published."""
        return super().resized(rows, columns).detach()


def sinusoids(n: int, d: int) -> Float[Tensor, "n d"]:
    """Return the sines, then the cosines, of n places at d / 2 frequencies."""
    frequencies = _BASE ** -(torch.arange(d // 2, dtype=torch.float64) / (d // 2))
    angles = torch.arange(n, dtype=torch.float64)[:, None] * frequencies
    return torch.cat((angles.sin(), angles.cos()), -1)
