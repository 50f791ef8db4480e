"""How a model is asked a task: what it reads, which head answers, and what its scores mean.

An encoder or decoder is asked through a head of labels on one token (`ByHead`) or on each word
(`ByWord`); an encoder-decoder says the label in words (`InWords`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.batch import IGNORE, Batch, Example, Visibility
from unmask.finetuning.tasks import Item, Task, Truth
from unmask.heads.labels import TokenLabels
from unmask.heads.model import HeadSpec, Model
from unmask.model.architecture import Architecture, EncoderDecoderArchitecture
from unmask.model.transformer import EncoderDecoder
from unmask.published.card import Published, longest
from unmask.published.catalogue import family
from unmask.tokens.tokenizer import Tokenizer
from unmask.tokens.vocabulary import Special

LABEL, TOKEN_LABEL, LANGUAGE = "label", "token_label", "language"
"""Names of heads, as cards and checkpoints have them."""

DEFAULT_LENGTH = 512
_SCORES_AT_ONCE = 2**25
"""Scores of tokens that are held at the same time while labels are compared: 128 MiB."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a model reads for an item, or for a part of it."""

    item: int
    """Which one."""
    example: Example
    cut: bool = False
    """Some of the text did not fit."""


@runtime_checkable
class Ask(Protocol):
    """A task put to a kind of model."""

    @property
    def task(self) -> Task:
        """What is asked."""
        ...

    @property
    def special(self) -> Special:
        """The vocabulary's special tokens."""
        ...

    def questions(self, items: Sequence[Item]) -> list[Question]:
        """Write what the model reads, a question an item or more, with the truth if it is known."""
        ...

    def scores(
        self, model: Model, batch: Batch, questions: Sequence[Question]
    ) -> list[Float[np.ndarray, "_ labels"]]:
        """Return for each place asked the log-probabilities of the labels, or the number."""
        ...


def heads_for(task: Task, card: Published) -> dict[str, HeadSpec]:
    """Return the heads that a card's model needs for a task.

    Raises:
        ValueError: this kind of model cannot do this task.
    """
    n = max(len(task.labels), 1)
    if isinstance(card.architecture, EncoderDecoderArchitecture):
        if task.does == "tag":
            raise ValueError(
                f"{card.name} says its answers in words and cannot label each word; "
                "tagging needs an encoder or a decoder"
            )
        spec = card.heads.get(LANGUAGE) or family(card.fields.model_type).heads[LANGUAGE]
        return {LANGUAGE: replace(spec, term=LABEL)}
    if task.does == "tag":
        return {TOKEN_LABEL: TokenLabels(n_labels=n)}
    if card.labels is None:
        raise ValueError(f"{card.name} has no head for labels")
    return {LABEL: replace(card.labels, n_labels=n)}


def in_words(card: Published) -> bool:
    """Say whether this model says its answers in words."""
    return isinstance(card.architecture, EncoderDecoderArchitecture)


def check_length(card: Published, length: int | None) -> int:
    """Return how many tokens a model reads at most: what is asked for, or 512 if it can.

    Raises:
        ValueError: the model has not so many positions.
    """
    most = longest(card.architecture)
    if length is None:
        return min(DEFAULT_LENGTH, most or DEFAULT_LENGTH)
    if most is not None and length > most:
        raise ValueError(
            f"length must be at most {most}, the positions of {card.name}, got {length}"
        )
    return length


def ask(task: Task, card: Published, tokenizer: Tokenizer) -> "Ask":
    """Choose how a model is asked.

    Raises:
        ValueError: the length leaves no room for text, or two labels are the same words to the
            tokenizer.
    """
    special = tokenizer.special
    if isinstance(card.architecture, EncoderDecoderArchitecture):
        return InWords(task=task, tokenizer=tokenizer, words=_spell(task, tokenizer))
    a = card.architecture
    frame = Around.of(special, a, task.length)
    if task.does == "tag":
        return ByWord(task=task, tokenizer=tokenizer, around=frame)
    return ByHead(task=task, tokenizer=tokenizer, around=frame)


