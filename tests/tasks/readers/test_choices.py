"""Choices: however options and answers are written, the same questions are read."""

import json
from pathlib import Path

import pytest

from unmask.tasks.readers import multiple_choice_tables
from unmask.tasks.readers.multiple_choice_tables import (
    find_columns,
    find_text_columns,
    infer_label_format,
    read_choice_examples,
)
from unmask.tasks.readers.tables import Table, read_table
from unmask.tasks.task import TaskColumns

SHARED = Path(__file__).parents[3] / "shared" / "data" / "multiple_choice"
OPTIONS = [("rain", "snow", "wind"), ("a cat", "a dog", "a cow"), ("red", "green", "blue")]
RIGHT = [0, 2, 1]


def table(*rows: dict[str, object]) -> Table:
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    numbered = [(i, tuple(row.get(c) for c in columns)) for i, row in enumerate(rows, 1)]
    return Table(path=Path("some.jsonl"), columns=columns, rows=numbered)


def rows(write_options, write_answer) -> Table:
    """Write three questions in some form."""
    return table(
        *(
            {"context": "c", "question": f"q{i}"}
            | write_options(options)
            | write_answer(right, options)
            for i, (options, right) in enumerate(zip(OPTIONS, RIGHT, strict=True))
        )
    )


def as_list(options) -> dict[str, object]:
    return {"choices": list(options)}


@pytest.mark.parametrize(
    "write_options",
    [
        as_list,
        lambda options: {"options": list(options)},
        lambda options: {f"choice{i}": o for i, o in enumerate(options, 1)},
        lambda options: {f"ending{i}": o for i, o in enumerate(options)},
        lambda options: {f"answer{c}": o for c, o in zip("ABC", options, strict=True)},
        lambda options: {f"sentence_quiz{i}": o for i, o in enumerate(options, 1)},
        lambda options: dict(zip("ABC", options, strict=True)),
        lambda options: {"choices": str(list(options))},
        lambda options: {"choices": {"text": list(options), "label": ["A", "B", "C"]}},
        lambda options: {"choices": {"text": list(options)}},
        lambda options: {"choices": [{"text": o, "label": o[0]} for o in options]},
    ],
)
def test_every_option_format_is_read(write_options) -> None:
    found = rows(write_options, lambda right, _: {"label": right})
    columns = find_columns(found)
    assert (columns.texts, columns.label) == (("context", "question"), "label")
    read = read_choice_examples(found, columns)
    assert [one.choices for one in read] == OPTIONS
    assert [one.label for one in read] == RIGHT
    assert [(one.context, one.question) for one in read] == [(("c",), f"q{i}") for i in range(3)]
    assert read[2].location == "some.jsonl:3"


@pytest.mark.parametrize(
    ("numbering", "write_answer"),
    [
        ("from 0", lambda right, _: {"gold": right}),
        ("from 0", lambda right, _: {"answer": str(right)}),
        ("from 0", lambda right, _: {"label": float(right)}),
        ("from 1", lambda right, _: {"AnswerRightEnding": right + 1}),
        ("letters", lambda right, _: {"answer": "ABC"[right]}),
        ("letters", lambda right, _: {"correct": "abc"[right]}),
        ("texts", lambda right, options: {"answer": f" {options[right]} "}),
    ],
)
def test_every_answer_format_is_read(numbering: str, write_answer) -> None:
    found = rows(as_list, write_answer)
    columns = find_columns(found)
    assert infer_label_format(found, columns) == numbering
    assert [one.label for one in read_choice_examples(found, columns)] == RIGHT


def test_option_names_of_the_file_take_precedence() -> None:
    def write_options(options) -> dict[str, object]:
        return {"choices": {"text": list(options), "label": ["2", "1", "0"]}}

    found = rows(write_options, lambda right, _: {"answerKey": right})
    columns = find_columns(found)
    assert infer_label_format(found, columns) == "names"
    assert [one.label for one in read_choice_examples(found, columns)] == [
        2 - right for right in RIGHT
    ]


