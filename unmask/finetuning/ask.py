"""How a model is asked a task: what it reads, which head answers, and what its scores mean.

`Ask` is what every way of asking offers. An encoder or decoder is asked through a head on one token
(`by_head`) or on each word (`by_word`), or for a word in a blank (`by_cloze`). An encoder-decoder
says the answer in words (`in_words`) as T5 does, or is asked through heads as well, on the states
of its decoder, which reads the text once more (BART; `Around.twice`). What writes is asked for text
(`by_text`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from unmask.batch import IGNORE, Batch, Example
from unmask.heads.model import Model
from unmask.model.architecture import Architecture, EncoderDecoderArchitecture
from unmask.model.names import AnyArchitecture
from unmask.published.card import Published, longest
from unmask.tasks.task import Item, Task, Truth
from unmask.tokens.beginning import LONG
from unmask.tokens.tokenizer import Tokenizer
from unmask.tokens.vocabulary import Special

LABEL, TOKEN_LABEL, LANGUAGE = "label", "token_label", "language"
SPANS, CHOICE = "spans", "choice"
"""Names of heads, as cards and checkpoints have them."""

DEFAULT_LENGTH = 512

Answer = dict[str, Any] | float
"""What is said of an item, as plain data: of a text {"label", "probability", "probabilities"}, of a
sentence {"labels", "probabilities"}, of what was written {"answer"}, or a number."""
Scores = Any
"""What a model says of an item before it is read as an answer: of most tasks an array of the
log-probabilities of the labels at each place asked [n labels]."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Which part of a text a question holds, of one that is read in parts."""

    begin: int
    """Its first token."""
    offsets: Int[np.ndarray, "_ 2"]
    """Where each of its tokens stands in the text, in characters."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a model reads for an item, or for a part of it."""

    item: int
    """Which one."""
    example: Example
    cut: bool = False
    """Some of the text did not fit."""
    shortened: bool = False
    """Some of what is to be said did not."""
    part: Part | None = None
    """None where it does not matter."""
    words: tuple[tuple[int, ...], ...] = ()
    """Answers that are compared, as tokens, where each item has its own."""


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

    def scores(self, model: Model, batch: Batch, questions: Sequence[Question]) -> Sequence[Any]:
        """Return what the model says of each question, most often an array."""
        ...

    def joined(self, questions: Sequence[Question], parts: Sequence[Any]) -> Scores:
        """Put together what was said of all questions about one item, in their order."""
        ...

    def truth(self, item: Item, scores: Scores) -> Truth:
        """Return the answer that scores mean."""
        ...

    def answer(self, item: Item, scores: Scores) -> Answer:
        """Return the answer that scores mean as plain data, with its probabilities."""
        ...

    def loss(self, item: Item, scores: Scores) -> tuple[float, int]:
        """Return the loss of an item whose truth is known, summed over places, and their number."""
        ...


@runtime_checkable
class Settling(Protocol):
    """An `Ask` of which something is settled when its model is finished."""

    def settled(self, items: Sequence[Item], scores: Sequence[Scores]) -> Ask:
        """Settle it by what the model says of the dev file."""
        ...


@runtime_checkable
class Costly(Protocol):
    """An `Ask` whose answers take long: while training, only some of the dev file is scored."""

    @property
    def scored(self) -> int:
        """So many items, at most."""
        ...


@runtime_checkable
class Drawing(Protocol):
    """An `Ask` whose examples are drawn anew in every epoch."""

    def drawn(self, example: Example, rng: np.random.Generator) -> Example:
        """Return what is learned of an example this time; it has as many tokens."""
        ...


def in_words(card: Published) -> bool:
    """Say whether this model says its answers in words, for want of a head of labels."""
    return has_encoder(card) and card.labels is None


def has_encoder(card: Published) -> bool:
    """Say whether an encoder reads what a decoder answers."""
    return isinstance(card.architecture, EncoderDecoderArchitecture)


