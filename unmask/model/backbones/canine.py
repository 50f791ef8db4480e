"""CANINE: character-level input and output around a deep stack over downsampled positions.

Clark et al. 2022, arXiv:2103.06874, section 3.1. The released code calls the downsampled positions
molecules, and so does this file. Where the paper is silent (the first molecule, the last
characters, padding) it follows the released code, `modeling.py`.
"""

from dataclasses import dataclass, fields, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import IGNORE_INDEX, Batch
from unmask.model.architecture import (
    NO_LAYER_RECORDS,
    NO_MEMORY,
    NOT_ONE_STACK,
    POST_NORM,
    UNMIXABLE_LAYERS,
    Ability,
    AttentionPattern,
    NormSlot,
    StackArchitecture,
)
from unmask.model.backbones.transformer import Architecture, Block
from unmask.model.cache import Cache, LayerCache
from unmask.model.layers.attention.attention import Attention, AttentionMask, attend
from unmask.model.layers.embeddings.character_hash import HASH_PRIMES, CharacterHashEmbedding
from unmask.model.layers.feed_forward import ACTIVATIONS, Activation, Dropout
from unmask.model.layers.layer_pass import AllColumns, LayerInputs, SelectedColumn
from unmask.model.positions.learned import LearnedPositions
from unmask.model.positions.module import PositionLayer, PositionModule
from unmask.model.positions.scheme import PositionScheme
from unmask.model.requested_states import record_input, requested_states
from unmask.objectives.reach import FULL_REACH, Reach

PAD_CODE_POINT = 0
"""The code point of padding."""


