"""Reconstruction of hidden patches by a decoder over all patches (MAE)."""

from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch, ExampleRows, Feature
from unmask.heads.prediction import Prediction
from unmask.heads.vision.patch_reconstruction import (
    PatchReconstruction,
    PatchReconstructionHead,
)
from unmask.model.architecture import StackArchitecture
from unmask.model.backbones.transformer import Transformer
from unmask.model.backbones.vision_transformer import MaskedAutoencoder, VisionArchitecture
from unmask.model.layers.embeddings.patches import PatchDecoderEmbedding, PatchEmbedding
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding
from unmask.model.positions.grid import GridPositionsModule
from unmask.objectives.inputs.pictures import Pictures


@dataclass(frozen=True)
class EncodedPatches(Feature):
    """What the decoder reads: the encoder's states of the patches that are seen."""

    states: Float[Any, "*b t d"]

    @classmethod
    def collate(cls, rows: ExampleRows) -> "EncodedPatches":
        """Raise: they are computed, never a part of examples."""
        raise ValueError("encoded patches are not read from examples")


@dataclass(frozen=True, kw_only=True)
class MaskedAutoencoding(PatchReconstruction):
    """A decoder over all patches, and a linear map to the pixels of those that were hidden.

    He et al. 2022, arXiv:2111.06377, section 3. The size of the decoder is the architecture's, and
    so is whether targets are standardized.
    """

    loss: Literal["l1", "mse"] = "mse"

    @property
    def is_kept_after_pretraining(self) -> bool:
        """True: it shows what the network makes of a picture."""
        return True

    def read_share(self, target_fraction: float) -> float:
        """Return the share of the patches that are seen."""
        return 1 - target_fraction

    def own_stack(self, architecture: StackArchitecture) -> StackArchitecture:
        """Return the decoder."""
        return cast(MaskedAutoencoder, architecture).decoder_architecture()

    def build(
        self, architecture: StackArchitecture, embedding_table: TokenEmbedding
    ) -> "MaskedAutoencodingHead":
        """Build the decoder.

        Raises:
            ValueError: the network is not a masked autoencoder.
        """
        if not architecture.hides_patches or not hasattr(architecture, "decoder"):
            raise ValueError("MaskedAutoencoding needs a MaskedAutoencoder as its network")
        return MaskedAutoencodingHead(
            self, cast(MaskedAutoencoder, architecture), cast(PatchEmbedding, embedding_table)
        )


class PatchDecoderStack(Transformer):
    """The decoder: Transformer blocks over special tokens and all patches."""

    def __init__(self, encoder: MaskedAutoencoder) -> None:
        a = encoder.decoder_architecture()
        super().__init__(a, PatchDecoderEmbedding(encoder.d_model, a.d_embed))
        self.patch_size = a.patch_size

    def embed(self, batch: Batch, n_past: int = 0) -> Float[Tensor, "b t d"]:
        """Sum the narrowed states and the positions of all patches."""
        encoded, pictures = batch.feature(EncodedPatches), batch.feature(Pictures)
        assert encoded is not None
        assert pictures is not None
        x = cast(PatchDecoderEmbedding, self.tokens)(batch.inputs, encoded.states)
        rows, columns = (side // self.patch_size for side in pictures.pixels.shape[2:])
        table = cast(GridPositionsModule, self.position).resized(rows, columns)
        return self.dropout(self.embed_norm(x + table.to(x.dtype)))


class MaskedAutoencodingHead(PatchReconstructionHead):
    """Pixels of all patches, and the error of those that were hidden."""

    def __init__(
        self, spec: MaskedAutoencoding, encoder: MaskedAutoencoder, patches: PatchEmbedding
    ) -> None:
        resolved = replace(spec, normalize_targets=encoder.normalize_targets)
        super().__init__(resolved, encoder.decoder.d_model, patches)
        self.n_channels = patches.n_channels
        self.out = nn.Linear(encoder.decoder.d_model, encoder.patch_width)
        self.decoder = PatchDecoderStack(encoder)
        self.encoder_width = encoder.d_model

    def flops(self, length: int, target_fraction: float) -> float:
        """Count the forward FLOPs per token, those of the decoder included."""
        a = cast(VisionArchitecture, self.decoder.a)
        blocks = self.decoder.flops(length) - 2 * a.patch_width * a.d_model  # it reads no pixels
        narrowed = 2 * self.encoder_width * a.d_model * (1 - target_fraction)
        return blocks + narrowed + super().flops(length, target_fraction)

    def pixels(self, hidden: Float[Tensor, "n d"]) -> Float[Tensor, "n _"]:
        """Compute the numbers of patches in the order c, y, x; the published map has y, x, c."""
        side, channels = self.patch_size, self.n_channels
        return self.out(hidden).unflatten(-1, (side, side, channels)).movedim(-1, -3).flatten(-3)

    def decode(self, hidden: Float[Tensor, "b t d"], batch: Batch) -> Float[Tensor, "b t e"]:
        """Run the decoder over all patches.

        Raises:
            ValueError: the batch has no pictures, or only some of their patches.
        """
        if batch.feature(Pictures) is None:
            raise ValueError("patches are reconstructed from pictures, and the batch has none")
        if batch.position_ids is not None:
            raise ValueError("patches are reconstructed among all patches of a picture, in order")
        return self.decoder(
            Batch(inputs=batch.inputs, features=batch.features).with_feature(EncodedPatches(hidden))
        )

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Compute the mean squared error over the numbers of each hidden patch.

        With `return_logits`, return the numbers of the hidden patches [n c*p*p].
        """
        if batch.targets is None:
            return Prediction()
        return super().forward(self.decode(hidden, batch), batch, return_logits=return_logits)
