"""`attend`, the one place that calls a kernel, and the Attention sublayer."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.model.architecture import Architecture
from unmask.model.cache import LayerCache
from unmask.model.parts import Dropout

PLAIN_UP_TO = 512
"""On a CPU in bfloat16, two matrix products and a softmax are faster than the fused kernel up to
this many keys."""


class Sight:
    """Who sees whom, as kernels want it: a mask, or the word that none is needed."""

    def __init__(
        self, mask: Bool[Tensor, "b 1 t s"] | None = None, *, causal: bool = False
    ) -> None:
        self.mask = mask
        """True where a key is visible; None: everywhere, or everything before (`causal`)."""
        self.causal = causal and mask is None
        self._added: Tensor | None = None

    def only(self, at: Int[Tensor, "b"], keys: int) -> "Sight":
        """Return what one query of each row sees, the one in column `at`."""
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
        geometry: Tensor | None,
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
        q, k, bias = self.place(q, k, geometry)
        y = attend(q, k, v, sight, bias=bias, scale=self.scale, dropout=self.dropout)
        return self.o(y.transpose(1, 2).flatten(2))
