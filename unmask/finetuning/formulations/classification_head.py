"""Classification or regression of whole texts, by a head on the pooled hidden states."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from torch import Tensor

from unmask.batch import Batch
from unmask.config import from_dict
from unmask.finetuning.formulations.formulation import (
    LABEL_HEAD,
    InputTemplate,
    PredictionRecord,
    TaskFormulation,
    TaskInput,
    TokenSpan,
    count_texts,
    encode_texts,
    label_cross_entropy,
    label_indices,
    label_prediction_record,
    log_odds,
    uses_word_labels,
)
from unmask.finetuning.formulations.pooling import classification_head, input_template
from unmask.finetuning.formulations.text_to_text.word_labels import (
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
    """Labels of whole texts, by a classification head.

    On the first token: Devlin et al. 2019, section 4.1; on the last: Radford et al. 2018, section
    3.2.
    """

    task: Task
    tokenizer: Tokenizer
    template: InputTemplate
    target_shift: float = 0.0
    """Scaling of regression targets: (label - shift) / scale."""
    target_scale: float = 1.0

    @property
    def special_ids(self) -> SpecialTokenIds:
        """The vocabulary's special tokens."""
        return self.template.special_ids

    def build_inputs(self, items: Sequence[TaskExample]) -> list[TaskInput]:
        """Add special tokens to each item's texts."""
        room = self.template.max_text_tokens(count_texts(items))
        encoded = encode_texts(self.tokenizer, items, room)
        task_inputs: list[TaskInput] = []
        for i, (item, texts) in enumerate(zip(items, encoded, strict=True)):
            example, cut = self.template.build_example(texts)
            example = replace(example, label=self._target_value(item.label))
            task_inputs.append(TaskInput(item_index=i, example=example, truncated=cut))
        return task_inputs

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
        logits = self._logits(model, batch)
        if TASK_KINDS[self.task.task_kind].predicts_number:
            numbers = logits.double() * self.target_scale + self.target_shift
            return list(numbers.cpu().numpy()[:, None])
        return list(logits.log_softmax(-1).cpu().numpy()[:, None])

    def _logits(self, model: Model, batch: Batch) -> Float[Tensor, "b labels"]:
        return model(replace(batch, labels=None), return_logits=True).logits[LABEL_HEAD].float()

    def label_log_odds(self, model: Model, batch: Batch, index: int) -> Float[Tensor, "b"]:
        """Return the log-odds of a label, or the number, with a gradient."""
        logits = self._logits(model, batch)
        if TASK_KINDS[self.task.task_kind].predicts_number:
            return logits[:, 0] * self.target_scale + self.target_shift
        return log_odds(logits, index)

    def text_spans(self, lengths: Sequence[int]) -> list[TokenSpan]:
        """Return where the tokens of each text are; see `LabelFormulation`."""
        return self.template.text_spans(lengths)

    def merge_scores(
        self, task_inputs: Sequence[TaskInput], input_scores: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Merge the scores of the parts of an item."""
        return np.concatenate(input_scores)

    def prediction(self, item: TaskExample, scores: Float[np.ndarray, "1 labels"]) -> Label:
        """Return the most likely label, or the number."""
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
    """Return the preset's classification head, or its language head for labels as words.

    Raises:
        ValueError: the preset has neither, or does not support the pooling of the options.
    """
    options = from_dict(PoolingOptions, task.options, "options")
    if uses_word_labels(preset):
        return word_label_heads(preset, options)
    head = classification_head(task, preset, options)
    return {LABEL_HEAD: replace(head, n_labels=max(len(task.labels), 1))}


def formulate_classification(
    task: Task, preset: Published, tokenizer: Tokenizer
) -> TaskFormulation:
    """Formulate classification with a classification head, or with labels as words."""
    if uses_word_labels(preset):
        return WordLabelFormulation(
            task=task, tokenizer=tokenizer, label_token_ids=encode_labels(task, tokenizer)
        )
    return ClassificationFormulation(
        task=task, tokenizer=tokenizer, template=input_template(task, preset, tokenizer.special_ids)
    )
