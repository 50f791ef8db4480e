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
    encode,
    label_answer,
    label_loss,
    places,
)
from unmask.finetuning.tasks import Item, Task
from unmask.heads.model import Model
from unmask.tokens.tokenizer import Tokenizer
from unmask.tokens.vocabulary import Special


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
        encoded = encode(self.tokenizer, [" ".join(words) for words in sentences])
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

    def joined(self, questions: Sequence[Question], parts: Sequence[np.ndarray]) -> np.ndarray:
        """Put the parts of an item together."""
        return np.concatenate(parts)

    def truth(self, item: Item, scores: Float[np.ndarray, "n labels"]) -> tuple[str, ...]:
        """Return the likeliest label of each word."""
        return tuple(self.task.labels[i] for i in scores.argmax(-1).tolist())

    def answer(self, item: Item, scores: Float[np.ndarray, "n labels"]) -> Answer:
        """Return {"labels", "probabilities"}, one for each word."""
        return label_answer(self.task, self.truth(item, scores), scores)

    def loss(self, item: Item, scores: Float[np.ndarray, "n labels"]) -> tuple[float, int]:
        """Return the cross-entropy summed over words, and how many there are."""
        assert item.truth is not None
        return label_loss(self.task, item.truth, scores), len(scores)
