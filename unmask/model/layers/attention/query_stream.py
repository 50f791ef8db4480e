"""Query streams, which predict a token without seeing its content (DeBERTa, XLNet)."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.model.layers.attention.attention import AttentionMask
from unmask.model.layers.feed_forward import AttentionDimensions, Dropout
from unmask.model.layers.layer_pass import AllColumns, LayerInputs, LayerPass, keys_of
from unmask.model.positions.learned import LearnedPositions, LearnedPositionsModule


@dataclass(frozen=True)
class EnhancedMaskDecoder:
    """The enhanced mask decoder: absolute positions are added after the backbone.

    He et al. 2021, arXiv:2006.03654, section 3.2 and appendix A.8. Let H be the output of the
    last layer but one. H provides the keys and values of the last layer, and H plus position
    embeddings the queries; the layer is then applied again to its own output as queries. The last
    layer's output for H itself is not computed (released code, `EnhancedMaskDecoder`).

    Deviates: all tokens are queries, as in the released code; the masked ones would be enough
    (appendix A.7).
    """

    max_positions: int = 512
    """Length of the longest text."""
    n_passes: int = 2
    """Number of applications of the last layer (appendix A.8: n)."""

    def __post_init__(self) -> None:
        if self.n_passes < 1:
            raise ValueError(f"n_passes must be at least 1, got {self.n_passes}")

    def build(self, dimensions: AttentionDimensions) -> "EnhancedMaskDecoderModule":
        """Build the position embeddings [max_positions d].

        Raises:
            ValueError: token embeddings are smaller than hidden states.
        """
        if dimensions.d_embed != dimensions.d_model:
            raise ValueError(
                "EnhancedMaskDecoder adds position embeddings to hidden states of size "
                f"{dimensions.d_model}, but embedding_size is {dimensions.d_embed}"
            )
        return EnhancedMaskDecoderModule(self, dimensions)


class EnhancedMaskDecoderModule(LearnedPositionsModule):
    """Computes the initial queries; the last layer itself belongs to the backbone."""

    sees_content: ClassVar[bool] = True

    def __init__(self, part: EnhancedMaskDecoder, dimensions: AttentionDimensions) -> None:
        super().__init__(LearnedPositions(part.max_positions), dimensions)
        self.n_passes = part.n_passes

    def extra_cost(self, n_layers: int) -> float:
        """Return the additional FLOPs as a fraction of those of all layers."""
        return (self.n_passes - 1) / n_layers

    def forward(
        self, hidden: Float[Tensor, "b t d"], position_ids: Int[Tensor, "#b t"]
    ) -> Float[Tensor, "b t d"]:
        """Add the embedding of each position."""
        return hidden + self.embed(position_ids)

    def layer_pass(self, position_ids: Int[Tensor, "#b t"]) -> LayerPass:
        """Return the pass of columns through the layers."""
        return _EnhancedMaskDecoderPass(self, position_ids)


class _EnhancedMaskDecoderPass(AllColumns):
    """All columns pass the layers but the last; queries pass that one `n_passes` times."""

    needs_last: ClassVar[bool] = True

    def __init__(
        self, decoder: EnhancedMaskDecoderModule, position_ids: Int[Tensor, "#b t"]
    ) -> None:
        self.decoder, self.position_ids = decoder, position_ids

    def __call__(
        self, layer: nn.Module, x: Float[Tensor, "b t d"], inputs: LayerInputs
    ) -> Float[Tensor, "b t d"]:
        """Apply the layer."""
        if not inputs.is_last:
            return super().__call__(layer, x, inputs)
        queries, cached = self.decoder(x, self.position_ids), False
        for _ in range(self.decoder.n_passes):
            keys = None if cached else keys_of(layer, x, inputs.memory)
            queries = layer(queries, inputs.attending_to(keys))
            cached = inputs.cache is not None
        return queries


@dataclass(frozen=True)
class TwoStreamAttention:
    """Two-stream attention: the query of a token depends on its position and context only.

    Yang et al. 2019, arXiv:1906.08237, section 2.3: the query stream starts from one learned vector
    at all positions, passes through all layers and attends to the content stream of each.
    """

    def build(self, dimensions: AttentionDimensions) -> "TwoStreamAttentionModule":
        """Build the initial query vector [d]."""
        return TwoStreamAttentionModule(dimensions)


class TwoStreamAttentionModule(nn.Module):
    """Computes the initial queries; the layers belong to the backbone."""

    sees_content: ClassVar[bool] = False

    def __init__(self, dimensions: AttentionDimensions) -> None:
        super().__init__()
        self.asks = nn.Parameter(torch.empty(1, 1, dimensions.d_model))
        self.dropout = Dropout(dimensions.dropout)

    def initialize_parameters(self) -> None:
        """Fill the vector from N(0, 0.02) (released code, `initializer_range`)."""
        nn.init.normal_(self.asks, std=0.02)

    def extra_cost(self, n_layers: int) -> float:
        """Return the additional FLOPs as a fraction of those of all layers."""
        return 1.0

    def forward(self, hidden: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        """Return the same vector for all positions."""
        return self.dropout(self.asks.expand_as(hidden))

    def layer_pass(self, position_ids: Int[Tensor, "#b t"]) -> LayerPass:
        """Return the pass of both streams through the layers."""
        return _TwoStreamPass(self)


class _TwoStreamPass(AllColumns):
    """The pass of queries, which do not attend to their own column, and of the content stream."""

    needs_last: ClassVar[bool] = True

    def __init__(self, module: TwoStreamAttentionModule) -> None:
        self.module = module
        self.queries: Tensor | None = None
        self.mask: AttentionMask | None = None

    def __call__(
        self, layer: nn.Module, x: Float[Tensor, "b t d"], inputs: LayerInputs
    ) -> Float[Tensor, "b t d"]:
        """Apply the layer to the queries and, unless it is the last, to the content stream."""
        if self.queries is None or self.mask is None:
            self.queries = self.module(x)
            self.mask = AttentionMask.excluding_self(inputs.visibility, x.shape[1], inputs.n_keys)
        query_inputs = inputs.attending_to(keys_of(layer, x, inputs.memory))
        self.queries = queries = layer(
            self.queries, replace(query_inputs, attention_mask=self.mask)
        )
        return queries if inputs.is_last else super().__call__(layer, x, inputs)


QueryStream = EnhancedMaskDecoderModule | TwoStreamAttentionModule
"""If it `sees_content`, queries contain their own token."""
