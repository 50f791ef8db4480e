"""Which of some options is right: each is read with the text and scored, or said in words."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int

from unmask.batch import IGNORE, Batch, Example
from unmask.finetuning.ask import Answer, Around, Question
from unmask.finetuning.in_words import SCORES_AT_ONCE, likelihoods, written
from unmask.heads.labels import RIGHT
from unmask.heads.model import Model
from unmask.model.transformer import EncoderDecoder
from unmask.tasks.task import Item, Task
from unmask.tokens.tokenizer import Tokenizer
from unmask.tokens.vocabulary import Special


def fit(n_text: int, n_option: int, room: int) -> tuple[int, int]:
    """Say how many tokens of a text and of an option are kept: the option's, unless over half.

    What is cut of a text is its beginning: a question comes last, and of a dialog or a story the
    end is what goes on. (The papers do not say.)
    """
    kept = min(n_option, max(room - n_text, room // 2))
    return min(n_text, room - kept), kept


def read_before(tokenizer: Tokenizer, items: Sequence[Item]) -> list[Int[np.ndarray, "_"]]:
    """Encode what is read before the options of each item: context and question as one text."""
    return tokenizer.ids_batch([" ".join(item.texts) for item in items])


def last(ids: Int[np.ndarray, "n"], kept: int) -> Int[np.ndarray, "_"]:
    """Keep the end of a text."""
    return ids[len(ids) - kept :]


def choice_truth(scores: Float[np.ndarray, "1 options"]) -> int:
    """Return the likeliest option; of equal ones the first, so that an answer is always given."""
    return int(scores[0].argmax())


def choice_answer(item: Item, scores: Float[np.ndarray, "1 options"]) -> Answer:
    """Return {"choice", "index", "probability", "probabilities"}."""
    best = choice_truth(scores)
    shares = np.exp(scores[0]).tolist()
    return {
        "choice": item.options[best],
        "index": best,
        "probability": shares[best],
        "probabilities": shares,
    }


def choice_loss(item: Item, scores: Float[np.ndarray, "1 options"]) -> tuple[float, int]:
    """Return the cross-entropy of the right option among all, in nats."""
    return -float(scores[0, cast("int", item.truth)]), 1


@dataclass(frozen=True, kw_only=True)
class ByChoice:
    """Each option read after the text and scored by a head; a softmax over the options of an item.

    Radford et al. 2018, section 3.3 (text, question, delimiter, option); Devlin et al. 2019,
    section 4.4. Options of an item are learned in one batch. Where a model has wide tokens, they
    are the first one and the option's (Beltagy et al. 2020, section 6, of WikiHop).
    """

    task: Task
    tokenizer: Tokenizer
    around: Around
    head: str
    """Whose scores are compared."""

    @property
    def special(self) -> Special:
        """The vocabulary's special tokens."""
        return self.around.special

    def questions(self, items: Sequence[Item]) -> list[Question]:
        """Frame each item's text with each of its options."""
        around = self.around
        room = around.length - sum(map(len, (around.before, around.between, around.after)))
        written = [option for item in items for option in item.options]
        options = iter(self.tokenizer.first_batch(written, room + 1))
        found: list[Question] = []
        for i, text in enumerate(read_before(self.tokenizer, items)):
            for k, option in enumerate(islice(options, len(items[i].options))):
                n_text, n_option = fit(len(text), len(option), room)
                example, _ = around.frame((last(text, n_text), option[:n_option]))
                truth = items[i].truth
                label = None if truth is None else RIGHT if k == truth else 0
                cut = n_text < len(text) or n_option < len(option)
                example = replace(example, label=label, group=i)
                if around.wide and example.segments is not None:
                    second = np.flatnonzero(example.segments)
                    example = replace(example, wide=np.concatenate(([0], second)))
                found.append(Question(item=i, example=example, cut=cut))
        return found

    def scores(
        self, model: Model, batch: Batch, questions: Sequence[Question]
    ) -> list[Float[np.ndarray, "1"]]:
        """Run the head."""
        said = model(replace(batch, labels=None), scores=True).scores[self.head]
        return list(said.double().cpu().numpy())

    def joined(
        self, questions: Sequence[Question], parts: Sequence[np.ndarray]
    ) -> Float[np.ndarray, "1 options"]:
        """Compare the options of an item."""
        return torch.from_numpy(np.concatenate(parts)).log_softmax(0).numpy()[None]

    def truth(self, item: Item, scores: Float[np.ndarray, "1 options"]) -> int:
        """Return the likeliest option."""
        return choice_truth(scores)

    def answer(self, item: Item, scores: Float[np.ndarray, "1 options"]) -> Answer:
        """Return {"choice", "index", "probability", "probabilities"}."""
        return choice_answer(item, scores)

    def loss(self, item: Item, scores: Float[np.ndarray, "1 options"]) -> tuple[float, int]:
        """Return the cross-entropy of the right option."""
        return choice_loss(item, scores)


