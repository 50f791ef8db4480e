"""An encoder-decoder whose networks are ONNX graphs."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.batch import Batch
from unmask.inference.onnx.backbone import OnnxBackbone, OnnxCache, check_readable
from unmask.inference.onnx.encoder_decoder_graphs import (
    DECODER_ATTENTION_MASK,
    DECODER_HIDDEN_STATE,
    DECODER_INPUT_IDS,
    DECODER_POSITION_IDS,
    encoder_outputs,
)
from unmask.inference.onnx.graphs import (
    ATTENTION_MASK,
    HIDDEN_STATE,
    INPUT_IDS,
    LOGITS,
    cache_names,
)
from unmask.inference.onnx.record import OnnxRecord
from unmask.inference.onnx.session import OnnxSession
from unmask.model.architecture import Backbone
from unmask.model.cache import DecodingCache


class OnnxCrossCache(OnnxCache):
    """The cache of a decoder, and the keys and values [b g s e] of its cross-attention."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(tensors)
        self.cross: dict[str, Tensor] = {}
        """Empty until the first step."""

    def select_rows(self, rows: Tensor) -> None:
        """Keep only these rows of the batch, in this order."""
        super().select_rows(rows)
        self.cross = {name: x[rows] for name, x in self.cross.items()}


class OnnxEncoderDecoder(OnnxBackbone):
    """The graph of an encoder and, if it generates, that of a decoder."""

    def __init__(
        self,
        network: Backbone,
        session: OnnxSession,
        record: OnnxRecord,
        decoder_session: OnnxSession | None,
    ) -> None:
        super().__init__(network, session, record)
        self._decoder_session = decoder_session

    @property
    def encoder_stack(self) -> Any:
        """The encoder, without weights."""
        return self.network.encoder_stack

    @property
    def decoder_stack(self) -> Any:
        """The decoder, without weights."""
        return self.network.decoder_stack

    @property
    def stacks(self) -> Any:
        """All networks of one stack, without weights."""
        return self.network.stacks

    @property
    def decoder_session(self) -> OnnxSession:
        """The graph of the decoder.

        Raises:
            ValueError: there is none.
        """
        if self._decoder_session is None:
            raise ValueError("this ONNX graph reads whole texts and does not generate")
        return self._decoder_session

    def encode(self, batch: Batch) -> Float[Tensor, "b s d"]:
        """Run the encoder over the source of the batch."""
        return self._encode(batch, [HIDDEN_STATE])[0]

    def layer_states(self, batch: Batch, layer: int) -> Float[Tensor, "b s d"]:
        """Return the output of the encoder's last layer.

        Raises:
            ValueError: another layer is asked for.
        """
        self.check_last_layer(layer)
        return self.encode(batch)

    def new_cache(self, max_rollback: int = 0) -> OnnxCrossCache:
        """Make an empty cache of the decoder; any number of tokens can be removed from it.

        Raises:
            ValueError: the graph reads whole texts.
        """
        return OnnxCrossCache(self.decoder_session.empty_inputs("past_key_values."))

    def forward(self, batch: Batch, *args: Any, **kwargs: Any) -> Float[Tensor, "b t d"]:
        """Return the hidden states of the decoder's last layer."""
        return self.run(batch, DECODER_HIDDEN_STATE)

    def run(self, batch: Batch, output: str) -> Tensor:
        """Return one output of the decoder, or of the graph of both, for whole texts.

        Raises:
            ValueError: the batch has what the graphs do not read.
        """
        check_readable(batch, reads_source=True)
        if self._decoder_session is not None:
            return self.step(batch, self.new_cache(), output)
        inputs = {
            **_source_inputs(batch),
            DECODER_ATTENTION_MASK: batch.is_token().long(),
            DECODER_INPUT_IDS: batch.inputs,
        }
        return self.session.run(inputs, [output])[0]

    def logits_after(
        self, batch: Batch, cache: DecodingCache, n_last: int
    ) -> Float[Tensor, "b last v"]:
        """Read a batch after what is in the cache; return the logits after its last tokens."""
        return self.step(batch, cast(OnnxCrossCache, cache), LOGITS)[:, -n_last:]

    def decode(
        self, batch: Batch, encoder_hidden_states: Float[Tensor, "b s d"]
    ) -> Float[Tensor, "b t v"]:
        """Return the logits after the decoder's tokens, given the states of the encoder."""
        cache, names = self.new_cache(), encoder_outputs(self.session.output_names)
        size = encoder_hidden_states.shape[:2]
        given = {
            HIDDEN_STATE: encoder_hidden_states,
            ATTENTION_MASK: _mask(batch.source_visibility.document, size),
        }
        cache.cross = dict(zip(names, self.session.run(given, names), strict=True))
        return self.step(batch, cache, LOGITS)

    def step(self, batch: Batch, cache: OnnxCache, output: str) -> Tensor:
        """Return one output of the decoder for tokens after a cache, which they are added to."""
        cache = cast(OnnxCrossCache, cache)
        if not cache.cross:
            names = encoder_outputs(self.session.output_names)
            cache.cross = dict(zip(names, self._encode(batch, names), strict=True))
        (b, n), past = batch.inputs.shape, cache.length
        source = next(iter(cache.cross.values())).shape[2]
        positions = batch.position_ids
        if positions is None:
            positions = torch.arange(past, past + n).expand(b, -1)
        inputs = {
            ATTENTION_MASK: _mask(batch.source_visibility.document, (b, source)),
            DECODER_ATTENTION_MASK: _mask(batch.visibility.document, (b, past + n)),
            DECODER_INPUT_IDS: batch.inputs,
            DECODER_POSITION_IDS: positions,
            **cache.before(b),
            **cache.cross,
        }
        session = self.decoder_session
        read = {name: x for name, x in inputs.items() if name in session.input_names}
        present = cache_names("present", len(cache.tensors) // 2)
        result, *after = session.run(read, [output, *present])
        cache.tensors = dict(zip(cache.tensors, after, strict=True))
        return result

    def _encode(self, batch: Batch, outputs: Sequence[str]) -> list[Tensor]:
        return self.session.run(_source_inputs(batch), outputs)


def _source_inputs(batch: Batch) -> dict[str, Tensor]:
    """Return the inputs of an encoder.

    Raises:
        ValueError: the batch has no source.
    """
    if batch.source is None:
        raise ValueError("an encoder-decoder needs a batch with a source")
    document = batch.source_visibility.document
    return {ATTENTION_MASK: _mask(document, batch.source.shape), INPUT_IDS: batch.source}


def _mask(document: Tensor | None, size: Sequence[int]) -> Tensor:
    """Return the attention mask [b s] of texts with padding, or of a size without."""
    return torch.ones(*size, dtype=torch.long) if document is None else (document >= 0).long()
