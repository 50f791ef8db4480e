"""`unmask probe --analysis probes`: files, page and figure for each kind of network; bad input."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from small_models import tokenizer
from toy_text import corpus

import unmask
from unmask.analysis.probes.features import random_weights, word_features
from unmask.analysis.probes.layers import ProbedWords, ProbingData, majority_accuracy, probe_layers
from unmask.analysis.probes.probe import ProbeSettings
from unmask.cli.main import run
from unmask.inference.pipeline import Pipeline
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.vocabulary import WordBytesWithWords
from unmask.zoo.catalogue import MODELS

TREE = "".join(
    f"{i}\t{{}}\t_\t{tag}\t_\t_\t{head}\t{relation}\t_\t_\n"
    for i, tag, head, relation in (
        (1, "DET", 2, "det"), (2, "NOUN", 3, "nsubj"), (3, "VERB", 0, "root"),
        (4, "ADV", 3, "advmod"), (5, "PUNCT", 3, "punct"),
    )
)  # fmt: skip
SENTENCES = [
    (a, b, c, d, ".")
    for a in ("the", "a")
    for b in ("king", "<b>")
    for c in ("saw", "sees")
    for d in ("now", "then")
]
SETTINGS = "probes:max_epochs=3,rank=2"


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    path = tmp_path / "trees.conllu"
    path.write_text("\n".join(TREE.format(*words) for words in SENTENCES), encoding="utf-8")
    return path


@pytest.mark.thorough
def test_files_and_page(model: Path, trees: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    reports = unmask.probe(model, analysis=SETTINGS, data=trees, out=out, seed=3, terminal=None)
    assert sorted(p.name for p in out.iterdir()) == [
        "probes-layers.svg", "probes.html", "probes.json", "probes.md",
    ]  # fmt: skip
    found = json.loads((out / "probes.json").read_text())
    assert found == json.loads(json.dumps(reports["probes"].json))
    assert (found["n_fit"], found["n_stop"], found["n_scored"]) == (7, 1, 8)
    assert list(found["tasks"]) == ["tags", "relations"]
    assert found["tasks"]["tags"]["words"] == {"fit": 35, "stop": 5, "scored": 40}
    assert found["tasks"]["relations"]["words"] == {"fit": 21, "stop": 3, "scored": 24}
    opened = unmask.load(model)
    tags = [["DET", "NOUN", "VERB", "ADV", "PUNCT"]] * 8
    parts = [SENTENCES[:4] + SENTENCES[5:8], SENTENCES[4:5], SENTENCES[8:]]
    for name, network in (("trained", opened.model), ("random", random_weights(opened.model, 3))):
        data = ProbingData(
            *(
                ProbedWords.of_sentences(
                    word_features(network, opened.tokenizer, part), part, tags[: len(part)]
                )
                for part in parts
            )
        )
        wanted = probe_layers(data, ProbeSettings(max_epochs=3, seed=3))
        layers = found["tasks"]["tags"]["networks"][name]["layers"]
        for one, layer in zip(wanted, layers, strict=True):
            assert layer["accuracy"] == pytest.approx(one.accuracy, abs=1e-6)
            assert layer["selectivity"] == pytest.approx(one.selectivity, abs=1e-6)
            assert layer["compression"] == pytest.approx(one.description_length.compression, 1e-4)
        assert found["tasks"]["tags"]["majority_accuracy"] == majority_accuracy(data)
        scores = found["trees"]["networks"][name]
        assert [one["layer"] for one in scores["distances"]] == [one["layer"] for one in layers]
        assert scores["depths"][0]["chain_root_accuracy"] == 0
        assert scores["distances"][0]["chain_uuas"] == 1
    page = (out / "probes.html").read_text()
    assert not re.search(r"(src|href)=\"http://|<script src", page)
    assert page.count('data-plot="') == 5 + 5 + 4
    assert "at layer 0" in page  # what a screen reader says
    assert ElementTree.parse(out / "probes-layers.svg").getroot().tag.endswith("svg")
    table = (out / "probes.md").read_text()
    assert "## Dependency relations" in table
    assert "| mix " in table
    assert "| chain " in table


def test_labels_of_a_file_of_tags(model: Path, tmp_path: Path) -> None:
    data = tmp_path / "chunks.txt"
    rows = ["the DT B-NP\nking NN I-NP\nsaw VBD B-VP\n", "a DT B-NP\nsea NN I-NP\nran VBD B-ADVP\n"]
    data.write_text("\n".join(rows * 3))
    for column, n_labels in (("none", 4), ("2", 3)):
        out = tmp_path / column
        analysis = f"{SETTINGS},mix=false,label_column={column}"
        report = unmask.probe(model, analysis=analysis, data=data, out=out, terminal=None)
        found = json.loads((out / "probes.json").read_text())
        assert list(found["tasks"]) == (["labels", "spans"] if column == "none" else ["labels"])
        assert found["tasks"]["labels"]["labels"] == n_labels
        assert found["tasks"]["labels"]["networks"]["trained"]["mix"] is None
        assert found["trees"] is None
        assert "Scalar mix" not in report["probes"].html
        assert "Hewitt and Liang" in report["probes"].html
        assert ("Tenney" in report["probes"].html) == (column == "none")  # spans, but no mix
        assert "Manning" not in report["probes"].html
    assert "## Spans" not in (tmp_path / "2" / "probes.md").read_text()


def test_pairs_of_spans(model: Path, tmp_path: Path) -> None:
    data = tmp_path / "roles.jsonl"
    names = ("the king", "<b> x", "a ship")
    rows = [
        {
            "text": f"{a} saw {b} .",
            "targets": [
                {"span1": [2, 3], "span2": [0, 2], "label": "ARG0"},
                {"span1": [2, 3], "span2": [3, 5], "label": "<i>"},
            ],
        }
        for a in names
        for b in names
    ]
    data.write_text("\n".join(map(json.dumps, rows)))
    out = tmp_path / "out"
    analysis = f"{SETTINGS},projection_size=8"
    report = unmask.probe(model, analysis=analysis, data=data, out=out, terminal=None)["probes"]
    found = json.loads((out / "probes.json").read_text())
    assert list(found["tasks"]) == ["spans"]
    spans = found["tasks"]["spans"]
    assert spans["words"] == {"fit": 6, "stop": 2, "scored": 10}
    assert spans["labels"] == 2
    mix = spans["networks"]["random"]["mix"]
    assert sum(mix["layer_weights"]) == pytest.approx(1, abs=1e-4)  # rounded
    assert "votes of words" in report.html
    assert "1905.06316" in report.html
    one_span = tmp_path / "types.jsonl"
    one_span.write_text(
        "\n".join(
            json.dumps({"text": "the king saw", "targets": [{"span1": [0, 2], "label": label}]})
            for label in "abababab"
        )
    )
    with pytest.raises(ValueError, match=r"types.jsonl has targets of 1 and .*roles.jsonl of 2"):
        unmask.probe(model, analysis=SETTINGS, data=data, train=one_span, out=tmp_path / "no")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "family", "mixed"),
    [
        ("gpt2-mini", "gpt2", True),
        ("t5-mini", "t5", True),
        ("lstm-mini", "bert", False),
        ("elmo-mini", None, True),
    ],
)
def test_all_kinds_of_networks_are_probed(
    name: str, family: str | None, mixed: bool, model: Path, trees: Path, tmp_path: Path
) -> None:
    if family is None:
        spelled = replace(MODELS[name].tokenizer, vocabulary=WordBytesWithWords(40))
        known = train_tokenizer(spelled, corpus(20).splitlines())
    else:
        known = tokenizer(family)
    network = MODELS[name].with_vocabulary(known.special_ids).build().initialize(0)
    loaded = replace(unmask.load(model).loaded_model, model=network, tokenizer=known)
    report = unmask.probe(
        Pipeline(loaded), analysis=SETTINGS, data=trees, out=tmp_path / "out", control=False,
        terminal=None,
    )["probes"]  # fmt: skip
    n_layers = network.backbone.encoder_stack.n_token_layers + 1
    tags, relations = report.findings.labels
    assert len(tags.networks[0].layers) == len(relations.networks[0].layers) == n_layers
    assert len(report.findings.trees.networks[0].depths) == n_layers
    assert (tags.networks[0].mix is not None) == mixed
    assert ("different widths" in report.html) != mixed
    assert report.table[1][0][:2] == ["parts of speech", "trained"]


def test_bad_input_is_one_line_and_nothing_is_written(
    model: Path, trees: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flat, empty, tags = (tmp_path / name for name in ("flat.conllu", "empty.conllu", "tags.txt"))
    flat.write_text("1\ta\t_\tDET\t_\t_\t_\t_\t_\t_\n\n" * 6)
    empty.write_text("")
    tags.write_text("a DT\nb NN\n\n" * 6)
    spans = tmp_path / "spans.jsonl"
    spans.write_text(
        '{"text": "a b", "targets": []}\n{"text": "a b", "targets": [{"span1": [1, 3]}]}'
    )
    alone = tmp_path / "alone.conllu"
    alone.write_text("\n".join(TREE.format(*words) for words in SENTENCES[:3]))
    out, given = tmp_path / "out", [str(model), "--data", str(trees), "--analysis"]
    for arguments, message in (
        ([*given, "probes:tasks=dreams"], "tasks must be of tags, relations, labels"),
        ([*given, "probes:tasks=tags+labels"], "tasks of a CoNLL-U file are tags"),
        ([*given, "probes:sentences=1"], "sentences must be at least 2, got 1"),
        ([*given, "probes:hidden_size=0"], "hidden_size must be at least 1, got 0"),
        ([*given, "probes:projection_size=0"], "projection_size must be at least 1, got 0"),
        (
            [str(model), "--analysis", "probes", "--data", str(spans)],
            "spans.jsonl:2: targets[0]: l",
        ),
        ([*given, "probes:rank=0"], "rank must be at least 1, got 0"),
        ([*given, "probes", "--train", str(tags)], "tags.txt has labels"),
        ([str(model), "--analysis", "probes"], "no data: name a file"),
        ([str(model), "--analysis", "probes", "--data", str(flat)], "no dependency tree"),
        ([str(model), "--analysis", "probes:tasks=tags", "--data", str(flat)], "two labels"),
        ([str(model), "--analysis", "probes", "--data", str(empty)], "empty"),
        ([str(model), "--analysis", "probes", "--data", str(alone)], "--train"),
        ([*given, "probes", "--train", str(tmp_path / "no.conllu")], "no such file"),
    ):
        assert run(["probe", *arguments, "--out", str(out), "--quiet"]) == 2
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1, lines
        assert message in lines[0]
        assert not out.exists()
