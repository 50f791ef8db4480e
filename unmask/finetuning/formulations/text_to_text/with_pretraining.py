"""Text to text, mixed with plain text under the pretraining objective."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unmask.batch import IGNORE_INDEX, Example, Tokens
from unmask.finetuning.formulations.formulation import TaskInput
from unmask.finetuning.formulations.text_to_text.text_to_text import TextToTextFormulation
from unmask.objectives.objective import AnyObjective
from unmask.tasks.task import TaskExample


@dataclass(frozen=True, kw_only=True)
class UncorruptedExample(Example):
    """A text before it is corrupted."""

    text_tokens: Tokens


@dataclass(frozen=True, kw_only=True)
class TextMixtureFormulation(TextToTextFormulation):
    """Sources and targets, and plain text under the pretraining objective.

    Raffel et al. 2020, section 3.5.2: the unsupervised objective is one of the tasks. A text is
    split into rows, each of which is corrupted differently in each epoch.
    """

    objective: AnyObjective
    max_row_tokens: int
    """Maximum number of tokens of a row after corruption."""

    def build_inputs(self, items: Sequence[TaskExample]) -> list[TaskInput]:
        """Build source and target of each pair, and the rows of each plain text."""
        pairs = [i for i, item in enumerate(items) if not self._is_plain_text(item)]
        pair_inputs = super().build_inputs([items[i] for i in pairs])
        task_inputs = [
            replace(question, item_index=pairs[question.item_index]) for question in pair_inputs
        ]
        plain = [i for i, item in enumerate(items) if self._is_plain_text(item)]
        budget = self.objective.max_text_length(self.max_row_tokens, self.special_ids)
        for i, text in zip(plain, self._encode_texts([items[i] for i in plain]), strict=True):
            rows = (text[begin : begin + budget] for begin in range(0, len(text), budget))
            task_inputs += [
                TaskInput(item_index=i, example=_uncorrupted_example(row)) for row in rows
            ]
        return task_inputs

    def _is_plain_text(self, item: TaskExample) -> bool:
        return bool(item.component) and item.component not in self.templates

    def _encode_texts(self, items: Sequence[TaskExample]) -> list[Tokens]:
        return self.tokenizer.encode_batch([item.texts[0] for item in items])

    def sample_example(self, example: Example, rng: np.random.Generator) -> Example:
        """Corrupt a row of plain text."""
        if not isinstance(example, UncorruptedExample):
            return example
        return self.objective(example.text_tokens, self.special_ids, rng)


def _uncorrupted_example(text_tokens: Tokens) -> UncorruptedExample:
    targets = np.full(len(text_tokens), IGNORE_INDEX, np.int64)
    return UncorruptedExample(inputs=text_tokens.ids, targets=targets, text_tokens=text_tokens)
