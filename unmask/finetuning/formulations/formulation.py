"""Formulations of tasks: the model's inputs, the head, and the meaning of its scores.

`TaskFormulation` is their common interface. An encoder or decoder has a head on the pooled text
(`classification_head`) or on each word (`token_classification_head`), or predicts a word in a blank
(`cloze`). An encoder-decoder predicts labels as words (`word_labels`), as T5 does, or has heads on
the states of its decoder, which reads the text again (BART; `InputTemplate.repeat_in_decoder`).
Models that generate text have `text_to_text`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.model import Model
from unmask.model.architecture import BackboneArchitecture
from unmask.model.layers.attention.block_local_mask import GlobalTokens
from unmask.tasks.task import Label, Task, TaskExample
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.tokenizers.splitting.long_texts import LONG_TEXT_CHARACTERS
from unmask.zoo.catalogue import preset_for_config
from unmask.zoo.preset import Published

LABEL_HEAD, TOKEN_LABEL_HEAD, LANGUAGE_HEAD = "label", "token_label", "language"
SPAN_HEAD, CHOICE_HEAD = "spans", "choice"
"""Names of heads in presets and checkpoints."""

DEFAULT_MAX_LENGTH = 512

PredictionRecord = dict[str, Any] | float
"""A prediction as plain data: {"label", "probability", "probabilities"} for a text, {"labels",
"probabilities"} for a sentence, {"answer"} for generated text, or a number."""
ItemScores = Any
"""The scores of an item, from which the prediction is derived: for most tasks an array of the
log-probabilities of labels at each target position [n labels]."""


@dataclass(frozen=True)
class TokenSpan:
    """Tokens of an input that are a text, as far as it is not truncated."""

    start: int
    length: int


@dataclass(frozen=True, kw_only=True)
class TextWindow:
    """A window of a text that is read in parts."""

    start: int
    """Index of the first token."""
    offsets: Int[np.ndarray, "_ 2"]
    """Start and end of each token in the text, in characters."""


@dataclass(frozen=True, kw_only=True)
class TaskInput:
    """The model's input for an item, or for a part of it."""

    item_index: int
    """Index of the item."""
    example: Example
    truncated: bool = False
    """Whether the text was truncated."""
    target_truncated: bool = False
    """Whether the target was truncated."""
    window: TextWindow | None = None
    """The window, if the text is read in parts that are merged by position."""
    option_ids: tuple[tuple[int, ...], ...] = ()
    """Tokens of the answer choices, if each item has its own."""


@runtime_checkable
class TaskFormulation(Protocol):
    """A task in the form of inputs and outputs of a model."""

    @property
    def task(self) -> Task:
        """The task."""
        ...

    @property
    def special_ids(self) -> SpecialTokenIds:
        """The vocabulary's special tokens."""
        ...

    def build_inputs(self, items: Sequence[TaskExample]) -> list[TaskInput]:
        """Build the model's inputs, one or more per item, with targets if labels are known."""
        ...

    def compute_scores(
        self, model: Model, batch: Batch, task_inputs: Sequence[TaskInput]
    ) -> Sequence[Any]:
        """Return the scores of each input, usually an array."""
        ...

    def merge_scores(
        self, task_inputs: Sequence[TaskInput], input_scores: Sequence[Any]
    ) -> ItemScores:
        """Merge the scores of all inputs of an item, in order."""
        ...

    def prediction(self, item: TaskExample, scores: ItemScores) -> Label:
        """Return the prediction for the scores of an item."""
        ...

    def prediction_record(self, item: TaskExample, scores: ItemScores) -> PredictionRecord:
        """Return the prediction as plain data, with probabilities."""
        ...

    def loss(self, item: TaskExample, scores: ItemScores) -> tuple[float, int]:
        """Return the loss of a labeled item, summed over targets, and the number of targets."""
        ...


@runtime_checkable
class LabelFormulation(TaskFormulation, Protocol):
    """A `TaskFormulation` of labels, or a number, of whole texts."""

    def label_log_odds(self, model: Model, batch: Batch, index: int) -> Float[Tensor, "b"]:
        """Return log p - log(1 - p) of a label, or the number, with a gradient."""
        ...

    def text_spans(self, lengths: Sequence[int]) -> list[TokenSpan]:
        """Return where the tokens of each text are in an input.

        Args:
            lengths: tokens of each text before the input is truncated.

        Raises:
            ValueError: an input has each text twice.
        """
        ...


