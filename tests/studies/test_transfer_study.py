"""A study of transfer: cells are tuned in one language, scored in others, what is done is kept."""

import random
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from unmask.cli.main import run as run_command
from unmask.config import from_dict, to_dict
from unmask.inference.open_model import load
from unmask.studies.published_studies import find_study
from unmask.studies.run_study import _check_cell, run_study
from unmask.studies.transfer import run as transfer
from unmask.studies.transfer.data import in_script, read_translations
from unmask.studies.transfer.labels import LabeledFiles, LabelWords
from unmask.studies.transfer.page import draw_transfer_plot, format_transfer_page
from unmask.studies.transfer.published import TRANSFER
from unmask.studies.transfer.result import (
    LanguageScores,
    TransferResult,
    TransferStudyResult,
    half_interval,
)
from unmask.studies.transfer.run import with_embeddings_of
from unmask.studies.transfer.study import TransferStudy

STUDY = """
kind = "TransferStudy"
question = "What is learned from <few> tokens?"
tokens = 512
rows = 20
scored_rows = 10
aligned_rows = 12
held_out = 20
epochs = 1
seeds = 2
vocab_size = 60
languages = ["en", "de", "fr"]
tasks = "text.{language}"
changes = ["batch_tokens=256", "sequence_length=96", "dev_fraction=0.1", "row_unit=document",
    "architecture.d_model=16", "architecture.n_layers=2", "architecture.n_heads=2",
    "architecture.d_ff=32"]
labels = [{label = "animal", words = ["dog", "cat"]}, {label = "place", words = ["sea", "gate"]}]
[[cells]]
name = "english"
model = "xlm-roberta-mini"
languages = ["en"]
[[cells]]
name = "paired"
model = "xlm-roberta-mini"
languages = ["en", "de", "fr"]
objective = "tlm"
is_paired = true
own_scripts = true
[[cells]]
name = "fixed"
model = "xlm-roberta-mini"
languages = ["en"]
init_from = "english"
token_factor = 0.0
tune = "top:n_layers=1"
[[cells]]
name = "vocabulary"
model = "xlm-roberta-mini"
languages = ["de"]
init_from = "english"
changes = ['frozen=["backbone.layers.*"]']
body_of = "fixed"
scored = ["de"]
"""
LABEL_WORDS = {
    "en": ["dog", "cat", "sea", "gate"],
    "de": ["hund", "katze", "meer", "tor"],
    "fr": ["chien", "chat", "mer", "porte"],
}
WORDS = {
    language: [
        *words,
        *(
            f"{words[0][:2]}{a}{b}"
            for a in "bdfglmnprst"
            for b in ("a", "e", "in", "os", "ub", "ib")
        ),
    ]
    for language, words in LABEL_WORDS.items()
}


