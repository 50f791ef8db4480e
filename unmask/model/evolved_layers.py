"""What `unmask.model.evolved` names: the first halves of the Evolved Transformer's blocks."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Visibility
from unmask.model.architecture import Architecture
from unmask.model.attention import Attention, Sight
from unmask.model.cache import Cache, Recent
from unmask.model.convolution import around, behind, convolved
from unmask.model.evolved import AttendedConvolutions, GatedConvolutions, LayerKind
from unmask.model.norms import Norms
from unmask.model.parts import Dropout
from unmask.model.positions import Place


class Separable(nn.Module):
    """A convolution of each number on its own, then a linear map of each token on its own.

    Chollet 2017, arXiv:1610.02357, section 1.
    """

    def __init__(self, d: int, width: int, taps: range) -> None:
        super().__init__()
        self.kernel = nn.Conv1d(d, d, len(taps), groups=d, bias=False)
        self.out = nn.Linear(d, width)
        self.taps = taps

    def forward(
        self, x: Float[Tensor, "b s d"], visibility: Visibility, last: int
    ) -> Float[Tensor, "b last w"]:
        """Map the last columns of x, whose visibility is given, by what they see near them."""
        return self.out(convolved(self.kernel, x, visibility, self.taps)[:, x.shape[1] - last :])


class GatedLayer(nn.Module):
    """The gated linear unit is x' = values(x) * sigmoid(gates(x)), of equal width.

    Then wide(norm(relu(up(x)) + relu(narrow(x)))), where the narrower sum or result has zeros at
    its end.
    """

    def __init__(self, part: GatedConvolutions, a: Architecture) -> None:
        super().__init__()
        d, half = a.d_model, a.d_model // 2
        self.values, self.gates, self.gated_norm = nn.Linear(d, d), nn.Linear(d, d), Norms(a)
        self.up = nn.Linear(d, 4 * d)
        self.narrow = nn.Conv1d(d, half, part.narrow)
        self.inner_norm = a.norm.build(4 * d)
        self.wide = Separable(4 * d, half, around(part.wide))
        self.convolved_norm = Norms(a)
        self.dropout = Dropout(a.dropout)

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        geometry: Any,
        sight: Sight,
        visibility: Visibility,
        memory: Float[Tensor, "b s d"] | None,
        memory_sight: Sight,
        cache: Cache | None,
        i: int,
    ) -> Float[Tensor, "b t d"]:
        """Read and write the residual stream twice.

        Raises:
            ValueError: the text goes on from one that was read before, whose last tokens would
                have read these.
        """
        if cache is not None:
            raise ValueError("a layer that reads what follows reads a text at once")
        x = self.gated_norm(x, lambda y: self.values(y) * torch.sigmoid(self.gates(y)))
        return self.convolved_norm(x, lambda y: self._convolved(y, visibility))

    def _convolved(
        self, x: Float[Tensor, "b t d"], visibility: Visibility
    ) -> Float[Tensor, "b t d"]:
        near = convolved(self.narrow, x, visibility, around(self.narrow.kernel_size[0]))
        inner = _sum(self.dropout(F.relu(self.up(x))), self.dropout(F.relu(near)))
        y = self.wide(self.inner_norm(inner), visibility, x.shape[1])
        return F.pad(y, (0, x.shape[2] - y.shape[2]))


class AttendedLayer(nn.Module):
    """Attention to itself and to the encoder, which read the same and are summed.

    Then after(norm(relu(wide(x)) + narrow(x))), convolutions all.
    """

    def __init__(self, part: AttendedConvolutions, a: Architecture, place: Place) -> None:
        super().__init__()
        d = a.d_model
        many = replace(a, n_heads=max(part.heads, a.n_heads), head_width=None, kinds=())
        self.attention, self.attention_norm = Attention(many, place), Norms(a)
        self.cross = Attention(a, Place())
        self.wide = Separable(d, 2 * d, behind(part.wide))
        self.narrow = Separable(d, d // 2, behind(part.narrow))
        self.inner_norm = a.norm.build(2 * d)
        self.after = Separable(2 * d, d, behind(part.narrow))
        self.convolved_norm = Norms(a)
        self.dropout = Dropout(a.dropout)

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        geometry: Any,
        sight: Sight,
        visibility: Visibility,
        memory: Float[Tensor, "b s d"] | None,
        memory_sight: Sight,
        cache: Cache | None,
        i: int,
    ) -> Float[Tensor, "b t d"]:
        """Read and write the residual stream twice; the cache has what was read before."""
        own = None if cache is None else cache.layers[i]
        other = None if cache is None else cache.cross[i]
        context = None if other is not None and other.length else memory
        before = x
        x = self.attention_norm(before, lambda y: self.attention(y, y, geometry, sight, own))
        x = self.attention_norm(
            x, lambda y: self.cross(y, context, None, memory_sight, other), before
        )
        recent = () if cache is None else cache.recent[i]
        return self.convolved_norm(x, lambda y: self._convolved(y, visibility, recent))

    def _convolved(
        self, x: Float[Tensor, "b t d"], visibility: Visibility, recent: Sequence[Recent]
    ) -> Float[Tensor, "b t d"]:
        n = x.shape[1]
        x = recent[0].extend(x) if recent else x
        sees = visibility.last(x.shape[1])
        wide = self.dropout(F.relu(self.wide(x, sees, n)))
        inner = self.inner_norm(_sum(wide, self.dropout(self.narrow(x, sees, n))))
        inner = recent[1].extend(inner) if recent else inner
        return self.after(inner, visibility.last(inner.shape[1]), n)


def layer_of(part: LayerKind, a: Architecture, place: Place) -> nn.Module:
    """Build a layer of another kind than attention and a feed-forward."""
    if isinstance(part, GatedConvolutions):
        return GatedLayer(part, a)
    return AttendedLayer(part, a, place)


def _sum(wide: Float[Tensor, "b t w"], narrow: Float[Tensor, "b t n"]) -> Float[Tensor, "b t w"]:
    return wide + F.pad(narrow, (0, wide.shape[2] - narrow.shape[2]))
