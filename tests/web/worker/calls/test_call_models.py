"""Calls about models: facts, generation, predictions, vectors, analysis, hiding, export."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import make, texts

from unmask.bundled.models import BUNDLED_MODELS
from unmask.inference.open_model import load
from unmask.jobs.catalogue.hide import hide as hide_text
from unmask.jobs.finetune import finetune
from unmask.tasks.kind_names import TaskKindName
from unmask.web.worker.__main__ import describe_error
from unmask.web.worker.open_models import OpenModels
from unmask.web.worker.table import CALLS, load_call
from unmask.zoo.catalogue import MODELS

BUNDLED = next(iter(BUNDLED_MODELS))


def ask(name: str, **arguments: Any) -> Any:
    """Make a call; what it answers is JSON."""
    value = load_call(name)(arguments)
    found = value if isinstance(value, Mapping) else [*value]
    return json.loads(json.dumps(found))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    made = {}
    for family in ("bert", "gpt2", "t5"):
        folder = tmp_path_factory.mktemp(family)
        make(family, folder)
        made[family] = str(folder)
    return made


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Fine-tune for an instant, to have real folders."""
    home = tmp_path_factory.mktemp("tuned")
    make("bert", home / "base")
    rows = texts(12)
    lines = "\n".join(f"{text}\t{'ab'[i % 2]}\t{i % 5 + 0.5}" for i, text in enumerate(rows))
    (home / "rows.tsv").write_text(f"sentence\tsaid\tscore\n{lines}\n")
    tags = ("B-X", "I-X", "O")
    words = [[(w, tags[i % 3]) for i, w in enumerate(text.split())] for text in rows]
    tagged = "\n\n".join("\n".join(f"{w} {t}" for w, t in one) for one in words)
    (home / "rows.conll").write_text(tagged + "\n")
    answers = [
        {
            "question": "who ?",
            "context": one,
            "answers": [{"text": one.split()[0], "answer_start": 0}],
        }
        for one in rows
    ]
    (home / "rows.jsonl").write_text("\n".join(map(json.dumps, answers)))
    kinds: dict[TaskKindName, tuple[str, dict[str, Any]]] = {
        "classify": ("rows.tsv", {"text": "sentence", "label": "said"}),
        "regress": ("rows.tsv", {"text": "sentence", "label": "score"}),
        "tag": ("rows.conll", {}),
        "answer": ("rows.jsonl", {}),
    }
    for kind, (file, more) in kinds.items():
        finetune(
            home / "base", task=kind, train=home / file, dev=home / file, out=home / kind,
            epochs=1.0, terminal=None, **more,
        )  # fmt: skip
    finetune(
        home / "base", task="classify", train=home / "rows.tsv", dev=home / "rows.tsv",
        out=home / "adapter", tune="lora", epochs=1.0, terminal=None, text="sentence", label="said",
    )  # fmt: skip
    return {kind: str(home / kind) for kind in (*kinds, "adapter")}


def test_all_calls_are_there_and_refuse_unknown_arguments() -> None:
    for name in CALLS:
        with pytest.raises(ValueError, match=r"^unknown key 'nonsense'") as error:
            ask(name, nonsense=1)
        assert describe_error(error.value, {})["is_bug"] is False
    with pytest.raises(ValueError, match=r"call: no call 'other'; there are describe"):
        load_call("other")


def test_descriptions_say_what_models_can_do(
    folders: dict[str, str], tuned: dict[str, str]
) -> None:
    can = {
        name: {k for k, v in ask("describe", model=model)["abilities"].items() if v["can"]}
        for name, model in {**folders, **tuned}.items()
    }
    reading = {"embed", "hide", "attention", "saliency"}
    assert can["bert"] == reading | {"fill", "hide_answers"}
    assert can["gpt2"] == reading | {"generate", "hide_answers"}
    assert can["t5"] == reading | {"generate", "fill", "hide_answers"}
    assert can["classify"] == reading | {"predict"}
    assert can["tag"] == reading - {"saliency"} | {"predict"}
    facts = ask("describe", model=tuned["classify"])
    assert facts["abilities"]["predict"]["labels"] == ["a", "b"]
    assert facts["abilities"]["fill"]["reason"].startswith("this model has no language-model head")
    assert ask("describe", model="t5-small")["has_weights"] is False


