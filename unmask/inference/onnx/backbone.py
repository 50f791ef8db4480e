"""A network that is an ONNX graph."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.heads.classification.sequence_classification import ONE_TEXT_MESSAGE
from unmask.inference.onnx.graphs import (
    ATTENTION_MASK,
    HIDDEN_STATE,
    INPUT_IDS,
    LANGUAGES,
    LOGITS,
    PART_IDS,
    PIXELS,
    POSITION_IDS,
    SEGMENTS,
    cache_names,
)
from unmask.inference.onnx.record import OnnxRecord
from unmask.inference.onnx.session import OnnxSession
from unmask.model.architecture import Ability, Backbone, BackboneArchitecture
from unmask.model.cache import DecodingCache
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding
from unmask.objectives.inputs.pictures import MASK_ID, Pictures
from unmask.tokenizers.spec import NO_LANGUAGE, TextLanguages


class OnnxCache:
    """Keys and values [b g s e] of each layer, which go into a graph and come out of it."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = dict(tensors)

    @property
    def length(self) -> int:
        """Tokens so far."""
        return next(iter(self.tensors.values())).shape[2]

    @property
    def can_shift(self) -> bool:
        """Whether its columns can be shifted: never, the graph alone has positions."""
        return False

    @property
    def prefix_length(self) -> int:
        """Virtual tokens: none."""
        return 0

    def set_prefix_length(self, n: int) -> None:
        """Refuse virtual tokens.

        Raises:
            ValueError: there are some.
        """
        if n:
            raise ValueError("an ONNX graph has no virtual tokens before its texts")

    def before(self, n_rows: int) -> dict[str, Tensor]:
        """Return the tensors for a batch of `n_rows`, with no tokens at first."""
        if self.length:
            return self.tensors
        return {name: x.new_zeros(n_rows, *x.shape[1:]) for name, x in self.tensors.items()}

    def select_rows(self, rows: Tensor) -> None:
        """Keep only these rows of the batch, in this order."""
        if self.length:
            self.tensors = {name: x[rows] for name, x in self.tensors.items()}

    def crop(self, length: int) -> None:
        """Drop all tokens after the first `length`."""
        self.tensors = {name: x[:, :, :length] for name, x in self.tensors.items()}


