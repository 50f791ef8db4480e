"""CANINE: characters in, characters out, and between them a deep stack that reads fewer places.

Clark et al. 2022, arXiv:2103.06874, section 3.1, which calls the fewer places downsampled; the
released code calls them molecules, and so does this file. Where the paper is silent (the first
molecule, the last characters, what padding is) the released code decides, `modeling.py`.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import IGNORE_INDEX, Batch
from unmask.model.architecture import Architecture, AttentionPattern
from unmask.model.backbones.transformer import Block
from unmask.model.cache import Cache, LayerCache
from unmask.model.layers.attention.attention import Attention, AttentionMask, attend
from unmask.model.layers.embeddings.adaptive import AdaptiveEmbedding
from unmask.model.layers.embeddings.character_cnn import CharacterCNNModule
from unmask.model.layers.feed_forward import ACTIVATIONS, Dropout
from unmask.model.positions.scheme import LearnedPositions, PositionLayer, PositionModule

HASH_PRIMES = (31, 43, 59, 61, 73, 97, 103, 113, 137, 149, 157, 173, 181, 193, 211, 223)
"""One for each hash function (released code)."""
PAD_CODE_POINT = 0
"""The code point of padding."""


@dataclass(frozen=True, kw_only=True)
class CanineArchitecture(Architecture):
    """The deep stack as an Architecture, and what stands around it."""

    n_hash_functions: int = 8
    """Hash functions, each with a table of its own, for a slice of a character's vector."""
    n_hash_buckets: int = 16_384
    """Rows of each of these tables."""
    local_attention_block: int = 128
    """Characters that see each other before the deep stack."""
    downsampling_rate: int = 4
    """Characters in a molecule."""
    upsampling_kernel_size: int = 4
    """Characters that the convolution after the deep stack reads."""

    unsupported_fields: ClassVar[tuple[str, ...]] = (
        "shared_sublayers", "attention_window", "cross_attention", "causal", "embedding_size", "final_norm", "n_kv_heads",
        "query_key_norm", "parallel_sublayers", "attention_logit_softcapping", "scale_embedding",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("n_hash_buckets", "local_attention_block", "downsampling_rate", "upsampling_kernel_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 1 <= self.n_hash_functions <= len(HASH_PRIMES):
            raise ValueError(f"n_hash_functions must be from 1 to {len(HASH_PRIMES)}, got {self.n_hash_functions}")
        if self.d_model % self.n_hash_functions:
            raise ValueError(
                f"d_model {self.d_model} is not a multiple of n_hashes {self.n_hash_functions}"
            )
        for name in self.unsupported_fields:
            if getattr(self, name):
                raise ValueError(f"{name} = {getattr(self, name)!r} is nothing that CANINE has")
        if not isinstance(self.position, LearnedPositions):
            raise ValueError(f"CANINE's places are learned, got {self.position}")

    def with_attention_pattern(self, pattern: AttentionPattern, *, generates: bool = False) -> "CanineArchitecture":
        """Return itself for texts that are seen as a whole.

        Raises:
            ValueError: less than that is to be seen.
        """
        if pattern != "both_ways" or generates:
            raise ValueError(
                "CANINE's blocks of characters are read both ways: a text is seen as a whole only"
            )
        return self

    def flops(self, length: int) -> float:
        """Count the forward's matrix-product FLOPs a character, embedding and head apart."""
        molecules = max(length // self.downsampling_rate, 1)
        one = replace(self, n_layers=1)
        deep = Architecture.flops(self, molecules) / self.downsampling_rate
        first = Architecture.flops(one, min(length, self.local_attention_block))
        last = Architecture.flops(one, length)
        convolutions = 2 * self.d_model**2 * (1 + 2 * self.upsampling_kernel_size)
        return deep + first + last + convolutions


class CharacterHashEmbedding(nn.ModuleList):
    """Ids -> vectors, of any number of ids: each slice of a vector is looked up by another hash.

    Two characters share a slice now and then, but hardly ever all of them (section 3.1,
    "Character hash embeddings").
    """

    def __init__(self, n_hash_functions: int, n_buckets: int, width: int) -> None:
        super().__init__(nn.Embedding(n_buckets, width // n_hash_functions) for _ in range(n_hash_functions))
        self.n_buckets = n_buckets

    @property
    def weight(self) -> Float[Tensor, "v d"]:
        """The first of the tables, which tells where all of them are and in what precision."""
        return cast(nn.Embedding, self[0]).weight

    def buckets(self, ids: Int[Tensor, "*b"]) -> Int[Tensor, "*b k"]:
        """Give the row of each id in each table."""
        primes = torch.tensor(HASH_PRIMES[: len(self)], device=ids.device)
        return (ids[..., None] + 1) * primes % self.n_buckets

    def forward(self, ids: Int[Tensor, "*b"]) -> Float[Tensor, "*b d"]:
        """Look up vectors, slice by slice."""
        rows = self.buckets(ids).unbind(-1)
        return torch.cat([table(row) for table, row in zip(self, rows, strict=True)], -1)


TokenEmbedding = nn.Embedding | CharacterHashEmbedding | AdaptiveEmbedding | CharacterCNNModule
"""What gives tokens their vectors."""


def require_embedding_table(embedding_table: TokenEmbedding) -> nn.Embedding:
    """Return a table that has a vector for each token, by which tokens can be scored.

    Raises:
        ValueError: there is no such table, but hashes, and the scores would be of a million tokens;
            or one for each cluster of tokens; or vectors are made of characters.
    """
    if isinstance(embedding_table, AdaptiveEmbedding):
        raise ValueError("token vectors in clusters serve models that name the next token alone")
    if isinstance(embedding_table, CharacterCNNModule):
        raise ValueError(
            "ELMo's words have no table of vectors: its own head has one to score them"
        )
    if not isinstance(embedding_table, nn.Embedding):
        raise ValueError(
            "CANINE's characters are not scored one by one, there are a million: its own head "
            "scores buckets of them"
        )
    return embedding_table


class BlockLocalAttention(Attention):
    """Attention within blocks; its geometry says what each block may read [b n 1 w]."""

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        context: Float[Tensor, "b s d"] | None,
        position_state: Float[Tensor, "b n 1 w"],
        attention_mask: AttentionMask,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "b t d"]:
        """Let each character of x read its own block."""
        t, h, (n, w) = x.shape[1], self.q.out_features // self.d_head, position_state.shape[1::2]

        def cut(y: Tensor) -> Tensor:  # [b h*n w e]
            blocks = F.pad(self.split_heads(y), (0, 0, 0, n * w - t))
            return blocks.unflatten(2, (n, w)).flatten(1, 2)

        bias = position_state[:, None].expand(-1, h, -1, -1, -1).flatten(1, 2)
        q, k, v = (cut(one(x)) for one in (self.q, self.k, self.v))
        y = attend(q, k, v, attention_mask, bias=bias, scale=self.scale, dropout=self.dropout)
        y = y.unflatten(1, (h, n)).flatten(2, 3)[:, :, :t]
        return self.o(y.transpose(1, 2).flatten(2))


class CharactersToMolecules(nn.Module):
    """Characters -> molecules: a convolution that moves on by as many places as it reads.

    The first molecule is the first character itself, [CLS]; to make room for it the last one is
    left out (released code).
    Deviates: the convolutions begin as the other matrices do; the released code leaves them to
    TensorFlow's default.
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

    Each character is put beside its molecule, and a convolution reads some neighbors.
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
        """Put both together; characters after the last molecule share it."""
        own = torch.arange(x.shape[1], device=x.device) // self.rate + 1
        repeated = molecules[:, own.clamp(max=molecules.shape[1] - 1)]
        both = torch.cat((x, repeated), -1).mT
        before = (self.kernel - 1) // 2
        both = F.pad(both, (before, self.kernel - 1 - before))
        return self.dropout(self.norm(self.activation(self.conv(both).mT)))


class Canine(nn.Module):
    """Ids of characters [b t] -> hidden states [b t d].

    What a text's characters become depends on the padding behind it, here as in the released code:
    the last molecule, and the last characters' convolution, read into it. `pad_for_network` gives every text
    as much of it as makes a difference.
    """

    def __init__(self, a: CanineArchitecture) -> None:
        super().__init__()
        self.a = a
        self.tokens = CharacterHashEmbedding(a.n_hash_functions, a.n_hash_buckets, a.d_model)
        self.position: PositionModule = a.position.build(a)
        self.segments = nn.Embedding(a.n_segments, a.d_model) if a.n_segments else None
        self.embed_norm = a.norm.build(a.d_model) if a.embedding_norm else nn.Identity()
        self.dropout = Dropout(a.dropout)
        self.first = Block(a, PositionLayer(), None)
        self.first.attention = BlockLocalAttention(a, PositionLayer())
        self.down = CharactersToMolecules(a)
        self.layers = nn.ModuleList(Block(a, PositionLayer(), None) for _ in range(a.n_layers))
        self.up = MoleculesToCharacters(a)
        self.last = Block(a, PositionLayer(), None)
        self.final_dropout = Dropout(a.final_dropout)

    @property
    def width(self) -> int:
        """Width of the hidden states."""
        return self.a.d_model

    @property
    def embedding_table(self) -> CharacterHashEmbedding:
        """The tables of characters' vectors."""
        return self.tokens

    @property
    def supports_last_only(self) -> bool:
        """It can make `batch.only`: section 3.2.3, "Targeted upsampling"."""
        return True

    def new_cache(self, max_rollback: int = 0) -> Cache:
        """Refuse: every character sees those after it.

        Raises:
            ValueError: always.
        """
        raise ValueError("CANINE reads in both directions and keeps nothing of what it has read")

    def flops(self, length: int) -> float:
        """Count the forward's FLOPs a character in texts of `length`, heads apart."""
        return self.a.flops(length)

    def embed(self, batch: Batch) -> Float[Tensor, "b t d"]:
        """Sum the vectors of characters, places and segments."""
        place = torch.arange(batch.inputs.shape[1], device=batch.inputs.device)[None]
        x = self.tokens(batch.inputs)
        if (where := self.position.embed(place)) is not None:
            x = x + where
        if self.segments is not None:
            part = torch.zeros_like(place) if batch.segments is None else batch.segments
            x = x + self.segments(part)
        return self.dropout(self.embed_norm(x))

    def forward(self, batch: Batch, cache: Cache | None = None) -> Float[Tensor, "b n d"]:
        """Run the network over a batch, one text a row.

        With `batch.summary` the deep stack's first molecule comes first, in a column of its own;
        with `only`, alone: what follows the deep stack is then not run ("the upsampling layer is
        discarded for classification", note 24).

        Raises:
            ValueError: the batch has several texts in a row, or an order in which it is read.
        """
        _check_batch(batch, cache)
        t = batch.inputs.shape[1]
        batch = _append_padding(batch, max(self.a.downsampling_rate - t, 0))
        there = _is_text(batch)
        x = self.first(self.embed(batch), self._block_bias(batch, there), *_BLOCK_ARGUMENTS)
        molecules = self.down(x)
        sight = self._attention_mask(there, molecules.shape[1], self.a.downsampling_rate)
        for layer in self.layers:
            molecules = layer(molecules, None, sight, *_BLOCK_ARGUMENTS[1:])
        summary = molecules[:, :1]
        if batch.summary and batch.selected_column is not None:
            return summary
        sight = self._attention_mask(there, x.shape[1], 1)
        x = self.last(self.up(x, molecules), None, sight, *_BLOCK_ARGUMENTS[1:], batch.selected_column)
        x = self.final_dropout(x)
        if batch.selected_column is not None:
            return x
        return torch.cat((summary, x[:, :t]), 1) if batch.summary else x[:, :t]

    def pad_for_network(self, batch: Batch) -> Batch:
        """Put so much padding behind all texts that none depends on how long the others are.

        Whole blocks, the last of which reaches past the molecule that holds the first character
        after the longest text and the one after that; but no more than there are places.
        """
        t, w = batch.inputs.shape[1], self.a.local_attention_block
        least = t + 2 * self.a.downsampling_rate + self.a.upsampling_kernel_size
        most = getattr(self.a.position, "length", least)
        return _append_padding(batch, max(min(-(-least // w) * w, most) - t, 0))

    def _block_bias(self, batch: Batch, is_text: Tensor | None) -> Float[Tensor, "b n 1 w"]:
        """Say which characters of its block each one reads, as numbers added to the scores.

        A block of padding alone reads itself, evenly: the lowest number swallows every score.
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

    def _attention_mask(self, is_text: Tensor | None, n_positions: int, downsampling_rate: int) -> AttentionMask:
        """Let every place see those that hold something of the text."""
        if is_text is None:
            return AttentionMask()
        seen: Bool[Tensor, "b s"] = is_text[:, : n_positions * downsampling_rate].unflatten(1, (n_positions, downsampling_rate)).any(-1)
        return AttentionMask(seen[:, None, None].expand(-1, -1, n_positions, -1))


_BLOCK_ARGUMENTS = (AttentionMask(), None, AttentionMask(), None, 0)
"""What a block is told of masks, an encoder and a cache where there are none."""


def _check_batch(batch: Batch, cache: Cache | None) -> None:
    if cache is not None or batch.visibility.causal or batch.visibility.rank is not None:
        raise ValueError("CANINE reads all of a text at once, in no order")
    if batch.position_ids is not None or batch.part_ids is not None:
        raise ValueError("CANINE reads one text a row: rows cannot be packed or in parts")
    if batch.all_layers:
        raise ValueError("CANINE's layers stand for different places, and cannot be side by side")


def _is_text(batch: Batch) -> Bool[Tensor, "b t"] | None:
    """Say which characters are of the text; None: all."""
    document = batch.visibility.document
    return None if document is None else document >= 0


def _append_padding(batch: Batch, n: int) -> Batch:
    """Put `n` columns of padding behind a batch's rows; nothing is asked there."""
    if n == 0:
        return batch
    (rows, t), inputs = batch.inputs.shape, batch.inputs
    document, asked, labels = batch.visibility.document, batch.target_positions, batch.labels
    if document is None:
        document = torch.zeros_like(inputs)
    if batch.targets is not None:
        asked = torch.arange(rows * t, device=inputs.device) if asked is None else asked
        asked = asked + asked // t * n
    if labels is not None and labels.shape == inputs.shape and not labels.is_floating_point():
        labels = F.pad(labels, (0, n), value=IGNORE_INDEX)
    return replace(
        batch,
        inputs=F.pad(inputs, (0, n), value=PAD_CODE_POINT),
        visibility=replace(batch.visibility, document=F.pad(document, (0, n), value=-1)),
        targets=None if batch.targets is None else F.pad(batch.targets, (0, n), value=IGNORE_INDEX),
        target_positions=asked,
        prediction_order=None if batch.prediction_order is None else F.pad(batch.prediction_order, (0, n)),
        segments=None if batch.segments is None else F.pad(batch.segments, (0, n)),
        shifted_targets=None if batch.shifted_targets is None else F.pad(batch.shifted_targets, (0, n)),
        last_token_positions=torch.full_like(inputs[:, 0], t - 1) if batch.last_token_positions is None else batch.last_token_positions,
        labels=labels,
    )
