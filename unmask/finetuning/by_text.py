"""Text for text: a model reads a source and writes a target, token by token."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int

from unmask.batch import IGNORE, Batch, Example
from unmask.finetuning.ask import Answer, Question
from unmask.finetuning.tasks import Item, Task, Truth
from unmask.generation.decode import generate
from unmask.generation.settings import Beam, Decoding, Greedy
from unmask.heads.model import Model
from unmask.tokens.tokenizer import Tokenizer
from unmask.tokens.vocabulary import Special


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a model wrote of a source, and how unlikely it found the first of its targets."""

    ids: Int[np.ndarray, "_"]
    loss: float = 0.0
    """The cross-entropy of the target, summed over its tokens; 0 where none is known."""
    places: int = 0
    """How many these are."""


@dataclass(frozen=True, kw_only=True)
class ByText:
    """A source that is read, and a target that is learned, then written.

    An encoder reads the source and a decoder says the target (Raffel et al. 2020, section 2.4). A
    decoder alone reads the source and something between, and goes on with the target; only that is
    asked (Radford et al. 2018, section 3.3, has a token between the two). A source that is too long
    loses its end; of a decoder there is room for a target of any length that it may have, so that
    what it reads does not depend on what is true.
    """

    task: Task
    tokenizer: Tokenizer
    prefix: str
    """What is read before the source."""
    before: tuple[int, ...]
    """Tokens before all that is read."""
    after: tuple[int, ...]
    """Tokens after the source: what ends it, or parts it from the target."""
    end: int
    """The token that ends a target."""
    encodes: bool
    """An encoder reads the source."""
    longest: int
    """Tokens of a target that are learned and written, the end included."""
    scored: int
    """Dev items whose targets are written while training."""
    whole: bool = False
    """The source is seen as a whole by a stack that then says the target."""
    by: Greedy | Beam = Greedy()
    """How targets are written."""

    @property
    def special(self) -> Special:
        """The vocabulary's special tokens."""
        return self.tokenizer.special

    @property
    def room(self) -> int:
        """Tokens of a source, its prefix included."""
        room = self.task.length - len(self.before) - len(self.after)
        return room if self.encodes else room - self.longest

    def questions(self, items: Sequence[Item]) -> list[Question]:
        """Write source and target; of several targets the first."""
        sources = self.tokenizer.ids_batch([self._source(item) for item in items])
        firsts = [item.truth[0] if isinstance(item.truth, tuple) else "" for item in items]
        targets = self.tokenizer.ids_batch(firsts)
        found: list[Question] = []
        for i, (item, source, target) in enumerate(zip(items, sources, targets, strict=True)):
            read = [*self.before, *source[: self.room].tolist(), *self.after]
            said = None if item.truth is None else [*target.tolist(), self.end][: self.longest]
            example = self._example(read or [self.special.start], said)
            cut, shortened = len(source) > self.room, len(target) + 1 > self.longest
            found.append(Question(item=i, example=example, cut=cut, shortened=shortened))
        return found

    def _source(self, item: Item) -> str:
        """Write a text, or several with the names of their columns."""
        if len(item.texts) == 1:
            return self.prefix + item.texts[0]
        named = zip(self.task.columns.texts, item.texts, strict=True)
        return self.prefix + " ".join(f"{name}: {text}" for name, text in named)

    def _example(self, read: Sequence[int], said: Sequence[int] | None) -> Example:
        source = None
        if self.encodes:
            source = np.array(read, np.int64)
            read = [self.special.start, *self.special.lead]
        inputs = np.array([*read, *(said or ())[:-1]], np.int64)
        targets = np.full(len(inputs), IGNORE, np.int64)
        if said is not None:
            targets[len(read) - 1 :] = said
        rank = np.arange(len(inputs))
        if self.whole:
            rank = (rank - len(read) + 1).clip(min=0)
        return Example(inputs=inputs, targets=targets, rank=rank, source=source)

    def scores(self, model: Model, batch: Batch, questions: Sequence[Question]) -> list[Written]:
        """Write an answer to each source, and score its target where it is known."""
        losses = self._losses(model, batch, questions)
        prompts = [self._read(question.example).tolist() for question in questions]
        said = generate(model, prompts, self.special, Decoding(by=self.by, new_tokens=self.longest))
        return [
            Written(ids=np.array(ids, np.int64), loss=loss, places=places)
            for ids, (loss, places) in zip(said, losses, strict=True)
        ]

    def _read(self, example: Example) -> Int[np.ndarray, "_"]:
        """Return what is read before the target."""
        if example.source is not None:
            return example.source
        said = np.flatnonzero(example.targets != IGNORE)
        return example.inputs[: said[0] + 1] if len(said) else example.inputs

    def _losses(
        self, model: Model, batch: Batch, questions: Sequence[Question]
    ) -> list[tuple[float, int]]:
        """Compute the cross-entropy of each row's targets, and count them."""
        masks = [question.example.targets != IGNORE for question in questions]
        if not any(mask.any() for mask in masks):
            return [(0.0, 0)] * len(masks)
        hidden, head = model.hidden(batch), model.language
        found: list[tuple[float, int]] = []
        for row, question, mask in zip(hidden, questions, masks, strict=True):
            at, said = (
                torch.from_numpy(x).to(hidden.device)
                for x in (np.flatnonzero(mask), question.example.targets[mask])
            )
            total, _ = head.loss(row[at], said)
            found.append((float(total), len(said)))
        return found

    def joined(self, questions: Sequence[Question], parts: Sequence[Written]) -> Written:
        """Each item is one question."""
        (written,) = parts
        return written

    def truth(self, item: Item, scores: Written) -> Truth:
        """Return the text that was written."""
        return self.tokenizer.decode(scores.ids)

    def answer(self, item: Item, scores: Written) -> Answer:
        """Return {"answer"}: what was written."""
        return {"answer": self.truth(item, scores)}

    def loss(self, item: Item, scores: Written) -> tuple[float, int]:
        """Return the cross-entropy of the target in nats, and its number of tokens."""
        return scores.loss, scores.places
