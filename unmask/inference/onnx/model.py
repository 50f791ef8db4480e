"""A model whose network is an ONNX graph: the rest of the library calls it as any other."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from unmask.batch import Batch, Visibility
from unmask.heads.language.language_modeling import LanguageModelingHead
from unmask.heads.model import Model
from unmask.heads.prediction import Prediction
from unmask.heads.spec import HeadSpec
from unmask.inference.onnx.backbone import OnnxBackbone
from unmask.inference.onnx.encoder_decoder import OnnxEncoderDecoder
from unmask.inference.onnx.graphs import HIDDEN_STATE, LOGITS
from unmask.inference.onnx.record import OnnxRecord
from unmask.inference.onnx.session import OnnxSession
from unmask.model.architecture import Backbone, BackboneArchitecture
from unmask.model.cache import DecodingCache
from unmask.model.initialize import WithoutFilling

MAX_LOGITS = 2**26
"""Logits of one call of a graph, 256 MB."""


def _rows(batch: Batch, start: int, end: int) -> Batch:
    """Return some rows of a batch of texts."""

    def some(x: Tensor | None) -> Tensor | None:
        return None if x is None else x[start:end]

    def visible(v: Visibility) -> Visibility:
        return replace(v, document=some(v.document))

    return replace(
        batch,
        inputs=batch.inputs[start:end],
        visibility=visible(batch.visibility),
        source=some(batch.source),
        source_visibility=visible(batch.source_visibility),
        targets=some(batch.targets),
        position_ids=some(batch.position_ids),
        part_ids=some(batch.part_ids),
        segments=some(batch.segments),
        features=tuple(feature.map(some) for feature in batch.features),
        last_token_positions=some(batch.last_token_positions),
    )


class OnnxModel(Model):
    """A model whose logits and hidden states a graph computes."""

    def __init__(
        self,
        architecture: BackboneArchitecture,
        head_specs: Mapping[str, HeadSpec],
        session: OnnxSession,
        record: OnnxRecord,
        decoder_session: OnnxSession | None = None,
    ) -> None:
        """Wrap graphs: one, or an encoder's and a decoder's."""
        with torch.device("meta"), WithoutFilling():
            super().__init__(architecture, head_specs)
        self.graph = (
            OnnxEncoderDecoder(self.backbone, session, record, decoder_session)
            if architecture.is_encoder_decoder
            else OnnxBackbone(self.backbone, session, record)
        )
        self.backbone: Backbone = self.graph
        self._head_is_separate: bool | None = None

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    @property
    def language_head(self) -> LanguageModelingHead:
        """Refuse: the head is in the graph alone.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "an ONNX graph has no language-model head that can be asked for other logits than its "
            "own; use the folder that it was made of"
        )

    def mask_two_stream(self, batch: Batch, mask_id: int) -> Batch:
        """Return the batch as it is: no graph has two streams."""
        return batch

    def parameter_count(self) -> int:
        """Count the parameters of the model that the graph was made of."""
        return sum(p.numel() for p in self.own_weights().values())

    def trained_weights(self) -> dict[str, Tensor]:
        """Refuse: the weights are in the graph alone.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "an ONNX graph has no weights that can be changed or converted; use the folder that it "
            "was made of"
        )

    def hidden_states(self, batch: Batch) -> Float[Tensor, "b t _"]:
        """Return the hidden states of the last layer."""
        return self.graph(batch)

    def logits_at(self, batch: Batch, selected: Bool[Tensor, "b t"]) -> Float[Tensor, "n v"]:
        """Return the language head's logits at selected tokens, row by row."""
        session = self.graph.session
        if self._head_is_separate is None:
            self._head_is_separate = session.can_continue(HIDDEN_STATE, LOGITS)
        if self._head_is_separate:
            hidden = self.graph(batch)[selected]
            found = [
                session.run({HIDDEN_STATE: some[None]}, [LOGITS])[0][0]
                for some in hidden.split(max(MAX_LOGITS // self.vocab_size, 1))
            ]
            return torch.cat(found)
        rows = max(MAX_LOGITS // (batch.inputs.shape[1] * self.vocab_size), 1)
        found = [
            self.graph.run(_rows(batch, i, i + rows), LOGITS)[selected[i : i + rows]]
            for i in range(0, len(batch.inputs), rows)
        ]
        return torch.cat(found)

    def next_token_logits(
        self, batch: Batch, cache: DecodingCache, n_last: int
    ) -> Float[Tensor, "b last v"]:
        """Read a batch after what is in the cache; return the logits after its last tokens."""
        return self.graph.logits_after(batch, cache, n_last)

    def text_logits(self, batch: Batch, lengths: Sequence[int]) -> Iterator[Float[Tensor, "t v"]]:
        """Yield the logits of each row, which has `lengths` tokens.

        Raises:
            ValueError: the graph computes those of the last token alone.
        """
        if self.graph.record.graph == "decoder":
            raise ValueError(
                "an ONNX graph of a decoder has the logits of the last token alone; use the folder "
                "that it was made of"
            )
        for i, n in enumerate(lengths):
            yield self.graph.run(_rows(batch, i, i + 1), LOGITS)[0, :n]

    def answer_logits(
        self, batch: Batch, encoder_hidden_states: Float[Tensor, "b s d"]
    ) -> Float[Tensor, "b t v"]:
        """Return the logits of the decoder's tokens, given the hidden states of the encoder."""
        return cast(OnnxEncoderDecoder, self.graph).decode(batch, encoder_hidden_states)

    def target_losses(
        self, batch: Batch, targets: Sequence[Int[Tensor, "t"]]
    ) -> list[Float[Tensor, ""]]:
        """Sum the cross-entropy of each row's targets, in nats; a decoder reads token by token."""
        if self.graph.record.graph == "decoder":
            cache = self.graph.new_cache()
            logits = self.graph.logits_after(batch, cache, batch.inputs.shape[1])
        else:
            logits = self.graph.run(batch, LOGITS)
        return [
            functional.cross_entropy(row[: len(own)], own, reduction="sum")
            for row, own in zip(logits, targets, strict=True)
        ]

    def forward(self, batch: Batch, *, return_logits: bool | Collection[str] = False) -> Prediction:
        """Return the logits of the graph's head; there are no losses.

        Raises:
            ValueError: the graph has no head.
        """
        head = self.graph.record.head
        if head is None:
            raise ValueError("this ONNX graph has no head; use `embed`")
        return Prediction({self.head_specs[head].term: self.graph.run(batch, LOGITS).float()})
