"""Multiple choice: each option is scored with the text by a head, or generated as words."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.config import from_dict
from unmask.finetuning.formulations.formulation import (
    CHOICE_HEAD,
    LABEL_HEAD,
    InputTemplate,
    PredictionRecord,
    TaskFormulation,
    TaskInput,
    uses_word_labels,
)
from unmask.finetuning.formulations.pooling import classification_head, input_template
from unmask.finetuning.formulations.text_to_text.word_labels import (
    MAX_LOGITS_PER_CHUNK,
    answer_log_likelihoods,
    pad_answers,
    word_label_heads,
)
from unmask.heads.classification.choice_groups import ChoiceGroup
from unmask.heads.classification.label_losses import CORRECT, ChoiceCrossEntropy
from unmask.heads.model import Model
from unmask.heads.spec import HeadSpec
from unmask.model.layers.attention.block_local_mask import GlobalTokens
from unmask.tasks.kinds.choose import MultipleChoiceOptions
from unmask.tasks.task import Task, TaskExample
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.preset import Published
from unmask.zoo.unsupported_classes import unsupported_reason


def truncate_text_and_option(n_text: int, n_option: int, max_tokens: int) -> tuple[int, int]:
    """Return the number of tokens to keep of a text and of an option, which may take half.

    Texts are truncated at the beginning: a question comes last, and the option continues the end of
    a dialog or a story. (The papers do not specify it.)
    """
    n_kept = min(n_option, max(max_tokens - n_text, max_tokens // 2))
    return min(n_text, max_tokens - n_kept), n_kept


def encode_contexts(
    tokenizer: Tokenizer, items: Sequence[TaskExample]
) -> list[Int[np.ndarray, "_"]]:
    """Encode the text before the options of each item: context and question as one text."""
    return tokenizer.encode_ids_batch([" ".join(item.texts) for item in items])


def keep_last_tokens(ids: Int[np.ndarray, "n"], n_kept: int) -> Int[np.ndarray, "_"]:
    """Keep the end of a text."""
    return ids[len(ids) - n_kept :]


def predict_choice(scores: Float[np.ndarray, "1 options"]) -> int:
    """Return the most likely option; of ties the first."""
    return int(scores[0].argmax())


def concatenate_scores(
    task_inputs: Sequence[TaskInput], input_scores: Sequence[np.ndarray]
) -> Float[np.ndarray, "options"]:
    """Concatenate the scores of an item's inputs; equal inputs tie, however they were rounded."""
    examples = [task_input.example for task_input in task_inputs]
    keys = [
        (x.inputs.tobytes(), None if x.source is None else x.source.tobytes()) for x in examples
    ]
    first = dict(zip(reversed(keys), reversed(input_scores), strict=True))
    return np.concatenate([first[key] for key in keys])


def choice_prediction_record(
    item: TaskExample, scores: Float[np.ndarray, "1 options"]
) -> PredictionRecord:
    """Return {"choice", "index", "probability", "probabilities"}."""
    best = predict_choice(scores)
    shares = np.exp(scores[0]).tolist()
    return {
        "choice": item.choices[best],
        "index": best,
        "probability": shares[best],
        "probabilities": shares,
    }


def choice_cross_entropy(
    item: TaskExample, scores: Float[np.ndarray, "1 options"]
) -> tuple[float, int]:
    """Return the cross-entropy of the correct option, in nats."""
    return -float(scores[0, cast("int", item.label)]), 1


