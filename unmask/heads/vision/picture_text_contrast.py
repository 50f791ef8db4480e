"""Contrastive learning of pictures and their texts (CLIP)."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Batch, Example
from unmask.heads.prediction import Prediction, Term
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import StackArchitecture
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding
from unmask.objectives.described import DescribedLoss
from unmask.objectives.inputs.pictures import Pictures

MAX_LOGIT_SCALE = math.log(100.0)
"""Radford et al. 2021, section 2.5: scores are not multiplied by more than 100."""


@dataclass(frozen=True, kw_only=True)
class PictureTextContrast(HeadSpec):
    """Symmetric cross-entropy of pictures and texts: each must find the other in the batch.

    Radford et al. 2021, arXiv:2103.00020, figure 3: scores are the cosines of the embeddings times
    a learned number, whose logarithm is a parameter. Rows with the same picture (equal pixels) or
    the same text are no negatives of each other; the paper, with batches of 32,768, does not say.
    Pictures that augmentation has changed differently count as different ones.

    The softmax is over a micro-batch: with fewer rows the task is easier.
    """

    term: str = "contrast"
    initial_temperature: float = 0.07
    """Section 2.5."""

    def __post_init__(self) -> None:
        if not self.initial_temperature > 0:
            raise ValueError(f"initial_temperature must be above 0, got {self.initial_temperature}")

    @property
    def compares_rows(self) -> bool:
        """Whether its softmax is over the rows of a micro-batch: yes."""
        return True

    def describe_losses(self, example: Example) -> tuple[DescribedLoss, ...]:
        """The text: which of the batch is its picture, and the other way round?"""
        loss = "cross-entropy of its picture among those of the batch, and of the text for it"
        return (DescribedLoss(term=self.term, n=1, loss=loss),)

    def build(
        self, architecture: StackArchitecture, embedding_table: TokenEmbedding
    ) -> "PictureTextContrastHead":
        """Build the head."""
        return PictureTextContrastHead(self)


class PictureTextContrastHead(nn.Module):
    """The scores of all pictures with all texts, and their cross-entropy."""

    def __init__(self, spec: PictureTextContrast) -> None:
        super().__init__()
        self.spec = spec
        self.logit_scale = nn.Parameter(torch.empty(()))

    def initialize_parameters(self) -> None:
        """Set the scale to 1 / temperature."""
        nn.init.constant_(self.logit_scale, -math.log(self.spec.initial_temperature))

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the texts that have a picture."""
        if batch.feature(Pictures) is None:
            return {}
        return {self.spec.term: len(batch.inputs)}

    def scores(
        self, texts: Float[Tensor, "n p"], pictures: Float[Tensor, "m p"]
    ) -> Float[Tensor, "m n"]:
        """Return the logits of each picture with each text."""
        texts, pictures = (F.normalize(x.float(), dim=-1) for x in (texts, pictures))
        return pictures @ texts.T * self.logit_scale.float().exp()

    def forward(
        self, hidden: Float[Tensor, "b n p"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Compute the loss of each text with its picture; logits are those of `scores`."""
        pictures = batch.feature(Pictures)
        if pictures is None:
            return Prediction()
        if self.training:  # clipped, as after an update (section 2.5)
            with torch.no_grad():
                self.logit_scale.clamp_(max=MAX_LOGIT_SCALE)
        scores = self.scores(hidden[:, 0], hidden[:, 1])
        own = torch.arange(len(scores), device=scores.device)
        apart = scores.masked_fill(same_pairs(batch, pictures), -torch.inf)
        directions = (apart, apart.T)
        total = torch.stack([F.cross_entropy(x, own, reduction="sum") for x in directions]).sum()
        term = Term(total / 2, len(scores), (apart.argmax(-1) == own).sum())
        return Prediction({self.spec.term: scores} if return_logits else {}, {self.spec.term: term})


def same_pairs(batch: Batch, pictures: Pictures) -> Bool[Tensor, "b b"]:
    """Return which other rows of a batch have the same picture or the same text."""
    same = _equal_rows(pictures.pixels.flatten(1))
    document = batch.visibility.document
    texts = batch.inputs if document is None else torch.cat((batch.inputs, document), 1)
    return (same | _equal_rows(texts)).fill_diagonal_(False)


def _equal_rows(x: Tensor) -> Bool[Tensor, "b b"]:
    """Return which rows are equal in every number."""
    number = torch.unique(x, dim=0, return_inverse=True)[1]
    return number[:, None] == number
