"""How a model is asked a task: what it reads, which head answers, and what its scores mean.

`TaskFormulation` is what every way of asking offers. An encoder or decoder is asked through a head
on one token (`classification_head`) or on each word (`token_classification_head`), or for a word in
a blank (`cloze`). An encoder-decoder says the answer in words (`word_labels`) as T5 does, or is
asked through heads as well, on the states of its decoder, which reads the text once more (BART;
`InputTemplate.repeat_in_decoder`). What writes is asked for text (`text_to_text`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.model import Model
from unmask.model.architecture import BackboneArchitecture
from unmask.model.layers.attention.block_local_mask import GlobalTokens
from unmask.tasks.task import Label, Task, TaskExample
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.long_texts import LONG_TEXT_CHARACTERS
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.catalogue import preset_for_config
from unmask.zoo.preset import Published

LABEL_HEAD, TOKEN_LABEL_HEAD, LANGUAGE_HEAD = "label", "token_label", "language"
SPAN_HEAD, CHOICE_HEAD = "spans", "choice"
"""Names of heads, as cards and checkpoints have them."""

DEFAULT_MAX_LENGTH = 512

PredictionRecord = dict[str, Any] | float
"""What is said of an item, as plain data: of a text {"label", "probability", "probabilities"}, of a
sentence {"labels", "probabilities"}, of what was written {"answer"}, or a number."""
ItemScores = Any
"""What a model says of an item before it is read as an answer: of most tasks an array of the
log-probabilities of the labels at each place asked [n labels]."""


@dataclass(frozen=True, kw_only=True)
class TextWindow:
    """Which part of a text a question holds, of one that is read in parts."""

    start: int
    """Its first token."""
    offsets: Int[np.ndarray, "_ 2"]
    """Where each of its tokens is in the text, in characters."""


@dataclass(frozen=True, kw_only=True)
class TaskInput:
    """What a model reads for an item, or for a part of it."""

    item_index: int
    """Which one."""
    example: Example
    truncated: bool = False
    """Some of the text did not fit."""
    target_truncated: bool = False
    """Some of what is to be said did not."""
    window: TextWindow | None = None
    """None where it does not matter."""
    option_ids: tuple[tuple[int, ...], ...] = ()
    """Answers that are compared, as tokens, where each item has its own."""


@runtime_checkable
class TaskFormulation(Protocol):
    """A task put to a kind of model."""

    @property
    def task(self) -> Task:
        """What is asked."""
        ...

    @property
    def special_ids(self) -> SpecialTokenIds:
        """The vocabulary's special tokens."""
        ...

    def build_inputs(self, items: Sequence[TaskExample]) -> list[TaskInput]:
        """Write what the model reads, a question an item or more, with the truth if it is known."""
        ...

    def compute_scores(
        self, model: Model, batch: Batch, task_inputs: Sequence[TaskInput]
    ) -> Sequence[Any]:
        """Return what the model says of each question, most often an array."""
        ...

    def merge_scores(
        self, task_inputs: Sequence[TaskInput], input_scores: Sequence[Any]
    ) -> ItemScores:
        """Put together what was said of all questions about one item, in their order."""
        ...

    def prediction(self, item: TaskExample, scores: ItemScores) -> Label:
        """Return the answer that scores mean."""
        ...

    def prediction_record(self, item: TaskExample, scores: ItemScores) -> PredictionRecord:
        """Return the answer that scores mean as plain data, with its probabilities."""
        ...

    def loss(self, item: TaskExample, scores: ItemScores) -> tuple[float, int]:
        """Return the loss of an item whose truth is known, summed over places, and their number."""
        ...


@runtime_checkable
class ThresholdTuning(Protocol):
    """A `TaskFormulation` of which something is settled when its model is finished."""

    def with_tuned_threshold(
        self, items: Sequence[TaskExample], scores: Sequence[ItemScores]
    ) -> TaskFormulation:
        """Settle it by what the model says of the dev file."""
        ...


@runtime_checkable
class LimitsDevEvaluation(Protocol):
    """A `TaskFormulation` whose answers take long: in training only some dev items are scored."""

    @property
    def max_dev_items(self) -> int:
        """So many items, at most."""
        ...


