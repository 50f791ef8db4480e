"""Multi-label classification: each label has its own score."""

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
    uses_word_labels,
)
from unmask.finetuning.formulations.pooling import classification_head, input_template
from unmask.heads.classification.label_losses import BinaryCrossEntropy
from unmask.heads.model import Model
from unmask.heads.spec import HeadSpec
from unmask.tasks.kinds.multilabel import MultilabelOptions
from unmask.tasks.task import Task, TaskExample
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.preset import Published


@dataclass(frozen=True, kw_only=True)
class MultiLabelFormulation:
    """Multi-label classification by a head with a sigmoid for each label."""

    task: Task
    tokenizer: Tokenizer
    template: InputTemplate
    threshold: float
    """Probability from which a label is predicted."""

    @property
    def special_ids(self) -> SpecialTokenIds:
        """The vocabulary's special tokens."""
        return self.template.special_ids

    def build_inputs(self, items: Sequence[TaskExample]) -> list[TaskInput]:
        """Add special tokens to each item's texts."""
        task_inputs: list[TaskInput] = []
        room = self.template.max_text_tokens(count_texts(items))
        for i, texts in enumerate(encode_texts(self.tokenizer, items, room)):
            example, cut = self.template.build_example(texts)
            label = None if items[i].label is None else self._multi_hot(items[i])
            task_inputs.append(
                TaskInput(item_index=i, example=replace(example, label=label), truncated=cut)
            )
        return task_inputs

    def _multi_hot(self, item: TaskExample) -> Float[np.ndarray, "labels"]:
        assert isinstance(item.label, tuple)
        return np.array([label in item.label for label in self.task.labels], np.float32)

    def compute_scores(
        self, model: Model, batch: Batch, task_inputs: Sequence[TaskInput]
    ) -> list[Float[np.ndarray, "1 labels"]]:
        """Run the head, whose logits are the log-odds of the labels."""
        return list(self._logits(model, batch).double().cpu().numpy()[:, None])

    def label_log_odds(self, model: Model, batch: Batch, index: int) -> Float[Tensor, "b"]:
        """Return the log-odds of a label, with a gradient."""
        return self._logits(model, batch)[:, index]

    def _logits(self, model: Model, batch: Batch) -> Float[Tensor, "b labels"]:
        return model(replace(batch, labels=None), return_logits=True).logits[LABEL_HEAD]

    def text_spans(self, lengths: Sequence[int]) -> list[TokenSpan]:
        """Return where the tokens of each text are; see `LabelFormulation`."""
        return self.template.text_spans(lengths)

    def merge_scores(
        self, task_inputs: Sequence[TaskInput], input_scores: Sequence[np.ndarray]
    ) -> Float[np.ndarray, "1 labels"]:
        """Merge the scores of the parts of an item."""
        return np.concatenate(input_scores)

    def prediction(
        self, item: TaskExample, scores: Float[np.ndarray, "1 labels"]
    ) -> tuple[str, ...]:
        """Return the labels that reach the threshold, in alphabetical order."""
        probabilities = zip(self.task.labels, _sigmoid(scores[0]).tolist(), strict=True)
        return tuple(sorted(label for label, p in probabilities if p >= self.threshold))

    def prediction_record(
        self, item: TaskExample, scores: Float[np.ndarray, "1 labels"]
    ) -> PredictionRecord:
        """Return {"labels", "probabilities"}: predicted labels, and the probability of each."""
        shares = _sigmoid(scores[0]).tolist()
        return {
            "labels": list(self.prediction(item, scores)),
            "probabilities": dict(zip(self.task.labels, shares, strict=True)),
        }

    def loss(self, item: TaskExample, scores: Float[np.ndarray, "1 labels"]) -> tuple[float, int]:
        """Return the cross-entropy summed over labels, in nats, and their number."""
        signed = np.where(self._multi_hot(item) > 0, -scores[0], scores[0])
        return float(np.logaddexp(0, signed).sum()), len(signed)


def multilabel_heads(task: Task, preset: Published) -> dict[str, HeadSpec]:
    """Return the preset's classification head, with a sigmoid for each label.

    Raises:
        ValueError: the model has no such head.
    """
    if uses_word_labels(preset):
        raise ValueError(
            f"{preset.name} predicts labels as words, and several at once are a "
            "text: fine-tune it with the task `generate`, or take an encoder, a decoder, BART "
            "or mBART"
        )
    head = classification_head(task, preset, _options(task))
    return {LABEL_HEAD: replace(head, n_labels=len(task.labels), loss=BinaryCrossEntropy())}


def formulate_multilabel(task: Task, preset: Published, tokenizer: Tokenizer) -> TaskFormulation:
    """Formulate multi-label classification with a sigmoid for each label."""
    return MultiLabelFormulation(
        task=task,
        tokenizer=tokenizer,
        template=input_template(task, preset, tokenizer.special_ids),
        threshold=_options(task).threshold,
    )


def _options(task: Task) -> MultilabelOptions:
    return from_dict(MultilabelOptions, task.options, "options")


def _sigmoid(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    return np.exp(-np.logaddexp(0, -x))
