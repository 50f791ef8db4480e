"""Keys and values of earlier tokens, so that a decoder computes each token once."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor


class LayerCache:
    """Keys and values [b h s e] of one attention sublayer, in memory that grows by doubling.

    If the layer attends to the last `window` columns only, earlier ones are dropped (Jiang et al.
    2023, arXiv:2310.06825, section 2, "Rolling Buffer Cache").
    """

    def __init__(self, window: int | None = None, max_rollback: int = 0) -> None:
        self._k: Tensor | None = None
        self._v: Tensor | None = None
        self._window = window
        self._max_length = None if window is None else window + max_rollback
        self._n_dropped = 0
        self.length = 0
        """Tokens so far, dropped ones included."""
        self.prefix_length = 0
        """Number of first tokens that are never dropped: all tokens attend to them."""

    @property
    def capacity(self) -> int:
        """Number of allocated columns."""
        return 0 if self._k is None else self._k.shape[2]

    @property
    def keeps_all(self) -> bool:
        """Whether no columns are dropped."""
        return self._max_length is None

    @property
    def all_keys_values(self) -> tuple[Tensor, Tensor] | None:
        """All keys and values so far. None if there are none, or if the layer drops some."""
        if self._k is None or self._v is None or not self.keeps_all:
            return None
        return self._k[:, :, : self.length], self._v[:, :, : self.length]

    def extend(
        self, k: Float[Tensor, "b h t e"], v: Float[Tensor, "b h t e"]
    ) -> tuple[Tensor, Tensor]:
        """Append keys and values, and return all that are visible to the new tokens."""
        start, n = self.length - self._n_dropped, k.shape[2]
        end = start + n
        self.length += n
        if self._k is None or self._v is None or end > self._k.shape[2]:
            k, v = (_append_after(old, new, start) for old, new in ((self._k, k), (self._v, v)))
            self._reallocate(k, v)
        else:
            self._k[:, :, start:end], self._v[:, :, start:end] = k, v
            k, v = self._k[:, :, :end], self._v[:, :, :end]
        return self._visible(k, n), self._visible(v, n)

    def _reallocate(self, k: Float[Tensor, "b h s e"], v: Float[Tensor, "b h s e"]) -> None:
        """Copy the columns to keep into new memory, with room for more."""
        end, prefix, capacity = k.shape[2], self.prefix_length, max(64, 2 * k.shape[2])
        n_dropped = 0
        if self._max_length is not None:
            most = prefix + self._max_length
            n_dropped = max(end - most, 0) if end > most + _growth(most) else 0
            capacity = min(capacity, most + _growth(most))
        self._k, self._v = (x.new_empty(*x.shape[:2], capacity, x.shape[3]) for x in (k, v))
        for new, x in ((self._k, k), (self._v, v)):
            new[:, :, :prefix] = x[:, :, :prefix]
            new[:, :, prefix : end - n_dropped] = x[:, :, prefix + n_dropped :]
        self._n_dropped += n_dropped

    def _visible(self, x: Float[Tensor, "b h s e"], n: int) -> Float[Tensor, "b h _ e"]:
        """Return the columns visible to the last n, themselves included."""
        if self._window is None or x.shape[2] - n - self._window <= self.prefix_length:
            return x
        near = x[:, :, -n - self._window :]
        return torch.cat((x[:, :, : self.prefix_length], near), 2) if self.prefix_length else near

    def select_rows(self, rows: Tensor) -> None:
        """Keep only these rows of the batch, in this order."""
        if self._k is not None and self._v is not None:
            self._k, self._v = self._k[rows], self._v[rows]

    def spread_columns(
        self, columns: Int[Tensor, "b s"], shift_keys: Callable[[Tensor], Tensor]
    ) -> None:
        """Make rows of the columns of the only row.

        Args:
            columns: for each new row, the columns that it consists of.
            shift_keys: returns keys [b h s e] as they are in the columns that they have now.
        """
        assert self._k is not None
        assert self._v is not None
        k, v = (x[0][:, columns].transpose(0, 1).contiguous() for x in (self._k, self._v))
        self._k, self._v, self.length = shift_keys(k), v, columns.shape[1]

    def crop(self, length: int) -> None:
        """Drop all tokens after the first `length`.

        Raises:
            ValueError: tokens that would become visible have been dropped.
        """
        if length >= self.length:
            return
        if (
            self._window is not None
            and self._n_dropped
            and length - self._window < self.prefix_length + self._n_dropped
        ):
            raise ValueError(
                f"{self.length - length} tokens cannot be removed: the window before them is "
                "dropped already; raise max_rollback"
            )
        self.length = length


def _growth(max_length: int) -> int:
    """Return the number of spare columns to allocate, so that few steps copy the cache."""
    return max(8, max_length // 4)


def _append_after(
    old: Float[Tensor, "b h s e"] | None, new: Float[Tensor, "b h t e"], length: int
) -> Float[Tensor, "b h _ e"]:
    return new if old is None or not length else torch.cat((old[:, :, :length], new), 2)


class ConvolutionCache:
    """The last inputs [b s d] of a causal convolution, for later columns."""

    def __init__(self, span: int, max_rollback: int = 0) -> None:
        self._x: Tensor | None = None
        self._span, self._max_length = span, span + max_rollback
        self.length = 0
        """Columns so far, dropped ones included."""

    def extend(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b _ d"]:
        """Append columns, and return all that they depend on."""
        n = x.shape[1]
        x = x if self._x is None else torch.cat((self._x, x), 1)
        self.length += n
        most = self._max_length
        self._x = x[:, -most:].clone() if x.shape[1] > most + _growth(most) else x
        return x[:, max(x.shape[1] - n - self._span, 0) :]

    def select_rows(self, rows: Tensor) -> None:
        """Keep only these rows of the batch, in this order."""
        self._x = None if self._x is None else self._x[rows]

    def crop(self, length: int) -> None:
        """Drop all columns after the first `length`.

        Raises:
            ValueError: columns that would be needed have been dropped.
        """
        n_removed = self.length - length
        if n_removed <= 0 or self._x is None:
            return
        n_kept = self._x.shape[1] - n_removed
        if n_kept < min(self._span, length):
            raise ValueError(
                f"{n_removed} tokens cannot be removed: the inputs of convolutions before them are "
                "dropped already; raise max_rollback"
            )
        self._x, self.length = self._x[:, :n_kept], length


@runtime_checkable
class DecodingCache(Protocol):
    """The state that a network keeps of earlier tokens."""

    @property
    def length(self) -> int:
        """Tokens so far."""
        ...

    @property
    def can_shift(self) -> bool:
        """Whether its columns can be shifted: a `Cache` of keys and values, which drops none."""
        ...

    @property
    def prefix_length(self) -> int:
        """The virtual tokens before the text, which all of it sees."""
        ...

    def set_prefix_length(self, n: int) -> None:
        """Declare the first n tokens to be virtual tokens before the text."""
        ...

    def select_rows(self, rows: Tensor) -> None:
        """Keep only these rows of the batch, in this order."""
        ...

    def crop(self, length: int) -> None:
        """Drop all tokens after the first `length`, virtual tokens included.

        Raises:
            ValueError: more are removed than the cache allows.
        """
        ...


class Cache:
    """One LayerCache per layer.

    It also has those of cross-attention in an encoder-decoder, which are filled once, and the last
    inputs of causal convolutions.
    """

    def __init__(
        self,
        windows: Sequence[int | None],
        max_rollback: int = 0,
        convolution_spans: Sequence[Sequence[int]] = (),
    ) -> None:
        """Create an empty cache.

        Args:
            windows: number of earlier columns that each layer attends to; None: all.
            max_rollback: number of last tokens that can be removed again (`crop`).
            convolution_spans: for each layer, the number of earlier columns that each of its
                convolutions reads.
        """
        self.layers = [LayerCache(span, max_rollback) for span in windows]
        self.cross_attention = [LayerCache() for _ in windows]
        self.convolutions = [
            [ConvolutionCache(reach, max_rollback) for reach in layer]
            for layer in convolution_spans
        ]

    @property
    def length(self) -> int:
        """Tokens so far."""
        return self.layers[0].length

    @property
    def can_shift(self) -> bool:
        """Whether its columns can be shifted: keys and values alone, and none is dropped."""
        return not any(chain.from_iterable(self.convolutions)) and all(
            layer.keeps_all for layer in self.layers
        )

    @property
    def prefix_length(self) -> int:
        """The virtual tokens before the text, which all of it sees."""
        return min(self.layers[0].prefix_length, self.length)

    def set_prefix_length(self, n: int) -> None:
        """Declare the first n tokens to be virtual tokens before the text."""
        for layer in self.layers:
            layer.prefix_length = n

    def select_rows(self, rows: Tensor) -> None:
        """Keep only these rows of the batch, in this order."""
        for layer in (*self.layers, *self.cross_attention):
            layer.select_rows(rows)
        for recent in chain.from_iterable(self.convolutions):
            recent.select_rows(rows)

    def crop(self, length: int) -> None:
        """Drop all tokens after the first `length`, virtual tokens included.

        Raises:
            ValueError: more are removed than `max_rollback` allows.
        """
        text = length - self.prefix_length
        for layer in self.layers:
            layer.crop(length)
        for recent in chain.from_iterable(self.convolutions):
            recent.crop(text)
