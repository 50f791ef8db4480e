"""The Transformer from its parts: Block, Transformer, EncoderDecoder."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.batch import Batch, Visibility
from unmask.model.adaptive import AdaptiveEmbedding
from unmask.model.architecture import INSIDE, Architecture, EncoderDecoderArchitecture
from unmask.model.attention import Attention, Sight
from unmask.model.cache import Cache
from unmask.model.decoder import Asker
from unmask.model.evolved_layers import layer_of
from unmask.model.mix import Mix, as_it_is
from unmask.model.norms import Norms
from unmask.model.parts import Dropout, FeedForward
from unmask.model.positions import BucketBiasModule, Place, PositionModule


class Block(nn.Module):
    """Attention, in a decoder that has an encoder cross-attention, and a feed-forward layer."""

    def __init__(self, a: Architecture, place: Place, first: "Block | None") -> None:
        super().__init__()
        if first is not None and "attention" in a.shared:
            self.attention, self.attention_norm = first.attention, first.attention_norm
        else:
            wide = a.global_attention
            self.attention, self.attention_norm = Attention(a, place, wide=wide), Norms(a)
        self.cross = Attention(a, Place()) if a.cross else None
        self.cross_norm = Norms(a) if a.cross else None
        if first is not None and "feed_forward" in a.shared:
            self.feed_forward, self.feed_forward_norm = first.feed_forward, first.feed_forward_norm
        else:
            self.feed_forward = FeedForward(
                a.d_model,
                a.d_ff,
                activation=a.activation,
                gated=a.gated,
                bias="feed_forward" in a.bias,
                dropout=a.feed_forward_dropout,
                inside=a.norm.build(a.d_ff) if a.norm_at & INSIDE else None,
            )
            one = a.parallel == "one_norm"
            self.feed_forward_norm = self.attention_norm if one else Norms(a)
        self.parallel = a.parallel is not None

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        geometry: Any,
        sight: Sight,
        memory: Float[Tensor, "b s d"] | None,
        memory_sight: Sight,
        cache: Cache | None,
        i: int,
        only: Int[Tensor, "b"] | None = None,
        asking: Float[Tensor, "b t d"] | None = None,
        again: bool = False,
        behind: Float[Tensor, "b m d"] | None = None,
        mixed: Callable[[Tensor], Tensor] = as_it_is,
    ) -> Float[Tensor, "b n d"]:
        """Read and write the residual stream once a sublayer; with `only`, in one column a row.

        What leaves a sublayer is `mixed` with what was before.

        With `asking`, that is the stream, and x is what it reads; or what the cache holds of x, if
        it was read before and this is `again`. What stands `behind` x is read with it.
        """
        own = None if cache is None else cache.layers[i]
        asks = x if asking is None else asking
        if asking is not None:
            context = None if again else self.attention_norm.into(_joined(behind, x))
            x = self.attention_norm(
                asks, lambda y: self.attention(y, context, geometry, sight, own)
            )
        elif behind is not None:
            context = self.attention_norm.into(_joined(behind, x))
            x = self.attention_norm(x, lambda y: self.attention(y, context, geometry, sight, own))
        elif only is None:
            x = self.attention_norm(x, lambda y: self.attention(y, y, geometry, sight, own))
        else:
            sight, context = sight.only(only, x.shape[1]), self.attention_norm.into(x)
            asks = x[torch.arange(len(x), device=x.device), only][:, None]
            x = self.attention_norm(asks, lambda y: self.attention(y, context, None, sight))
        x = mixed(x)
        if self.cross is not None and self.cross_norm is not None:
            other = None if cache is None else cache.cross[i]
            context = None if other is not None and other.length else memory
            cross = self.cross
            x = self.cross_norm(x, lambda y: cross(y, context, None, memory_sight, other))
        return mixed(self.feed_forward_norm(x, self.feed_forward, asks if self.parallel else x))


def table_of(a: Architecture) -> nn.Embedding | AdaptiveEmbedding:
    """Build what gives tokens their vectors."""
    if a.adaptive is not None:
        return a.adaptive.build(a.vocab_size, a)
    return nn.Embedding(a.vocab_size, a.d_embed)


def _joined(behind: Tensor | None, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b s d"]:
    return x if behind is None else torch.cat((behind, x), 1)


class Transformer(nn.Module):
    """Token ids [b t] -> hidden states [b t d].

    Encoder, decoder, or one half of an encoder-decoder.
    """

    def __init__(
        self, a: Architecture, tokens: nn.Embedding | AdaptiveEmbedding | None = None
    ) -> None:
        super().__init__()
        self.a = a
        self.tokens = table_of(a) if tokens is None else tokens
        self.scale = a.d_embed**0.5 if a.tokens_scaled else 1.0
        self.position: PositionModule = a.position.build(a)
        self.segments = nn.Embedding(a.n_segments, a.d_embed) if a.n_segments else None
        self.embed_norm = a.norm.build(a.d_embed) if a.norm_embedding else nn.Identity()
        self.widen = nn.Identity() if a.embed_width is None else nn.Linear(a.d_embed, a.d_model)
        self.convolution = None if a.convolution is None else a.convolution.build(a)
        self.layers = nn.ModuleList()
        for i in range(a.n_layers):
            first = cast(Block, self.layers[0]) if i else None
            part, place = a.kind(i), self.position.layer(i)
            self.layers.append(Block(a, place, first) if part is None else layer_of(part, a, place))
        self.mix = Mix(2 * a.n_layers) if a.mixed else None
        self.final_norm = a.norm.build(a.d_model) if a.norm_final else nn.Identity()
        self.dropout = Dropout(a.dropout)
        self.final_dropout = Dropout(a.final_dropout)

    @property
    def width(self) -> int:
        """Width of the hidden states."""
        return self.a.d_model

    @property
    def table(self) -> nn.Embedding | AdaptiveEmbedding:
        """The table of token vectors, which a head may be tied to."""
        return self.tokens

    @property
    def narrows(self) -> bool:
        """Whether it can make `batch.only`: no bias of the scores nor sum to cut a row out of."""
        plain = self.mix is None and isinstance(self.layers[-1], Block)
        return plain and type(self.position).geometry is PositionModule.geometry

    def roomy(self, batch: Batch) -> Batch:
        """Return the batch as it is: no text depends on the padding behind it."""
        return batch

    def new_cache(self, back: int = 0) -> Cache:
        """Make an empty cache, of which the last `back` tokens may be taken back.

        A layer with a window keeps no more than that, unless its scores depend on the places of all
        pairs.
        """
        reach = [self.a.reach(i) for i in range(self.a.n_layers)]
        spans = [None if w is None or self.position.pairs else w * d for w, d in reach]
        parts = [self.a.kind(i) for i in range(self.a.n_layers)]
        return Cache(spans, back, [() if part is None else part.reaches for part in parts])

    def flops(self, length: int) -> float:
        """Count the forward's FLOPs a token in texts of `length` tokens, heads apart."""
        return self.a.flops(length)

    def vectors(self, batch: Batch) -> Float[Tensor, "b t _"]:
        """Return the vectors of tokens, wherever they stand."""
        x = self.tokens(batch.inputs)
        return x if self.scale == 1 else x * self.scale

    def embed(self, batch: Batch, past: int = 0) -> Float[Tensor, "b t _"]:
        """Sum the vectors of tokens, places and segments; not yet widened."""
        x = self.vectors(batch)
        if (where := self.position.embed(places(batch, past))) is not None:
            x = x + where.to(x.dtype)
        if self.segments is not None:
            part = batch.segments
            if part is None or self.a.n_segments == 1:
                part = torch.zeros_like(batch.inputs[:1, :1])
            x = x + self.segments(part)
        return self.dropout(self.embed_norm(x))

    def forward(
        self,
        batch: Batch,
        cache: Cache | None = None,
        memory: Float[Tensor, "b s d"] | None = None,
        memory_visibility: Visibility | None = None,
        decoder: Asker | None = None,
    ) -> Float[Tensor, "b n _"]:
        """Run the stack over a batch; with a cache, over tokens that follow those already read.

        With a decoder, it is that which the upper layers answer.

        Raises:
            ValueError: a stack with a convolution, whose tokens read what follows them, is given
                text that follows; or one whose sublayers are mixed a decoder; or a memory is given
                to one that cannot place it.
        """
        past, prefix = (0, 0) if cache is None else (cache.length, cache.prefix)
        recalled = batch.memory
        m = 0 if recalled is None else len(recalled)
        self._check(batch, past > prefix, decoder)
        x = self.widen(self.embed(batch, past))
        mixed = as_it_is if self.mix is None else self.mix.begin(x)
        queries, keys = x.shape[1], past + m + x.shape[1]
        visibility = batch.visibility.behind(m)
        sights = self._sights(visibility, queries, keys, prefix, batch)
        geometry = self.position.geometry(x, keys, batch)
        memory_sight = Sight()
        if memory_visibility is not None:
            memory_sight = Sight(across(visibility, memory_visibility, queries))
        below: list[Tensor] = []
        asking: Tensor | None = None
        strict = Sight.strict(visibility, queries, keys) if decoder and decoder.strict else None
        for i, layer in enumerate(self.layers):
            if batch.all_layers:
                below.append(self.final_norm.forward(x))  # not a call: hooks are for the last one
            last = i == len(self.layers) - 1
            if self._left_out(last and (decoder is not None or batch.only is not None)):
                continue
            if not isinstance(layer, Block):
                sight = sights[self.a.reach(i)]
                x = layer(x, geometry, sight, visibility, memory, memory_sight, cache, i)
                continue
            read = partial(
                layer,
                x,
                geometry,
                memory=memory,
                memory_sight=memory_sight,
                cache=cache,
                i=i,
                behind=None if recalled is None else recalled.exchange(i, x, batch.kept),
            )
            sight = sights[self.a.reach(i)]
            if decoder is not None and (decoder.strict or last):
                asking = decoder(x, places(batch, past)) if asking is None else asking
                for time in range(decoder.times):
                    again = time > 0 and cache is not None
                    asking = read(sight=strict or sight, asking=asking, again=again)
                if last:
                    x = asking
                    break
            before, x = x, read(sight=sight, only=batch.only if last else None, mixed=mixed)
            if self.convolution is not None and i == 0:
                x = self.convolution(before, x, visibility)
        x = self.final_norm(x)
        return self.final_dropout(torch.cat((*below, x), -1) if below else x)

    def _left_out(self, needed: bool) -> bool:
        """Draw whether a layer is left out: not where another reads what it alone can give."""
        rate = self.a.layer_dropout if self.training else 0.0
        return rate > 0 and bool(torch.rand(()) < rate) and not needed

    def _check(self, batch: Batch, goes_on: bool, decoder: Asker | None) -> None:
        if self.convolution is not None and goes_on:
            raise ValueError("a model with a convolution reads a text at once, not piece by piece")
        if self.mix is not None and decoder is not None:
            raise ValueError("where sublayers are mixed, no last layer can be asked again")
        if any(self.a.kinds) and (decoder is not None or batch.memory is not None):
            raise ValueError("layers with convolutions are not asked again, and have no memory")
        if batch.memory is not None:
            self.check_recalls()

    def _sights(
        self,
        visibility: Visibility,
        queries: int,
        keys: int,
        prefix: int,
        batch: Batch,
    ) -> dict[tuple[int | None, int], Sight]:
        """Return what is seen within each window and dilation of the layers."""
        see = partial(
            Sight.of,
            visibility,
            queries,
            keys,
            prefix=prefix,
            wide=batch.wide if self.a.global_attention else None,
            before=batch.before,
            far=self.position.pairs,
            device=batch.inputs.device,
        )
        reach = {self.a.reach(i) for i in range(len(self.layers))}
        return {(w, d): see(window=w, dilation=d) for w, d in reach}

    def check_recalls(self) -> None:
        """Check that the stack can read a memory: what it knows of places are distances.

        Raises:
            ValueError: it cannot.
        """
        if not self.position.recalls or self.convolution is not None or self.a.global_attention:
            raise ValueError(
                f"{type(self.a.position).__name__} places cannot be counted through a memory of "
                "what was read before: it needs distances, as those of Relative"
            )


