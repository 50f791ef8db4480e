"""`attend`, the one place that calls a kernel, and the Attention sublayer."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Visibility
from unmask.model.architecture import Architecture
from unmask.model.band import Band, marked, seen, taken
from unmask.model.cache import LayerCache
from unmask.model.parts import ACTIVATIONS, Dropout, PartsNorm
from unmask.model.positions import Place

PLAIN_UP_TO = 512
"""On a CPU in bfloat16, two matrix products and a softmax are faster than the fused kernel up to
this many keys."""


BANDED_FROM = 256
"""Texts longer than three windows by so many columns are cut into blocks, which see three windows;
below, a mask of all pairs is as fast (benchmarks/reports/2026-11-22-window.md)."""


@dataclass(frozen=True)
class Wide:
    """Queries that no window binds."""

    columns: Int[Tensor, "b g"]
    """Which they are; -1 where a row has fewer than another."""
    sight: "Sight"
    """What they see: all of their text."""

    def only(self, at: Int[Tensor, "b"]) -> "Wide":
        """Return which of single queries, one a row, in columns `at`, are wide."""
        hits = self.columns == at[:, None]
        which = torch.where(hits.any(1), 0, -1)[:, None]
        mask = self.sight.mask
        if mask is not None:
            rows = torch.arange(len(at), device=at.device)
            mask = mask.expand(len(at), -1, -1, -1)[rows, :, hits.int().argmax(1)][:, :, None]
        return Wide(which, Sight(mask))


class Sight:
    """Who sees whom, as kernels want it: a mask, a band, or the word that none is needed."""

    def __init__(
        self,
        mask: Bool[Tensor, "b 1 t s"] | None = None,
        *,
        causal: bool = False,
        band: Band | None = None,
        wide: Wide | None = None,
    ) -> None:
        self.mask = mask
        """True where a key is visible; None: everywhere, or everything before (`causal`)."""
        self.causal = causal and mask is None
        self.band = band
        """In the place of a mask."""
        self.wide = wide
        """Queries that ask again, beyond their window; the mask or band has them, too."""
        self._added: Tensor | None = None
        self._blocks: Sight | None = None

    @classmethod
    def of(
        cls,
        visibility: Visibility,
        queries: int,
        keys: int,
        *,
        window: int | None = None,
        dilation: int = 1,
        prefix: int = 0,
        wide: Int[Tensor, "b g"] | None = None,
        before: Int[Tensor, "b p"] | None = None,
        far: bool = False,
        device: torch.device | None = None,
    ) -> "Sight":
        """Return what the last `queries` of `keys` columns see; all see the first `prefix`.

        Of columns that are queries themselves, those `before` are not hidden by windows.

        Unless `far`, the keys of columns that no query sees need not be there: what comes of it
        fits a cache that has forgotten them, or is a band.

        Raises:
            ValueError: there are `wide` queries, and columns before them that are no prefix.
        """
        text, asked = keys - prefix, None
        if wide is not None:
            if queries != text:
                raise ValueError(f"wide tokens need all {text} columns at once, got {queries}")
            asked = Wide(wide, Sight(_after(seen(visibility, wide, text), prefix)))
        if window is not None and not far:
            if queries == keys and keys >= 3 * window + BANDED_FROM:
                by_all = before if wide is None else wide
                return cls(band=Band(visibility, window, dilation, by_all), wide=asked)
            text = min(text, queries + window * dilation)
            visibility = visibility.last(text)
        if window is not None and dilation == 1 and text <= window + 1:
            window = None  # it holds them all
        mask = visibility.among(
            queries,
            text,
            window=window,
            dilation=dilation,
            wide=None if wide is None else marked(wide, text),
            before=None if before is None else marked(before, text),
            device=device,
        )
        return cls(_after(mask, prefix), causal=visibility.causal, wide=asked)

    @classmethod
    def strict(cls, visibility: Visibility, queries: int, keys: int) -> "Sight":
        """Return what the last `queries` of `keys` columns see that may not see themselves."""
        return cls(visibility.among(queries, keys, strict=True))

    def only(self, at: Int[Tensor, "b"], keys: int) -> "Sight":
        """Return what one query of each row sees, the one in column `at`."""
        wide = None if self.wide is None else self.wide.only(at)
        if self.band is not None:
            return Sight(self.band.row(at, keys), wide=wide)
        if self.mask is not None:
            rows = torch.arange(len(at), device=at.device)
            mask = self.mask.expand(len(at), -1, -1, -1)[rows, :, at][:, :, None]
            return Sight(mask, wide=wide)
        if not self.causal:
            return Sight(wide=wide)
        before = torch.arange(keys, device=at.device) <= at[:, None]
        return Sight(before[:, None, None], wide=wide)

    def blocks(self, band: Band, rows: int, keys: int, device: torch.device) -> "Sight":
        """Return what the blocks of a band see; it is made once a forward."""
        if self._blocks is None:
            mask = band.mask(keys, device)
            self._blocks = Sight(mask.expand(rows, -1, -1, -1, -1).flatten(0, 1))
        return self._blocks

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
    k: Float[Tensor, "b g s e"],
    v: Float[Tensor, "b g s e"],
    sight: Sight,
    *,
    bias: Tensor | None = None,
    scale: float,
    cap: float | None = None,
    dropout: Dropout | None = None,
) -> Float[Tensor, "b h t e"]:
    """softmax(cap·tanh(q kᵀ·scale / cap) + bias, over the visible keys) v.

    Without `cap`, the scores are as they are. Of g < h keys and values each is of h / g heads that
    follow each other.
    """
    drop = dropout.rate if dropout is not None and dropout.training else 0.0
    if sight.band is not None:
        return _banded(q, k, v, sight, sight.band, scale, cap, dropout)
    biased = bias is not None
    if cap is not None or plain_is_faster(q, k.shape[2], biased=biased, drop=drop):
        return _plain(q, k, v, sight, bias, scale, cap, dropout)
    causal = sight.causal and q.shape[2] > 1
    mask = sight.mask
    if bias is not None or (causal and q.shape[2] != k.shape[2]):
        mask = sight.added(q, q.shape[2], k.shape[2])
        causal = False
    if bias is not None:
        mask = bias if mask is None else bias + mask
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(
        q, k, v, mask, drop, is_causal=causal, scale=scale, enable_gqa=grouped
    )


def _plain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sight: Sight,
    bias: Tensor | None,
    scale: float,
    cap: float | None,
    dropout: Dropout | None,
) -> Tensor:
    b, h, t, _ = q.shape
    scores = _grouped(q if scale == 1 else q * scale, k) @ k.mT
    scores = scores.view(b, h, t, k.shape[2])
    if cap is not None:
        scores = (scores / cap).tanh() * cap
    if bias is not None:
        scores = scores + bias
    if (added := sight.added(q, q.shape[2], k.shape[2])) is not None:
        scores += added
    share = scores.softmax(-1)
    share = share if dropout is None else dropout(share)
    return (_grouped(share, v) @ v).view(b, h, t, v.shape[3])


def _grouped(x: Float[Tensor, "b h t _"], k: Float[Tensor, "b g s e"]) -> Tensor:
    """Lay the heads that read the same keys out as more queries of one head [b g h/g*t _]."""
    return x.unflatten(1, (k.shape[1], -1)).flatten(2, 3)


def _banded(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sight: Sight,
    band: Band,
    scale: float,
    cap: float | None,
    dropout: Dropout | None,
) -> Tensor:
    """Attend block by block, as if each were a row of its own."""
    b, _, t, _ = q.shape  # [b h t e]
    blocks = sight.blocks(band, b, t, q.device)
    q, k, v = band.queries(q), band.keys(k), band.keys(v)
    y = attend(q, k, v, blocks, scale=scale, cap=cap, dropout=dropout)
    return band.back(y.unflatten(0, (b, -1)).transpose(1, 2).flatten(2, 3), t)


def _after(mask: Tensor | None, prefix: int) -> Tensor | None:
    """Let all see `prefix` columns more, which stand first."""
    return mask if mask is None or not prefix else F.pad(mask, (prefix, 0), value=True)


def in_heads(x: Float[Tensor, "b t he"], width: int) -> Float[Tensor, "b h t e"]:
    """Cut vectors into heads of some width."""
    return x.unflatten(-1, (-1, width)).transpose(1, 2)


class Attention(nn.Module):
    """Vaswani et al. 2017, section 3.2.2. Self-attention is attention whose context is x.

    Several heads may share keys and values (Ainslie et al. 2023, arXiv:2305.13245).
    """

    def __init__(self, a: Architecture, place: Place, *, wide: bool = False) -> None:
        super().__init__()
        width, shared = a.n_heads * a.d_head, a.groups * a.d_head
        self.d_head = a.d_head
        self.scale = a.d_head**-0.5 if a.scale is None else a.scale
        self.cap = a.score_cap
        self.q = nn.Linear(a.d_model, width, bias="read" in a.bias)
        self.k = nn.Linear(a.d_model, shared, bias="read" in a.bias)
        self.v = nn.Linear(a.d_model, shared, bias="read" in a.bias)
        self.o = nn.Linear(width, a.d_model, bias="write" in a.bias)
        self.q_norm, self.k_norm = nn.Identity(), nn.Identity()
        if a.query_key_norm is not None:
            each = a.query_key_norm == "head"
            self.q_norm = PartsNorm(a.norm, a.d_head if each else width)
            self.k_norm = PartsNorm(a.norm, a.d_head if each else shared)
        self.gate, self.gating = None, None
        if a.attention_gate is not None:
            self.gate = nn.Linear(a.d_model, width, bias="read" in a.bias)
            self.gating = ACTIVATIONS[a.attention_gate]
        self.inside = a.norm.build(width) if "inside" in a.norm_at else nn.Identity()
        self.wide = WideAttention(a) if wide else None
        self.place = place
        self.dropout = Dropout(a.attention_dropout)

    def heads(self, x: Float[Tensor, "b t he"]) -> Float[Tensor, "b h t e"]:
        """Cut vectors into heads."""
        return in_heads(x, self.d_head)

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        context: Float[Tensor, "b s d"] | None,
        geometry: Any,
        sight: Sight,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "b t d"]:
        """Let x read `context` (None: what the cache holds already)."""
        q = self.place.query(self.heads(self.q_norm(self.q(x))), geometry)
        if context is None:
            known = None if cache is None else cache.whole
            if known is None:
                raise ValueError("attention needs a context, or a cache that has all of it")
            k, v = known
        else:
            k = self.place.key(self.heads(self.k_norm(self.k(context))), geometry)
            v = self.heads(self.v(context))
            if cache is not None:
                k, v = cache.extend(k, v)
        bias = self.place.bias(q, k, geometry, self)
        scale, cap, dropout = self.scale, self.cap, self.dropout
        y = attend(q, k, v, sight, bias=bias, scale=scale, cap=cap, dropout=dropout)
        if self.wide is not None and sight.wide is not None and context is not None:
            n = k.shape[2] - context.shape[1]
            y = self.wide(y, x, context, sight.wide, k[:, :, :n], v[:, :, :n])
        y = y.transpose(1, 2).flatten(2)
        if self.gate is not None and self.gating is not None:
            y = y * self.gating(self.gate(x))
        return self.o(self.inside(y))


class WideAttention(nn.Module):
    """Lets wide tokens ask all of their text, by projections of their own.

    Beltagy et al. 2020, arXiv:2004.05150, section 3.1, "Global Attention" and "Linear Projections
    for Global Attention". Where tokens stand they know from their vectors alone.
    """

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        width = a.n_heads * a.d_head
        self.d_head = a.d_head
        self.scale = a.d_head**-0.5 if a.scale is None else a.scale
        self.q = nn.Linear(a.d_model, width, bias="read" in a.bias)
        self.k = nn.Linear(a.d_model, width, bias="read" in a.bias)
        self.v = nn.Linear(a.d_model, width, bias="read" in a.bias)
        self.dropout = Dropout(a.attention_dropout)

    def forward(
        self,
        y: Float[Tensor, "b h t e"],
        x: Float[Tensor, "b t d"],
        context: Float[Tensor, "b s d"],
        wide: Wide,
        k_before: Float[Tensor, "b h p e"],
        v_before: Float[Tensor, "b h p e"],
    ) -> Float[Tensor, "b h t e"]:
        """Put what the wide of the queries x find into y, in the place of what was near them.

        They read the learned keys and values before the text, too, if there are any.
        """
        q = in_heads(self.q(taken(x[:, None], wide.columns)[:, 0]), self.d_head)  # [b h g e]
        k = torch.cat((k_before, in_heads(self.k(context), self.d_head)), 2)
        v = torch.cat((v_before, in_heads(self.v(context), self.d_head)), 2)
        found = attend(q, k, v, wide.sight, scale=self.scale, dropout=self.dropout)
        t = y.shape[2]
        index = (wide.columns % (t + 1))[:, None, :, None]  # -1 is a column that is cut off again
        return F.pad(y, (0, 0, 0, 1)).scatter(2, index.expand_as(found), found)[:, :, :t]


@torch.no_grad()
def copy_to_wide(model: nn.Module, known: Collection[str] = ()) -> None:
    """Let the projections of wide tokens begin as copies of the others, but for those known.

    Beltagy et al. 2020, section 3.1, "Linear Projections for Global Attention".
    """
    for name, module in model.named_modules():
        if not isinstance(module, WideAttention):
            continue
        around = model.get_submodule(name.rpartition(".")[0])
        for part in ("q", "k", "v"):
            if f"{name}.{part}.weight" not in known:
                own = around.get_submodule(part).state_dict()
                module.get_submodule(part).load_state_dict(own)
