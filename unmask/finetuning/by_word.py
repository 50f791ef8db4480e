"""A label for each word of a sentence, by a head on one of its tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from jaxtyping import Float, Int

from unmask.batch import IGNORE, Batch, Example
from unmask.finetuning.ask import (
    TOKEN_LABEL,
    Answer,
    Around,
    Question,
    label_answer,
    label_loss,
    places,
)
from unmask.heads.model import Model
from unmask.heads.recurrent import PATH
from unmask.tasks.tag_schemes import Scheme, repair
from unmask.tasks.task import Item, Task
from unmask.tokens.tokenizer import Tokenizer
from unmask.tokens.vocabulary import Special


@dataclass(frozen=True)
class Tagged:
    """What a model says of the words of a sentence, or of a part of it."""

    logs: Float[np.ndarray, "n labels"]
    """The log-probability of each label of each word, whatever those of the others."""
    best: Int[np.ndarray, "n"]
    """The label of each word: the likeliest, or of a head that knows of sequences, of these."""


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
    scheme: Scheme | None = None
    """In which labels mark entities, and so are repaired; None: they are said as they are."""

    @property
    def special(self) -> Special:
        """The vocabulary's special tokens."""
        return self.around.special

    def questions(self, items: Sequence[Item]) -> list[Question]:
        """Frame each sentence, or its parts."""
        sentences = [tuple(" ".join(word.split()) for word in item.texts) for item in items]
        encoded = self.tokenizer.ids_batch([" ".join(words) for words in sentences])
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
        begins = self.tokenizer.spans(" ".join(words))[:, 0]
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

    def scores(self, model: Model, batch: Batch, questions: Sequence[Question]) -> list[Tagged]:
        """Run the head, and keep what it says where a word is asked."""
        # The labels stay in the batch: a head that reads words sees by them where these are.
        said = model(batch, scores=True).scores
        logs = said[TOKEN_LABEL].float().log_softmax(-1)
        best = said.get(f"{TOKEN_LABEL}{PATH}", logs.argmax(-1)).cpu().numpy()
        kept: list[Tagged] = []
        for row, path, question in zip(logs.cpu().numpy(), best, questions, strict=True):
            asked = cast("np.ndarray", question.example.label) != IGNORE
            n = len(asked)
            kept.append(Tagged(row[:n][asked], path[:n][asked]))
        return kept

    def joined(self, questions: Sequence[Question], parts: Sequence[Tagged]) -> Tagged:
        """Put the parts of an item together."""
        return Tagged(
            np.concatenate([part.logs for part in parts]),
            np.concatenate([part.best for part in parts]),
        )

    def truth(self, item: Item, scores: Tagged) -> tuple[str, ...]:
        """Return the label of each word."""
        labels = self.task.labels
        said = tuple(labels[i] for i in scores.best.tolist())
        return said if self.scheme is None else repaired(said, self.scheme, labels)

    def answer(self, item: Item, scores: Tagged) -> Answer:
        """Return {"labels", "probabilities"}, one for each word."""
        return label_answer(self.task, self.truth(item, scores), scores.logs)

    def loss(self, item: Item, scores: Tagged) -> tuple[float, int]:
        """Return the cross-entropy summed over words, each by itself, and how many there are."""
        assert item.truth is not None
        return label_loss(self.task, item.truth, scores.logs), len(scores.logs)


def repaired(said: Sequence[str], scheme: Scheme, labels: Sequence[str]) -> tuple[str, ...]:
    """Write labels as their scheme demands; where that is none of the labels, they stay.

    The entities are the same.
    """
    pairs = zip(said, repair(said, scheme), strict=True)
    return tuple(better if better in labels else tag for tag, better in pairs)
