"""Answer spans: each is found in its windows, and the best span is the prediction."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_models as toy
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.batch import IGNORE_INDEX
from unmask.batching.collate import pad_examples
from unmask.finetuning.formulations import span_head
from unmask.finetuning.formulations.build import formulate, heads_for_task
from unmask.finetuning.formulations.formulation import TaskInput
from unmask.finetuning.formulations.span_head import (
    SpanFormulation,
    max_context_masks,
    token_span,
    window_starts,
)
from unmask.finetuning.results.predict import predict_scores
from unmask.heads.question_answering import END, START
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.readers import tables
from unmask.tasks.task import Task, TaskColumns, TaskExample
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import ByteBPE, WordPiece
from unmask.zoo.catalogue import MODELS

SHARED = Path(__file__).parents[3] / "shared" / "data"
COLUMNS = TaskColumns(texts=("question", "context"), label="answers")
QUESTION = "?"
UNWRITTEN = " \r\n\u200b\u00a0\ufe0f"
ENCODERS_AND_DECODERS = ("bert", "gpt2")


def make_formulation(family: str, length: int = 40, **options: object) -> SpanFormulation:
    known = {"window_overlap": 4, "allow_no_answer": True, **options}
    task = Task(
        task_kind="answer", columns=COLUMNS, max_length=length, options=known, metric="answer_f1"
    )
    formulation = formulate(task, toy.card(family), toy.tokenizer(family))
    assert isinstance(formulation, SpanFormulation)
    return formulation


def item(context: str, answer: str | None, question: str = QUESTION) -> TaskExample:
    if answer is None:
        return TaskExample(texts=(question, context), label=())
    return TaskExample(
        texts=(question, context), label=(answer,), answer_starts=(context.index(answer),)
    )


def marked(question: TaskInput, bit: int) -> list[int]:
    label = question.example.label
    return np.flatnonzero((label != IGNORE_INDEX) & (label & bit != 0)).tolist()


def null_place(formulation: SpanFormulation, question: TaskInput) -> int:
    return len(question.example.inputs) - 1 if formulation.template.causal else 0


def answered(formulation: SpanFormulation, question: TaskInput, one: TaskExample) -> str | None:
    """Return the answer that the labels of a window mark; None: no answer."""
    (start,), (end,) = marked(question, START), marked(question, END)
    if start == null_place(formulation, question):
        assert end == start
        return None
    label = question.example.label
    positions = np.flatnonzero(label != IGNORE_INDEX)
    positions = positions[positions != null_place(formulation, question)].tolist()
    offsets = question.window.offsets
    assert len(positions) == len(offsets)
    span = np.array([offsets[positions.index(start), 0], offsets[positions.index(end), 1]])
    return span_head._answer_text(one, span)


def reference_tokenizer(family: str, folder: Path):
    from transformers import AutoTokenizer

    toy.tokenizer(family).save(folder)
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize(("length", "stride"), [(40, 4), (16, 3), (24, 0), (12, 2)])
def test_windows_equal_reference(length: int, stride: int, tmp_path: Path) -> None:
    theirs = reference_tokenizer("bert", tmp_path)
    formulation = make_formulation("bert", length, window_overlap=stride)
    for context, _ in toy.texts(20, 3, 1, 40):
        expected = theirs(
            QUESTION, context, truncation="only_second", max_length=length, stride=stride,
            return_overflowing_tokens=True,
        )  # fmt: skip
        questions = formulation.build_inputs([item(context, None)])
        assert [q.example.inputs.tolist() for q in questions] == expected["input_ids"]
        assert [q.example.segments.tolist() for q in questions] == expected["token_type_ids"]
        assert all(q.truncated == (len(questions) > 1) for q in questions)
        assert {answered(formulation, q, item(context, None)) for q in questions} == {None}


def test_decoder_layout_ends_with_token_for_no_answer() -> None:
    formulation, tokenizer = make_formulation("gpt2"), toy.tokenizer("gpt2")
    (question,) = formulation.build_inputs([item("a dog runs", None)])
    a, b = (tokenizer.encode(t).ids.tolist() for t in (QUESTION, "a dog runs"))
    end = tokenizer.special_ids.end
    assert question.example.inputs.tolist() == [*a, end, *b, end]
    assert marked(question, START) == marked(question, END) == [len(a) + len(b) + 1]
    assert question.example.label[: len(a) + 1].tolist() == [IGNORE_INDEX] * (len(a) + 1)
    assert question.example.rank.tolist() == list(range(len(a) + len(b) + 2))


@given(st.integers(0, 300), st.integers(1, 60), st.integers(0, 80))
def test_windows_cover_the_text_with_requested_stride(n: int, room: int, stride: int) -> None:
    starts = window_starts(n, room, stride)
    assert starts[0] == 0
    assert starts[-1] + room >= n
    overlap = min(stride, room // 2)
    assert all(b - a == room - overlap for a, b in pairwise(starts))
    assert len(starts) == 1 or starts[-2] + room < n  # none too many


@given(st.integers(1, 200), st.integers(1, 50), st.integers(0, 60))
def test_token_counts_in_the_window_of_largest_context(n: int, room: int, stride: int) -> None:
    starts = window_starts(n, room, stride)
    counts = [min(room, n - start) for start in starts]
    owners = np.zeros(n, int)
    for start, count, own in zip(starts, counts, max_context_masks(starts, counts), strict=True):
        assert len(own) == count
        owners[start : start + count] += own
        for i in np.flatnonzero(own).tolist():
            mine = min(i, count - 1 - i) + 0.01 * count
            for b, c in zip(starts, counts, strict=True):
                j = start + i - b
                assert not 0 <= j < c or mine >= min(j, c - 1 - j) + 0.01 * c
    assert (owners == 1).all()


def test_long_question_is_truncated_to_half_the_tokens() -> None:
    formulation = make_formulation("bert", 20)
    (question,) = formulation.build_inputs([item("1 2", "2", "7 " * 50)])
    seven, context = (toy.tokenizer("bert").encode(t).ids.tolist() for t in ("7", "1 2"))
    assert question.truncated
    assert question.example.inputs.tolist()[1:-1] == [
        *(seven * 8),
        formulation.special_ids.end,
        *context,
    ]
    assert answered(formulation, question, item("1 2", "2")) == "2"


@pytest.mark.parametrize("family", ENCODERS_AND_DECODERS)
def test_window_without_whole_answer_has_no_target(family: str) -> None:
    context = " ".join(["dog"] * 30 + ["red", "green"] + ["cat"] * 30)
    one = item(context, "red green")
    formulation = make_formulation(family, 24, window_overlap=6)
    output = [answered(formulation, q, one) for q in formulation.build_inputs([one])]
    assert len(output) > 3
    assert set(output) == {None, "red green"}


@pytest.mark.parametrize("family", ENCODERS_AND_DECODERS)
@settings(max_examples=60)
@given(
    words=st.lists(
        st.sampled_from(
            [*toy.WORDS, "e\u0301", "nai\u0308ve", "é", "👩‍👩‍👧", "☃\ufe0f", "\r\n", "\u200b",
             "unheard-of", "好", "\u00a0", "x" * 120]
        ),
        min_size=1, max_size=60,
    ),
    data=st.data(),
)  # fmt: skip
def test_any_answer_is_recovered_from_its_tokens(
    family: str, words: list[str], data: st.DataObject
) -> None:
    context = " ".join(words)
    start = data.draw(st.integers(0, len(words) - 1))
    end = data.draw(st.integers(start + 1, min(start + 3, len(words))))
    answer = " ".join(words[start:end])
    position = len(" ".join(words[:start])) + (start > 0)
    formulation = make_formulation(family, 64, window_overlap=24)
    one = TaskExample(texts=(QUESTION, context), label=(answer,), answer_starts=(position,))
    offsets = span_head._trimmed_offsets(formulation.tokenizer, context)
    tokens = token_span(position, position + len(answer), offsets)
    if tokens == (-1, -1):  # the tokenizer writes it as nothing
        assert not answer.strip(UNWRITTEN)
        return
    got = [answered(formulation, q, one) for q in formulation.build_inputs([one])]
    whole = {text for text in got if text is not None}
    if tokens[1] - tokens[0] < 10:
        assert len(whole) == 1
    for text in whole:
        assert answer.strip(UNWRITTEN) in text
        assert text in context
        assert text == text.strip()


def merged_scores(
    formulation: SpanFormulation, one: TaskExample, scores: list[np.ndarray]
) -> span_head.SpanPredictions:
    """Join scores given for the context's tokens of each window, and then for no answer."""
    questions = formulation.build_inputs([one])
    if not formulation.template.causal:
        scores = [np.concatenate([x[-1:], x[:-1]]) for x in scores]
    return formulation.merge_scores(questions, [x.astype(np.float32) for x in scores])


