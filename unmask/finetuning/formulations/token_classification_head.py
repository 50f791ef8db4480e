"""Token classification: a label for each word of a sentence, by a head on one of its tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from jaxtyping import Float, Int

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.config import from_dict
from unmask.finetuning.formulations.formulation import (
    TOKEN_LABEL_HEAD,
    InputTemplate,
    PredictionRecord,
    TaskFormulation,
    TaskInput,
    label_cross_entropy,
    label_indices,
    label_prediction_record,
    uses_word_labels,
)
from unmask.heads.model import Model
from unmask.heads.spec import HeadSpec
from unmask.heads.tagging.bilstm_crf import BEST_PATH_SUFFIX, BiLSTMCRF
from unmask.tasks.kinds.tag import TaggingOptions
from unmask.tasks.tag_schemes import TagScheme, forbidden_transitions, repair_tags
from unmask.tasks.task import Task, TaskExample
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.preset import Published, token_classification_head


@dataclass(frozen=True)
class TagPredictions:
    """The scores and labels of the words of a sentence, or of a part of it."""

    log_probabilities: Float[np.ndarray, "n labels"]
    """Marginal log-probability of each label of each word."""
    best_labels: Int[np.ndarray, "n"]
    """Label of each word: the most likely one or, with a CRF, that of the most likely sequence."""


def pieces_by_word(
    tokenizer: Tokenizer, words: Sequence[str], ids: Int[np.ndarray, "n"]
) -> list[list[int]]:
    """Return the tokens of each word of a text; the space before a word belongs to it.

    Args:
        tokenizer: the tokenizer of the text.
        words: words without white space.
        ids: the tokens of the words, joined by spaces.

    Returns:
        At least one token a word; a word without any is read as an unknown token.
    """
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    begins = tokenizer.offset_array(" ".join(words))[:, 0]
    owner = np.minimum(np.searchsorted(ends, begins, side="right"), len(words) - 1)
    pieces: list[list[int]] = [[] for _ in words]
    for word, token in zip(owner.tolist(), ids.tolist(), strict=True):
        pieces[word].append(token)
    special = tokenizer.special_ids
    unknown = special.start if special.unknown is None else special.unknown
    return [own or [unknown] for own in pieces]


@dataclass(frozen=True, kw_only=True)
class TokenClassificationFormulation:
    """A label for each word, by a head on one of its tokens.

    With an encoder it is the first token (Devlin et al. 2019, section 5.3); with a decoder the last
    one, since at the first it has not read the rest of the word. A word without tokens is read as
    an unknown token. A sentence that is too long is read in parts, so that every word has a label.
    """

    task: Task
    tokenizer: Tokenizer
    template: InputTemplate
    tag_scheme: TagScheme | None = None
    """Tag scheme by which predicted tags are repaired. None: tags are not changed."""

    @property
    def special_ids(self) -> SpecialTokenIds:
        """The vocabulary's special tokens."""
        return self.template.special_ids

    def build_inputs(self, items: Sequence[TaskExample]) -> list[TaskInput]:
        """Add special tokens to each sentence, or to its parts."""
        sentences = [tuple(" ".join(word.split()) for word in item.texts) for item in items]
        encoded = self.tokenizer.encode_ids_batch([" ".join(words) for words in sentences])
        task_inputs: list[TaskInput] = []
        for i, (item, words, ids) in enumerate(zip(items, sentences, encoded, strict=True)):
            room = self._max_text_tokens
            pieces = [p[:room] for p in pieces_by_word(self.tokenizer, words, ids)]
            parts = self._split_sentence([len(p) for p in pieces])
            for start, end in parts:
                truth = (
                    None if item.label is None else cast("tuple[str, ...]", item.label)[start:end]
                )
                example = self._build_example(pieces[start:end], truth)
                task_inputs.append(
                    TaskInput(item_index=i, example=example, truncated=len(parts) > 1)
                )
        return task_inputs

    @property
    def _max_text_tokens(self) -> int:
        return self.template.max_length - len(self.template.prefix) - len(self.template.suffix)

    def _split_sentence(self, piece_counts: Sequence[int]) -> list[tuple[int, int]]:
        """Split a sentence into parts with as many whole words as fit."""
        parts: list[tuple[int, int]] = []
        start = used = 0
        for i, n in enumerate(piece_counts):
            if used + n > self._max_text_tokens:
                parts.append((start, i))
                start, used = i, 0
            used += n
        return [*parts, (start, len(piece_counts))]

    def _build_example(
        self, pieces: Sequence[Sequence[int]], labels: Sequence[str] | None
    ) -> Example:
        example, _ = self.template.build_example(
            [np.array([t for p in pieces for t in p], np.int64)]
        )
        label = np.full(len(example.inputs), IGNORE_INDEX, np.int64)
        sizes = np.array([len(p) for p in pieces], np.int64)
        last = len(self.template.prefix) + np.cumsum(sizes) - 1
        # An unknown label is 0: it only marks the target position.
        answers = [0] * len(pieces) if labels is None else label_indices(self.task, tuple(labels))
        label[last if self.template.causal else last - sizes + 1] = answers
        return replace(example, label=label)

    def compute_scores(
        self, model: Model, batch: Batch, task_inputs: Sequence[TaskInput]
    ) -> list[TagPredictions]:
        """Run the head, and return the scores at the target positions."""
        # The labels stay in the batch: they mark the words for heads over words.
        logits = model(batch, return_logits=True).logits
        logs = logits[TOKEN_LABEL_HEAD].float().log_softmax(-1)
        best = logits.get(f"{TOKEN_LABEL_HEAD}{BEST_PATH_SUFFIX}", logs.argmax(-1)).cpu().numpy()
        predictions: list[TagPredictions] = []
        for row, path, question in zip(logs.cpu().numpy(), best, task_inputs, strict=True):
            is_target = cast("np.ndarray", question.example.label) != IGNORE_INDEX
            n = len(is_target)
            predictions.append(TagPredictions(row[:n][is_target], path[:n][is_target]))
        return predictions

    def merge_scores(
        self, task_inputs: Sequence[TaskInput], input_scores: Sequence[TagPredictions]
    ) -> TagPredictions:
        """Merge the scores of the parts of an item."""
        return TagPredictions(
            np.concatenate([part.log_probabilities for part in input_scores]),
            np.concatenate([part.best_labels for part in input_scores]),
        )

    def prediction(self, item: TaskExample, scores: TagPredictions) -> tuple[str, ...]:
        """Return the label of each word."""
        labels = self.task.labels
        predicted = tuple(labels[i] for i in scores.best_labels.tolist())
        return (
            predicted
            if self.tag_scheme is None
            else repaired_tags(predicted, self.tag_scheme, labels)
        )

    def prediction_record(self, item: TaskExample, scores: TagPredictions) -> PredictionRecord:
        """Return {"labels", "probabilities"}, one for each word."""
        return label_prediction_record(
            self.task, self.prediction(item, scores), scores.log_probabilities
        )

    def loss(self, item: TaskExample, scores: TagPredictions) -> tuple[float, int]:
        """Return the cross-entropy summed over words, independently, and their number."""
        assert item.label is not None
        return label_cross_entropy(self.task, item.label, scores.log_probabilities), len(
            scores.log_probabilities
        )


