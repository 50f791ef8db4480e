"""Consistency: a loss that two readings of one batch, which differ by chance, should agree."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from unmask.batch import IGNORE_INDEX, Batch
from unmask.heads.classification.sequence_classification import (
    CORRECT,
    BinaryCrossEntropy,
    ChoiceCrossEntropy,
    LabelLoss,
    SequenceClassificationHead,
    TokenClassificationHead,
    group_log_softmax,
)
from unmask.heads.model import Model
from unmask.heads.prediction import Prediction, Term

ClassificationHead = SequenceClassificationHead | TokenClassificationHead
CONSISTENCY_SUFFIX = "_consistency"
"""After the name of a term: the loss that its two readings differ by."""


@dataclass(frozen=True)
class ConsistencyTraining:
    """Reads each batch of training twice; `loop.start(forward=…)` takes it in place of the model.

    The loss of each head is the mean of the two readings'; heads of labels have a second term, how
    far their scores differ. Heads that name tokens have none: their scores are never all held at
    once. A batch that asks no head of labels, or is not for training, is read once.

    Deviates: Wang et al. 2022, arXiv:2205.12410, section 3.2, has the loss of one of the two
    readings beside their difference; the mean of both learns from both.
    """

    model: Model
    weight: float = 1.0
    """Of the second term; `AdaMix.consistency`."""

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the places that each term asks of this batch."""
        counts = self.model.count_targets(batch)
        again = {f"{name}{CONSISTENCY_SUFFIX}": counts[name] for name in self._compared_terms(counts)}
        return counts | again

    def __call__(self, batch: Batch) -> Prediction:
        """Read a batch, and again if that is compared."""
        if not (compared := self._compared_terms(self.model.count_targets(batch))):
            return self.model(batch)
        labels = [name for name, head in self.model.heads.items() if isinstance(head, ClassificationHead)]
        first, second = (self.model(batch, scores=labels) for _ in range(2))
        terms = {
            name: replace(term, total=(term.total + second.terms[name].total) / 2)
            for name, term in first.terms.items()
        }
        for name, loss in compared.items():
            apart = consistency_loss(loss, first.scores[name], second.scores[name], batch)
            terms[f"{name}{CONSISTENCY_SUFFIX}"] = Term(apart, terms[name].count, weight=self.weight)
        return Prediction(terms=terms)

    def _compared_terms(self, counts: dict[str, int]) -> dict[str, LabelLoss]:
        """Say what the terms are about whose scores are compared."""
        if not self.model.training:
            return {}
        heads = self.model.heads.values()
        specs = [head.spec for head in heads if isinstance(head, ClassificationHead)]
        return {spec.term: spec.loss for spec in specs if spec.term in counts}


def consistency_loss(
    loss: LabelLoss, a: Float[Tensor, "*b labels"], b: Float[Tensor, "*b labels"], batch: Batch
) -> Float[Tensor, ""]:
    """Sum over the places asked how far two scores of labels differ.

    The mean of the two Kullback-Leibler divergences (Wang et al. 2022, section 3.2) of what the
    scores say: shares of labels, whether a label holds, shares of a group's rows. Of a single
    number, the squared difference.
    """
    labels = batch.labels
    assert labels is not None
    if isinstance(loss, ChoiceCrossEntropy):
        assert batch.choice_groups is not None
        known = torch.zeros_like(labels).scatter_add(0, batch.choice_groups, (labels == CORRECT).long())
        p, q = (group_log_softmax(said[:, 0], batch.choice_groups)[0] for said in (a, b))
        return ((p.exp() - q.exp()) * (p - q) * known[batch.choice_groups]).sum() / 2
    if isinstance(loss, BinaryCrossEntropy):
        # log p - log(1 - p) is the score itself
        apart = (a.sigmoid() - b.sigmoid()) * (a - b) / 2
    elif a.shape[-1] == 1:
        apart = (a - b).square().squeeze(-1)
    else:
        p, q = F.log_softmax(a, -1), F.log_softmax(b, -1)
        apart = ((p.exp() - q.exp()) * (p - q)).sum(-1) / 2
    return (apart * (labels != IGNORE_INDEX)).sum()
