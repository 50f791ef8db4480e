"""The Transformer from its parts: Block, Transformer, EncoderDecoder."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.batch import Batch, Visibility
from unmask.model.architecture import (
    FEED_FORWARD_INNER_SLOTS,
    Architecture,
    EncoderDecoderArchitecture,
)
from unmask.model.backbones.evolved_layers import build_layer
from unmask.model.cache import Cache
from unmask.model.layers.attention.attention import Attention, AttentionMask
from unmask.model.layers.attention.query_stream import QueryStream
from unmask.model.layers.depth_weighted_average import DepthWeightedAverage, identity
from unmask.model.layers.embeddings.adaptive import AdaptiveEmbedding
from unmask.model.layers.feed_forward import Dropout, FeedForward
from unmask.model.layers.sublayer_connection import SublayerConnection
from unmask.model.positions.scheme import PositionLayer, PositionModule, RelativePositionBiasModule


class Block(nn.Module):
    """Attention, in a decoder that has an encoder cross-attention, and a feed-forward layer."""

    def __init__(self, a: Architecture, position_layer: PositionLayer, first_block: "Block | None") -> None:
        super().__init__()
        if first_block is not None and "attention" in a.shared_sublayers:
            self.attention, self.attention_norm = first_block.attention, first_block.attention_norm
        else:
            wide = a.global_attention
            self.attention, self.attention_norm = Attention(a, position_layer, global_attention=wide), SublayerConnection(a)
        self.cross = Attention(a, PositionLayer()) if a.cross_attention else None
        self.cross_norm = SublayerConnection(a) if a.cross_attention else None
        if first_block is not None and "feed_forward" in a.shared_sublayers:
            self.feed_forward, self.feed_forward_norm = first_block.feed_forward, first_block.feed_forward_norm
        else:
            self.feed_forward = FeedForward(
                a.d_model,
                a.d_ff,
                activation=a.activation,
                gated=a.gated_feed_forward,
                bias="feed_forward" in a.biases,
                dropout=a.activation_dropout,
                inner_norm=a.norm.build(a.d_ff) if a.norm_placement & FEED_FORWARD_INNER_SLOTS else None,
            )
            one = a.parallel_sublayers == "one_norm"
            self.feed_forward_norm = self.attention_norm if one else SublayerConnection(a)
        self.parallel = a.parallel_sublayers is not None

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        position_state: Any,
        attention_mask: AttentionMask,
        encoder_hidden_states: Float[Tensor, "b s d"] | None,
        encoder_attention_mask: AttentionMask,
        cache: Cache | None,
        layer_index: int,
        selected_column: Int[Tensor, "b"] | None = None,
        query_stream: Float[Tensor, "b t d"] | None = None,
        reuse_cache: bool = False,
        memory: Float[Tensor, "b m d"] | None = None,
        average_depth: Callable[[Tensor], Tensor] = identity,
    ) -> Float[Tensor, "b n d"]:
        """Read and write the residual stream once a sublayer; with `selected_column`, in one column a row.

        What leaves a sublayer is `average_depth` with what was before.

        With `query_stream`, that is the stream, and x is what it reads; or what the cache holds of x, if
        it was read before and this is `reuse_cache`. What stands `encoder_hidden_states` x is read with it.
        """
        own = None if cache is None else cache.layers[layer_index]
        asks = x if query_stream is None else query_stream
        if query_stream is not None:
            context = None if reuse_cache else self.attention_norm.into(_prepend_memory(memory, x))
            x = self.attention_norm(
                asks, lambda y: self.attention(y, context, position_state, attention_mask, own)
            )
        elif memory is not None:
            context = self.attention_norm.into(_prepend_memory(memory, x))
            x = self.attention_norm(x, lambda y: self.attention(y, context, position_state, attention_mask, own))
        elif selected_column is None:
            x = self.attention_norm(x, lambda y: self.attention(y, y, position_state, attention_mask, own))
        else:
            attention_mask, context = attention_mask.for_columns(selected_column, x.shape[1]), self.attention_norm.into(x)
            asks = x[torch.arange(len(x), device=x.device), selected_column][:, None]
            x = self.attention_norm(asks, lambda y: self.attention(y, context, None, attention_mask))
        x = average_depth(x)
        if self.cross is not None and self.cross_norm is not None:
            other = None if cache is None else cache.cross_attention[layer_index]
            context = None if other is not None and other.length else encoder_hidden_states
            cross = self.cross
            x = self.cross_norm(x, lambda y: cross(y, context, None, encoder_attention_mask, other))
        return average_depth(self.feed_forward_norm(x, self.feed_forward, asks if self.parallel else x))


def build_embedding_table(a: Architecture) -> nn.Embedding | AdaptiveEmbedding:
    """Build what gives tokens their vectors."""
    if a.adaptive_input is not None:
        return a.adaptive_input.build(a.vocab_size, a)
    return nn.Embedding(a.vocab_size, a.d_embed)


def _prepend_memory(memory: Tensor | None, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b s d"]:
    return x if memory is None else torch.cat((memory, x), 1)


class Transformer(nn.Module):
    """Token ids [b t] -> hidden states [b t d].

    Encoder, decoder, or one half of an encoder-decoder.
    """

    def __init__(
        self, a: Architecture, tokens: nn.Embedding | AdaptiveEmbedding | None = None
    ) -> None:
        super().__init__()
        self.a = a
        self.tokens = build_embedding_table(a) if tokens is None else tokens
        self.scale = a.d_embed**0.5 if a.scale_embedding else 1.0
        self.position: PositionModule = a.position.build(a)
        self.segments = nn.Embedding(a.n_segments, a.d_embed) if a.n_segments else None
        self.embed_norm = a.norm.build(a.d_embed) if a.embedding_norm else nn.Identity()
        self.widen = nn.Identity() if a.embedding_size is None else nn.Linear(a.d_embed, a.d_model)
        self.convolution = None if a.ngram_input_encoding is None else a.ngram_input_encoding.build(a)
        self.layers = nn.ModuleList()
        for i in range(a.n_layers):
            first = cast(Block, self.layers[0]) if i else None
            part, place = a.layer_type(i), self.position.for_layer(i)
            self.layers.append(Block(a, place, first) if part is None else build_layer(part, a, place))
        self.mix = DepthWeightedAverage(2 * a.n_layers) if a.depth_weighted_average else None
        self.final_norm = a.norm.build(a.d_model) if a.final_norm else nn.Identity()
        self.dropout = Dropout(a.dropout)
        self.final_dropout = Dropout(a.final_dropout)

    @property
    def width(self) -> int:
        """Width of the hidden states."""
        return self.a.d_model

    @property
    def embedding_table(self) -> nn.Embedding | AdaptiveEmbedding:
        """The table of token vectors, which a head may be tied to."""
        return self.tokens

    @property
    def supports_last_only(self) -> bool:
        """Whether it can make `batch.only`: no bias of the scores nor sum to cut a row out of."""
        plain = self.mix is None and isinstance(self.layers[-1], Block)
        return plain and type(self.position).position_state is PositionModule.position_state

    def pad_for_network(self, batch: Batch) -> Batch:
        """Return the batch as it is: no text depends on the padding behind it."""
        return batch

    def new_cache(self, max_rollback: int = 0) -> Cache:
        """Make an empty cache, of which the last `max_rollback` tokens may be taken back.

        A layer with a window keeps no more than that, unless its scores depend on the places of all
        pairs.
        """
        reach = [self.a.window_and_dilation(i) for i in range(self.a.n_layers)]
        spans = [None if w is None or self.position.needs_all_keys else w * d for w, d in reach]
        parts = [self.a.layer_type(i) for i in range(self.a.n_layers)]
        return Cache(spans, max_rollback, [() if part is None else part.cache_spans for part in parts])

    def flops(self, length: int) -> float:
        """Count the forward's FLOPs a token in texts of `length` tokens, heads apart."""
        return self.a.flops(length)

    def token_embeddings(self, batch: Batch) -> Float[Tensor, "b t _"]:
        """Return the vectors of tokens, wherever they stand."""
        x = self.tokens(batch.inputs)
        return x if self.scale == 1 else x * self.scale

    def embed(self, batch: Batch, n_past: int = 0) -> Float[Tensor, "b t _"]:
        """Sum the vectors of tokens, places and segments; not yet widened."""
        x = self.token_embeddings(batch)
        if (where := self.position.embed(position_ids(batch, n_past))) is not None:
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
        encoder_hidden_states: Float[Tensor, "b s d"] | None = None,
        encoder_visibility: Visibility | None = None,
        query_stream: QueryStream | None = None,
    ) -> Float[Tensor, "b n _"]:
        """Run the stack over a batch; with a cache, over tokens that follow those already read.

        With a decoder, it is that which the upper layers answer.

        Raises:
            ValueError: a stack with a convolution, whose tokens read what follows them, is given
                text that follows; or one whose sublayers are mixed a decoder; or a memory is given
                to one that cannot place it.
        """
        past, prefix = (0, 0) if cache is None else (cache.length, cache.prefix_length)
        recalled = batch.memory
        m = 0 if recalled is None else len(recalled)
        self._check(batch, past > prefix, query_stream)
        x = self.widen(self.embed(batch, past))
        mixed = identity if self.mix is None else self.mix.start(x)
        queries, keys = x.shape[1], past + m + x.shape[1]
        visibility = batch.visibility.with_prefix(m)
        sights = self._attention_masks(visibility, queries, keys, prefix, batch)
        geometry = self.position.position_state(x, keys, batch)
        memory_sight = AttentionMask()
        if encoder_visibility is not None:
            memory_sight = AttentionMask(cross_attention_mask(visibility, encoder_visibility, queries))
        below: list[Tensor] = []
        asking: Tensor | None = None
        strict = AttentionMask.excluding_self(visibility, queries, keys) if query_stream and query_stream.excludes_self else None
        for i, layer in enumerate(self.layers):
            if batch.all_layers:
                below.append(self.final_norm.forward(x))  # not a call: hooks are for the last one
            last = i == len(self.layers) - 1
            if self._draw_layer_dropout(last and (query_stream is not None or batch.selected_column is not None)):
                continue
            if not isinstance(layer, Block):
                sight = sights[self.a.window_and_dilation(i)]
                x = layer(x, geometry, sight, visibility, encoder_hidden_states, memory_sight, cache, i)
                continue
            read = partial(
                layer,
                x,
                geometry,
                encoder_hidden_states=encoder_hidden_states,
                encoder_attention_mask=memory_sight,
                cache=cache,
                layer_index=i,
                memory=None if recalled is None else recalled.update(i, x, batch.reuse_len),
            )
            sight = sights[self.a.window_and_dilation(i)]
            if query_stream is not None and (query_stream.excludes_self or last):
                asking = query_stream(x, position_ids(batch, past)) if asking is None else asking
                for time in range(query_stream.n_passes):
                    again = time > 0 and cache is not None
                    asking = read(attention_mask=strict or sight, query_stream=asking, reuse_cache=again)
                if last:
                    x = asking
                    break
            before, x = x, read(attention_mask=sight, selected_column=batch.selected_column if last else None, average_depth=mixed)
            if self.convolution is not None and i == 0:
                x = self.convolution(before, x, visibility)
        x = self.final_norm(x)
        return self.final_dropout(torch.cat((*below, x), -1) if below else x)

    def _draw_layer_dropout(self, needed: bool) -> bool:
        """Draw whether a layer is left out: not where another reads what it alone can give."""
        rate = self.a.layer_dropout if self.training else 0.0
        return rate > 0 and bool(torch.rand(()) < rate) and not needed

    def _check(self, batch: Batch, continues: bool, query_stream: QueryStream | None) -> None:
        if self.convolution is not None and continues:
            raise ValueError("a model with a convolution reads a text at once, not piece by piece")
        if self.mix is not None and query_stream is not None:
            raise ValueError("where sublayers are mixed, no last layer can be asked again")
        if any(self.a.layer_types) and (query_stream is not None or batch.memory is not None):
            raise ValueError("layers with convolutions are not asked again, and have no memory")
        if batch.memory is not None:
            self.check_supports_memory()

    def _attention_masks(
        self,
        visibility: Visibility,
        n_queries: int,
        n_keys: int,
        prefix: int,
        batch: Batch,
    ) -> dict[tuple[int | None, int], AttentionMask]:
        """Return what is seen within each window and dilation of the layers."""
        see = partial(
            AttentionMask.from_visibility,
            visibility,
            n_queries,
            n_keys,
            prefix=prefix,
            global_positions=batch.global_positions if self.a.global_attention else None,
            always_visible_columns=batch.virtual_token_positions,
            keep_all_keys=self.position.needs_all_keys,
            device=batch.inputs.device,
        )
        reach = {self.a.window_and_dilation(i) for i in range(len(self.layers))}
        return {(w, d): see(window=w, dilation=d) for w, d in reach}

    def check_supports_memory(self) -> None:
        """Check that the stack can read a memory: what it knows of places are distances.

        Raises:
            ValueError: it cannot.
        """
        if not self.position.supports_memory or self.convolution is not None or self.a.global_attention:
            raise ValueError(
                f"{type(self.a.position).__name__} places cannot be counted through a memory of "
                "what was read before: it needs distances, as those of Relative"
            )


