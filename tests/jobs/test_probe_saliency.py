"""`unmask probe --analysis saliency`: files, page, tables of labels and texts, and bad input."""

import json
from pathlib import Path

import pytest
from small_models import make, texts

import unmask
from unmask.cli.main import run

SETTINGS = "saliency:steps=6,draws=2,texts=4,shown=3"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    kinds = {
        "classifier": ("bert", "BertForSequenceClassification"),
        "tagger": ("bert", "BertForTokenClassification"),
        "masked": ("bert", "BertForMaskedLM"),
        "decoder": ("gpt2", None),
        "both": ("t5", None),
        "nothing": ("bert", "BertModel"),
    }
    for name, (family, kind) in kinds.items():
        make(family, folder / name, kind)
    return {name: folder / name for name in kinds}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.tsv"
    rows = [f"{text} <i>&\t{i % 2}" for i, text in enumerate(texts(6, most=6))]
    path.write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("The dog sees the cat and sleeps. " * 6, encoding="utf-8")
    return path


def test_files_and_page_of_labels(models: dict[str, Path], table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    reports = unmask.probe(
        models["classifier"], analysis=SETTINGS, data=table, out=out, terminal=None
    )
    assert sorted(p.name for p in out.iterdir() if p.suffix != ".svg") == [
        "saliency.html", "saliency.json", "saliency.md",
    ]  # fmt: skip
    found = json.loads((out / "saliency.json").read_text())
    assert found == json.loads(json.dumps(reports["saliency"].json))
    assert (found["decides"], found["baseline"], found["n_texts"]) == ("labels", "mask", 4)
    assert found["accuracy"] == sum(t["predicted"] == t["target"] for t in found["texts"]) / 4
    names = ["integrated_gradients", "gradient_x_input", "occlusion", "attention_rollout", "random"]
    assert [one["method"] for one in found["methods"]] == names
    assert all(one["rank_correlation"] is not None for one in found["methods"][:-1])
    for text in found["texts"]:
        n_words = max(text["words"]) + 1
        assert all(len(words) == n_words for words in text["attributions"].values())
        total = sum(text["attributions"]["integrated_gradients"])
        assert abs(total - text["difference"]) == pytest.approx(text["completeness_gap"], abs=1e-4)
    page = (out / "saliency.html").read_text()
    assert page.count('class="explained"') == 3
    assert "&lt;i&gt;&amp;" in page
    assert "<i>&" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "| occlusion |" in (out / "saliency.md").read_text()


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["masked", "decoder", "both"])
def test_tokens_of_language_models(
    name: str, models: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    text = "the dog sees" if name == "decoder" else "the [MASK] sees"
    report = unmask.probe(
        models[name], analysis=SETTINGS, data=corpus, text=text, out=tmp_path / "out",
        control=False, terminal=None,
    )["saliency"]  # fmt: skip
    found = report.findings
    assert found.decides == "tokens"
    assert len(found.texts) == 5
    assert found.texts[0].target is None
    assert all(one.target is not None for one in found.texts[1:])
    assert (found.left_out is None) == (name != "both")
    assert all(one.rank_correlation is None for one in found.methods)


def test_bad_input_is_one_line_and_nothing_is_written(
    models: dict[str, Path], table: Path, corpus: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    short, out = tmp_path / "short.txt", tmp_path / "out"
    short.write_text("Two words. ")
    for name, arguments, message in (
        ("classifier", [], "no texts: name a file"),
        ("classifier", ["--data", str(corpus)], "columns"),
        ("tagger", ["--data", str(table)], ""),
        ("tagger", ["--text", "the dog"], "fine-tuned to tag"),
        ("nothing", ["--text", "the [MASK] dog"], "no language-model head"),
        ("masked", ["--text", "the dog"], "must have one [MASK]"),
        ("masked", ["--data", str(short)], "no sentence of 5 to 60 words"),
        ("masked", ["--data", str(tmp_path / "none.txt")], "none.txt"),
    ):
        given = ["probe", str(models[name]), "--analysis", "saliency", *arguments]
        assert run([*given, "--out", str(out)]) == 2
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1, lines
        assert message in lines[0]
        assert not out.exists()
    for settings, message in (
        ("steps=0", "steps must be at least 1"),
        ("methods=lime", "methods must be of integrated_gradients, "),
        ("baseline=noise", "baseline"),
        ("methods=attention_rollout", "attention rollout is of one stack"),
        ("baseline=mask", "pad or zero for a tokenizer without a mask"),
    ):
        given = ["probe", str(models["both"]), "--analysis", f"saliency:{settings}"]
        assert run([*given, "--text", "the [MASK] dog", "--out", str(out)]) == 2
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1, lines
        assert message in lines[0]
