"""A word in a blank for a label: the pretrained head says which of some words fits best."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from jaxtyping import Float, Int

from unmask.batch import IGNORE, Batch, Example
from unmask.finetuning.ask import (
    Answer,
    Around,
    Question,
    columns_encoded,
    encode,
    label_answer,
    label_loss,
    places,
    truncate,
)
from unmask.finetuning.tasks import Item, Task, Truth
from unmask.heads.model import Model
from unmask.text.records import listed
from unmask.tokens.tokenizer import Tokenizer
from unmask.tokens.vocabulary import Special

BLANK = "[MASK]"
"""What marks the blank in a pattern, for every model."""
_PLACE = re.compile(r"(\{[^{}]*\}|\[MASK\])")


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """What is read: texts, with words around them and a blank among these."""

    parts: tuple[str | int, ...]
    """Words as they are written, and which text stands where. The blank is not among them."""
    blank: int
    """Before which of the parts the blank is; their number: at the end."""

    @staticmethod
    def of(text: str, columns: Sequence[str]) -> "Pattern":
        """Read "{text} It was [MASK]."; a text is named by its column or by its number, from 0.

        Raises:
            ValueError: there is not just one blank, or not each text just once.
        """
        parts: list[str | int] = []
        blanks: list[int] = []
        for part in _PLACE.split(text):
            if part == BLANK:
                blanks.append(len(parts))
            elif _PLACE.fullmatch(part):
                parts.append(_which(part, text, columns))
            elif part:
                parts.append(part)
        if len(blanks) != 1:
            raise ValueError(f"pattern must have one blank, {BLANK}, got {text!r}")
        if sorted(p for p in parts if isinstance(p, int)) != list(range(len(columns))):
            named = " and ".join(f"{{{name}}}" for name in columns)
            raise ValueError(f"pattern must have {named} once, got {text!r}")
        return Pattern(parts=tuple(parts), blank=blanks[0])

    def spaced(self, i: int) -> bool:
        """Say whether a space is before a part, or before the blank if that is there."""
        before = self.parts[i - 1] if i else ""
        return isinstance(before, str) and before.endswith(" ")


def _which(part: str, text: str, columns: Sequence[str]) -> int:
    name = part[1:-1].strip()
    if name in columns:
        return columns.index(name)
    if name.isdecimal() and int(name) < len(columns):
        return int(name)
    raise ValueError(
        f"pattern: {part} is no column of text; there are {listed(columns)}, got {text!r}"
    )


def word_tokens(
    tokenizer: Tokenizer, words: Mapping[str, str], *, spaced: bool
) -> Int[np.ndarray, "labels"]:
    """Return the token of each label's word; if `spaced`, of the word after a space.

    Raises:
        ValueError: a word is not one token, or two labels have the same.
    """
    read = [f" {word}" if spaced else word for word in words.values()]
    seen: dict[int, str] = {}
    for label, word, ids in zip(words, words.values(), encode(tokenizer, read), strict=True):
        if len(ids) != 1 or int(ids[0]) in tokenizer.special.ids:
            pieces = " + ".join(piece.strip() for piece in tokenizer.pieces(ids.tolist()))
            raise ValueError(
                f"the word {word!r} of label {label!r} must be one token of the vocabulary, got "
                f"{pieces or 'nothing'}; choose another by the option words"
            )
        token = int(ids[0])
        if token in seen:
            raise ValueError(f"the labels {seen[token]!r} and {label!r} have one word, {word!r}")
        seen[token] = label
    return np.array(list(seen), np.int64)


@dataclass(frozen=True, kw_only=True)
class ByCloze:
    """Labels as words in a blank: Schick and Schütze 2021, arXiv:2001.07676, section 3.1.

    The model reads a text within a pattern with one blank; the head with which it was pretrained
    scores the word of each label there, and of no other word. An encoder's blank is its mask token;
    a decoder's is the end of the pattern, which it goes on with. No weight is new, so a model
    answers before it has learned the task. Texts are cut, the pattern never is.
    """

    task: Task
    tokenizer: Tokenizer
    around: Around
    pattern: Pattern
    parts: tuple[tuple[int, ...] | int, ...]
    """The pattern's, in tokens."""
    words: Int[np.ndarray, "labels"]
    """The token of each label's word."""

    @staticmethod
    def of(
        task: Task, tokenizer: Tokenizer, around: Around, pattern: Pattern, words: Mapping[str, str]
    ) -> "ByCloze":
        """Write a pattern and the words of the labels in tokens.

        Raises:
            ValueError: a word is not one token, two labels have the same, or the length leaves no
                room for text.
        """
        written = [part.rstrip(" ") if isinstance(part, str) else "" for part in pattern.parts]
        tokens = [tuple(ids.tolist()) for ids in encode(tokenizer, written)]
        asked = ByCloze(
            task=task,
            tokenizer=tokenizer,
            around=around,
            pattern=pattern,
            parts=tuple(
                part if isinstance(part, int) else ids
                for part, ids in zip(pattern.parts, tokens, strict=True)
            ),
            words=word_tokens(tokenizer, words, spaced=pattern.spaced(pattern.blank)),
        )
        if asked.room < 2:
            raise ValueError(
                f"length must be at least {task.length - asked.room + 2}, since the pattern is "
                f"read too, got {task.length}"
            )
        return asked

    @property
    def special(self) -> Special:
        """The vocabulary's special tokens."""
        return self.around.special

    @property
    def room(self) -> int:
        """Tokens of texts."""
        nothing = np.zeros(0, np.int64)
        return self.around.length - len(self._framed(None, [nothing, nothing]).inputs)

    def questions(self, items: Sequence[Item]) -> list[Question]:
        """Write each item's texts into the pattern."""
        spaced = [replace(item, texts=self._spaced(item.texts)) for item in items]
        found: list[Question] = []
        for i, (item, texts) in enumerate(
            zip(items, columns_encoded(self.tokenizer, spaced), strict=True)
        ):
            kept = truncate([len(t) for t in texts], self.room)
            cut = [text[:n] for text, n in zip(texts, kept, strict=True)]
            example = self._framed(item.truth, cut)
            found.append(Question(item=i, example=example, cut=kept != [len(t) for t in texts]))
        return found

    def _spaced(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Put the spaces of the pattern to the texts after them; the blank has its own."""
        at = {part: i for i, part in enumerate(self.parts) if isinstance(part, int)}
        spaced = {i for i, p in at.items() if p != self.pattern.blank and self.pattern.spaced(p)}
        return tuple(f" {text}" if i in spaced else text for i, text in enumerate(texts))

    def _framed(self, truth: Truth | None, texts: Sequence[Int[np.ndarray, "_"]]) -> Example:
        around, blank = self.around, self.pattern.blank
        written = [texts[p].tolist() if isinstance(p, int) else p for p in self.parts]
        ids = [*around.before, *chain(*written[:blank])]
        if around.causal:  # the blank is the token after the last
            ids = ids or [self.special.start]
            at = len(ids) - 1
        else:
            assert self.special.mask is not None
            at = len(ids)
            ids += [self.special.mask, *chain(*written[blank:]), *around.after]
        # A label that is not known is the first: it marks the place that is asked.
        targets = np.full(len(ids), IGNORE, np.int64)
        targets[at] = self.words[0 if truth is None else places(self.task, truth)[0]]
        return Example(
            inputs=np.array(ids, np.int64),
            targets=targets,
            rank=np.arange(len(ids)) if around.causal else None,
            among=self.words,
        )

    def scores(
        self, model: Model, batch: Batch, questions: Sequence[Question]
    ) -> list[Float[np.ndarray, "1 labels"]]:
        """Score the words of all labels at the blank of each text."""
        assert batch.among is not None
        hidden = model.hidden(batch).flatten(0, 1)
        asked = hidden if batch.asked is None else hidden[batch.asked]
        said = model.language.scores_among(asked, batch.among).float()
        return list(said.log_softmax(-1).cpu().numpy()[:, None])

    def joined(self, questions: Sequence[Question], parts: Sequence[np.ndarray]) -> np.ndarray:
        """Put the parts of an item together."""
        return np.concatenate(parts)

    def truth(self, item: Item, scores: Float[np.ndarray, "1 labels"]) -> Truth:
        """Return the label whose word fits best."""
        return self.task.labels[int(scores[0].argmax())]

    def answer(self, item: Item, scores: Float[np.ndarray, "1 labels"]) -> Answer:
        """Return {"label", "probability", "probabilities"}."""
        return label_answer(self.task, self.truth(item, scores), scores)

    def loss(self, item: Item, scores: Float[np.ndarray, "1 labels"]) -> tuple[float, int]:
        """Return the cross-entropy of the label among all, in nats."""
        assert item.truth is not None
        return label_loss(self.task, item.truth, scores), 1
