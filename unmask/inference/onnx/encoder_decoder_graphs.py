"""Encoder-decoders as graphs: of the encoder and of a step of the decoder, or one of both."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Int
from torch import Tensor, nn

from unmask.batch import Batch, Visibility
from unmask.heads.model import Model
from unmask.inference.onnx.graphs import (
    ATTENTION_MASK,
    BATCH,
    HIDDEN_STATE,
    INPUT_IDS,
    LENGTH,
    LOGITS,
    PAST,
    SOURCE_LENGTH,
    GraphInterface,
    TracedCache,
    WholeTextGraph,
    cache_names,
)
from unmask.inference.onnx.record import DECODER_FILE, ENCODER_FILE, MODEL_FILE, WEIGHTS_FILE
from unmask.inference.onnx.session import extract_part

DECODER_INPUT_IDS, DECODER_ATTENTION_MASK = "decoder_input_ids", "decoder_attention_mask"
DECODER_POSITION_IDS, DECODER_HIDDEN_STATE = "decoder_position_ids", "decoder_last_hidden_state"
_CROSS, _PAST, _PRESENT = "cross", "past_key_values", "present"
_SOURCE_SIZES = {0: BATCH, 1: SOURCE_LENGTH}
_MIN_SHARED_BYTES = 1024
"""Weights from this size on are in the file beside the graphs; smaller ones are in both."""


def encoder_outputs(outputs: Iterable[str]) -> tuple[str, ...]:
    """Return the keys and values of cross-attention among the outputs of an encoder."""
    return tuple(name for name in outputs if name.startswith(f"{_CROSS}."))


class EncoderDecoderGraph(nn.Module):
    """An encoder, and one step of a decoder after its cache; `split_encoder_decoder` parts them.

    The inputs are the attention mask [b s] of the source and its token ids [b s]; of the decoder
    the attention mask [b p+t] over cached and new tokens, token ids [b t] and position ids [b t],
    and for each layer the keys and values [b g p e] of the tokens before, none at first. The
    outputs are the logits [b t v] after each new token, the hidden states of the encoder [b s d]
    and of the new tokens [b t d], the keys and values [b g s e] of each cross-attention, and those
    [b g p+t e] of each self-attention.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def interface(self) -> GraphInterface:
        """Return the inputs and outputs."""
        a = cast(Any, self.model.architecture)
        new, past = 3, 5
        inputs = {
            **_source_inputs(),
            DECODER_ATTENTION_MASK: torch.ones(2, past + new, dtype=torch.long),
            DECODER_INPUT_IDS: torch.ones(2, new, dtype=torch.long),
            DECODER_POSITION_IDS: torch.arange(past, past + new).expand(2, -1).clone(),
        }
        varying: dict[str, Mapping[int, str]] = {
            ATTENTION_MASK: _SOURCE_SIZES,
            INPUT_IDS: _SOURCE_SIZES,
            DECODER_ATTENTION_MASK: {0: BATCH, 1: f"{PAST} + {LENGTH}"},
            DECODER_INPUT_IDS: {0: BATCH, 1: LENGTH},
            DECODER_POSITION_IDS: {0: BATCH, 1: LENGTH},
        }
        n = a.decoder.n_layers
        for name in cache_names(_PAST, n):
            inputs[name] = torch.zeros(2, a.decoder.n_key_value_heads, past, a.decoder.d_head)
            varying[name] = {0: BATCH, 2: PAST}
        caches = (*cache_names(_CROSS, n), *cache_names(_PRESENT, n))
        return GraphInterface(
            inputs=inputs,
            varying=varying,
            outputs=(LOGITS, HIDDEN_STATE, DECODER_HIDDEN_STATE, *caches),
            longest=_longest(a),
        )

    def forward(
        self,
        attention_mask: Int[Tensor, "b s"],
        input_ids: Int[Tensor, "b s"],
        decoder_attention_mask: Int[Tensor, "b k"],
        decoder_input_ids: Int[Tensor, "b t"],
        decoder_position_ids: Int[Tensor, "b t"],
        *past_key_values: Tensor,
    ) -> tuple[Tensor, ...]:
        """Read the source and the new tokens."""
        backbone: Any = self.model.backbone
        batch = Batch(
            inputs=decoder_input_ids,
            visibility=Visibility(document=decoder_attention_mask - 1, causal=True),
            position_ids=decoder_position_ids,
            source=input_ids,
            source_visibility=Visibility(document=attention_mask - 1),
        )
        encoded = backbone.encode(batch)
        cache = TracedCache(past_key_values)
        hidden = backbone(batch, cache, encoded)
        logits = self.model.language_head.logits(hidden)
        return logits, encoded, hidden, *cache.cross_tensors(), *cache.tensors()


