"""Labels or a number of a whole text, by a head on one token or on their mean."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from unmask.batch import Batch
from unmask.config import from_dict
from unmask.finetuning.formulations.formulation import (
    LABEL_HEAD,
    InputTemplate,
    PredictionRecord,
    TaskFormulation,
    TaskInput,
    count_texts,
    encode_texts,
    label_cross_entropy,
    label_indices,
    label_prediction_record,
    uses_word_labels,
)
from unmask.finetuning.formulations.pooling import classification_head, input_template
from unmask.finetuning.formulations.word_labels import (
    WordLabelFormulation,
    encode_labels,
    word_label_heads,
)
from unmask.heads.model import Model
from unmask.heads.spec import HeadSpec
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.kinds.pooling_options import PoolingOptions
from unmask.tasks.task import Label, Task, TaskExample
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.preset import Published


@dataclass(frozen=True, kw_only=True)
class ClassificationFormulation:
    """Labels of whole texts, by a head on one token.

    The first: Devlin et al. 2019, section 4.1; the last: Radford et al. 2018, section 3.2.
    """

    task: Task
    tokenizer: Tokenizer
    template: InputTemplate
    target_shift: float = 0.0
    """A number that is asked for is (truth - shift) / scale."""
    target_scale: float = 1.0

    @property
    def special_ids(self) -> SpecialTokenIds:
        """The vocabulary's special tokens."""
        return self.template.special_ids

    def build_inputs(self, items: Sequence[TaskExample]) -> list[TaskInput]:
        """Frame each item's texts."""
        room = self.template.max_text_tokens(count_texts(items))
        encoded = encode_texts(self.tokenizer, items, room)
        found: list[TaskInput] = []
        for i, (item, texts) in enumerate(zip(items, encoded, strict=True)):
            example, cut = self.template.build_example(texts)
            example = replace(example, label=self._target_value(item.label))
            found.append(TaskInput(item_index=i, example=example, truncated=cut))
        return found

    def _target_value(self, label: Label | None) -> int | float | None:
        if label is None:
            return None
        if isinstance(label, float):
            return (label - self.target_shift) / self.target_scale
        return label_indices(self.task, label)[0]

    def compute_scores(
        self, model: Model, batch: Batch, task_inputs: Sequence[TaskInput]
    ) -> list[Float[np.ndarray, "_ labels"]]:
        """Run the head."""
        logits = model(replace(batch, labels=None), return_logits=True).logits[LABEL_HEAD].float()
        if TASK_KINDS[self.task.task_kind].predicts_number:
            numbers = logits.double() * self.target_scale + self.target_shift
            return list(numbers.cpu().numpy()[:, None])
        return list(logits.log_softmax(-1).cpu().numpy()[:, None])

    def merge_scores(
        self, task_inputs: Sequence[TaskInput], input_scores: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Merge the scores of the parts of an item."""
        return np.concatenate(input_scores)

    def prediction(self, item: TaskExample, scores: Float[np.ndarray, "1 labels"]) -> Label:
        """Return the likeliest label, or the number."""
        if TASK_KINDS[self.task.task_kind].predicts_number:
            return float(scores[0, 0])
        return self.task.labels[int(scores[0].argmax())]

    def prediction_record(
        self, item: TaskExample, scores: Float[np.ndarray, "1 labels"]
    ) -> PredictionRecord:
        """Return {"label", "probability", "probabilities"}, or the number."""
        predicted = self.prediction(item, scores)
        return (
            predicted
            if isinstance(predicted, float)
            else label_prediction_record(self.task, predicted, scores)
        )

    def loss(self, item: TaskExample, scores: Float[np.ndarray, "1 labels"]) -> tuple[float, int]:
        """Return the cross-entropy in nats, or the squared error of the number."""
        assert item.label is not None
        if isinstance(item.label, float):
            return (item.label - float(scores[0, 0])) ** 2, 1
        return label_cross_entropy(self.task, item.label, scores), 1


def classification_heads(task: Task, preset: Published) -> dict[str, HeadSpec]:
    """Return the head that labels a whole text: the preset's, or the one that predicts words.

    Raises:
        ValueError: the preset has neither, or its texts cannot be pooled as the options ask.
    """
    options = from_dict(PoolingOptions, task.options, "options")
    if uses_word_labels(preset):
        return word_label_heads(preset, options)
    head = classification_head(task, preset, options)
    return {LABEL_HEAD: replace(head, n_labels=max(len(task.labels), 1))}


def formulate_classification(
    task: Task, preset: Published, tokenizer: Tokenizer
) -> TaskFormulation:
    """Predict the label of a text by a head, or as a word."""
    if uses_word_labels(preset):
        return WordLabelFormulation(
            task=task, tokenizer=tokenizer, label_token_ids=encode_labels(task, tokenizer)
        )
    return ClassificationFormulation(
        task=task, tokenizer=tokenizer, template=input_template(task, preset, tokenizer.special_ids)
    )
