"""Labels or a number of a whole text, by a head on one token or on their mean."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from unmask.batch import Batch
from unmask.finetuning.ask import (
    LABEL,
    Answer,
    Around,
    Question,
    columns_encoded,
    label_answer,
    label_loss,
    n_texts,
    places,
)
from unmask.heads.model import Model
from unmask.tasks.task import Item, Task, Truth
from unmask.tokens.tokenizer import Tokenizer
from unmask.tokens.vocabulary import Special


@dataclass(frozen=True, kw_only=True)
class ByHead:
    """Labels of whole texts, by a head on one token.

    The first: Devlin et al. 2019, section 4.1; the last: Radford et al. 2018, section 3.2.
    """

    task: Task
    tokenizer: Tokenizer
    around: Around
    shift: float = 0.0
    """A number that is asked for is (truth - shift) / scale."""
    scale: float = 1.0

    @property
    def special(self) -> Special:
        """The vocabulary's special tokens."""
        return self.around.special

    def questions(self, items: Sequence[Item]) -> list[Question]:
        """Frame each item's texts."""
        room = self.around.room(n_texts(items))
        encoded = columns_encoded(self.tokenizer, items, room)
        found: list[Question] = []
        for i, (item, texts) in enumerate(zip(items, encoded, strict=True)):
            example, cut = self.around.frame(texts)
            example = replace(example, label=self._label(item.truth))
            found.append(Question(item=i, example=example, cut=cut))
        return found

    def _label(self, truth: Truth | None) -> int | float | None:
        if truth is None:
            return None
        if isinstance(truth, float):
            return (truth - self.shift) / self.scale
        return places(self.task, truth)[0]

    def scores(
        self, model: Model, batch: Batch, questions: Sequence[Question]
    ) -> list[Float[np.ndarray, "_ labels"]]:
        """Run the head."""
        said = model(replace(batch, labels=None), scores=True).scores[LABEL].float()
        if self.task.does == "regress":
            numbers = said.double() * self.scale + self.shift
            return list(numbers.cpu().numpy()[:, None])
        return list(said.log_softmax(-1).cpu().numpy()[:, None])

    def joined(self, questions: Sequence[Question], parts: Sequence[np.ndarray]) -> np.ndarray:
        """Put the parts of an item together."""
        return np.concatenate(parts)

    def truth(self, item: Item, scores: Float[np.ndarray, "1 labels"]) -> Truth:
        """Return the likeliest label, or the number."""
        if self.task.does == "regress":
            return float(scores[0, 0])
        return self.task.labels[int(scores[0].argmax())]

    def answer(self, item: Item, scores: Float[np.ndarray, "1 labels"]) -> Answer:
        """Return {"label", "probability", "probabilities"}, or the number."""
        said = self.truth(item, scores)
        return said if isinstance(said, float) else label_answer(self.task, said, scores)

    def loss(self, item: Item, scores: Float[np.ndarray, "1 labels"]) -> tuple[float, int]:
        """Return the cross-entropy in nats, or the squared error of the number."""
        assert item.truth is not None
        if isinstance(item.truth, float):
            return (item.truth - float(scores[0, 0])) ** 2, 1
        return label_loss(self.task, item.truth, scores), 1
