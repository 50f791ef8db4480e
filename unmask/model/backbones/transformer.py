"""The Transformer: Block, Architecture, and the stack that it builds."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.batch import Batch, Visibility
from unmask.batching.prefix_tree import PrefixTree
from unmask.model.architecture import (
    FEED_FORWARD_INNER_SLOTS,
    NO_LAYER_RECORDS,
    NOT_ONE_STACK,
    Ability,
    require_support,
)
from unmask.model.backbones.block_architecture import BlockArchitecture
from unmask.model.backbones.evolved.layers import build_layer
from unmask.model.cache import Cache
from unmask.model.layers.attention.attention import Attention, AttentionMask
from unmask.model.layers.attention.block_local_mask import GlobalTokens, VirtualTokens, Window
from unmask.model.layers.attention.query_stream import QueryStream
from unmask.model.layers.depth_weighted_average import DepthWeightedAverage
from unmask.model.layers.embeddings.adaptive import AdaptiveEmbedding
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding
from unmask.model.layers.feed_forward import Dropout, FeedForward
from unmask.model.layers.layer_pass import (
    AllColumns,
    LayerInputs,
    LayerPass,
    SelectedColumn,
    cross_attend,
    identity,
    self_attend,
)
from unmask.model.layers.per_layer import FactorizedEmbedding, FactorizedLinear
from unmask.model.layers.sublayer_connection import SublayerConnection
from unmask.model.positions.module import PositionLayer, PositionModule
from unmask.model.requested_states import KnownStates, record_input, requested_states
from unmask.model.variants import DepthWeightedSublayers, ParallelSublayers
from unmask.objectives.features import Recurrence
from unmask.tokenizers.spec import SpecialTokenIds


class Block(nn.Module):
    """Self-attention, cross-attention if the stack has an encoder, and a feed-forward layer."""

    def __init__(
        self,
        a: BlockArchitecture,
        position_layer: PositionLayer,
        first_block: "Block | None",
        cross: BlockArchitecture | None = None,
    ) -> None:
        super().__init__()
        if first_block is not None and "attention" in a.layers.shared_sublayers:
            self.attention, self.attention_norm = first_block.attention, first_block.attention_norm
        else:
            wide = a.attention.global_tokens
            self.attention, self.attention_norm = (
                Attention(a, position_layer, global_attention=wide),
                SublayerConnection(a),
            )
        self.cross = Attention(cross or a, PositionLayer()) if a.cross_attention else None
        self.cross_norm = SublayerConnection(a) if a.cross_attention else None
        if first_block is not None and "feed_forward" in a.layers.shared_sublayers:
            self.feed_forward, self.feed_forward_norm = (
                first_block.feed_forward,
                first_block.feed_forward_norm,
            )
        else:
            self.feed_forward = FeedForward(
                a.d_model,
                a.d_ff,
                activation=a.activation,
                gated=a.gated_feed_forward,
                bias="feed_forward" in a.biases,
                dropout=a.activation_dropout,
                inner_norm=a.norm.build(a.d_ff)
                if a.norm_placement & FEED_FORWARD_INNER_SLOTS
                else None,
            )
            shares_norm = a.sublayers == ParallelSublayers(shared_norm=True)
            self.feed_forward_norm = self.attention_norm if shares_norm else SublayerConnection(a)
        self.parallel = isinstance(a.sublayers, ParallelSublayers)
        self.dropout = a.layer_dropout
        """Probability that the stack skips the whole layer in training."""

    def forward(self, x: Float[Tensor, "b t d"], inputs: LayerInputs) -> Float[Tensor, "b t d"]:
        """Apply the sublayers to the residual stream."""
        before, done = x, inputs.after_sublayer
        x = done(self.attention_norm(x, lambda y: self_attend(self.attention, y, inputs)))
        if (cross := self.cross) is not None and self.cross_norm is not None:
            x = self.cross_norm(x, lambda y: cross_attend(cross, y, inputs))
        return done(self.feed_forward_norm(x, self.feed_forward, before if self.parallel else x))


def blocks(module: nn.Module) -> list[Block]:
    """Return all blocks of a module; one that is used twice once."""
    return [part for part in module.modules() if isinstance(part, Block)]


ArchitectureT = TypeVar("ArchitectureT", bound="Architecture")


@dataclass(frozen=True, kw_only=True)
class Architecture(BlockArchitecture):
    """One stack of Transformer blocks, as a value."""

    def build(self) -> "Transformer":
        """Build the network."""
        return Transformer(self)

    def with_vocabulary(self: ArchitectureT, special_ids: SpecialTokenIds) -> ArchitectureT:
        """Return a copy for the tokens of a vocabulary.

        Positions that do not start from 0 start from the padding id + 1. There are as many language
        embeddings as the vocabulary has languages.
        """
        a = self.with_vocab_size(special_ids.vocab_size)
        if special_ids.language_embeddings:
            a = a.with_languages(len(special_ids.languages))
        return replace(a, position=a.position.with_padding_id(special_ids.pad))


class Transformer(nn.Module):
    """Token ids [b t] -> hidden states [b t d].

    Encoder, decoder, or one half of an encoder-decoder.
    """

    def __init__(self, a: Architecture, tokens: TokenEmbedding | None = None) -> None:
        super().__init__()
        self.a = a
        self.tokens = a.build_embedding_table() if tokens is None else tokens
        self.scale = a.d_embed**0.5 if a.scale_embedding else 1.0
        self.position: PositionModule = a.position.build(a)
        self.segments = nn.Embedding(a.n_segments, a.d_embed) if a.n_segments else None
        self.embed_norm = a.norm.build(a.d_embed) if a.embedding_norm else nn.Identity()
        self.widen = nn.Identity() if a.embedding_size is None else nn.Linear(a.d_embed, a.d_model)
        self.convolution = (
            None if a.layers.ngram_encoding is None else a.layers.ngram_encoding.build(a)
        )
        self.layers = nn.ModuleList()
        for i in range(a.n_layers):
            first = next((layer for layer in self.layers if isinstance(layer, Block)), None)
            part, position_layer = a.layer_type(i), self.position.for_layer(i, a.layer_heads(i))
            self.layers.append(
                Block(a.at_layer(i), position_layer, first, a.at_layer(i, cross=True))
                if part is None
                else build_layer(part, a, position_layer)
            )
        averaged = isinstance(a.sublayers, DepthWeightedSublayers)
        self.mix = DepthWeightedAverage(2 * a.n_layers) if averaged else None
        self.final_norm = a.norm.build(a.d_model) if a.final_norm else nn.Identity()
        self.dropout = Dropout(a.dropout)
        self.final_dropout = Dropout(a.final_dropout)
        for factors in a.layers.factorized:
            factors.factorize(self)

    @property
    def width(self) -> int:
        """Size of the hidden states."""
        return self.a.d_model

    @property
    def embedding_table(self) -> TokenEmbedding:
        """The token embeddings, which a head may be tied to."""
        return self.tokens

    @property
    def supports_last_only(self) -> bool:
        """Whether it supports `selected_column`: no biases of the scores nor depth averages."""
        plain = self.mix is None and self.a.layer_type(self.a.n_layers - 1) is None
        return plain and type(self.position).position_state is PositionModule.position_state

    @property
    def encoder_stack(self) -> "Transformer":
        """The network that reads texts: itself."""
        return self

    @property
    def decoder_stack(self) -> "Transformer":
        """The network whose hidden states the heads read: itself."""
        return self

    @property
    def stacks(self) -> "tuple[Transformer, ...]":
        """All networks of one stack: itself."""
        return (self,)

    @property
    def n_token_layers(self) -> int:
        """All of its layers have a hidden state for each token."""
        return len(self.layers)

    def unsupported_reason(self, ability: Ability) -> str | None:
        """Return why an ability is not supported: a memory needs relative positions."""
        if ability == "layer_records" and any(self.a.layers.types):
            return NO_LAYER_RECORDS
        if ability == "known_states":
            return None if self.mix is None else NOT_ONE_STACK[ability]
        if ability == "prefix_tree":
            return None if self._supports_prefix_tree else NOT_ONE_STACK[ability]
        if ability != "memory" or (
            self.position.supports_memory
            and self.convolution is None
            and not self.a.attention.global_tokens
        ):
            return None
        return (
            f"{type(self.a.position).__name__} positions do not extend over a memory of "
            "earlier segments: use relative ones, as TransformerXLPositions"
        )

    @property
    def _supports_prefix_tree(self) -> bool:
        """Whether a token's hidden states depend on its prefix alone, wherever that lies."""
        reach = {self.a.window_and_dilation(i) for i in range(len(self.layers))}
        plain = self.convolution is None and not any(self.a.layers.types)
        return plain and self.a.causal and reach == {(None, 1)} and self.position.reads_position_ids

    def encode(self, batch: Batch) -> Float[Tensor, "b t _"]:
        """Run the network over the inputs of the batch."""
        return self(batch)

    def layer_states(self, batch: Batch, layer: int) -> Float[Tensor, "b t d"]:
        """Return the input of a layer or, after the last, the output of the final norm."""
        last = layer == len(self.layers)
        watched = self.final_dropout if last else self.layers[layer]
        return record_input(watched, lambda: self(batch))

    def pad_for_network(self, batch: Batch) -> Batch:
        """Return the batch as it is: no text depends on the padding after it."""
        return batch

    def new_cache(self, max_rollback: int = 0) -> Cache:
        """Make an empty cache from which up to `max_rollback` tokens can be removed again.

        A layer with a window keeps only the columns within it, unless its scores depend on the
        positions of all pairs.
        """
        reach = [self.a.window_and_dilation(i) for i in range(self.a.n_layers)]
        spans = [None if w is None or self.position.needs_all_keys else w * d for w, d in reach]
        parts = [self.a.layer_type(i) for i in range(self.a.n_layers)]
        return Cache(
            spans, max_rollback, [() if part is None else part.cache_spans for part in parts]
        )

    def flops(self, length: int) -> float:
        """Count the forward FLOPs per token in texts of `length` tokens, without heads."""
        factors = (self.get_submodule(part.name) for part in self.a.layers.factorized)
        return self.a.flops(length) - 2 * sum(
            cast(FactorizedLinear | FactorizedEmbedding, f).n_saved for f in factors
        )

    def token_embeddings(self, batch: Batch) -> Float[Tensor, "b t _"]:
        """Return the token embeddings, without positions."""
        x = self.tokens(batch.inputs)
        return x if self.scale == 1 else x * self.scale

    def embed(self, batch: Batch, n_past: int = 0) -> Float[Tensor, "b t _"]:
        """Sum the embeddings of tokens, positions and segments; not yet projected."""
        x = self.token_embeddings(batch)
        if (positions := self.position.embed(position_ids(batch, n_past))) is not None:
            x = x + positions.to(x.dtype)
        if self.segments is not None:
            segments = batch.segments
            if segments is None or self.a.n_segments == 1:
                segments = torch.zeros_like(batch.inputs[:1, :1])
            x = x + self.segments(segments)
        return self.dropout(self.embed_norm(x))

    def forward(
        self,
        batch: Batch,
        cache: Cache | None = None,
        encoder_hidden_states: Float[Tensor, "b s d"] | None = None,
        encoder_visibility: Visibility | None = None,
        query_stream: QueryStream | None = None,
    ) -> Float[Tensor, "b n _"]:
        """Run the stack over a batch; with a cache, only over the tokens after it.

        With a query stream, the hidden states are its own. With `KnownStates` the first layers are
        left out.

        Raises:
            ValueError: a stack with a bidirectional convolution is given a cache; or one with depth
                averages a query stream; or a memory is given to one that does not support it.
        """
        past, prefix = (0, 0) if cache is None else (cache.length, cache.prefix_length)
        self._check(batch, past > prefix, query_stream)
        known = batch.feature(KnownStates)
        x = self.widen(self.embed(batch, past)) if known is None else known.hidden
        inputs_of = self.layer_inputs(x, batch, cache, encoder_hidden_states, encoder_visibility)
        layer_pass = _layer_pass(batch, past, query_stream)
        layer_outputs: list[Tensor] = []
        requested = requested_states(batch)
        for i in range(0 if known is None else known.layer, len(self.layers)):
            if i == requested.before_layer:
                return x
            layer = self.layers[i]
            if requested.all_layers:
                # not a call: hooks apply to the last layer's pass only
                layer_outputs.append(self.final_norm.forward(x))
            is_last = i == len(self.layers) - 1
            if self._draw_layer_dropout(is_last and layer_pass.needs_last):
                continue
            before, x = x, layer_pass(layer, x, inputs_of(i, x))
            if self.convolution is not None and i == 0 and not (is_last and query_stream):
                x = self.convolution(before, x, batch.visibility)
        x = self.final_norm(x)
        return self.final_dropout(torch.cat((*layer_outputs, x), -1) if layer_outputs else x)

    def layer_inputs(
        self,
        x: Float[Tensor, "b t d"],
        batch: Batch,
        cache: Cache | None,
        encoder_hidden_states: Tensor | None,
        encoder_visibility: Visibility | None,
    ) -> Callable[[int, Tensor], LayerInputs]:
        """Return the other inputs of layer i, and store the residual stream x in its memory."""
        past, prefix = (0, 0) if cache is None else (cache.length, cache.prefix_length)
        recurrence = batch.feature(Recurrence) or Recurrence()
        memory = recurrence.memory
        m, queries = 0 if memory is None else len(memory), x.shape[1]
        keys, visibility = past + m + queries, batch.visibility.with_prefix(m)
        masks = self._attention_masks(visibility, queries, keys, prefix, batch)
        encoder_mask = AttentionMask()
        if encoder_visibility is not None:
            encoder_mask = AttentionMask(
                cross_attention_mask(visibility, encoder_visibility, queries)
            )
        position_state = self.position.position_state(x, keys, batch)
        after_sublayer = identity if self.mix is None else self.mix.start(x)

        def inputs_of(i: int, x: Tensor) -> LayerInputs:
            return LayerInputs(
                attention_mask=masks[self.a.window_and_dilation(i)],
                n_keys=keys,
                position_state=position_state,
                visibility=visibility,
                encoder_hidden_states=encoder_hidden_states,
                encoder_attention_mask=encoder_mask,
                cache=cache,
                layer_index=i,
                is_last=i == len(self.layers) - 1,
                memory=None if memory is None else memory.update(i, x, recurrence.reuse_len),
                after_sublayer=after_sublayer,
            )

        return inputs_of

    def _draw_layer_dropout(self, needed: bool) -> bool:
        """Draw whether a layer is skipped; a `needed` layer never is."""
        rate = self.a.layer_dropout if self.training else 0.0
        return rate > 0 and bool(torch.rand(()) < rate) and not needed

    def _check(self, batch: Batch, continues: bool, query_stream: QueryStream | None) -> None:
        if self.convolution is not None and continues:
            raise ValueError("a model with ngram_encoding is bidirectional: it has no cache")
        if self.mix is not None and query_stream is not None:
            raise ValueError("DepthWeightedSublayers do not support a query stream")
        recurrence = batch.feature(Recurrence)
        has_memory = recurrence is not None and recurrence.memory is not None
        if any(self.a.layers.types) and (query_stream is not None or has_memory):
            raise ValueError("layers with convolutions support neither a query stream nor a memory")
        if has_memory:
            require_support(self, "memory")
        if batch.has(KnownStates):
            require_support(self, "known_states")

    def _attention_masks(
        self,
        visibility: Visibility,
        n_queries: int,
        n_keys: int,
        prefix: int,
        batch: Batch,
    ) -> dict[tuple[int | None, int], AttentionMask]:
        """Return the attention mask of each window and dilation of the layers."""
        global_tokens = batch.feature(GlobalTokens) if self.a.attention.global_tokens else None
        virtual_tokens = batch.feature(VirtualTokens)
        tree = batch.feature(PrefixTree)
        columns = [f and f.positions for f in (global_tokens, virtual_tokens)]

        def mask(window: int | None, dilation: int) -> AttentionMask:
            return AttentionMask.from_visibility(
                visibility,
                n_queries,
                n_keys,
                Window(window, dilation, *columns),
                prefix=prefix,
                keep_all_keys=self.position.needs_all_keys,
                device=batch.inputs.device,
            )

        reach = {self.a.window_and_dilation(i) for i in range(len(self.layers))}
        if tree is not None:
            require_support(self, "prefix_tree")
            return dict.fromkeys(reach, AttentionMask(tree.to_mask()))
        return {(w, d): mask(w, d) for w, d in reach}


