"""Text for text: a model reads a source and writes a target, token by token."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Int

from unmask.batch import IGNORE, Batch, Example
from unmask.finetuning.ask import Answer, Question
from unmask.generation.decode import generate
from unmask.generation.settings import Beam, Decoding, Greedy
from unmask.heads.model import Model
from unmask.tasks.task import Item, Task, Truth
from unmask.tasks.text_forms import Form
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
    is cut: of several texts the longest, and nothing of what stands around them. Of a decoder there
    is room for a target of any length that it may have, so that what it reads does not depend on
    what is true.
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
    forms: Mapping[str, Form] = field(default_factory=dict[str, Form])
    """How the texts of a task are put in one, by the name of the task."""

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
        reader = self.tokenizer.reader
        whole = [i for i, item in enumerate(items) if not self._is_begun(item)]
        written = [self._source(item, item.texts) for item in items]
        sources = reader.first_batch(written, self.room + 1)
        for i in whole:
            if len(sources[i]) > self.room:
                (sources[i],) = reader.ids_batch([written[i]])
        firsts = [item.truth[0] if isinstance(item.truth, tuple) else "" for item in items]
        targets = self.tokenizer.first_batch(firsts, self.longest)
        found: list[Question] = []
        for i, (item, source, target) in enumerate(zip(items, sources, targets, strict=True)):
            cut = len(source) > self.room
            kept = self._cut(item, source) if cut else source
            read = [*self.before, *kept.tolist(), *self.after]
            said = None if item.truth is None else [*target.tolist(), self.end][: self.longest]
            example = self._example(read or [reader.special.start], said)
            shortened = len(target) + 1 > self.longest
            found.append(Question(item=i, example=example, cut=cut, shortened=shortened))
        return found

    def _is_begun(self, item: Item) -> bool:
        """Say whether of a source that is too long its first tokens are read."""
        form = self._form(item)
        return len(item.texts) == 1 and form.keep != "end" and form.source is None

    def _form(self, item: Item) -> Form:
        return self.forms.get(item.part, Form())

    def _source(self, item: Item, texts: Sequence[str]) -> str:
        """Write texts as the form says; if it does not, one, or several with their columns' names.

        Args:
            item: whose form it is.
            texts: its texts, or what is kept of them.
        """
        if self._form(item).source is not None:
            return self.prefix + self._form(item).rendered(texts)
        if len(texts) == 1:
            return self.prefix + texts[0]
        named = zip(self.task.columns.texts, texts, strict=True)
        return self.prefix + " ".join(f"{name}: {text}" for name, text in named)

    def _cut(self, item: Item, source: Int[np.ndarray, "_"]) -> Int[np.ndarray, "_"]:
        """Cut the texts of an item until their source has room, and return its tokens."""
        if self._is_begun(item):
            return source[: self.room]
        last = self._form(item).keep == "end"
        reader = self.tokenizer.reader
        places = [reader.spans(text) for text in item.texts]
        budget = sum(map(len, places)) + self.room - len(source)
        while budget > 0:  # tokens of a part may be others than those of the whole
            most = _level([len(of_text) for of_text in places], budget)
            texts = [
                _kept(text, of_text, min(most, len(of_text)), last=last)
                for text, of_text in zip(item.texts, places, strict=True)
            ]
            (found,) = reader.ids_batch([self._source(item, texts)])
            if len(found) <= self.room:
                return found
            budget -= len(found) - self.room
        return source[-self.room :] if last else source[: self.room]

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
        """Return {"answer"}, what was written; and "label" or "number", null if it is none."""
        said, form = str(self.truth(item, scores)), self._form(item)
        read = {"label" if form.labels else "number": form.read(said)} if form.closed else {}
        return {"answer": said} | read

    def loss(self, item: Item, scores: Written) -> tuple[float, int]:
        """Return the cross-entropy of the target in nats, and its number of tokens."""
        return scores.loss, scores.places


def _kept(text: str, places: Int[np.ndarray, "t 2"], n: int, *, last: bool) -> str:
    """Keep some tokens of a text: its first, or its last, which begin with a line if there is one.

    Args:
        text: as it was.
        places: where each of its tokens stands, in characters.
        n: how many may stay.
        last: keep the last ones.
    """
    if n >= len(places):
        return text
    if not last:
        return text[: int(places[n - 1, 1])] if n else ""
    begin = int(places[-n, 0]) if n else len(text)
    line = text.find("\n", max(begin - 1, 0))
    whole = text[line + 1 :] if line >= 0 else ""
    return whole or text[begin:]


def _level(lengths: Sequence[int], budget: int) -> int:
    """Return the length to which longer texts are cut, so that all together are in the budget."""
    for n, length in enumerate(sorted(lengths)):
        if length * (len(lengths) - n) > budget:
            return budget // (len(lengths) - n)
        budget -= length
    return max(lengths)