def test_catalogue_has_every_preset_once() -> None:
    found = ask("models")
    names = [one["name"] for one in found["models"]]
    assert sorted(names) == sorted([*MODELS, *BUNDLED_MODELS])
    kinds = {one["name"]: one["kind"] for one in found["models"]}
    assert kinds["bert-tiny"] == kinds[BUNDLED] == "encoder"
    assert kinds["gpt2"] == "decoder"
    assert kinds["t5-small"] == "encoder-decoder"
    assert kinds["lstm-mini"] == kinds["elmo-mini"] == "recurrent"
    assert kinds["word2vec-skipgram-mini"] == "word vectors"
    assert kinds["vit-mini"] == kinds["clip-mini"] == "images"
    assert str(Path(__file__).parents[4]) not in json.dumps(found)  # no path of this machine


def test_fill_is_that_of_the_pipeline(folders: dict[str, str]) -> None:
    found = ask("fill", model=folders["bert"], text="the old [MASK] saw", n=3)
    expected = load(folders["bert"]).fill("the old [MASK] saw", top_k=3)
    assert found["filled"] == expected.text
    assert [c["text"] for c in found["blanks"][0]] == [c.text for c in expected.blanks[0]]


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.8, "top_k": 20, "seed": 3}, {"repetition_penalty": 1.5}]
)
@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_generated_pieces_make_the_text(
    folders: dict[str, str], family: str, settings: dict[str, Any]
) -> None:
    settings = {**settings, "max_new_tokens": 8}
    pieces = ask(
        "generate", model=folders[family], prompt="the old", settings=settings, alternatives=4
    )
    pipeline = load(folders[family])
    assert "".join(one["text"] for one in pieces) == pipeline.generate("the old", **settings)
    tokens = [token for one in pieces for token in one["tokens"]]
    assert pieces[-1]["end"] in ("end", "length")
    assert pieces[-1]["continues"] is (family == "gpt2")
    assert 1 <= len(tokens) <= 9
    for token in tokens:
        probabilities = [p for _, p in token["alternatives"]]
        assert len(probabilities) == 4
        assert probabilities == sorted(probabilities, reverse=True)
        assert 0 < token["probability"] <= probabilities[0] + 1e-6
    if "temperature" not in settings:
        assert all(token["token"] == token["alternatives"][0][0] for token in tokens)


def test_probabilities_are_those_of_a_forward_pass(folders: dict[str, str]) -> None:
    pieces = ask(
        "generate", model=folders["gpt2"], prompt="the old", settings={"max_new_tokens": 3}
    )
    tokens = [token for one in pieces for token in one["tokens"]]
    pipeline = load(folders["gpt2"])
    text = "the old"
    for token in tokens:
        (logits,) = pipeline.logits([text])
        last = logits[-1].astype(np.float64)
        expected = np.exp(last - last.max())
        expected /= expected.sum()
        assert token["probability"] == pytest.approx(expected[token["id"]], rel=1e-3)
        text += pipeline.tokenizer.decode([token["id"]])


def test_each_token_is_a_piece_at_once(folders: dict[str, str]) -> None:
    """A text of bytes that are no characters has no piece for long, and can be cancelled."""
    call, n = load_call("generate"), 0
    settings = {"max_new_tokens": 12, "temperature": 2.0, "seed": 5}
    for piece in call({"model": folders["gpt2"], "prompt": "the", "settings": settings}):
        if "end" not in piece:
            assert len(piece["tokens"]) == 1
            n += 1
    assert n >= 1


def test_chats_are_those_of_the_pipeline(tmp_path: Path) -> None:
    make("gpt2", tmp_path)
    assert not ask("describe", model=str(tmp_path))["abilities"]["chat"]["can"]
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    (tmp_path / "chat_template.jinja").write_text(template)
    assert ask("describe", model=str(tmp_path))["abilities"]["chat"]["can"]
    messages = [{"role": "user", "content": "the old king"}]
    settings: dict[str, Any] = {"max_new_tokens": 6}
    pieces = ask("chat", model=str(tmp_path), messages=messages, settings=settings)
    text = "".join(one["text"] for one in pieces)
    assert text == load(tmp_path).chat(messages, **settings)
    assert pieces[-1]["end"] in ("end", "length", "stop")
    assert "alternatives" in pieces[0]["tokens"][0]