class SourceEncodedTransformer(Transformer):
    """An encoder whose token embeddings are replaced by the outputs of a source encoder.

    The source encoder has its own vocabulary, positions and layers (Lewis et al. 2020,
    arXiv:1910.13461, section 3.4); the position embeddings of this encoder are added to its
    outputs.
    """

    def __init__(
        self, a: Architecture, tokens: nn.Embedding | AdaptiveEmbedding, source: Architecture
    ) -> None:
        super().__init__(a, tokens)
        self.source = Transformer(source)

    @property
    def stacks(self) -> tuple[Transformer, ...]:
        """All networks of one stack: itself and the source encoder."""
        return (self, self.source)

    def flops(self, length: int) -> float:
        """Count the forward FLOPs per token, those of the source encoder included."""
        return super().flops(length) + self.source.flops(length)

    def token_embeddings(self, batch: Batch) -> Float[Tensor, "b t _"]:
        """Return the outputs of the source encoder; the batch has ids of its vocabulary."""
        return self.source(Batch(inputs=batch.inputs, visibility=batch.visibility))


def position_ids(batch: Batch, n_past: int = 0) -> Int[Tensor, "_ t"]:
    """Return the position of each token: from the batch if it has positions, or its column."""
    if batch.position_ids is not None:
        return batch.position_ids
    end = n_past + batch.inputs.shape[1]
    return torch.arange(n_past, end, device=batch.inputs.device)[None]


def _layer_pass(batch: Batch, n_past: int, query_stream: QueryStream | None) -> LayerPass:
    """Return the pass of columns through the layers."""
    if query_stream is not None:
        return query_stream.layer_pass(position_ids(batch, n_past))
    column = requested_states(batch).selected_column
    return AllColumns() if column is None else SelectedColumn(column)


def cross_attention_mask(
    decoder_visibility: Visibility, encoder_visibility: Visibility, n_queries: int
) -> Tensor | None:
    """Return which encoder tokens each of the last `n_queries` decoder tokens sees [b 1 t s].

    They are those of its own document. Queries of padding see everything: their output is unused,
    and a softmax over an empty set is NaN.
    """
    if encoder_visibility.document is None:
        return None
    key_document: Int[Tensor, "b 1 s"] = encoder_visibility.document[:, None, :]
    if decoder_visibility.document is None:
        return (key_document == 0)[:, None].expand(-1, 1, n_queries, -1)
    query_document = decoder_visibility.document[:, -n_queries:, None]
    return ((query_document == key_document) | (query_document < 0))[:, None]