def test_questions_containing_their_options_are_read() -> None:
    question = {
        "stem": "Which falls?",
        "choices": [{"text": "rain", "label": "A"}, {"text": "fog", "label": "B"}],
    }
    found = table({"id": "1", "question": question, "answerKey": "A"})
    columns = find_columns(found)
    assert columns == TaskColumns(texts=("question",), label="answerKey", choices=("question",))
    (one,) = read_choice_examples(found, columns)
    assert (one.context, one.choices, one.label) == (("Which falls?",), ("rain", "fog"), 0)


@pytest.mark.parametrize(
    ("names", "texts", "question"),
    [
        ("passage question", ("passage", "question"), "question"),
        ("question article", ("article", "question"), "question"),
        ("startphrase sent1 sent2", ("sent1", "sent2"), "sent2"),
        ("ctx_a ctx_b ctx", ("ctx",), None),
        ("goal", ("goal",), None),
        ("Premise", ("Premise",), None),
        (
            "InputSentence1 InputSentence2 InputSentence3",
            ("InputSentence1", "InputSentence2", "InputSentence3"),
            None,
        ),
    ],
)
def test_question_column_is_found(names: str, texts, question) -> None:
    found = find_text_columns(table(dict.fromkeys(names.split(), "x") | {"choices": ["a", "b"]}))
    assert found == TaskColumns(texts=texts, label="", choices=("choices",))
    assert multiple_choice_tables.question_column(texts) == question


def test_dialog_turns_stay_separate() -> None:
    found = table(
        {
            "dialogue": ["M: Hi.", "W: Hello."],
            "question": "Who?",
            "choice": ["a", "b"],
            "answer": 1,
        },
        {"dialogue": "M: Bye.", "question": "Who?", "choice": ["a", "b"], "answer": 0},
    )
    first, second = read_choice_examples(found, find_columns(found))
    assert (first.context, first.question) == (("M: Hi.", "W: Hello."), "Who?")
    assert second.context == ("M: Bye.",)


def test_given_columns_are_used_with_last_text_as_question() -> None:
    found = table({"a": "x", "b": "y", "right": "no", "wrong": "yes", "y": "no", "label": 7})
    columns = find_columns(found, ("b", "a"), "y", ("right", "wrong"))
    assert columns == TaskColumns(texts=("b", "a"), label="y", choices=("right", "wrong"))
    (one,) = read_choice_examples(found, columns)
    assert (one.context, one.question, one.choices, one.label) == (("y",), "x", ("no", "yes"), 0)


def test_number_of_options_may_differ() -> None:
    found = table(
        {"question": "q", "choice1": "a", "choice2": "b", "choice3": "c", "label": 3},
        {"question": "q", "choice1": "a", "choice2": "b", "choice3": "", "label": 1},
        {"question": "q", "choice1": "a", "choice2": "b", "choice3": None, "label": 2},
    )
    read = read_choice_examples(found, find_columns(found))
    assert [len(one.choices) for one in read] == [3, 2, 2]
    assert [one.label for one in read] == [2, 0, 1]


def test_ambiguous_answer_is_an_error() -> None:
    row = {"question": "q", "choices": ["a", "b", "a"], "label": "a"}
    with pytest.raises(
        ValueError, match=r"some\.jsonl:1: the answer .* equals several of the options"
    ):
        read_choice_examples(table(row), find_columns(table(row)))
    letter = row | {"label": "A", "choices": ["faster", "slower", "faster"]}  # as in ARC
    assert read_choice_examples(table(letter), find_columns(table(letter)))[0].label == 0


def test_file_without_answers_has_no_labels() -> None:
    found = table({"question": "q", "choices": ["a", "b"]})
    (one,) = read_choice_examples(found, find_text_columns(found), has_labels=False)
    assert one.label is None


def test_short_file_uses_the_given_numbering() -> None:
    row = {"question": "q", "choices": ["a", "b", "c"], "label": 1}
    columns = find_columns(table(row))
    with pytest.raises(
        ValueError, match=r"'label' fit several formats: from 0, from 1; choose one"
    ):
        read_choice_examples(table(row), columns)
    truths = [
        read_choice_examples(table(row), columns, label_format=how)[0].label
        for how in ("from 0", "from 1")
    ]
    assert truths == [1, 0]