class Translated(Transformer):
    """An encoder that is given, in place of vectors of tokens, what another one says of a source.

    That one has a vocabulary, places and layers of its own (Lewis et al. 2020, arXiv:1910.13461,
    section 3.4); the places of this one are added to what it says.
    """

    def __init__(
        self, a: Architecture, tokens: nn.Embedding | AdaptiveEmbedding, source: Architecture
    ) -> None:
        super().__init__(a, tokens)
        self.source = Transformer(source)

    def flops(self, length: int) -> float:
        """Count the forward's FLOPs a token, those of the encoder of the source included."""
        return super().flops(length) + self.source.flops(length)

    def vectors(self, batch: Batch) -> Float[Tensor, "b t _"]:
        """Return what the encoder of the source says; the batch has the source's own ids."""
        return self.source(Batch(inputs=batch.inputs, visibility=batch.visibility))


def places(batch: Batch, past: int = 0) -> Int[Tensor, "_ t"]:
    """Return where each token stands in its text: as the batch says, or its column."""
    if batch.place is not None:
        return batch.place
    end = past + batch.inputs.shape[1]
    return torch.arange(past, end, device=batch.inputs.device)[None]


def across(asking: Visibility, answering: Visibility, queries: int) -> Tensor | None:
    """Say which encoder tokens each of the last `queries` decoder tokens sees [b 1 t s].

    Those of its own document. Padding that asks may see everything: nobody listens to its answer,
    and a softmax over nothing is not a number.
    """
    if answering.document is None:
        return None
    there: Int[Tensor, "b 1 s"] = answering.document[:, None, :]
    if asking.document is None:
        return (there == 0)[:, None].expand(-1, 1, queries, -1)
    here = asking.document[:, -queries:, None]
    return ((here == there) | (here < 0))[:, None]