@dataclass(frozen=True, kw_only=True)
class CanineArchitecture(StackArchitecture):
    """The deep stack and the layers around it; all blocks have the same sizes."""

    n_heads: int
    d_ff: int
    n_segments: int = 0
    position: PositionScheme = LearnedPositions(512)
    norm_placement: frozenset[NormSlot] = POST_NORM
    embedding_norm: bool = False
    activation: Activation = "gelu"
    attention_dropout: float = 0.1
    activation_dropout: float = 0.0

    n_hash_functions: int = 8
    """Number of hash functions; each looks up one slice of a character's embedding."""
    n_hash_buckets: int = 16_384
    """Rows of the embedding table of each hash function."""
    local_attention_block: int = 128
    """Block size of the local attention before the deep stack."""
    downsampling_rate: int = 4
    """Characters per molecule."""
    upsampling_kernel_size: int = 4
    """Kernel size of the convolution after the deep stack."""

    outer_rates: ClassVar[tuple[str, ...]] = Architecture.outer_rates
    inner_rates: ClassVar[tuple[str, ...]] = Architecture.inner_rates

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in (
            "n_hash_buckets",
            "local_attention_block",
            "downsampling_rate",
            "upsampling_kernel_size",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 1 <= self.n_hash_functions <= len(HASH_PRIMES):
            raise ValueError(
                f"n_hash_functions must be from 1 to {len(HASH_PRIMES)}, got "
                f"{self.n_hash_functions}"
            )
        if self.d_model % self.n_hash_functions:
            raise ValueError(
                f"d_model {self.d_model} is not a multiple of n_hash_functions "
                f"{self.n_hash_functions}"
            )
        for name in ("causal", "embedding_size", "adaptive_input"):
            if getattr(self, name):
                raise ValueError(f"{name} = {getattr(self, name)!r} is not supported by CANINE")
        _ = self.blocks  # which checks sizes and rates
        if not isinstance(self.position, LearnedPositions):
            raise ValueError(f"position must be LearnedPositions in CANINE, got {self.position}")

    @property
    def blocks(self) -> Architecture:
        """The deep stack."""
        own = {f.name: getattr(self, f.name) for f in fields(Architecture) if hasattr(self, f.name)}
        return Architecture(**own)

    @property
    def uses_segments(self) -> bool:
        """Whether the network has segment embeddings."""
        return self.n_segments > 0

    @property
    def segment_count(self) -> int:
        """The number of segments that have embeddings."""
        return self.n_segments

    @property
    def max_positions(self) -> int | None:
        """The length of the longest text."""
        return self.blocks.max_positions

    @property
    def reaches(self) -> tuple[Reach, ...]:
        """What each layer reads for a character; molecules of several, in the deep stack, all."""
        local = Reach(block=self.local_attention_block)
        return (local, *self.blocks.reaches, FULL_REACH)

    @property
    def has_summary(self) -> bool:
        """True: the first molecule of the deep stack represents the whole text."""
        return True

    def build(self) -> "Canine":
        """Build the network."""
        return Canine(self)

    def with_segments(self, n: int) -> "CanineArchitecture":
        """Return a copy with n segments, if it has segments but fewer than n."""
        return replace(self, n_segments=n) if 0 < self.n_segments < n else self

    def activations(self, length: int) -> int:
        """Estimate the activations per character that are kept for the backward pass."""
        deep, rate = self.blocks, self.downsampling_rate
        around = deep.activations(length) // self.n_layers * 2
        return around + deep.activations(length // rate) // rate

    def with_attention_pattern(
        self, pattern: AttentionPattern, *, generates: bool = False
    ) -> "CanineArchitecture":
        """Return itself if the pattern is bidirectional.

        Raises:
            ValueError: it is not.
        """
        if pattern != "bidirectional" or generates:
            raise ValueError(
                "CANINE is bidirectional: the attention pattern must be 'bidirectional'"
            )
        return self

    def flops(self, length: int) -> float:
        """Count the forward matrix-product FLOPs per character, without embedding and head."""
        molecules = max(length // self.downsampling_rate, 1)
        deep, single_layer = self.blocks, replace(self.blocks, n_layers=1)
        within = deep.flops(molecules) / self.downsampling_rate
        first = single_layer.flops(min(length, self.local_attention_block))
        last = single_layer.flops(length)
        convolutions = 2 * self.d_model**2 * (1 + 2 * self.upsampling_kernel_size)
        return within + first + last + convolutions


class BlockLocalAttention(Attention):
    """Attention within blocks; its position state is the bias of each block [b n 1 w]."""

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        context: Float[Tensor, "b s d"] | None,
        position_state: Float[Tensor, "b n 1 w"],
        attention_mask: AttentionMask,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "b t d"]:
        """Let each character of x attend to its own block."""
        t, h, (n, w) = x.shape[1], self.q.out_features // self.d_head, position_state.shape[1::2]

        def cut(y: Tensor) -> Tensor:  # [b h*n w e]
            blocks = F.pad(self.split_heads(y), (0, 0, 0, n * w - t))
            return blocks.unflatten(2, (n, w)).flatten(1, 2)

        bias = position_state[:, None].expand(-1, h, -1, -1, -1).flatten(1, 2)
        q, k, v = (cut(project(x)) for project in (self.q, self.k, self.v))
        y = attend(q, k, v, attention_mask, self.scoring, bias)
        y = y.unflatten(1, (h, n)).flatten(2, 3)[:, :, :t]
        return self.o(y.transpose(1, 2).flatten(2))


class CharactersToMolecules(nn.Module):
    """Characters -> molecules: a convolution whose stride is its kernel size.

    The first molecule is the first character itself, [CLS]; to make room for it the last molecule
    is dropped (released code).
    Deviates: the convolutions are initialized as the other matrices; the released code leaves them
    to TensorFlow's default.
    """

    def __init__(self, a: CanineArchitecture) -> None:
        super().__init__()
        self.conv = nn.Conv1d(a.d_model, a.d_model, a.downsampling_rate, stride=a.downsampling_rate)
        self.activation = ACTIVATIONS[a.activation]
        self.norm = a.norm.build(a.d_model)

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b m d"]:
        """Make t // rate molecules."""
        molecules = self.activation(self.conv(x.mT).mT)
        return self.norm(torch.cat((x[:, :1], molecules[:, :-1]), 1))


class MoleculesToCharacters(nn.Module):
    """Characters and molecules -> characters.

    Each character is concatenated with its molecule, and a convolution follows.
    """

    def __init__(self, a: CanineArchitecture) -> None:
        super().__init__()
        self.rate, self.kernel = a.downsampling_rate, a.upsampling_kernel_size
        self.conv = nn.Conv1d(2 * a.d_model, a.d_model, a.upsampling_kernel_size)
        self.activation = ACTIVATIONS[a.activation]
        self.norm = a.norm.build(a.d_model)
        self.dropout = Dropout(a.dropout)

    def forward(
        self, x: Float[Tensor, "b t d"], molecules: Float[Tensor, "b m d"]
    ) -> Float[Tensor, "b t d"]:
        """Combine both; characters after the last molecule share it."""
        own = torch.arange(x.shape[1], device=x.device) // self.rate + 1
        repeated = molecules[:, own.clamp(max=molecules.shape[1] - 1)]
        both = torch.cat((x, repeated), -1).mT
        before = (self.kernel - 1) // 2
        both = F.pad(both, (before, self.kernel - 1 - before))
        return self.dropout(self.norm(self.activation(self.conv(both).mT)))


class Canine(nn.Module):
    """Ids of characters [b t] -> hidden states [b t d].

    As in the released code, the hidden states of a text depend on the padding after it: the last
    molecule and the convolution over the last characters reach into the padding. `pad_for_network`
    adds as much padding as affects them.
    """

    def __init__(self, a: CanineArchitecture) -> None:
        super().__init__()
        self.a = a
        self.tokens = CharacterHashEmbedding(a.n_hash_functions, a.n_hash_buckets, a.d_model)
        self.position: PositionModule = a.position.build(a.blocks)
        self.segments = nn.Embedding(a.n_segments, a.d_model) if a.n_segments else None
        self.embed_norm = a.norm.build(a.d_model) if a.embedding_norm else nn.Identity()
        self.dropout = Dropout(a.dropout)
        blocks = a.blocks
        self.first = Block(blocks, PositionLayer(), None)
        self.first.attention = BlockLocalAttention(blocks, PositionLayer())
        self.down = CharactersToMolecules(a)
        self.layers = nn.ModuleList(Block(blocks, PositionLayer(), None) for _ in range(a.n_layers))
        self.up = MoleculesToCharacters(a)
        self.last = Block(blocks, PositionLayer(), None)
        self.final_dropout = Dropout(a.final_dropout)

    @property
    def width(self) -> int:
        """Size of the hidden states."""
        return self.a.d_model

    @property
    def embedding_table(self) -> CharacterHashEmbedding:
        """The hash embeddings of characters."""
        return self.tokens

    @property
    def supports_last_only(self) -> bool:
        """It supports `selected_column`: section 3.2.3, "Targeted upsampling"."""
        return True

    @property
    def encoder_stack(self) -> "Canine":
        """The network that reads texts: itself."""
        return self

    @property
    def decoder_stack(self) -> "Canine":
        """The network whose hidden states the heads read: itself."""
        return self

    @property
    def stacks(self) -> "tuple[Canine, ...]":
        """All networks of one stack: itself."""
        return (self,)

    @property
    def n_token_layers(self) -> int:
        """The layers before and after the deep stack have a hidden state for each character."""
        return 2

    def unsupported_reason(self, ability: Ability) -> str | None:
        """Return why an ability is not supported: none is."""
        return {
            "memory": NO_MEMORY,
            "virtual_tokens": "CANINE does not support virtual tokens before its texts, because "
            "of its attention in blocks; LoRA and bottlenecks can be attached",
            "layer_mixing": UNMIXABLE_LAYERS,
            "layer_records": NO_LAYER_RECORDS,
            **NOT_ONE_STACK,
        }[ability]

    def encode(self, batch: Batch) -> Float[Tensor, "b t _"]:
        """Run the network over the inputs of the batch."""
        return self(batch)

    def layer_states(self, batch: Batch, layer: int) -> Float[Tensor, "b t d"]:
        """Return the input of the first or the last layer, or the output of the last one."""
        watched = (self.first, self.last, self.final_dropout)[layer]
        return record_input(watched, lambda: self(batch))

    def new_cache(self, max_rollback: int = 0) -> Cache:
        """Refuse: it is bidirectional.

        Raises:
            ValueError: always.
        """
        raise ValueError("CANINE is bidirectional: it has no cache")

    def flops(self, length: int) -> float:
        """Count the forward FLOPs per character in texts of `length`, without heads."""
        return self.a.flops(length)

    def embed(self, batch: Batch) -> Float[Tensor, "b t d"]:
        """Sum the embeddings of characters, positions and segments."""
        position_ids = torch.arange(batch.inputs.shape[1], device=batch.inputs.device)[None]
        x = self.tokens(batch.inputs)
        if (positions := self.position.embed(position_ids)) is not None:
            x = x + positions
        if self.segments is not None:
            segments = torch.zeros_like(position_ids) if batch.segments is None else batch.segments
            x = x + self.segments(segments)
        return self.dropout(self.embed_norm(x))

    def forward(self, batch: Batch, cache: Cache | None = None) -> Float[Tensor, "b n d"]:
        """Run the network over a batch, one text per row.

        With `RequestedStates.summary` the first molecule of the deep stack is the first column.
        With `selected_column` too, it is the only column, and the layers after the deep stack are
        not run ("the upsampling layer is discarded for classification", note 24).

        Raises:
            ValueError: the batch has several texts in a row, or is not bidirectional.
        """
        _check_batch(batch, cache)
        requested = requested_states(batch)
        column = requested.selected_column
        t = batch.inputs.shape[1]
        batch = _append_padding(batch, max(self.a.downsampling_rate - t, 0))
        is_text = _is_text(batch)
        bias = self._block_bias(batch, is_text)
        x = self.first(
            self.embed(batch), LayerInputs(attention_mask=AttentionMask(), position_state=bias)
        )
        molecules = self.down(x)
        mask = self._attention_mask(is_text, molecules.shape[1], self.a.downsampling_rate)
        for layer in self.layers:
            molecules = layer(molecules, LayerInputs(attention_mask=mask))
        summary = molecules[:, :1]
        if requested.summary and column is not None:
            return summary
        mask = self._attention_mask(is_text, x.shape[1], 1)
        last_pass = AllColumns() if column is None else SelectedColumn(column)
        inputs = LayerInputs(attention_mask=mask, is_last=True)
        x = self.final_dropout(last_pass(self.last, self.up(x, molecules), inputs))
        if column is not None:
            return x
        return torch.cat((summary, x[:, :t]), 1) if requested.summary else x[:, :t]

    def pad_for_network(self, batch: Batch) -> Batch:
        """Pad all texts so that none depends on the length of the others.

        The length is a multiple of the block size. It covers the molecule of the first character
        after the longest text, and the next molecule, but is at most `max_positions`.
        """
        t, w = batch.inputs.shape[1], self.a.local_attention_block
        least = t + 2 * self.a.downsampling_rate + self.a.upsampling_kernel_size
        most = getattr(self.a.position, "max_positions", least)
        return _append_padding(batch, max(min(-(-least // w) * w, most) - t, 0))

    def _block_bias(self, batch: Batch, is_text: Tensor | None) -> Float[Tensor, "b n 1 w"]:
        """Return the additive mask of each block: which characters each character attends to.

        A block of padding attends to itself uniformly: the lowest number absorbs every score.
        """
        (b, t), w = batch.inputs.shape, self.a.local_attention_block
        n, dtype = -(-t // w), self.tokens.weight.dtype
        if is_text is None:
            numbers = torch.zeros(1, t, dtype=dtype, device=batch.inputs.device).expand(b, -1)
        else:
            numbers = torch.zeros(is_text.shape, dtype=dtype, device=is_text.device)
            numbers = numbers.masked_fill(~is_text, torch.finfo(dtype).min)
        numbers = F.pad(numbers, (0, n * w - t), value=-torch.inf)
        return numbers.unflatten(1, (n, w))[:, :, None]

    def _attention_mask(
        self, is_text: Tensor | None, n_positions: int, downsampling_rate: int
    ) -> AttentionMask:
        """Return a mask of the positions that hold some character of the text."""
        if is_text is None:
            return AttentionMask()
        visible: Bool[Tensor, "b s"] = (
            is_text[:, : n_positions * downsampling_rate]
            .unflatten(1, (n_positions, downsampling_rate))
            .any(-1)
        )
        return AttentionMask(visible[:, None, None].expand(-1, -1, n_positions, -1))


def _check_batch(batch: Batch, cache: Cache | None) -> None:
    if cache is not None or batch.visibility.causal or batch.visibility.rank is not None:
        raise ValueError(
            "CANINE is bidirectional: it supports neither a cache nor causal or ranked visibility"
        )
    if batch.position_ids is not None or batch.part_ids is not None:
        raise ValueError("CANINE supports one text per row: rows cannot be packed or in parts")
    if requested_states(batch).all_layers:
        raise ValueError("CANINE's layers have different positions: all_layers is not supported")


def _is_text(batch: Batch) -> Bool[Tensor, "b t"] | None:
    """Return which characters are of the text; None: all."""
    document = batch.visibility.document
    return None if document is None else document >= 0


def _append_padding(batch: Batch, n: int) -> Batch:
    """Append `n` columns of padding without targets."""
    if n == 0:
        return batch
    (rows, t), inputs = batch.inputs.shape, batch.inputs
    document, target_positions, labels = (
        batch.visibility.document,
        batch.target_positions,
        batch.labels,
    )
    if document is None:
        document = torch.zeros_like(inputs)
    if batch.targets is not None:
        target_positions = (
            torch.arange(rows * t, device=inputs.device)
            if target_positions is None
            else target_positions
        )
        target_positions = target_positions + target_positions // t * n
    if labels is not None and labels.shape == inputs.shape and not labels.is_floating_point():
        labels = F.pad(labels, (0, n), value=IGNORE_INDEX)
    return replace(
        batch,
        inputs=F.pad(inputs, (0, n), value=PAD_CODE_POINT),
        visibility=replace(batch.visibility, document=F.pad(document, (0, n), value=-1)),
        targets=None if batch.targets is None else F.pad(batch.targets, (0, n), value=IGNORE_INDEX),
        target_positions=target_positions,
        segments=None if batch.segments is None else F.pad(batch.segments, (0, n)),
        features=tuple(feature.pad_columns(n) for feature in batch.features),
        last_token_positions=torch.full_like(inputs[:, 0], t - 1)
        if batch.last_token_positions is None
        else batch.last_token_positions,
        labels=labels,
    )
