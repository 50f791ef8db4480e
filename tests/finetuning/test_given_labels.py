"""Label names given as an option, or read from the training file."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import toy_models as toy

import unmask
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.data import read_data
from unmask.finetuning.job.notes import label_notes
from unmask.jobs.finetune import finetune
from unmask.tasks.readers import columns
from unmask.tasks.suites.bundled import find_suite
from unmask.tasks.task import Task, TaskColumns, TaskExample

SHARED = Path(__file__).parents[2] / "../shared/data"


def make_config(path: Path, task: str = "classify", **more) -> FinetuneConfig:
    return FinetuneConfig(base="x", task=task, train=str(path), **more)


def items(*labels: str | tuple[str, ...]) -> list[TaskExample]:
    return [TaskExample(texts=("x",), label=label) for label in labels]


def test_given_labels_keep_their_order(tmp_path: Path) -> None:
    train = toy.write(tmp_path / "t.tsv", [("a", "no"), ("b", "yes"), ("c", "no")] * 4)
    assert read_data.read_data(make_config(train)).labels == ("no", "yes")
    data = read_data.read_data(make_config(train, labels=("yes", "maybe", "no")))
    assert data.labels == ("yes", "maybe", "no")
    assert any("no row that is learned from has 'maybe'" in line for line in data.warnings)


def test_tag_of_the_test_file_only_is_allowed_if_given(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.conll").write_text("dog B-NP\nran O\n\n" * 12)
    (tmp_path / "test.conll").write_text("dog B-NP\n\nlist I-LST\n")
    config = make_config(tmp_path / "train.conll", "tag", test=str(tmp_path / "test.conll"))
    with pytest.raises(ValueError, match=r"test\.conll:3: label 'I-LST' .* must be one of"):
        read_data.read_data(config)
    data = read_data.read_data(replace(config, labels=("B-NP", "I-LST", "O")))
    assert [item.label for item in data.test] == [("B-NP",), ("I-LST",)]


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
def test_conll_2000_test_only_tags_are_known() -> None:
    entries, _ = find_suite("tags", SHARED)
    entry = next(one for one in entries if one.name == "CoNLL-2000")
    config = make_config(
        Path(entry.train), "tag", test=entry.test, text=entry.text, label=entry.label,
        columns=entry.column_names, rows=100,
    )  # fmt: skip
    with pytest.raises(ValueError, match="label 'I-LST'"):
        read_data.read_data(config)
    data = read_data.read_data(replace(config, labels=entry.labels))
    assert len(data.labels) == 23
    assert (len(data.train), len(data.test)) == (100, 2012)


@pytest.mark.parametrize("which", ["dev", "test"])
def test_label_never_seen_in_training_is_named_with_line(which: str, tmp_path: Path) -> None:
    train = toy.write(tmp_path / "t.tsv", [("a", "no"), ("b", "yes")] * 4)
    other = toy.write(tmp_path / "o.tsv", [("a", "no"), ("b", "maybe")])
    with pytest.raises(ValueError, match=r"o\.tsv:3: label 'maybe' .* one of 'no', 'yes'"):
        read_data.read_data(make_config(train, **{which: str(other)}))


def test_training_label_not_among_the_given_is_named(tmp_path: Path) -> None:
    train = toy.write(tmp_path / "t.tsv", [("a", "no"), ("b", "yes")] * 4)
    with pytest.raises(ValueError, match=r"t\.tsv:2: label 'no' .* one of 'bad', 'yes'"):
        read_data.read_data(make_config(train, labels=("bad", "yes")))


def test_integer_labels_are_indices_of_given_labels(tmp_path: Path) -> None:
    names = ("bad", "good")
    train = toy.write(tmp_path / "t.tsv", [("a", "0"), ("b", "1")] * 4)
    dev = toy.write(tmp_path / "d.tsv", [("a", "good"), ("b", "bad")])
    data = read_data.read_data(make_config(train, dev=str(dev), labels=names))
    assert data.labels == names
    assert [item.label for item in data.train[:2]] == ["bad", "good"]
    assert [item.label for item in data.dev] == ["good", "bad"]


def test_integers_become_names_only_if_all_have_one() -> None:
    def named(found: list[TaskExample], *names: str) -> list:
        return [item.label for item in columns.with_label_names(found, names)]

    assert named(items("0", "1", "1"), "a", "b") == ["a", "b", "b"]
    assert named(items(("0", "1"), ()), "a", "b") == [("a", "b"), ()]
    assert named(items("0", "2"), "a", "b") == ["0", "2"]  # the check then names it
    assert named(items("0", "a"), "a", "b") == ["0", "a"]
    assert named(items("0", "1"), "1", "0") == ["0", "1"]  # these are names themselves
    assert named([TaskExample(texts=("x",), label=0.5)], "a", "b") == [0.5]


def test_labels_must_be_several_and_for_a_labelling_task(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two or more that differ, got 'a', 'a'"):
        make_config(tmp_path, labels=("a", "a"))
    train = toy.write(tmp_path / "t.tsv", [("a", "1.5"), ("b", "2")] * 4, "text\tscore")
    with pytest.raises(ValueError, match="the answers of regress are not labels"):
        read_data.read_data(make_config(train, "regress", labels=("a", "b")))


def test_sampled_rows_are_nested_and_reproducible(tmp_path: Path) -> None:
    train = toy.write(tmp_path / "t.tsv", [(f"text {i}", "ab"[i % 2]) for i in range(50)])
    dev = toy.write(tmp_path / "d.tsv", [("a", "a"), ("b", "b")])
    some, more, every = (
        [
            item.texts[0]
            for item in read_data.read_data(make_config(train, dev=str(dev), rows=n)).train
        ]
        for n in (10, 20, 100)
    )
    assert len(some) == 10
    assert len(more) == 20
    assert len(every) == 50
    assert set(some) < set(more)
    assert more == [text for text in every if text in more]
    data = read_data.read_data(make_config(train, dev=str(dev), rows=10))
    assert "10 of 50 training rows are used" in data.notes
    assert data.labels == ("a", "b")


def test_row_limit_leaves_held_out_rows_unchanged(tmp_path: Path) -> None:
    train = toy.write(tmp_path / "t.tsv", [(f"text {i}", "ab"[i % 2]) for i in range(50)])
    assert (
        read_data.read_data(make_config(train, rows=10)).dev
        == read_data.read_data(make_config(train)).dev
    )


def test_rows_of_a_single_label_are_refused(tmp_path: Path) -> None:
    train = toy.write(tmp_path / "t.tsv", [("x", "a")] * 49 + [("y", "b")])
    dev = toy.write(tmp_path / "d.tsv", [("a", "a"), ("b", "b")])
    with pytest.raises(ValueError, match=r"3 rows of .*t\.tsv: only one label, 'a'"):
        read_data.read_data(make_config(train, dev=str(dev), rows=3))


def choices(path: Path, answers: list[object]) -> Path:
    rows = [{"question": "?", "choices": ["x", "y", "z"], "answer": a} for a in answers]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_training_file_decides_the_numbering_of_answers(tmp_path: Path) -> None:
    train = choices(tmp_path / "train.jsonl", [1, 2, 3] * 4)
    dev = choices(tmp_path / "dev.jsonl", [1, 2])  # of itself it could be from 0, too
    data = read_data.read_data(make_config(train, "choose", dev=str(dev)))
    assert data.task_options["label_format"] == "from 1"
    assert [item.label for item in data.dev] == [0, 1]
    output = read_data.read_data(
        make_config(train, "choose", task_options={"label_format": "from 1"}, dev=str(dev))
    )
    assert output.dev == data.dev
    other = choices(tmp_path / "other.jsonl", [0, 1])
    with pytest.raises(ValueError, match=r"other\.jsonl:1: the answer .* counted from 1"):
        read_data.read_data(make_config(train, "choose", dev=str(other)))


def test_model_learned_from_numbers_predicts_names(tmp_path: Path) -> None:
    rows = [(text, str(int(label == "yes"))) for text, label in toy.texts(64, 1, 1, 4)]
    train = toy.write(tmp_path / "t.tsv", rows)
    base = toy.pretrained("bert", tmp_path / "base")
    tuned = finetune(
        base, task="classify", train=train, labels=["bad", "good", "never"], rows=40, epochs=1.0,
        out=tmp_path / "run", terminal=None, device="cpu",
    )  # fmt: skip
    assert tuned.task.labels == ("bad", "good", "never")
    assert set(tuned.predict(["a good cat"])[0]["probabilities"]) == {"bad", "good", "never"}
    assert json.loads((tmp_path / "run/unmask.json").read_text())["data"]["train"]["rows"] == 40
    loaded = unmask.load(tmp_path / "run")
    named = toy.write(tmp_path / "n.tsv", [(text, ("bad", "good")[int(n)]) for text, n in rows])
    assert loaded.score(train) == loaded.score(named)
    beyond = toy.write(tmp_path / "b.tsv", [*rows, ("a cat", "3")])
    with pytest.raises(ValueError, match=r"b\.tsv:\d+: label '\d' in column"):
        loaded.score(beyond)


def test_labels_are_counted_and_those_that_look_alike_are_named() -> None:
    task = Task(
        task_kind="multilabel",
        columns=TaskColumns(texts=("text",), label="label"),
        labels=("Ham", "ham", "eggs", "egg s", "spam"),
    )
    rows = [("ham",), ("ham", "spam"), ("Ham",), ("eggs",), ("egg s",), ("ham",)]
    items = [TaskExample(texts=("a",), label=row) for row in rows]
    notes, warnings = label_notes(task, items)
    assert notes == ["labels: ham 3, Ham 1, eggs 1, egg s 1, spam 1"]
    assert [line.partition(" differ")[0] for line in warnings] == [
        "the labels 'ham' (3) and 'Ham' (1)",
        "the labels 'eggs' (1) and 'egg s' (1)",
    ]
    assert label_notes(replace(task, labels=("ham", "spam")), items[:1])[1] == []
    many = tuple(f"label {i}" for i in range(40))
    assert label_notes(replace(task, labels=many), [])[0][0].endswith(", and 28 others")
