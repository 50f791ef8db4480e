"""How the chosen tokens are hidden: the second half of an objective.

Every way of concealing is a pure function (framed text, hidden, special tokens, generator) ->
Example. Where the special tokens come to stand differs: BERT hides in a text that has them already
and counts them (`InPlace.frame`); T5 hides first, then ends both what the encoder reads and what
the decoder says (`Sentinels.__call__`). `size` says how long an example gets, so that rows can be
cut and batches planned before anything is hidden.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int

from unmask.batch import IGNORE, Example, Tokens
from unmask.hiding.choose import Choose, can_be_hidden, check_shares, words_of
from unmask.tokens.vocabulary import Special


@runtime_checkable
class Conceal(Protocol):
    """Hide the chosen tokens, and ask for them."""

    asks: ClassVar[str]
    """The name of what is asked; of the term of the loss, too."""

    def causal(self, choose: Choose) -> bool:
        """Say whether each place of what has targets sees those before it, and nothing else."""
        ...

    def frame(self, text: Tokens, special: Special) -> Tokens:
        """Put special tokens around the text, those that must be there before tokens are chosen."""
        ...

    def size(
        self, n: Int[np.ndarray, "m"], choose: Choose, special: Special
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens, at most, of examples made of texts of `n` tokens.

        Of an encoder-decoder, those of the side that has more.
        """
        ...

    def __call__(
        self,
        text: Tokens,
        hidden: Bool[np.ndarray, "t"],
        special: Special,
        rng: np.random.Generator,
    ) -> Example:
        """Hide."""
        ...


