"""Questions about texts: files are read strictly, and a tiny model learns to answer."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_models as toy

import unmask
from unmask.config import from_dict
from unmask.finetuning.formulations import span_head
from unmask.finetuning.formulations.build import formulate, heads_for_task
from unmask.finetuning.formulations.span_head import SpanFormulation, SpanPredictions
from unmask.finetuning.results.finetuned_model import FinetunedModel
from unmask.finetuning.results.predict import infer_task, read_task
from unmask.finetuning.results.score import score_file
from unmask.jobs.finetune import finetune
from unmask.tasks.all_kinds import resolve_options
from unmask.tasks.kinds.answer import ANSWER, QuestionAnsweringOptions
from unmask.tasks.readers import tables
from unmask.tasks.task import Task, TaskColumns, TaskExample

COLUMNS = TaskColumns(texts=("question", "context"), label="answers")


def record(question: str, context: str, *answers: str, **more: Any) -> dict[str, Any]:
    found = [{"text": a, "answer_start": context.index(a)} for a in answers]
    return {"question": question, "context": context, "answers": found, **more}


def squad(path: Path, records: list[dict[str, Any]]) -> Path:
    """Write SQuAD's nested form, a paragraph for each question."""
    paragraphs = [
        {
            "context": r["context"],
            "qas": [{"id": f"q{i}", **{k: v for k, v in r.items() if k != "context"}}],
        }
        for i, r in enumerate(records)
    ]
    data = {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def jsonl(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return path


def read(path: Path, *, known: bool = True, **named: Any) -> list[TaskExample]:
    table = tables.read_table(path)
    columns = ANSWER.reader.find_columns(table, named.get("texts", ()), named.get("label"), ())
    return ANSWER.reader.read_examples(table, columns, "strict", has_labels=known, options={})


def toys(n: int, seed: int = 0, impossible: float = 0.0) -> list[dict[str, Any]]:
    """Make questions "which color ?" or "which number ?" about texts that have one of each."""
    rng = np.random.default_rng(seed)
    colors, numbers = ("red", "blue", "green"), ("one", "two", "three", "four")
    others = ("cat", "dog", "house", "tree", "runs", "walks")
    made = []
    for _ in range(n):
        words = rng.choice(others, rng.integers(3, 12)).tolist()
        color, number = str(rng.choice(colors)), str(rng.choice(numbers))
        asked, answer = [("red ?", color), ("one ?", number)][int(rng.integers(2))]
        there = [color, number]
        if rng.random() < impossible:
            there.remove(answer)
            answer = ""
        for word in there:
            words.insert(int(rng.integers(len(words) + 1)), word)
        made.append(record(asked, " ".join(words), *([answer] if answer else [])))
    return made


# Files


def test_squad_and_hub_formats_read_equally(tmp_path: Path) -> None:
    records = [
        record("who?", "Ann met Bob. Bob left.", "Bob", "Ann"),
        record("why?", "Nobody knows."),
    ]
    flat = [
        r | {"answers": {key: [a[key] for a in r["answers"]] for key in ("text", "answer_start")}}
        for r in records
    ]
    nested, lines = squad(tmp_path / "a.json", records), jsonl(tmp_path / "a.jsonl", flat)
    output = [(i.texts, i.label, i.answer_starts) for i in read(nested)]
    assert output == [(i.texts, i.label, i.answer_starts) for i in read(lines)]
    assert output == [
        (("who?", "Ann met Bob. Bob left."), ("Bob", "Ann"), (8, 0)),
        (("why?", "Nobody knows."), (), ()),
    ]
    assert [i.label for i in read(nested, known=False)] == [None, None]


def test_columns_are_found_by_name_or_must_be_given(tmp_path: Path) -> None:
    rows = [{"passage": "Ann left.", "query": "who?", "gold": [{"text": "Ann", "answer_start": 0}]}]
    path = jsonl(tmp_path / "a.jsonl", rows)
    with pytest.raises(ValueError, match="which column holds the answers"):
        read(path)
    (found,) = read(path, label="gold")
    assert found.texts == ("who?", "Ann left.")
    (swapped,) = read(path, texts=("query", "passage"), label="gold")
    assert swapped == found
    with pytest.raises(ValueError, match="answer reads 2 columns of text, got 1: 'query'"):
        read(path, texts=("query",), label="gold")
    with pytest.raises(ValueError, match="which column holds the question"):
        read(jsonl(tmp_path / "b.jsonl", [{"context": "a", "answers": []}]))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"text": "Bob", "answer_start": 0},
         r"answer 'Bob' should be at character 0 .* which has 'Ann' there; it occurs first at 8"),
        ({"text": "Bob", "answer_start": 99}, "which has '' there; it occurs first at 8"),
        ({"text": "Eve", "answer_start": 8}, "which has 'Bob' there; it is nowhere in the context"),
        ({"text": "bob", "answer_start": 8}, "it is nowhere"),
        ({"text": "Ann  met", "answer_start": 0}, "which has 'Ann met ' there; it is nowhere"),
        ({"text": "", "answer_start": 0}, "an answer is empty; .* needs an empty list"),
        ({"text": " ", "answer_start": 3}, "an answer is empty"),
        ({"text": "Bob", "answer_start": -1}, "answer_start"),
        ({"text": "Bob"}, "answer_start"),
    ],
)  # fmt: skip
def test_misplaced_answer_is_named(answer: dict[str, Any], message: str, tmp_path: Path) -> None:
    right = record("who?", "Ann met Bob.", "Ann")
    wrong = right | {"answers": [*right["answers"], answer]}
    with pytest.raises(ValueError, match=rf"a\.json.*q.*1.*{message}"):
        read(squad(tmp_path / "a.json", [right, wrong]))
    with pytest.raises(ValueError, match=rf"a\.jsonl:2: question 'second'.*{message}"):
        read(jsonl(tmp_path / "a.jsonl", [right, wrong | {"id": "second"}]))


