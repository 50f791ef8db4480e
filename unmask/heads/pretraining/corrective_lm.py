"""Corrective language modeling: copy each token, or predict the original (COCO-LM)."""

from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.heads.language.language_modeling import LanguageModeling, LanguageModelingHead
from unmask.heads.language.linear_cross_entropy import ROWS_PER_CHUNK
from unmask.heads.prediction import Prediction, Term
from unmask.heads.pretraining.generator_inputs import GeneratorInputs
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import StackArchitecture
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding, require_embedding_table
from unmask.model.layers.feed_forward import Activation
from unmask.objectives.described import (
    DescribedInputs,
    DescribedLoss,
    count_targets,
    original_tokens,
)


@dataclass(frozen=True, kw_only=True)
class CorrectiveLM(HeadSpec):
    """Predicts for each token whether to copy it and, if not, the original.

    Meng et al. 2021, arXiv:2102.08473, section 3.2, equations 3 to 6. Let c be the probability of
    copying and p the language model's. The loss of a masked token x is
    -log(c [x is the input] + (1 - c) p(x)), without a gradient to c; c is trained by a binary loss
    over all tokens.
    """

    required_term: ClassVar[str] = "masked"
    """The term that an objective must have for this one to be computed, too."""
    term: str = "corrected"
    copy_term: str = "copied"
    """The name of the copy term."""
    transform: Activation | None = None
    """Activation of a transform before the logits, as in `LanguageModeling` (released code,
    `CLMHead`: none)."""
    weight: float = 1.0
    copy_weight: float = 50.0
    """Weight of the copy loss (section 4.1 and appendix B)."""

    @property
    def objective_term(self) -> str:
        """The term that an objective must have for this one to be computed, too."""
        return self.required_term

    def describe_losses(self, example: Example) -> tuple[DescribedLoss, ...]:
        """The token at each target, and of all tokens of the first part: is it to be copied?"""
        copied = "binary cross-entropy: is the token the original?"
        n = int(_first_part(example).sum())
        token = "cross-entropy of the original token, copied or predicted"
        return (
            DescribedLoss(term=self.copy_term, n=n, loss=copied, weight=self.copy_weight),
            DescribedLoss(term=self.term, n=count_targets(example), loss=token, weight=self.weight),
        )

    def describe_inputs(
        self, example: Example, drawn: Int[np.ndarray, "t"], source: str
    ) -> tuple[DescribedInputs, ...]:
        """Return what the model reads, with the original token at targets."""
        replaced = drawn != original_tokens(example)
        answers = [
            int(target) if target != IGNORE_INDEX else "copy" if first else None
            for target, first in zip(example.targets, _first_part(example), strict=True)
        ]
        segments = None if example.part_ids is None else example.part_ids.tolist()
        return (
            DescribedInputs(
                title=f"inputs of the model, tokens at targets {source}",
                ids=drawn,
                answers=answers,
                replaced=replaced,
                segments=segments,
            ),
        )

    def build(
        self, architecture: StackArchitecture, embedding_table: TokenEmbedding
    ) -> "CorrectiveLMHead":
        """Build the head of an architecture with token embeddings `embedding_table`."""
        return CorrectiveLMHead(self, architecture, require_embedding_table(embedding_table))


class CorrectiveLMHead(nn.Module):
    """Logits of tokens, and of copying."""

    def __init__(
        self, spec: CorrectiveLM, a: StackArchitecture, embedding_table: nn.Embedding
    ) -> None:
        super().__init__()
        self.spec = spec
        # Where token embeddings are smaller, a projection comes before the output layer.
        transform = spec.transform or (None if a.d_embed == a.d_model else "gelu")
        names = LanguageModeling(term=spec.term, transform=transform, bias=True)
        self.language: LanguageModelingHead = names.build(a, embedding_table)
        self.copy = nn.Linear(a.d_model, 1)

    def flops(self, length: int, target_fraction: float) -> float:
        """Count the forward FLOPs per token: of the output layer."""
        return self.language.flops(length, target_fraction)

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the masked tokens, and all tokens of texts that have some."""
        if batch.targets is None:
            return {}
        return self.language.count_targets(batch) | {
            self.spec.copy_term: int(_corruptible(batch).sum())
        }

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Compute the copy loss of each token, and the token loss of masked ones."""
        generated = batch.feature(GeneratorInputs)
        if generated is None or batch.targets is None:
            return Prediction()
        original = generated.original_ids
        copy = self.copy(hidden)[..., 0].float()
        is_original, is_target = batch.inputs == original, _corruptible(batch)
        copy_losses = F.binary_cross_entropy_with_logits(
            copy, is_original.float(), reduction="none"
        )
        is_correct = ((copy > 0) == is_original) & is_target
        terms = {
            self.spec.copy_term: Term(
                (copy_losses * is_target).sum(),
                int(is_target.sum()),
                is_correct.sum(),
                self.spec.copy_weight,
            )
        }
        where = torch.arange(is_original.numel(), device=copy.device)
        where = where if batch.target_positions is None else batch.target_positions
        rows = [x.flatten(0, 1)[where] for x in (hidden, copy.detach(), is_original, original)]
        total = n_correct = copy.new_zeros(())
        for i in range(0, len(where), ROWS_PER_CHUNK):
            part = [x[i : i + ROWS_PER_CHUNK] for x in rows]
            loss, hits = cast(
                tuple[Tensor, Tensor], checkpoint(self._loss, *part, use_reentrant=False)
            )
            total, n_correct = total + loss, n_correct + hits
        terms[self.spec.term] = Term(total, len(where), n_correct.long(), self.spec.weight)
        logits = {self.spec.term: self.language.logits(rows[0])} if return_logits else {}
        return Prediction(logits, terms)

    def _loss(
        self,
        hidden: Float[Tensor, "n d"],
        copy_logits: Float[Tensor, "n"],
        is_original: Bool[Tensor, "n"],
        original: Int[Tensor, "n"],
    ) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
        scores = self.language.logits(hidden).float()
        generated = F.logsigmoid(-copy_logits) - F.cross_entropy(scores, original, reduction="none")
        copied = F.logsigmoid(copy_logits).masked_fill(~is_original, -torch.inf)
        predictions = torch.where((copy_logits > 0) & is_original, original, scores.argmax(-1))
        return -torch.logaddexp(generated, copied).sum(), (predictions == original).sum()


def _corruptible(batch: Batch) -> Bool[Tensor, "b t"]:
    """Return a mask of tokens that may have been replaced: none in second parts."""
    is_token = batch.is_token()
    return is_token if batch.part_ids is None else is_token & (batch.part_ids % 2 == 0)


def _first_part(example: Example) -> Bool[np.ndarray, "t"]:
    """Return which tokens of an example may have been replaced."""
    if example.part_ids is None:
        return np.ones(len(example.inputs), bool)
    return example.part_ids == 0