@pytest.mark.thorough
def test_graphs_can_what_they_can(folders: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    arguments = {"model": folders["bert"], "target": str(tmp_path / "graph"), "format": "onnx"}
    assert "model.onnx" in [file["name"] for file in ask("export", **arguments)["files"]]
    facts = ask("describe", model=str(tmp_path / "graph"))
    can = {name for name, ability in facts["abilities"].items() if ability["can"]}
    assert can == {"embed", "hide", "fill"}
    filled = ask("fill", model=str(tmp_path / "graph"), text="the old [MASK]")
    assert filled["filled"] == ask("fill", model=folders["bert"], text="the old [MASK]")["filled"]
    for name in ("hide_answers", "saliency"):
        with pytest.raises(ValueError, match="an ONNX graph has neither gradients nor losses"):
            ask(name, model=str(tmp_path / "graph"), text="the old [MASK]")
    with pytest.raises(ValueError, match="ONNX graph does not support layer records"):
        ask("attention", model=str(tmp_path / "graph"), text="the old")


def test_texts_are_never_names_of_files(folders: dict[str, str], tmp_path: Path) -> None:
    """What the page writes is a text; the server alone names files."""
    pillow = pytest.importorskip("PIL.Image")
    path = tmp_path / "some.png"
    pillow.new("RGB", (32, 32), (200, 30, 30)).save(path)
    with pytest.raises(ValueError, match=r"^file: vit-mini reads pictures; name one"):
        ask("hide", model="vit-mini", text=str(path))
    shown = ask("hide", model="mae-mini", file=str(path))["picture"]
    assert [one["title"] for one in shown["views"]] == ["picture", "seen", "asked"]
    assert ask("hide", model="mae-mini", file="demo:emoji", number=2)["picture"]["views"]
    with pytest.raises(ValueError, match="there is no picture 2"):
        ask("hide", model="mae-mini", file=str(path), number=1)
    hidden = ask("hide", model="clip-mini", text=str(path))
    assert "picture" not in hidden
    with pytest.raises(ValueError, match=r"^file: bert-tiny learns from texts"):
        ask("hide", model="bert-tiny", text="a", file=str(path))
    with pytest.raises(ValueError, match=r"^file: .* reads texts"):
        ask("generate", model=folders["gpt2"], prompt="a", file=str(path))
    with pytest.raises(ValueError, match=r"^inputs: .* and no files"):
        ask("predict", model=folders["bert"], inputs=["a"], files=[str(path)])


def test_beams_and_samples_give_candidates(folders: dict[str, str]) -> None:
    settings = {"beams": 3, "n_best": 2, "max_new_tokens": 4}
    (found,) = ask("generate", model=folders["gpt2"], prompt="the old", settings=settings)
    assert len(found["candidates"]) == 2
    assert found["text"] == found["candidates"][0]["text"]
    with pytest.raises(ValueError, match="no chat template"):
        ask("chat", model=folders["gpt2"], messages=[{"role": "user", "content": "hi"}])


def test_predictions_have_places(tuned: dict[str, str]) -> None:
    texts_ = ["the old king", "the gate , and the sea"]
    classes = ask("predict", model=tuned["classify"], inputs=texts_)
    assert [set(one["probabilities"]) for one in classes["predictions"]] == [{"a", "b"}] * 2
    (number,) = ask("predict", model=tuned["regress"], inputs=texts_[:1])["predictions"]
    assert isinstance(number["number"], float)
    (one,) = ask("predict", model=tuned["tag"], inputs=["The  old king, saw."])["predictions"]
    assert [word["text"] for word in one["words"]] == ["The", "old", "king", ",", "saw", "."]
    for word in one["words"]:
        assert "The  old king, saw."[word["start"] : word["end"]] == word["text"]
        assert 0 < word["probability"] <= 1
    for span in one["spans"]:
        assert span["label"] == "X"
    asked = {"question": "who ?", "context": "the old king saw the sea"}
    (answer,) = ask("predict", model=tuned["answer"], inputs=[asked])["predictions"]
    assert asked["context"][answer["start"] : answer["end"]] == answer["answer"]
    with pytest.raises(ValueError, match=r"^inputs: .* give at least one"):
        ask("predict", model=tuned["tag"])


def test_texts_are_near_to_each_other(folders: dict[str, str]) -> None:
    some = ["the old king", "the old king .", "gate sea gate sea"]
    found = ask("embed", model=folders["bert"], texts=some, n=2)
    vectors = np.asarray(load(folders["bert"]).embed(some), np.float64)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for i, row in enumerate(found["neighbors"]):
        assert sorted(one["index"] for one in row) == [j for j in range(3) if j != i]
        for one in row:
            assert one["score"] == pytest.approx(units[i] @ units[one["index"]], abs=1e-5)
    assert np.shape(found["points"]) == (3, 2)
    (only,) = ask("embed", model=folders["bert"], texts=["one"])["neighbors"]
    assert only == []
    with pytest.raises(ValueError, match="projection tsne needs at least 4 points"):
        ask("embed", model=folders["bert"], texts=some, projection="tsne")


def test_word_vectors_have_neighbors(tmp_path: Path) -> None:
    path = tmp_path / "some.vec"
    path.write_text("4 2\nking 1 0.1\nqueen 1 0.2\nman 0.1 1\nwoman 0.1 1.1\n")
    found = ask("neighbors", model=str(path), word="king", n=2)
    assert found["neighbors"][0]["word"] == "queen"
    assert np.shape(found["points"]) == (3, 2)
    assert len(ask("analogy", model=str(path), a="man", b="woman", c="king")["neighbors"]) == 1
    assert ask("describe", model=str(path))["words"] == 4
    assert len(ask("embed", model=str(path), texts=["king man", "nothing"])["points"]) == 2
    formats = ask("export_formats", model=str(path))["formats"]
    assert [one["format"] for one in formats if one["can"]] == [
        "word2vec-text", "word2vec-binary", "glove",
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"'emperor' is not among the 4 words"):
        ask("neighbors", model=str(path), word="emperor")


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_attention_is_of_tokens(folders: dict[str, str], family: str) -> None:
    found = ask("attention", model=folders[family], text="the old king saw the gate")
    n = len(found["tokens"])
    weights = np.array(found["weights"])
    assert weights.shape == (len(found["heads"]), n, n)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=0.001 * n)
    assert len(found["word_of_token"]) == n
    assert found["cut"] == 0
    first = ask("attention", model=folders[family], text="the old " * 80, layer=1)
    assert {one["layer"] for one in first["heads"]} == {1}
    assert len(first["tokens"]) <= 64
    assert first["cut"] == 160 - len(first["words"])
    with pytest.raises(ValueError, match="layer must be from 1 to"):
        ask("attention", model=folders[family], text="the", layer=99)


