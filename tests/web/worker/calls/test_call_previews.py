"""Previews of files: what is read, and what it may be for."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unmask.web.worker.table import load_call


def preview(path: Path, **arguments: Any) -> dict[str, Any]:
    return json.loads(json.dumps(load_call("preview_table")({"file": str(path), **arguments})))


def written(folder: Path, name: str, lines: list[str]) -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def rows(header: str, row: Callable[[int], str], n: int = 20) -> list[str]:
    return [header, *map(row, range(n))]


def records(record: Callable[[int], dict[str, Any]], n: int = 20) -> list[str]:
    return [json.dumps(record(i)) for i in range(n)]


LABEL_SETS = ("joy", "joy,love", "fear", "fear,joy", "love,fear,joy")
ANSWER = {"text": ["Anna"], "answer_start": [0]}
TABLES: dict[str, tuple[str, list[str], str | None, list[str], str | None]] = {
    "classes": (
        "a.tsv", rows("sentence\tlabel", lambda i: f"number {i}\t{'good' if i % 2 else 'bad'}"),
        "classify", ["sentence"], "label",
    ),
    "unusual names": (
        "a.csv", rows("id,remark,mood", lambda i: f'{i},"long, number {i}",{"sad"[: 2 + i % 2]}'),
        "classify", ["remark"], "mood",
    ),
    "pairs": (
        "a.tsv", rows("premise\thypothesis\tlabel", lambda i: f"rain {i}\twet {i}\t{i % 3}"),
        "pairs", ["premise", "hypothesis"], "label",
    ),
    "numbers": (
        "a.tsv", rows("sentence1\tsentence2\tscore", lambda i: f"a {i}\tb {i}\t{i / 7:.3f}"),
        "regress", ["sentence1", "sentence2"], "score",
    ),
    "label sets": (
        "a.tsv", rows("text\tlabels", lambda i: f"text {i}\t{LABEL_SETS[i % 5]}"),
        "multilabel", ["text"], "labels",
    ),
    "lists of labels": (
        "a.jsonl", records(lambda i: {"text": f"text {i}", "labels": ["a", "b"][: 1 + i % 2]}),
        "multilabel", ["text"], "labels",
    ),
    "tags": (
        "a.conll", [f"Anna B-PER\nsaw O\nBerlin{i} B-LOC\n" for i in range(6)],
        "tag", ["words"], None,
    ),
    "tags in plain text": (
        "a.txt", [f"Anna B-PER\nsaw O\nBerlin{i} B-LOC\n" for i in range(6)],
        "tag", ["words"], None,
    ),
    "two languages": (
        "a.csv", rows("de,en", lambda i: f"ein Satz {i},a sentence {i}"),
        "generate", ["de"], "en",
    ),
    "options": (
        "a.csv", rows("question,A,B,answer", lambda i: f"{i}?,yes {i},no {i},{'AB'[i % 2]}"),
        "choose", ["question"], "answer",
    ),
    "answers": (
        "a.jsonl",
        records(lambda i: {"question": f"{i}?", "context": "Anna saw it", "answers": ANSWER}),
        "answer", ["question", "context"], "answers",
    ),
    "preferences": (
        "a.jsonl", records(lambda i: {"prompt": "Hi", "chosen": f"good {i}", "rejected": "bad"}),
        "prefer", ["chosen", "rejected"], None,
    ),
    "instructions": (
        "a.jsonl", records(lambda i: {"instruction": f"say {i}", "input": "", "output": f"{i}"}),
        "instruct", ["instruction", "input"], "output",
    ),
    "messages": (
        "a.jsonl",
        records(lambda i: {"messages": [
            {"role": "user", "content": f"{i}"}, {"role": "assistant", "content": "yes"},
        ]}),
        "instruct", ["messages"], None,
    ),
    "plain": ("a.txt", [f"a line of text {i}" for i in range(5)], None, ["text"], None),
    "translations": (
        "a.tsv", rows("source\ttarget", lambda i: f"ein Satz {i}\ta sentence {i}"),
        "generate", ["source"], "target",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_tasks_are_guessed_and_read(name: str, tmp_path: Path) -> None:
    file, lines, task, text, label = TABLES[name]
    found = preview(written(tmp_path, file, lines))
    assert (found["task"], found["problem"]) == (task, None), found["reason"]
    assert found["reason"]
    assert found["text"] == text
    if label is not None:
        assert found["label"] == label
    assert 0 < len(found["rows"]) <= 20
    assert str(tmp_path) not in json.dumps(found)
    if task is not None:
        assert found["n_examples"] > 0


def test_labels_are_counted_and_warned_of(tmp_path: Path) -> None:
    lines = ["text\tlabel\tsame\tnone"]
    lines += [f"text {i}\tusual\tx\t" for i in range(40)]
    lines += ["text 1\tother\tx\t", "odd\tonce\tx\t", "text 1\tother\tx\t"]
    found = preview(written(tmp_path, "a.tsv", lines))
    assert found["labels"][0] == ["usual", 40]
    assert found["n_labels"] == 3
    warned = "\n".join(found["table_warnings"])
    for line in (
        "column 'same' has the same value in every row",
        "column 'none' is empty",
        "1 row is repeated",
        "1 of 3 labels have a single row",
        "1 of 3 labels have fewer than 5 rows",
        "1 texts occur with several labels",
        "93% of the rows have the label 'usual'",
    ):
        assert line in warned


def test_other_tasks_and_columns_may_be_chosen(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", TABLES["classes"][1])
    found = preview(path, task="regress", text=["sentence"], label="label")
    assert (found["task"], found["reason"]) == ("regress", "chosen")
    assert found["problem"].startswith("a.tsv:2: ")  # the file's name alone
    with pytest.raises(ValueError, match=r"a\.bin: the name must end in \.tsv"):
        preview(written(tmp_path, "a.bin", ["x"]))
    with pytest.raises(FileNotFoundError, match="no such file"):
        preview(tmp_path / "none.tsv")


def test_options_of_any_name_may_be_told(tmp_path: Path) -> None:
    lines = rows("stem,left,right,key", lambda i: f"Which {i}?,this {i},that {i},{i % 2}")
    path = written(tmp_path, "a.csv", lines)
    assert preview(path)["task"] != "choose"
    asked = preview(path, task="choose")
    assert "which columns hold the options" in asked["problem"]
    told = preview(path, text=["stem"], label="key", choices=["left", "right"])
    assert (told["task"], told["problem"]) == ("choose", None)
    assert told["choices"] == ["left", "right"]
    assert told["labels"] == [["option 1", 10], ["option 2", 10]]


def test_answers_are_counted_as_fits_the_task(tmp_path: Path) -> None:
    few = written(tmp_path, "few.tsv", rows("text\tscore", lambda i: f"text {i}\t{i % 3 / 2}"))
    assert preview(few, task="regress")["labels"] == [["0", 7], ["0.5", 7], ["1", 6]]
    lines = rows("text\tscore", lambda i: f"text {i}\t{i / 10}", n=101)
    steps = preview(written(tmp_path, "many.tsv", lines), task="regress")["labels"]
    assert steps[0] == ["0 to 1", 10]
    assert [n for _, n in steps] == [10] * 9 + [11]
    assert preview(written(tmp_path, "a.tsv", TABLES["translations"][1]))["labels"] == []


def test_what_stands_between_labels_is_an_option(tmp_path: Path) -> None:
    sets = [one.replace(",", "; ") for one in LABEL_SETS]
    lines = rows("text\tlabels", lambda i: f"text {i}\t{sets[i % 5]}")
    found = preview(written(tmp_path, "a.tsv", lines))
    assert (found["task"], found["options"], found["n_labels"]) == (
        "multilabel", {"separator": ";"}, 3,
    )  # fmt: skip
    commas = preview(written(tmp_path, "b.tsv", TABLES["label sets"][1]))
    assert (commas["options"], commas["n_labels"]) == ({}, 3)


def test_columns_that_are_given_decide_the_task(tmp_path: Path) -> None:
    lines = ["n,comment,opinion,stars,price"]
    lines += [f"{i},Text {i}.,{'good' if i % 2 else 'bad'},{i % 5},{i}.5" for i in range(40)]
    path = written(tmp_path, "a.csv", lines)
    assert preview(path)["label"] == "stars"  # a usual name
    found = preview(path, text=["comment"], label="opinion", learned="alone")
    assert (found["task"], found["problem"], found["n_held_out"]) == ("classify", None, 4)
    assert "2 different labels in 'opinion'" in found["reason"]
    assert preview(path, text=["comment"], label="price")["task"] == "regress"
    assert preview(path, text=["comment", "n"], label="opinion")["task"] == "pairs"
    wrong = preview(path, text=["opinion"], label="comment", learned="alone")
    assert "40 labels in 40 rows: too many labels" in wrong["problem"]
    assert preview(path, text=["opinion"], label="comment", learned="with dev")["problem"] is None
    prompts = ["prompt,response,label", *(f"Say {i}.,{i}.,{i % 2}" for i in range(9))]
    path = written(tmp_path, "b.csv", prompts)
    assert preview(path)["task"] == "instruct"
    assert preview(path, text=["prompt"], label="label")["task"] == "classify"


def test_pictures_are_counted_and_shown_small(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="the extra 'images' is not installed")
    for label in ("cats", "dogs"):
        (tmp_path / "animals" / label).mkdir(parents=True)
        for i in range(8):
            image.new("RGB", (200, 100), (30 * i, 0, 0)).save(
                tmp_path / "animals" / label / f"{i}.png"
            )
    call = load_call("preview_pictures")
    found = call({"file": str(tmp_path / "animals")})
    assert found["labels"] == [("cats", 8), ("dogs", 8)]
    assert (found["n_examples"], found["n_held_out"], found["problem"]) == (16, 2, None)
    assert [one["label"] for one in found["pictures"]] == ["cats"] * 6 + ["dogs"] * 6
    (tmp_path / "animals" / "cats" / "0.png").write_bytes(b"no picture")
    assert "0.png" in call({"file": str(tmp_path / "animals")})["problem"]


def test_pictures_to_learn_from_are_looked_at(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="the extra 'images' is not installed")
    call = load_call("preview_images")
    emoji = call({"files": ["demo:emoji"], "n": 6})
    assert emoji["counts"] == {"pictures": 360, "captions": 360}
    assert len({one["label"] for one in emoji["pictures"]}) == emoji["n_labels"] == 6
    (tmp_path / "some").mkdir()
    for i in range(3):
        image.new("L", (8, 6), 20 * i).save(tmp_path / "some" / f"{i}.png")
    found = call({"files": [str(tmp_path / "some")]})
    assert [one["size"] for one in found["pictures"]] == [[8, 6]] * 3
    (tmp_path / "some" / "0.png").write_bytes(b"no picture")
    assert "0.png" in call({"files": [str(tmp_path / "some")]})["problem"]


def test_spreadsheets_of_other_countries_are_rewritten(tmp_path: Path) -> None:
    call = load_call("rewrite_table")
    rows = ["text;label;price", *(f'"Schön; {i}";{"ab"[i % 2]};1,5' for i in range(10))]
    (tmp_path / "a.csv").write_bytes("\r\n".join(rows).encode("cp1252"))
    assert call({"file": str(tmp_path / "a.csv")})["name"] == "a-utf8.csv"
    found = preview(tmp_path / "a-utf8.csv")
    assert found["rows"][0] == ["Schön; 0", "a", "1,5"]
    assert (found["task"], found["label"]) == ("classify", "label")
    (tmp_path / "c.csv").write_text('text,label\n"never ends,a\n')
    with pytest.raises(ValueError, match=r"^c\.csv:2: a quote opens a field that never ends"):
        call({"file": str(tmp_path / "c.csv")})


def test_headers_may_be_given(tmp_path: Path) -> None:
    lines = [f"text number {i}\t{i % 2}" for i in range(10)]
    found = preview(written(tmp_path, "a.tsv", lines), columns=["text", "label"])
    assert (found["task"], found["n_rows"]) == ("classify", 10)


def test_texts_are_shown_as_they_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", ["One.", "Two.", "", "Three."])
    call = load_call("preview_text")
    found = call({"files": [str(path)]})
    assert [one["text"] for one in found["documents"]] == ["One.\nTwo.", "Three."]
    assert [one["location"] for one in found["documents"]] == ["a.txt:1", "a.txt:4"]
    assert found["counts"] == {
        "documents": 2, "characters": 15, "words": 3, "paragraphs": 3, "replaced": 0,
    }  # fmt: skip
    assert (found["complete"], found["problem"]) == (True, None)
    lines = call({"files": [str(path)], "document_separator": "line", "n": 1})
    assert (len(lines["documents"]), lines["counts"]["documents"]) == (1, 3)
    path.write_bytes(b"Good.\n\nBad \xff byte.\n")
    broken = call({"files": [str(path)]})
    assert broken["problem"].startswith("a.txt:3")
    assert not broken["complete"]
    mended = call({"files": [str(path)], "encoding_errors": "replace"})
    assert (mended["counts"]["replaced"], mended["problem"]) == (1, None)
    with pytest.raises(ValueError, match="n must be from 1 to 100"):
        call({"files": [str(path)], "n": 0})
