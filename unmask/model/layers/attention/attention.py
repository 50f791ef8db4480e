"""`attend`, the only caller of attention kernels, and the Attention sublayer."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Visibility
from unmask.model.backbones.block_architecture import BlockArchitecture
from unmask.model.cache import LayerCache
from unmask.model.layers.attention.block_local_mask import (
    FULL_ATTENTION,
    BlockLocalMask,
    Window,
    gather_columns,
    visible_keys,
)
from unmask.model.layers.attention.deterministic import make_backward_deterministic
from unmask.model.layers.feed_forward import ACTIVATIONS, Dropout, QueryKeyNorm
from unmask.model.positions.module import PositionLayer

EAGER_MAX_KEYS = 512
"""Largest number of keys for which, on a CPU in bfloat16, two matrix products and a softmax are
faster than the fused kernel."""


BLOCK_LOCAL_MIN_KEYS = 256
"""Texts longer than three windows by this many keys are split into blocks, which attend to three
windows. For shorter texts a mask of all pairs is as fast
(benchmarks/reports/2026-11-22-window.md)."""


@dataclass(frozen=True)
class GlobalQueries:
    """Queries with global attention, which ignore the window."""

    columns: Int[Tensor, "b g"]
    """Columns of the queries; -1 pads rows that have fewer."""
    attention_mask: "AttentionMask"
    """The mask of the queries: all tokens of their text."""

    def for_columns(self, columns: Int[Tensor, "b"]) -> "GlobalQueries":
        """Return the global ones among single queries, one per row, in columns `columns`."""
        hits = self.columns == columns[:, None]
        is_global_column = torch.where(hits.any(1), 0, -1)[:, None]
        mask = self.attention_mask.mask
        if mask is not None:
            rows = torch.arange(len(columns), device=columns.device)
            mask = mask.expand(len(columns), -1, -1, -1)[rows, :, hits.int().argmax(1)][:, :, None]
        return GlobalQueries(is_global_column, AttentionMask(mask))


class AttentionMask:
    """The keys that each query attends to: by a mask, a block-local mask, causally, or all."""

    def __init__(
        self,
        mask: Bool[Tensor, "b 1 t s"] | None = None,
        *,
        causal: bool = False,
        block_local_mask: BlockLocalMask | None = None,
        global_queries: GlobalQueries | None = None,
    ) -> None:
        self.mask = mask
        """True where a key is visible. None: all keys are, or all earlier ones (`causal`)."""
        self.causal = causal and mask is None
        self.block_local_mask = block_local_mask
        """Instead of a mask."""
        self.global_queries = global_queries
        """Queries that attend a second time, beyond their window; they are in the mask, too."""
        self._additive: Tensor | None = None
        self._blocks: AttentionMask | None = None

    @classmethod
    def from_visibility(
        cls,
        visibility: Visibility,
        n_queries: int,
        n_keys: int,
        window: Window = FULL_ATTENTION,
        *,
        prefix: int = 0,
        keep_all_keys: bool = False,
        device: torch.device | None = None,
    ) -> "AttentionMask":
        """Return the mask of the last `n_queries` of `n_keys` columns; all attend to `prefix` more.

        Unless `keep_all_keys`, the mask may leave out keys that no query attends to: it then fits a
        cache that has dropped them, or is block-local.

        Raises:
            ValueError: the window has `global_positions`, and there are columns before the queries
                other than the prefix.
        """
        text, global_queries = n_keys - prefix, None
        size, global_positions = window.size, window.global_positions
        if global_positions is not None:
            if n_queries != text:
                raise ValueError(
                    f"global_positions need all {text} columns at once, got {n_queries}"
                )
            global_queries = GlobalQueries(
                global_positions,
                AttentionMask(
                    _extend_by_prefix(visible_keys(visibility, global_positions, text), prefix)
                ),
            )
        exporting = torch.compiler.is_exporting()  # lengths are symbols: no choice depends on them
        if size is not None and not keep_all_keys and not exporting:
            if n_queries == n_keys and n_keys >= 3 * size + BLOCK_LOCAL_MIN_KEYS:
                always = window.visible_columns if global_positions is None else global_positions
                block_local = BlockLocalMask(visibility, size, window.dilation, always)
                return cls(block_local_mask=block_local, global_queries=global_queries)
            text = min(text, n_queries + size * window.dilation)
            visibility = visibility.of_last(text)
        near = None
        if size is not None and (exporting or window.dilation != 1 or text > size + 1):
            near = window.to_mask(n_queries, text, device)
        mask = visibility.to_mask(n_queries, text, near=near, device=device)
        return cls(
            _extend_by_prefix(mask, prefix), causal=visibility.causal, global_queries=global_queries
        )

    @classmethod
    def excluding_self(cls, visibility: Visibility, n_queries: int, n_keys: int) -> "AttentionMask":
        """Return the mask of the last `n_queries` of `n_keys` columns, without themselves."""
        return cls(visibility.to_mask(n_queries, n_keys, excluding_self=True))

    def for_columns(self, columns: Int[Tensor, "b"], n_keys: int) -> "AttentionMask":
        """Return the mask of one query of each row, the one in column `columns`."""
        global_queries = (
            None if self.global_queries is None else self.global_queries.for_columns(columns)
        )
        if self.block_local_mask is not None:
            return AttentionMask(
                self.block_local_mask.for_columns(columns, n_keys), global_queries=global_queries
            )
        if self.mask is not None:
            rows = torch.arange(len(columns), device=columns.device)
            mask = self.mask.expand(len(columns), -1, -1, -1)[rows, :, columns][:, :, None]
            return AttentionMask(mask, global_queries=global_queries)
        if not self.causal:
            return AttentionMask(global_queries=global_queries)
        before = torch.arange(n_keys, device=columns.device) <= columns[:, None]
        return AttentionMask(before[:, None, None], global_queries=global_queries)

    def for_blocks(
        self, block_local_mask: BlockLocalMask, batch_size: int, n_keys: int, device: torch.device
    ) -> "AttentionMask":
        """Return the mask of the blocks; it is computed once per forward."""
        if self._blocks is None:
            mask = block_local_mask.block_mask(n_keys, device)
            self._blocks = AttentionMask(mask.expand(batch_size, -1, -1, -1, -1).flatten(0, 1))
        return self._blocks

    def additive(self, like: Tensor, n_queries: int, n_keys: int) -> Tensor | None:
        """Return the additive mask: 0, or the lowest number of `like`'s dtype.

        It is computed once per forward pass.
        """
        if self._additive is None:
            mask = self.mask
            if self.causal and n_queries > 1:
                mask = torch.ones(n_queries, n_keys, dtype=torch.bool, device=like.device)
                mask = mask.tril(n_keys - n_queries)[None, None]
            if mask is None:
                return None
            numbers = torch.zeros(mask.shape, dtype=like.dtype, device=like.device)
            self._additive = numbers.masked_fill_(~mask, torch.finfo(like.dtype).min)
        return self._additive


@dataclass(frozen=True)
class Scoring:
    """Scale and softcap of attention scores, and dropout of attention weights."""

    scale: float
    softcap: float | None = None
    """Cap of the scores s, which become cap tanh(s / cap). None: no cap."""
    dropout: Dropout | None = None

    @property
    def dropout_rate(self) -> float:
        """The dropout probability in training, otherwise 0."""
        return self.dropout.rate if self.dropout is not None and self.dropout.training else 0.0


def eager_is_faster(x: Tensor, n_keys: int, *, has_bias: bool, dropout_rate: float) -> bool:
    """Return whether `attend` should compute the scores instead of calling the fused kernel.

    In an exported graph always: the kernel's own decomposition also looks for rows without keys.
    """
    if torch.compiler.is_exporting():
        return True
    if x.device.type != "cpu":
        return False
    if x.dtype == torch.bfloat16 and n_keys <= EAGER_MAX_KEYS:
        return True
    return (has_bias and torch.is_grad_enabled()) or dropout_rate > 0


def attend(
    q: Float[Tensor, "b h t e"],
    k: Float[Tensor, "b g s e"],
    v: Float[Tensor, "b g s e"],
    attention_mask: AttentionMask,
    scoring: Scoring,
    bias: Tensor | None = None,
) -> Float[Tensor, "b h t e"]:
    """softmax(cap·tanh(q kᵀ·scale / cap) + bias, over the visible keys) v.

    With g < h key and value heads, each serves h / g consecutive query heads.
    """
    if attention_mask.block_local_mask is not None:
        return _block_local_attention(
            q, k, v, attention_mask, attention_mask.block_local_mask, scoring
        )
    biased, drop = bias is not None, scoring.dropout_rate
    if scoring.softcap is not None or eager_is_faster(
        q, k.shape[2], has_bias=biased, dropout_rate=drop
    ):
        return _eager_attention(q, k, v, attention_mask, scoring, bias)
    causal = attention_mask.causal and q.shape[2] > 1
    mask = attention_mask.mask
    if bias is not None or (causal and q.shape[2] != k.shape[2]):
        mask = attention_mask.additive(q, q.shape[2], k.shape[2])
        causal = False
    if bias is not None:
        mask = bias if mask is None else bias + mask
    grouped = q.shape[1] != k.shape[1]
    return make_backward_deterministic(
        F.scaled_dot_product_attention(
            q, k, v, mask, drop, is_causal=causal, scale=scoring.scale, enable_gqa=grouped
        )
    )


def _eager_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attention_mask: AttentionMask,
    scoring: Scoring,
    bias: Tensor | None,
) -> Tensor:
    (b, h, t, _), scale, softcap = q.shape, scoring.scale, scoring.softcap
    scores = _group_query_heads(q if scale == 1 else q * scale, k) @ k.mT
    scores = scores.view(b, h, t, k.shape[2])
    if softcap is not None:
        scores = (scores / softcap).tanh() * softcap
    if bias is not None:
        scores = scores + bias
    if (added := attention_mask.additive(q, q.shape[2], k.shape[2])) is not None:
        scores += added
    weights = scores.softmax(-1)
    weights = weights if scoring.dropout is None else scoring.dropout(weights)
    return (_group_query_heads(weights, v) @ v).view(b, h, t, v.shape[3])


def _group_query_heads(x: Float[Tensor, "b h t _"], k: Float[Tensor, "b g s e"]) -> Tensor:
    """Merge heads that share keys into more queries of one head [b g h/g*t _]."""
    return x.unflatten(1, (k.shape[1], -1)).flatten(2, 3)


def _block_local_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attention_mask: AttentionMask,
    block_local_mask: BlockLocalMask,
    scoring: Scoring,
) -> Tensor:
    """Attend within blocks, each of which is treated as a row."""
    b, _, t, _ = q.shape  # [b h t e]
    blocks = attention_mask.for_blocks(block_local_mask, b, t, q.device)
    q, k, v = (
        block_local_mask.query_blocks(q),
        block_local_mask.key_blocks(k),
        block_local_mask.key_blocks(v),
    )
    y = attend(q, k, v, blocks, scoring)
    return block_local_mask.merge_blocks(y.unflatten(0, (b, -1)).transpose(1, 2).flatten(2, 3), t)


def _extend_by_prefix(mask: Tensor | None, prefix: int) -> Tensor | None:
    """Make `prefix` more columns, which come first, visible to all queries."""
    return mask if mask is None or not prefix else F.pad(mask, (prefix, 0), value=True)


def split_heads(x: Float[Tensor, "b t he"], width: int) -> Float[Tensor, "b h t e"]:
    """Split vectors into heads of size `width`."""
    return x.unflatten(-1, (-1, width)).transpose(1, 2)


class Attention(nn.Module):
    """Multi-head attention, Vaswani et al. 2017, section 3.2.2; self-attention if `context` is x.

    Several heads may share keys and values (Ainslie et al. 2023, arXiv:2305.13245).
    """

    def __init__(
        self, a: BlockArchitecture, position_layer: PositionLayer, *, global_attention: bool = False
    ) -> None:
        super().__init__()
        width, shared = a.n_heads * a.d_head, a.n_key_value_heads * a.d_head
        self.d_head = a.d_head
        self.scale = a.d_head**-0.5 if a.attention.scale is None else a.attention.scale
        self.q = nn.Linear(a.d_model, width, bias="read" in a.biases)
        self.k = nn.Linear(a.d_model, shared, bias="read" in a.biases)
        self.v = nn.Linear(a.d_model, shared, bias="read" in a.biases)
        self.o = nn.Linear(width, a.d_model, bias="write" in a.biases)
        self.q_norm, self.k_norm = nn.Identity(), nn.Identity()
        if a.attention.query_key_norm is not None:
            per_head = a.attention.query_key_norm == "head"
            self.q_norm = QueryKeyNorm(a.norm, a.d_head if per_head else width)
            self.k_norm = QueryKeyNorm(a.norm, a.d_head if per_head else shared)
        self.gate, self.gating = None, None
        if a.attention.gate is not None:
            self.gate = nn.Linear(a.d_model, width, bias="read" in a.biases)
            self.gating = ACTIVATIONS[a.attention.gate]
        self.inside = a.norm.build(width) if "inside" in a.norm_placement else nn.Identity()
        self.wide = GlobalAttentionProjections(a) if global_attention else None
        self.place = position_layer
        self.dropout = Dropout(a.attention_dropout)
        self.scoring = Scoring(self.scale, a.attention.logit_softcapping, self.dropout)

    def project_queries(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... he"]:
        """Project hidden states to queries, without a norm of queries."""
        return self.q(x)

    def project_keys(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... ge"]:
        """Project hidden states to keys, without a norm of keys."""
        return self.k(x)

    def split_heads(self, x: Float[Tensor, "b t he"]) -> Float[Tensor, "b h t e"]:
        """Split vectors into heads."""
        return split_heads(x, self.d_head)

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        context: Float[Tensor, "b s d"] | None,
        position_state: Any,
        attention_mask: AttentionMask,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "b t d"]:
        """Let x attend to `context`, or, if None, to the keys and values in the cache."""
        q = self.place.query(self.split_heads(self.q_norm(self.q(x))), position_state)
        if context is None:
            cached = None if cache is None else cache.all_keys_values
            if cached is None:
                raise ValueError("attention needs a context, or a cache that has all of it")
            k, v = cached
        else:
            k = self.place.key(self.split_heads(self.k_norm(self.k(context))), position_state)
            v = self.split_heads(self.v(context))
            if cache is not None:
                k, v = cache.extend(k, v)
        bias = self.place.bias(q, k, position_state, self)
        y = attend(q, k, v, attention_mask, self.scoring, bias)
        if (
            self.wide is not None
            and attention_mask.global_queries is not None
            and context is not None
        ):
            n = k.shape[2] - context.shape[1]
            y = self.wide(y, x, context, attention_mask.global_queries, k[:, :, :n], v[:, :, :n])
        y = y.transpose(1, 2).flatten(2)
        if self.gate is not None and self.gating is not None:
            y = y * self.gating(self.gate(x))
        return self.o(self.inside(y))


class GlobalAttentionProjections(nn.Module):
    """Attention of global tokens to all of their text, with separate projections.

    Beltagy et al. 2020, arXiv:2004.05150, section 3.1, "Global Attention" and "Linear Projections
    for Global Attention". It has no relative positions.
    """

    def __init__(self, a: BlockArchitecture) -> None:
        super().__init__()
        width = a.n_heads * a.d_head
        self.d_head = a.d_head
        scale = a.d_head**-0.5 if a.attention.scale is None else a.attention.scale
        self.q = nn.Linear(a.d_model, width, bias="read" in a.biases)
        self.k = nn.Linear(a.d_model, width, bias="read" in a.biases)
        self.v = nn.Linear(a.d_model, width, bias="read" in a.biases)
        self.dropout = Dropout(a.attention_dropout)
        self.scoring = Scoring(scale, None, self.dropout)

    def forward(
        self,
        y: Float[Tensor, "b h t e"],
        x: Float[Tensor, "b t d"],
        context: Float[Tensor, "b s d"],
        global_queries: GlobalQueries,
        prefix_keys: Float[Tensor, "b h p e"],
        prefix_values: Float[Tensor, "b h p e"],
    ) -> Float[Tensor, "b h t e"]:
        """Replace the outputs y of the global queries among x by those of global attention.

        They also attend to prefix keys and values before the text, if there are any.
        """
        q = split_heads(
            self.q(gather_columns(x[:, None], global_queries.columns)[:, 0]), self.d_head
        )  # [b h g e]
        k = torch.cat((prefix_keys, split_heads(self.k(context), self.d_head)), 2)
        v = torch.cat((prefix_values, split_heads(self.v(context), self.d_head)), 2)
        global_output = attend(q, k, v, global_queries.attention_mask, self.scoring)
        return scatter_rows(y, global_output, global_queries.columns)

    def weights(
        self,
        x: Float[Tensor, "b t d"],
        context: Float[Tensor, "b s d"],
        global_queries: GlobalQueries,
    ) -> Float[Tensor, "b h g s"]:
        """Return the attention weights of the global queries among x, without dropout."""
        columns = gather_columns(x[:, None], global_queries.columns)[:, 0]
        q, k = split_heads(self.q(columns), self.d_head), split_heads(self.k(context), self.d_head)
        scores = q @ k.mT * self.scoring.scale
        added = global_queries.attention_mask.additive(q, q.shape[2], k.shape[2])
        return (scores if added is None else scores + added).softmax(-1)


def scatter_rows(
    y: Float[Tensor, "b h t e"], rows: Float[Tensor, "b h g e"], columns: Int[Tensor, "b g"]
) -> Float[Tensor, "b h t e"]:
    """Replace the rows of y of some queries; those of column -1 are dropped."""
    t = y.shape[2]
    # -1 is a row that is cut off again
    index = (columns % (t + 1))[:, None, :, None]
    return F.pad(y, (0, 0, 0, 1)).scatter(2, index.expand_as(rows), rows)[:, :, :t]


@torch.no_grad()
def copy_to_global_attention(model: nn.Module, loaded: Collection[str] = ()) -> None:
    """Initialize the global projections as copies of the others, except those `loaded`.

    Beltagy et al. 2020, section 3.1, "Linear Projections for Global Attention".
    """
    for name, module in model.named_modules():
        if not isinstance(module, GlobalAttentionProjections):
            continue
        around = model.get_submodule(name.rpartition(".")[0])
        for part in ("q", "k", "v"):
            if f"{name}.{part}.weight" not in loaded:
                own = around.get_submodule(part).state_dict()
                module.get_submodule(part).load_state_dict(own)