def asked_stack(architecture: AnyArchitecture) -> Architecture:
    """Return the stack whose states answer: of two, the decoder."""
    if isinstance(architecture, EncoderDecoderArchitecture):
        return architecture.decoder
    return architecture


def check_length(card: Published, length: int | None, before: int = 0) -> int:
    """Return how many tokens a model reads at most: what is asked for, or 512 if it can.

    Args:
        card: says how many positions the model has.
        length: what is asked for.
        before: positions that learned tokens take before each text.

    Raises:
        ValueError: the model has not so many positions.
    """
    most = longest(card.architecture)
    if most is None:
        return DEFAULT_LENGTH if length is None else length
    left = most - before
    if left < 1:
        raise ValueError(
            f"{before} learned tokens leave no room in {card.name}, which reads {most}"
        )
    if length is None:
        return min(DEFAULT_LENGTH, left)
    if length > left:
        less = f" less {before} of learned tokens" if before else ""
        raise ValueError(
            f"length must be at most {left}, the positions of {card.name}{less}, got {length}"
        )
    return length


@dataclass(frozen=True, kw_only=True)
class Around:
    """The special tokens around texts, and how much text fits between them."""

    special: Special
    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    causal: bool
    """What is read at a token is what stands before it, and no more."""
    length: int
    apart: bool = False
    """Two texts are read each by itself."""
    both: bool = False
    """Two texts are read in both orders, each order by itself, by a decoder (Radford et al. 2018,
    section 3.3, similarity)."""
    twice: bool = False
    """Both stacks of an encoder-decoder read the text, the decoder each token one place later, as
    when it says the text: the state at a place has read the whole source, and in the decoder what
    stands before it (Lewis et al. 2020, arXiv:1910.13461, section 3.1 and 3.2)."""
    wide: bool = False
    """The first token of what is read by itself sees all of it and is seen by all (Beltagy et al.
    2020, section 3.1: a text is classified by it)."""

    @staticmethod
    def of(
        special: Special, architecture: AnyArchitecture, length: int, *, apart: bool = False,
        both: bool = False, wide: bool = False,
    ) -> "Around":  # fmt: skip
        """Put around texts what the model's tokenizer does: other libraries then ask the same.

        A decoder without a token between two texts (GPT-2) has its end-of-text token there, as the
        first GPT had a delimiter (Radford et al. 2018, section 3.3). Nothing is put after a text
        that the tokenizer does not put there: GPT-2's last token of text is the one that answers.

        Raises:
            ValueError: the length leaves no room for text.
        """
        a, twice = asked_stack(architecture), isinstance(architecture, EncoderDecoderArchitecture)
        between = special.between
        if not between and special.end is not None:
            between = (special.end,)
        if apart:
            between = (*special.after, *special.before)
        least = len(special.before) + len(between) + len(special.after) + 2
        if length < least:
            raise ValueError(f"length must be at least {least}, got {length}")
        return Around(
            special=special, before=special.before, between=between, after=special.after,
            causal=a.causal and not twice, length=length, apart=apart, both=both, twice=twice,
            wide=wide and a.global_attention,
        )  # fmt: skip

    def frame(self, texts: Sequence[Int[np.ndarray, "_"]]) -> tuple[Example, bool]:
        """Put special tokens around one or two texts, cut to fit; say whether they were."""
        if not self.both or len(texts) < 2:
            return self._once(texts)
        (one, cut), (other, _) = self._once(texts), self._once(texts[::-1])
        ids = np.concatenate((one.inputs, other.inputs))
        example = Example(
            inputs=ids,
            targets=np.full(len(ids), IGNORE, np.int64),
            rank=np.arange(len(ids)),
            part=np.repeat([0, 1], [len(one.inputs), len(other.inputs)]),
        )
        return example, cut

    def room(self, n_texts: int) -> int:
        """Return how many tokens one or two texts may have."""
        fixed = len(self.before) + len(self.after) + len(self.between) * (n_texts - 1)
        return self.length - fixed

    def _once(self, texts: Sequence[Int[np.ndarray, "_"]]) -> tuple[Example, bool]:
        """Frame texts in the order in which they are given."""
        kept = truncate([len(t) for t in texts], self.room(len(texts)))
        first = [*self.before, *texts[0][: kept[0]].tolist()]
        second: list[int] = []
        if len(texts) == 2:
            begins = len(self.between) - (len(self.before) if self.apart else 0)
            first += self.between[:begins]
            second = [*self.between[begins:], *texts[1][: kept[1]].tolist()]
        ids = np.array([*first, *second, *self.after] or [self.special.start], np.int64)
        which = None
        if len(texts) == 2:
            which = np.repeat([0, 1], [len(first), len(ids) - len(first)])
        example = Example(
            inputs=ids,
            targets=np.full(len(ids), IGNORE, np.int64),
            rank=np.arange(len(ids)) if self.causal else None,
            segments=None if self.apart else which,
            part=which if self.apart else None,
            wide=np.array([0, len(first)] if second and self.apart else [0]) if self.wide else None,
        )
        if self.twice:
            said = np.append(self.special.start, ids[:-1])
            example = replace(example, inputs=said, source=ids, rank=np.arange(len(ids)))
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