def repaired_tags(
    tags: Sequence[str], tag_scheme: TagScheme, labels: Sequence[str]
) -> tuple[str, ...]:
    """Rewrite tags as their scheme requires, without changing entities.

    A tag is kept if the rewritten one is not among the labels.
    """
    pairs = zip(tags, repair_tags(tags, tag_scheme), strict=True)
    return tuple(better if better in labels else tag for tag, better in pairs)


def tagging_heads(task: Task, preset: Published) -> dict[str, HeadSpec]:
    """Return a linear head on each token, or an LSTM with a CRF over the words of a sentence.

    Raises:
        ValueError: the model predicts labels as words, and has no head on tokens.
    """
    if uses_word_labels(preset):
        raise ValueError(
            f"{preset.name} predicts labels as words and cannot label each word; "
            "tagging needs an encoder, a decoder, BART or mBART"
        )
    options, n = _options(task), max(len(task.labels), 1)
    if options.head == "linear":
        return {TOKEN_LABEL_HEAD: replace(token_classification_head(preset), n_labels=n)}
    never = (
        forbidden_transitions(task.labels, options.tag_scheme)
        if options.tag_scheme is not None
        else ()
    )
    spec = BiLSTMCRF(
        n_labels=n,
        hidden_size=options.hidden_size,
        crf=options.use_crf,
        forbidden_transitions=never,
    )
    return {TOKEN_LABEL_HEAD: spec}


def formulate_tagging(task: Task, preset: Published, tokenizer: Tokenizer) -> TaskFormulation:
    """Formulate tagging with a head on one token of each word."""
    options = _options(task)
    return TokenClassificationFormulation(
        task=task,
        tokenizer=tokenizer,
        template=InputTemplate.from_architecture(
            tokenizer.special_ids, preset.architecture, task.max_length
        ),
        tag_scheme=options.tag_scheme if options.repair_tags else None,
    )


def _options(task: Task) -> TaggingOptions:
    return from_dict(TaggingOptions, task.options, "options")
