"""Scores by group: a file or a value each, in its language, beside a constant answer."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from toy_text import corpus

from unmask.cli.main import run as run_command
from unmask.finetuning.results.score_groups import score_groups, split_table
from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline
from unmask.jobs.finetune import finetune
from unmask.tasks.readers.tables import Table, read_table
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import BPE
from unmask.zoo.catalogue import MODELS


def write_rows(path: Path, n: int, *, language: str = "", seed: int = 0) -> Path:
    """Write rows of which two thirds have the label "sea"."""
    draw, words = random.Random(seed), corpus(5).replace(".", "").split()
    lines = ["\t".join(["review", "label", *["language"] * bool(language)])]
    for i in range(n):
        label = "moon" if i % 3 == 0 else "sea"
        text = " ".join([*draw.choices(words, k=4), label])
        lines.append("\t".join([text, label, *[language] * bool(language)]))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a classifier of XLM, tuned in English."""
    home = tmp_path_factory.mktemp("run")
    frame = replace(MODELS["xlm-mini"].tokenizer.special_tokens, languages=("de", "en"))
    spec = TokenizerSpec(BPE(vocab_size=120), frame)
    train_tokenizer(spec, corpus(20).splitlines()).save(home / "tokenizer")
    finetune(
        "xlm-mini", task="classify", train=write_rows(home / "train.tsv", 40), text="review",
        tokenizer=home / "tokenizer", language="en", epochs=1.0, out=home / "run", terminal=None,
    )  # fmt: skip
    return home / "run"


@pytest.fixture(scope="module")
def model(run: Path) -> Pipeline:
    return load(run)


@pytest.mark.thorough
def test_each_file_is_scored_in_its_language(run: Path, model: Pipeline, tmp_path: Path) -> None:
    files = {name: write_rows(tmp_path / name, 30) for name in ("en.tsv", "de.tsv")}
    named = {"en": files["en.tsv"], "de": files["de.tsv"]}
    first, second = score_groups(model.loaded_model, named, task=model.task, in_languages=True)
    for one in (first, second):
        alone = load(run).with_text_language(one.name).score(named[one.name])
        assert one.metrics == pytest.approx(alone, rel=1e-6)
        assert (one.n_rows, one.most_frequent) == (30, pytest.approx(20 / 30))
    assert first.metrics["loss"] != second.metrics["loss"]  # equal rows, other embeddings
    plain = score_groups(model.loaded_model, named, task=model.task)
    assert plain[1].metrics == pytest.approx(first.metrics, rel=1e-6)
    message = "group fr: a language must be one of de, en, got 'fr'; --language"
    with pytest.raises(ValueError, match=message):
        score_groups(model.loaded_model, {"fr": files["de.tsv"]}, in_languages=True)


def test_columns_of_the_task_stay_known_in_another_language(model: Pipeline) -> None:
    told = model.with_text_language("de")
    assert told.task == model.task
    assert told.required_task().columns.texts == ("review",)


def test_values_of_a_column_are_groups(model: Pipeline, tmp_path: Path) -> None:
    de = write_rows(tmp_path / "de.tsv", 12, language="de", seed=1)
    en = write_rows(tmp_path / "en.tsv", 9, language="en", seed=2)
    both = tmp_path / "both.tsv"
    both.write_text(de.read_text() + en.read_text().partition("\n")[2])
    split = score_groups(
        model.loaded_model, {"": both}, by="language", task=model.task, in_languages=True
    )
    files = score_groups(
        model.loaded_model, {"de": de, "en": en}, task=model.task, in_languages=True
    )
    assert [one.name for one in split] == ["de", "en"]
    for one, other in zip(split, files, strict=True):
        assert one.n_rows == other.n_rows
        assert one.metrics == pytest.approx(other.metrics, rel=1e-6)


def test_splitting_names_the_line_of_a_missing_value(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text("text\tlanguage\na\tde\nb\t\n")
    with pytest.raises(ValueError, match=r"rows.tsv:3: language must have a value"):
        split_table(read_table(path), "language")
    many = Table(path=path, columns=("text",), rows=[(i, (f"text {i}",)) for i in range(201)])
    with pytest.raises(ValueError, match="text must have at most 200 values, got 201"):
        split_table(many, "text")


def test_command_prints_one_table(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    en, de = (str(write_rows(tmp_path / f"test.{name}.tsv", 6)) for name in ("en", "de"))
    assert run_command(["evaluate", str(run), "--data", f"en={en}", f"de={de}", "--json"]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert [(one["name"], one["n_rows"]) for one in groups] == [("en", 6), ("de", 6)]
    assert run_command(["evaluate", str(run), "--data", en, de]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split()[:5] == ["group", "rows", "accuracy", "most", "frequent"]
    assert [row.split()[:2] for row in rows] == [[en, "6"], [de, "6"]]
    same = ["evaluate", str(run), "--data", f"de={en}", f"de={de}"]
    assert run_command(same) == 2
    assert "each file needs a name of its own, got ['de', 'de']" in capsys.readouterr().err
    ensemble = ["evaluate", str(run), "--data", f"de={de}", "--ensemble", str(run)]
    assert run_command(ensemble) == 2
    assert "--ensemble scores one file" in capsys.readouterr().err