def test_impossible_question_has_no_answers(tmp_path: Path) -> None:
    some = record("who?", "Ann met Bob.", "Ann", is_impossible=True)
    with pytest.raises(ValueError, match="'is_impossible' is true, but there are answers"):
        read(jsonl(tmp_path / "a.jsonl", [some]))
    (found,) = read(jsonl(tmp_path / "a.jsonl", [some | {"answers": None}]))
    assert found.label == ()
    with pytest.raises(ValueError, match="there is none"):
        read(jsonl(tmp_path / "a.jsonl", [{k: v for k, v in some.items() if k != "answers"} | {
            "is_impossible": False, "answers": None}]))  # fmt: skip
    with pytest.raises(ValueError, match="none of the 1 questions has an answer"):
        ANSWER.find_labels([found], "a.jsonl")


@pytest.mark.parametrize(
    ("context", "answer"),
    [
        ("e\u0301te\u0301 2 \u00e9t\u00e9", "\u00e9t\u00e9"),
        ("one 👩‍👩‍👧 two", "👩‍👩‍👧"),
        ("one\r\ntwo\r\n", "two"),
        ("好 的", "的"),
        ("x", "x"),
    ],
)
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_offsets_are_characters_of_the_original_text(
    family: str, context: str, answer: str, tmp_path: Path
) -> None:
    (found,) = read(squad(tmp_path / "a.json", [record("?", context, answer)]))
    assert found.texts[1] == context
    assert found.answer_starts == (context.index(answer),)
    task = Task(task_kind="answer", columns=COLUMNS, max_length=64, metric="answer_f1")
    asked = formulate(task, toy.card(family), toy.tokenizer(family))
    (question,) = asked.build_inputs([found])
    positions = np.flatnonzero(question.example.label > 0)
    null = len(question.example.label) - 1 if family == "gpt2" else 0
    assert null not in positions
    asked_for = question.example.label >= 0
    asked_for[null] = False
    first = int(np.flatnonzero(asked_for)[0])
    offsets = question.window.offsets[positions - first]
    span = np.array([offsets[0, 0], offsets[-1, 1]])
    assert span_head._answer_text(found, span).strip() == answer


# Options


def test_options_are_validated() -> None:
    assert resolve_options("answer", {"window_overlap": 3})["window_overlap"] == 3
    assert resolve_options("answer", {})["allow_no_answer"] is None
    for given, message in (
        ({"window_overlap": -1}, "options.window_overlap must be at least 0, got -1"),
        ({"max_answer_length": 0}, "options.max_answer_length must be at least 1, got 0"),
        ({"n_best": 0}, "options.n_best must be at least 1, got 0"),
        ({"window_overlaps": 1}, "did you mean 'window_overlap'"),
        ({"allow_no_answer": "yes"}, "allow_no_answer must be bool"),
    ):
        with pytest.raises(ValueError, match=message):
            from_dict(QuestionAnsweringOptions, given, "options")


@pytest.mark.parametrize("none", [False, True])
def test_allow_no_answer_is_inferred_from_the_training_file(none: bool) -> None:
    items = [TaskExample(texts=("q", "a b"), label=("a",), answer_starts=(0,))]
    items += [TaskExample(texts=("q", "a b"), label=())] * none
    task = Task(task_kind="answer", columns=COLUMNS, options=resolve_options("answer", {}))
    assert ANSWER.complete_task(task, items).options["allow_no_answer"] is none
    for asked in (False, True):
        task = Task(task_kind="answer", columns=COLUMNS, options={"allow_no_answer": asked})
        assert ANSWER.complete_task(task, items) == task


