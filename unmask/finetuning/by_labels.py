"""Labels of which several may hold: each has a score of its own."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from unmask.batch import Batch
from unmask.finetuning.ask import LABEL, Answer, Around, Question, columns_encoded, n_texts
from unmask.heads.model import Model
from unmask.tasks.task import Item, Task
from unmask.tokens.tokenizer import Tokenizer
from unmask.tokens.vocabulary import Special


@dataclass(frozen=True, kw_only=True)
class ByLabels:
    """Each label holds or not, by a head whose scores go through a sigmoid each."""

    task: Task
    tokenizer: Tokenizer
    around: Around
    threshold: float
    """The probability from which a label is said."""

    @property
    def special(self) -> Special:
        """The vocabulary's special tokens."""
        return self.around.special

    def questions(self, items: Sequence[Item]) -> list[Question]:
        """Frame each item's texts."""
        found: list[Question] = []
        room = self.around.room(n_texts(items))
        for i, texts in enumerate(columns_encoded(self.tokenizer, items, room)):
            example, cut = self.around.frame(texts)
            label = None if items[i].truth is None else self._holds(items[i])
            found.append(Question(item=i, example=replace(example, label=label), cut=cut))
        return found

    def _holds(self, item: Item) -> Float[np.ndarray, "labels"]:
        assert isinstance(item.truth, tuple)
        return np.array([label in item.truth for label in self.task.labels], np.float32)

    def scores(
        self, model: Model, batch: Batch, questions: Sequence[Question]
    ) -> list[Float[np.ndarray, "1 labels"]]:
        """Run the head; what it says is the logarithm of the odds of each label."""
        said = model(replace(batch, labels=None), scores=True).scores[LABEL]
        return list(said.double().cpu().numpy()[:, None])

    def joined(
        self, questions: Sequence[Question], parts: Sequence[np.ndarray]
    ) -> Float[np.ndarray, "1 labels"]:
        """Put the parts of an item together."""
        return np.concatenate(parts)

    def truth(self, item: Item, scores: Float[np.ndarray, "1 labels"]) -> tuple[str, ...]:
        """Return the labels that reach the threshold, by the alphabet."""
        held = zip(self.task.labels, _sigmoid(scores[0]).tolist(), strict=True)
        return tuple(sorted(label for label, p in held if p >= self.threshold))

    def answer(self, item: Item, scores: Float[np.ndarray, "1 labels"]) -> Answer:
        """Return {"labels", "probabilities"}: what holds, and how likely each label is."""
        shares = _sigmoid(scores[0]).tolist()
        return {
            "labels": list(self.truth(item, scores)),
            "probabilities": dict(zip(self.task.labels, shares, strict=True)),
        }

    def loss(self, item: Item, scores: Float[np.ndarray, "1 labels"]) -> tuple[float, int]:
        """Return the cross-entropy summed over labels, in nats, and their number."""
        signed = np.where(self._holds(item) > 0, -scores[0], scores[0])
        return float(np.logaddexp(0, signed).sum()), len(signed)


def _sigmoid(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    return np.exp(-np.logaddexp(0, -x))
