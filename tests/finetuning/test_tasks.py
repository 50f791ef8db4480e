"""Tasks: columns found by name, labels in a stable order, and one line for whatever is wrong."""

from pathlib import Path

import pytest
import toy_models as toy
from hypothesis import given
from hypothesis import strategies as st

from unmask.tasks.all_kinds import TASK_KINDS, resolve_metric
from unmask.tasks.readers import columns as column_values
from unmask.tasks.readers.tables import Table, read_table
from unmask.tasks.task import Task, TaskColumns, TaskExample, examples_sha256, split_dev


def table(columns: str, *rows: tuple[object, ...]) -> Table:
    numbered = [(i, row) for i, row in enumerate(rows, 2)]
    return Table(path=Path("some.tsv"), columns=tuple(columns.split()), rows=numbered)


def task_of(kind, labels) -> Task:
    return Task(task_kind=kind, columns=TaskColumns(texts=("text",), label="label"), labels=labels)


def find_columns(table: Table, kind, texts=(), label=None) -> TaskColumns:
    return TASK_KINDS[kind].reader.find_columns(table, texts, label, ())


def items(table: Table, kind) -> list[TaskExample]:
    columns = TaskColumns(texts=("text",), label="label")
    return TASK_KINDS[kind].reader.read_examples(
        table, columns, "strict", has_labels=True, options={}
    )


@pytest.mark.parametrize(
    ("kind", "columns", "texts", "label"),
    [
        ("classify", "source label original_mark sentence", ("sentence",), "label"),
        ("pairs", "index question sentence label", ("question", "sentence"), "label"),
        ("pairs", "premise hypothesis gold_label", ("premise", "hypothesis"), "gold_label"),
        ("pairs", "Sentence1 Sentence2 Label", ("Sentence1", "Sentence2"), "Label"),
        ("regress", "genre score sentence1 sentence2", ("sentence1", "sentence2"), "score"),
        ("regress", "text_a text_b relatedness label", ("text_a", "text_b"), "relatedness"),
        ("regress", "review stars", ("review",), "stars"),
        ("tag", "tokens ner_tags", ("tokens",), "ner_tags"),
        ("tag", "words 2 3 4", ("words",), "4"),
        ("tag", "id form lemma upos xpos", ("form",), "upos"),
    ],
)  # fmt: skip
def test_columns_are_found_by_customary_names(kind, columns, texts, label) -> None:
    assert find_columns(table(columns), kind) == TaskColumns(texts=texts, label=label)


def test_given_columns_are_used() -> None:
    found = find_columns(table("a b text label"), "classify", ("a",), "b")
    assert found == TaskColumns(texts=("a",), label="b")


@pytest.mark.parametrize(
    ("kind", "columns", "texts", "label", "message"),
    [
        ("classify", "a b", (), None, r"which column holds the text\?.*\(columns: 'a', 'b'\)"),
        (
            "classify",
            "text b",
            (),
            None,
            r"which column holds the label\?.*\(columns: 'text', 'b'\)",
        ),
        ("classify", "text label", ("x",), None, r"no column 'x' \(columns: 'text', 'label'\)"),
        ("classify", "text label", (), "x", "no column 'x'"),
        ("classify", "a b label", ("a", "b"), None, "classify reads 1 columns of text, got 2"),
        ("pairs", "text label", (), None, r"which two columns hold the texts\?"),
        ("classify", "premise hypothesis label", (), None, "a pair of texts: use task = pairs"),
        ("pairs", "a label", ("a",), None, "pairs reads 2 columns of text, got 1"),
        ("tag", "text label", (), None, r"which column holds the words\?"),
    ],
)
def test_missing_columns_are_named(kind, columns, texts, label, message) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        find_columns(table(columns), kind, texts, label)
    assert str(caught.value).startswith("some.tsv: ") or "reads" in message


def test_labels_are_text_in_every_file_format() -> None:
    rows = [("a", 1), ("b", 1.0), ("c", "1"), ("d", " 1 "), ("e", True), ("f", 0.5), ("g", False)]
    found = items(table("text label", *rows), "classify")
    assert [item.label for item in found] == ["1", "1", "1", "1", "true", "0.5", "false"]


def test_labels_are_ordered_by_value() -> None:
    def order(*labels):
        return column_values.find_labels(
            [TaskExample(texts=("a",), label=x) for x in labels], "some.tsv"
        )

    assert order("10", "9", "-1") == ("-1", "9", "10")
    assert order("b", "a", "10") == ("10", "a", "b")
    assert order("spam", "ham", "spam") == ("ham", "spam")


@pytest.mark.parametrize(
    ("kind", "row", "message"),
    [
        ("classify", ("a", ""), r"some\.tsv:2: no label in column 'label'"),
        ("classify", ("a", None), r"some\.tsv:2: no label in column 'label'"),
        ("classify", (5, "x"), r"some\.tsv:2: 'text' must be text, got int 5"),
        ("classify", ("a", ["x"]), r"some\.tsv:2: 'label' must be text, got list"),
        ("regress", ("a", "high"), r"some\.tsv:2: 'label' must be a number, got str 'high'"),
        ("regress", ("a", "nan"), r"some\.tsv:2: 'label' must be a number"),
        ("regress", ("a", float("inf")), r"some\.tsv:2: 'label' must be a number"),
        ("regress", ("a", None), r"some\.tsv:2: 'label' must be a number"),
        ("regress", ("a", -1e31), r"some\.tsv:2: 'label' must be at most 1e\+30, got float"),
        ("regress", ("a", True), r"some\.tsv:2: 'label' must be a number"),
        ("tag", ("a b", ["x"]), r"some\.tsv:2: 'text' must be a list of words, got str"),
        ("tag", (["a"], "x"), r"some\.tsv:2: 'label' must be a list of tags, got str"),
        ("tag", (["a", "b"], ["x"]), r"some\.tsv:2: 2 words, but 1 tags"),
        ("tag", (["a", 5], ["x", "y"]), r"some\.tsv:2: 'text' must be text, got int 5"),
        ("tag", (["a"], [""]), r"some\.tsv:2: no label"),
        ("classify", ("a\0", "x"), r"some\.tsv:2: a NUL"),
        ("classify", ("\ud800", "x"), r"some\.tsv:2: a lone surrogate"),
    ],
)
def test_value_of_wrong_type_is_named_with_line(kind, row, message) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        items(table("text label", row), kind)
    assert "\n" not in str(caught.value)