class SourceEncodedTransformer(Transformer):
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

    def token_embeddings(self, batch: Batch) -> Float[Tensor, "b t _"]:
        """Return what the encoder of the source says; the batch has the source's own ids."""
        return self.source(Batch(inputs=batch.inputs, visibility=batch.visibility))


def position_ids(batch: Batch, n_past: int = 0) -> Int[Tensor, "_ t"]:
    """Return where each token stands in its text: as the batch says, or its column."""
    if batch.position_ids is not None:
        return batch.position_ids
    end = n_past + batch.inputs.shape[1]
    return torch.arange(n_past, end, device=batch.inputs.device)[None]


def cross_attention_mask(decoder_visibility: Visibility, encoder_visibility: Visibility, n_queries: int) -> Tensor | None:
    """Say which encoder tokens each of the last `n_queries` decoder tokens sees [b 1 t s].

    Those of its own document. Padding that asks may see everything: nobody listens to its answer,
    and a softmax over nothing is not a number.
    """
    if encoder_visibility.document is None:
        return None
    there: Int[Tensor, "b 1 s"] = encoder_visibility.document[:, None, :]
    if decoder_visibility.document is None:
        return (there == 0)[:, None].expand(-1, 1, n_queries, -1)
    here = decoder_visibility.document[:, -n_queries:, None]
    return ((here == there) | (here < 0))[:, None]


