"""Subwords and words asked of who reads characters (CANINE, ELMo)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from unmask.batch import IGNORE, Example, Tokens
from unmask.hiding.choose import can_be_hidden
from unmask.hiding.conceal import InPlace, join
from unmask.hiding.hide import Hide, longest_text
from unmask.tokens.vocabulary import Special, Subwords


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
        return longest_text(self, length, special)

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
        return longest_text(self, length, special)

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
