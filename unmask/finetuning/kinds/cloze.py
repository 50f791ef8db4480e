"""A label as a word in a blank: classification by what a model was pretrained to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from unmask.config import from_dict
from unmask.finetuning.formulations.cloze.blank_filling import ClozeFormulation
from unmask.finetuning.formulations.cloze.pattern import BLANK_MARKER, ClozePattern
from unmask.finetuning.formulations.formulation import (
    LABEL_HEAD,
    LANGUAGE_HEAD,
    InputTemplate,
    TaskFormulation,
    is_encoder_decoder,
    resolve_max_length,
)
from unmask.finetuning.kinds.classify import CLASSIFY
from unmask.finetuning.kinds.task_kind import language_modeling_head
from unmask.heads.language.language_modeling import ShiftedTargetGeneration
from unmask.heads.model import HeadSpec
from unmask.model.layers.attention.query_stream import TwoStreamAttention
from unmask.tasks.readers.task_reader import TaskReader, TextReader, find_text_or_pair
from unmask.tasks.task import Label, Task, TaskColumns, TaskExample
from unmask.text.records import format_names
from unmask.tokenizers.encode import Tokenizer
from unmask.zoo.preset import Published

ONE_TEXT_PATTERN, TWO_TEXT_PATTERN = "{0} It was [MASK].", "{0}? [MASK], {1}"
"""Patterns for one text and for two: Gao et al. 2021, arXiv:2012.15723, table 1, of SST-2 and
MNLI."""


@dataclass(frozen=True, kw_only=True)
class ClozeOptions:
    """How a label is asked for."""

    pattern: str | None = None
    """What is read: "{text} It was [MASK].", a text by the name of its column or its number, from
    0. None: a customary one."""
    label_words: Mapping[str, str] = field(default_factory=dict[str, str])
    """The word that says a label: {"pos": "great"}. A label that has none is its own word. One that
    is several tokens of the vocabulary is slower to ask for; see `ClozeFormulation`."""


READER = TextReader(
    task_kind="cloze", allowed_text_counts=(1, 2), find_default_columns=find_text_or_pair
)


@dataclass(frozen=True)
class ClozeClassification:
    """One label for a text, or for two, by its word."""

    reader: TaskReader = READER
    splits_long_texts: bool = False
    options: type = ClozeOptions
    is_single_label: bool = True

    def find_labels(self, examples: Sequence[TaskExample], where: object) -> tuple[str, ...]:
        """List the labels that occur."""
        return CLASSIFY.find_labels(examples, where)

    def check_examples(
        self, examples: Sequence[TaskExample], labels: Sequence[str], column: str
    ) -> None:
        """Check that all labels are known."""
        CLASSIFY.check_examples(examples, labels, column)

    def metric_names(self, task: Task) -> tuple[str, ...]:
        """Those of classes."""
        return CLASSIFY.metric_names(task)

    def compute_metrics(
        self, task: Task, labels: Sequence[Label], predictions: Sequence[Label]
    ) -> dict[str, float]:
        """Compute the figures of classes."""
        return CLASSIFY.compute_metrics(task, labels, predictions)

    def majority_baseline(self, task: Task, examples: Sequence[TaskExample]) -> Label:
        """Return the most frequent label, of ties the first."""
        return CLASSIFY.majority_baseline(task, examples)

    def resolve_task(self, task: Task, preset: Published, examples: Sequence[TaskExample]) -> Task:
        """Nothing is left to settle."""
        return task

    def heads(self, task: Task, preset: Published) -> dict[str, HeadSpec]:
        """The head of pretraining.

        Raises:
            ValueError: the model is an encoder-decoder.
        """
        if is_encoder_decoder(preset):
            raise ValueError(
                f"cloze is for an encoder or a decoder, and {preset.name} is both: classify lets "
                "it say labels in words, or puts a head on it"
            )
        return {LANGUAGE_HEAD: replace(language_modeling_head(preset), term=LABEL_HEAD)}

    def formulate(self, task: Task, preset: Published, tokenizer: Tokenizer) -> TaskFormulation:
        """For a word.

        Raises:
            ValueError: the pattern or a word does not fit the texts, the labels or the model.
        """
        options = from_dict(ClozeOptions, task.options, "options")
        if unknown := sorted(set(options.label_words) - set(task.labels)):
            raise ValueError(
                f"options.label_words must be words of the labels {format_names(task.labels)}, "
                f"got one of {unknown[0]!r}"
            )
        around = InputTemplate.from_architecture(
            tokenizer.special_ids, preset.architecture, task.max_length
        )
        if not around.causal and tokenizer.special_ids.mask is None:
            raise ValueError(f"the tokenizer of {preset.name} has no mask token for the blank")
        pattern = ClozePattern.parse(
            _default_pattern(task, around) if options.pattern is None else options.pattern,
            task.columns.texts,
        )
        if around.causal and pattern.blank_index != len(pattern.parts):
            raise ValueError(
                f"pattern must end with {BLANK_MARKER} for {preset.name}, which only reads "
                f"forward, got {options.pattern!r}"
            )
        words = {label: options.label_words.get(label, label) for label in task.labels}
        head = language_modeling_head(preset)
        ahead, blind = (
            isinstance(head.generation, ShiftedTargetGeneration),
            isinstance(head.query_stream, TwoStreamAttention),
        )
        return ClozeFormulation.from_pattern(
            task, tokenizer, around, pattern, words, shifted_targets=ahead, two_stream=blind
        )


def _default_pattern(task: Task, template: InputTemplate) -> str:
    """Return the pattern for so many texts; a decoder's ends with its blank."""
    if not template.causal:
        return ONE_TEXT_PATTERN if len(task.columns.texts) == 1 else TWO_TEXT_PATTERN
    if len(task.columns.texts) == 1:
        return ONE_TEXT_PATTERN.removesuffix(".")
    raise ValueError(
        f"two texts for a decoder need a pattern that ends with {BLANK_MARKER}: name one"
    )


def cloze_task(
    preset: Published,
    label_words: Mapping[str, str],
    *,
    pattern: str | None = None,
    text_names: Sequence[str] = ("text",),
    max_length: int | None = None,
) -> Task:
    """Describe a task that a model does unlearned: `predict(opened, texts, task=cloze(...))`.

    Args:
        preset: of the model.
        label_words: of each label: {"bad": "terrible", "good": "great"}.
        pattern: what is read. None: a customary one.
        text_names: what texts are called in the pattern, one or two.
        max_length: tokens that are read at most.

    Raises:
        ValueError: the model has not so many positions.
    """
    return Task(
        task_kind="cloze",
        columns=TaskColumns(texts=tuple(text_names), label="label"),
        labels=tuple(label_words),
        task_name="cloze",
        max_length=resolve_max_length(preset, max_length),
        options={"pattern": pattern, "label_words": dict(label_words)},
    )


CLOZE = ClozeClassification()