@dataclass(frozen=True, kw_only=True)
class MultipleChoiceFormulation:
    """Each option follows the text and has a score; a softmax is over the options of an item.

    Radford et al. 2018, section 3.3 (text, question, delimiter, option); Devlin et al. 2019,
    section 4.4. All options of an item are in one batch. In models with global tokens, these are
    the first token and those of the option (Beltagy et al. 2020, section 6, WikiHop).
    """

    task: Task
    tokenizer: Tokenizer
    template: InputTemplate
    head_name: str
    """Head whose scores are compared."""

    @property
    def special_ids(self) -> SpecialTokenIds:
        """The vocabulary's special tokens."""
        return self.template.special_ids

    def build_inputs(self, items: Sequence[TaskExample]) -> list[TaskInput]:
        """Join each item's text with each of its options, with special tokens."""
        around = self.template
        room = around.max_length - sum(map(len, (around.prefix, around.separator, around.suffix)))
        written = [option for item in items for option in item.choices]
        options = iter(self.tokenizer.encode_prefix_batch(written, room + 1))
        task_inputs: list[TaskInput] = []
        for i, text in enumerate(encode_contexts(self.tokenizer, items)):
            for k, option in enumerate(islice(options, len(items[i].choices))):
                n_text, n_option = truncate_text_and_option(len(text), len(option), room)
                example, _ = around.build_example(
                    (keep_last_tokens(text, n_text), option[:n_option])
                )
                truth = items[i].label
                label = None if truth is None else CORRECT if k == truth else 0
                cut = n_text < len(text) or n_option < len(option)
                example = replace(example, label=label).with_feature(ChoiceGroup(i))
                if around.global_first_token and example.segments is not None:
                    second = np.flatnonzero(example.segments)
                    example = example.with_feature(GlobalTokens(np.concatenate(([0], second))))
                task_inputs.append(TaskInput(item_index=i, example=example, truncated=cut))
        return task_inputs

    def compute_scores(
        self, model: Model, batch: Batch, task_inputs: Sequence[TaskInput]
    ) -> list[Float[np.ndarray, "1"]]:
        """Run the head."""
        logits = model(replace(batch, labels=None), return_logits=True).logits[self.head_name]
        return list(logits.double().cpu().numpy())

    def merge_scores(
        self, task_inputs: Sequence[TaskInput], input_scores: Sequence[np.ndarray]
    ) -> Float[np.ndarray, "1 options"]:
        """Normalize the scores over the options of an item."""
        return (
            torch.from_numpy(concatenate_scores(task_inputs, input_scores))
            .log_softmax(0)
            .numpy()[None]
        )

    def prediction(self, item: TaskExample, scores: Float[np.ndarray, "1 options"]) -> int:
        """Return the likeliest option."""
        return predict_choice(scores)

    def prediction_record(
        self, item: TaskExample, scores: Float[np.ndarray, "1 options"]
    ) -> PredictionRecord:
        """Return {"choice", "index", "probability", "probabilities"}."""
        return choice_prediction_record(item, scores)

    def loss(self, item: TaskExample, scores: Float[np.ndarray, "1 options"]) -> tuple[float, int]:
        """Return the cross-entropy of the right option."""
        return choice_cross_entropy(item, scores)