def test_attributions_add_up(folders: dict[str, str], tuned: dict[str, str]) -> None:
    asked = {
        folders["bert"]: "the old [MASK] saw the gate",
        folders["gpt2"]: "the old king",
        tuned["classify"]: "the old king saw the gate",
    }
    for model, text in asked.items():
        found = ask("saliency", model=model, text=text, steps=50)
        values = [value for value in found["values"] if value is not None]
        assert len(found["labels"]) == len(found["values"])
        assert sum(values) == pytest.approx(found["difference"], abs=0.02)
    with pytest.raises(ValueError, match="fine-tuned to tag"):
        ask("saliency", model=tuned["tag"], text="the old")


def test_hidden_texts_have_matrices(folders: dict[str, str]) -> None:
    text = "the old king saw the gate"
    masked = ask("hide", model=folders["bert"], text=text, seed=1)
    n = len(masked["inputs"])
    assert np.array(masked["visible"]["inputs"]).shape == (n, n)
    assert np.array(masked["visible"]["inputs"]).all()
    expected = json.loads(hide_text(folders["bert"], text, seed=1).to_json())
    assert {key: masked[key] for key in expected} == expected
    causal = np.array(ask("hide", model=folders["gpt2"], text=text)["visible"]["inputs"])
    np.testing.assert_array_equal(causal, np.tril(np.ones_like(causal)))
    spans = ask("hide", model=folders["t5"], text=text)
    assert np.array(spans["visible"]["source"]).all()
    decoder = np.array(spans["visible"]["inputs"])
    np.testing.assert_array_equal(decoder, np.tril(np.ones_like(decoder)))


@pytest.mark.parametrize(
    "preset", ["bert-tiny", "xlnet-mini", "elmo-mini", "word2vec-skipgram-mini", "electra-mini"]
)
def test_presets_without_weights_hide(preset: str) -> None:
    found = ask("hide", model=preset, text="The old king saw the gate. The sea was calm.")
    visible = found["visible"]
    assert (visible["queries"] is not None) == (preset == "xlnet-mini")
    assert (visible["inputs"] is None) == (preset in ("elmo-mini", "word2vec-skipgram-mini"))
    if visible["queries"] is not None:
        assert not np.diagonal(visible["queries"])[:5].all()
    with pytest.raises(ValueError, match=f"^model: {preset} is a preset without weights"):
        ask("hide_answers", model=preset, text="The old king.")


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_answers_are_at_the_targets(folders: dict[str, str], family: str) -> None:
    text = "the old king saw the gate"
    hidden = ask("hide", model=folders[family], text=text, seed=2)
    found = ask("hide_answers", model=folders[family], text=text, seed=2)
    targets = [
        (i, token["asked"])
        for i, token in enumerate(hidden["inputs"])
        if token["asked"] is not None
    ]
    assert [(one["position"], one["target"]) for one in found["answers"]] == targets
    logs = [np.log(one["probability"]) for one in found["answers"]]
    assert found["loss"] == pytest.approx(-np.mean(logs), abs=0.01)
    assert all(len(one["top"]) == 3 for one in found["answers"])