def files_of(**changes: dict[str, str]) -> LabeledFiles:
    """Return files of pairs, English and German ones."""
    files = {"train": {"en": "train.tsv"}, "test": {"en": "dev.tsv", "de": "de.tsv"}}
    return LabeledFiles(task="pairs", **files | changes)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    draw = random.Random(0)
    rows = [[draw.randrange(4), *draw.choices(range(4, 70), k=4)] for _ in range(100)]
    for language, words in WORDS.items():
        lines = [" ".join(words[i] for i in row) for row in rows]
        (tmp_path / f"text.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "toy.toml").write_text(STUDY, encoding="utf-8")
    return tmp_path


def run_toy_study(home: Path, **more: object) -> TransferStudyResult:
    plain = {"tasks_data": home, "out": home / "out", "threads": 1, "terminal": None}
    result = run_study(home / "toy.toml", **plain | more)
    assert isinstance(result, TransferStudyResult)
    return result


def test_cells_are_tuned_once_and_scored_in_their_languages_and_a_stopped_study_goes_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finetune, calls = transfer.finetune, list[object]()

    def finetune_twice(*args: object, **options: object) -> object:
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(options["out"])
        return finetune(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(transfer, "finetune", finetune_twice)
        with pytest.raises(KeyboardInterrupt, match="continue with --resume"):
            run_toy_study(home)
    weights = (home / "out/tuned/english/seed-1/model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="this study has rows = 20, not 5"):
        run_toy_study(home, resume=True, rows=5)
    result = run_toy_study(home, resume=True)
    assert (home / "out/tuned/english/seed-1/model.safetensors").read_bytes() == weights
    assert [one.error for one in result.cell_results] == [""] * 4
    for one in result.cell_results:
        names = ["de"] if one.name == "vocabulary" else ["en", "de", "fr"]
        assert [x.language for x in one.languages] == names
        for scores in one.languages:
            assert len(scores.scores) == 2
            assert len(scores.retrieval) == (0 if scores.language == "en" else 3)
    assert not (home / "out/tuned/vocabulary").exists()
    pretrained = {name: load(home / f"out/pretrained/{name}") for name in ("english", "vocabulary")}
    before, after = (one.model.state_dict() for one in pretrained.values())
    assert torch.equal(*(x["backbone.layers.0.attention.q.weight"] for x in (before, after)))
    assert not torch.equal(*(x["backbone.tokens.weight"] for x in (before, after)))
    page = (home / "out/README.md").read_text()
    assert r"\<few> tokens" in page
    assert "vocabulary has the tuned layers of fixed" in page
    assert (home / "out/plot.svg").read_text() == draw_transfer_plot(result)
    assert run_toy_study(home, resume=True).cell_results == result.cell_results
    fixed = load(home / "out/tuned/fixed/seed-0")
    swapped = with_embeddings_of(fixed, pretrained["vocabulary"])
    assert swapped.predict(["das hund"])[0]["label"] in {"animal", "place"}
    assert swapped.tokenizer is pretrained["vocabulary"].tokenizer


def test_labeled_files_are_scored_by_language_and_embeddings_of_languages_are_told(
    home: Path,
) -> None:
    draw = random.Random(1)

    def rows_of(language: str, n: int) -> list[str]:
        """Return pairs, which entail each other if they are equal; two thirds are."""
        words = WORDS[language]
        rows: list[str] = []
        for i in range(n):
            one = " ".join(draw.choices(words, k=3))
            other = " ".join(draw.choices(words, k=3)) if i % 3 == 0 else one
            rows.append(f"{one}\t{other}\t{'no' if i % 3 == 0 else 'yes'}\t{language}")
        return rows

    for name, rows in (
        ("train", rows_of("en", 30)), ("dev", rows_of("en", 9)),
        ("others", [*rows_of("de", 12), *rows_of("fr", 6)]),
    ):  # fmt: skip
        header = "premise\thypothesis\tlabel\tlanguage"
        (home / f"{name}.tsv").write_text("\n".join([header, *rows]) + "\n")
    before = STUDY.partition("labels = ")[0]
    toy = (
        before
        + """[labeled]
task = "pairs"
by = "language"
train = {en = "train.tsv"}
test = {en = "dev.tsv", de = "others.tsv", fr = "others.tsv"}
[[cells]]
name = "xlm"
model = "xlm-mini"
languages = ["de", "en"]
"""
    )
    (home / "toy.toml").write_text(toy)
    result = run_toy_study(home, seeds=1, rows=12)
    (cell,) = result.cell_results
    assert [(one.language, one.n_rows, one.metric) for one in cell.languages] == [
        ("en", 9, "accuracy"), ("de", 12, "accuracy"), ("fr", 6, "accuracy")
    ]  # fmt: skip
    tuned = load(home / "out/tuned/xlm/seed-0")
    assert tuned.tokenizer.special_ids.text_languages == (1,)  # English, after German
    german = home / "german.tsv"
    german.write_text("\n".join((home / "others.tsv").read_text().splitlines()[:13]) + "\n")
    alone = tuned.with_text_language("de").score(german)["accuracy"]
    assert cell.scores_in("de").scores == (pytest.approx(100 * alone),)
    assert result.to_table()[1][-1][-3:] == ["66.7"] * 3
    page = (home / "out/README.md").read_text()
    assert "labeled rows (9 of en, 12 of de, 6 of fr)" in page
    (home / "others.tsv").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no others\.tsv, plain or compressed"):
        run_toy_study(home, out=home / "other")


def test_no_line_is_read_twice_and_pairs_are_translations(home: Path, tmp_path: Path) -> None:
    study = find_study(home / "toy.toml")
    assert isinstance(study, TransferStudy)
    read = read_translations(study, study.find_files(home))
    paired = replace(study.cells[1], own_scripts=False)
    sources = read.write_text(tmp_path / "lines", paired)
    assert [source.count("=") for source in sources] == [2, 2, 1, 1, 1]
    n_of = dict.fromkeys(WORDS, 0)
    for source in sources:
        sides = dict(side.split("=") for side in source.split("+"))
        texts = {k: Path(v).read_text().splitlines() for k, v in sides.items()}
        n_of = {k: n + len(texts.get(k, [])) for k, n in n_of.items()}
        for other in texts.keys() - {"en"} if "en" in texts else ():
            back = dict(zip(WORDS[other], WORDS["en"], strict=True))
            assert [" ".join(back[w] for w in t.split()) for t in texts[other]] == texts["en"]
    assert n_of["en"] == 80  # each line before the held-out ones, once
    assert n_of["de"] < 80
    tuned, scored = (read.labeled(held_out=x) for x in (False, True))
    assert max(one.line for one in tuned) < 80 <= min(one.line for one in scored)
    assert [one.label for one in tuned].count("animal") == 10
    for one in tuned:
        assert ({"dog", "cat"} & {*read.lines["en"][one.line].split()} != set()) == (
            one.label == "animal"
        )


def test_other_scripts_share_no_letter_and_keep_white_space() -> None:
    text = "Ein Hund, 3 Äpfel!"
    first, second = in_script(text, 0), in_script(text, 1)
    assert len({*first} & {*second} & {*text}) == 1  # the blank
    assert [c.isspace() for c in first] == [c.isspace() for c in text]
    assert len({*first}) == len({*text})
    assert all(c.isspace() or c.isalpha() for c in second)


def result_of(study: TransferStudy) -> TransferStudyResult:
    english = LanguageScores(
        language="en", scores=(90.0, 92.0), tokens_per_word=1.25, n_rows=400, most_frequent=16.7
    )  # fmt: skip
    german = LanguageScores(
        language="de", scores=(30.0, 34.0), tokens_per_word=1.5, retrieval=(5.0, 10.0),
        shuffled=(0.0, 0.5),
    )  # fmt: skip
    first, second, *others = (TransferResult(name=cell.name) for cell in study.cells)
    cells = (
        replace(first, parameters=1234, loss=2.5, languages=(english, german)),
        replace(second, error="<i>loss</i> is nan"),
        *others,
    )
    return TransferStudyResult(study=study, benchmarks=study.languages, cell_results=cells)


def test_page_and_picture_escape_names_and_show_what_is_missing() -> None:
    result = result_of(replace(TRANSFER, name="<b>|bold", question="<script> | *why*?"))
    names, rows = result.to_table()
    assert names == ["cell", "parameters", "held-out loss", "en", "de", "fr"]
    assert rows[0] == ["english", "1,234", "2.500", "91.0 ± 1.4", "32.0 ± 2.8", ""]
    assert rows[1][2:] == ["left out", "", "", ""]
    assert rows[-1] == ["most frequent answer", "", "", "16.7", "", ""]
    assert result.space_table()[1] == [
        ["english", "1.25", "1.50", "", "5.0 / 10.0", "", "0.5"]
    ]  # fmt: skip
    assert half_interval(50.0, 400) == pytest.approx(4.9)
    page = format_transfer_page(result)
    assert r"# \<b>\|bold" in page
    assert r"\<i>loss\</i> is nan" in page
    svg = draw_transfer_plot(result)
    ElementTree.fromstring(svg)
    assert "&lt;b&gt;" in svg
    cell = result.cell_results[0]
    assert not replace(cell, languages=()).is_done(["en"])
    assert from_dict(TransferResult, to_dict(cell)) == cell
    empty = replace(result, cell_results=tuple(TransferResult(name=c.name) for c in TRANSFER.cells))
    assert "##" not in format_transfer_page(empty)
    ElementTree.fromstring(draw_transfer_plot(empty))


def test_cells_of_the_published_study_are_valid_and_of_equal_size() -> None:
    study = find_study("transfer")
    assert isinstance(study, TransferStudy)
    sizes: dict[str, int] = {}
    for cell in study.cells:
        preset, recipe = _check_cell(study, cell)
        assert (recipe.sequence_length, recipe.batch_tokens) == (96, 1024)
        sizes[cell.name] = preset.build().parameter_count()
    depths = [sizes[name] for name in ("joint-1-layer", "joint", "joint-4-layers")]
    assert np.ptp(depths) < 0.01 * min(depths)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 0}, "rows must be at least 1, got 0"),
        ({"rows": 11}, "rows must be at least 12, two of each label, got 11"),
        ({"scored_rows": 5}, "scored_rows must be at least 6, one of each label, got 5"),
        ({"epochs": 0.0}, "epochs must be above 0, got 0"),
        ({"tasks": "text.en"}, "tasks must have {language} in its name, got 'text.en'"),
        ({"languages": ("en",)}, "languages must be two or more that differ"),
        ({"languages": ("en", "../de")}, "languages must be names like 'de', got '../de'"),
        ({"labels": ()}, r"labels \(of words\) or labeled \(files\) must be given, and not both"),
        (
            {"labels": (), "labeled": files_of(train={"de": "de.tsv"})},
            "labeled.train must have the source en, got de",
        ),
        (
            {"labels": (), "labeled": files_of(test={"en": "x", "it": "y"})},
            "labeled.test must have languages of en, de, fr, got 'it'",
        ),
        (
            {"labels": (), "labeled": files_of(), "cells": TRANSFER.cells[7:8]},
            "cell joint-no-overlap: own_scripts needs labels by words",
        ),
        (
            {"labels": (), "labeled": files_of(), "cells": TRANSFER.cells[5:6]},
            "cell german: tune_language must be of en, got 'de'",
        ),
        ({"labels": TRANSFER.labels[:1]}, "labels must be two or more that differ"),
        (
            {"labels": (*TRANSFER.labels, LabelWords(label="x", words=("lake",)))},
            "labels has the word 'lake' twice",
        ),
        (
            {"cells": (replace(TRANSFER.cells[0], languages=("it",)),)},
            "cell english: languages must be of en, de, fr, got 'it'",
        ),
        (
            {"cells": (replace(TRANSFER.cells[0], is_paired=True),)},
            "pairs need the source en and another language",
        ),
        (
            {"cells": (replace(TRANSFER.cells[0], body_of="x"),)},
            r"body_of must be a tuned cell before it \(none\), got 'x'",
        ),
        (
            {"cells": (replace(TRANSFER.cells[0], tune_language="it"),)},
            "tune_language must be of en, de, fr, got 'it'",
        ),
        ({"cells": (replace(TRANSFER.cells[0], text=("a.txt",)),)}, "text is given by its lang"),
    ],
)
def test_invalid_studies_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(TRANSFER, **change)


def test_bad_options_and_files_are_one_line_and_nothing_is_written(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(message: str, *more: str) -> None:
        given = ["study", str(home / "toy.toml"), *more, "--out", str(home / "out"), "--quiet"]
        assert run_command(given) == 2
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1, lines
        assert message in lines[0]
        assert not (home / "out").exists()

    folder = ("--tasks-data", str(home))
    refused("give their folder by --tasks-data")
    refused("leave --data out", *folder, "--data", str(home / "text.en"))
    refused("has no cell 'x' (it has english, paired", *folder, "--cells", "x")
    refused("has no text.en, plain or compressed", "--tasks-data", str(home / "none"))
    german = home / "text.de"
    german.write_text(german.read_text() + "noch eine\n")
    refused("got 100 of en, 101 of de, 100 of fr", *folder)
    (home / "text.de").unlink()
    refused("has no text.de", *folder)
