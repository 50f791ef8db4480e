"""Learned positions of the patches of a picture, in rows and columns."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from unmask.model.layers.feed_forward import AttentionDimensions
from unmask.model.positions.module import PositionModule, PositionSpec


@dataclass(frozen=True)
class GridPositions(PositionSpec):
    """An embedding for each patch, and one for each special token before them.

    Dosovitskiy et al. 2021, arXiv:2010.11929, section 3.1; for pictures of another size they are
    interpolated in two dimensions (section 3.2).
    """

    rows: int = 14
    """Patches from top to bottom."""
    columns: int = 14
    """Patches from left to right."""
    n_special: int = 1
    """Special tokens before the patches."""

    only_in_embeddings: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("rows", "columns", "n_special"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    @property
    def n_patches(self) -> int:
        """Patches of a picture."""
        return self.rows * self.columns

    @property
    def max_positions(self) -> int:
        """Columns of a picture of the size that the table is for."""
        return self.n_special + self.n_patches

    def build(self, dimensions: AttentionDimensions) -> "GridPositionsModule":
        """Build the table [1 n_special+rows*columns d_embed]."""
        return GridPositionsModule(self, dimensions)


class GridPositionsModule(PositionModule):
    """Looks up the embedding of each patch, interpolated where the picture has another size."""

    def __init__(self, scheme: GridPositions, dimensions: AttentionDimensions) -> None:
        super().__init__()
        self.scheme = scheme
        self.table = nn.Parameter(torch.empty(1, scheme.max_positions, dimensions.d_embed))

    def initialize_parameters(self) -> None:
        """Fill the table from N(0, 0.02) (Dosovitskiy et al. 2021, released code)."""
        nn.init.normal_(self.table, std=0.02)

    def embed(self, position_ids: Int[Tensor, "b t"]) -> Tensor:
        """Look up [b t d] in a picture of the table's size.

        Raises:
            ValueError: there are more columns than positions.
        """
        if position_ids.shape[1] > (n := self.scheme.max_positions):
            raise ValueError(
                f"{position_ids.shape[1]} columns are more than the model's {n} positions"
            )
        return self.table[0][position_ids]

    def embed_grid(
        self, position_ids: Int[Tensor, "b t"], rows: int, columns: int
    ) -> Float[Tensor, "b t d"]:
        """Look up the positions of patches in a picture of so many rows and columns."""
        return self.resized(rows, columns)[0][position_ids]

    def resized(self, rows: int, columns: int) -> Float[Tensor, "1 n d"]:
        """Return the table for pictures of another size: bicubic, corners not aligned."""
        return resize_table(self.table, self.scheme, rows, columns)


def resize_table(
    table: Float[Tensor, "1 n d"], scheme: GridPositions, rows: int, columns: int
) -> Float[Tensor, "1 m d"]:
    """Return a table of positions for pictures of another size: bicubic, corners not aligned."""
    special = scheme.n_special
    if (rows, columns) == (scheme.rows, scheme.columns):
        return table
    grid = table[:, special:].unflatten(1, (scheme.rows, scheme.columns)).permute(0, 3, 1, 2)
    grid = functional.interpolate(grid, (rows, columns), mode="bicubic", align_corners=False)
    return torch.cat((table[:, :special], grid.flatten(2).transpose(1, 2)), 1)