@runtime_checkable
class ResamplesExamples(Protocol):
    """A `TaskFormulation` whose examples are drawn anew in every epoch."""

    def sample_example(self, example: Example, rng: np.random.Generator) -> Example:
        """Return what is learned of an example this time; it has as many tokens."""
        ...


def uses_word_labels(preset: Published) -> bool:
    """Return whether this model says its answers in words, for want of a head of labels."""
    return is_encoder_decoder(preset) and preset.classification_head is None


def is_encoder_decoder(preset: Published) -> bool:
    """Return whether an encoder reads what a decoder answers."""
    return preset.architecture.is_encoder_decoder


def language_modeling_head(preset: Published) -> LanguageModeling:
    """Return the head that predicts tokens: the model's own, or its family's.

    Raises:
        ValueError: the family has none.
    """
    like = preset_for_config({"model_type": preset.config_mapping.model_type})
    spec = {**like.extra_heads, **like.heads, **preset.heads}.get(LANGUAGE_HEAD)
    if not isinstance(spec, LanguageModeling):
        raise ValueError(f"models of the family {preset.family} name no tokens")
    return spec


def resolve_max_length(preset: Published, max_length: int | None, n_virtual_tokens: int = 0) -> int:
    """Return how many tokens a model reads at most: what is asked for, or 512 if it can.

    Args:
        preset: says how many positions the model has.
        max_length: what is asked for.
        n_virtual_tokens: positions that learned tokens take before each text.

    Raises:
        ValueError: the model has not so many positions.
    """
    most = preset.architecture.max_positions
    if most is None:
        return DEFAULT_MAX_LENGTH if max_length is None else max_length
    left = most - n_virtual_tokens
    if left < 1:
        raise ValueError(
            f"{n_virtual_tokens} learned tokens leave no room in {preset.name}, which reads {most}"
        )
    if max_length is None:
        return min(DEFAULT_MAX_LENGTH, left)
    if max_length > left:
        less = f" less {n_virtual_tokens} of learned tokens" if n_virtual_tokens else ""
        raise ValueError(
            f"max_length must be at most {left}, the positions of {preset.name}{less}, got "
            f"{max_length}"
        )
    return max_length