@dataclass(frozen=True)
class _Framed:
    """Hidden tokens stay where they stood, in a text that has its frame and is seen as a whole."""

    def causal(self, choose: Choose) -> bool:
        """Everything sees everything."""
        return False

    def frame(self, text: Tokens, special: Special) -> Tokens:
        """Put the special tokens around the text: they are counted, but never hidden."""
        return join(special.before, text, special.after)

    def size(
        self, n: Int[np.ndarray, "m"], choose: Choose, special: Special
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens, which stay as many as they are."""
        return n + len(special.before) + len(special.after)


@dataclass(frozen=True)
class InPlace(_Framed):
    """Put [MASK] in the place of most hidden tokens, a random token in that of some, keep others.

    Devlin et al. 2019, section 3.1, task 1 and appendix A.1: 80 %, 10 %, 10 %, each token on its
    own, also in whole words (released code, `create_masked_lm_predictions`).
    Deviates: the released code draws random tokens from the whole vocabulary; we leave out the
    special ones.
    """

    mask: float = 0.8
    random: float = 0.1
    together: bool = False
    """All tokens of a run fare alike: masked, random ones in their place, or kept (Joshi et al.
    2020, section 3.1)."""
    asks: ClassVar[str] = "masked"

    def __post_init__(self) -> None:
        check_shares(mask=self.mask, random=self.random)
        if self.mask + self.random > 1 + 1e-9:  # 0.7 + 0.3 may be above 1 by a rounding error
            raise ValueError(f"mask + random must be at most 1, got {self.mask} + {self.random}")

    def __call__(
        self,
        text: Tokens,
        hidden: Bool[np.ndarray, "t"],
        special: Special,
        rng: np.random.Generator,
    ) -> Example:
        """Hide in place.

        Raises:
            ValueError: the vocabulary has no token for a mask.
        """
        hidden = hidden & can_be_hidden(text.ids, special)
        inputs = self.put(text.ids, hidden, special, rng)
        return Example(inputs=inputs, targets=np.where(hidden, text.ids, IGNORE))

    def put(
        self,
        ids: Int[np.ndarray, "t"],
        hidden: Bool[np.ndarray, "t"],
        special: Special,
        rng: np.random.Generator,
    ) -> Int[np.ndarray, "t"]:
        """Return the tokens with something in the place of the hidden ones, special ones or not.

        Raises:
            ValueError: the vocabulary has neither a mask nor sentinels.
        """
        if special.blank is None:
            raise ValueError("hiding in place needs a mask token, and this vocabulary has none")
        dice = rng.random(len(ids))
        if self.together:
            dice = dice[np.cumsum(_run_starts(hidden)) - 1]
        inputs = ids.copy()
        inputs[hidden & (dice < self.mask)] = special.blank
        other = hidden & (self.mask <= dice) & (dice < self.mask + self.random)
        inputs[other] = _random_tokens(int(other.sum()), special, rng)
        return inputs


@dataclass(frozen=True)
class PlaceBefore:
    """Hide in place, as `InPlace`, and ask for each hidden token in the place before its own.

    Charpentier and Samuel 2024, arXiv:2410.24159, section 2, masked next-token prediction: as a
    reader forward, each place is asked for the token after its own, so one head serves both.
    """

    mask: float = 0.8
    random: float = 0.1
    together: bool = False
    """All tokens of a run fare alike."""
    asks: ClassVar[str] = "next_token"

    def __post_init__(self) -> None:
        _ = self._in_place  # which refuses shares that are none

    @property
    def _in_place(self) -> InPlace:
        return InPlace(self.mask, self.random, self.together)

    def causal(self, choose: Choose) -> bool:
        """Everything sees everything."""
        return False

    def frame(self, text: Tokens, special: Special) -> Tokens:
        """Put the special tokens around the text: where nothing is before it, the start token."""
        return join(special.before or (special.start,), text, special.after)

    def size(
        self, n: Int[np.ndarray, "m"], choose: Choose, special: Special
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens, which stay as many as they are."""
        return n + max(len(special.before), 1) + len(special.after)

    def __call__(
        self,
        text: Tokens,
        hidden: Bool[np.ndarray, "t"],
        special: Special,
        rng: np.random.Generator,
    ) -> Example:
        """Hide in place, and shift what is asked.

        Raises:
            ValueError: the vocabulary has no token for a mask.
        """
        example = self._in_place(text, hidden, special, rng)
        targets = np.append(example.targets[1:], IGNORE)
        return replace(example, targets=targets, ahead=True)


@dataclass(frozen=True)
class InTurn(_Framed):
    """Put [MASK] in the place of most hidden words, and ask for their tokens in a random order.

    Clark et al. 2022, arXiv:2103.06874, section 3.2.1 and figure 2: all characters of a word are
    masked, of 10 % of the words none; nothing is replaced. Each place is answered knowing the
    answers before it (`Example.turn`).
    """

    mask: float = 0.9
    asks: ClassVar[str] = "characters"

    def __post_init__(self) -> None:
        check_shares(mask=self.mask)

    def __call__(
        self,
        text: Tokens,
        hidden: Bool[np.ndarray, "t"],
        special: Special,
        rng: np.random.Generator,
    ) -> Example:
        """Hide word by word, and draw the order.

        Raises:
            ValueError: the vocabulary has no token for a mask.
        """
        if special.mask is None:
            raise ValueError("hiding in turn needs a mask token, and this vocabulary has none")
        free = can_be_hidden(text.ids, special)
        hidden = hidden & free
        word, sizes = words_of(text, free)
        masked = (rng.random(len(sizes)) < self.mask)[word]
        turn = np.zeros(len(text), np.int64)
        turn[hidden] = rng.permutation(int(hidden.sum()))
        return Example(
            inputs=np.where(hidden & masked, special.mask, text.ids),
            targets=np.where(hidden, text.ids, IGNORE),
            turn=turn,
        )


@dataclass(frozen=True)
class Order(_Framed):
    """Hidden tokens come last in a random order, and each is asked where those before it are seen.

    Yang et al. 2019, arXiv:1906.08237, sections 2.2 and 2.3 (partial prediction): the text is read
    as it is; the rank of a shown token is 0, that of a hidden one its place in the order, from 1.
    What asks may see only lower ranks, so not its own token (`Example.blind`).
    Deviates: special tokens are shown; in the released code they have a place in the order, too,
    and are seen from there on.
    """

    random: bool = True
    """False: they come in the order of the text, so that each is told from those before it."""
    asks: ClassVar[str] = "permuted"

    def causal(self, choose: Choose) -> bool:
        """Where all are hidden, and come in the order of the text."""
        return choose.complete and not self.random

    def __call__(
        self,
        text: Tokens,
        hidden: Bool[np.ndarray, "t"],
        special: Special,
        rng: np.random.Generator,
    ) -> Example:
        """Draw the order."""
        hidden = hidden & can_be_hidden(text.ids, special)
        rank, n = np.zeros(len(text), np.int64), int(hidden.sum())
        rank[hidden] = 1 + (rng.permutation(n) if self.random else np.arange(n))
        targets = np.where(hidden, text.ids, IGNORE)
        return Example(inputs=text.ids, targets=targets, rank=rank, blind=True)


@dataclass(frozen=True)
class Sentinels:
    """Fold every hidden run into a sentinel; the decoder says sentinel, run, sentinel, run.

    Raffel et al. 2020, section 3.1.4; `noise_span_to_unique_sentinel` and
    `nonnoise_span_to_unique_sentinel` in the released code. There, as here, one more sentinel
    closes what the decoder says only if shown tokens end the text, which is never so after `Spans`
    (the paper has it always). The special tokens after a text (</s>) come last on both sides, and
    the decoder reads what it is to say, shifted by one, from `start` on.
    Deviates: where a hidden run begins the text (never after `Spans`), the released code names it
    by no sentinel and all others by the wrong one; here each run follows the sentinel that stands
    for it.
    Deviates: of more runs than there are sentinels, a random choice is hidden and the others are
    shown; the released code goes on with the ids below the sentinels, which are words.
    """

    asks: ClassVar[str] = "denoised"

    def causal(self, choose: Choose) -> bool:
        """The decoder sees what it has said."""
        return True

    def frame(self, text: Tokens, special: Special) -> Tokens:
        """Leave the text alone: its frame comes after hiding."""
        return join(text)

    def size(
        self, n: Int[np.ndarray, "m"], choose: Choose, special: Special
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens of what the encoder or the decoder reads, whichever are more."""
        folded = choose.folded(n)
        able = n >= choose.least
        source = np.where(able & (folded.runs <= len(special.sentinels)), folded.shown, n)
        return np.maximum(
            np.maximum(source, np.where(able, folded.hidden, 0)) + len(special.after), 1
        )

    def __call__(
        self,
        text: Tokens,
        hidden: Bool[np.ndarray, "t"],
        special: Special,
        rng: np.random.Generator,
    ) -> Example:
        """Fold.

        Raises:
            ValueError: the vocabulary has no sentinels.
        """
        if not special.sentinels:
            raise ValueError("hiding spans needs sentinel tokens, and this vocabulary has none")
        after = np.array(special.after, np.int64)
        source = np.concatenate((text.ids, after))
        if not hidden.any():
            source = source if len(source) else np.array([special.start])
            return asking_nothing(special, source)
        hidden = _some_runs(hidden, len(special.sentinels), rng)
        source = np.concatenate((_fold(text.ids, hidden, special), after))
        targets = np.concatenate((_spoken(text.ids, hidden, special), after))
        return saying(targets, source, special)


@dataclass(frozen=True)
class Dropped:
    """Hidden tokens are gone, and nothing says where; the decoder says them, one after the other.

    Raffel et al. 2020, section 3.3.2; `drop_noise_tokens` and `drop_nonnoise_tokens` in the
    released code. Of a hidden tail this is a prefix language model whose prefix an encoder reads
    (section 3.3.1). The special tokens after a text (</s>) come last on both sides.
    """

    asks: ClassVar[str] = "denoised"

    def causal(self, choose: Choose) -> bool:
        """The decoder sees what it has said."""
        return True

    def frame(self, text: Tokens, special: Special) -> Tokens:
        """Leave the text alone: its frame comes after hiding."""
        return join(text)

    def size(
        self, n: Int[np.ndarray, "m"], choose: Choose, special: Special
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens of a side that has all of the text."""
        return np.maximum(np.asarray(n) + len(special.after), 1)

    def __call__(
        self,
        text: Tokens,
        hidden: Bool[np.ndarray, "t"],
        special: Special,
        rng: np.random.Generator,
    ) -> Example:
        """Drop."""
        after = np.array(special.after, np.int64)
        source = np.concatenate((text.ids[~hidden], after))
        source = source if len(source) else np.array([special.start])
        if not hidden.any():
            return asking_nothing(special, source)
        return saying(np.concatenate((text.ids[hidden], after)), source, special)


@dataclass(frozen=True)
class InSource(_Framed):
    """Hide in place, as `InPlace`, in what an encoder reads; a decoder says the hidden tokens.

    Song et al. 2019, arXiv:1905.02450, sections 3.2 and 4.1. The decoder says each of them knowing
    the token before it, and stands where they stand in the text: it is told what the encoder is
    not, and no more (released code, `MaskedLanguagePairDataset` of `MASS-fairseq`; that of
    `MASS-summarization` counts its places from one before). Nothing ends what it says.
    """

    mask: float = 0.8
    random: float = 0.1
    asks: ClassVar[str] = "denoised"

    def __post_init__(self) -> None:
        _ = self._in_place  # which refuses shares that are none

    @property
    def _in_place(self) -> InPlace:
        return InPlace(self.mask, self.random)

    def causal(self, choose: Choose) -> bool:
        """The decoder sees what it has said."""
        return True

    def size(
        self, n: Int[np.ndarray, "m"], choose: Choose, special: Special
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens of what the encoder reads, which stay as many as they are."""
        return np.maximum(super().size(n, choose, special), 1)

    def __call__(
        self,
        text: Tokens,
        hidden: Bool[np.ndarray, "t"],
        special: Special,
        rng: np.random.Generator,
    ) -> Example:
        """Hide in place; special tokens between hidden ones are said, and stay where they are.

        Raises:
            ValueError: the vocabulary has neither a mask nor sentinels.
        """
        if not hidden.any():
            return asking_nothing(special, text.ids if len(text) else np.array([special.start]))
        masked = hidden & can_be_hidden(text.ids, special)
        place = np.flatnonzero(hidden)
        return Example(
            inputs=np.concatenate(([special.start], text.ids[:-1]))[place],
            targets=text.ids[place],
            rank=np.arange(len(place)),
            place=place,
            source=self._in_place.put(text.ids, masked, special, rng),
            ahead=True,
        )


@dataclass(frozen=True)
class Future:
    """Read each token one place late, and ask for it where only those before it are seen.

    With everything hidden this is GPT (Radford et al. 2018, equation 1): place i reads token i - 1,
    `start` at first, and is asked for token i. With a tail hidden it is a prefix language model
    (Raffel et al. 2020, section 3.2.1), whose shown tokens see each other. The rank of a place is
    the number of hidden tokens read up to it: what is asked there is of higher rank wherever it is
    read. A piece of a stream has no frame of its own, and reads at first the token before it.
    """

    asks: ClassVar[str] = "next_token"

    def causal(self, choose: Choose) -> bool:
        """Where nothing is shown as a prefix, which is seen as a whole."""
        return choose.complete

    def frame(self, text: Tokens, special: Special) -> Tokens:
        """Put the special tokens around the text, but `start`, which is read and never asked."""
        if text.before is not None:
            return replace(join(text), before=text.before)
        return join(special.lead, text, special.after)

    def size(
        self, n: Int[np.ndarray, "m"], choose: Choose, special: Special
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens: `start` comes in, the last one is not read."""
        return np.maximum(n + len(special.lead) + len(special.after), 1)

    def __call__(
        self,
        text: Tokens,
        hidden: Bool[np.ndarray, "t"],
        special: Special,
        rng: np.random.Generator,
    ) -> Example:
        """Shift."""
        if not len(text):
            return asking_nothing(special)
        first = special.start if text.before is None else text.before
        inputs = np.concatenate(([first], text.ids[:-1]))
        read = np.concatenate(([False], hidden[:-1]))
        targets = np.where(hidden, text.ids, IGNORE)
        return Example(inputs=inputs, targets=targets, rank=np.cumsum(read), ahead=True)


def join(*parts: Tokens | tuple[int, ...]) -> Tokens:
    """Put texts and special tokens one after the other; ids become int64, however stored."""
    ids = [np.asarray(p.ids if isinstance(p, Tokens) else p, np.int64) for p in parts]
    marks = [p.marks if isinstance(p, Tokens) else np.zeros(len(p), np.int64) for p in parts]
    return Tokens(np.concatenate(ids), np.concatenate(marks))


def saying(
    targets: Int[np.ndarray, "t"], source: Int[np.ndarray, "s"], special: Special
) -> Example:
    """Have a decoder say `targets`, of which it reads each one place late, from `start` on."""
    return Example(
        inputs=np.concatenate(([special.start], targets[:-1])),
        targets=targets,
        rank=np.arange(len(targets)),
        source=source,
        ahead=True,
    )


def asking_nothing(special: Special, source: Int[np.ndarray, "s"] | None = None) -> Example:
    """Read the start token, and beside it a source if there is one."""
    nothing = np.full(1, IGNORE)
    return Example(
        inputs=np.array([special.start]),
        targets=nothing,
        rank=np.zeros(1, int),
        source=source,
        ahead=True,
    )


def _random_tokens(n: int, special: Special, rng: np.random.Generator) -> Int[np.ndarray, "n"]:
    """Draw `n` tokens that are not special, all equally likely."""
    taken = np.array(sorted(i for i in special.ids if i < special.size), np.int64)
    if len(taken) >= special.size:
        raise ValueError("the vocabulary has nothing but special tokens")
    drawn = rng.integers(special.size - len(taken), size=n)
    return drawn + np.searchsorted(taken - np.arange(len(taken)), drawn, side="right")


def _run_starts(mask: Bool[np.ndarray, "t"]) -> Bool[np.ndarray, "t"]:
    return mask & ~np.concatenate(([False], mask[:-1]))


def _some_runs(
    hidden: Bool[np.ndarray, "t"], most: int, rng: np.random.Generator
) -> Bool[np.ndarray, "t"]:
    """Keep at most `most` runs hidden, chosen at random."""
    run = np.cumsum(_run_starts(hidden))  # from 1
    n = int(run[-1])
    if n <= most:
        return hidden
    kept = np.zeros(n + 1, bool)
    kept[1 + rng.choice(n, most, replace=False)] = True
    return hidden & kept[run]


def _fold(
    ids: Int[np.ndarray, "t"], gone: Bool[np.ndarray, "t"], special: Special
) -> Int[np.ndarray, "k"]:
    """Put the next sentinel in the place of each run that is gone."""
    starts = _run_starts(gone)
    sentinels = np.array(special.sentinels)[np.cumsum(starts)[starts] - 1]
    folded = ids.copy()
    folded[starts] = sentinels
    return folded[~gone | starts]


def _spoken(
    ids: Int[np.ndarray, "t"], hidden: Bool[np.ndarray, "t"], special: Special
) -> Int[np.ndarray, "k"]:
    """Put each hidden run after its sentinel; if shown tokens end the text, one more, if any."""
    starts = _run_starts(hidden)
    n = int(starts.sum())
    where = np.cumsum(hidden)[starts] - 1
    spoken = np.insert(ids[hidden], where, np.array(special.sentinels[:n]))
    closing = () if hidden[-1] else special.sentinels[n : n + 1]
    return np.concatenate((spoken, np.array(closing, np.int64)))
