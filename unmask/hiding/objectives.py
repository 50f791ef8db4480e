"""What a model is asked: hidden tokens, questions about two texts, mixtures; published ones."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from jaxtyping import Int

from unmask.batch import IGNORE, SENTENCE, Example, Tokens
from unmask.hiding.choose import (
    Contexts,
    Everything,
    Falling,
    Fragment,
    NGrams,
    Spans,
    Tail,
    TokenRuns,
    Tokenwise,
    Words,
    WordSpans,
    can_be_hidden,
    check_shares,
    sentence_starts,
)
from unmask.hiding.conceal import (
    Dropped,
    Future,
    InPlace,
    InSource,
    InTurn,
    Order,
    PlaceBefore,
    Sentinels,
    asking_nothing,
    join,
    saying,
)
from unmask.hiding.noise import (
    AnyNoise,
    SentencePermutation,
    TextInfilling,
    TokenMasking,
    TokenPermutation,
)
from unmask.hiding.one_stack import joined
from unmask.tokens.vocabulary import Special, Subwords

T = TypeVar("T")


@runtime_checkable
class AnyObjective(Protocol):
    """What must be known of an objective, one of another package included.

    Pure: the same text, special tokens and generator give the same example.
    """

    @property
    def asks(self) -> tuple[str, ...]:
        """The names of what is asked: "masked", "next_token", "next_sentence", "neighbor", ...

        The terms of the loss have the same names.
        """
        ...

    @property
    def pairs(self) -> bool:
        """It asks about two texts: `text.other` must be there."""
        ...

    @property
    def causal(self) -> bool:
        """Each place of what has targets sees those before it, and nothing else."""
        ...

    @property
    def times(self) -> int | None:
        """In so many ways is a text hidden, used in turn epoch by epoch. None: anew in each."""
        ...

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count the tokens, at most, of examples made of texts of `n` tokens.

        Of an encoder-decoder, those of the side that has more.
        """
        ...

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have so that its example fits `length`."""
        ...

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Hide a text."""
        ...


