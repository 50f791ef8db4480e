"""Extractive question answering: the start and end of the answer, by a head on each token."""

import logging
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from jaxtyping import Bool, Float, Int

from unmask.batch import IGNORE_INDEX, Batch
from unmask.config import from_dict
from unmask.finetuning.formulations.formulation import (
    SPAN_HEAD,
    InputTemplate,
    PredictionRecord,
    TaskFormulation,
    TaskInput,
    TextWindow,
    uses_word_labels,
)
from unmask.heads.model import Model
from unmask.heads.question_answering import END, START
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import BackboneArchitecture
from unmask.model.layers.attention.block_local_mask import GlobalTokens
from unmask.tasks.kinds.answer import QuestionAnsweringOptions
from unmask.tasks.metrics import question_answering
from unmask.tasks.task import Task, TaskExample
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.preset import Published, question_answering_head

_log = logging.getLogger(__name__)
_MANY_WINDOWS = 1000
"""Number of windows of one text from which on it is logged: seconds for a small model, minutes for
a large one."""
_AT_ONCE = 2**16
"""Tokens whose offsets are converted to lists at the same time; lists take more memory than
arrays."""


@dataclass(frozen=True, kw_only=True)
class SpanPredictions:
    """The scores of a question: the most likely spans, best first."""

    spans: Int[np.ndarray, "n 2"]
    """Start and end of each span, in characters of the context."""
    span_scores: Float[np.ndarray, "n"]
    """Score of each span: the sum of the start and the end logit."""
    null_score: float
    """Null score (no answer): the minimum over all windows."""
    total_loss: float = 0.0
    """Cross-entropy, summed over the windows with a known answer."""
    n_windows: int = 0
    """Number of these windows."""


