"""Keys and values of what was read already, so that a decoder reads each token once."""

from jaxtyping import Float
from torch import Tensor


class LayerCache:
    """Keys and values [b h s e] of one attention sublayer, in memory that grows by doubling."""

    def __init__(self) -> None:
        self._k: Tensor | None = None
        self._v: Tensor | None = None
        self.length = 0

    @property
    def k(self) -> Tensor | None:
        """The keys so far."""
        return None if self._k is None else self._k[:, :, : self.length]

    @property
    def v(self) -> Tensor | None:
        """The values so far."""
        return None if self._v is None else self._v[:, :, : self.length]

    def extend(
        self, k: Float[Tensor, "b h t e"], v: Float[Tensor, "b h t e"]
    ) -> tuple[Tensor, Tensor]:
        """Append and return all."""
        end = self.length + k.shape[2]
        if self._k is None or self._v is None or end > self._k.shape[2]:
            self._k, self._v = (
                self._grown(old, new, end) for old, new in ((self._k, k), (self._v, v))
            )
        self._k[:, :, self.length : end] = k
        self._v[:, :, self.length : end] = v
        self.length = end
        return self._k[:, :, :end], self._v[:, :, :end]

    def _grown(self, old: Tensor | None, new: Tensor, end: int) -> Tensor:
        b, h, _, e = new.shape
        grown = new.new_empty(b, h, max(64, 2 * end), e)
        if old is not None:
            grown[:, :, : self.length] = old[:, :, : self.length]
        return grown

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows of the batch, in this order."""
        if self._k is not None and self._v is not None:
            self._k, self._v = self._k[rows], self._v[rows]

    def cut(self, length: int) -> None:
        """Forget what comes after the first `length` tokens."""
        self.length = min(self.length, length)


class Cache:
    """One LayerCache a layer.

    For an encoder-decoder also those of cross-attention, which are filled once.
    """

    def __init__(self, n_layers: int) -> None:
        self.layers = [LayerCache() for _ in range(n_layers)]
        self.cross = [LayerCache() for _ in range(n_layers)]
        self.prefix = 0
        """Of the tokens read so far, those before the text, which all of it sees."""

    @property
    def length(self) -> int:
        """Tokens read so far."""
        return self.layers[0].length

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows of the batch, in this order."""
        for layer in (*self.layers, *self.cross):
            layer.keep(rows)

    def cut(self, length: int) -> None:
        """Forget what comes after the first `length` tokens, those before the text included."""
        for layer in self.layers:
            layer.cut(length)