def test_words_and_tags_may_be_the_text_of_a_list() -> None:
    (found,) = items(table("text label", ("['a' 'b']", '["x", "y"]')), "tag")
    assert (found.texts, found.label) == (("a", "b"), ("x", "y"))


def test_empty_text_is_kept_and_empty_sentence_skipped() -> None:
    found = items(table("text label", ("", "x"), (None, "y")), "classify")
    assert [item.texts for item in found] == [("",), ("",)]
    found = items(table("text label", ([], []), (["a"], ["x"])), "tag")
    assert [item.location for item in found] == ["some.tsv:3"]


def test_single_label_or_number_is_refused() -> None:
    same = [TaskExample(texts=("a",), label="x"), TaskExample(texts=("b",), label="x")]
    with pytest.raises(
        ValueError, match=r"some\.tsv: only one label, 'x' in 2 rows; there is nothing"
    ):
        column_values.find_labels(same, "some.tsv")
    with pytest.raises(ValueError, match=r"some\.tsv: all 1 numbers are 1\.0"):
        column_values.check_numbers_differ([TaskExample(texts=("a",), label=1.0)], "some.tsv")


def test_label_never_learned_is_named_with_line() -> None:
    strange = [TaskExample(texts=("a",), label="maybe", location="dev.tsv:7")]
    with pytest.raises(ValueError, match=r"dev\.tsv:7: label 'maybe' in column 'y' must be one of"):
        column_values.check_labels(strange, ("no", "yes"), "y")


@given(st.lists(st.sampled_from("abc"), min_size=20, max_size=200), st.integers(0, 9))
def test_split_is_stratified_by_label(labels: list[str], seed: int) -> None:
    found = [TaskExample(texts=(str(i),), label=x) for i, x in enumerate(labels)]
    train, dev = split_dev(found, 0.1, seed, location="x.tsv")
    assert sorted([*train, *dev], key=lambda i: int(i.texts[0])) == found
    for label in set(labels):
        n = labels.count(label)
        taken = sum(item.label == label for item in dev)
        assert taken == (max(round(0.1 * n), 1) if n > 1 else 0)
    assert split_dev(found, 0.1, seed, location="x.tsv") == (train, dev)


def test_unsplittable_rows_are_reported_with_file() -> None:
    one = [TaskExample(texts=("a",), label=("x", "y"))]
    with pytest.raises(ValueError, match=r"x\.tsv: 1 sentences.*: too few to set aside"):
        split_dev(one, location="x.tsv", unit="sentences, parted by blank lines")
    own = [TaskExample(texts=("a",), label=f"label {i}") for i in range(5000)]
    with pytest.raises(ValueError, match=r"x\.tsv: 5,000 labels in 5,000 rows: too many labels"):
        split_dev(own, location="x.tsv")


@pytest.mark.parametrize(
    ("kind", "labels", "metric"),
    [
        ("classify", ("no", "yes"), "accuracy"),
        ("pairs", ("a", "b", "c"), "accuracy"),
        ("regress", (), "pearson"),
        ("tag", ("B-X", "O"), "entity_f1"),
        ("tag", ("NOUN", "VERB"), "token_accuracy"),
    ],
)
def test_each_kind_has_its_default_metric(kind, labels, metric) -> None:
    assert resolve_metric(task_of(kind, labels), None) == metric


def test_unsuitable_metric_is_refused_with_alternatives() -> None:
    assert resolve_metric(task_of("classify", ("a", "b")), "matthews") == "matthews"
    with pytest.raises(ValueError, match="must be one of pearson, spearman, mean_squared_error"):
        resolve_metric(task_of("regress", ()), "accuracy")
    with pytest.raises(ValueError, match="must be one of accuracy, macro_f1, matthews for"):
        resolve_metric(task_of("classify", ("a", "b", "c")), "f1")


def test_best_is_by_metric_then_by_loss() -> None:
    columns = TaskColumns(texts=("text",), label="label")
    task = Task(task_kind="classify", columns=columns, labels=("a", "b"))
    assert task.is_better({"accuracy": 0.9, "loss": 2.0}, {"accuracy": 0.8, "loss": 1.0})
    assert task.is_better({"accuracy": 0.8, "loss": 0.5}, {"accuracy": 0.8, "loss": 1.0})
    assert not task.is_better({"accuracy": 0.8, "loss": 1.0}, {"accuracy": 0.8, "loss": 1.0})
    errors = Task(task_kind="regress", columns=columns, metric="mean_squared_error")
    assert errors.is_better(
        {"mean_squared_error": 1.0, "loss": 1.0}, {"mean_squared_error": 2.0, "loss": 1.0}
    )


def test_digest_detects_any_change(tmp_path: Path) -> None:
    rows = toy.texts(5)
    found = items(read_table(toy.write(tmp_path / "a.tsv", rows)), "classify")
    other = [*found[:-1], TaskExample(texts=found[-1].texts, label="other")]
    assert examples_sha256(found) == examples_sha256(list(found))
    assert examples_sha256(found) != examples_sha256(other) != examples_sha256(found[::-1])
