"""Consistency training: two stochastic forwards of one batch should agree."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from unmask.batch import IGNORE_INDEX, Batch
from unmask.heads.classification.choice_groups import ChoiceGroups
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
"""Suffix of a term's name: the consistency loss of its two forwards."""


@dataclass(frozen=True)
class ConsistencyTraining:
    """Runs each batch of training twice; `loop.start_run(forward=…)` takes it instead of the model.

    The loss of each head is the mean of the two forwards'; classification heads have a second term,
    the difference of their logits. Language-modeling heads have none: their logits are never all in
    memory at once. A batch without labels, or not for training, is run once.

    Deviates: Wang et al. 2022, arXiv:2205.12410, section 3.2, has the loss of one of the two
    forwards besides their difference; here both are trained.
    """

    model: Model
    weight: float = 1.0
    """Of the second term; `AdaMix.consistency_weight`."""

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the targets of each term in this batch."""
        counts = self.model.count_targets(batch)
        again = {
            f"{name}{CONSISTENCY_SUFFIX}": counts[name] for name in self._compared_terms(counts)
        }
        return counts | again

    def __call__(self, batch: Batch) -> Prediction:
        """Run a batch, and again if logits are compared."""
        if not (compared := self._compared_terms(self.model.count_targets(batch))):
            return self.model(batch)
        labels = [
            name for name, head in self.model.heads.items() if isinstance(head, ClassificationHead)
        ]
        first, second = (self.model(batch, return_logits=labels) for _ in range(2))
        terms = {
            name: replace(term, total=(term.total + second.terms[name].total) / 2)
            for name, term in first.terms.items()
        }
        for name, loss in compared.items():
            difference = consistency_loss(loss, first.logits[name], second.logits[name], batch)
            terms[f"{name}{CONSISTENCY_SUFFIX}"] = Term(
                difference, terms[name].count, weight=self.weight
            )
        return Prediction(terms=terms)

    def _compared_terms(self, counts: dict[str, int]) -> dict[str, LabelLoss]:
        """Return the losses of the terms whose logits are compared."""
        if not self.model.training:
            return {}
        heads = self.model.heads.values()
        specs = [head.spec for head in heads if isinstance(head, ClassificationHead)]
        return {spec.term: spec.loss for spec in specs if spec.term in counts}


def consistency_loss(
    loss: LabelLoss, a: Float[Tensor, "*b labels"], b: Float[Tensor, "*b labels"], batch: Batch
) -> Float[Tensor, ""]:
    """Sum the difference of two logits over the targets.

    The mean of the two Kullback-Leibler divergences (Wang et al. 2022, section 3.2) of the
    distributions: over labels, of each label, over a group's rows. For regression, the squared
    difference.
    """
    labels = batch.labels
    assert labels is not None
    if isinstance(loss, ChoiceCrossEntropy):
        number = ChoiceGroups.numbers_of(batch)
        assert number is not None
        known = torch.zeros_like(labels).scatter_add(0, number, (labels == CORRECT).long())
        p, q = (group_log_softmax(said[:, 0], number)[0] for said in (a, b))
        return ((p.exp() - q.exp()) * (p - q) * known[number]).sum() / 2
    if isinstance(loss, BinaryCrossEntropy):
        # log p - log(1 - p) is the logit itself
        difference = (a.sigmoid() - b.sigmoid()) * (a - b) / 2
    elif a.shape[-1] == 1:
        difference = (a - b).square().squeeze(-1)
    else:
        p, q = F.log_softmax(a, -1), F.log_softmax(b, -1)
        difference = ((p.exp() - q.exp()) * (p - q)).sum(-1) / 2
    return (difference * (labels != IGNORE_INDEX)).sum()
