"""Texts beside each other in a row: two with a question, a text and its crop, all sentences."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Int

from unmask.batch import IGNORE, Example, Tokens
from unmask.hiding.choose import sentence_starts
from unmask.hiding.conceal import InPlace, join
from unmask.hiding.hide import Hide, longest_text
from unmask.hiding.questions import OF_SENTENCES, Neighbors, NextSentence, SentenceOrder
from unmask.tokens.vocabulary import Special


@dataclass(frozen=True)
class _Two:
    """Two texts hidden in place, with a question about them."""

    objective: Hide
    question: NextSentence | SentenceOrder | Neighbors

    def __post_init__(self) -> None:
        if not isinstance(self.objective.conceal, InPlace):
            raise ValueError(
                "two texts can only be hidden in place: objective.conceal must be InPlace, "
                f"got {type(self.objective.conceal).__name__}"
            )

    @property
    def asks(self) -> tuple[str, ...]:
        """What the objective asks, and the question."""
        return (*self.objective.asks, self.question.asks)

    @property
    def causal(self) -> bool:
        """As the objective."""
        return self.objective.causal

    @property
    def times(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None


@dataclass(frozen=True)
class Pair(_Two):
    """Two texts hidden as one, before + A + between + B + after, with a question about the two."""

    objective: Hide
    question: NextSentence | SentenceOrder = NextSentence()

    @property
    def pairs(self) -> bool:
        """Some of the second texts are from elsewhere."""
        return self.question.elsewhere

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count the tokens: those of the row, or one for each text, and the special ones."""
        frame = len(special.before) + len(special.between) + len(special.after)
        return np.maximum(n, 2) + frame

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have: `length` without the special ones."""
        return longest_text(self, length, special)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Make two texts of one (or of it and `text.other`), and hide."""
        a, b, label = self.question(text, rng)
        between = special.between if len(b) else ()
        framed = join(special.before, a, between, b, special.after)
        example = self.objective.hide(framed, special, rng)
        first = len(special.before) + len(a) + len(between) if len(b) else len(framed)
        segments = (np.arange(len(framed)) >= first).astype(np.int64)
        return replace(example, segments=segments, label=label)


@dataclass(frozen=True)
class Apart(_Two):
    """A text in two parts, each hidden and read by itself, with a question about the two.

    Both are in one row, before + A + after + before + B + after, and do not see each other; the
    places of each are counted from its start. So what stands for a part is what stands for a text
    that is read alone.
    """

    objective: Hide
    question: Neighbors = Neighbors()

    @property
    def pairs(self) -> bool:
        """Both parts are of one text."""
        return False

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count the tokens: those of the text, and the special ones of both parts."""
        return np.asarray(n) + 2 * (len(special.before) + len(special.after))

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have: `length` without the special ones."""
        return longest_text(self, length, special)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Cut a text in two, and hide."""
        a, b = self.question(text, rng)
        first = len(special.before) + len(a) + len(special.after)
        second = (special.before, b, special.after) if len(b) else ()
        framed = join(special.before, a, special.after, *second)
        example = self.objective.hide(framed, special, rng)
        return replace(example, part=(np.arange(len(framed)) >= first).astype(np.int64))


@dataclass(frozen=True)
class BesideCrop:
    """A text hidden, and beside it a crop of what it was: the two are to be found alike.

    Meng et al. 2021, arXiv:2102.08473, section 3.3: a contiguous part with `keep` of the tokens.
    Both are in one row and do not see each other, as in `Apart`; nothing of the crop is hidden.
    """

    objective: Hide
    keep: float = 0.9

    def __post_init__(self) -> None:
        if not isinstance(self.objective.conceal, InPlace):
            raise ValueError(
                "beside a crop a text can only be hidden in place: objective.conceal must be "
                f"InPlace, got {type(self.objective.conceal).__name__}"
            )
        if not 0 < self.keep <= 1:
            raise ValueError(f"keep must be above 0 and at most 1, got {self.keep}")

    @property
    def asks(self) -> tuple[str, ...]:
        """What the objective asks, and whose crop this is."""
        return (*self.objective.asks, "crop")

    @property
    def pairs(self) -> bool:
        """Both are of one text."""
        return False

    @property
    def causal(self) -> bool:
        """As the objective."""
        return self.objective.causal

    @property
    def times(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def _kept(self, n: Int[np.ndarray, "m"]) -> Int[np.ndarray, "m"]:
        return np.ceil(self.keep * np.asarray(n)).astype(np.int64)

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count the tokens of the text and its crop, each with its special ones."""
        frame = len(special.before) + len(special.after)
        return self.objective.size(n, special) + self._kept(n) + frame

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have."""
        return longest_text(self, length, special)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Hide the text, and crop it."""
        whole = self.objective(text, special, rng)
        n = int(self._kept(np.array([len(text)]))[0])
        first = int(rng.integers(len(text) - n, endpoint=True))
        crop = join(special.before, text[first : first + n], special.after).ids
        part = np.repeat([0, 1], [len(whole.inputs), len(crop)])
        return Example(
            inputs=np.concatenate((whole.inputs, crop)),
            targets=np.concatenate((whole.targets, np.full(len(crop), IGNORE))),
            part=part,
        )


