"""Consistency: a loss that two readings of one batch, which differ by chance, should agree."""

from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from unmask.batch import IGNORE, Batch
from unmask.heads.labels import LabelsHead, TokenLabelsHead
from unmask.heads.model import Model
from unmask.heads.prediction import Prediction, Term

SUFFIX = "_consistency"
"""After the name of a term: the loss that its two readings differ by."""


@dataclass(frozen=True)
class Consistent:
    """Reads each batch of training twice; `loop.start(forward=…)` takes it in place of the model.

    The loss of each head is the mean of the two readings'; heads of labels have a second term, how
    far their scores differ. Heads that name tokens have none: their scores are never all held at
    once. A batch that asks no head of labels, or is not for training, is read once.

    Deviates: Wang et al. 2022, arXiv:2205.12410, equation 3, has the loss of one of the two
    readings; the mean of both uses both.
    """

    model: Model
    weight: float = 1.0
    """Of the second term; `AdaMix.consistency`."""

    def count(self, batch: Batch) -> dict[str, int]:
        """Count the places that each term asks of this batch."""
        counts = self.model.count(batch)
        again = {f"{name}{SUFFIX}": counts[name] for name in self._compared(counts)}
        return counts | again

    def __call__(self, batch: Batch) -> Prediction:
        """Read a batch, and again if that is compared."""
        if not (names := self._compared(self.model.count(batch))):
            return self.model(batch)
        first, second = self._read(batch), self._read(batch)
        terms = {
            name: replace(term, total=(term.total + second.terms[name].total) / 2)
            for name, term in first.terms.items()
        }
        assert batch.labels is not None
        asked = batch.labels != IGNORE
        for name in names:
            apart = difference(first.scores[name], second.scores[name])
            terms[f"{name}{SUFFIX}"] = Term(
                (apart * asked).sum(), terms[name].count, weight=self.weight
            )
        return Prediction(terms=terms)

    def _compared(self, counts: dict[str, int]) -> list[str]:
        """Name the terms whose scores are compared."""
        if not self.model.training:
            return []
        heads = self.model.heads.values()
        labels = [head for head in heads if isinstance(head, LabelsHead | TokenLabelsHead)]
        return [head.spec.term for head in labels if head.spec.term in counts]

    def _read(self, batch: Batch) -> Prediction:
        hidden = self.model.hidden(batch)
        said: dict[str, Tensor] = {}
        terms: dict[str, Term] = {}
        for head in self.model.heads.values():
            compared = isinstance(head, LabelsHead | TokenLabelsHead)
            prediction: Prediction = head(hidden, batch, scores=compared)
            said |= prediction.scores
            terms |= prediction.terms
        return Prediction(said, terms)


def difference(a: Float[Tensor, "*b labels"], b: Float[Tensor, "*b labels"]) -> Float[Tensor, "*b"]:
    """Say how far two scores of labels differ.

    The mean of the two Kullback-Leibler divergences (Wang et al. 2022, section 3.2); of a single
    number, the squared difference.
    """
    if a.shape[-1] == 1:
        return (a - b).square().squeeze(-1)
    p, q = F.log_softmax(a, -1), F.log_softmax(b, -1)
    return ((p.exp() - q.exp()) * (p - q)).sum(-1) / 2