@dataclass(frozen=True, kw_only=True)
class InputTemplate:
    """The special tokens around texts, and how much text fits between them."""

    special_ids: SpecialTokenIds
    prefix: tuple[int, ...]
    separator: tuple[int, ...]
    suffix: tuple[int, ...]
    causal: bool
    """What is read at a token is what precedes it, and no more."""
    max_length: int
    encode_separately: bool = False
    """Two texts are read each by itself."""
    both_orders: bool = False
    """Two texts are read in both orders, each order by itself, by a decoder (Radford et al. 2018,
    section 3.3, similarity)."""
    repeat_in_decoder: bool = False
    """Both stacks of an encoder-decoder read the text, the decoder each token one place later, as
    when it says the text: the state at a place has read the whole source, and in the decoder what
    precedes it (Lewis et al. 2020, arXiv:1910.13461, section 3.1 and 3.2)."""
    global_first_token: bool = False
    """The first token of what is read by itself sees all of it and is seen by all (Beltagy et al.
    2020, section 3.1: a text is classified by it)."""

    @staticmethod
    def from_architecture(
        special_ids: SpecialTokenIds, architecture: BackboneArchitecture, max_length: int, *,
        encode_separately: bool = False, both_orders: bool = False,
        global_first_token: bool = False,
    ) -> "InputTemplate":  # fmt: skip
        """Put around texts what the model's tokenizer does: other libraries then ask the same.

        A decoder without a token between two texts (GPT-2) has its end-of-text token there, as the
        first GPT had a delimiter (Radford et al. 2018, section 3.3). Nothing is put after a text
        that the tokenizer does not put there: GPT-2's last token of text is the one that answers.

        Raises:
            ValueError: the length leaves no room for text.
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
        """Put special tokens around one or two texts, cut to fit; say whether they were."""
        if not self.both_orders or len(texts) < 2:
            return self._build_in_order(texts)
        (one, cut), (other, _) = self._build_in_order(texts), self._build_in_order(texts[::-1])
        ids = np.concatenate((one.inputs, other.inputs))
        example = Example(
            inputs=ids,
            targets=np.full(len(ids), IGNORE_INDEX, np.int64),
            rank=np.arange(len(ids)),
            part_ids=np.repeat([0, 1], [len(one.inputs), len(other.inputs)]),
        )
        return example, cut

    def max_text_tokens(self, n_texts: int) -> int:
        """Return how many tokens one or two texts may have."""
        fixed = len(self.prefix) + len(self.suffix) + len(self.separator) * (n_texts - 1)
        return self.max_length - fixed

    def _build_in_order(self, texts: Sequence[Int[np.ndarray, "_"]]) -> tuple[Example, bool]:
        """Frame texts in the order in which they are given."""
        kept = truncate_longest_first([len(t) for t in texts], self.max_text_tokens(len(texts)))
        first = [*self.prefix, *texts[0][: kept[0]].tolist()]
        second: list[int] = []
        if len(texts) == 2:
            begins = len(self.separator) - (len(self.prefix) if self.encode_separately else 0)
            first += self.separator[:begins]
            second = [*self.separator[begins:], *texts[1][: kept[1]].tolist()]
        ids = np.array([*first, *second, *self.suffix] or [self.special_ids.start], np.int64)
        which = None
        if len(texts) == 2:
            which = np.repeat([0, 1], [len(first), len(ids) - len(first)])
        example = Example(
            inputs=ids,
            targets=np.full(len(ids), IGNORE_INDEX, np.int64),
            rank=np.arange(len(ids)) if self.causal else None,
            segments=None if self.encode_separately else which,
            part_ids=which if self.encode_separately else None,
        )
        if self.global_first_token:
            starts = [0, len(first)] if second and self.encode_separately else [0]
            example = example.with_feature(GlobalTokens(np.array(starts)))
        if self.repeat_in_decoder:
            said = np.append(self.special_ids.start, ids[:-1])
            example = replace(example, inputs=said, source=ids, rank=np.arange(len(ids)))
        return example, kept != [len(t) for t in texts]


def truncate_longest_first(lengths: Sequence[int], budget: int) -> list[int]:
    """Return how much of each of one or two texts to keep: the longer one is cut until both fit.

    Where both are cut, the longer one (of equals the second) has the odd token, as in the
    tokenizers library.
    """
    if len(lengths) == 1 or sum(lengths) <= budget:
        return [min(n, budget) for n in lengths]
    short = 1 if lengths[0] > lengths[1] else 0
    n_short = min(lengths[short], budget // 2)
    kept = [budget - n_short] * 2
    kept[short] = n_short
    return kept


def encode_texts(
    tokenizer: Tokenizer, items: Sequence[TaskExample], max_tokens: int
) -> list[tuple[Int[np.ndarray, "_"], ...]]:
    """Encode the one or two texts of each item; all have as many.

    Of a long text there are so many tokens that `truncate_longest_first` to `max_tokens` says of
    them what it says of all: more than have room, and of two such texts as many as tell which one
    is longer, where that one has an odd token.
    """
    columns = list(zip(*(item.texts for item in items), strict=True))
    known = (tokenizer.encode_prefix_batch(column, max_tokens + 1) for column in columns)
    found = list(zip(*known, strict=True))
    if max_tokens % 2 == 0:
        return found
    for i, item in enumerate(items):
        n = max_tokens + 1
        while _is_long_pair(item.texts) and all(len(ids) >= n for ids in found[i]):
            n *= 8
            before, found[i] = found[i], tuple(tokenizer.encode_prefix_batch(item.texts, n))
            if [len(ids) for ids in before] == [len(ids) for ids in found[i]]:
                break  # both are whole
    return found


def _is_long_pair(texts: Sequence[str]) -> bool:
    return len(texts) == 2 and max(map(len, texts)) > LONG_TEXT_CHARACTERS


def count_texts(items: Sequence[TaskExample]) -> int:
    """Return how many texts each of some items has."""
    return len(items[0].texts) if items else 1


def label_indices(task: Task, label_value: Label) -> list[int]:
    """Return the index of the label, or of each word's; for numbers as words, of the nearest."""
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
