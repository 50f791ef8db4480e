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

from unmask.batch import IGNORE, Batch
from unmask.model.adaptive import AdaptiveEmbedding
from unmask.model.architecture import Architecture, Sees
from unmask.model.attention import Attention, Sight, attend
from unmask.model.cache import Cache, LayerCache
from unmask.model.parts import ACTIVATIONS, Dropout
from unmask.model.positions import Learned, Place, PositionModule
from unmask.model.spelling import Speller
from unmask.model.transformer import Block

PRIMES = (31, 43, 59, 61, 73, 97, 103, 113, 137, 149, 157, 173, 181, 193, 211, 223)
"""One for each hash function (released code)."""
PAD = 0
"""The code point of padding."""


@dataclass(frozen=True, kw_only=True)
class CanineArchitecture(Architecture):
    """The deep stack as an Architecture, and what stands around it."""

    n_hashes: int = 8
    """Hash functions, each with a table of its own, for a slice of a character's vector."""
    n_buckets: int = 16_384
    """Rows of each of these tables."""
    block: int = 128
    """Characters that see each other before the deep stack."""
    rate: int = 4
    """Characters in a molecule."""
    kernel: int = 4
    """Characters that the convolution after the deep stack reads."""

    no: ClassVar[tuple[str, ...]] = (
        "shared", "window", "cross", "causal", "embed_width", "norm_final", "n_kv_heads",
        "query_key_norm", "parallel", "score_cap", "tokens_scaled",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("n_buckets", "block", "rate", "kernel"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 1 <= self.n_hashes <= len(PRIMES):
            raise ValueError(f"n_hashes must be from 1 to {len(PRIMES)}, got {self.n_hashes}")
        if self.d_model % self.n_hashes:
            raise ValueError(
                f"d_model {self.d_model} is not a multiple of n_hashes {self.n_hashes}"
            )
        for name in self.no:
            if getattr(self, name):
                raise ValueError(f"{name} = {getattr(self, name)!r} is nothing that CANINE has")
        if not isinstance(self.position, Learned):
            raise ValueError(f"CANINE's places are learned, got {self.position}")

    def reading(self, sees: Sees, *, writes: bool = False) -> "CanineArchitecture":
        """Return itself for texts that are seen as a whole.

        Raises:
            ValueError: less than that is to be seen.
        """
        if sees != "both_ways" or writes:
            raise ValueError(
                "CANINE's blocks of characters are read both ways: a text is seen as a whole only"
            )
        return self

    def flops(self, length: int) -> float:
        """Count the forward's matrix-product FLOPs a character, embedding and head apart."""
        molecules = max(length // self.rate, 1)
        one = replace(self, n_layers=1)
        deep = Architecture.flops(self, molecules) / self.rate
        first = Architecture.flops(one, min(length, self.block))
        last = Architecture.flops(one, length)
        convolutions = 2 * self.d_model**2 * (1 + 2 * self.kernel)
        return deep + first + last + convolutions


class HashEmbedding(nn.ModuleList):
    """Ids -> vectors, of any number of ids: each slice of a vector is looked up by another hash.

    Two characters share a slice now and then, but hardly ever all of them (section 3.1,
    "Character hash embeddings").
    """

    def __init__(self, n_hashes: int, n_buckets: int, width: int) -> None:
        super().__init__(nn.Embedding(n_buckets, width // n_hashes) for _ in range(n_hashes))
        self.n_buckets = n_buckets

    @property
    def weight(self) -> Float[Tensor, "v d"]:
        """The first of the tables, which tells where all of them are and in what precision."""
        return cast(nn.Embedding, self[0]).weight

    def buckets(self, ids: Int[Tensor, "*b"]) -> Int[Tensor, "*b k"]:
        """Give the row of each id in each table."""
        primes = torch.tensor(PRIMES[: len(self)], device=ids.device)
        return (ids[..., None] + 1) * primes % self.n_buckets

    def forward(self, ids: Int[Tensor, "*b"]) -> Float[Tensor, "*b d"]:
        """Look up vectors, slice by slice."""
        rows = self.buckets(ids).unbind(-1)
        return torch.cat([table(row) for table, row in zip(self, rows, strict=True)], -1)


Table = nn.Embedding | HashEmbedding | AdaptiveEmbedding | Speller
"""What gives tokens their vectors."""


def embedding(table: Table) -> nn.Embedding:
    """Return a table that has a vector for each token, by which tokens can be scored.

    Raises:
        ValueError: there is no such table, but hashes, and the scores would be of a million tokens;
            or one for each cluster of tokens; or vectors are made of characters.
    """
    if isinstance(table, AdaptiveEmbedding):
        raise ValueError("token vectors in clusters serve models that name the next token alone")
    if isinstance(table, Speller):
        raise ValueError(
            "ELMo's words have no table of vectors: its own head has one to score them"
        )
    if not isinstance(table, nn.Embedding):
        raise ValueError(
            "CANINE's characters are not scored one by one, there are a million: its own head "
            "scores buckets of them"
        )
    return table


class LocalAttention(Attention):
    """Attention within blocks; its geometry says what each block may read [b n 1 w]."""

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        context: Float[Tensor, "b s d"] | None,
        geometry: Float[Tensor, "b n 1 w"],
        sight: Sight,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "b t d"]:
        """Let each character of x read its own block."""
        t, h, (n, w) = x.shape[1], self.q.out_features // self.d_head, geometry.shape[1::2]

        def cut(y: Tensor) -> Tensor:  # [b h*n w e]
            blocks = F.pad(self.heads(y), (0, 0, 0, n * w - t))
            return blocks.unflatten(2, (n, w)).flatten(1, 2)

        bias = geometry[:, None].expand(-1, h, -1, -1, -1).flatten(1, 2)
        q, k, v = (cut(one(x)) for one in (self.q, self.k, self.v))
        y = attend(q, k, v, sight, bias=bias, scale=self.scale, dropout=self.dropout)
        y = y.unflatten(1, (h, n)).flatten(2, 3)[:, :, :t]
        return self.o(y.transpose(1, 2).flatten(2))


class Down(nn.Module):
    """Characters -> molecules: a convolution that moves on by as many places as it reads.

    The first molecule is the first character itself, [CLS]; to make room for it the last one is
    left out (released code).
    Deviates: the convolutions begin as the other matrices do; the released code leaves them to
    TensorFlow's default.
    """

    def __init__(self, a: CanineArchitecture) -> None:
        super().__init__()
        self.conv = nn.Conv1d(a.d_model, a.d_model, a.rate, stride=a.rate)
        self.activation = ACTIVATIONS[a.activation]
        self.norm = a.norm.build(a.d_model)

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b m d"]:
        """Make t // rate molecules."""
        molecules = self.activation(self.conv(x.mT).mT)
        return self.norm(torch.cat((x[:, :1], molecules[:, :-1]), 1))


class Up(nn.Module):
    """Characters and molecules -> characters.

    Each character is put beside its molecule, and a convolution reads some neighbors.
    """

    def __init__(self, a: CanineArchitecture) -> None:
        super().__init__()
        self.rate, self.kernel = a.rate, a.kernel
        self.conv = nn.Conv1d(2 * a.d_model, a.d_model, a.kernel)
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
    the last molecule, and the last characters' convolution, read into it. `roomy` gives every text
    as much of it as makes a difference.
    """

    def __init__(self, a: CanineArchitecture) -> None:
        super().__init__()
        self.a = a
        self.tokens = HashEmbedding(a.n_hashes, a.n_buckets, a.d_model)
        self.position: PositionModule = a.position.build(a)
        self.segments = nn.Embedding(a.n_segments, a.d_model) if a.n_segments else None
        self.embed_norm = a.norm.build(a.d_model) if a.norm_embedding else nn.Identity()
        self.dropout = Dropout(a.dropout)
        self.first = Block(a, Place(), None)
        self.first.attention = LocalAttention(a, Place())
        self.down = Down(a)
        self.layers = nn.ModuleList(Block(a, Place(), None) for _ in range(a.n_layers))
        self.up = Up(a)
        self.last = Block(a, Place(), None)
        self.final_dropout = Dropout(a.final_dropout)

    @property
    def width(self) -> int:
        """Width of the hidden states."""
        return self.a.d_model

    @property
    def table(self) -> HashEmbedding:
        """The tables of characters' vectors."""
        return self.tokens

    @property
    def narrows(self) -> bool:
        """It can make `batch.only`: section 3.2.3, "Targeted upsampling"."""
        return True

    def new_cache(self, back: int = 0) -> Cache:
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
        _check(batch, cache)
        t = batch.inputs.shape[1]
        batch = _longer(batch, max(self.a.rate - t, 0))
        there = _there(batch)
        x = self.first(self.embed(batch), self._readable(batch, there), *_ALONE)
        molecules = self.down(x)
        sight = self._sight(there, molecules.shape[1], self.a.rate)
        for layer in self.layers:
            molecules = layer(molecules, None, sight, *_ALONE[1:])
        summary = molecules[:, :1]
        if batch.summary and batch.only is not None:
            return summary
        sight = self._sight(there, x.shape[1], 1)
        x = self.last(self.up(x, molecules), None, sight, *_ALONE[1:], batch.only)
        x = self.final_dropout(x)
        if batch.only is not None:
            return x
        return torch.cat((summary, x[:, :t]), 1) if batch.summary else x[:, :t]

    def roomy(self, batch: Batch) -> Batch:
        """Put so much padding behind all texts that none depends on how long the others are.

        Whole blocks, the last of which reaches past the molecule that holds the first character
        after the longest text and the one after that; but no more than there are places.
        """
        t, w = batch.inputs.shape[1], self.a.block
        least = t + 2 * self.a.rate + self.a.kernel
        most = getattr(self.a.position, "length", least)
        return _longer(batch, max(min(-(-least // w) * w, most) - t, 0))

    def _readable(self, batch: Batch, there: Tensor | None) -> Float[Tensor, "b n 1 w"]:
        """Say which characters of its block each one reads, as numbers added to the scores.

        A block of padding alone reads itself, evenly: the lowest number swallows every score.
        """
        (b, t), w = batch.inputs.shape, self.a.block
        n, dtype = -(-t // w), self.tokens.weight.dtype
        if there is None:
            numbers = torch.zeros(1, t, dtype=dtype, device=batch.inputs.device).expand(b, -1)
        else:
            numbers = torch.zeros(there.shape, dtype=dtype, device=there.device)
            numbers = numbers.masked_fill(~there, torch.finfo(dtype).min)
        numbers = F.pad(numbers, (0, n * w - t), value=-torch.inf)
        return numbers.unflatten(1, (n, w))[:, :, None]

    def _sight(self, there: Tensor | None, places: int, rate: int) -> Sight:
        """Let every place see those that hold something of the text."""
        if there is None:
            return Sight()
        seen: Bool[Tensor, "b s"] = there[:, : places * rate].unflatten(1, (places, rate)).any(-1)
        return Sight(seen[:, None, None].expand(-1, -1, places, -1))


_ALONE = (Sight(), None, Sight(), None, 0)
"""What a block is told of masks, an encoder and a cache where there are none."""


def _check(batch: Batch, cache: Cache | None) -> None:
    if cache is not None or batch.visibility.causal or batch.visibility.rank is not None:
        raise ValueError("CANINE reads all of a text at once, in no order")
    if batch.place is not None or batch.parts is not None:
        raise ValueError("CANINE reads one text a row: rows cannot be packed or in parts")
    if batch.all_layers:
        raise ValueError("CANINE's layers stand for different places, and cannot be side by side")


def _there(batch: Batch) -> Bool[Tensor, "b t"] | None:
    """Say which characters are of the text; None: all."""
    document = batch.visibility.document
    return None if document is None else document >= 0


def _longer(batch: Batch, n: int) -> Batch:
    """Put `n` columns of padding behind a batch's rows; nothing is asked there."""
    if n == 0:
        return batch
    (rows, t), inputs = batch.inputs.shape, batch.inputs
    document, asked, labels = batch.visibility.document, batch.asked, batch.labels
    if document is None:
        document = torch.zeros_like(inputs)
    if batch.targets is not None:
        asked = torch.arange(rows * t, device=inputs.device) if asked is None else asked
        asked = asked + asked // t * n
    if labels is not None and labels.shape == inputs.shape and not labels.is_floating_point():
        labels = F.pad(labels, (0, n), value=IGNORE)
    return replace(
        batch,
        inputs=F.pad(inputs, (0, n), value=PAD),
        visibility=replace(batch.visibility, document=F.pad(document, (0, n), value=-1)),
        targets=None if batch.targets is None else F.pad(batch.targets, (0, n), value=IGNORE),
        asked=asked,
        turn=None if batch.turn is None else F.pad(batch.turn, (0, n)),
        segments=None if batch.segments is None else F.pad(batch.segments, (0, n)),
        ahead=None if batch.ahead is None else F.pad(batch.ahead, (0, n)),
        last=torch.full_like(inputs[:, 0], t - 1) if batch.last is None else batch.last,
        labels=labels,
    )