def _share(encoder: Transformer, decoder: Transformer) -> None:
    """Let a decoder have the modules of an encoder, but what reads the encoder."""
    own_places, places = decoder.position, encoder.position
    if isinstance(own_places, BucketBiasModule) and isinstance(places, BucketBiasModule):
        own_places.table = places.table  # distances may be in other buckets
    else:
        decoder.position = places
    for part in ("embed_norm", "widen", "final_norm", "segments", "convolution", "mix"):
        setattr(decoder, part, getattr(encoder, part))
    for own, other in zip(decoder.layers, encoder.layers, strict=True):
        for part in ("attention", "attention_norm", "feed_forward", "feed_forward_norm"):
            setattr(own, part, getattr(other, part))


class EncoderDecoder(nn.Module):
    """Source and token ids -> hidden states of the decoder [b t d].

    The two stacks share the table of tokens, unless the source has an encoder of its own.
    """

    def __init__(self, a: EncoderDecoderArchitecture) -> None:
        super().__init__()
        self.a = a
        self.tokens = nn.Embedding(a.vocab_size, a.encoder.d_embed)
        self.encoder = (
            Transformer(a.encoder, self.tokens)
            if a.source is None
            else Translated(a.encoder, self.tokens, a.source)
        )
        self.decoder = Transformer(a.decoder, self.tokens)
        if a.shared:
            _share(self.encoder, self.decoder)

    @property
    def width(self) -> int:
        """Width of the hidden states."""
        return self.a.d_model

    @property
    def table(self) -> nn.Embedding:
        """The table of token vectors, which a head may be tied to."""
        return self.tokens

    @property
    def narrows(self) -> bool:
        """It cannot make `batch.only`."""
        return False

    def roomy(self, batch: Batch) -> Batch:
        """Return the batch as it is: no text depends on the padding behind it."""
        return batch

    def new_cache(self, back: int = 0) -> Cache:
        """Make an empty cache for the decoder, of which `back` tokens may be taken back."""
        return self.decoder.new_cache(back)

    def flops(self, length: int) -> float:
        """Count the forward's FLOPs a token in texts of `length` tokens, heads apart.

        The mean of the two stacks.
        """
        return (self.encoder.flops(length) + self.decoder.flops(length)) / 2

    def encode(self, batch: Batch) -> Float[Tensor, "b s d"]:
        """Run the encoder over the batch's source."""
        if batch.source is None:
            raise ValueError("an encoder-decoder needs a batch with a source")
        return self.encoder(Batch(inputs=batch.source, visibility=batch.source_visibility))

    def forward(
        self, batch: Batch, cache: Cache | None = None, memory: Tensor | None = None
    ) -> Float[Tensor, "b t d"]:
        """Run the decoder over the batch.

        `memory` is what `encode` gave, where the caller has it already.
        """
        if memory is None and (cache is None or cache.length == 0):
            memory = self.encode(batch)
        return self.decoder(batch, cache, memory, batch.source_visibility)