def test_encoder_decoder_is_refused_with_alternative() -> None:
    task = Task(task_kind="answer", columns=COLUMNS)
    with pytest.raises(ValueError, match=r"predicts labels as words .* the task `generate`"):
        heads_for_task(task, toy.card("t5"))


# What is given


def test_questions_are_read_from_tables_and_lines() -> None:
    task = Task(task_kind="answer", columns=COLUMNS)
    given = ANSWER.reader.parse_line(task, "who?\tAnn met\tBob")
    assert given == {"question": "who?", "context": "Ann met\tBob"}
    one = ANSWER.reader.parse_input(task, given, "text 1")
    assert ANSWER.reader.format_input(one) == given
    with pytest.raises(ValueError, match="a line must be a question, a tab and a context"):
        ANSWER.reader.parse_line(task, "who?")
    for wrong, message in (
        ("who?", "text 1 must be a table with question, context, got str"),
        ({"question": "who?"}, "text 1 must be a table with question, context"),
        ({"question": "who?", "context": 3}, "text 1: 'context' must be text, got int 3"),
        ({"question": None, "context": ""}, "text 1: 'question' must be text, got NoneType"),
    ):
        with pytest.raises(ValueError, match=message):
            ANSWER.reader.parse_input(task, wrong, "text 1")


# Thresholds


def test_threshold_is_tuned_on_the_dev_file() -> None:
    task = Task(
        task_kind="answer", columns=COLUMNS, max_length=32, metric="exact_match",
        options={"allow_no_answer": True, "no_answer_threshold": None},
    )  # fmt: skip
    asked = formulate(task, toy.card("bert"), toy.tokenizer("bert"))
    assert isinstance(asked, SpanFormulation)

    def spoken(null: float) -> SpanPredictions:
        return SpanPredictions(
            spans=np.array([[0, 3]]), span_scores=np.array([1.0]), null_score=null
        )

    has, none = (
        TaskExample(texts=("?", "one two"), label=("one",)),
        TaskExample(texts=("?", "one two"), label=()),
    )
    items, margins = [has, has, none, has, none], [-2.0, 1.0, 2.0, 3.0, 4.0]
    output = [spoken(1.0 + m) for m in margins]
    better = asked.with_tuned_threshold(items, output)
    assert [asked.prediction(i, s) for i, s in zip(items, output, strict=True)] == [
        "one",
        *[""] * 4,
    ]
    result = [better.prediction(i, s) for i, s in zip(items, output, strict=True)]
    assert result == ["one", "one", "", "", ""]
    truths = [i.label for i in items]
    found = ANSWER.compute_metrics(task, truths, result)
    assert found["exact_match"] == 0.8
    assert better.task.options["no_answer_threshold"] == better.no_answer_threshold == 1.0
    again = formulate(better.task, toy.card("bert"), toy.tokenizer("bert"))
    assert again == better
    assert better.with_tuned_threshold(items, [spoken(9.0)] * 5) == better  # settled once


# Learning


def learn(tmp_path: Path, family: str, train: Path, **more: Any) -> FinetunedModel:
    base = tmp_path / "base"
    if not base.exists():
        toy.pretrained(family, base, dropout=0.0, attention_dropout=0.0)
    known: dict[str, Any] = {
        "dev": train,
        "epochs": 50.0,
        "batch_size": 10,
        "learning_rate": 4e-3,
        "max_length": 64,
    }
    known |= {"evaluate_every": 50, **more}
    return finetune(base, task="answer", train=train, terminal=None, device="cpu", **known)


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["bert", "gpt2", "bart"])
def test_twenty_questions_are_learned(family: str, tmp_path: Path) -> None:
    train = squad(tmp_path / "train.json", toys(20, 1))
    tuned = learn(tmp_path, family, train, out=tmp_path / "out")
    assert tuned.best_run.dev["exact_match"] > 0.9
    assert tuned.best_run.dev["answer_f1"] > 0.9
    assert tuned.task.metric == "answer_f1"
    assert tuned.task.options["allow_no_answer"] is False
    loaded = unmask.load(tmp_path / "out")
    assert loaded.can_predict
    assert loaded.label_names == ()
    rows = loaded.read_inputs(train)
    predictions = loaded.predict(rows)
    right = [
        s["answer"] == r["answers"][0]["text"]
        for s, r in zip(predictions, toys(20, 1), strict=True)
    ]
    assert np.mean(right) > 0.9
    for row, one in zip(rows, predictions, strict=True):
        assert row["context"][one["start"] :].startswith(one["answer"])
    assert loaded.score(train)["exact_match"] == pytest.approx(tuned.best_run.dev["exact_match"])
    shown = json.loads((tmp_path / "out" / "results.json").read_text())
    assert len(shown["errors"]) == sum(not r for r in right)
    assert "question-answering" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.thorough