@dataclass(frozen=True, kw_only=True)
class WordChoiceFormulation:
    """Options as target texts: the encoder reads all of them, and their likelihoods are compared.

    The encoder reads "name choice1: option choice2: option context: text", in the form of COPA in
    Raffel et al. 2020, appendix D.9; the target is the correct option.
    Deviates: there the target is True or False.
    """

    task: Task
    tokenizer: Tokenizer

    @property
    def special_ids(self) -> SpecialTokenIds:
        """The vocabulary's special tokens."""
        return self.tokenizer.special_ids

    def build_inputs(self, items: Sequence[TaskExample]) -> list[TaskInput]:
        """Build the source of each item, with its options as candidate targets."""
        (lead,) = self.tokenizer.encode_ids_batch(["context:"])
        after = np.array(self.special_ids.suffix, np.int64)
        room = self.task.max_length - len(lead) - len(after)
        if room < 2:
            least = self.task.max_length - room + 2
            raise ValueError(f"max_length must be at least {least}, got {self.task.max_length}")
        listed = self.tokenizer.encode_prefix_batch(
            [self._options_text(item) for item in items], room + 1
        )
        written = [option for item in items for option in item.choices]
        options = iter(self.tokenizer.encode_prefix_batch(written, self.task.max_length))
        task_inputs: list[TaskInput] = []
        for i, text in enumerate(encode_contexts(self.tokenizer, items)):
            n_kept = truncate_text_and_option(len(text), len(listed[i]), room)
            source = np.concatenate(
                (listed[i][: n_kept[1]], lead, keep_last_tokens(text, n_kept[0]), after)
            )
            words = tuple(map(self._answer_ids, islice(options, len(items[i].choices))))
            example = replace(self._target_example(words, items[i]), source=source)
            cut = n_kept != (len(text), len(listed[i]))
            task_inputs.append(
                TaskInput(item_index=i, example=example, truncated=cut, option_ids=words)
            )
        return task_inputs

    def _options_text(self, item: TaskExample) -> str:
        choices = " ".join(f"choice{i}: {option}" for i, option in enumerate(item.choices, 1))
        return f"{self.task.task_name} {choices}".strip()

    def _answer_ids(self, option: Int[np.ndarray, "n"]) -> tuple[int, ...]:
        s = self.special_ids
        ends = s.suffix or ((s.end,) if s.end is not None else ())
        return (*s.decoder_prefix, *option[: self.task.max_length].tolist(), *ends)

    def _target_example(self, option_ids: Sequence[Sequence[int]], item: TaskExample) -> Example:
        answer_ids = (IGNORE_INDEX,) if item.label is None else option_ids[cast("int", item.label)]
        inputs = np.array([self.special_ids.start, *answer_ids[:-1]], np.int64)
        return Example(
            inputs=inputs, targets=np.array(answer_ids, np.int64), rank=np.arange(len(answer_ids))
        )

    def compute_scores(
        self, model: Model, batch: Batch, task_inputs: Sequence[TaskInput]
    ) -> list[Float[np.ndarray, "1 _"]]:
        """Compute the normalized log-likelihoods of each item's options, end tokens included."""
        memory = model.backbone.encode(batch)
        sizes = [len(question.option_ids) for question in task_inputs]
        rows = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        targets = pad_answers([word for question in task_inputs for word in question.option_ids])
        at_once = max(MAX_LOGITS_PER_CHUNK // (targets.shape[1] * model.vocab_size), 1)
        likelihoods = torch.cat([
            answer_log_likelihoods(
                model, batch, memory, rows[i : i + at_once], targets[i : i + at_once],
                self.special_ids.start,
            )
            for i in range(0, len(rows), at_once)
        ])  # fmt: skip
        item_likelihoods = likelihoods.double().cpu().split(sizes)
        # Equal options have equal scores, whatever the last bits of a batch: those of the first.
        first = [[q.option_ids.index(words) for words in q.option_ids] for q in task_inputs]
        return [
            option_likelihoods[indices].log_softmax(0).numpy()[None]
            for option_likelihoods, indices in zip(item_likelihoods, first, strict=True)
        ]

    def merge_scores(
        self, task_inputs: Sequence[TaskInput], input_scores: Sequence[np.ndarray]
    ) -> Float[np.ndarray, "1 options"]:
        """Merge the scores of the parts of an item."""
        return np.concatenate(input_scores)

    def prediction(self, item: TaskExample, scores: Float[np.ndarray, "1 options"]) -> int:
        """Return the likeliest option."""
        return predict_choice(scores)

    def prediction_record(
        self, item: TaskExample, scores: Float[np.ndarray, "1 options"]
    ) -> PredictionRecord:
        """Return {"choice", "index", "probability", "probabilities"}."""
        return choice_prediction_record(item, scores)

    def loss(self, item: TaskExample, scores: Float[np.ndarray, "1 options"]) -> tuple[float, int]:
        """Return the cross-entropy of the right option."""
        return choice_cross_entropy(item, scores)


def multiple_choice_heads(task: Task, preset: Published) -> dict[str, HeadSpec]:
    """Return a head with one score per option, or the language head for options as words.

    The head is called "choice" if transformers has a multiple-choice class for the family.
    Otherwise (GPT-2) it is a classification head with one label, which computes the same scores.
    """
    options = from_dict(MultipleChoiceOptions, task.options, "options")
    if uses_word_labels(preset):
        return word_label_heads(preset, options)
    head = classification_head(task, preset, options)
    class_names = preset.config_mapping.class_names
    has_class = (CHOICE_HEAD,) in class_names or unsupported_reason(CHOICE_HEAD, class_names[()])
    name = CHOICE_HEAD if has_class else LABEL_HEAD
    return {name: replace(head, term=name, n_labels=1, loss=ChoiceCrossEntropy())}


def formulate_multiple_choice(
    task: Task, preset: Published, tokenizer: Tokenizer
) -> TaskFormulation:
    """Formulate multiple choice with a head, or with the likelihoods of the options."""
    if uses_word_labels(preset):
        return WordChoiceFormulation(task=task, tokenizer=tokenizer)
    (head,) = multiple_choice_heads(task, preset)
    return MultipleChoiceFormulation(
        task=task,
        tokenizer=tokenizer,
        template=input_template(task, preset, tokenizer.special_ids),
        head_name=head,
    )
