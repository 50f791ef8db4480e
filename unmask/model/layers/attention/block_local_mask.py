"""Sliding-window attention by blocks, and tokens with global attention."""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from unmask.batch import ExampleRows, Feature, Visibility


@dataclass(frozen=True)
class GlobalTokens(Feature):
    """Tokens that attend to all of their text, and to which all of it attends, beyond any window.

    Beltagy et al. 2020, arXiv:2004.05150, section 3.1. Networks without `global_tokens` ignore it.
    """

    positions: Int[Any, "*b g"]
    """Distinct positions in a text; in a batch, columns, padded with -1."""

    @classmethod
    def collate(cls, rows: ExampleRows) -> Feature | None:
        """Return the columns of each row; None: no text has a global token."""
        columns: list[list[int]] = []
        for group in rows.groups:
            starts = accumulate((len(e.inputs) for e in group), initial=0)
            features = [e.feature(cls) for e in group]
            positions = [[] if own is None else own.positions.tolist() for own in features]
            columns.append([s + i for s, own in zip(starts, positions, strict=False) for i in own])
        most = max(map(len, columns))
        if not most:
            return None
        return cls(np.array([row + [-1] * (most - len(row)) for row in columns], np.int64))


@dataclass(frozen=True)
class VirtualTokens(Feature):
    """Learned tokens before texts, visible beyond any window (prompt tuning)."""

    positions: Int[Tensor, "b p"]
    """Their columns."""


@dataclass(frozen=True)
class Window:
    """The attention window of a layer."""

    size: int | None = None
    """Window size in columns on either side, in units of `dilation`. None: no limit."""
    dilation: int = 1
    """Every n-th column is visible."""
    global_positions: Int[Tensor, "b g"] | None = None
    """Columns exempt from the window, both as queries and as keys; -1 pads rows that have fewer."""
    visible_columns: Int[Tensor, "b p"] | None = None
    """Columns exempt from the window as keys only; -1 likewise."""

    def to_mask(
        self, n_queries: int, n_keys: int, device: torch.device | None = None
    ) -> Bool[Tensor, "b queries keys"]:
        """Return which of `n_keys` columns are in the window of each of the last `n_queries`.

        Raises:
            ValueError: the window has no size.
        """
        if self.size is None:
            raise ValueError("a window of any distance has no mask")
        column = torch.arange(n_keys, device=device)
        q, k, first = column[n_keys - n_queries :, None], column[None, :], n_keys - n_queries
        reach, step = self.size * self.dilation, self.dilation
        near = (((q - k).abs() <= reach) & ((q - k) % step == 0))[None]
        if self.global_positions is not None:
            is_global = columns_to_mask(self.global_positions, n_keys)
            near = near | is_global[:, None, :] | is_global[:, first:, None]
        if self.visible_columns is not None:
            near = near | columns_to_mask(self.visible_columns, n_keys)[:, None, :]
        return near


FULL_ATTENTION = Window()
"""No limit."""


