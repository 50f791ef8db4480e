"""Convolutional networks: each token reads its neighbors, the farther the more layers there are."""

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Batch
from unmask.model.adaptive import AdaptiveEmbedding
from unmask.model.architecture import Architecture, Sees
from unmask.model.cache import Cache
from unmask.model.decoder import Asker
from unmask.model.parts import ACTIVATIONS, Activation, Dropout
from unmask.model.positions import InOrder, Position
from unmask.model.texts import Texts
from unmask.model.transformer import table_of


@dataclass(frozen=True, kw_only=True)
class ConvolutionalArchitecture(Architecture):
    """Filters of several widths side by side (Kim 2014, doi:10.3115/v1/D14-1181, section 2)."""

    n_heads: int = 1
    d_ff: int = 1
    widths: tuple[int, ...] = (3, 4, 5)
    """Tokens that the filters read; a layer has as many of each width, `d_model` in all."""
    residual: bool = False
    """What a layer above the first reads is added to what it says."""
    activation: Activation = "relu"
    position: Position = InOrder()

    no: ClassVar[tuple[str, ...]] = (
        "n_kv_heads", "kinds", "shared", "window", "dilation", "global_attention", "n_segments",
        "norm_embedding", "norm_final", "query_key_norm", "attention_gate", "mixed", "parallel",
        "convolution", "gated", "scale", "score_cap", "cross", "causal", "layer_dropout",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.no:
            if getattr(self, name):
                raise ValueError(f"{name} = {getattr(self, name)!r} is nothing that filters have")
        if self.position != InOrder():
            raise ValueError(f"filters know the order of tokens alone, got {self.position}")
        if not self.widths or min(self.widths) < 1:
            raise ValueError(f"widths must be one or more numbers above 0, got {self.widths}")
        if self.d_model % len(self.widths):
            raise ValueError(
                f"d_model {self.d_model} is not a multiple of {len(self.widths)} widths"
            )

    @property
    def unread(self) -> tuple[str, ...]:
        """Fields that say nothing of this network: also those of Transformers."""
        return (
            *self.no, "n_heads", "d_ff", "position", "norm", "norm_at", "bias",
            "attention_dropout", "feed_forward_dropout",
        )  # fmt: skip

    def reading(self, sees: Sees, *, writes: bool = False) -> "ConvolutionalArchitecture":
        """Return itself for texts that are seen as a whole.

        Raises:
            ValueError: less than that is to be seen.
        """
        if sees != "both_ways" or writes:
            raise ValueError("filters read what follows, too: a text is seen as a whole only")
        return self

    def flops(self, length: int) -> float:
        """Count the forward's matrix-product FLOPs a token, embedding and head apart."""
        each = self.d_model // len(self.widths) * sum(self.widths)
        return 2.0 * each * (self.d_embed + (self.n_layers - 1) * self.d_model)


class Filters(nn.Module):
    """One layer: the neighborhood of each token, zeros beyond the ends of its text."""

    def __init__(self, a: ConvolutionalArchitecture, read: int) -> None:
        super().__init__()
        said = a.d_model // len(a.widths)
        self.filters = nn.ModuleList(nn.Conv1d(read, said, width) for width in a.widths)
        self.activation = ACTIVATIONS[a.activation]

    def forward(self, x: Float[Tensor, "n l _"]) -> Float[Tensor, "n l d"]:
        """Read each token's neighbors, itself in the middle, or right before it."""
        said: list[Tensor] = []
        for one in map(_conv, self.filters):
            (width,) = one.kernel_size
            around = F.pad(x.mT, ((width - 1) // 2, width // 2))
            said.append(one(around).mT)
        return self.activation(torch.cat(said, -1))


def _conv(module: nn.Module) -> nn.Conv1d:
    return cast(nn.Conv1d, module)


class Convolutional(nn.Module):
    """Token ids [b t] -> hidden states [b t d]."""

    def __init__(self, a: ConvolutionalArchitecture) -> None:
        super().__init__()
        self.a = a
        self.tokens = table_of(a)
        self.layers = nn.ModuleList(
            Filters(a, a.d_model if i else a.d_embed) for i in range(a.n_layers)
        )
        self.dropout, self.final_dropout = Dropout(a.dropout), Dropout(a.final_dropout)

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
        """It cannot make `batch.only`."""
        return False

    def roomy(self, batch: Batch) -> Batch:
        """Return the batch as it is: no text depends on the padding behind it."""
        return batch

    def new_cache(self, back: int = 0) -> Cache:
        """Refuse: it reads what follows.

        Raises:
            ValueError: always.
        """
        raise ValueError("a convolutional network reads a text at once, not piece by piece")

    def flops(self, length: int) -> float:
        """Count the forward's FLOPs a token in texts of `length` tokens, heads apart."""
        return self.a.flops(length)

    def each(self, batch: Batch) -> list[Float[Tensor, "b t _"]]:
        """Return what enters the first layer and what each layer says, the last one at last."""
        texts = Texts.of(batch)
        said = [texts.apart(self.dropout(self.tokens(batch.inputs)))]
        for i, layer in enumerate(self.layers):
            y = layer(texts.clean(said[-1]))
            y = y + said[-1] if self.a.residual and i else y
            last = i == self.a.n_layers - 1
            said.append(self.final_dropout(y) if last else self.dropout(y))
        return [texts.together(y) for y in said]

    def forward(
        self, batch: Batch, cache: Cache | None = None, decoder: Asker | None = None
    ) -> Float[Tensor, "b t _"]:
        """Read a batch.

        Raises:
            ValueError: something is to ask its layers, which nothing can.
        """
        if decoder is not None or cache is not None:
            raise ValueError("nothing asks the layers of a convolutional network")
        layers = self.each(batch)
        return torch.cat(layers, -1) if batch.all_layers else layers[-1]
