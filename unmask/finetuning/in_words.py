"""Labels and numbers that are said in words, by a model that writes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.batch import IGNORE, Batch, Example, Visibility
from unmask.finetuning.ask import (
    Answer,
    Question,
    columns_encoded,
    label_answer,
    label_loss,
    places,
    truncate,
)
from unmask.heads.model import Model
from unmask.model.transformer import EncoderDecoder
from unmask.tasks.task import Item, Task, Truth
from unmask.tokens.tokenizer import Tokenizer
from unmask.tokens.vocabulary import Special

SCORES_AT_ONCE = 2**25
"""Scores of tokens that are held at the same time while labels are compared: 128 MiB."""


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
        said = self.tokenizer.ids_batch(lead)
        fixed = sum(map(len, said)) + len(self.special.after)
        if fixed + 2 > self.task.length:
            raise ValueError(
                f"length must be at least {fixed + 2}, since {' '.join(lead)!r} is read too, "
                f"got {self.task.length}"
            )
        after, room = np.array(self.special.after, np.int64), self.task.length - fixed
        found: list[Question] = []
        for i, (item, texts) in enumerate(
            zip(items, columns_encoded(self.tokenizer, items, room), strict=True)
        ):
            kept = truncate([len(t) for t in texts], room)
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
        at_once = max(SCORES_AT_ONCE // cost, 1)
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
        b, n = len(memory), len(words)
        rows = torch.arange(b).repeat_interleave(n)
        targets = written(words).repeat(b, 1)  # [b·n t]
        return likelihoods(model, batch, memory, rows, targets, self.special.start).reshape(b, n)

    def joined(self, questions: Sequence[Question], parts: Sequence[np.ndarray]) -> np.ndarray:
        """Put the parts of an item together."""
        return np.concatenate(parts)

    def truth(self, item: Item, scores: Float[np.ndarray, "1 labels"]) -> Truth:
        """Return the likeliest label; of a number, as a number."""
        said = self.task.labels[int(scores[0].argmax())]
        return float(said) if self.task.does == "regress" else said

    def answer(self, item: Item, scores: Float[np.ndarray, "1 labels"]) -> Answer:
        """Return {"label", "probability", "probabilities"}, or the number."""
        said = self.truth(item, scores)
        return said if isinstance(said, float) else label_answer(self.task, said, scores)

    def loss(self, item: Item, scores: Float[np.ndarray, "1 labels"]) -> tuple[float, int]:
        """Return the cross-entropy of the label among all, in nats."""
        assert item.truth is not None
        return label_loss(self.task, item.truth, scores), 1


def written(words: Sequence[Sequence[int]]) -> Int[Tensor, "n t"]:
    """Lay answers in rows, IGNORE after each."""
    targets = torch.full((len(words), max(map(len, words))), IGNORE)
    for row, word in zip(targets, words, strict=True):
        row[: len(word)] = torch.tensor(word)
    return targets


def likelihoods(
    model: Model,
    batch: Batch,
    memory: Float[Tensor, "b s d"],
    rows: Int[Tensor, "n"],
    targets: Int[Tensor, "n t"],
    start: int,
) -> Float[Tensor, "n"]:
    """Return the log-likelihood of each answer.

    Args:
        model: an encoder-decoder.
        batch: whose source was read.
        memory: what the encoder made of it.
        rows: the row of the source that each answer is to.
        targets: the answers, as `written` lays them.
        start: what the decoder reads first.
    """
    inputs = torch.full_like(targets, start)
    inputs[:, 1:] = targets[:, :-1].clamp(min=0)
    rows, inputs, targets = (x.to(memory.device) for x in (rows, inputs, targets))
    there = batch.source_visibility.document
    again = Batch(
        inputs=inputs,
        visibility=Visibility(causal=True),
        source_visibility=Visibility(document=None if there is None else there[rows]),
    )
    hidden = cast("EncoderDecoder", model.backbone)(again, None, memory[rows])
    logs = model.language.scores(hidden).float().log_softmax(-1)  # [n t v]
    each = logs.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    return (each * (targets != IGNORE)).sum(-1)


def spell(task: Task, tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Return the tokens of each label.

    Raises:
        ValueError: two labels are the same tokens.
    """
    special = tokenizer.special
    ends = special.after or ((special.end,) if special.end is not None else ())
    words = [(*special.lead, *ids.tolist(), *ends) for ids in tokenizer.ids_batch(task.labels)]
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