@dataclass(frozen=True)
class BlockLocalMask:
    """The visible keys of each query within a window, without a mask of all pairs.

    Queries are split into blocks of `window` columns. Each attends to its own block of keys, the
    two adjacent ones, and the global tokens. With a dilation of n, the columns are ordered 0, n, 2
    n, ..., then 1, n + 1, ..., and so on, so that a dilated window is contiguous.
    """

    visibility: Visibility
    window: int
    dilation: int = 1
    global_positions: Int[Tensor, "b g"] | None = None

    def for_columns(self, columns: Int[Tensor, "b"], n_keys: int) -> Bool[Tensor, "b 1 1 s"]:
        """Return the mask of one query of each row, the one in column `columns`."""
        key_columns = torch.arange(n_keys, device=columns.device)
        away = key_columns - columns[:, None]
        visible = (away.abs() <= self.window * self.dilation) & (away % self.dilation == 0)
        if self.global_positions is not None:
            visible |= columns_to_mask(self.global_positions, n_keys) | (
                self.global_positions == columns[:, None]
            ).any(1, keepdim=True)
        own = visible_keys(self.visibility, columns[:, None], n_keys)
        return visible[:, None, None] if own is None else visible[:, None, None] & own

    def block_mask(self, n_keys: int, device: torch.device) -> Bool[Tensor, "b n 1 w s"]:
        """Return which of a block's keys are visible to each of its queries.

        To columns after the last one, all are: their output is unused, and a softmax over an empty
        set is NaN.
        """
        v, w = self.visibility, self.window
        k = self._key_columns(n_keys, device)[:, :, None]  # [b n 1 s]
        q = self._original_columns(torch.arange(k.shape[1] * w, device=device), n_keys).view(
            1, -1, w, 1
        )
        near = torch.ones(w, 3 * w, dtype=torch.bool, device=device).triu().tril(2 * w)
        near = near & ((q - k[..., : 3 * w]) % self.dilation == 0)
        near = F.pad(near, (0, k.shape[-1] - 3 * w), value=True)
        visible = near & (k >= 0) & (k < n_keys)
        if v.causal:
            visible = visible & (k <= q)
        if v.rank is not None:
            visible = visible & (_lookup_columns(v.rank, k) <= _lookup_columns(v.rank, q))
        if v.document is not None:
            visible = visible & (_lookup_columns(v.document, k) == _lookup_columns(v.document, q))
        return (visible | (q >= n_keys))[:, :, None]

    def _key_columns(self, n_keys: int, device: torch.device) -> Int[Tensor, "b n s"]:
        """Return the columns of the keys of each block; -1 for none, or repeated global ones."""
        w, n = self.window, self.dilation * -(-n_keys // self.dilation)
        near = torch.arange(-w, (-(-n // w) + 1) * w, device=device).unfold(0, 3 * w, w)[None]
        near = self._original_columns(near, n_keys).masked_fill(near < 0, -1)
        if self.global_positions is None:
            return near
        is_global = _lookup_columns(columns_to_mask(self.global_positions, n_keys), near)
        global_keys = self.global_positions[:, None].expand(-1, near.shape[1], -1)
        return torch.cat((near.masked_fill(is_global, -1), global_keys), -1)

    def _original_columns(
        self, permuted_columns: Int[Tensor, "*n"], n_keys: int
    ) -> Int[Tensor, "*n"]:
        """Return the original column of each permuted one; for padding, `n_keys`."""
        n = -(-n_keys // self.dilation)
        column = permuted_columns % n * self.dilation + permuted_columns // n
        return torch.where(permuted_columns < n * self.dilation, column, n_keys)

    def _group_by_dilation(self, x: Float[Tensor, "b h t e"]) -> Float[Tensor, "b h n e"]:
        """Permute columns so that those of one dilated window are adjacent; pad with zeros."""
        if self.dilation == 1:
            return x
        x = F.pad(x, (0, 0, 0, -x.shape[2] % self.dilation))
        return x.unflatten(2, (-1, self.dilation)).transpose(2, 3).flatten(2, 3)

    def merge_blocks(self, x: Float[Tensor, "b h n e"], t: int) -> Float[Tensor, "b h t e"]:
        """Restore the order of columns, and remove the padding."""
        if self.dilation > 1:
            x = x[:, :, : self.dilation * -(-t // self.dilation)]
            x = x.unflatten(2, (self.dilation, -1)).transpose(2, 3).flatten(2, 3)
        return x[:, :, :t]

    def query_blocks(self, x: Float[Tensor, "b h t e"]) -> Float[Tensor, "bn h w e"]:
        """Split into blocks, the last one padded with zeros."""
        x = self._group_by_dilation(x)
        x = F.pad(x, (0, 0, 0, -x.shape[2] % self.window)).unflatten(2, (-1, self.window))
        return x.transpose(1, 2).flatten(0, 1)

    def key_blocks(self, x: Float[Tensor, "b h t e"]) -> Float[Tensor, "bn h s e"]:
        """Gather the keys, or values, to which the queries of each block may attend."""
        w, permuted = self.window, self._group_by_dilation(x)
        padded = F.pad(permuted, (0, 0, w, w + -permuted.shape[2] % w))
        if x.requires_grad:  # overlapping views are free for one row, but their gradient is slow
            cut = padded.unflatten(2, (-1, w)).transpose(1, 2)
            near = torch.cat((cut[:, :-2], cut[:, 1:-1], cut[:, 2:]), 3)  # [b n h 3*w e]
        else:
            near = padded.unfold(2, 3 * w, w).mT.transpose(1, 2)
        if self.global_positions is not None:
            global_keys = gather_columns(x, self.global_positions)[:, None].expand(
                -1, near.shape[1], -1, -1, -1
            )
            near = torch.cat((near, global_keys), 3)
        return near.flatten(0, 1)


def visible_keys(
    visibility: Visibility, columns: Int[Tensor, "b g"], n_keys: int
) -> Bool[Tensor, "b 1 g s"] | None:
    """Return the mask of queries in some columns of each row, without windows; None: all."""
    v, visible = visibility, None
    query_columns, key_columns = (
        columns[..., None],
        torch.arange(n_keys, device=columns.device)[None, None],
    )
    if v.causal:
        visible = key_columns <= query_columns
    if v.rank is not None:
        lower = v.rank[:, None] <= _lookup_columns(v.rank, query_columns)
        visible = lower if visible is None else visible & lower
    if v.document is not None:
        same_document = v.document[:, None] == _lookup_columns(v.document, query_columns)
        visible = same_document if visible is None else visible & same_document
    return None if visible is None else (visible | (query_columns < 0))[:, None]


def columns_to_mask(columns: Int[Tensor, "b g"], n_keys: int) -> Bool[Tensor, "b s"]:
    """Return a mask of the given columns; -1 is ignored."""
    none = torch.zeros(len(columns), n_keys + 1, dtype=torch.bool, device=columns.device)
    return none.scatter(1, columns % (n_keys + 1), True)[:, :n_keys]


def gather_columns(
    x: Float[Tensor, "b h t e"], columns: Int[Tensor, "b g"]
) -> Float[Tensor, "b h g e"]:
    """Gather columns of each row; the result for -1 is arbitrary."""
    rows = torch.arange(len(x), device=x.device)[:, None]
    return x[rows, :, columns.clamp(min=0)].transpose(1, 2)


def _lookup_columns(
    numbers: Shaped[Tensor, "#b s"], columns: Int[Tensor, "#b *n"]
) -> Shaped[Tensor, "#b *n"]:
    """Look up the values of columns; indices outside the row are clamped to its ends."""
    rows = torch.arange(len(numbers), device=numbers.device)
    rows = rows.view(-1, *[1] * (columns.ndim - 1))
    return numbers[rows, columns.clamp(0, numbers.shape[1] - 1)]