@runtime_checkable
class ThresholdTuning(Protocol):
    """A `TaskFormulation` with a threshold that is tuned after training."""

    def with_tuned_threshold(
        self, items: Sequence[TaskExample], scores: Sequence[ItemScores]
    ) -> TaskFormulation:
        """Tune the threshold on the scores of the dev file."""
        ...


@runtime_checkable
class LimitsDevEvaluation(Protocol):
    """A `TaskFormulation` with slow predictions: in training only some dev items are scored."""

    @property
    def max_dev_items(self) -> int:
        """Maximum number of dev items."""
        ...


@runtime_checkable
class ResamplesExamples(Protocol):
    """A `TaskFormulation` whose examples are sampled again in each epoch."""

    def sample_example(self, example: Example, rng: np.random.Generator) -> Example:
        """Return a sample of an example, with the same number of tokens."""
        ...


def uses_word_labels(preset: Published) -> bool:
    """Return whether the model predicts labels as words, because it has no classification head."""
    return is_encoder_decoder(preset) and preset.classification_head is None


def is_encoder_decoder(preset: Published) -> bool:
    """Return whether the model has an encoder and a decoder."""
    return preset.architecture.is_encoder_decoder


def language_modeling_head(preset: Published) -> LanguageModeling:
    """Return the head that predicts tokens: the model's own, or its family's.

    Raises:
        ValueError: the family has none.
    """
    like = preset_for_config({"model_type": preset.config_mapping.model_type})
    spec = {**like.extra_heads, **like.heads, **preset.heads}.get(LANGUAGE_HEAD)
    if not isinstance(spec, LanguageModeling):
        raise ValueError(f"models of the family {preset.family} have no language head")
    return spec


def resolve_max_length(preset: Published, max_length: int | None, n_virtual_tokens: int = 0) -> int:
    """Return the maximum input length: the requested one, or 512 if the model supports it.

    Args:
        preset: preset of the model, which has the number of positions.
        max_length: requested length, or None.
        n_virtual_tokens: positions that virtual tokens take before each text.

    Raises:
        ValueError: the model has too few positions.
    """
    most = preset.architecture.max_positions
    if most is None:
        return DEFAULT_MAX_LENGTH if max_length is None else max_length
    available = most - n_virtual_tokens
    if available < 1:
        raise ValueError(
            f"{n_virtual_tokens} learned tokens leave no room in {preset.name}, which reads {most}"
        )
    if max_length is None:
        return min(DEFAULT_MAX_LENGTH, available)
    if max_length > available:
        reserved = f" less {n_virtual_tokens} of learned tokens" if n_virtual_tokens else ""
        raise ValueError(
            f"max_length must be at most {available}, the positions of {preset.name}{reserved}, "
            f"got {max_length}"
        )
    return max_length