def flat(n: int, starts: dict[int, float], ends: dict[int, float], null: float) -> np.ndarray:
    x = np.zeros((n + 1, 2))
    for column, given_ in enumerate((starts, ends)):
        for position, value in given_.items():
            x[position, column] = value
    x[n] = null / 2
    return x


@pytest.mark.parametrize("family", ENCODERS_AND_DECODERS)
def test_best_span_has_position_and_probability(family: str) -> None:
    context = "the cat runs"
    one = item(context, "cat runs")
    formulation = make_formulation(family, n_best=3)
    pieces = formulation.tokenizer.offsets(context)
    first = next(i for i, (_, e) in enumerate(pieces) if e > 4)
    scores = merged_scores(
        formulation, one, [flat(len(pieces), {first: 5.0}, {len(pieces) - 1: 4.0}, 3.0)]
    )
    output = formulation.prediction_record(one, scores)
    assert (output["answer"], output["start"]) == ("cat runs", 4)
    assert formulation.prediction(one, scores) == "cat runs"
    totals = [*scores.span_scores, 3.0]
    assert totals[0] == 9.0
    assert output["probability"] == pytest.approx(np.exp(9.0) / np.exp(totals).sum())
    probabilities = [c["probability"] for c in output["candidates"]]
    assert probabilities == sorted(probabilities, reverse=True)
    assert sum(probabilities) == pytest.approx(1.0)
    assert {c["answer"] for c in output["candidates"]} >= {"cat runs", ""}
    assert len(probabilities) == 4  # three spans, and no answer