@dataclass(frozen=True, kw_only=True)
class SpanFormulation:
    """The start and the end of an answer among the tokens of a text.

    The input is the question, then the context (Devlin et al. 2019, section 4.2). A context that is
    too long is read in overlapping windows. A window without the complete answer has the null token
    as its target: the first token of an encoder, [CLS] (section 4.3; released code), or, for a
    decoder, an end-of-text token after the context, since its first token sees nothing else. A
    question is truncated to half of the tokens. In models with global tokens, these are all tokens
    before the context (Beltagy et al. 2020, section 3.1).
    """

    task: Task
    tokenizer: Tokenizer
    template: InputTemplate
    window_overlap: int
    """Overlap of windows in tokens; at most half of a window."""
    max_answer_length: int
    """Maximum number of tokens of an answer."""
    n_best: int
    """Number of candidate spans, over which probabilities are normalized."""
    allow_no_answer: bool
    """Whether a question may have no answer."""
    no_answer_threshold: float
    """Difference of the null score and the best span's score above which there is no answer."""

    @property
    def special_ids(self) -> SpecialTokenIds:
        """The vocabulary's special tokens."""
        return self.template.special_ids

    def build_inputs(self, items: Sequence[TaskExample]) -> list[TaskInput]:
        """Build the windows of each item; equal texts are tokenized once."""
        contexts = list(dict.fromkeys(item.texts[1] for item in items))
        ids = dict(zip(contexts, self.tokenizer.encode_ids_batch(contexts), strict=True))
        questions = list(dict.fromkeys(item.texts[0] for item in items))
        first = self.tokenizer.encode_prefix_batch(questions, self.template.max_text_tokens(2))
        begun = dict(zip(questions, first, strict=True))
        offsets = {text: _trimmed_offsets(self.tokenizer, text) for text in contexts}
        task_inputs: list[TaskInput] = []
        for i, item in enumerate(items):
            question, context = item.texts
            task_inputs += self._windows(i, item, begun[question], ids[context], offsets[context])
        return task_inputs

    def _windows(
        self,
        item_index: int,
        item: TaskExample,
        question_ids: Int[np.ndarray, "_"],
        context_ids: Int[np.ndarray, "t"],
        offsets: Int[np.ndarray, "t 2"],
    ) -> Iterator[TaskInput]:
        around = self.template
        budget = around.max_text_tokens(2)
        question = question_ids[: budget // 2]
        room = budget - len(question)
        begins = window_starts(len(context_ids), room, self.window_overlap)
        if len(begins) > _MANY_WINDOWS:
            _log.warning(
                "%s: the text has %s tokens and is read in %s windows of at most %s, each a pass "
                "through the model",
                item.location, f"{len(context_ids):,}", f"{len(begins):,}", f"{room:,}",
            )  # fmt: skip
        answer = _answer_token_span(item, offsets)
        cut = len(begins) > 1 or len(question) < len(question_ids)
        for begin in begins:
            ids = context_ids[begin : begin + room]
            example, _ = around.build_example((question, ids))
            label = np.full(len(example.inputs), IGNORE_INDEX, np.int8)
            first = len(around.prefix) + len(question) + len(around.separator)
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
            part = TextWindow(start=begin, offsets=offsets[begin : begin + room])
            example = replace(example, label=label)
            if around.global_first_token:
                positions = np.arange(len(around.prefix) + len(question))
                example = example.with_feature(GlobalTokens(positions))
            yield TaskInput(item_index=item_index, example=example, truncated=cut, window=part)

    def compute_scores(
        self, model: Model, batch: Batch, task_inputs: Sequence[TaskInput]
    ) -> list[Float[np.ndarray, "_ 2"]]:
        """Run the head, and return the logits of tokens that may start or end an answer."""
        logits = model(replace(batch, labels=None), return_logits=True).logits["span"]
        rows = logits.float().cpu().numpy()
        window_scores: list[Float[np.ndarray, "_ 2"]] = []
        for row, question in zip(rows, task_inputs, strict=True):
            label = _require_label(question)
            window_scores.append(row[: len(label)][label != IGNORE_INDEX])
        return window_scores

    def merge_scores(
        self, task_inputs: Sequence[TaskInput], input_scores: Sequence[np.ndarray]
    ) -> SpanPredictions:
        """Find the best spans over all windows of an item; each start counts in one window only."""
        at = -1 if self.template.causal else 0  # the null token
        counts = [len(part) - 1 for part in input_scores]
        starts_here = max_context_masks([_require_window(q).start for q in task_inputs], counts)
        best: dict[tuple[int, int], float] = {}
        null = float("inf")
        loss, places = 0.0, 0
        for question, scores, may_start in zip(task_inputs, input_scores, starts_here, strict=True):
            null = min(null, float(scores[at].sum()))
            offsets = _require_window(question).offsets
            own = np.where(_is_visible(offsets)[:, None], np.delete(scores, at, 0), -np.inf)
            for a, b, score in _best_spans(own, may_start, self.max_answer_length, self.n_best):
                span = int(offsets[a, 0]), int(offsets[b, 1])
                if span[0] < span[1]:
                    best[span] = max(score, best.get(span, score))
            window_loss = _window_loss(scores, question)
            if window_loss is not None:
                loss, places = loss + window_loss, places + 1
        order = sorted(best, key=lambda span: (-best[span], span))[: self.n_best]
        return SpanPredictions(
            spans=np.array(order, np.int64).reshape(-1, 2),
            span_scores=np.array([best[span] for span in order], np.float64),
            null_score=null,
            total_loss=loss,
            n_windows=places,
        )

    def prediction(self, item: TaskExample, scores: SpanPredictions) -> str:
        """Return the answer; an empty one if there is none."""
        if not len(scores.spans) or null_score_difference(scores) > self._effective_threshold:
            return ""
        return _answer_text(item, scores.spans[0])

    @property
    def _effective_threshold(self) -> float:
        return self.no_answer_threshold if self.allow_no_answer else float("inf")

    def prediction_record(self, item: TaskExample, scores: SpanPredictions) -> PredictionRecord:
        """Return {"answer", "start", "probability", "candidates"}; "start" may be None.

        Probabilities are a softmax over the candidates (released code of BERT): the spans and, if a
        question may have no answer, the empty answer.
        """
        texts = [_answer_text(item, span) for span in scores.spans]
        starts: list[int | None] = [int(span[0]) for span in scores.spans]
        totals = scores.span_scores.tolist()
        if self.allow_no_answer or not texts:
            texts, starts, totals = [*texts, ""], [*starts, None], [*totals, scores.null_score]
        shares = np.exp(np.array(totals, np.float64) - max(totals))
        shares /= shares.sum()
        candidates = [
            {"answer": text, "start": start, "probability": share}
            for text, start, share in zip(texts, starts, shares.tolist(), strict=True)
        ]
        chosen = candidates[0 if self.prediction(item, scores) else -1]
        order = np.argsort(-shares, kind="stable").tolist()
        return chosen | {"candidates": [candidates[i] for i in order]}

    def loss(self, item: TaskExample, scores: SpanPredictions) -> tuple[float, int]:
        """Return the cross-entropy summed over the windows, and their number."""
        return scores.total_loss, scores.n_windows

    def with_tuned_threshold(
        self, items: Sequence[TaskExample], scores: Sequence[SpanPredictions]
    ) -> "SpanFormulation":
        """Choose the best threshold by the task's metric, unless one was given."""
        asked_for = self.task.options.get("no_answer_threshold") is not None
        answerable = [(i, s) for i, s in zip(items, scores, strict=True) if len(s.spans)]
        if asked_for or not self.allow_no_answer or not answerable:
            return self
        metric = (
            question_answering.answer_exact_match
            if self.task.metric == "exact_match"
            else question_answering.answer_f1
        )
        truths = [cast("tuple[str, ...]", item.label) for item, _ in answerable]
        predicted_answers = [_answer_text(item, s.spans[0]) for item, s in answerable]
        gained = [
            metric(truth, predicted)
            for truth, predicted in zip(truths, predicted_answers, strict=True)
        ]
        _, threshold = question_answering.best_threshold(
            np.array(gained, np.float64),
            np.array([bool(truth) for truth in truths], bool),
            np.array([null_score_difference(s) for _, s in answerable], np.float64),
        )
        task = replace(self.task, options={**self.task.options, "no_answer_threshold": threshold})
        return replace(self, task=task, no_answer_threshold=threshold)


def span_heads(task: Task, preset: Published) -> dict[str, HeadSpec]:
    """Return the head that scores the start and the end of an answer.

    Raises:
        ValueError: the model predicts labels as words, and has no head on tokens.
    """
    if uses_word_labels(preset):
        raise ValueError(
            f"{preset.name} predicts labels as words and cannot mark them in a text; "
            "fine-tune it with the task `generate`, or take an encoder, a decoder, BART or "
            "mBART"
        )
    return {SPAN_HEAD: question_answering_head(preset)}


def formulate_span(task: Task, preset: Published, tokenizer: Tokenizer) -> TaskFormulation:
    """Formulate question answering with a head that scores tokens as start and end."""
    options = from_dict(QuestionAnsweringOptions, task.options, "options")
    return SpanFormulation(
        task=task,
        tokenizer=tokenizer,
        template=context_template(tokenizer.special_ids, preset.architecture, task.max_length),
        window_overlap=options.window_overlap,
        max_answer_length=options.max_answer_length,
        n_best=options.n_best,
        allow_no_answer=bool(options.allow_no_answer),
        no_answer_threshold=options.no_answer_threshold or 0.0,
    )


def context_template(
    special_ids: SpecialTokenIds, architecture: BackboneArchitecture, max_length: int
) -> InputTemplate:
    """Return the template of question and context, with a null token for "no answer".

    Raises:
        ValueError: the maximum length leaves no room for text.
    """
    around = InputTemplate.from_architecture(
        special_ids, architecture, max_length, global_first_token=True
    )
    if around.causal:
        end = special_ids.start if special_ids.end is None else special_ids.end
        around = replace(around, suffix=around.suffix or (end,))
    else:
        around = replace(around, prefix=around.prefix or (special_ids.start,))
    least = len(around.prefix) + len(around.separator) + len(around.suffix) + 2
    if max_length < least:
        raise ValueError(f"max_length must be at least {least}, got {max_length}")
    return around


def window_starts(n_tokens: int, window_size: int, window_overlap: int) -> list[int]:
    """Return the starts of the windows of a text of `n_tokens` tokens; the last reaches the end."""
    step = window_size - min(window_overlap, window_size // 2)
    return [0, *range(step, n_tokens - window_size + step, step)]


def max_context_masks(
    starts: Sequence[int], window_lengths: Sequence[int]
) -> list[Bool[np.ndarray, "_"]]:
    """Return for each window which of its tokens have their maximum context there.

    The context of a token is the minimum of its left and right context; of ties the longer window
    counts, then the first one (released code of BERT: `_check_is_max_context`).
    """
    ends = [begin + n for begin, n in zip(starts, window_lengths, strict=True)]
    best = np.full(max(ends), -1.0)
    owner = np.zeros(max(ends), np.int64)
    for i, (begin, end) in enumerate(zip(starts, ends, strict=True)):
        n = end - begin
        around = np.minimum(np.arange(n), np.arange(n)[::-1]) + 0.01 * n
        better = around > best[begin:end]
        best[begin:end][better] = around[better]
        owner[begin:end][better] = i
    return [owner[b:e] == i for i, (b, e) in enumerate(zip(starts, ends, strict=True))]


def _trimmed_offsets(tokenizer: Tokenizer, text: str) -> Int[np.ndarray, "t 2"]:
    """Return the offsets of all tokens, without white space at their ends."""
    offsets = tokenizer.offset_array(text).copy()
    for at in range(0, len(offsets), _AT_ONCE):
        chunk = offsets[at : at + _AT_ONCE]
        chunk[:] = [_stripped(text, begin, end) for begin, end in chunk.tolist()]
    return offsets


def _stripped(text: str, begin: int, end: int) -> tuple[int, int]:
    piece = text[begin:end]
    lead = len(piece) - len(piece.lstrip())
    return begin + lead, begin + max(len(piece.rstrip()), lead)


def _answer_token_span(
    item: TaskExample, offsets: Int[np.ndarray, "t 2"]
) -> tuple[int, int] | None:
    """Find the first and last token of the first labeled answer; (-1, -1) if there is no answer.

    None: the item has no label.
    """
    if item.label is None:
        return None
    texts = cast("tuple[str, ...]", item.label)
    if not texts:
        return -1, -1
    return token_span(item.answer_starts[0], item.answer_starts[0] + len(texts[0]), offsets)


def token_span(start: int, end: int, offsets: Int[np.ndarray, "t 2"]) -> tuple[int, int]:
    """Find the first and last of the fewest tokens that cover a span of characters.

    Some characters have no token; if all are such, the result is (-1, -1).
    """
    inside = np.flatnonzero(_is_visible(offsets) & (offsets[:, 1] > start) & (offsets[:, 0] < end))
    return (int(inside[0]), int(inside[-1])) if len(inside) else (-1, -1)


def _is_visible(offsets: Int[np.ndarray, "t 2"]) -> Bool[np.ndarray, "t"]:
    """Return a mask of the tokens that are not only white space."""
    return offsets[:, 0] < offsets[:, 1]


def _answer_text(item: TaskExample, span: Int[np.ndarray, "2"]) -> str:
    """Cut an answer out of the context, with combining marks on its last character.

    A tokenizer that removes accents has no tokens for them.
    """
    context = item.texts[1]
    begin, end = int(span[0]), int(span[1])
    while end < len(context) and unicodedata.category(context[end]).startswith("M"):
        end += 1
    return context[begin:end]


def _best_spans(
    scores: Float[np.ndarray, "t 2"],
    has_max_context: Bool[np.ndarray, "t"],
    max_answer_length: int,
    n_best: int,
) -> Iterator[tuple[int, int, float]]:
    """Find the best spans of a window: first and last token, score."""
    n = len(scores)
    if not n:
        return
    max_answer_length = min(max_answer_length, n)
    ends = np.full(n + max_answer_length - 1, -np.inf)
    ends[:n] = scores[:, 1]
    starts = np.where(has_max_context, scores[:, 0].astype(np.float64), -np.inf)
    pairs = starts[:, None] + np.lib.stride_tricks.sliding_window_view(ends, max_answer_length)
    flat = pairs.reshape(-1)
    some = np.argpartition(-flat, min(n_best, len(flat) - 1))[:n_best]
    for index in some[np.argsort(-flat[some], kind="stable")].tolist():
        if np.isfinite(flat[index]):
            a, length = divmod(index, max_answer_length)
            yield a, a + length, float(flat[index])


def null_score_difference(scores: SpanPredictions) -> float:
    """Return the difference of the null score and the best span's score."""
    return (
        scores.null_score - float(scores.span_scores[0])
        if len(scores.span_scores)
        else float("inf")
    )


def _window_loss(scores: Float[np.ndarray, "_ 2"], task_input: TaskInput) -> float | None:
    label = _require_label(task_input)
    marks = label[label != IGNORE_INDEX]
    if not (marks & START).any():
        return None
    logs = scores - np.logaddexp.reduce(scores.astype(np.float64), axis=0)
    start, end = int((marks & START).argmax()), int((marks & END).argmax())
    return -float(logs[start, 0] + logs[end, 1]) / 2


def _require_label(task_input: TaskInput) -> Int[np.ndarray, "t"]:
    return cast("np.ndarray", task_input.example.label)


def _require_window(task_input: TaskInput) -> TextWindow:
    assert task_input.window is not None
    return task_input.window
