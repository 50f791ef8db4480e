"""`attend`, the one place that calls a kernel, and the Attention sublayer."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Visibility
from unmask.model.architecture import Architecture
from unmask.model.cache import LayerCache
from unmask.model.parts import Dropout

PLAIN_UP_TO = 512
"""On a CPU in bfloat16, two matrix products and a softmax are faster than the fused kernel up to
this many keys."""


BANDED_FROM = 8
"""Texts of so many windows are cut into blocks that see their neighbors only; below, a mask of all
pairs is as fast."""


@dataclass(frozen=True)
class Band:
    """Who sees whom within a window; the pairs of a text are never all written out."""

    visibility: Visibility
    window: int

    def row(self, at: Int[Tensor, "b"], keys: int) -> Bool[Tensor, "b 1 1 s"]:
        """Say what one query of each row sees, the one in column `at`."""
        v, place, own = self.visibility, torch.arange(keys, device=at.device), at[:, None]
        visible = (place - own).abs() <= self.window
        if v.causal:
            visible &= place <= own
        if v.rank is not None:
            visible = visible & (v.rank <= v.rank.gather(1, own))
        if v.document is not None:
            visible = visible & (v.document == v.document.gather(1, own))
        return visible[:, None, None]

    def blocks(self, keys: int, device: torch.device) -> Bool[Tensor, "b 1 n w 3*w"]:
        """Say what the queries of each block of `window` columns see of it and its neighbors.

        Columns after the last one see everything: nobody listens to them, and a softmax over
        nothing is not a number.
        """
        v, w = self.visibility, self.window
        n = -(-keys // w)
        place = torch.arange(-w, (n + 1) * w, device=device)
        q, k = place[w:-w].view(n, w, 1), place.unfold(0, 3 * w, w)[:, None]
        visible = (((q - k).abs() <= w) & (k >= 0) & (k < keys))[None]
        if v.causal:
            visible = visible & (k <= q)
        if v.rank is not None:
            one, near = self._cut(v.rank, n)
            visible = visible & (near <= one)
        if v.document is not None:
            one, near = self._cut(v.document, n)
            visible = visible & (near == one)
        return (visible | (q >= keys))[:, None]

    def _cut(
        self, numbers: Int[Tensor, "b s"], n: int
    ) -> tuple[Int[Tensor, "b n w 1"], Int[Tensor, "b n 1 3*w"]]:
        w, lacking = self.window, n * self.window - numbers.shape[1]
        around = F.pad(numbers, (w, w + lacking), value=-2)
        return around[:, w:-w].unflatten(1, (n, w))[..., None], around.unfold(1, 3 * w, w)[
            :, :, None
        ]


class Sight:
    """Who sees whom, as kernels want it: a mask, a band, or the word that none is needed."""

    def __init__(
        self,
        mask: Bool[Tensor, "b 1 t s"] | None = None,
        *,
        causal: bool = False,
        band: Band | None = None,
    ) -> None:
        self.mask = mask
        """True where a key is visible; None: everywhere, or everything before (`causal`)."""
        self.causal = causal and mask is None
        self.band = band
        """In the place of a mask."""
        self._added: Tensor | None = None

    @classmethod
    def of(
        cls,
        visibility: Visibility,
        queries: int,
        keys: int,
        *,
        window: int | None = None,
        prefix: int = 0,
    ) -> "Sight":
        """Return what the last `queries` of `keys` columns see; all see the first `prefix`."""
        if window is not None and queries == keys and not prefix and keys >= BANDED_FROM * window:
            return cls(band=Band(visibility, window))
        mask = visibility.among(queries, keys - prefix, window=window)
        if mask is not None and prefix:
            mask = F.pad(mask, (prefix, 0), value=True)
        return cls(mask, causal=visibility.causal)

    def only(self, at: Int[Tensor, "b"], keys: int) -> "Sight":
        """Return what one query of each row sees, the one in column `at`."""
        if self.band is not None:
            return Sight(self.band.row(at, keys))
        if self.mask is not None:
            return Sight(self.mask[torch.arange(len(at), device=at.device), :, at][:, :, None])
        if not self.causal:
            return self
        return Sight((torch.arange(keys, device=at.device) <= at[:, None])[:, None, None])

    def added(self, like: Tensor, queries: int, keys: int) -> Tensor | None:
        """Return the same as numbers added to the scores, 0 or the lowest of `like`'s dtype.

        They are made once a forward.
        """
        if self._added is None:
            mask = self.mask
            if self.causal and queries > 1:
                mask = torch.ones(queries, keys, dtype=torch.bool, device=like.device)
                mask = mask.tril(keys - queries)[None, None]
            if mask is None:
                return None
            numbers = torch.zeros(mask.shape, dtype=like.dtype, device=like.device)
            self._added = numbers.masked_fill_(~mask, torch.finfo(like.dtype).min)
        return self._added


def plain_is_faster(x: Tensor, keys: int, *, biased: bool, drop: float) -> bool:
    """Say whether `attend` should write the scores out rather than call the fused kernel."""
    if x.device.type != "cpu":
        return False
    if x.dtype == torch.bfloat16 and keys <= PLAIN_UP_TO:
        return True
    return (biased and torch.is_grad_enabled()) or drop > 0


def attend(
    q: Float[Tensor, "b h t e"],
    k: Float[Tensor, "b h s e"],
    v: Float[Tensor, "b h s e"],
    sight: Sight,
    *,
    bias: Tensor | None = None,
    scale: float,
    dropout: Dropout | None = None,
) -> Float[Tensor, "b h t e"]:
    """softmax(q kᵀ·scale + bias, over the visible keys) v."""
    drop = dropout.rate if dropout is not None and dropout.training else 0.0
    if sight.band is not None:
        return _banded(q, k, v, sight.band, scale, dropout)
    if plain_is_faster(q, k.shape[2], biased=bias is not None, drop=drop):
        return _plain(q, k, v, sight, bias, scale, dropout)
    causal = sight.causal and q.shape[2] > 1
    mask = sight.mask
    if bias is not None or (causal and q.shape[2] != k.shape[2]):
        mask = sight.added(q, q.shape[2], k.shape[2])
        causal = False
    if bias is not None:
        mask = bias if mask is None else bias + mask
    return F.scaled_dot_product_attention(q, k, v, mask, drop, is_causal=causal, scale=scale)


def _plain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sight: Sight,
    bias: Tensor | None,
    scale: float,
    dropout: Dropout | None,
) -> Tensor:
    scores = (q if scale == 1 else q * scale) @ k.mT  # [b h t s]
    if bias is not None:
        scores = scores + bias
    if (added := sight.added(q, q.shape[2], k.shape[2])) is not None:
        scores += added
    share = scores.softmax(-1)
    return (share if dropout is None else dropout(share)) @ v


def _banded(
    q: Tensor, k: Tensor, v: Tensor, band: Band, scale: float, dropout: Dropout | None
) -> Tensor:
    """Let blocks of queries see their own block of keys and the two beside it."""
    t, w = q.shape[2], band.window
    n = -(-t // w)
    k, v = (F.pad(x, (0, 0, w, (n + 1) * w - t)).unfold(2, 3 * w, w) for x in (k, v))
    q = F.pad(q, (0, 0, 0, n * w - t)).unflatten(2, (n, w))
    scores = (q * scale) @ k  # [b h n w 3*w]
    scores = scores.masked_fill(~band.blocks(t, q.device), torch.finfo(q.dtype).min)
    share = scores.softmax(-1)
    y = (share if dropout is None else dropout(share)) @ v.mT
    return y.flatten(2, 3)[:, :, :t]


class Attention(nn.Module):
    """Vaswani et al. 2017, section 3.2.2. Self-attention is attention whose context is x."""

    def __init__(self, a: Architecture, place: nn.Module) -> None:
        super().__init__()
        width = a.n_heads * a.d_head
        self.d_head = a.d_head
        self.scale = a.d_head**-0.5 if a.scale is None else a.scale
        self.q = nn.Linear(a.d_model, width, bias=a.bias)
        self.k = nn.Linear(a.d_model, width, bias=a.bias)
        self.v = nn.Linear(a.d_model, width, bias=a.bias)
        self.o = nn.Linear(width, a.d_model, bias=a.bias)
        self.place = place
        self.dropout = Dropout(a.attention_dropout)

    def heads(self, x: Float[Tensor, "b t he"]) -> Float[Tensor, "b h t e"]:
        """Cut vectors into heads."""
        return x.unflatten(-1, (-1, self.d_head)).transpose(1, 2)

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        context: Float[Tensor, "b s d"] | None,
        geometry: Any,
        sight: Sight,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "b t d"]:
        """Let x read `context` (None: what the cache holds already)."""
        q = self.heads(self.q(x))
        if context is None:
            if cache is None or cache.k is None or cache.v is None:
                raise ValueError("attention needs a context or a filled cache")
            k, v = cache.k, cache.v
        else:
            k, v = self.heads(self.k(context)), self.heads(self.v(context))
            if cache is not None:
                k, v = cache.extend(k, v)
        q, k, bias = self.place(q, k, geometry, self)
        y = attend(q, k, v, sight, bias=bias, scale=self.scale, dropout=self.dropout)
        return self.o(y.transpose(1, 2).flatten(2))