@dataclass(frozen=True, kw_only=True)
class ChoiceInWords:
    """Options that are said: the encoder reads them all, and their likelihoods are compared.

    The encoder reads "name choice1: option choice2: option context: text", the options in the form
    of COPA in Raffel et al. 2020, appendix D.9; the decoder says the option that is right.
    Deviates: there it says True or False.
    """

    task: Task
    tokenizer: Tokenizer

    @property
    def special(self) -> Special:
        """The vocabulary's special tokens."""
        return self.tokenizer.special

    def questions(self, items: Sequence[Item]) -> list[Question]:
        """Write the source of each item, and its options as answers."""
        (lead,) = self.tokenizer.ids_batch(["context:"])
        after = np.array(self.special.after, np.int64)
        room = self.task.length - len(lead) - len(after)
        if room < 2:
            least = self.task.length - room + 2
            raise ValueError(f"length must be at least {least}, got {self.task.length}")
        listed = self.tokenizer.first_batch([self._listed(item) for item in items], room + 1)
        written = [option for item in items for option in item.options]
        options = iter(self.tokenizer.first_batch(written, self.task.length))
        found: list[Question] = []
        for i, text in enumerate(read_before(self.tokenizer, items)):
            kept = fit(len(text), len(listed[i]), room)
            source = np.concatenate((listed[i][: kept[1]], lead, last(text, kept[0]), after))
            words = tuple(map(self._word, islice(options, len(items[i].options))))
            example = replace(self._answered(words, items[i]), source=source)
            cut = kept != (len(text), len(listed[i]))
            found.append(Question(item=i, example=example, cut=cut, words=words))
        return found

    def _listed(self, item: Item) -> str:
        said = " ".join(f"choice{i}: {option}" for i, option in enumerate(item.options, 1))
        return f"{self.task.name} {said}".strip()

    def _word(self, option: Int[np.ndarray, "n"]) -> tuple[int, ...]:
        s = self.special
        ends = s.after or ((s.end,) if s.end is not None else ())
        return (*s.lead, *option[: self.task.length].tolist(), *ends)

    def _answered(self, words: Sequence[Sequence[int]], item: Item) -> Example:
        said = (IGNORE,) if item.truth is None else words[cast("int", item.truth)]
        inputs = np.array([self.special.start, *said[:-1]], np.int64)
        return Example(inputs=inputs, targets=np.array(said, np.int64), rank=np.arange(len(said)))

    def scores(
        self, model: Model, batch: Batch, questions: Sequence[Question]
    ) -> list[Float[np.ndarray, "1 _"]]:
        """Compare how likely each item's options are, their ends included."""
        backbone = model.backbone
        assert isinstance(backbone, EncoderDecoder)
        memory = backbone.encode(batch)
        sizes = [len(question.words) for question in questions]
        rows = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        targets = written([word for question in questions for word in question.words])
        at_once = max(SCORES_AT_ONCE // (targets.shape[1] * model.vocab_size), 1)
        said = torch.cat([
            likelihoods(
                model, batch, memory, rows[i : i + at_once], targets[i : i + at_once],
                self.special.start,
            )
            for i in range(0, len(rows), at_once)
        ])  # fmt: skip
        each = said.double().cpu().split(sizes)
        return [one.log_softmax(0).numpy()[None] for one in each]

    def joined(
        self, questions: Sequence[Question], parts: Sequence[np.ndarray]
    ) -> Float[np.ndarray, "1 options"]:
        """Put the parts of an item together."""
        return np.concatenate(parts)

    def truth(self, item: Item, scores: Float[np.ndarray, "1 options"]) -> int:
        """Return the likeliest option."""
        return choice_truth(scores)

    def answer(self, item: Item, scores: Float[np.ndarray, "1 options"]) -> Answer:
        """Return {"choice", "index", "probability", "probabilities"}."""
        return choice_answer(item, scores)

    def loss(self, item: Item, scores: Float[np.ndarray, "1 options"]) -> tuple[float, int]:
        """Return the cross-entropy of the right option."""
        return choice_loss(item, scores)