def _tie_encoder_decoder(encoder: Transformer, decoder: Transformer) -> None:
    """Let a decoder have the modules of an encoder, but what reads the encoder."""
    own_places, places = decoder.position, encoder.position
    if isinstance(own_places, RelativePositionBiasModule) and isinstance(places, RelativePositionBiasModule):
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
            if a.source_encoder is None
            else SourceEncodedTransformer(a.encoder, self.tokens, a.source_encoder)
        )
        self.decoder = Transformer(a.decoder, self.tokens)
        if a.tie_encoder_decoder:
            _tie_encoder_decoder(self.encoder, self.decoder)

    @property
    def width(self) -> int:
        """Width of the hidden states."""
        return self.a.d_model

    @property
    def embedding_table(self) -> nn.Embedding:
        """The table of token vectors, which a head may be tied to."""
        return self.tokens

    @property
    def supports_last_only(self) -> bool:
        """It cannot make `batch.only`."""
        return False

    def pad_for_network(self, batch: Batch) -> Batch:
        """Return the batch as it is: no text depends on the padding behind it."""
        return batch

    def new_cache(self, max_rollback: int = 0) -> Cache:
        """Make an empty cache for the decoder, of which `max_rollback` tokens may be taken back."""
        return self.decoder.new_cache(max_rollback)

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
        self, batch: Batch, cache: Cache | None = None, encoder_hidden_states: Tensor | None = None
    ) -> Float[Tensor, "b t d"]:
        """Run the decoder over the batch.

        `encoder_hidden_states` is what `encode` gave, where the caller has it already.
        """
        if encoder_hidden_states is None and (cache is None or cache.length == 0):
            encoder_hidden_states = self.encode(batch)
        return self.decoder(batch, cache, encoder_hidden_states, batch.source_visibility)