class SourceTextGraph(WholeTextGraph):
    """A text that the encoder reads, and the decoder one token later -> logits and hidden states.

    The inputs are the attention mask [b s] and the token ids [b s] of the source, and, where there
    is a head, those of the decoder [b t]. The hidden states [b s d] are the encoder's.
    """

    def interface(self) -> GraphInterface:
        """Return the inputs and outputs."""
        inputs = _source_inputs()
        varying: dict[str, Mapping[int, str]] = dict.fromkeys(inputs, _SOURCE_SIZES)
        if self.head_name is not None:
            for name in (DECODER_ATTENTION_MASK, DECODER_INPUT_IDS):
                inputs[name] = torch.ones(2, 5, dtype=torch.long)
                varying[name] = {0: BATCH, 1: LENGTH}
        return GraphInterface(
            inputs=inputs,
            varying=varying,
            outputs=(HIDDEN_STATE,) if self.head_name is None else (LOGITS, HIDDEN_STATE),
            longest=_longest(self.model.architecture),
        )

    def forward(
        self,
        attention_mask: Int[Tensor, "b s"],
        input_ids: Int[Tensor, "b s"],
        decoder_attention_mask: Int[Tensor, "b t"] | None = None,
        decoder_input_ids: Int[Tensor, "b t"] | None = None,
    ) -> tuple[Tensor, ...]:
        """Run the model."""
        source = Visibility(document=attention_mask - 1)
        text = Batch(inputs=input_ids, source=input_ids, source_visibility=source)
        encoded = self.model.backbone.encode(text)
        if decoder_attention_mask is None or decoder_input_ids is None:
            return (encoded,)
        batch = Batch(
            inputs=decoder_input_ids,
            visibility=Visibility(document=decoder_attention_mask - 1, causal=True),
            source_visibility=source,
            last_token_positions=decoder_attention_mask.sum(1) - 1,
        )
        logits, _ = self.outputs(batch, None, encoded)
        return logits, encoded


def _source_inputs() -> dict[str, Tensor]:
    """Return examples of the mask of a source and its tokens.

    The mask is first: encoder and decoder both read it, and find the size of the batch there.
    """
    return {name: torch.ones(2, 7, dtype=torch.long) for name in (ATTENTION_MASK, INPUT_IDS)}


def _longest(a: Any) -> dict[str, int | None]:
    return {SOURCE_LENGTH: a.encoder.max_positions, LENGTH: a.decoder.max_positions}


def split_encoder_decoder(folder: Path) -> None:
    """Replace the graph of an encoder-decoder by two, with the weights in one file beside them.

    The encoder also computes the keys and values of each cross-attention, which are inputs of the
    decoder: they are computed once for a source. A matrix that both read is stored once.
    """
    import onnx

    model = onnx.load(folder / MODEL_FILE)
    graph = model.graph
    for name in (MODEL_FILE, WEIGHTS_FILE):
        (folder / name).unlink(missing_ok=True)
    onnx.save(
        model,
        folder / MODEL_FILE,
        save_as_external_data=True,
        location=WEIGHTS_FILE,
        size_threshold=_MIN_SHARED_BYTES,
    )
    (folder / MODEL_FILE).unlink()  # what is left of it are references to weights
    inputs, outputs = [x.name for x in graph.input], [x.name for x in graph.output]
    cross = encoder_outputs(outputs)
    decoder_outputs = [x for x in outputs if x != HIDDEN_STATE and x not in cross]
    for file, read, computed in (
        (ENCODER_FILE, (ATTENTION_MASK, INPUT_IDS), (HIDDEN_STATE, *cross)),
        (DECODER_FILE, (*(x for x in inputs if x != INPUT_IDS), *cross), decoder_outputs),
    ):
        part = extract_part(model, read, computed)
        assert part is not None
        onnx.save(part, folder / file)
    mode = (folder / ENCODER_FILE).stat().st_mode
    (folder / WEIGHTS_FILE).chmod(mode)  # onnx creates it for its owner alone
