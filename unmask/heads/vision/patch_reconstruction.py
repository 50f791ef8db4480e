"""Reconstruction of hidden patches of a picture from hidden states."""

from dataclasses import dataclass
from typing import Literal, cast

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from unmask.batch import IGNORE_INDEX, Batch
from unmask.heads.prediction import Prediction, Term
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import StackArchitecture
from unmask.model.layers.embeddings.patches import PatchEmbedding, cut_into_patches
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding
from unmask.objectives.inputs.pictures import Pictures

_EPSILON = 1e-6
"""Added to the variance of a patch (He et al. 2022, released code)."""


@dataclass(frozen=True, kw_only=True)
class PatchReconstruction(HeadSpec):
    """A linear map from the hidden state of a hidden patch to its pixels.

    Xie et al. 2022 (SimMIM), arXiv:2111.09886, section 3.3, and He et al. 2022 (MAE),
    arXiv:2111.06377, section 3. Targets are where `Batch.targets` has some; their ids are not read.
    """

    term: str = "masked"
    loss: Literal["l1", "mse"] = "l1"
    """Loss of a number: its absolute error (SimMIM), or the square (MAE)."""
    normalize_targets: bool = False
    """Whether each patch is standardized by its own mean and variance (MAE, table 1d)."""

    def build(
        self, architecture: StackArchitecture, embedding_table: TokenEmbedding
    ) -> "PatchReconstructionHead":
        """Build the head of a network of patches.

        Raises:
            ValueError: the network reads no pictures, or cannot hide patches: they would be read.
        """
        if not architecture.reads_pictures:
            raise ValueError("PatchReconstruction needs a network that reads pictures, as ViT")
        if not architecture.hides_patches:
            raise ValueError("PatchReconstruction needs a vector for hidden patches: mask_token")
        return PatchReconstructionHead(
            self, architecture.d_model, cast(PatchEmbedding, embedding_table)
        )


class PatchReconstructionHead(nn.Module):
    """Pixels of patches, and the error of those that were hidden."""

    def __init__(self, spec: PatchReconstruction, d: int, patches: PatchEmbedding) -> None:
        super().__init__()
        self.spec, self.patch_size = spec, patches.patch_size
        self.width, self.n_numbers = d, patches.n_channels * patches.patch_size**2
        self.out = nn.Conv2d(d, self.n_numbers, 1)

    def flops(self, length: int, target_fraction: float) -> float:
        """Count the forward FLOPs per token."""
        return target_fraction * 2 * self.width * self.n_numbers

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the patches to reconstruct."""
        if batch.targets is None:
            return {}
        return {self.spec.term: int((batch.targets != IGNORE_INDEX).sum())}

    def pixels(self, hidden: Float[Tensor, "n d"]) -> Float[Tensor, "n _"]:
        """Compute the numbers of patches from their hidden states, in the order c, y, x."""
        return functional.linear(hidden, self.out.weight.flatten(1), self.out.bias)

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Compute the mean error over the numbers of each hidden patch.

        With `return_logits`, return the numbers of the hidden patches [n c*p*p].
        """
        if batch.targets is None:
            return Prediction()
        is_target = batch.targets != IGNORE_INDEX
        predicted = self.pixels(hidden[is_target]).float()
        expected = self._targets(batch, is_target)
        difference = predicted - expected
        error = difference.abs() if self.spec.loss == "l1" else difference.square()
        term = Term(error.mean(-1).sum(), len(predicted))
        logits = {self.spec.term: predicted} if return_logits else {}
        return Prediction(logits, {self.spec.term: term})

    def _targets(self, batch: Batch, is_target: Bool[Tensor, "b t"]) -> Float[Tensor, "n _"]:
        pictures = batch.feature(Pictures)
        if pictures is None:
            raise ValueError("patches are reconstructed from pictures, and the batch has none")
        if batch.position_ids is not None:
            raise ValueError("patches are reconstructed among all patches of a picture, in order")
        patches = cut_into_patches(pictures.pixels.float(), self.patch_size)
        own = patches[is_target[:, is_target.shape[1] - patches.shape[1] :]]
        if not self.spec.normalize_targets:
            return own
        centered = own - own.mean(-1, keepdim=True)
        return centered / (own.var(-1, keepdim=True) + _EPSILON).sqrt()
