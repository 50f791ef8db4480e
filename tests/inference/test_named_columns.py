"""Texts and pairs given to classifiers: every source gives equal numbers, by equal names."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import make, texts

from unmask.cli.main import run
from unmask.inference.ensemble import Ensemble
from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline
from unmask.tasks.task import Task, TaskColumns

PAIRS = list(zip(texts(3), texts(3, seed=1), strict=True))
SINGLE = texts(3, seed=2)
HEADS = {
    "classify": {"num_labels": 3},
    "regress": {"num_labels": 1},
    "multilabel": {"num_labels": 3, "problem_type": "multi_label_classification"},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, tuple[Any, Path]]:
    """Classifiers of another library: their folders do not record whether they read pairs."""
    found = {}
    for name, how in HEADS.items():
        folder = tmp_path_factory.mktemp(name)
        found[name] = (make("bert", folder, "BertForSequenceClassification", **how)[0], folder)
    return found


def theirs(reference: Any, folder: Path, given: tuple[str, ...]) -> torch.Tensor:
    """Read as BertTokenizer does: [CLS] a [SEP] b [SEP], the second of type 1."""
    tokenizer = load(folder).tokenizer
    cls, sep = tokenizer.special_ids.prefix[0], tokenizer.special_ids.suffix[0]
    ids, types = [cls], [0]
    for i, text in enumerate(given):
        new = [*tokenizer.encode(text).ids.tolist(), sep]
        ids, types = ids + new, types + [i] * len(new)
    with torch.no_grad():
        reference.eval()
        read = {"input_ids": torch.tensor([ids]), "token_type_ids": torch.tensor([types])}
        return reference(**read).logits[0]


def expected(kind: str, logits: torch.Tensor) -> list[float]:
    if kind == "regress":
        return logits.tolist()
    return (logits.softmax(-1) if kind == "classify" else logits.sigmoid()).tolist()


def numbers(answer: Any) -> list[float]:
    if isinstance(answer, dict):
        found = answer["probabilities"] if "probabilities" in answer else answer["number"]
        found = found.values() if isinstance(found, dict) else found
        return list(found) if not isinstance(found, float) else [found]
    return [float(answer)]


def write(path: Path, names: tuple[str, ...], rows: list[tuple[str, ...]]) -> Path:
    if path.suffix == ".txt":
        path.write_text("".join("\t".join(row) + "\n" for row in rows))
    elif path.suffix in (".tsv", ".csv"):
        mark = "\t" if path.suffix == ".tsv" else ","
        path.write_text("".join(mark.join(row) + "\n" for row in [names, *rows]))
    elif path.suffix == ".jsonl":
        lines = (json.dumps(dict(zip(names, row, strict=True))) for row in rows)
        path.write_text("\n".join(lines))
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
        parquet.write_table(pyarrow.table(columns), path)
    return path


def run_json(capsys, *words: str) -> list[Any]:
    assert run(words) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("given", [PAIRS, [(text,) for text in SINGLE]], ids=["pairs", "texts"])
def test_each_source_gives_the_numbers_of_transformers(
    kind, given, folders, tmp_path, capsys, monkeypatch
) -> None:
    reference, folder = folders[kind]
    right = [expected(kind, theirs(reference, folder, one)) for one in given]
    two = len(given[0]) == 2
    customary = ("premise", "hypothesis") if two else ("sentence",)
    odd = ("left", "right")[: len(given[0])]
    name = [word for column in odd for word in ("--text", column)]
    command = ["predict", str(folder), "--device", "cpu"]
    sources = {"arguments": [*command, *map("\t".join, given)]}
    for ending in (".txt", ".tsv", ".csv", ".jsonl", ".parquet"):
        file = write(tmp_path / f"a{ending}", customary, given)
        sources[ending] = [*command, "--input", str(file)]
        if ending != ".txt":
            file = write(tmp_path / f"b{ending}", odd, given)
            sources[f"{ending} named"] = [*command, "--input", str(file), *name]
        if ending in (".tsv", ".csv"):
            file = write(tmp_path / f"c{ending}", given[0], given[1:] + given[:1])
            columns = ["--columns", ",".join(odd)]
            sources[f"{ending} headless"] = [*command, "--input", str(file), *columns, *name]
    sources["stdin"] = command
    lines = "".join("\t".join(one) + "\n" for one in given).encode()
    for source, words in sources.items():
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
        found = [numbers(answer) for answer in run_json(capsys, *words)]
        order = [0, 1, 2, 0] if "headless" in source else [0, 1, 2]
        assert len(found) == len(order), source
        for one, i in zip(found, order, strict=True):
            assert one == pytest.approx(right[i], abs=2e-5), source
    pipeline = load(folder)
    plain = list(given) if two else SINGLE
    for one, ours in zip(pipeline.predict(plain), right, strict=True):
        assert numbers(one) == pytest.approx(ours, abs=2e-5)
    assert pipeline.read_inputs(tmp_path / "b.tsv", text=odd) == plain
    if kind != "multilabel":
        together = Ensemble([pipeline, pipeline])
        for one, ours in zip(together.predict(plain), right, strict=True):
            assert numbers(one) == pytest.approx(ours, abs=2e-5)


def test_ensemble_of_multilabel_models_is_refused(folders) -> None:
    with pytest.raises(ValueError, match="ensembles need classify, pairs, regress"):
        Ensemble([folders["multilabel"][1]])


@pytest.mark.thorough
def test_pairs_are_scored_by_named_and_customary_columns(folders, tmp_path, capsys) -> None:
    reference, folder = folders["classify"]
    labels = load(folder).label_names
    best = [labels[int(theirs(reference, folder, one).argmax())] for one in PAIRS]
    rows = [(*pair, label) for pair, label in zip(PAIRS, best, strict=True)]
    a = write(tmp_path / "a.tsv", ("premise", "hypothesis", "label"), rows)
    b = write(tmp_path / "b.tsv", ("left", "right", "gold"), rows)
    command = ["evaluate", str(folder), "--json", "--device", "cpu"]
    assert run_json(capsys, *command, "--data", str(a))[0]["accuracy"] == 1
    named = ["--text", "left", "--text", "right", "--label", "gold"]
    assert run_json(capsys, *command, "--data", str(b), *named)[0]["accuracy"] == 1
    for words, line in (
        (["--text", "left", "--text", "right", "--text", "gold"], "reads 1 or 2 columns of text"),
        (["--text", "up"], "no column 'up'"),
        (["--text", "left", "--label", "up"], "no column 'up'"),
        (["--choices", "left"], "choices are of a model that chooses"),
        (["--sequence-length", "3"], "--sequence-length applies to held-out text only"),
    ):
        assert run([*command, "--data", str(b), *words]) == 2
        assert line in capsys.readouterr().err


def test_incompatible_options_are_refused(folders, tmp_path, capsys, caplog) -> None:
    _, folder = folders["classify"]
    command = ["predict", str(folder), "--device", "cpu"]
    for words, line in (
        (["a\tb", "c"], "text 2 is a text"),
        (["c", "a\tb"], "text 2 is a pair of texts"),
        (["a\tb\tc"], "text 1 must be a pair of texts"),
        (["a", "--text", "x"], "--text needs --input"),
        (["a", "--columns", "x"], "--columns needs --input"),
    ):
        assert run([*command, *words]) == 2
        err = capsys.readouterr().err
        assert line in err
        assert err.count("\n") == 1
    (tmp_path / "a.txt").write_text("a\n")
    assert run([*command, "--input", str(tmp_path / "a.txt"), "--text", "x"]) == 2
    assert "a .txt file has no columns" in capsys.readouterr().err
    both = write(tmp_path / "a.tsv", ("text", "premise", "hypothesis"), [("a", "b", "c")])
    assert load(folder).read_inputs(both) == [("b", "c")]
    assert "pairs are read, of 'premise' and 'hypothesis'; --text names other" in caplog.text
    assert load(folder).read_inputs(both, text="text") == ["a"]


@pytest.mark.parametrize(
    ("kind", "own", "names", "row", "plain"),
    [
        ("classify", ("text",), ("x",), ("a",), "a"),
        ("pairs", ("a", "b"), ("x", "y"), ("a", "b"), ("a", "b")),
        ("regress", ("a", "b"), ("x", "y"), ("a", "b"), ("a", "b")),
        ("multilabel", ("text",), ("x",), ("a",), "a"),
        ("cloze", ("text",), ("x",), ("a",), "a"),
        ("generate", ("source",), ("x",), ("a",), "a"),
        ("answer", ("question", "context"), ("x", "y"), ("a", "b"),
         {"question": "a", "context": "b"}),
    ],
)  # fmt: skip
def test_columns_can_be_named_for_every_kind_of_task(
    kind, own, names, row, plain, folders, tmp_path
) -> None:
    task = Task(task_kind=kind, columns=TaskColumns(texts=own, label="label"), max_length=40)
    pipeline = Pipeline(load(folders["classify"][1]).loaded_model, task)
    path = write(tmp_path / "a.jsonl", (*names, "other"), [(*row, "z")])
    assert pipeline.read_inputs(path, text=names) == [plain]
    with pytest.raises(ValueError, match=f"reads {len(own)} columns of text, got 3"):
        pipeline.read_inputs(path, text=("x", "x", "x"))
    with pytest.raises(ValueError, match=r"a\.jsonl: no column 'none'"):
        pipeline.read_inputs(path, text=("none",))


def test_columns_of_words_and_options_can_be_named(folders, tmp_path) -> None:
    loaded = load(folders["classify"][1]).loaded_model
    tag = Task(task_kind="tag", columns=TaskColumns(texts=("words",), label="tags"), max_length=40)
    (tmp_path / "a.jsonl").write_text('{"x": ["a", "b"]}')
    assert Pipeline(loaded, tag).read_inputs(tmp_path / "a.jsonl", text="x") == [["a", "b"]]
    columns = TaskColumns(texts=("q",), label="label", choices=("o",))
    choose = Task(task_kind="choose", columns=columns, max_length=40)
    (tmp_path / "b.jsonl").write_text('{"x": "a", "y": ["b", "c"]}')
    found = Pipeline(loaded, choose).read_inputs(tmp_path / "b.jsonl", text="x", choices="y")
    assert [one["choices"] for one in found] == [["b", "c"]]
    assert "a" in found[0].values()