def test_reversed_and_overlong_spans_are_not_predicted() -> None:
    context = "0 1 2 3 4 5"
    one = item(context, "4")
    formulation = make_formulation("bert", max_answer_length=2)
    output = formulation.prediction(
        one, merged_scores(formulation, one, [flat(6, {4: 9.0}, {1: 9.0, 5: 1.0}, -9.0)])
    )
    assert output == "4 5"
    output = formulation.prediction(
        one, merged_scores(formulation, one, [flat(6, {0: 9.0}, {5: 9.0, 1: 1.0}, -9.0)])
    )
    assert output == "0 1"


def test_no_answer_is_predicted_above_the_threshold() -> None:
    one = item("0 1 2", "1")
    scores = [flat(3, {1: 2.0}, {1: 2.0}, 5.0)]
    for options, expected in (
        ({}, ""),
        ({"no_answer_threshold": 0.5}, ""),
        ({"no_answer_threshold": 1.5}, "1"),
        ({"allow_no_answer": False}, "1"),
    ):
        formulation = make_formulation("bert", **options)
        output = merged_scores(formulation, one, scores)
        assert span_head.null_score_difference(output) == pytest.approx(1.0)
        assert formulation.prediction(one, output) == expected
        answer = formulation.prediction_record(one, output)
        assert answer["answer"] == expected
        assert answer["start"] == (2 if expected else None)
    assert "" not in {c["answer"] for c in formulation.prediction_record(one, output)["candidates"]}


def test_null_score_is_the_minimum_over_windows() -> None:
    one = item(" ".join(["7"] * 12), None)
    formulation = make_formulation(
        "bert", 12, window_overlap=4
    )  # 3 around, 1 of the question: windows of 8 tokens
    assert [q.window.start for q in formulation.build_inputs([one])] == [0, 4]
    # Token 7 is the last of the first window and in the middle of the second.
    scores = merged_scores(
        formulation, one, [flat(8, {7: 9.0}, {7: 9.0}, 5.0), flat(8, {}, {}, -1.0)]
    )
    assert scores.span_scores.max() < 18.0
    scores = merged_scores(
        formulation, one, [flat(8, {}, {}, 5.0), flat(8, {3: 9.0}, {3: 9.0}, -1.0)]
    )
    assert scores.span_scores[0] == 18.0
    assert scores.spans[0].tolist() == [14, 15]
    assert scores.null_score == -1.0


