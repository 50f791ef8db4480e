"""Corrective language modeling: copy each token, or predict the original (COCO-LM)."""

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from unmask.batch import Batch
from unmask.heads.language.language_modeling import LanguageModeling, LanguageModelingHead
from unmask.heads.language.linear_cross_entropy import ROWS_PER_CHUNK
from unmask.heads.prediction import Prediction, Term
from unmask.heads.pretraining.generator_inputs import GeneratorInputs
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import StackArchitecture
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding, require_embedding_table
from unmask.model.layers.feed_forward import Activation


@dataclass(frozen=True, kw_only=True)
class CorrectiveLM(HeadSpec):
    """Predicts for each token whether to copy it, and otherwise the original.

    Meng et al. 2021, arXiv:2102.08473, section 3.2, equations 3 to 6. With c the probability to
    copy and p that of the language model, the loss of a masked token x is
    -log(c [x is there] + (1 - c) p(x)), without gradient to c; c is trained by a binary loss of
    every token.
    """

    required_term: ClassVar[str] = "masked"
    """The term that an objective must have for this one to be computed, too."""
    term: str = "corrected"
    copy_term: str = "copied"
    """The name of the copy term."""
    transform: Activation | None = None
    """What comes before the logits of tokens, as in `LanguageModeling` (released code, `CLMHead`:
    none)."""
    weight: float = 1.0
    copy_weight: float = 50.0
    """Section 4.1 and appendix B."""

    @property
    def objective_term(self) -> str:
        """The term that an objective must have for this one to be computed, too."""
        return self.required_term

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
        """Count the forward's FLOPs per token: of the output layer."""
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
        there, asked = batch.inputs == original, _corruptible(batch)
        each = F.binary_cross_entropy_with_logits(copy, there.float(), reduction="none")
        right = ((copy > 0) == there) & asked
        terms = {
            self.spec.copy_term: Term(
                (each * asked).sum(), int(asked.sum()), right.sum(), self.spec.copy_weight
            )
        }
        where = torch.arange(there.numel(), device=copy.device)
        where = where if batch.target_positions is None else batch.target_positions
        rows = [x.flatten(0, 1)[where] for x in (hidden, copy.detach(), there, original)]
        total = right = copy.new_zeros(())
        for i in range(0, len(where), ROWS_PER_CHUNK):
            part = [x[i : i + ROWS_PER_CHUNK] for x in rows]
            lost, hits = cast(
                tuple[Tensor, Tensor], checkpoint(self._loss, *part, use_reentrant=False)
            )
            total, right = total + lost, right + hits
        terms[self.spec.term] = Term(total, len(where), right.long(), self.spec.weight)
        kept = {self.spec.term: self.language.logits(rows[0])} if return_logits else {}
        return Prediction(kept, terms)

    def _loss(
        self,
        hidden: Float[Tensor, "n d"],
        copy_logits: Float[Tensor, "n"],
        is_original: Bool[Tensor, "n"],
        original: Int[Tensor, "n"],
    ) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
        scores = self.language.logits(hidden).float()
        named = F.logsigmoid(-copy_logits) - F.cross_entropy(scores, original, reduction="none")
        copied = F.logsigmoid(copy_logits).masked_fill(~is_original, -torch.inf)
        said = torch.where((copy_logits > 0) & is_original, original, scores.argmax(-1))
        return -torch.logaddexp(named, copied).sum(), (said == original).sum()


def _corruptible(batch: Batch) -> Bool[Tensor, "b t"]:
    """Return which tokens may have been replaced: none of second parts."""
    read = batch.is_token()
    return read if batch.part_ids is None else read & (batch.part_ids % 2 == 0)