class OnnxBackbone(nn.Module):
    """The network of a graph; what it is, a network without weights knows."""

    def __init__(self, network: Backbone, session: OnnxSession, record: OnnxRecord) -> None:
        super().__init__()
        self.network: Backbone = network
        self.session, self.record = session, record

    @property
    def a(self) -> BackboneArchitecture:
        """The architecture."""
        return self.network.a

    @property
    def width(self) -> int:
        """Size of the hidden states."""
        return self.network.width

    @property
    def embedding_table(self) -> TokenEmbedding:
        """The token embeddings, without weights."""
        return self.network.embedding_table

    @property
    def supports_last_only(self) -> bool:
        """False: the graph computes all columns."""
        return False

    @property
    def encoder_stack(self) -> "OnnxBackbone":
        """The network that reads texts: itself."""
        return self

    @property
    def decoder_stack(self) -> "OnnxBackbone":
        """The network whose hidden states the heads read: itself."""
        return self

    @property
    def stacks(self) -> "tuple[OnnxBackbone, ...]":
        """All networks of one stack: itself."""
        return (self,)

    @property
    def n_token_layers(self) -> int:
        """The number of layers, of which the graph returns only the last one's states."""
        return self.network.n_token_layers

    def unsupported_reason(self, ability: Ability) -> str | None:
        """Return why an ability is not supported: a graph is fixed."""
        return f"an ONNX graph does not support {ability.replace('_', ' ')}"

    def pad_for_network(self, batch: Batch) -> Batch:
        """Return the batch as it is."""
        return batch

    def flops(self, length: int) -> float:
        """Count the forward FLOPs per token in texts of `length` tokens, without heads."""
        return self.network.flops(length)

    def encode(self, batch: Batch) -> Float[Tensor, "b s d"]:
        """Run the network over the inputs of the batch."""
        return self(batch)

    def layer_states(self, batch: Batch, layer: int) -> Float[Tensor, "b s d"]:
        """Return the output of the last layer.

        Raises:
            ValueError: another layer is asked for.
        """
        self.check_last_layer(layer)
        return self(batch)

    def check_last_layer(self, layer: int) -> None:
        """Check that a layer is the last.

        Raises:
            ValueError: it is another.
        """
        if layer != self.n_token_layers:
            raise ValueError(
                f"an ONNX graph has the states of the last layer alone, -1 or {self.n_token_layers}"
                f", got layer {layer}"
            )

    def new_cache(self, max_rollback: int = 0) -> OnnxCache:
        """Make an empty cache; any number of tokens can be removed from it.

        Raises:
            ValueError: the graph reads whole texts.
        """
        if self.record.graph != "decoder":
            raise ValueError("this ONNX graph reads whole texts and does not generate")
        return OnnxCache(self.session.empty_inputs("past_key_values."))

    def logits_after(
        self, batch: Batch, cache: DecodingCache, n_last: int
    ) -> Float[Tensor, "b last v"]:
        """Read a batch after what is in the cache; return the logits after its last tokens.

        Read token by token where those of several are wanted: the graph returns the last one's.
        """
        n = batch.inputs.shape[1]
        ends = range(n - n_last + 1, n + 1)
        starts = (0, *ends[:-1])
        found = [
            self.step(_columns(batch, start, end), cast(OnnxCache, cache), LOGITS)
            for start, end in zip(starts, ends, strict=True)
        ]
        return torch.stack(found, 1)

    def forward(self, batch: Batch, *args: Any, **kwargs: Any) -> Float[Tensor, "b t d"]:
        """Return the hidden states of the last layer."""
        return self.run(batch, HIDDEN_STATE)

    def run(self, batch: Batch, output: str) -> Tensor:
        """Return one output of the graph for texts without a cache.

        Raises:
            ValueError: the batch has what the graph does not read.
        """
        if self.record.graph == "picture":
            return self.session.run({PIXELS: _pixels(batch)}, [output])[0]
        is_pair = self.record.graph == "pair"
        reads_languages = LANGUAGES in self.session.input_names
        check_readable(batch, reads_pairs=is_pair, reads_languages=reads_languages)
        if self.record.graph == "decoder":
            return self.step(batch, self.new_cache(), output)
        if is_pair:
            return self.session.run(_pair_inputs(batch, output), [output])[0]
        inputs = {INPUT_IDS: batch.inputs, ATTENTION_MASK: batch.is_token().long()}
        if SEGMENTS in self.session.input_names:
            segments = batch.segments
            inputs[SEGMENTS] = torch.zeros_like(batch.inputs) if segments is None else segments
        if reads_languages:
            given = batch.feature(TextLanguages)
            none = torch.full_like(batch.inputs, NO_LANGUAGE)
            inputs[LANGUAGES] = none if given is None else given.language
        return self.session.run(inputs, [output])[0]

    def step(self, batch: Batch, cache: OnnxCache, output: str) -> Tensor:
        """Return one output of a decoder for tokens after a cache, which they are added to."""
        b, n = batch.inputs.shape
        past = cache.length
        document, positions = batch.visibility.document, batch.position_ids
        mask = torch.ones(b, past + n, dtype=torch.long)
        if document is not None:
            mask = (document >= 0).long()
        if positions is None:
            positions = torch.arange(past, past + n).expand(b, -1)
        inputs = {INPUT_IDS: batch.inputs, ATTENTION_MASK: mask, POSITION_IDS: positions}
        before = cache.before(b)
        read = {name: x for name, x in inputs.items() if name in self.session.input_names}
        present = cache_names("present", len(before) // 2)
        result, *after = self.session.run(read | before, [output, *present])
        cache.tensors = dict(zip(before, after, strict=True))
        return result


def _pixels(batch: Batch) -> Tensor:
    """Return the pixels of pictures that are seen whole.

    Raises:
        ValueError: there are none, or a patch is hidden.
    """
    pictures = batch.feature(Pictures)
    if pictures is None:
        raise ValueError("this ONNX graph reads pictures, and the batch has none")
    check_readable(batch.without(Pictures))
    if (batch.inputs == MASK_ID).any():
        raise ValueError("an ONNX graph reads whole pictures; use the model's own folder")
    return pictures.pixels


def _pair_inputs(batch: Batch, output: str) -> dict[str, Tensor]:
    """Return the inputs of a graph that reads two texts in a row; hidden states are of one, too.

    Raises:
        ValueError: one text is given, and the output is of two.
    """
    parts, positions = batch.part_ids, batch.position_ids
    if parts is None:
        if output == LOGITS:
            raise ValueError(ONE_TEXT_MESSAGE)
        parts = batch.is_token().long() - 1
    if positions is None:
        positions = torch.arange(parts.shape[1]).expand(parts.shape)
    return {INPUT_IDS: batch.inputs, POSITION_IDS: positions, PART_IDS: parts}


def check_readable(
    batch: Batch,
    *,
    reads_pairs: bool = False,
    reads_source: bool = False,
    reads_languages: bool = False,
) -> None:
    """Check that a graph can read a batch.

    Raises:
        ValueError: it has what a graph has no input for.
    """
    given = {
        "two texts that are encoded separately": batch.part_ids is not None and not reads_pairs,
        "an order of visibility": batch.visibility.rank is not None,
        "a source": batch.source is not None and not reads_source,
        "languages of tokens": batch.has(TextLanguages) and not reads_languages,
        **{
            f"the feature {type(f).__name__}": not f.is_for_losses
            for f in batch.without(TextLanguages).features
        },
    }
    for what, is_given in given.items():
        if is_given:
            raise ValueError(f"an ONNX graph does not read {what}; use the model's own folder")


def _columns(batch: Batch, start: int, end: int) -> Batch:
    """Return some columns of what follows a cache; its documents are those of all columns."""
    n, document, positions = batch.inputs.shape[1], batch.visibility.document, batch.position_ids
    if document is not None:
        document = document[:, : document.shape[1] - n + end]
    return Batch(
        inputs=batch.inputs[:, start:end],
        visibility=replace(batch.visibility, document=document),
        position_ids=None if positions is None else positions[:, start:end],
    )
