"""A word in a blank for a label: the pretrained head says which of some words fits best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, permutations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.batch import IGNORE, Batch, Example
from unmask.finetuning.ask import (
    Answer,
    Around,
    Question,
    columns_encoded,
    label_answer,
    label_loss,
    places,
    truncate,
)
from unmask.finetuning.blanks import in_order, in_turn
from unmask.finetuning.patterns import Pattern
from unmask.heads.model import Model
from unmask.hiding.collate import pad
from unmask.tasks.task import Item, Task, Truth
from unmask.tokens.tokenizer import Tokenizer
from unmask.tokens.vocabulary import Special


def word_tokens(
    tokenizer: Tokenizer, words: Mapping[str, str], *, spaced: bool, causal: bool
) -> tuple[tuple[int, ...], ...]:
    """Return the tokens of each label's word; if `spaced`, of the word after a space.

    Raises:
        ValueError: a word is not in the vocabulary, two labels have the same, or to a model that is
            `causal` one is the beginning of another.
    """
    read = [f" {word}" if spaced else word for word in words.values()]
    seen: dict[tuple[int, ...], str] = {}
    for label, word, ids in zip(words, words.values(), tokenizer.ids_batch(read), strict=True):
        tokens = tuple(ids.tolist())
        if not tokens or not tokenizer.special.ids.isdisjoint(tokens):
            pieces = " + ".join(piece.strip() for piece in tokenizer.pieces(tokens))
            raise ValueError(
                f"the word {word!r} of label {label!r} must be in the vocabulary, got "
                f"{pieces or 'nothing'}; choose another by the option words"
            )
        if tokens in seen:
            raise ValueError(f"the labels {seen[tokens]!r} and {label!r} have one word, {word!r}")
        seen[tokens] = label
    for short, long in permutations(seen, 2) if causal else ():
        if long[: len(short)] == short:  # never less likely
            raise ValueError(
                f"the word of label {seen[long]!r} goes on from that of {seen[short]!r}, "
                f"{words[seen[short]]!r}, which a model that reads forward says before it; choose "
                "others by the option words"
            )
    return tuple(seen)


@dataclass(frozen=True, kw_only=True)
class ByCloze:
    """Labels as words in a blank: Schick and Schütze 2021, arXiv:2001.07676, section 3.1.

    The model reads a text within a pattern with one blank; the head with which it was pretrained
    scores the word of each label there, and of no other word. An encoder's blank is its mask token;
    a decoder's is the end of the pattern, which it goes on with. No weight is new, so a model
    answers before it has learned the task. Texts are cut, the pattern never is.

    Words may have several tokens: Schick and Schütze 2021, arXiv:2009.07118, section 3.1. While it
    learns, an encoder reads as many mask tokens as the longest word has tokens, whatever the label,
    and is asked for all tokens of the right word at once; to answer it reads as many as each word
    has, see `in_order`. A decoder reads the word itself. A word's likelihood is the product of its
    tokens', however many. Deviates: a token is likely among those of all words, in the paper among
    the vocabulary, and what is learned is the likelihood, in the paper a margin between words: of
    words of one token both are then what they are above.
    """

    task: Task
    tokenizer: Tokenizer
    around: Around
    pattern: Pattern
    parts: tuple[tuple[int, ...] | int, ...]
    """The pattern's, in tokens."""
    words: tuple[tuple[int, ...], ...]
    """The tokens of each label's word."""
    ahead: bool = False
    """An encoder names what is hidden one place before it."""
    blind: bool = False
    """A second stream names what is hidden, whose place nobody sees (XLNet)."""

    @staticmethod
    def of(
        task: Task,
        tokenizer: Tokenizer,
        around: Around,
        pattern: Pattern,
        words: Mapping[str, str],
        *,
        ahead: bool = False,
        blind: bool = False,
    ) -> "ByCloze":
        """Write a pattern and the words of the labels in tokens.

        Raises:
            ValueError: words cannot be told from each other, or are not in the vocabulary, or the
                length leaves no room for text.
        """
        written = [part.rstrip(" ") if isinstance(part, str) else "" for part in pattern.parts]
        tokens = [tuple(ids.tolist()) for ids in tokenizer.ids_batch(written)]
        asked = ByCloze(
            task=task,
            tokenizer=tokenizer,
            around=around,
            pattern=pattern,
            parts=tuple(
                part if isinstance(part, int) else ids
                for part, ids in zip(pattern.parts, tokens, strict=True)
            ),
            words=word_tokens(
                tokenizer, words, spaced=pattern.spaced(pattern.blank), causal=around.causal
            ),
            ahead=ahead,
            blind=blind,
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
        longest = max(self.words, key=len)
        framed = self._asking(*self._around_blank([nothing, nothing]), longest, len(longest))
        return self.around.length - len(framed.inputs)

    @property
    def blanks(self) -> int:
        """Tokens of the longest word."""
        return max(map(len, self.words))

    @property
    def among(self) -> Int[np.ndarray, "k"]:
        """The tokens of all words, each once."""
        return np.array(list(dict.fromkeys(chain(*self.words))), np.int64)

    def questions(self, items: Sequence[Item]) -> list[Question]:
        """Write each item's texts into the pattern."""
        spaced, room = [replace(item, texts=self._spaced(item.texts)) for item in items], self.room
        found: list[Question] = []
        for i, (item, texts) in enumerate(
            zip(items, columns_encoded(self.tokenizer, spaced, room), strict=True)
        ):
            kept = truncate([len(t) for t in texts], room)
            cut = [text[:n] for text, n in zip(texts, kept, strict=True)]
            # A label that is not known is the first: it marks the place that is asked.
            label = 0 if item.truth is None else places(self.task, item.truth)[0]
            example = self._asking(*self._around_blank(cut), self.words[label], self.blanks)
            found.append(Question(item=i, example=example, cut=kept != [len(t) for t in texts]))
        return found

    def _spaced(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Put the spaces of the pattern to the texts after them; the blank has its own."""
        at = {part: i for i, part in enumerate(self.parts) if isinstance(part, int)}
        spaced = {i for i, p in at.items() if p != self.pattern.blank and self.pattern.spaced(p)}
        return tuple(f" {text}" if i in spaced else text for i, text in enumerate(texts))

    def _around_blank(
        self, texts: Sequence[Int[np.ndarray, "_"]]
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Write what is read before the blank, and after it."""
        around, blank = self.around, self.pattern.blank
        written = [texts[p].tolist() if isinstance(p, int) else p for p in self.parts]
        before = [*around.before, *chain(*written[:blank])]
        if around.causal:  # the blank is what comes after the last
            return before or [self.special.start], []
        return before, [*chain(*written[blank:]), *around.after]

    def _asking(
        self, before: Sequence[int], after: Sequence[int], word: Sequence[int], blanks: int
    ) -> Example:
        """Ask for a word; an encoder has so many mask tokens for it."""
        if self.around.causal:
            ids = [*before, *word[:-1]]
            at = len(before) - 1
        else:
            assert self.special.mask is not None
            before = before or [self.special.start] * self.ahead
            ids = [*before, *[self.special.mask] * blanks, *after]
            at = len(before) - self.ahead
        targets = np.full(len(ids), IGNORE, np.int64)
        targets[at : at + len(word)] = word
        rank = np.arange(len(ids)) if self.around.causal else None
        if self.blind:
            rank = (np.array(ids) == self.special.mask).astype(np.int64)
        return Example(
            inputs=np.array(ids, np.int64),
            targets=targets,
            rank=rank,
            among=self.among,
            blind=self.blind,
        )

    def scores(
        self, model: Model, batch: Batch, questions: Sequence[Question]
    ) -> list[Float[np.ndarray, "1 labels"]]:
        """Score the words of all labels at the blank of each text."""
        if self.blanks > 1:
            said = self._likelihoods(model, questions)
        else:
            assert batch.among is not None
            hidden = model.hidden(batch).flatten(0, 1)
            asked = hidden if batch.asked is None else hidden[batch.asked]
            said = model.language.scores_among(asked, batch.among).float()
        return list(said.log_softmax(-1).cpu().numpy()[:, None])

    def _likelihoods(
        self, model: Model, questions: Sequence[Question]
    ) -> Float[Tensor, "b labels"]:
        """Ask for words of several tokens: a decoder for each, an encoder for all of a length."""
        if self.around.causal:
            batches = (self._batch(model, questions, word) for word in self.words)
            return torch.stack([in_turn(model, batch) for batch in batches], -1)
        said: dict[Sequence[int], Tensor] = {}
        for _, some in groupby(sorted(self.words, key=len), len):
            words = list(some)
            found = in_order(model, self._batch(model, questions, words[0]), words)
            said |= zip(words, found.unbind(-1), strict=True)
        return torch.stack([said[word] for word in self.words], -1)

    def _batch(self, model: Model, questions: Sequence[Question], word: Sequence[int]) -> Batch:
        """Ask the same questions for a word, of an encoder in as many blanks as it has tokens."""
        asked: list[Example] = []
        for inputs, targets in ((q.example.inputs, q.example.targets) for q in questions):
            at = int(np.flatnonzero(targets != IGNORE)[0]) + self.ahead
            before, after = inputs[:at], inputs[at + self.blanks :]
            if self.around.causal:
                before, after = inputs[: at + 1], inputs[:0]
            asked.append(self._asking(before.tolist(), after.tolist(), word, len(word)))
        return pad(asked, self.special).to(model.device)

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
