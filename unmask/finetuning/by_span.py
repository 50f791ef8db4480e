"""An answer that stands in a text: where it starts and ends, by a head on each token."""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from jaxtyping import Bool, Float, Int

from unmask.batch import IGNORE, Batch
from unmask.finetuning.ask import Answer, Around, Part, Question
from unmask.heads.model import Model
from unmask.heads.spans import END, START
from unmask.model.names import AnyArchitecture
from unmask.tasks.metrics import question_answering
from unmask.tasks.task import Item, Task
from unmask.tokens.tokenizer import Tokenizer
from unmask.tokens.vocabulary import Special

_AT_ONCE = 2**16
"""Tokens whose places are lists together, which take more memory than arrays."""


@dataclass(frozen=True, kw_only=True)
class Spoken:
    """What a model says of a question: the spans that it finds likeliest, best first."""

    spans: Int[np.ndarray, "n 2"]
    """In characters of the context."""
    scores: Float[np.ndarray, "n"]
    """The sum of the scores of start and end."""
    null: float
    """The score of there being no answer: the least of all windows."""
    loss: float = 0.0
    """The cross-entropy of the windows whose answer is known, summed."""
    places: int = 0
    """How many these are."""


@dataclass(frozen=True, kw_only=True)
class BySpan:
    """The start and the end of an answer among the tokens of a text.

    The model reads the question, then the context (Devlin et al. 2019, section 4.2). A context that
    is too long is read in windows that overlap; one that does not hold the whole answer asks for
    the token that says that there is none: an encoder's first, [CLS] (section 4.3; released code).
    A decoder's first token has read nothing, so an end of text is put after the context to say it.
    A question has at most half of the tokens; what is more is cut off. Where a model has wide
    tokens, they are all before the context (Beltagy et al. 2020, section 3.1).
    """

    task: Task
    tokenizer: Tokenizer
    around: Around
    stride: int
    """Tokens of the context by which windows overlap; at most half of a window."""
    longest: int
    """Tokens of an answer."""
    n_best: int
    """Spans among which probability is shared out."""
    no_answer: bool
    """Whether a question may have no answer."""
    null_threshold: float
    """By how much the score of no answer must exceed the best span's to be believed."""

    @property
    def special(self) -> Special:
        """The vocabulary's special tokens."""
        return self.around.special

    def questions(self, items: Sequence[Item]) -> list[Question]:
        """Write the windows of each item; equal texts are cut into tokens once."""
        contexts = list(dict.fromkeys(item.texts[1] for item in items))
        ids = dict(zip(contexts, self.tokenizer.ids_batch(contexts), strict=True))
        asked = list(dict.fromkeys(item.texts[0] for item in items))
        first = self.tokenizer.first_batch(asked, self.around.room(2))
        begun = dict(zip(asked, first, strict=True))
        offsets = {text: _offsets(self.tokenizer, text) for text in contexts}
        found: list[Question] = []
        for i, item in enumerate(items):
            question, context = item.texts
            found += self._windows(i, item, begun[question], ids[context], offsets[context])
        return found

    def _windows(
        self,
        i: int,
        item: Item,
        question: Int[np.ndarray, "_"],
        context: Int[np.ndarray, "t"],
        offsets: Int[np.ndarray, "t 2"],
    ) -> Iterator[Question]:
        around = self.around
        budget = around.room(2)
        asked = question[: budget // 2]
        room = budget - len(asked)
        begins = windows(len(context), room, self.stride)
        answer = _answer_tokens(item, offsets)
        cut = len(begins) > 1 or len(asked) < len(question)
        for begin in begins:
            ids = context[begin : begin + room]
            example, _ = around.frame((asked, ids))
            label = np.full(len(example.inputs), IGNORE, np.int8)
            first = len(around.before) + len(asked) + len(around.between)
            own = label[first : first + len(ids)]
            own[:] = 0
            null = len(label) - 1 if around.causal else 0
            label[null] = 0
            if answer is not None:
                a, b = answer[0] - begin, answer[1] - begin
                if 0 <= a <= b < len(ids):
                    own[a] |= START
                    own[b] |= END
                else:
                    label[null] = START | END
            part = Part(begin=begin, offsets=offsets[begin : begin + room])
            wide = np.arange(len(around.before) + len(asked)) if around.wide else None
            example = replace(example, label=label, wide=wide)
            yield Question(item=i, example=example, cut=cut, part=part)

    def scores(
        self, model: Model, batch: Batch, questions: Sequence[Question]
    ) -> list[Float[np.ndarray, "_ 2"]]:
        """Run the head, and keep what it says of the tokens that may be marked."""
        said = model(replace(batch, labels=None), scores=True).scores["span"]
        rows = said.float().cpu().numpy()
        kept: list[Float[np.ndarray, "_ 2"]] = []
        for row, question in zip(rows, questions, strict=True):
            label = _label(question)
            kept.append(row[: len(label)][label != IGNORE])
        return kept

    def joined(self, questions: Sequence[Question], parts: Sequence[np.ndarray]) -> Spoken:
        """Find the best spans of all windows of an item; each start counts in one window."""
        at = -1 if self.around.causal else 0  # the token that says that there is no answer
        counts = [len(part) - 1 for part in parts]
        starts_here = fullest([_part(q).begin for q in questions], counts)
        best: dict[tuple[int, int], float] = {}
        null = float("inf")
        loss, places = 0.0, 0
        for question, scores, here in zip(questions, parts, starts_here, strict=True):
            null = min(null, float(scores[at].sum()))
            offsets = _part(question).offsets
            own = np.where(_visible(offsets)[:, None], np.delete(scores, at, 0), -np.inf)
            for a, b, score in _likeliest(own, here, self.longest, self.n_best):
                span = int(offsets[a, 0]), int(offsets[b, 1])
                if span[0] < span[1]:
                    best[span] = max(score, best.get(span, score))
            one = _loss(scores, question)
            if one is not None:
                loss, places = loss + one, places + 1
        order = sorted(best, key=lambda span: (-best[span], span))[: self.n_best]
        return Spoken(
            spans=np.array(order, np.int64).reshape(-1, 2),
            scores=np.array([best[span] for span in order], np.float64),
            null=null,
            loss=loss,
            places=places,
        )

    def truth(self, item: Item, scores: Spoken) -> str:
        """Return the answer; an empty one if there is none."""
        if not len(scores.spans) or margin(scores) > self._threshold:
            return ""
        return _text(item, scores.spans[0])

    @property
    def _threshold(self) -> float:
        return self.null_threshold if self.no_answer else float("inf")

    def answer(self, item: Item, scores: Spoken) -> Answer:
        """Return {"answer", "start", "probability", "candidates"}; of no answer "start" is None.

        Probabilities are a softmax over the candidates (released code of BERT): spans and, where a
        question may have no answer, that.
        """
        texts = [_text(item, span) for span in scores.spans]
        starts: list[int | None] = [int(span[0]) for span in scores.spans]
        totals = scores.scores.tolist()
        if self.no_answer or not texts:
            texts, starts, totals = [*texts, ""], [*starts, None], [*totals, scores.null]
        shares = np.exp(np.array(totals, np.float64) - max(totals))
        shares /= shares.sum()
        candidates = [
            {"answer": text, "start": start, "probability": share}
            for text, start, share in zip(texts, starts, shares.tolist(), strict=True)
        ]
        chosen = candidates[0 if self.truth(item, scores) else -1]
        order = np.argsort(-shares, kind="stable").tolist()
        return chosen | {"candidates": [candidates[i] for i in order]}

    def loss(self, item: Item, scores: Spoken) -> tuple[float, int]:
        """Return the cross-entropy summed over the windows, and how many there are."""
        return scores.loss, scores.places

    def settled(self, items: Sequence[Item], scores: Sequence[Spoken]) -> "BySpan":
        """Settle the threshold that is best by the task's metric, unless one was asked for."""
        asked_for = self.task.options.get("null_threshold") is not None
        known = [(i, s) for i, s in zip(items, scores, strict=True) if len(s.spans)]
        if asked_for or not self.no_answer or not known:
            return self
        metric = (
            question_answering.exact_match
            if self.task.metric == "exact_match"
            else question_answering.token_f1
        )
        truths = [cast("tuple[str, ...]", item.truth) for item, _ in known]
        given = [_text(item, s.spans[0]) for item, s in known]
        gained = [metric(truth, said) for truth, said in zip(truths, given, strict=True)]
        _, threshold = question_answering.best_threshold(
            np.array(gained, np.float64),
            np.array([bool(truth) for truth in truths], bool),
            np.array([margin(s) for _, s in known], np.float64),
        )
        task = replace(self.task, options={**self.task.options, "null_threshold": threshold})
        return replace(self, task=task, null_threshold=threshold)


def around_context(special: Special, a: AnyArchitecture, length: int) -> Around:
    """Put around question and context what `BySpan` needs: a token that says "no answer".

    Raises:
        ValueError: the length leaves no room for text.
    """
    around = Around.of(special, a, length, wide=True)
    if around.causal:
        end = special.start if special.end is None else special.end
        around = replace(around, after=around.after or (end,))
    else:
        around = replace(around, before=around.before or (special.start,))
    least = len(around.before) + len(around.between) + len(around.after) + 2
    if length < least:
        raise ValueError(f"length must be at least {least}, got {length}")
    return around


def windows(n: int, room: int, stride: int) -> list[int]:
    """Say where the windows of a text of `n` tokens begin; the last one reaches the end."""
    step = room - min(stride, room // 2)
    return [0, *range(step, n - room + step, step)]


def fullest(begins: Sequence[int], counts: Sequence[int]) -> list[Bool[np.ndarray, "_"]]:
    """Say of each window's tokens whether this is the window where most stands around them.

    That is the lesser of what is read before and after; of equals, the longer window counts, then
    the first (released code of BERT: `_check_is_max_context`).
    """
    ends = [begin + n for begin, n in zip(begins, counts, strict=True)]
    best = np.full(max(ends), -1.0)
    owner = np.zeros(max(ends), np.int64)
    for i, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        n = end - begin
        around = np.minimum(np.arange(n), np.arange(n)[::-1]) + 0.01 * n
        better = around > best[begin:end]
        best[begin:end][better] = around[better]
        owner[begin:end][better] = i
    return [owner[b:e] == i for i, (b, e) in enumerate(zip(begins, ends, strict=True))]


def _offsets(tokenizer: Tokenizer, text: str) -> Int[np.ndarray, "t 2"]:
    """Find where each token stands, without the white space that some have at their ends."""
    found = tokenizer.spans(text).copy()
    for at in range(0, len(found), _AT_ONCE):
        some = found[at : at + _AT_ONCE]
        some[:] = [_stripped(text, begin, end) for begin, end in some.tolist()]
    return found


def _stripped(text: str, begin: int, end: int) -> tuple[int, int]:
    piece = text[begin:end]
    lead = len(piece) - len(piece.lstrip())
    return begin + lead, begin + max(len(piece.rstrip()), lead)


def _answer_tokens(item: Item, offsets: Int[np.ndarray, "t 2"]) -> tuple[int, int] | None:
    """Find the first and last token of the first of the true answers; (-1, -1) if there is none.

    None: the truth is not known.
    """
    if item.truth is None:
        return None
    texts = cast("tuple[str, ...]", item.truth)
    if not texts:
        return -1, -1
    return tokens_of(item.starts[0], item.starts[0] + len(texts[0]), offsets)


def tokens_of(start: int, end: int, offsets: Int[np.ndarray, "t 2"]) -> tuple[int, int]:
    """Find the fewest tokens that cover some characters: the first and the last.

    Characters that the tokenizer writes as nothing have no token; if all are such, (-1, -1).
    """
    inside = np.flatnonzero(_visible(offsets) & (offsets[:, 1] > start) & (offsets[:, 0] < end))
    return (int(inside[0]), int(inside[-1])) if len(inside) else (-1, -1)


def _visible(offsets: Int[np.ndarray, "t 2"]) -> Bool[np.ndarray, "t"]:
    """Say which tokens are more than white space, where no answer starts or ends."""
    return offsets[:, 0] < offsets[:, 1]


def _text(item: Item, span: Int[np.ndarray, "2"]) -> str:
    """Cut an answer out of the context, with the marks on its last character.

    A tokenizer that drops accents has no token for them.
    """
    context = item.texts[1]
    begin, end = int(span[0]), int(span[1])
    while end < len(context) and unicodedata.category(context[end]).startswith("M"):
        end += 1
    return context[begin:end]


def _likeliest(
    scores: Float[np.ndarray, "t 2"], starts_here: Bool[np.ndarray, "t"], longest: int, n_best: int
) -> Iterator[tuple[int, int, float]]:
    """Find the best spans of a window, of at most `longest` tokens: first and last token, score."""
    n = len(scores)
    if not n:
        return
    longest = min(longest, n)
    ends = np.full(n + longest - 1, -np.inf)
    ends[:n] = scores[:, 1]
    starts = np.where(starts_here, scores[:, 0].astype(np.float64), -np.inf)
    pairs = starts[:, None] + np.lib.stride_tricks.sliding_window_view(ends, longest)
    flat = pairs.reshape(-1)
    some = np.argpartition(-flat, min(n_best, len(flat) - 1))[:n_best]
    for place in some[np.argsort(-flat[some], kind="stable")].tolist():
        if np.isfinite(flat[place]):
            a, more = divmod(place, longest)
            yield a, a + more, float(flat[place])


def margin(scores: Spoken) -> float:
    """Say by how much no answer is likelier than the best span, in logarithms."""
    return scores.null - float(scores.scores[0]) if len(scores.scores) else float("inf")


def _loss(scores: Float[np.ndarray, "_ 2"], question: Question) -> float | None:
    label = _label(question)
    asked = label[label != IGNORE]
    if not (asked & START).any():
        return None
    logs = scores - np.logaddexp.reduce(scores.astype(np.float64), axis=0)
    start, end = int((asked & START).argmax()), int((asked & END).argmax())
    return -float(logs[start, 0] + logs[end, 1]) / 2


def _label(question: Question) -> Int[np.ndarray, "t"]:
    return cast("np.ndarray", question.example.label)


def _part(question: Question) -> Part:
    assert question.part is not None
    return question.part
