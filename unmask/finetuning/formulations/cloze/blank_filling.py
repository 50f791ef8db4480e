"""Cloze classification: the pretrained language head scores a word for each label in a blank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, permutations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.batching.collate import pad_examples
from unmask.config import from_dict
from unmask.finetuning.formulations.cloze.pattern import BLANK_MARKER, ClozePattern
from unmask.finetuning.formulations.cloze.scoring import (
    score_left_to_right,
    score_most_confident_first,
)
from unmask.finetuning.formulations.formulation import (
    LABEL_HEAD,
    LANGUAGE_HEAD,
    InputTemplate,
    PredictionRecord,
    TaskFormulation,
    TaskInput,
    encode_texts,
    is_encoder_decoder,
    label_cross_entropy,
    label_indices,
    label_prediction_record,
    language_modeling_head,
    resolve_max_length,
    truncate_longest_first,
)
from unmask.heads.language.candidates import Candidates
from unmask.heads.model import Model
from unmask.heads.spec import HeadSpec
from unmask.model.layers.attention.query_stream import TwoStreamAttention
from unmask.objectives.features import TwoStream
from unmask.tasks.kinds.cloze import ClozeOptions
from unmask.tasks.task import Label, Task, TaskColumns, TaskExample
from unmask.text.formats.records import format_names
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.preset import Published

ONE_TEXT_PATTERN, TWO_TEXT_PATTERN = "{0} It was [MASK].", "{0}? [MASK], {1}"
"""Patterns for one text and for two: Gao et al. 2021, arXiv:2012.15723, table 1, SST-2 and MNLI."""


def encode_label_words(
    tokenizer: Tokenizer, label_words: Mapping[str, str], *, with_leading_space: bool, causal: bool
) -> tuple[tuple[int, ...], ...]:
    """Return the tokens of each label's word; with `with_leading_space`, of the word after a space.

    Raises:
        ValueError: a word is not in the vocabulary, two labels have the same word, or, if `causal`,
            the tokens of one are a prefix of another's.
    """
    words = [f" {word}" if with_leading_space else word for word in label_words.values()]
    label_of_tokens: dict[tuple[int, ...], str] = {}
    for label, word, ids in zip(
        label_words, label_words.values(), tokenizer.encode_ids_batch(words), strict=True
    ):
        tokens = tuple(ids.tolist())
        if not tokens or not tokenizer.special_ids.all_ids.isdisjoint(tokens):
            pieces = " + ".join(piece.strip() for piece in tokenizer.pieces(tokens))
            raise ValueError(
                f"the word {word!r} of label {label!r} must be in the vocabulary, got "
                f"{pieces or 'nothing'}; choose another by the option label_words"
            )
        if tokens in label_of_tokens:
            raise ValueError(
                f"the labels {label_of_tokens[tokens]!r} and {label!r} have the same word, {word!r}"
            )
        label_of_tokens[tokens] = label
    for short, long in permutations(label_of_tokens, 2) if causal else ():
        if long[: len(short)] == short:  # never less likely
            raise ValueError(
                f"the word of label {label_of_tokens[long]!r} continues that of "
                f"{label_of_tokens[short]!r}, {label_words[label_of_tokens[short]]!r}, which is "
                "always more likely in a causal model; choose others by the option label_words"
            )
    return tuple(label_of_tokens)


@dataclass(frozen=True, kw_only=True)
class ClozeFormulation:
    """Labels as words in a blank: Schick and Schütze 2021, arXiv:2001.07676, section 3.1.

    The input is a text within a pattern that has one blank. The pretrained language head scores the
    word of each label there, with a softmax over these words. The blank of an encoder is a mask
    token; that of a decoder is the end of the pattern. There are no new weights, so a model can
    answer without training. Texts are truncated, the pattern never is.

    Words may have several tokens: Schick and Schütze 2021, arXiv:2009.07118, section 3.1. In
    training, an encoder reads as many mask tokens as the longest word has tokens, and predicts all
    tokens of the correct word at once. At inference, it reads as many as each word has; see
    `score_most_confident_first`. A decoder reads the word itself. The likelihood of a word is the
    product of its tokens' likelihoods, without length normalization.
    Deviates: the softmax is over the tokens of all label words, in the paper over the vocabulary;
    the loss is the cross-entropy, in the paper a margin between words. Thus words of a single token
    are treated as in the former paper.
    """

    task: Task
    tokenizer: Tokenizer
    template: InputTemplate
    pattern: ClozePattern
    pattern_parts: tuple[tuple[int, ...] | int, ...]
    """Tokens of the parts of the pattern."""
    label_token_ids: tuple[tuple[int, ...], ...]
    """Tokens of each label's word."""
    shifted_targets: bool = False
    """Whether an encoder predicts a masked token at the position before it."""
    two_stream: bool = False
    """Whether a query stream predicts masked tokens, whose positions are invisible (XLNet)."""

    @staticmethod
    def from_pattern(
        task: Task,
        tokenizer: Tokenizer,
        template: InputTemplate,
        pattern: ClozePattern,
        label_words: Mapping[str, str],
        *,
        shifted_targets: bool = False,
        two_stream: bool = False,
    ) -> "ClozeFormulation":
        """Encode a pattern and the words of the labels.

        Raises:
            ValueError: words are ambiguous or not in the vocabulary, or the maximum length leaves
                no room for text.
        """
        written = [part.rstrip(" ") if isinstance(part, str) else "" for part in pattern.parts]
        tokens = [tuple(ids.tolist()) for ids in tokenizer.encode_ids_batch(written)]
        formulation = ClozeFormulation(
            task=task,
            tokenizer=tokenizer,
            template=template,
            pattern=pattern,
            pattern_parts=tuple(
                part if isinstance(part, int) else ids
                for part, ids in zip(pattern.parts, tokens, strict=True)
            ),
            label_token_ids=encode_label_words(
                tokenizer,
                label_words,
                with_leading_space=pattern.has_space_before(pattern.blank_index),
                causal=template.causal,
            ),
            shifted_targets=shifted_targets,
            two_stream=two_stream,
        )
        if formulation.max_text_tokens < 2:
            raise ValueError(
                f"max_length must be at least {task.max_length - formulation.max_text_tokens + 2}, "
                f"since the pattern is read too, got {task.max_length}"
            )
        return formulation

    @property
    def special_ids(self) -> SpecialTokenIds:
        """The vocabulary's special tokens."""
        return self.template.special_ids

    @property
    def max_text_tokens(self) -> int:
        """Maximum number of tokens of all texts."""
        nothing = np.zeros(0, np.int64)
        longest = max(self.label_token_ids, key=len)
        framed = self._cloze_example(
            *self._split_at_blank([nothing, nothing]), longest, len(longest)
        )
        return self.template.max_length - len(framed.inputs)

    @property
    def n_masks(self) -> int:
        """Number of tokens of the longest word."""
        return max(map(len, self.label_token_ids))

    @property
    def candidate_ids(self) -> Int[np.ndarray, "k"]:
        """The distinct tokens of all words."""
        return np.array(list(dict.fromkeys(chain(*self.label_token_ids))), np.int64)

    def build_inputs(self, items: Sequence[TaskExample]) -> list[TaskInput]:
        """Insert each item's texts into the pattern."""
        spaced, room = (
            [replace(item, texts=self._with_pattern_spaces(item.texts)) for item in items],
            self.max_text_tokens,
        )
        task_inputs: list[TaskInput] = []
        for i, (item, texts) in enumerate(
            zip(items, encode_texts(self.tokenizer, spaced, room), strict=True)
        ):
            n_kept = truncate_longest_first([len(t) for t in texts], room)
            cut = [text[:n] for text, n in zip(texts, n_kept, strict=True)]
            # An unknown label is replaced by the first, which marks the target positions.
            label = 0 if item.label is None else label_indices(self.task, item.label)[0]
            example = self._cloze_example(
                *self._split_at_blank(cut), self.label_token_ids[label], self.n_masks
            )
            task_inputs.append(
                TaskInput(
                    item_index=i, example=example, truncated=n_kept != [len(t) for t in texts]
                )
            )
        return task_inputs

    def _with_pattern_spaces(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Move spaces of the pattern to the texts after them; the blank has its own."""
        at = {part: i for i, part in enumerate(self.pattern_parts) if isinstance(part, int)}
        spaced = {
            i
            for i, p in at.items()
            if p != self.pattern.blank_index and self.pattern.has_space_before(p)
        }
        return tuple(f" {text}" if i in spaced else text for i, text in enumerate(texts))

    def _split_at_blank(
        self, texts: Sequence[Int[np.ndarray, "_"]]
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Return the tokens before the blank and after it."""
        around, blank = self.template, self.pattern.blank_index
        written = [texts[p].tolist() if isinstance(p, int) else p for p in self.pattern_parts]
        before = [*around.prefix, *chain(*written[:blank])]
        if around.causal:  # the blank is what comes after the last
            return before or [self.special_ids.start], []
        return before, [*chain(*written[blank:]), *around.suffix]

    def _cloze_example(
        self,
        prefix_ids: Sequence[int],
        suffix_ids: Sequence[int],
        word_ids: Sequence[int],
        n_masks: int,
    ) -> Example:
        """Build the example that predicts a word; for an encoder, with `n_masks` mask tokens."""
        if self.template.causal:
            ids = [*prefix_ids, *word_ids[:-1]]
            at = len(prefix_ids) - 1
        else:
            assert self.special_ids.mask is not None
            prefix_ids = prefix_ids or [self.special_ids.start] * self.shifted_targets
            ids = [*prefix_ids, *[self.special_ids.mask] * n_masks, *suffix_ids]
            at = len(prefix_ids) - self.shifted_targets
        targets = np.full(len(ids), IGNORE_INDEX, np.int64)
        targets[at : at + len(word_ids)] = word_ids
        rank = np.arange(len(ids)) if self.template.causal else None
        if self.two_stream:
            rank = (np.array(ids) == self.special_ids.mask).astype(np.int64)
        return Example(
            inputs=np.array(ids, np.int64),
            targets=targets,
            rank=rank,
            features=(Candidates(self.candidate_ids), *([TwoStream()] if self.two_stream else [])),
        )

    def compute_scores(
        self, model: Model, batch: Batch, task_inputs: Sequence[TaskInput]
    ) -> list[Float[np.ndarray, "1 labels"]]:
        """Score the words of all labels at the blank of each text."""
        if self.n_masks > 1:
            scores = self._multi_token_likelihoods(model, task_inputs)
        else:
            candidates = batch.feature(Candidates)
            assert candidates is not None
            hidden = model.hidden_states(batch).flatten(0, 1)
            mask_states = (
                hidden if batch.target_positions is None else hidden[batch.target_positions]
            )
            scores = model.language_head.candidate_logits(mask_states, candidates.ids).float()
        return list(scores.log_softmax(-1).cpu().numpy()[:, None])

    def _multi_token_likelihoods(
        self, model: Model, task_inputs: Sequence[TaskInput]
    ) -> Float[Tensor, "b labels"]:
        """Score words of several tokens: one by one with a decoder, by length with an encoder."""
        if self.template.causal:
            batches = (
                self._batch_for_word(model, task_inputs, word) for word in self.label_token_ids
            )
            return torch.stack([score_left_to_right(model, batch) for batch in batches], -1)
        scores_by_word: dict[Sequence[int], Tensor] = {}
        for _, some in groupby(sorted(self.label_token_ids, key=len), len):
            words = list(some)
            word_scores = score_most_confident_first(
                model, self._batch_for_word(model, task_inputs, words[0]), words
            )
            scores_by_word |= zip(words, word_scores.unbind(-1), strict=True)
        return torch.stack([scores_by_word[word] for word in self.label_token_ids], -1)

    def _batch_for_word(
        self, model: Model, task_inputs: Sequence[TaskInput], word_ids: Sequence[int]
    ) -> Batch:
        """Return the batch for a word; for an encoder, with as many blanks as it has tokens."""
        examples: list[Example] = []
        for inputs, targets in ((q.example.inputs, q.example.targets) for q in task_inputs):
            at = int(np.flatnonzero(targets != IGNORE_INDEX)[0]) + self.shifted_targets
            before, after = inputs[:at], inputs[at + self.n_masks :]
            if self.template.causal:
                before, after = inputs[: at + 1], inputs[:0]
            examples.append(
                self._cloze_example(before.tolist(), after.tolist(), word_ids, len(word_ids))
            )
        return pad_examples(examples, self.special_ids).to(model.device)

    def merge_scores(
        self, task_inputs: Sequence[TaskInput], input_scores: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Merge the scores of the parts of an item."""
        return np.concatenate(input_scores)

    def prediction(self, item: TaskExample, scores: Float[np.ndarray, "1 labels"]) -> Label:
        """Return the label whose word is most likely."""
        return self.task.labels[int(scores[0].argmax())]

    def prediction_record(
        self, item: TaskExample, scores: Float[np.ndarray, "1 labels"]
    ) -> PredictionRecord:
        """Return {"label", "probability", "probabilities"}."""
        return label_prediction_record(self.task, self.prediction(item, scores), scores)

    def loss(self, item: TaskExample, scores: Float[np.ndarray, "1 labels"]) -> tuple[float, int]:
        """Return the cross-entropy of the label among all, in nats."""
        assert item.label is not None
        return label_cross_entropy(self.task, item.label, scores), 1


def cloze_heads(task: Task, preset: Published) -> dict[str, HeadSpec]:
    """Return the language head of pretraining.

    Raises:
        ValueError: the model is an encoder-decoder.
    """
    if is_encoder_decoder(preset):
        raise ValueError(
            f"cloze is for an encoder or a decoder, and {preset.name} is both: classify lets "
            "it say labels in words, or puts a head on it"
        )
    return {LANGUAGE_HEAD: replace(language_modeling_head(preset), term=LABEL_HEAD)}


def formulate_cloze(task: Task, preset: Published, tokenizer: Tokenizer) -> TaskFormulation:
    """Formulate classification as prediction of a label's word in the blank of a pattern.

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
        head.generation is not None and head.generation.shifted_targets,
        isinstance(head.query_stream, TwoStreamAttention),
    )
    return ClozeFormulation.from_pattern(
        task, tokenizer, around, pattern, words, shifted_targets=ahead, two_stream=blind
    )


def _default_pattern(task: Task, template: InputTemplate) -> str:
    """Return the default pattern for the number of texts; a decoder's ends with its blank."""
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
    """Return a task for zero-shot classification: `predict(opened, texts, task=cloze(...))`.

    Args:
        preset: preset of the model.
        label_words: word of each label: {"bad": "terrible", "good": "great"}.
        pattern: text with a blank. None: a default pattern.
        text_names: names of the texts in the pattern, one or two.
        max_length: maximum number of input tokens.

    Raises:
        ValueError: `max_length` exceeds the positions of the model.
    """
    return Task(
        task_kind="cloze",
        columns=TaskColumns(texts=tuple(text_names), label="label"),
        labels=tuple(label_words),
        task_name="cloze",
        max_length=resolve_max_length(preset, max_length),
        options={"pattern": pattern, "label_words": dict(label_words)},
    )