def test_no_answer_questions_are_learned_and_threshold_is_saved(tmp_path: Path) -> None:
    train = squad(tmp_path / "train.json", toys(30, 2, impossible=0.4))
    test = squad(tmp_path / "test.json", toys(10, 3, impossible=0.4))
    known = {"epochs": 65.0, "test": test, "out": tmp_path / "out", "metric": "exact_match"}
    tuned = learn(tmp_path, "bert", train, **known)
    assert tuned.task.options["allow_no_answer"] is True
    assert isinstance(tuned.task.options["no_answer_threshold"], float)
    assert tuned.best_run.dev["exact_match"] > 0.9
    assert tuned.best_run.dev["no_answer_exact_match"] > 0.8
    assert tuned.best_run.dev["has_answer_exact_match"] > 0.8
    assert read_task(tmp_path / "out") == tuned.task
    loaded = unmask.load(tmp_path / "out")
    for path, figures in ((train, tuned.best_run.dev), (test, tuned.best_run.test)):
        assert loaded.score(path) == pytest.approx(dict(figures), abs=1e-5)
    again = learn(tmp_path, "bert", train, **known, resume=True)
    assert again.task == tuned.task


NAMES = {"bert": "Bert", "bart": "Bart", "mbart": "MBart"}


@pytest.mark.thorough
@pytest.mark.parametrize("family", NAMES)
def test_model_exchanges_with_transformers(family: str, tmp_path: Path) -> None:
    from transformers import AutoModelForQuestionAnswering

    train = squad(tmp_path / "train.json", toys(20, 1))
    whole = {"max_length": 128}  # no text is cut: a folder of theirs does not say where
    tuned = learn(tmp_path, family, train, epochs=1.0, out=tmp_path / "out", **whole)
    theirs = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "out")
    assert type(theirs).__name__ == f"{NAMES[family]}ForQuestionAnswering"
    assert theirs.config.num_labels == 2
    theirs.save_pretrained(tmp_path / "theirs")
    tuned.loaded_model.tokenizer.save(tmp_path / "theirs")
    loaded = unmask.load(tmp_path / "theirs")
    assert loaded.task is None
    assert infer_task(loaded.loaded_model).task_kind == "answer"
    given = [{"question": "red ?", "context": "a cat red dog"}]
    assert loaded.predict(given)[0]["candidates"] == tuned.predict(given)[0]["candidates"]
    assert score_file(loaded.loaded_model, train) == pytest.approx(
        dict(tuned.best_run.dev), abs=1e-5
    )
    # Its head is where further training begins.
    more = finetune(
        tmp_path / "theirs", task="answer", train=train, dev=train, terminal=None, device="cpu",
        epochs=1.0, learning_rate=1e-9, **whole,
    )  # fmt: skip
    assert not any("newly initialized" in note for note in more.notes)
    assert more.best_run.dev == pytest.approx(dict(tuned.best_run.dev), abs=1e-3)


@pytest.mark.thorough
def test_long_texts_are_read_in_windows_with_a_note(tmp_path: Path) -> None:
    long = [r["context"] + " cat" * 60 for r in toys(20, 1)]
    records = [r | {"context": c} for r, c in zip(toys(20, 1), long, strict=True)]
    train = squad(tmp_path / "train.json", records)
    tuned = learn(tmp_path, "bert", train, epochs=1.0, task_options={"window_overlap": 8})
    assert any("20 of 20 training texts have more than 64 tokens and are read in parts" in note
               for note in tuned.notes)  # fmt: skip


def test_text_of_many_windows_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tuned = learn(tmp_path, "bert", squad(tmp_path / "train.json", toys(20, 1)), epochs=1.0)
    monkeypatch.setattr("unmask.finetuning.formulations.span_head._MANY_WINDOWS", 4)
    question, context = "Who sat on the mat?", "The cat sat on the mat. "
    tuned.predict([{"question": question, "context": context}])
    assert not caplog.messages
    tuned.predict([{"question": question, "context": context * 40}])
    (message,) = caplog.messages
    assert message.startswith("text 1: the text has ")
    assert message.endswith(", each a pass through the model")