def test_loss_equals_that_of_the_head() -> None:
    formulation = make_formulation("bert", 20)
    model = (
        toy.card("bert")
        .build(heads_for_task(formulation.task, toy.card("bert")))
        .initialize(1)
        .eval()
    )
    context = " ".join(toy.WORDS[:40])
    items = [item(context, "tree"), item("the cat", None)]
    questions = formulation.build_inputs(items)
    predictions = predict_scores(formulation, model, questions)
    term = model(pad_examples([q.example for q in questions], formulation.special_ids)).terms[
        "span"
    ]
    totals = [formulation.loss(one, s) for one, s in zip(items, predictions.scores, strict=True)]
    assert sum(total for total, _ in totals) == pytest.approx(float(term.total.detach()), rel=1e-5)
    assert sum(n for _, n in totals) == term.count == len(questions)
    unknown = [replace(one, label=None) for one in items]
    predictions = predict_scores(formulation, model, formulation.build_inputs(unknown))
    totals = [formulation.loss(one, s) for one, s in zip(unknown, predictions.scores, strict=True)]
    assert totals == [(0.0, 0)] * 2


@pytest.mark.sample(7)
@pytest.mark.parametrize("family", ENCODERS_AND_DECODERS)
@pytest.mark.parametrize("context", ["", " ", "\u200b", "x", "\r\n", "👩‍👩‍👧", "e\u0301" * 3])
@torch.no_grad()
def test_prediction_is_always_part_of_the_context(family: str, context: str) -> None:
    preset = toy.card(family)
    for options in ({"allow_no_answer": True}, {"allow_no_answer": False}):
        formulation = make_formulation(family, **options)
        model = preset.build(heads_for_task(formulation.task, preset)).initialize(1).eval()
        for question in ("", QUESTION, "cat " * 60):
            one = TaskExample(texts=(question, context))
            (scores,) = predict_scores(formulation, model, formulation.build_inputs([one])).scores
            output = formulation.prediction_record(one, scores)
            assert output["answer"] == formulation.prediction(one, scores)
            for c in output["candidates"]:
                at = c["start"]
                assert c["answer"] == ("" if at is None else context[at : at + len(c["answer"])])
                assert c["answer"] == c["answer"].strip()
                assert bool(c["answer"]) == (at is not None)
            assert sum(c["probability"] for c in output["candidates"]) == pytest.approx(1.0)


@pytest.mark.parametrize("family", ENCODERS_AND_DECODERS)
def test_minimum_length_has_room_for_one_token_each(family: str) -> None:
    least = {"bert": 5, "gpt2": 4}[family]
    one = item("cat cat", "cat")
    for question in make_formulation(family, least).build_inputs([one]):
        assert len(question.example.inputs) <= least
    with pytest.raises(ValueError, match=f"max_length must be at least {least}, got {least - 1}"):
        make_formulation(family, least - 1)


XQUAD = [SHARED / "xquad" / f"xquad.{name}.json.xz" for name in ("en", "de", "es")]
SHIFTS = [SHARED / "qa_squadshifts_wiki" / f"{name}.json.xz" for name in ("train", "dev")]


@pytest.fixture(scope="module")
def all_items() -> dict[Path, list[TaskExample]]:
    kind = TASK_KINDS["answer"]
    found = {}
    for path in (*XQUAD, *SHIFTS):
        table = tables.read_table(path)
        columns = kind.reader.find_columns(table, (), None, ())
        found[path] = kind.reader.read_examples(
            table, columns, "strict", has_labels=True, options={}
        )
    return found


@pytest.mark.thorough
@pytest.mark.skipif(not SHIFTS[0].exists(), reason="the shared data are not here")
@pytest.mark.parametrize("every", [20, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("vocabulary", [WordPiece(1000), ByteBPE(1000)])
def test_every_squad_answer_is_recovered_from_its_windows(
    vocabulary: WordPiece | ByteBPE, every: int, all_items: dict[Path, list[TaskExample]]
) -> None:
    name = "bert-base-uncased" if isinstance(vocabulary, WordPiece) else "gpt2"
    some = [one.texts[1] for items in all_items.values() for one in items[::40]]
    tokenizer: Tokenizer = train_tokenizer(
        TokenizerSpec(vocabulary, MODELS[name].tokenizer.special_tokens), some
    )
    task = Task(task_kind="answer", columns=COLUMNS, max_length=384, metric="answer_f1")
    formulation = formulate(task, MODELS[name], tokenizer)
    for items in all_items.values():
        items = items[::every]
        whole: set[int] = set()
        for question in formulation.build_inputs(items):
            text = answered(formulation, question, items[question.item_index])
            if text is not None:
                assert items[question.item_index].label[0].strip() in text
                whole.add(question.item_index)
        assert len(whole) == len(items)