@dataclass(frozen=True, kw_only=True)
class Around:
    """The special tokens around texts, and how much text fits between them."""

    special: Special
    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    causal: bool
    segments: bool
    length: int

    @staticmethod
    def of(special: Special, a: Architecture, length: int) -> "Around":
        """Put around texts what the family's tokenizer does: other libraries then ask the same.

        A decoder without a token between two texts (GPT-2) has its end-of-text token there, as the
        first GPT had a delimiter (Radford et al. 2018, section 3.3). Nothing is put after a text
        that the tokenizer does not put there: GPT-2's last token of text is the one that answers.

        Raises:
            ValueError: the length leaves no room for text.
        """
        between = special.between
        if not between and special.end is not None:
            between = (special.end,)
        least = len(special.before) + len(between) + len(special.after) + 2
        if length < least:
            raise ValueError(f"length must be at least {least}, got {length}")
        return Around(
            special=special, before=special.before, between=between, after=special.after,
            causal=a.causal, segments=a.n_segments > 1, length=length,
        )  # fmt: skip

    def frame(self, texts: Sequence[Int[np.ndarray, "_"]]) -> tuple[Example, bool]:
        """Put special tokens around one or two texts, cut to fit; say whether they were."""
        fixed = len(self.before) + len(self.after) + len(self.between) * (len(texts) - 1)
        kept = truncate([len(t) for t in texts], self.length - fixed)
        first = [*self.before, *texts[0][: kept[0]].tolist()]
        second: list[int] = []
        if len(texts) == 2:
            first += self.between
            second = texts[1][: kept[1]].tolist()
        ids = np.array([*first, *second, *self.after] or [self.special.start], np.int64)
        segments = None
        if self.segments and len(texts) == 2:
            segments = np.repeat([0, 1], [len(first), len(ids) - len(first)])
        example = Example(
            inputs=ids,
            targets=np.full(len(ids), IGNORE, np.int64),
            rank=np.arange(len(ids)) if self.causal else None,
            segments=segments,
        )
        return example, kept != [len(t) for t in texts]


def truncate(lengths: Sequence[int], budget: int) -> list[int]:
    """Say how much of each of one or two texts to keep: the longer one is cut until both fit.

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


def _encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Int[np.ndarray, "_"]]:
    return [np.asarray(tokens.ids, np.int64) for tokens in tokenizer.encode_batch(texts)]


def _columns_encoded(
    tokenizer: Tokenizer, items: Sequence[Item]
) -> list[tuple[Int[np.ndarray, "_"], ...]]:
    """Encode the one or two texts of each item; all have as many."""
    columns = list(zip(*(item.texts for item in items), strict=True))
    return list(zip(*(_encode(tokenizer, column) for column in columns), strict=True))


@dataclass(frozen=True, kw_only=True)
class ByHead:
    """Labels of whole texts, by a head on one token.

    The first: Devlin et al. 2019, section 4.1; the last: Radford et al. 2018, section 3.2.
    """

    task: Task
    tokenizer: Tokenizer
    around: Around
    shift: float = 0.0
    """A number that is asked for is (truth - shift) / scale."""
    scale: float = 1.0

    @property
    def special(self) -> Special:
        """The vocabulary's special tokens."""
        return self.around.special

    def questions(self, items: Sequence[Item]) -> list[Question]:
        """Frame each item's texts."""
        encoded = _columns_encoded(self.tokenizer, items)
        found: list[Question] = []
        for i, (item, texts) in enumerate(zip(items, encoded, strict=True)):
            example, cut = self.around.frame(texts)
            example = replace(example, label=self._label(item.truth))
            found.append(Question(item=i, example=example, cut=cut))
        return found

    def _label(self, truth: Truth | None) -> int | float | None:
        if truth is None:
            return None
        if isinstance(truth, float):
            return (truth - self.shift) / self.scale
        return places(self.task, truth)[0]

    def scores(
        self, model: Model, batch: Batch, questions: Sequence[Question]
    ) -> list[Float[np.ndarray, "_ labels"]]:
        """Run the head."""
        said = model(replace(batch, labels=None), scores=True).scores[LABEL].float()
        if self.task.does == "regress":
            numbers = said.double() * self.scale + self.shift
            return list(numbers.cpu().numpy()[:, None])
        return list(said.log_softmax(-1).cpu().numpy()[:, None])


