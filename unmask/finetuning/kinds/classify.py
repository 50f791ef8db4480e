"""One label for a text, or for a pair of texts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unmask.config import from_dict
from unmask.finetuning.formulations.classification_head import ClassificationFormulation
from unmask.finetuning.formulations.formulation import (
    LABEL_HEAD,
    LANGUAGE_HEAD,
    TaskFormulation,
    uses_word_labels,
)
from unmask.finetuning.formulations.word_labels import WordLabelFormulation, encode_labels
from unmask.finetuning.kinds.pooling_options import (
    PoolingOptions,
    classification_head,
    input_template,
    refuse_pooling,
)
from unmask.finetuning.kinds.task_kind import language_modeling_head
from unmask.heads.model import HeadSpec
from unmask.tasks.metrics.classification import classification_metrics
from unmask.tasks.readers import columns
from unmask.tasks.readers.task_reader import (
    TaskReader,
    TextReader,
    find_text_column,
    find_text_pair,
)
from unmask.tasks.task import Label, Task, TaskExample
from unmask.tokenizers.encode import Tokenizer
from unmask.zoo.preset import Published


@dataclass(frozen=True)
class TextClassification:
    """One label for a text, or for two."""

    reader: TaskReader
    splits_long_texts: bool = False
    options: type = PoolingOptions
    is_single_label: bool = True

    def find_labels(self, examples: Sequence[TaskExample], where: object) -> tuple[str, ...]:
        """List the labels that occur."""
        return columns.find_labels(examples, where)

    def check_examples(
        self, examples: Sequence[TaskExample], labels: Sequence[str], column: str
    ) -> None:
        """Check that all labels are known."""
        columns.check_labels(examples, labels, column)

    def metric_names(self, task: Task) -> tuple[str, ...]:
        """Accuracy and the like; F1 of the second label where there are two."""
        return ("accuracy", "macro_f1", *(("f1",) if len(task.labels) == 2 else ()), "matthews")

    def compute_metrics(
        self, task: Task, labels: Sequence[Label], predictions: Sequence[Label]
    ) -> dict[str, float]:
        """Compute the figures of classes."""
        place = {label: i for i, label in enumerate(task.labels)}
        return classification_metrics(
            np.array([place[str(t)] for t in labels], np.int64),
            np.array([place[str(s)] for s in predictions], np.int64),
            len(task.labels),
        )

    def majority_baseline(self, task: Task, examples: Sequence[TaskExample]) -> Label:
        """Return the most frequent label, of ties the first."""
        return most_frequent_label(
            task.labels, (t for item in examples for t in columns.example_labels(item))
        )

    def resolve_task(self, task: Task, preset: Published, examples: Sequence[TaskExample]) -> Task:
        """Nothing is left to settle."""
        return task

    def heads(self, task: Task, preset: Published) -> dict[str, HeadSpec]:
        """The card's head of labels, or the one that says words."""
        return classification_heads(
            task, preset, from_dict(PoolingOptions, task.options, "options")
        )

    def formulate(self, task: Task, preset: Published, tokenizer: Tokenizer) -> TaskFormulation:
        """By a head, or in words."""
        return formulate_classification(task, preset, tokenizer)


def most_frequent_label(labels: Sequence[str], occurrences: Any) -> str:
    """Return the most frequent label, of ties the first."""
    counts = Counter(occurrences)
    return max(labels, key=lambda label: (counts[label], -labels.index(label)))


def classification_heads(
    task: Task, preset: Published, options: PoolingOptions
) -> dict[str, HeadSpec]:
    """Return the head that labels a whole text: the card's, or the one that says words.

    Raises:
        ValueError: the card has neither, or cannot read what shall stand for a text.
    """
    if uses_word_labels(preset):
        if preset.tokenizer.special_tokens.languages:
            raise ValueError(
                f"{preset.name} says texts in languages and no labels: fine-tune it with the task "
                "`generate`, or take another model"
            )
        refuse_pooling(preset, options)
        return {LANGUAGE_HEAD: replace(language_modeling_head(preset), term=LABEL_HEAD)}
    head = classification_head(task, preset, options)
    return {LABEL_HEAD: replace(head, n_labels=max(len(task.labels), 1))}


def formulate_classification(
    task: Task, preset: Published, tokenizer: Tokenizer
) -> TaskFormulation:
    """Ask for the label of a text by a head, or in words."""
    if uses_word_labels(preset):
        return WordLabelFormulation(
            task=task, tokenizer=tokenizer, label_token_ids=encode_labels(task, tokenizer)
        )
    return ClassificationFormulation(
        task=task, tokenizer=tokenizer, template=input_template(task, preset, tokenizer.special_ids)
    )


CLASSIFY = TextClassification(
    TextReader(
        task_kind="classify", allowed_text_counts=(1,), find_default_columns=find_text_column
    )
)
PAIRS = TextClassification(
    TextReader(task_kind="pairs", allowed_text_counts=(2,), find_default_columns=find_text_pair)
)