def test_tokens_have_places(tmp_path: Path) -> None:
    text = "The old king\u2019s gate, unbelievably."
    for model in (BUNDLED, "gpt2"):
        found = ask("tokenize", model=model, text=text)
        assert found["tokens"][0]["start"] == 0
        assert found["tokens"][-1]["end"] == len(text)
    (tmp_path / "some.txt").write_text("the old king saw the gate by the sea\n" * 50)
    learned = ask(
        "tokenize", model="bert-tiny", text="the old king", files=[str(tmp_path / "some.txt")],
        vocab_size=60,
    )  # fmt: skip
    assert learned["vocab_size"] <= 60
    with pytest.raises(ValueError, match=r"^files: "):
        ask("tokenize", model=BUNDLED, text="a", files=["x.txt"])


def test_exports_open(folders: dict[str, str], tmp_path: Path) -> None:
    formats = {
        one["format"]: one for one in ask("export_formats", model=folders["gpt2"])["formats"]
    }
    assert formats["huggingface"]["can"]
    assert formats["unmask"]["can"]
    assert not formats["peft"]["can"]
    assert "adapter" in formats["peft"]["reason"]
    made = ask("export", model=folders["gpt2"], target=str(tmp_path / "made"), format="huggingface")
    assert "model.safetensors" in [file["name"] for file in made["files"]]
    assert "GPT2LMHeadModel.from_pretrained" in made["snippet"]
    assert load(tmp_path / "made").generate("the old", max_new_tokens=2) == load(
        folders["gpt2"]
    ).generate("the old", max_new_tokens=2)
    vectors = ask("export", model=folders["bert"], target=str(tmp_path / "v"), format="glove")
    assert [file["name"] for file in vectors["files"]] == ["vectors.txt"]
    with pytest.raises(ValueError, match="is there already"):
        ask("export", model=folders["gpt2"], target=str(tmp_path / "made"), format="unmask")


def test_an_adapter_is_exported_whole_or_alone(tuned: dict[str, str]) -> None:
    found = ask("export_formats", model=tuned["adapter"])["formats"]
    formats = {one["format"]: one for one in found}
    assert formats["unmask"]["can"]
    assert formats["huggingface"]["can"]
    assert "vectors are those of the model below" in formats["glove"]["reason"]


def test_models_stay_open_until_their_files_change(tmp_path: Path) -> None:
    for name in "abcd":
        make("bert", tmp_path / name)
    opened = OpenModels(size=3)
    first = opened.pipeline(str(tmp_path / "a"))
    assert opened.pipeline(str(tmp_path / "a")) is first
    for name in "bcd":
        opened.pipeline(str(tmp_path / name))
    assert opened.pipeline(str(tmp_path / "a")) is not first  # the fourth closed it
    again = opened.pipeline(str(tmp_path / "d"))
    config = tmp_path / "d" / "config.json"
    config.write_text(config.read_text() + "\n")
    assert opened.pipeline(str(tmp_path / "d")) is not again


def test_plans_are_those_of_the_command() -> None:
    found = ask("plan", model="bert-tiny", hardware="a100", steps=100)
    assert found["steps"] == 100
    assert found["fits"] is True
    here = ask("plan", model="bert-tiny", steps=100)
    assert here["hardware"]["name"] == "cpu"
    assert here["seconds"] > 0
    again = ask("plan", model="bert-tiny", steps=200)
    assert again["hardware"] == here["hardware"]  # measured once
    with pytest.raises(ValueError, match=r"^unknown key 'step'; did you mean 'steps'"):
        ask("plan", model="bert-tiny", step=3)


def test_a_composed_study_is_checked_before_it_runs() -> None:
    def toml(cells: str) -> str:
        return f'question = "?"\ntasks = "mine.toml"\ntokens = 10\ncells = [{cells}]\n'

    good = '{name = "a", model = "bert-tiny", objective = "mlm", changes = ["seed=1"]}'
    assert ask("check_study", toml=toml(good)) == {"cells": ["a"]}
    for bad, line in {
        '{name = "a", model = "bert-tiny", objective = "plm"}': "cell a: .*plm",
        '{name = "a", model = "bert-tiny", changes = ["architecture.d_model=65"]}': "65 is not",
        '{name = "a", model = "none"}': "none",
        "{": "toml: ",
    }.items():
        with pytest.raises(ValueError, match=line):
            ask("check_study", toml=toml(bad))