@dataclass(frozen=True, kw_only=True)
class InputTemplate:
    """The special tokens around texts, and the space for text between them."""

    special_ids: SpecialTokenIds
    prefix: tuple[int, ...]
    separator: tuple[int, ...]
    suffix: tuple[int, ...]
    causal: bool
    """Whether attention is causal."""
    max_length: int
    encode_separately: bool = False
    """Whether two texts are encoded separately."""
    both_orders: bool = False
    """Whether a decoder reads two texts in both orders, each separately (Radford et al. 2018,
    section 3.3, similarity)."""
    repeat_in_decoder: bool = False
    """Whether both stacks of an encoder-decoder read the text, in the decoder shifted by one
    position. A decoder state depends on the whole source and on the earlier tokens (Lewis et al.
    2020, arXiv:1910.13461, sections 3.1 and 3.2)."""
    global_first_token: bool = False
    """Whether the first token has global attention (Beltagy et al. 2020, section 3.1, for
    classification)."""

    @staticmethod
    def from_architecture(
        special_ids: SpecialTokenIds, architecture: BackboneArchitecture, max_length: int, *,
        encode_separately: bool = False, both_orders: bool = False,
        global_first_token: bool = False,
    ) -> "InputTemplate":  # fmt: skip
        """Return the template with the special tokens of the tokenizer, as in other libraries.

        A decoder without a separator (GPT-2) has its end-of-text token between two texts, like the
        delimiter of the first GPT (Radford et al. 2018, section 3.3). No other token is added after
        a text: GPT-2 is classified by its last token of text.

        Raises:
            ValueError: the maximum length leaves no room for text.
        """
        a, twice = architecture.decoder_stack, architecture.is_encoder_decoder
        between = special_ids.separator
        if not between and special_ids.end is not None:
            between = (special_ids.end,)
        if encode_separately:
            between = (*special_ids.suffix, *special_ids.prefix)
        least = len(special_ids.prefix) + len(between) + len(special_ids.suffix) + 2
        if max_length < least:
            raise ValueError(f"max_length must be at least {least}, got {max_length}")
        return InputTemplate(
            special_ids=special_ids,
            prefix=special_ids.prefix,
            separator=between,
            suffix=special_ids.suffix,
            causal=a.causal and not twice,
            max_length=max_length,
            encode_separately=encode_separately,
            both_orders=both_orders,
            repeat_in_decoder=twice,
            global_first_token=global_first_token and a.has_global_tokens,
        )

    def build_example(self, texts: Sequence[Int[np.ndarray, "_"]]) -> tuple[Example, bool]:
        """Add special tokens to one or two texts; return the example and whether it was cut."""
        if not self.both_orders or len(texts) < 2:
            return self._build_in_order(texts)
        (forward, cut), (backward, _) = (
            self._build_in_order(texts),
            self._build_in_order(texts[::-1]),
        )
        ids = np.concatenate((forward.inputs, backward.inputs))
        example = Example(
            inputs=ids,
            targets=np.full(len(ids), IGNORE_INDEX, np.int64),
            rank=np.arange(len(ids)),
            part_ids=np.repeat([0, 1], [len(forward.inputs), len(backward.inputs)]),
        )
        return example, cut

    def max_text_tokens(self, n_texts: int) -> int:
        """Return the maximum number of tokens of one or two texts together."""
        fixed = len(self.prefix) + len(self.suffix) + len(self.separator) * (n_texts - 1)
        return self.max_length - fixed

    def text_spans(self, lengths: Sequence[int]) -> list[TokenSpan]:
        """Return where the tokens of each of one or two texts are; see `LabelFormulation`.

        Raises:
            ValueError: two texts are read in both orders.
        """
        if self.both_orders and len(lengths) > 1:
            raise ValueError("texts have no single place in an input that has both orders of them")
        return spans_after(
            (len(self.prefix), len(self.separator)), lengths, self.max_text_tokens(len(lengths))
        )

    def _build_in_order(self, texts: Sequence[Int[np.ndarray, "_"]]) -> tuple[Example, bool]:
        """Add special tokens to texts in the given order."""
        n_kept = truncate_longest_first([len(t) for t in texts], self.max_text_tokens(len(texts)))
        first = [*self.prefix, *texts[0][: n_kept[0]].tolist()]
        second: list[int] = []
        if len(texts) == 2:
            begins = len(self.separator) - (len(self.prefix) if self.encode_separately else 0)
            first += self.separator[:begins]
            second = [*self.separator[begins:], *texts[1][: n_kept[1]].tolist()]
        ids = np.array([*first, *second, *self.suffix] or [self.special_ids.start], np.int64)
        text_ids = None
        if len(texts) == 2:
            text_ids = np.repeat([0, 1], [len(first), len(ids) - len(first)])
        example = Example(
            inputs=ids,
            targets=np.full(len(ids), IGNORE_INDEX, np.int64),
            rank=np.arange(len(ids)) if self.causal else None,
            segments=None if self.encode_separately else text_ids,
            part_ids=text_ids if self.encode_separately else None,
        )
        if self.global_first_token:
            starts = [0, len(first)] if second and self.encode_separately else [0]
            example = example.with_feature(GlobalTokens(np.array(starts)))
        if self.repeat_in_decoder:
            decoder_inputs = np.append(self.special_ids.start, ids[:-1])
            example = replace(example, inputs=decoder_inputs, source=ids, rank=np.arange(len(ids)))
        return example, n_kept != [len(t) for t in texts]


