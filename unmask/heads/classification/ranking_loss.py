"""The loss of rewards that are learned from comparisons of responses."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from unmask.batch import Batch
from unmask.heads.classification.choice_groups import ChoiceGroups
from unmask.heads.classification.label_losses import CORRECT, ChoiceCrossEntropy
from unmask.heads.prediction import Term


@dataclass(frozen=True)
class PairwiseRanking(ChoiceCrossEntropy):
    """-log sigmoid(better - worse - margin), a mean over all pairs of a group of responses.

    Of two responses the loss of Bradley and Terry 1952, doi:10.2307/2334029; of k, Ouyang et al.
    2022, arXiv:2203.02155, equation 1, where all pairs of a prompt are one element of a batch. The
    label of the best response is CORRECT, that of each later one less by 1.
    """

    margin: float = 0.0
    """Difference that is sought: Touvron et al. 2023, arXiv:2307.09288, equation 2."""

    def term(self, logits: Float[Tensor, "b 1"], batch: Batch, *, training: bool = False) -> Term:
        """Sum the loss over groups; a group is right if its best response has the only maximum."""
        labels, groups = batch.labels, ChoiceGroups.numbers_of(batch)
        assert labels is not None
        assert groups is not None
        rewards = logits[:, 0].float()
        is_pair = (groups[:, None] == groups) & (labels[:, None] > labels)
        n_pairs = torch.zeros_like(rewards).scatter_add(0, groups, is_pair.sum(1).float())
        difference = rewards[:, None] - rewards - (self.margin if training else 0.0)
        weights = is_pair / n_pairs[groups].clamp(min=1)[:, None]
        is_best = labels == CORRECT
        beaten = ((rewards[:, None] > rewards) | ~is_pair).all(1)
        total = (-F.logsigmoid(difference) * weights).sum()
        return Term(total, int(is_best.sum()), (is_best & beaten).sum())
