"""Contrastive learning of the two parts of a text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Batch, Example
from unmask.heads.prediction import Prediction, Term
from unmask.heads.pretraining.sentence_reconstruction import QuickThoughts
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import StackArchitecture
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding
from unmask.model.layers.feed_forward import ACTIVATIONS, Activation
from unmask.objectives.described import DescribedLoss


@dataclass(frozen=True, kw_only=True)
class ContrastiveLoss(HeadSpec):
    """In-batch contrastive loss: each part of a text must match the other part of the same text.

    The score of two parts is the cosine of their mean hidden states over a temperature, with a
    softmax over the second parts of the batch for each first part, and vice versa: Logeswaran and
    Lee 2018, arXiv:1803.02893, section 3, equations 1 to 3, with the mean, the cosine and the
    temperature of Giorgi et al. 2021, arXiv:2006.03659, sections 3.1 and 3.2.

    The softmax is over a micro-batch: with fewer texts the task is easier.
    """

    term: str = "neighbor"
    temperature: float = 0.05
    pooling: Literal["mean", "first"] = "mean"
    """Pooling of a part: the mean of its hidden states, or the state of its first token."""
    candidates: Literal["others", "all"] = "others"
    """Candidates for a first part: the second parts, or all other parts (Meng et al. 2021,
    arXiv:2102.08473, equation 7)."""
    transform: Activation | None = None
    """Activation of a transform before the cosine: a linear map, this activation and a norm (ibid.,
    released code, `SCLHead`). None: no transform, so the head has no weights."""

    @property
    def compares_rows(self) -> bool:
        """Whether its softmax is over the rows of a micro-batch: yes."""
        return True

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, got {self.temperature}")

    def describe_losses(self, example: Example) -> tuple[DescribedLoss, ...]:
        """Each pair of parts: which of the batch is the other one?"""
        n = 0 if example.part_ids is None else len(np.unique(example.part_ids)) - 1
        loss = "cross-entropy of the other part among those of the batch"
        return (DescribedLoss(term=self.term, n=n, loss=loss),)

    @property
    def is_kept_after_pretraining(self) -> bool:
        """Whether a trained model is saved with it: if it has weights."""
        return self.transform is not None

    def build(
        self, architecture: StackArchitecture, embedding_table: TokenEmbedding
    ) -> "ContrastiveHead":
        """Build the head of an architecture."""
        return ContrastiveHead(self, architecture)


PAIR_HEADS: Mapping[str, "ContrastiveLoss | QuickThoughts"] = {
    "neighbor": ContrastiveLoss(),
    "crop": ContrastiveLoss(term="crop", temperature=1.0, pooling="first", candidates="all"),
    "sentences_found": QuickThoughts(),
}
"""Heads of an objective over parts of a text. They have no weights, so any model can have them."""


class ContrastiveHead(nn.Module):
    """Similarities of the parts of texts, and their cross-entropy."""

    def __init__(self, spec: ContrastiveLoss, a: StackArchitecture) -> None:
        super().__init__()
        self.spec = spec
        self.dense = self.norm = None
        if spec.transform is not None:
            self.dense, self.norm = nn.Linear(a.d_model, a.d_model), a.norm.build(a.d_model)
            self.activation = ACTIVATIONS[spec.transform]

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the texts that have two parts."""
        if batch.part_ids is None:
            return {}
        return {self.spec.term: int(_has_next(_part_masks(batch.part_ids).any(1)).sum())}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Compute the loss of each text that has two parts.

        Logits are [n n]: of each first part with each second one.
        """
        if batch.part_ids is None:
            return Prediction()
        stand_for = _mean_states if self.spec.pooling == "mean" else _first_tokens
        first, second = map(self._normalize, stand_for(hidden, batch.part_ids))
        similarities = first @ second.T / self.spec.temperature
        returned_logits = {self.spec.term: similarities} if return_logits else {}
        own = torch.arange(len(similarities), device=similarities.device)
        directions = [similarities, similarities.T]
        if self.spec.candidates == "all":
            directions = [
                torch.cat((x, self._same_side_logits(v)), 1)
                for x, v in zip(directions, (first, second), strict=True)
            ]
        total = torch.stack([F.cross_entropy(x, own, reduction="sum") for x in directions]).sum()
        n_correct = (directions[0].argmax(-1) == own).sum() if len(similarities) else own.sum()
        return Prediction(
            returned_logits, {self.spec.term: Term(total / 2, len(similarities), n_correct)}
        )

    def _normalize(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        if self.dense is not None and self.norm is not None:
            x = self.norm(self.activation(self.dense(x)))
        return F.normalize(x.float(), dim=-1)

    def _same_side_logits(self, vectors: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
        """Return the similarities among parts of one side; each with itself is minus infinity."""
        similarities = vectors @ vectors.T / self.spec.temperature
        return similarities.fill_diagonal_(-torch.inf)


def _first_tokens(
    hidden: Float[Tensor, "b t d"], parts: Int[Tensor, "b t"]
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]:
    """Return the hidden states of the first tokens of both parts of each text that has two."""
    of = _part_masks(parts)
    two = _has_next(of.any(1))
    rows = torch.arange(len(parts), device=parts.device)[:, None]
    first = hidden[rows, of.int().argmax(1)]  # [b k d]
    return first[:, :-1][two], first[:, 1:][two]


def _part_masks(parts: Int[Tensor, "b t"]) -> Bool[Tensor, "b t k"]:
    """Return the part of each token."""
    return parts[..., None] == torch.arange(int(parts.max()) + 1, device=parts.device)


def _has_next(is_present: Bool[Tensor, "b k"]) -> Bool[Tensor, "b k-1"]:
    """Return which parts are followed by one of the same text."""
    return is_present[:, :-1] & is_present[:, 1:]


def _mean_states(
    hidden: Float[Tensor, "b t d"], parts: Int[Tensor, "b t"]
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]:
    """Return the means of the first and of the second part of each text that has two."""
    of = _part_masks(parts).to(hidden.dtype)
    n = of.sum(1)[..., None]
    mean = torch.einsum("btd,btk->bkd", hidden, of) / n.clamp(min=1)
    two = _has_next(n[..., 0] > 0)
    return mean[:, :-1][two], mean[:, 1:][two]