def columns_encoded(
    tokenizer: Tokenizer, items: Sequence[Item], room: int
) -> list[tuple[Int[np.ndarray, "_"], ...]]:
    """Encode the one or two texts of each item; all have as many.

    Of a long text there are so many tokens that `truncate` to `room` says of them what it says of
    all: more than have room, and of two such texts as many as tell which one is longer, where that
    one has an odd token.
    """
    columns = list(zip(*(item.texts for item in items), strict=True))
    known = (tokenizer.first_batch(column, room + 1) for column in columns)
    found = list(zip(*known, strict=True))
    if room % 2 == 0:
        return found
    for i, item in enumerate(items):
        n = room + 1
        while _are_long(item.texts) and all(len(ids) >= n for ids in found[i]):
            n *= 8
            before, found[i] = found[i], tuple(tokenizer.first_batch(item.texts, n))
            if [len(ids) for ids in before] == [len(ids) for ids in found[i]]:
                break  # both are whole
    return found


def _are_long(texts: Sequence[str]) -> bool:
    return len(texts) == 2 and max(map(len, texts)) > LONG


def n_texts(items: Sequence[Item]) -> int:
    """Return how many texts each of some items has."""
    return len(items[0].texts) if items else 1


def places(task: Task, truth: Truth) -> list[int]:
    """Say which of the labels a truth is, or each word's; of numbers said in words, the nearest."""
    if isinstance(truth, float):
        return [int(np.abs(np.array([float(label) for label in task.labels]) - truth).argmin())]
    return [task.labels.index(t) for t in (truth if isinstance(truth, tuple) else (truth,))]


def label_loss(task: Task, truth: Truth, scores: Float[np.ndarray, "n labels"]) -> float:
    """Sum the cross-entropy of labels, in nats."""
    at = np.arange(len(scores)), places(task, truth)
    return -float(scores[at].sum(dtype=np.float64))


def label_answer(task: Task, said: Truth, scores: Float[np.ndarray, "n labels"]) -> dict[str, Any]:
    """Return a label, or one for each word, with its probabilities."""
    shares = np.exp(scores.astype(np.float64))
    shares /= shares.sum(-1, keepdims=True)
    own = shares[np.arange(len(shares)), places(task, said)].tolist()
    if isinstance(said, tuple):
        return {"labels": list(said), "probabilities": own}
    return {
        "label": said,
        "probability": own[0],
        "probabilities": dict(zip(task.labels, shares[0].tolist(), strict=True)),
    }
