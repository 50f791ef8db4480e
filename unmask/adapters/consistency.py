"""Consistency training: agreement of two stochastic forward passes of a batch."""

from dataclasses import dataclass, replace

from unmask.batch import Batch
from unmask.heads.classification.label_losses import (
    LabelLoss,
)
from unmask.heads.model import Model
from unmask.heads.prediction import Prediction, Term

CONSISTENCY_SUFFIX = "_consistency"
"""Suffix of the consistency term's name."""


@dataclass(frozen=True)
class ConsistencyTraining:
    """Runs each training batch twice, in place of the model in `loop.start_run(forward=…)`.

    The loss of each head is the mean of both passes; classification heads have a second term, the
    difference of their logits. Language-modeling heads have none: their logits are never in memory
    all at once. Batches without labels, or in evaluation, are run once.

    Deviates: Wang et al. 2022, arXiv:2205.12410, section 3.2, has the loss of one pass besides the
    difference; here both are trained.
    """

    model: Model
    weight: float = 1.0
    """Weight of the second term; `AdaMix.consistency_weight`."""

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
        specs = self.model.head_specs.items()
        labels = [name for name, spec in specs if spec.label_loss is not None]
        first, second = (self.model(batch, return_logits=labels) for _ in range(2))
        terms = {
            name: replace(term, total=(term.total + second.terms[name].total) / 2)
            for name, term in first.terms.items()
        }
        for name, loss in compared.items():
            difference = loss.divergence(first.logits[name], second.logits[name], batch)
            terms[f"{name}{CONSISTENCY_SUFFIX}"] = Term(
                difference, terms[name].count, weight=self.weight
            )
        return Prediction(terms=terms)

    def _compared_terms(self, counts: dict[str, int]) -> dict[str, LabelLoss]:
        """Return the losses of the terms whose logits are compared."""
        if not self.model.training:
            return {}
        specs = self.model.head_specs.values()
        losses = ((spec, loss) for spec in specs if (loss := spec.label_loss) is not None)
        return {spec.term: loss for spec, loss in losses if spec.term in counts}
