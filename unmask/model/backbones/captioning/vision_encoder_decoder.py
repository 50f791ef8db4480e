"""A Vision Transformer, and a decoder of texts that attends to its patches.

Li et al. 2023, arXiv:2109.10282, section 2.1; the network of transformers' VisionEncoderDecoder.
"""

from dataclasses import dataclass, replace
from typing import cast

from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.model.backbones.encoder_decoder import TwoStackArchitecture, TwoStackNetwork
from unmask.model.backbones.transformer import Architecture
from unmask.model.backbones.vision_transformer import VisionArchitecture, VisionTransformer
from unmask.objectives.inputs.pictures import Pictures


@dataclass(frozen=True, kw_only=True)
class VisionEncoderDecoderArchitecture(TwoStackArchitecture):
    """An encoder of pictures and a decoder of texts, as a value.

    Where their widths differ, a linear map takes hidden states of the encoder to the decoder's.
    """

    encoder: VisionArchitecture
    decoder: Architecture

    def __post_init__(self) -> None:
        """Check that the decoder generates from what it attends to, with a table of its own."""
        a = self.decoder
        if not (a.causal and a.cross_attention) or a.adaptive_input is not None:
            raise ValueError(
                "decoder must have causal = True, cross_attention = True and no adaptive_input, "
                f"got {a.causal}, {a.cross_attention} and {a.adaptive_input}"
            )

    @property
    def max_positions(self) -> int | None:
        """The length of the longest text, which the decoder reads. None: there is none."""
        return self.decoder.max_positions

    @property
    def projects_pictures(self) -> bool:
        """Whether the stacks differ in width, so that there is a map from one to the other."""
        return self.encoder.d_model != self.decoder.d_model

    def build(self) -> "VisionEncoderDecoder":
        """Build the network."""
        return VisionEncoderDecoder(self)

    def with_vocab_size(self, vocab_size: int) -> "VisionEncoderDecoderArchitecture":
        """Return a copy with another number of token embeddings of the decoder."""
        return replace(self, decoder=self.decoder.with_vocab_size(vocab_size))


class VisionEncoderDecoder(TwoStackNetwork):
    """Pictures and token ids -> hidden states of the decoder [b t d]."""

    def __init__(self, a: VisionEncoderDecoderArchitecture) -> None:
        tokens = nn.Embedding(a.vocab_size, a.decoder.d_embed)
        super().__init__(a, tokens, VisionTransformer(a.encoder), a.decoder)
        self.projection = (
            nn.Linear(a.encoder.d_model, a.decoder.d_model) if a.projects_pictures else None
        )

    def source_of(self, batch: Batch) -> Batch:
        """Return the pictures of a batch as a batch of their own.

        Raises:
            ValueError: there are none.
        """
        pictures = batch.feature(Pictures)
        if batch.source is None or pictures is None:
            raise ValueError("this network describes pictures, and the batch has none")
        return replace(super().source_of(batch), features=(pictures,))

    def encode(self, batch: Batch) -> Float[Tensor, "b s d"]:
        """Run the encoder over the pictures of the batch."""
        hidden = super().encode(batch)
        return hidden if self.projection is None else self.projection(hidden)

    def flops(self, length: int) -> float:
        """Count the forward FLOPs per token, the mean over a text and its picture."""
        columns = cast(VisionArchitecture, self.a.encoder).position.max_positions
        pictures = self.encoder.flops(columns) * columns
        return (pictures + self.decoder.flops(length) * length) / (columns + length)