ROW = {"question": "q", "choices": ["a", "b"], "label": 0}


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"label": 2}, r"jsonl:2: the answer in column 'label', int 2, is none of the 2 options: "),
        ({"label": "c"}, r"jsonl:2: the answer in column 'label', str 'c', is none of"),
        ({"label": None}, r"jsonl:2: no answer in column 'label'"),
        ({"label": -1}, r"jsonl:2: the answer in column 'label', int -1, is none of"),
        ({"label": True}, r"jsonl:2: the answer in column 'label', bool True, is none of"),
        ({"choices": ["a"]}, r"jsonl:2: only 1 option in 'choices'; at least 2 are needed"),
        ({"choices": []}, r"jsonl:2: only no option in 'choices'"),
        ({"choices": ["a", " "]}, r"jsonl:2: option 2 in 'choices' is empty"),
        ({"choices": ["a", 1]}, r"jsonl:2: 'choices' must be text, got int 1"),
        (
            {"choices": "a or b"},
            r"jsonl:2: 'choices' must be a list of options, .*got str 'a or b'",
        ),
        ({"choices": None}, r"jsonl:2: 'choices' must be a list of options, .*got NoneType"),
        (
            {"choices": {"text": ["a", "b"], "label": ["A"]}},
            r"jsonl:2: 2 options in 'choices', but 1 labels",
        ),
        ({"question": 5}, r"jsonl:2: 'question' must be text, got int 5"),
    ],
)
def test_each_mistake_is_one_line_with_its_place(second, message: str) -> None:
    found = table(ROW, ROW | second, ROW | {"label": 1})
    with pytest.raises(ValueError, match=message) as caught:
        read_choice_examples(found, find_columns(found))
    assert "\n" not in str(caught.value)


def test_answer_outside_the_numbering_is_named() -> None:
    with pytest.raises(ValueError, match=r"jsonl:1: .*int 0, counted from 1, is none of the 2"):
        read_choice_examples(table(ROW), find_columns(table(ROW)), label_format="from 1")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "q", "label": 1}, "which columns hold the options.*'question', 'label'"),
        ({"choices": [], "label": 1}, "which columns hold what is read before the options"),
        ({"question": "q", "choices": []}, "which column holds the answer"),
        ({"question": "q", "choice1": "a", "choice3": "b"}, "which columns hold the options"),
    ],
)
def test_missing_columns_are_requested(row, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_columns(table(row))


def test_missing_given_column_is_an_error() -> None:
    for named in ({"texts": ("x",)}, {"label": "x"}, {"choices": ("choices", "x")}):
        with pytest.raises(ValueError, match="no column 'x'"):
            find_columns(table(ROW), **named)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
@pytest.mark.parametrize(
    ("name", "n", "n_options"),
    [("dream/train", 6116, 3), ("dream/dev", 2040, 3), ("dream/test", 2041, 3),
     ("roc_story_cloze/dev", 1871, 2), ("roc_story_cloze/test", 1871, 2), ("copa", 100, 2),
     ("piqa", 1838, 2), ("siqa", 1954, 2), ("boolq", 3270, 2), ("commonsense_qa", 1221, 4),
     ("openbookqa", 500, 4), ("arc_easy", 2376, 4), ("arc_challenge", 1172, 4)],
)  # fmt: skip
def test_published_files_are_read_without_column_names(name: str, n: int, n_options) -> None:
    (path,) = SHARED.glob(f"{name}.jsonl*")
    found = read_table(path)
    columns = find_columns(found)
    chosen = read_choice_examples(found, columns)
    assert infer_label_format(found, columns) == "from 0"
    assert len(chosen) == n
    assert {len(one.choices) for one in chosen} == {n_options}
    assert {one.label for one in chosen} == set(range(n_options))
    assert json.dumps([one.location for one in chosen[:2]]).count(path.name) == 2