def truncate_longest_first(lengths: Sequence[int], budget: int) -> list[int]:
    """Return the number of tokens to keep of one or two texts: the longer one is truncated first.

    If both are truncated, the longer one (of equals the second) has the odd token, as in the
    tokenizers library.
    """
    if len(lengths) == 1 or sum(lengths) <= budget:
        return [min(n, budget) for n in lengths]
    short = 1 if lengths[0] > lengths[1] else 0
    n_short = min(lengths[short], budget // 2)
    n_kept = [budget - n_short] * 2
    n_kept[short] = n_short
    return n_kept


def spans_after(before: Sequence[int], lengths: Sequence[int], budget: int) -> list[TokenSpan]:
    """Return where the tokens of texts are, each after so many others; see `text_spans`."""
    spans: list[TokenSpan] = []
    end = 0
    for n_before, n in zip(before, truncate_longest_first(lengths, budget), strict=False):
        spans.append(TokenSpan(end + n_before, n))
        end += n_before + n
    return spans


def log_odds(scores: Float[Tensor, "b labels"], index: int) -> Float[Tensor, "b"]:
    """Return log p - log(1 - p) of a label under a softmax: s less the log-sum of the others."""
    others = torch.arange(scores.shape[1], device=scores.device) != index
    return scores[:, index] - scores[:, others].logsumexp(-1)


def encode_texts(
    tokenizer: Tokenizer, items: Sequence[TaskExample], max_tokens: int
) -> list[tuple[Int[np.ndarray, "_"], ...]]:
    """Encode the texts of each item; all items have one, or all have two.

    Long texts are encoded only as far as `truncate_longest_first` to `max_tokens` has the same
    result as for the whole texts: beyond the available space and, for two such texts, until it is
    known which one is longer.
    """
    columns = list(zip(*(item.texts for item in items), strict=True))
    encoded_columns = (tokenizer.encode_prefix_batch(column, max_tokens + 1) for column in columns)
    encoded = list(zip(*encoded_columns, strict=True))
    if max_tokens % 2 == 0:
        return encoded
    for i, item in enumerate(items):
        n = max_tokens + 1
        while _is_long_pair(item.texts) and all(len(ids) >= n for ids in encoded[i]):
            n *= 8
            before, encoded[i] = encoded[i], tuple(tokenizer.encode_prefix_batch(item.texts, n))
            if [len(ids) for ids in before] == [len(ids) for ids in encoded[i]]:
                break  # both are encoded completely
    return encoded


def _is_long_pair(texts: Sequence[str]) -> bool:
    return len(texts) == 2 and max(map(len, texts)) > LONG_TEXT_CHARACTERS


def count_texts(items: Sequence[TaskExample]) -> int:
    """Return the number of texts of each item."""
    return len(items[0].texts) if items else 1


def label_indices(task: Task, label_value: Label) -> list[int]:
    """Return the index of a label, or of each word's; for numbers as words, of the nearest one."""
    if isinstance(label_value, float):
        return [
            int(np.abs(np.array([float(label) for label in task.labels]) - label_value).argmin())
        ]
    return [
        task.labels.index(t)
        for t in (label_value if isinstance(label_value, tuple) else (label_value,))
    ]


def label_cross_entropy(task: Task, label: Label, scores: Float[np.ndarray, "n labels"]) -> float:
    """Sum the cross-entropy of labels, in nats."""
    at = np.arange(len(scores)), label_indices(task, label)
    return -float(scores[at].sum(dtype=np.float64))


def label_prediction_record(
    task: Task, prediction: Label, scores: Float[np.ndarray, "n labels"]
) -> dict[str, Any]:
    """Return a label, or one for each word, with its probabilities."""
    shares = np.exp(scores.astype(np.float64))
    shares /= shares.sum(-1, keepdims=True)
    own = shares[np.arange(len(shares)), label_indices(task, prediction)].tolist()
    if isinstance(prediction, tuple):
        return {"labels": list(prediction), "probabilities": own}
    return {
        "label": prediction,
        "probability": own[0],
        "probabilities": dict(zip(task.labels, shares[0].tolist(), strict=True)),
    }