@dataclass(frozen=True, kw_only=True)
class ByWord:
    """A label for each word, by a head on one of its tokens.

    An encoder is asked at the first (Devlin et al. 2019, section 5.3). A decoder, which at the
    first has not read the rest of the word, is asked at the last. A word that the tokenizer writes
    as nothing is read as an unknown one. A sentence that is too long is read in parts, so that
    every word has its label.
    """

    task: Task
    tokenizer: Tokenizer
    around: Around

    @property
    def special(self) -> Special:
        """The vocabulary's special tokens."""
        return self.around.special

    def questions(self, items: Sequence[Item]) -> list[Question]:
        """Frame each sentence, or its parts."""
        sentences = [tuple(" ".join(word.split()) for word in item.texts) for item in items]
        encoded = _encode(self.tokenizer, [" ".join(words) for words in sentences])
        found: list[Question] = []
        for i, (item, words, ids) in enumerate(zip(items, sentences, encoded, strict=True)):
            pieces = self._pieces(words, ids)
            parts = self._parts([len(p) for p in pieces])
            for start, end in parts:
                truth = (
                    None if item.truth is None else cast("tuple[str, ...]", item.truth)[start:end]
                )
                example = self._framed(pieces[start:end], truth)
                found.append(Question(item=i, example=example, cut=len(parts) > 1))
        return found

    def _pieces(self, words: Sequence[str], ids: Int[np.ndarray, "n"]) -> list[list[int]]:
        """Find whose word each token of the sentence is: a word begins with the space before it."""
        ends = np.cumsum([len(word) + 1 for word in words]) - 1
        begins = np.array([b for b, _ in self.tokenizer.offsets(" ".join(words))], np.int64)
        owner = np.minimum(np.searchsorted(ends, begins, side="right"), len(words) - 1)
        pieces: list[list[int]] = [[] for _ in words]
        for word, token in zip(owner.tolist(), ids.tolist(), strict=True):
            pieces[word].append(token)
        unknown = self.special.start if self.special.unknown is None else self.special.unknown
        room = self._room
        return [piece[:room] or [unknown] for piece in pieces]

    @property
    def _room(self) -> int:
        return self.around.length - len(self.around.before) - len(self.around.after)

    def _parts(self, sizes: Sequence[int]) -> list[tuple[int, int]]:
        """Cut a sentence into parts of as many whole words as fit."""
        parts: list[tuple[int, int]] = []
        start = used = 0
        for i, n in enumerate(sizes):
            if used + n > self._room:
                parts.append((start, i))
                start, used = i, 0
            used += n
        return [*parts, (start, len(sizes))]

    def _framed(self, pieces: Sequence[Sequence[int]], truth: Sequence[str] | None) -> Example:
        example, _ = self.around.frame([np.array([t for p in pieces for t in p], np.int64)])
        label = np.full(len(example.inputs), IGNORE, np.int64)
        sizes = np.array([len(p) for p in pieces], np.int64)
        last = len(self.around.before) + np.cumsum(sizes) - 1
        # A label that is not known is 0: it marks the place that is asked, and nothing is learned
        # from it.
        answers = [0] * len(pieces) if truth is None else places(self.task, tuple(truth))
        label[last if self.around.causal else last - sizes + 1] = answers
        return replace(example, label=label)

    def scores(
        self, model: Model, batch: Batch, questions: Sequence[Question]
    ) -> list[Float[np.ndarray, "_ labels"]]:
        """Run the head, and keep what it says where a word is asked."""
        said = model(replace(batch, labels=None), scores=True).scores[TOKEN_LABEL]
        logs = said.float().log_softmax(-1).cpu().numpy()
        kept: list[Float[np.ndarray, "_ labels"]] = []
        for row, question in zip(logs, questions, strict=True):
            asked = cast("np.ndarray", question.example.label) != IGNORE
            kept.append(row[: len(asked)][asked])
        return kept