@dataclass(frozen=True)
class Hide:
    """Choose tokens and conceal them. A text in which nothing can be hidden is asked nothing."""

    choose: (
        Tokenwise
        | TokenRuns
        | Words
        | NGrams
        | WordSpans
        | Contexts
        | Spans
        | Falling
        | Fragment
        | Tail
        | Everything
    )
    conceal: InPlace | PlaceBefore | InTurn | Order | Sentinels | Dropped | InSource | Future

    @property
    def asks(self) -> tuple[str, ...]:
        """The one name of its way of concealing."""
        return (self.conceal.asks,)

    @property
    def pairs(self) -> bool:
        """It asks about one text."""
        return False

    @property
    def causal(self) -> bool:
        """As its way of concealing has it."""
        return self.conceal.causal(self.choose)

    @property
    def times(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count the tokens of examples made of `n` tokens of text, at most."""
        return self.conceal.size(n, self.choose, special)

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have: for T5, 568 for an encoder that reads 512.

        That is `random_spans_helper` in the released code, which adds a token while the result
        still fits.
        """
        return _budget(self, length, special)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Hide a text."""
        return self.hide(self.conceal.frame(text, special), special, rng)

    def hide(self, framed: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Hide a text that has its frame."""
        free = can_be_hidden(framed.ids, special)
        if free.sum() >= self.choose.least:
            hidden = self.choose(framed, free, rng)
        else:
            hidden = np.zeros(len(free), bool)
        return self.conceal(framed, hidden, special, rng)


@dataclass(frozen=True)
class NextSentence:
    """Is B what follows A, or text from elsewhere? Label 0 or 1.

    Devlin et al. 2019, section 3.1, task 2, and appendix A.2; `create_instances_from_document` in
    the released code. The text is cut at a random beginning of a sentence into A and B; for half of
    the texts B comes from elsewhere and begins with a sentence there. Of 10 % of the texts only the
    first sentences are used, two at least, up to a random length (`short_seq_prob`).

    Deviates: B from elsewhere ends where its row ends, as what follows A does, and A begins where
    both together are as long as the text. There, the longer of the two is cut at either end: where
    rows are filled to the last token, lengths and ends would tell the label (docs/log.md).
    Deviates: of a text of one sentence nothing is asked; there, B is then always from elsewhere.
    Deviates: a text is read by its position alone, so sentences that were not used are not put back
    for the next example: the next epoch asks for them.
    Deviates: B is drawn from all rows of other documents alike, published from all documents alike.
    """

    random: float = 0.5
    short: float = 0.1
    single: bool = False
    """A and B are one sentence each: SENTENCE-PAIR of Liu et al. 2019, section 4.2."""
    asks: ClassVar[str] = "next_sentence"

    def __post_init__(self) -> None:
        check_shares(random=self.random, short=self.short)

    @property
    def elsewhere(self) -> bool:
        """It needs a text from elsewhere."""
        return True

    def __call__(self, text: Tokens, rng: np.random.Generator) -> tuple[Tokens, Tokens, int]:
        """Cut the text; return A, B and the label.

        Of a single sentence nothing is asked: B is empty, and the label IGNORE. Without another
        text, B is what follows A.
        """
        used = text
        if rng.random() < self.short:
            some = _until(text, int(rng.integers(2, max(len(text), 2), endpoint=True)))
            used = some if len(sentence_starts(some)) > 1 else text
        starts = sentence_starts(used)
        if len(starts) < 2:
            return text, text[len(text) :], IGNORE
        cut = int(rng.choice(starts[1:]))
        a, b = used[:cut], used[cut:]
        if self.single:
            a, b = a[int(starts[starts < cut][-1]) :], _until(b, 1)
        other = text.other
        if rng.random() >= self.random or other is None or not len(other):
            return a, b, 0
        begins = _beginnings(other)
        if self.single or len(used) < len(text):
            b = _until(other[int(rng.choice(begins)) :], 1 if self.single else len(b))
            b = b[: len(text) - 1]
            return a[max(0, len(a) + len(b) - len(text)) :], b, 1
        fit = begins[
            (len(other) - begins >= len(text) - starts[-1]) & (begins > len(other) - len(text))
        ]
        if not len(fit):
            return a, other[int(rng.choice(begins)) :][: len(b)], 1
        b = other[int(rng.choice(fit)) :]
        n = len(text) - len(b)
        cut = int(starts[starts >= n][0])
        return text[cut - n : cut], b, 1


@dataclass(frozen=True)
class SentenceOrder:
    """Do A and B, which follow each other in one text, stand in their order? Label 0 if so, 1 not.

    Lan et al. 2020, arXiv:1909.11942, section 3.1. The text is cut at a random beginning of a
    sentence, or where it is but one sentence, anywhere in its middle half; half of the texts are
    swapped. Of 10 % of the texts only the first sentences are used, up to a random length
    (`short_seq_prob` of the released code).
    """

    swapped: float = 0.5
    short: float = 0.1
    asks: ClassVar[str] = "sentence_order"

    def __post_init__(self) -> None:
        check_shares(swapped=self.swapped, short=self.short)

    @property
    def elsewhere(self) -> bool:
        """Both texts are of one."""
        return False

    def __call__(self, text: Tokens, rng: np.random.Generator) -> tuple[Tokens, Tokens, int]:
        """Cut the text; return A, B and the label, which is IGNORE where there is no B."""
        if rng.random() < self.short:
            text = _until(text, int(rng.integers(2, max(len(text), 2), endpoint=True)))
        if len(text) < 2:
            return text, text[len(text) :], IGNORE
        cut = _cut(text, 1, rng)
        a, b = text[:cut], text[cut:]
        return (b, a, 1) if rng.random() < self.swapped else (a, b, 0)


@dataclass(frozen=True)
class Neighbors:
    """Which of many texts B is the one that followed A?

    Logeswaran and Lee 2018, arXiv:1803.02893, section 3: a classifier in the place of a decoder.
    The text is cut at a random beginning of a sentence, or where there is none far enough from its
    ends, anywhere in its middle half. What B is chosen from is a matter of the batch; see
    `unmask.heads.neighbors`.

    Deviates: A and B are several sentences each; there, one, asked for those around it.
    """

    shortest: int = 4
    """Tokens of A and of B, at least; a text too short for both is A alone, and not asked."""
    asks: ClassVar[str] = "neighbor"

    def __post_init__(self) -> None:
        if self.shortest < 1:
            raise ValueError(f"shortest must be at least 1, got {self.shortest}")

    def __call__(self, text: Tokens, rng: np.random.Generator) -> tuple[Tokens, Tokens]:
        """Cut the text; B is empty where it is too short."""
        if len(text) < 2 * self.shortest:
            return text, text[len(text) :]
        cut = _cut(text, self.shortest, rng)
        return text[:cut], text[cut:]


QUESTIONS = (NextSentence, SentenceOrder, Neighbors)
"""What is asked about two parts of a document."""
OF_SENTENCES = ("sentences_said", "sentences_found")
"""What is asked of each sentence of a document about those beside it."""
ABOUT_ONE = (*(question.asks for question in QUESTIONS), *OF_SENTENCES)
"""What is asked about parts of one document."""


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
        return _budget(self, length, special)

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
        return _budget(self, length, special)

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
        return _budget(self, length, special)

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
        return _budget(self, length, special)

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


@dataclass(frozen=True)
class TwoSegments:
    """A piece of a stream: its first part goes on; what follows is read ahead, as two texts.

    Yang et al. 2019, arXiv:1906.08237, section 2.5; `_split_a_and_b`, `reuse_len` and `_local_perm`
    in the released code: kept + before + A + between + B + after, where B follows A, or is from
    elsewhere. Each of the two parts is hidden by itself. The first sees nothing of the second, so
    that a memory of it alone holds no answer of the next piece, which begins where it ends; the
    second sees all of the first. Nothing is asked about A and B as such.

    Deviates: where no sentence begins in what follows, it is cut anywhere in its middle half;
    there, A is all but a token of it, and B from elsewhere. B ends where the row does; there, both
    end with a sentence, and the longer one is cut. B from elsewhere is of another document, if
    there is one; there, of any.
    """

    objective: Hide
    random: float = 0.5
    """So often B is from elsewhere."""
    kept: float = 0.5
    """Of a row, the first part. 0: there is none, rows follow each other as a whole."""

    def __post_init__(self) -> None:
        check_shares(random=self.random)
        if not 0 <= self.kept < 1:
            raise ValueError(f"kept must be at least 0 and below 1, got {self.kept}")
        if not isinstance(self.objective.conceal, Order):
            raise ValueError(
                "two parts of which one sees nothing of the other come in an order: "
                f"objective.conceal must be Order, got {type(self.objective.conceal).__name__}"
            )

    @property
    def asks(self) -> tuple[str, ...]:
        """As the objective."""
        return self.objective.asks

    @property
    def pairs(self) -> bool:
        """Some of the second texts are from elsewhere."""
        return self.random > 0

    @property
    def causal(self) -> bool:
        """Shown tokens see each other."""
        return False

    @property
    def times(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count the tokens: those of the text, and the special ones."""
        return np.asarray(n) + len(special.before) + len(special.between) + len(special.after)

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have: `length` without the special ones."""
        return _budget(self, length, special)

    def step(self, n: int, special: Special) -> int:
        """Count the tokens of the first part of a text of `n`; two are left for A and B."""
        row = int(self.size(np.array([n]), special)[0])
        return max(0, min(int(self.kept * row), n - 2))

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Cut a text in three (or in two, and take the third from `text.other`), and hide."""
        n = self.step(len(text), special)
        a, b = self._split(text[n:], text.other, rng)
        between = special.between if len(b) else ()
        parts = join(text[:n]), join(special.before, a, between, b, special.after)
        first, second = (self.objective.hide(part, special, rng) for part in parts)
        assert first.rank is not None
        assert second.rank is not None
        both = ((first.inputs, second.inputs), (first.targets, second.targets))
        inputs, targets = (np.concatenate(arrays) for arrays in both)
        end = n + len(special.before) + len(a) + len(between) if len(b) else len(inputs)
        return replace(
            second,
            inputs=inputs,
            targets=targets,
            rank=np.concatenate((first.rank, second.rank + first.rank.max(initial=-1) + 1)),
            segments=(np.arange(len(inputs)) >= end).astype(np.int64),
            kept=n or None,
        )

    def _split(
        self, text: Tokens, other: Tokens | None, rng: np.random.Generator
    ) -> tuple[Tokens, Tokens]:
        """Return A and B; a text of one token is A alone."""
        cut = _cut(text, 1, rng) if len(text) > 1 else len(text)
        a, b = text[:cut], text[cut:]
        if rng.random() >= self.random or not len(b) or other is None or not len(other):
            return a, b
        starts = sentence_starts(other)
        starts = starts[starts + len(b) <= len(other)]
        begin = int(rng.choice(starts)) if len(starts) else 0
        return a, other[begin : begin + len(b)]


@dataclass(frozen=True)
class _InPart:
    """A text hidden in place, of which each token sees a part."""

    objective: Hide

    def __post_init__(self) -> None:
        if not isinstance(self.objective.conceal, InPlace):
            raise ValueError(
                "a text that is seen in part can only be hidden in place: objective.conceal must "
                f"be InPlace, got {type(self.objective.conceal).__name__}"
            )

    @property
    def asks(self) -> tuple[str, ...]:
        """As the objective."""
        return self.objective.asks

    @property
    def pairs(self) -> bool:
        """It asks about one text."""
        return False

    @property
    def times(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have: `length` without the special ones."""
        return self.objective.budget(length, special)


@dataclass(frozen=True)
class OneWay(_InPart):
    """A text hidden in place and read in one direction: a token sees itself and those before it.

    Or, read backward, itself and those after it (Dong et al. 2019, arXiv:1905.03197, section 2.3,
    "Unidirectional LM"). Hidden tokens are asked in their own place, knowing what was read.
    """

    direction: Literal["forward", "backward"] = "forward"
    segment: int = 0
    """Of all tokens."""

    @property
    def causal(self) -> bool:
        """Read forward, it is."""
        return self.direction == "forward"

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count as the objective does."""
        return self.objective.size(n, special)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Hide, and say who sees whom."""
        example = self.objective(text, special, rng)
        place = np.arange(len(example.inputs))
        rank = place if self.direction == "forward" else place[::-1].copy()
        return replace(example, rank=rank, segments=np.full(len(place), self.segment))


@dataclass(frozen=True)
class SourceTarget(_InPart):
    """A text in two parts hidden in place: the first is seen as a whole, the second read forward.

    Dong et al. 2019, arXiv:1905.03197, section 2.3, "Sequence-to-Sequence LM": before + source +
    between + target + after; tokens of the source see it alone, those of the target the source, and
    themselves and the target before them. Both have hidden tokens.

    Deviates: where a text is cut is not said; here, at a random beginning of a sentence, or where
    it is but one sentence, anywhere in its middle half.
    """

    segments: tuple[int, int] = (0, 1)
    """Of source and target."""

    @property
    def causal(self) -> bool:
        """The source is not."""
        return False

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count the tokens: those of the text, and the special ones."""
        return np.asarray(n) + len(special.before) + len(special.between) + len(special.after)

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have: `length` without the special ones."""
        return _budget(self, length, special)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Cut a text in two, hide, and say who sees whom; a text of one token is a source alone."""
        cut = _cut(text, 1, rng) if len(text) > 1 else len(text)
        between = special.between if cut < len(text) else ()
        framed = join(special.before, text[:cut], between, text[cut:], special.after)
        example = self.objective.hide(framed, special, rng)
        first = len(special.before) + cut + len(between) if between else len(framed)
        rank = (np.arange(len(framed)) - first + 1).clip(min=0)
        return replace(example, rank=rank, segments=np.array(self.segments)[(rank > 0) * 1])


@dataclass(frozen=True)
class Denoise:
    """An encoder reads a text through noise, and the decoder says the text as it was.

    Lewis et al. 2020, arXiv:1910.13461, section 2: one noise follows the other. Both sides have the
    special tokens around a text, which no noise reaches (released code, `DenoisingDataset`); the
    decoder reads what it is to say one place late, from `start` on.
    """

    noises: tuple[AnyNoise, ...]

    @property
    def asks(self) -> tuple[str, ...]:
        """The text, token by token."""
        return ("denoised",)

    @property
    def pairs(self) -> bool:
        """It asks about one text."""
        return False

    @property
    def causal(self) -> bool:
        """The decoder sees what it has said."""
        return True

    @property
    def times(self) -> int | None:
        """A text is changed anew in every epoch."""
        return None

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count the tokens of what the decoder says: no noise makes a text longer."""
        return np.maximum(np.asarray(n) + len(special.before) + len(special.after), 1)

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have: `length` without the special ones."""
        return _budget(self, length, special)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Change a text, and ask for it; of an empty one nothing is asked.

        Raises:
            ValueError: a noise needs a mask, and the vocabulary has none.
        """
        noisy = text = join(text)
        for noise in self.noises:
            noisy = noise(noisy, special, rng)
        source = join(special.before, noisy, special.after).ids
        source = source if len(source) else np.array([special.start])
        if not len(text):
            return asking_nothing(special, source)
        return saying(join(special.lead, text, special.after).ids, source, special)


_WITH_SOURCE = "Sentinels, Dropped, InSource, Denoise, InMode"


def _has_source(objective: AnyObjective) -> bool:
    """Say whether an encoder reads a source, and a decoder answers."""
    if isinstance(objective, Hide):
        return isinstance(objective.conceal, Sentinels | Dropped | InSource)
    return isinstance(objective, Denoise | InMode)


@dataclass(frozen=True)
class InMode:
    """A source that begins with a token which says how it was made, before all others.

    Tay et al. 2022, arXiv:2205.05131, section 3.1.3, mode switching: regular (R), sequential (S)
    and extreme (X) denoising; their tokens are `Special.modes`.
    """

    objective: Hide | Denoise
    mode: Literal["R", "S", "X"] = "R"

    def __post_init__(self) -> None:
        if not _has_source(self.objective):
            raise ValueError(
                f"a mode is told to an encoder: objective must be {_WITH_SOURCE}, got one without "
                "a source"
            )

    @property
    def asks(self) -> tuple[str, ...]:
        """As the objective."""
        return self.objective.asks

    @property
    def pairs(self) -> bool:
        """It asks about one text."""
        return False

    @property
    def causal(self) -> bool:
        """The decoder sees what it has said."""
        return True

    @property
    def times(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count a token more than the objective does, on either side."""
        return self.objective.size(n, special) + 1

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have beside the mode."""
        return _budget(self, length, special)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Hide, and put the mode before the source.

        Raises:
            ValueError: the vocabulary has no tokens for modes.
        """
        number = ("R", "S", "X").index(self.mode)
        if len(special.modes) <= number:
            raise ValueError(
                f"mode {self.mode} needs a token of its own, and this vocabulary has none; let the "
                "card that asks so learn one (without --tokenizer, or by `unmask prepare --model`)"
            )
        example = self.objective(text, special, rng)
        assert example.source is not None
        mode = special.modes[number : number + 1]
        return replace(example, source=np.concatenate((mode, example.source)))


Part = Hide | Pair | OneWay | SourceTarget | Denoise | InMode
"""The kinds of objective that a mixture can hold."""


@dataclass(frozen=True)
class Mixture:
    """One of several objectives for each text, drawn by weight (UniLM, GPT-BERT, UL2)."""

    parts: tuple[tuple[float, Part], ...]
    names: tuple[str, ...] = ()
    """Of the parts: what each asks of held-out text is told apart, under its name. None: it is
    not."""

    def __post_init__(self) -> None:
        if self.names and len(set(self.names)) != len(self.parts):
            raise ValueError(
                f"names must be one for each of the {len(self.parts)} parts, all different, got "
                f"{list(self.names)}"
            )
        weights = [weight for weight, _ in self.parts]
        if not weights or not all(0 < w < np.inf for w in weights):
            raise ValueError(
                f"a mixture needs parts whose weights are above 0, got weights {weights}"
            )
        two = [_has_source(part) for _, part in self.parts]
        if any(two) and not all(two):
            raise ValueError(
                f"a mixture cannot have parts for an encoder-decoder ({_WITH_SOURCE}) and parts "
                "without"
            )

    @property
    def named(self) -> Mapping[str, Part]:
        """The parts by name, where they have any."""
        return dict(zip(self.names, (part for _, part in self.parts), strict=False))

    @property
    def asks(self) -> tuple[str, ...]:
        """What any of the parts asks."""
        return tuple(dict.fromkeys(name for _, part in self.parts for name in part.asks))

    @property
    def pairs(self) -> bool:
        """Some part asks about two texts."""
        return any(part.pairs for _, part in self.parts)

    @property
    def causal(self) -> bool:
        """Every part is causal."""
        return all(part.causal for _, part in self.parts)

    @property
    def times(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count the tokens of whichever part makes the most of them."""
        return np.max([part.size(n, special) for _, part in self.parts], axis=0)

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have for every part."""
        return min(part.budget(length, special) for _, part in self.parts)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Draw a part and let it hide the text."""
        sums = np.cumsum([weight for weight, _ in self.parts])
        drawn = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
        return self.parts[min(drawn, len(self.parts) - 1)][1](text, special, rng)


@dataclass(frozen=True)
class Static:
    """Static masking: hide a text in `times` ways, and use these in turn epoch by epoch.

    Liu et al. 2019, section 4.1. There the text was copied ten times before it was masked once.
    Here nothing is stored: the loader seeds the generator by epoch % times in place of the epoch.
    """

    objective: Hide | Pair | Apart | BesideCrop | OneWay | SourceTarget | Denoise | InMode | Mixture
    times: int = 10

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ValueError(f"times must be at least 1, got {self.times}")

    @property
    def asks(self) -> tuple[str, ...]:
        """As the objective."""
        return self.objective.asks

    @property
    def pairs(self) -> bool:
        """As the objective."""
        return self.objective.pairs

    @property
    def causal(self) -> bool:
        """As the objective."""
        return self.objective.causal

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count as the objective does."""
        return self.objective.size(n, special)

    def budget(self, length: int, special: Special) -> int:
        """Count as the objective does."""
        return self.objective.budget(length, special)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Hide as the objective does."""
        return self.objective(text, special, rng)


@dataclass(frozen=True)
class Spelled:
    """Subwords hidden as another objective hides tokens, and read character by character.

    Clark et al. 2022, arXiv:2103.06874, section 3.2.2. Where a subword is masked, all of its
    characters are; what is drawn in its place has as many; and one of its places, drawn too, is
    asked for it. The subwords are those of `Special.subwords`.

    Deviates: a word that has no subwords is never hidden; mBERT also hides, and asks for, [UNK].
    """

    objective: Hide

    def __post_init__(self) -> None:
        if not isinstance(self.objective.conceal, InPlace):
            raise ValueError(
                "subwords can only be hidden in place: objective.conceal must be InPlace, "
                f"got {type(self.objective.conceal).__name__}"
            )

    @property
    def asks(self) -> tuple[str, ...]:
        """The subwords."""
        return ("subwords",)

    @property
    def pairs(self) -> bool:
        """It asks about one text."""
        return False

    @property
    def causal(self) -> bool:
        """As the objective."""
        return self.objective.causal

    @property
    def times(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count the characters, which stay as many as they are.

        Raises:
            ValueError: there are no subwords, or no mask, beside the characters.
        """
        _spelling(special)
        return np.asarray(n) + len(special.before) + len(special.after)

    def budget(self, length: int, special: Special) -> int:
        """Count the characters that a text may have: `length` without the special ones."""
        return _budget(self, length, special)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Hide subwords, and spell what is read.

        Raises:
            ValueError: there are no subwords, or no mask, beside the characters.
        """
        known, mask = _spelling(special)
        cut = known.cut(text.ids)
        e = self.objective.hide(cut.subwords, known.special, rng)
        inputs = join(special.before, text, special.after).ids
        targets, asked_at = (np.full(len(inputs), IGNORE) for _ in range(2))
        for i in np.flatnonzero(e.targets != IGNORE).tolist():
            read, answer = int(e.inputs[i]), int(e.targets[i])
            n, start = len(known.spell(answer)), len(special.before) + int(cut.starts[i])
            place = start + int(rng.integers(n))
            targets[place], asked_at[start : start + n] = answer, place
            if read == known.special.mask:
                inputs[start : start + n] = mask
            elif read != answer:
                inputs[start : start + n] = known.spell(int(rng.choice(known.as_long(answer))))
        return Example(inputs=inputs, targets=targets, asked_at=asked_at)


@dataclass(frozen=True)
class FromBothSides:
    """Ask for each word twice: of who has read what stands before it, and of who read the rest.

    Two language models, one in each direction (Peters et al. 2018, arXiv:1802.05365, section 3.1).
    Words are those of `Special.subwords`; one stands in several tokens, and is asked at the first.

    Deviates: what begins and what ends a text is read, and not asked for.
    """

    @property
    def asks(self) -> tuple[str, ...]:
        """The words."""
        return ("both_sides",)

    @property
    def pairs(self) -> bool:
        """It asks about one text."""
        return False

    @property
    def causal(self) -> bool:
        """One of two readers alone sees what stands before."""
        return False

    @property
    def times(self) -> int | None:
        """Nothing is drawn: a text is the same in every epoch."""
        return 1

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count the tokens, which stay as many as they are."""
        return np.asarray(n) + len(special.before) + len(special.after)

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have: `length` without the special ones."""
        return _budget(self, length, special)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Name each word.

        Raises:
            ValueError: there are no words beside the characters.
        """
        known = special.subwords
        if known is None:
            raise ValueError(_UNKNOWN.format("words"))
        words = known.cut(text.ids)
        inputs = join(special.before, text, special.after).ids
        targets, asked_at = (np.full(len(inputs), IGNORE) for _ in range(2))
        starts = len(special.before) + words.starts
        targets[starts] = words.subwords.ids
        own = np.searchsorted(starts, np.arange(len(inputs)), "right") - 1
        of_word = (own >= 0) & can_be_hidden(inputs, special)
        asked_at[of_word] = starts[own[of_word]]
        return Example(inputs=inputs, targets=targets, asked_at=asked_at, blind=True)


@dataclass(frozen=True)
class InOneStack:
    """What an encoder-decoder is asked, of a stack that reads the source and goes on with the rest.

    Raffel et al. 2020, arXiv:1910.10683, section 3.2.1: a language model, or with `whole` a prefix
    language model, under a denoising objective; see `joined`.
    """

    objective: Hide | Denoise
    whole: bool = False
    """The source is seen as a whole."""

    def __post_init__(self) -> None:
        of_one = InPlace | PlaceBefore | InTurn | Order | Future
        if isinstance(self.objective, Hide) and isinstance(self.objective.conceal, of_one):
            raise ValueError(
                "only what is read in two stacks can be in one: objective.conceal must be "
                f"Sentinels, got {type(self.objective.conceal).__name__}"
            )

    @property
    def asks(self) -> tuple[str, ...]:
        """As the objective."""
        return self.objective.asks

    @property
    def pairs(self) -> bool:
        """It asks about one text."""
        return False

    @property
    def causal(self) -> bool:
        """Unless the source is seen as a whole."""
        return not self.whole

    @property
    def times(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count the tokens of both sides, at most: twice the longer one, or what spans take.

        Where hidden tokens are gone, each token is on one side.
        """
        n = np.asarray(n)
        longer = self.objective.size(n, special)
        if not isinstance(self.objective, Hide):
            return 2 * longer
        if isinstance(self.objective.conceal, Dropped):
            return longer + len(special.after)
        folded = self.objective.choose.folded(n)
        short = len(special.after) + np.where(n >= self.objective.choose.least, folded.hidden, 0)
        return longer + np.minimum(short, longer)

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have: both sides share the length."""
        return _budget(self, length, special)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Hide as the objective does, and lay both sides in one text.

        Raises:
            ValueError: the objective makes no source.
        """
        return joined(self.objective(text, special, rng), whole=self.whole)


Objective = (
    Hide
    | Pair
    | Apart
    | Sentences
    | BesideCrop
    | TwoSegments
    | OneWay
    | SourceTarget
    | Denoise
    | InMode
    | Mixture
    | Static
    | Spelled
    | FromBothSides
    | InOneStack
)
"""The kinds of objective that a recipe can hold."""

MASKED = Hide(Tokenwise(rate=0.15), InPlace(mask=0.8, random=0.1))
"""Masked tokens alone: Devlin et al. 2019, section 3.1, task 1; Liu et al. 2019, section 4.2."""
BERT = Pair(MASKED, NextSentence())
"""Devlin et al. 2019, section 3.1, both tasks."""
WHOLE_WORD = Pair(Hide(Words(rate=0.15), InPlace(mask=0.8, random=0.1)), NextSentence())
"""BERT with whole words hidden: README of the released code, 31 May 2019."""
ALBERT = Pair(Hide(NGrams(rate=0.15), InPlace(mask=0.8, random=0.1)), SentenceOrder())
"""Lan et al. 2020, section 3.1 and 4.1: n-grams of words are hidden, and the order is asked."""
SPANBERT = Hide(WordSpans(rate=0.15), InPlace(mask=0.8, random=0.1, together=True))
"""Joshi et al. 2020, sections 3.1 and 3.3: spans, and no second text."""
XLNET = TwoSegments(Hide(Contexts(), Order()))
"""Yang et al. 2019, sections 2.3, 2.5 and 3.1: spans, 1 of 6 tokens, are asked in a random order.

Half of a row is kept (released code, `reuse_len`), half of the second texts are from elsewhere.
"""
ELECTRA = Hide(Tokenwise(rate=0.15), InPlace(mask=0.85, random=0.0))
"""Clark et al. 2020, section 2; of the hidden tokens 15 % are left as they are (released code,
`mask`)."""
COCO_LM = BesideCrop(Hide(Tokenwise(rate=0.15), InPlace(mask=1.0, random=0.0)), keep=0.9)
"""Meng et al. 2021, sections 3.1 and 3.3."""
DEBERTA = Hide(NGrams(rate=0.15, longest=3), InPlace(mask=0.8, random=0.1))
"""He et al. 2021, arXiv:2006.03654, appendix A.3: runs of up to three words are hidden, too.

How long they are drawn is not said; in the released code, `NGramMaskGenerator`, as ALBERT's.
Deviates: there, one run of n words stands somewhere in each window of 6 n words, from the front of
the text to its end or until 15 % of the tokens are hidden. Here runs stand anywhere.
"""
DEBERTA_V3 = Hide(Words(rate=0.15), InPlace(mask=1.0, random=0.0))
"""He et al. 2021, arXiv:2111.09543, section 3.1; whole words, all of them masked: released code."""
MODERNBERT = Hide(Tokenwise(rate=0.3), InPlace(mask=0.8, random=0.1))
"""Warner et al. 2024, section 2.2.1: 30 % of the tokens, no second task."""
CANINE_C = Hide(Words(rate=0.15), InTurn(mask=0.9))
"""Clark et al. 2022, section 3.2.1: words, bounded by white space, character by character.

Deviates: 15 % of the characters are in hidden words, there 15 % of the words are hidden; and the
space before a word is part of it.
"""
CANINE_S = Spelled(MASKED)
"""Clark et al. 2022, section 3.2.2; how many subwords, as BERT's tokens: section 4.1.3.

Deviates: at most 80 are asked of a text there.
"""
_CLOZE = Hide(TokenRuns(rate=0.15, shares=(0.8, 0.1, 0.1)), InPlace(mask=0.8, random=0.1))
UNILM = Mixture(
    (
        (2.0, Pair(_CLOZE, NextSentence())),
        (2.0, SourceTarget(_CLOZE, segments=(4, 5))),
        (1.0, OneWay(_CLOZE, "forward", segment=2)),
        (1.0, OneWay(_CLOZE, "backward", segment=3)),
    ),
    names=("both_ways", "source_target", "forward", "backward"),
)
"""Dong et al. 2019, arXiv:1905.03197, section 2.3, and the shares and rates of 2.4.

Which segment tells which part is in the released code, `BertForPreTrainingLossMask`.
Deviates: a bigram is as likely as a trigram, which the paper does not say; so it is in the released
code for fine-tuning. The parts are drawn for each text, there for each batch.
"""
GPT = Hide(Everything(), Future())
"""Radford et al. 2018, section 3.1, equation 1; Radford et al. 2019, section 2."""
GPT_BERT = Mixture(
    (
        (
            15.0,
            Hide(
                Falling(0.3, TokenRuns(0.15, (1.0, 1.0, 1.0))),
                PlaceBefore(0.8, 0.1, together=True),
            ),
        ),
        (1.0, GPT),
    ),
    names=("masked", "forward"),
)
"""Charpentier and Samuel 2024, arXiv:2410.24159, section 2: masked next tokens, and one text of
sixteen read forward; how tokens are hidden, and how many: released code, `SpanMaskingStrategy`.

Deviates: tokens that were hidden less often are not preferred. Each token asked counts alike;
there, each text does, so that those read forward have a smaller share of the loss.
"""
PREFIX = Hide(Tail(), Future())
"""Raffel et al. 2020, section 3.2.1: a language model whose prefix is read in both directions."""
T5 = Hide(Spans(rate=0.15, mean=3.0), Sentinels())
"""Raffel et al. 2020, sections 3.1.4 and 3.3.4; spans of 3 tokens: section 3.7."""

BART = Denoise((SentencePermutation(), TextInfilling(rate=0.3, mean=3.0)))
"""Lewis et al. 2020, arXiv:1910.13461, section 5.1: 30 % of the tokens, and all sentences.

Sentences come first (released code, `DenoisingDataset`), so that a span may go across two that were
apart.
"""


T5_OBJECTIVES: Mapping[str, Objective] = {
    "prefix_language_model": Hide(Tail(), Dropped()),
    "bert_style": Denoise((TokenMasking(Tokenwise(0.15), random=0.1),)),
    "deshuffling": Denoise((TokenPermutation(),)),
    "mass_style": Denoise((TokenMasking(Tokenwise(0.15)),)),
    "replaced_spans": Hide(Tokenwise(0.15), Sentinels()),
    "dropped_tokens": Hide(Tokenwise(0.15), Dropped()),
    "random_spans": T5,
}
"""The seven objectives of Raffel et al. 2020, table 3, in its order.

In the released code: `prefix_lm`, `iid_15_r10s90_f`, `all_permute`, `iid_15_m_f`, `iid_15_u_u`,
`iid_15_d_d`, `span_3_15_u_u`. The mask is there, as here, the first sentinel.
Deviates: of n tokens round(rate n) are hidden, at least one; there each is hidden by a chance of
its own (`iid_noise_mask`). Random tokens are not special; there, they may be sentinels.
"""
T5_RATES: Mapping[float, Objective] = {
    rate: Hide(Tokenwise(rate), Sentinels()) for rate in (0.1, 0.15, 0.25, 0.5)
}
"""Corruption rates of Raffel et al. 2020, section 3.3.3 and table 6."""
T5_SPANS: Mapping[float, Objective] = {
    mean: Hide(Spans(0.15, mean), Sentinels()) for mean in (2.0, 3.0, 5.0, 10.0)
}
"""Mean lengths of spans of Raffel et al. 2020, section 3.3.4 and table 7; 15 % are hidden."""

MASS = Hide(Fragment(0.5), InSource(mask=0.8, random=0.1))
"""Song et al. 2019, arXiv:1905.02450, section 4.1: half of a text, in one fragment.

Deviates: all places of the fragment are equally likely, as section 3.2 has it; in the released code
it begins or ends the sentence more often (`mask_start`), and that for summaries hides a fragment of
each 64 tokens of a row, 15 % of them (`mask_s2s_prob`, of `MaskedLanguagePairDataset`).
"""

SKIP_THOUGHTS = Sentences()
"""Kiros et al. 2015, section 2.1: the sentence before and the one after, word by word."""
QUICK_THOUGHTS = Sentences(said=False)
"""Logeswaran and Lee 2018, section 3: which sentences they are."""

UL2 = Mixture(
    (
        (1.0, InMode(Hide(Spans(0.15, 3.0), Sentinels()), "R")),
        (1.0, InMode(Hide(Spans(0.15, 8.0), Sentinels()), "R")),
        (1.0, InMode(Hide(Tail(rate=0.25), Dropped()), "S")),
        (1.0, InMode(Hide(Spans(0.5, 3.0), Sentinels()), "X")),
        (1.0, InMode(Hide(Spans(0.5, 8.0), Sentinels()), "X")),
        (1.0, InMode(Hide(Spans(0.15, 64.0), Sentinels()), "X")),
        (1.0, InMode(Hide(Spans(0.5, 64.0), Sentinels()), "X")),
    ),
    names=("R_3", "R_8", "S", "X_half_3", "X_half_8", "X_64", "X_half_64"),
)
"""Tay et al. 2022, arXiv:2205.05131, table 1: seven denoisers, equally often.

Their names: the denoiser, whether half of the text is hidden (of R and X else 15 %), and the mean
length of a span.

Deviates: the tail is a quarter of every text, as table 1 has it; in the code of the appendix it
begins anywhere (`prefix_lm`). And rows are as long for all of them; there, each fills what the
encoder reads. The parts are drawn for each text.
"""


def parts_of(objective: AnyObjective) -> Mapping[str, Part]:
    """Return the parts of a mixture that has names for them, also of one that is hidden static."""
    if isinstance(objective, Static):
        return parts_of(objective.objective)
    return objective.named if isinstance(objective, Mixture) else {}


def objective_after(objective: T, share: float) -> T:
    """Return an objective as it is for a step before which `share` of all steps were taken.

    The same object where nothing of it changes in training; else what it is made of is replaced.
    """
    if isinstance(objective, Falling):
        return cast("T", objective.after(share))
    if isinstance(objective, tuple):
        parts = tuple(objective_after(part, share) for part in objective)
        same = all(new is old for new, old in zip(parts, objective, strict=True))
        return objective if same else cast("T", parts)
    if not is_dataclass(objective):
        return objective
    old = {f.name: getattr(objective, f.name) for f in fields(objective)}
    new = {name: objective_after(part, share) for name, part in old.items()}
    changed: dict[str, Any] = {name: part for name, part in new.items() if part is not old[name]}
    return cast("T", replace(cast("Any", objective), **changed)) if changed else objective


def changes(objective: AnyObjective) -> bool:
    """Say whether an objective is not the same in the whole of a training."""
    return objective_after(objective, 0.0) is not objective


def step_of(objective: AnyObjective, length: int, special: Special) -> int:
    """Count the tokens after which the next piece of a stream of `length` begins: all, or fewer."""
    step = objective.step(length, special) if isinstance(objective, TwoSegments) else 0
    return step or length


def _spelling(special: Special) -> tuple[Subwords, int]:
    """Return the subwords of characters, and what masks a character."""
    known = special.subwords
    if not isinstance(known, Subwords):
        raise ValueError(_UNKNOWN.format("subwords"))
    if special.mask is None:
        raise ValueError("hiding subwords needs a mask token, and this vocabulary has none")
    return known, special.mask


_UNKNOWN = (
    "{} are asked for, and this tokenizer knows none beside its characters; let the card that asks "
    "so learn one (without --tokenizer, or by `unmask prepare --model`)"
)


def _budget(objective: AnyObjective, length: int, special: Special) -> int:
    top = max(length, 1)
    while objective.size(np.array([top]), special)[0] <= length:
        top *= 2
    fits = objective.size(np.arange(1, top + 1), special) <= length
    budget = int(np.argmin(fits))  # those before the first that does not fit
    if budget < 1:
        raise ValueError(f"a length of {length} leaves no room for text beside the special tokens")
    return budget


def _cut(text: Tokens, least: int, rng: np.random.Generator) -> int:
    """Draw where to cut a text, `least` tokens or more from its ends.

    At the beginning of a sentence, or where there is none, anywhere in its middle half.
    """
    n = len(text)
    starts = sentence_starts(text)
    starts = starts[(starts >= least) & (starts <= n - least)]
    if len(starts):
        return int(rng.choice(starts))
    least = max(least, n // 4)
    return int(rng.integers(least, n - least, endpoint=True))


def _until(text: Tokens, target: int) -> Tokens:
    """Keep the first sentences, until they have `target` tokens or more; all, if they have not."""
    ends = np.append(sentence_starts(text)[1:], len(text))
    enough = ends[ends >= target]
    return text[: int(enough[0])] if len(enough) else text[:]


def _beginnings(text: Tokens) -> Int[np.ndarray, "n"]:
    """Return where sentences begin; only where there is none, the beginning of the text."""
    starts = sentence_starts(text)
    return starts if text.marks[0] & SENTENCE or len(starts) == 1 else starts[1:]
