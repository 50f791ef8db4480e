"""Text for text, beside plain text that is hidden as in pretraining."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unmask.batch import IGNORE, Example, Tokens
from unmask.finetuning.ask import Question
from unmask.finetuning.by_text import ByText
from unmask.hiding.hide import AnyObjective
from unmask.tasks.task import Item


@dataclass(frozen=True, kw_only=True)
class Unhidden(Example):
    """A text before it is hidden."""

    text: Tokens


@dataclass(frozen=True, kw_only=True)
class ByMixture(ByText):
    """Sources and targets, and plain text, of which the model is asked what its pretraining asked.

    Raffel et al. 2020, section 3.5.2: the unsupervised objective is one of the tasks. A text is cut
    into rows, each of which is hidden anew whenever it is learned.
    """

    objective: AnyObjective
    row: int
    """Tokens of a row, at most, after hiding."""

    def questions(self, items: Sequence[Item]) -> list[Question]:
        """Write source and target of each pair, and the rows of each plain text."""
        pairs = [i for i, item in enumerate(items) if not self._is_plain(item)]
        asked = super().questions([items[i] for i in pairs])
        found = [replace(question, item=pairs[question.item]) for question in asked]
        plain = [i for i, item in enumerate(items) if self._is_plain(item)]
        budget = self.objective.budget(self.row, self.special)
        for i, text in zip(plain, self._encoded([items[i] for i in plain]), strict=True):
            rows = (text[begin : begin + budget] for begin in range(0, len(text), budget))
            found += [Question(item=i, example=_unhidden(row)) for row in rows]
        return found

    def _is_plain(self, item: Item) -> bool:
        return bool(item.part) and item.part not in self.forms

    def _encoded(self, items: Sequence[Item]) -> list[Tokens]:
        return self.tokenizer.encode_batch([item.texts[0] for item in items])

    def drawn(self, example: Example, rng: np.random.Generator) -> Example:
        """Hide a row of plain text."""
        if not isinstance(example, Unhidden):
            return example
        return self.objective(example.text, self.special, rng)


def _unhidden(text: Tokens) -> Unhidden:
    targets = np.full(len(text), IGNORE, np.int64)
    return Unhidden(inputs=text.ids, targets=targets, text=text)