@dataclass(frozen=True, kw_only=True)
class InWords:
    """Labels said in words: Raffel et al. 2020, section 2.4.

    The encoder reads "name column: text column: text"; the decoder says the label. An answer is the
    label whose words the model finds likeliest, the end token included, so it is always one of the
    labels. A number is rounded to one of some, about 25 from the least to the greatest (of 0 to 5:
    0.0, 0.2, ..., 5.0, as in the paper), and said likewise.
    """

    task: Task
    tokenizer: Tokenizer
    words: tuple[tuple[int, ...], ...]
    """The tokens of each label."""

    @property
    def special(self) -> Special:
        """The vocabulary's special tokens."""
        return self.tokenizer.special

    def questions(self, items: Sequence[Item]) -> list[Question]:
        """Write the source; what it says besides the texts is never cut off."""
        lead = [f"{self.task.name} {self.task.columns.texts[0]}:".strip()]
        lead += [f"{name}:" for name in self.task.columns.texts[1:]]
        said = _encode(self.tokenizer, lead)
        fixed = sum(map(len, said)) + len(self.special.after)
        if fixed + 2 > self.task.length:
            raise ValueError(
                f"length must be at least {fixed + 2}, since {' '.join(lead)!r} is read too, "
                f"got {self.task.length}"
            )
        after = np.array(self.special.after, np.int64)
        found: list[Question] = []
        for i, (item, texts) in enumerate(
            zip(items, _columns_encoded(self.tokenizer, items), strict=True)
        ):
            kept = truncate([len(t) for t in texts], self.task.length - fixed)
            parts = [p for a, b, n in zip(said, texts, kept, strict=True) for p in (a, b[:n])]
            example = self._answered(
                None if item.truth is None else places(self.task, item.truth)[0]
            )
            example = replace(example, source=np.concatenate([*parts, after]))
            found.append(Question(item=i, example=example, cut=kept != [len(t) for t in texts]))
        return found

    def _answered(self, label: int | None) -> Example:
        start = self.special.start
        said = (IGNORE,) if label is None else self.words[label]
        inputs = np.array([start, *said[:-1]], np.int64)
        return Example(inputs=inputs, targets=np.array(said, np.int64), rank=np.arange(len(said)))

    def scores(
        self, model: Model, batch: Batch, questions: Sequence[Question]
    ) -> list[Float[np.ndarray, "_ labels"]]:
        """Compare how likely the words of each label are."""
        backbone = model.backbone
        assert isinstance(backbone, EncoderDecoder)
        memory = backbone.encode(batch)
        longest_word = max(map(len, self.words))
        b, cost = len(memory), len(memory) * longest_word * model.vocab_size
        at_once = max(_SCORES_AT_ONCE // cost, 1)
        parts = [
            self._likelihood(model, batch, memory, self.words[i : i + at_once])
            for i in range(0, len(self.words), at_once)
        ]
        logs = torch.cat(parts, 1).log_softmax(-1).reshape(b, 1, -1)
        return list(logs.cpu().numpy())

    def _likelihood(
        self,
        model: Model,
        batch: Batch,
        memory: Float[Tensor, "b s d"],
        words: Sequence[Sequence[int]],
    ) -> Float[Tensor, "b labels"]:
        b, n, t = len(memory), len(words), max(map(len, words))
        targets = torch.full((n, t), IGNORE)
        for row, word in zip(targets, words, strict=True):
            row[: len(word)] = torch.tensor(word)
        inputs = torch.full((n, t), self.special.start)
        inputs[:, 1:] = targets[:, :-1].clamp(min=0)
        inputs, targets = (x.to(memory.device).repeat(b, 1) for x in (inputs, targets))  # [b·n t]
        there = batch.source_visibility.document
        again = Batch(
            inputs=inputs,
            visibility=Visibility(causal=True),
            source_visibility=Visibility(
                document=None if there is None else there.repeat_interleave(n, 0)
            ),
        )
        backbone = cast("EncoderDecoder", model.backbone)
        hidden = backbone(again, None, memory.repeat_interleave(n, 0))
        logs = model.language.scores(hidden).float().log_softmax(-1)  # [b·n t v]
        each = logs.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
        return (each * (targets != IGNORE)).sum(-1).reshape(b, n)


def places(task: Task, truth: Truth) -> list[int]:
    """Say which of the labels a truth is, or each word's; of numbers said in words, the nearest."""
    if isinstance(truth, float):
        return [int(np.abs(np.array([float(label) for label in task.labels]) - truth).argmin())]
    return [task.labels.index(t) for t in (truth if isinstance(truth, tuple) else (truth,))]


def _spell(task: Task, tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Return the tokens of each label.

    Raises:
        ValueError: two labels are the same tokens.
    """
    special = tokenizer.special
    ends = special.after or ((special.end,) if special.end is not None else ())
    words = [(*ids.tolist(), *ends) for ids in _encode(tokenizer, task.labels)]
    seen: dict[tuple[int, ...], str] = {}
    for label, word in zip(task.labels, words, strict=True):
        if word in seen:
            pieces = " ".join(tokenizer.pieces(word))
            raise ValueError(
                f"the labels {seen[word]!r} and {label!r} are the same to this tokenizer "
                f"({pieces}); give them other names"
            )
        seen[word] = label
    return tuple(words)


def rounded(numbers: Sequence[float]) -> tuple[str, ...]:
    """List the numbers that may be said: round ones, in about 25 steps from least to greatest.

    Raises:
        ValueError: all numbers are the same.
    """
    low, high = min(numbers), max(numbers)
    rough = high / 25 - low / 25
    if rough <= 0:
        raise ValueError(f"the number is {low} in all rows; there is nothing to learn")
    unit = 10.0 ** math.floor(math.log10(rough))
    step = min((f * unit for f in (1, 2, 5, 10)), key=lambda s: abs(math.log(s / rough)))
    digits = max(-math.floor(math.log10(step * 1.000001)), 0)
    first, last = round(low / step), round(high / step)
    return tuple(f"{i * step:.{digits}f}" for i in range(first, last + 1))