@dataclass(frozen=True)
class Sentences:
    """The sentences of a text, each read by itself, and asked for those beside it.

    All are in one row, before + A + after + before + B + after + ..., and do not see each other;
    the places of each are counted from its start. So what stands for a sentence is what stands for
    a text that is read alone. Each is asked for the one before it and the one after it: what their
    words are (Kiros et al. 2015, arXiv:1506.06726, section 2.1), or which they are among those of
    the batch (Logeswaran and Lee 2018, arXiv:1803.02893, section 3, with a context of one sentence
    on either side).

    The target of a token is then the one after it in its sentence. What is asked of a single
    sentence is nothing.
    """

    said: bool = True
    """Whether their words are asked, or which they are."""
    shortest: int = 4
    """Tokens of a sentence, on average, at least: of a text with shorter ones the last are left
    out, so that it is known how long an example can be."""

    def __post_init__(self) -> None:
        if self.shortest < 1:
            raise ValueError(f"shortest must be at least 1, got {self.shortest}")

    @property
    def asks(self) -> tuple[str, ...]:
        """The words of the sentences beside each, or which they are."""
        return OF_SENTENCES[:1] if self.said else OF_SENTENCES[1:]

    @property
    def pairs(self) -> bool:
        """All are of one text."""
        return False

    @property
    def causal(self) -> bool:
        """The words are told knowing another sentence."""
        return False

    @property
    def times(self) -> int | None:
        """There is one way to read the sentences of a text."""
        return 1

    @property
    def sees(self) -> str:
        """Say who sees whom, for people."""
        own = "every token sees every token of its own sentence"
        if not self.said:
            return own
        return (
            f"{own}; each word of a sentence is told from the words before it, and from the vector "
            "of the sentence before it, and again of the one after it"
        )

    def most(self, n: Int[np.ndarray, "m"]) -> Int[np.ndarray, "m"]:
        """Return how many sentences are read of texts of `n` tokens, at most."""
        return np.maximum(-(-np.asarray(n) // self.shortest), 1)

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count the tokens: those of the text, and the special ones of each sentence."""
        return np.asarray(n) + self.most(n) * (len(special.before) + len(special.after))

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have: `length` without the special ones."""
        return longest_text(self, length, special)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Cut a text into its sentences."""
        borders = [*sentence_starts(text).tolist(), len(text)]
        most = int(self.most(np.array([len(text)]))[0])
        read = [
            join(special.before, text[start:end], special.after).ids
            for start, end in list(pairwise(borders))[:most]
        ]
        inputs = np.concatenate(read)
        targets = np.full(len(inputs), IGNORE)
        if self.said and len(read) > 1:
            targets = np.concatenate([np.append(ids[1:], IGNORE) for ids in read])
        part = np.repeat(np.arange(len(read)), [len(ids) for ids in read])
        return Example(inputs=inputs, targets=targets, part=part, ahead=self.said)
