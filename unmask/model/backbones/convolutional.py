"""Convolutional networks: a token's context grows with the number of layers."""

from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Batch
from unmask.model.architecture import (
    NO_LAYER_RECORDS,
    NO_MEMORY,
    NO_VIRTUAL_TOKENS,
    NOT_ONE_STACK,
    UNMIXABLE_LAYERS,
    Ability,
    AttentionPattern,
    StackArchitecture,
)
from unmask.model.cache import Cache
from unmask.model.layers.attention.query_stream import QueryStream
from unmask.model.layers.embeddings.adaptive import AdaptiveEmbedding
from unmask.model.layers.feed_forward import ACTIVATIONS, Activation, Dropout
from unmask.model.requested_states import requested_states
from unmask.model.text_layout import TextLayout
from unmask.objectives.reach import Reach


@dataclass(frozen=True, kw_only=True)
class ConvolutionalArchitecture(StackArchitecture):
    """Parallel filters of several widths (Kim 2014, doi:10.3115/v1/D14-1181, section 2)."""

    filter_widths: tuple[int, ...] = (3, 4, 5)
    """Kernel sizes of the filters; a layer has `d_model` filters in all, equally many of each
    size."""
    residual: bool = False
    """Layers above the first have residual connections."""
    activation: Activation = "relu"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.causal:
            raise ValueError("causal = True is not supported by a convolutional network")
        if not self.filter_widths or min(self.filter_widths) < 1:
            raise ValueError(
                f"filter_widths must be one or more numbers above 0, got {self.filter_widths}"
            )
        if self.d_model % len(self.filter_widths):
            raise ValueError(
                f"d_model {self.d_model} is not a multiple of {len(self.filter_widths)} "
                "filter widths"
            )

    @property
    def ignored_fields(self) -> tuple[str, ...]:
        """Fields that have no effect on this network, or only on heads."""
        return ("norm", "biases", "causal")

    @property
    def reaches(self) -> tuple[Reach, ...]:
        """What each layer reads for a token: what its widest filter spans."""
        widest = max(self.filter_widths)
        return (Reach(by="filters", before=(widest - 1) // 2, after=widest // 2),) * self.n_layers

    def with_attention_pattern(
        self, pattern: AttentionPattern, *, generates: bool = False
    ) -> "ConvolutionalArchitecture":
        """Return itself if the pattern is bidirectional.

        Raises:
            ValueError: it is not.
        """
        if pattern != "bidirectional" or generates:
            raise ValueError(
                "a convolutional network is bidirectional: the attention pattern must be "
                "'bidirectional'"
            )
        return self

    def build(self) -> "Convolutional":
        """Build the network."""
        return Convolutional(self)

    def activations(self, length: int) -> int:
        """Estimate the activations per token kept for the backward pass, as in Transformers."""
        return self.n_layers * (9 * self.d_model + 2 + 5 * length // 2)

    def flops(self, length: int) -> float:
        """Count the forward matrix-product FLOPs per token, without embedding and head."""
        weights_per_input = self.d_model // len(self.filter_widths) * sum(self.filter_widths)
        return 2.0 * weights_per_input * (self.d_embed + (self.n_layers - 1) * self.d_model)


class ConvolutionLayer(nn.Module):
    """One layer of filters; texts are padded with zeros."""

    def __init__(self, a: ConvolutionalArchitecture, d_input: int) -> None:
        super().__init__()
        n = a.d_model // len(a.filter_widths)
        self.filters = nn.ModuleList(nn.Conv1d(d_input, n, width) for width in a.filter_widths)
        self.activation = ACTIVATIONS[a.activation]

    def forward(self, x: Float[Tensor, "n l _"]) -> Float[Tensor, "n l d"]:
        """Apply the filters, centered on each token; even kernels reach one token further right."""
        outputs: list[Tensor] = []
        for conv in map(_conv, self.filters):
            (width,) = conv.kernel_size
            padded = F.pad(x.mT, ((width - 1) // 2, width // 2))
            outputs.append(conv(padded).mT)
        return self.activation(torch.cat(outputs, -1))


def _conv(module: nn.Module) -> nn.Conv1d:
    return cast(nn.Conv1d, module)


class Convolutional(nn.Module):
    """Token ids [b t] -> hidden states [b t d]."""

    def __init__(self, a: ConvolutionalArchitecture) -> None:
        super().__init__()
        self.a = a
        self.tokens = a.build_embedding_table()
        self.layers = nn.ModuleList(
            ConvolutionLayer(a, a.d_model if i else a.d_embed) for i in range(a.n_layers)
        )
        self.dropout, self.final_dropout = Dropout(a.dropout), Dropout(a.final_dropout)

    @property
    def width(self) -> int:
        """Size of the hidden states."""
        return self.a.d_model

    @property
    def embedding_table(self) -> nn.Embedding | AdaptiveEmbedding:
        """The token embeddings, which a head may be tied to."""
        return self.tokens

    @property
    def supports_last_only(self) -> bool:
        """It does not support `selected_column`."""
        return False

    @property
    def encoder_stack(self) -> "Convolutional":
        """The network that reads texts: itself."""
        return self

    @property
    def decoder_stack(self) -> "Convolutional":
        """The network whose hidden states the heads read: itself."""
        return self

    @property
    def stacks(self) -> "tuple[Convolutional, ...]":
        """All networks of one stack: itself."""
        return (self,)

    @property
    def n_token_layers(self) -> int:
        """All of its layers have a hidden state for each token."""
        return len(self.layers)

    def unsupported_reason(self, ability: Ability) -> str | None:
        """Return why an ability is not supported: none is."""
        return {
            "memory": NO_MEMORY,
            "virtual_tokens": NO_VIRTUAL_TOKENS,
            "layer_mixing": UNMIXABLE_LAYERS,
            "layer_records": NO_LAYER_RECORDS,
            **NOT_ONE_STACK,
        }[ability]

    def encode(self, batch: Batch) -> Float[Tensor, "b t _"]:
        """Run the network over the inputs of the batch."""
        return self(batch)

    def layer_states(self, batch: Batch, layer: int) -> Float[Tensor, "b t _"]:
        """Return the input of a layer or, for the number of layers, the output of the last."""
        return self.layer_outputs(batch)[layer]

    def pad_for_network(self, batch: Batch) -> Batch:
        """Return the batch as it is: no text depends on the padding after it."""
        return batch

    def new_cache(self, max_rollback: int = 0) -> Cache:
        """Refuse: it is bidirectional.

        Raises:
            ValueError: always.
        """
        raise ValueError("a convolutional network is bidirectional: it has no cache")

    def flops(self, length: int) -> float:
        """Count the forward FLOPs per token in texts of `length` tokens, without heads."""
        return self.a.flops(length)

    def layer_outputs(self, batch: Batch) -> list[Float[Tensor, "b t _"]]:
        """Return the input of the first layer and the outputs of all layers."""
        texts = TextLayout.from_batch(batch)
        outputs = [texts.to_texts(self.dropout(self.tokens(batch.inputs)))]
        for i, layer in enumerate(self.layers):
            y = layer(texts.zero_padding(outputs[-1]))
            y = y + outputs[-1] if self.a.residual and i else y
            last = i == self.a.n_layers - 1
            outputs.append(self.final_dropout(y) if last else self.dropout(y))
        return [texts.to_batch(y) for y in outputs]

    def forward(
        self, batch: Batch, cache: Cache | None = None, query_stream: QueryStream | None = None
    ) -> Float[Tensor, "b t _"]:
        """Run the network over a batch.

        Raises:
            ValueError: a query stream or a cache is given.
        """
        if query_stream is not None or cache is not None:
            raise ValueError("a convolutional network supports neither a query stream nor a cache")
        layers = self.layer_outputs(batch)
        return torch.cat(layers, -1) if requested_states(batch).all_layers else layers[-1]
