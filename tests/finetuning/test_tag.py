"""Taggers of word representations: learning, saving, loading and predictions."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_models as toy
from hypothesis import given, settings
from hypothesis import strategies as st

import unmask
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.read import LoadedModel, load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.checkpoints.tensors import read_tensors
from unmask.config import from_dict
from unmask.finetuning import train_run as tuning_module
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.data.read_data import read_data
from unmask.finetuning.formulations.build import formulate, heads_for_task
from unmask.finetuning.formulations.token_classification_head import (
    TagPredictions,
    TokenClassificationFormulation,
    repaired_tags,
)
from unmask.finetuning.initial_model.load import load_initial_model
from unmask.finetuning.results.finetuned_model import FinetunedModel
from unmask.finetuning.results.predict import predict, predict_scores
from unmask.heads.tagging.bilstm_crf import BiLSTMCRF
from unmask.jobs.finetune import finetune
from unmask.tasks.all_kinds import resolve_options
from unmask.tasks.kinds.tag import TAG, TaggingOptions
from unmask.tasks.metrics.tagging import extract_entities
from unmask.tasks.tag_schemes import is_allowed_transition, scheme_labels
from unmask.tasks.task import Task, TaskColumns, TaskExample

COLUMNS = TaskColumns(texts=("words",), label="tags")
LABELS = scheme_labels(("X", "Y"), "BIO")
PLAIN = ("the", "cat", "dog", "runs", "tree", "a")
RECURRENT = {"head": "recurrent", "hidden_size": 16}
FAST = {
    "epochs": 6.0,
    "batch_size": 16,
    "learning_rate": 1e-2,
    "terminal": None,
    "precision": "float32",
}


def sentence(rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """Draw words: an entity that "red" or "blue" begins has one more word, whatever it is."""
    words, tags = [], []
    for _ in range(rng.integers(2, 7)):
        kind = ("X", "Y", None)[rng.integers(3)]
        words += rng.choice(PLAIN, 1 if kind is None else 2).tolist()
        tags += ["O"] if kind is None else [f"B-{kind}", f"I-{kind}"]
        if kind is not None:
            words[-2] = {"X": "red", "Y": "blue"}[kind]
    return words, tags


def write(path: Path, n: int, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    rows = [zip(*sentence(rng), strict=True) for _ in range(n)]
    path.write_text("\n\n".join("\n".join(f"{w} {t}" for w, t in row) for row in rows) + "\n")
    return path


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {
        "train": write(tmp_path / "train.conll", 48, 1),
        "dev": write(tmp_path / "dev.conll", 16, 2),
    }


def quick(base: Path | str, files: dict[str, Path], **more) -> FinetunedModel:
    return finetune(
        base, **({"task": "tag", "device": "cpu", "task_options": RECURRENT} | files | FAST | more)
    )


def pretrained(family: str, folder: Path) -> Path:
    return toy.pretrained(family, folder, dropout=0.0, attention_dropout=0.0)


def questions_of(n: int = 6) -> list[list[str]]:
    rng = np.random.default_rng(9)
    return [sentence(rng)[0] for _ in range(n)]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("family", "tune"), [("bert", "frozen"), ("gpt2", "full")])
def test_run_round_trips_with_its_head(family, tune, files, tmp_path: Path) -> None:
    base = pretrained(family, tmp_path / "base")
    tuned = quick(base, files, tune=tune, out=tmp_path / "out", epochs=1.0)
    assert tuned.task.metric == "entity_f1"
    assert tuned.task.options["tag_scheme"] == "BIO"
    spec = tuned.loaded_model.model.head_specs["token_label"]
    assert isinstance(spec, BiLSTMCRF)
    assert spec.forbidden_transitions
    predictions = tuned.predict(questions_of())
    again = unmask.load(tmp_path / "out")
    assert again.predict(questions_of()) == predictions
    assert again.label_names == tuned.task.labels
    assert (
        predict(again.loaded_model, questions_of()) == predictions
    )  # by what the head says of itself
    for name, weight in tuned.loaded_model.model.own_weights().items():
        assert torch.equal(again.model.own_weights()[name], weight), name
    frozen = load_folder(base).model.own_weights()
    moved = [
        n
        for n, w in tuned.loaded_model.model.own_weights().items()
        if n in frozen and not torch.equal(w, frozen[n])
    ]
    assert bool(moved) == (tune == "full")
    again.save(tmp_path / "copy")
    assert unmask.load(tmp_path / "copy").predict(questions_of()) == predictions
    readme = (tmp_path / "out" / "README.md").read_text()
    assert "its head is BiLSTMCRF, which transformers lacks" in readme
    assert "library_name: unmask" in readme


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_transformers_opens_the_model_below_the_head(family: str, tmp_path: Path) -> None:
    from transformers import AutoModel

    model = opened(family)
    write_folder(tmp_path, model.model, model.preset, model.tokenizer, model.label_names)
    theirs = AutoModel.from_pretrained(tmp_path).eval()
    formulation = formulate(task_of(), model.preset, model.tokenizer)
    (question,) = formulation.build_inputs([TaskExample(texts=("the", "red", "cat"))])
    batch = pad_examples([question.example], formulation.special_ids)
    with torch.no_grad():
        output = theirs(batch.inputs).last_hidden_state
        assert torch.allclose(output, model.model.hidden_states(batch), atol=1e-4)


@pytest.mark.parametrize("tune", ["scalar_mix", "lora"])
def test_adapter_below_the_head_is_saved(tune: str, files, tmp_path: Path) -> None:
    base = pretrained("bert", tmp_path / "base")
    tuned = quick(base, files, tune=tune, out=tmp_path / "out", epochs=1.0)
    assert not (tmp_path / "out" / "config.json").exists()
    tensors = read_tensors(tmp_path / "out" / "adapter_model.safetensors")
    assert not any(name.startswith("backbone.") for name in tensors)
    assert any(name.startswith("heads.token_label.lstm.") for name in tensors)
    again = unmask.load(tmp_path / "out")
    assert again.predict(questions_of()) == tuned.predict(questions_of())


class Killed(Exception):
    """The process is gone."""


@pytest.mark.thorough
def test_killed_and_resumed_run_is_bitwise_equal(files, tmp_path, monkeypatch) -> None:
    base = pretrained("bert", tmp_path / "base")
    whole = quick(base, files, tune="frozen", out=tmp_path / "whole", epochs=2.0)
    save = tuning_module._save_checkpoint

    def save_and_die(*args, **more):
        save(*args, **more)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(tuning_module, "_save_checkpoint", save_and_die)
        with pytest.raises(Killed):
            quick(base, files, tune="frozen", out=tmp_path / "out", epochs=2.0)
    again = quick(base, files, tune="frozen", out=tmp_path / "out", epochs=2.0, resume=True)
    assert again.run_results == whole.run_results
    for name, tensor in whole.loaded_model.model.own_weights().items():
        assert torch.equal(tensor, again.loaded_model.model.own_weights()[name]), name
    done = quick(base, files, tune="frozen", out=tmp_path / "out", epochs=2.0, resume=True)
    assert done.predict(questions_of()) == again.predict(questions_of())


def task_of(length: int = 64, **more) -> Task:
    chosen = resolve_options("tag", RECURRENT | {"tag_scheme": "BIO"} | more)
    return Task(
        task_kind="tag", columns=COLUMNS, labels=LABELS, max_length=length, metric="entity_f1",
        options=chosen,
    )  # fmt: skip


def opened(family: str, **more) -> LoadedModel:
    """Make a random model, its weights large enough that sentences differ."""
    preset = toy.card(family)
    preset = replace(preset, heads=heads_for_task(task_of(**more), preset))
    model = preset.build().eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(std=0.3)
    return LoadedModel(
        preset=preset, model=model, tokenizer=toy.tokenizer(family), label_names=LABELS, missing=(),
        unexpected=(),
    )  # fmt: skip


@pytest.mark.sample(1)
@pytest.mark.parametrize("crf", [True, False])
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_prediction_does_not_depend_on_other_sentences(family: str, crf: bool) -> None:
    model, task = opened(family, use_crf=crf), task_of(length=24, use_crf=crf)
    rng = np.random.default_rng(1)
    texts = [rng.choice(toy.WORDS, n).tolist() for n in (0, 1, 3, 100, 7, 30, 2)]
    alone = [predict(model, [text], task=task)[0] for text in texts]
    assert [len(a["labels"]) for a in alone] == [len(text) for text in texts]
    assert len({label for a in alone for label in a["labels"]}) > 1
    for batch_tokens in (1, 60, 10_000):
        together = predict(model, texts[::-1], task=task, batch_tokens=batch_tokens)[::-1]
        for one, other in zip(alone, together, strict=True):
            assert one["labels"] == other["labels"]
            assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)


def test_prediction_is_viterbi_path_with_its_marginals() -> None:
    model = opened("bert")
    formulation = formulate(task_of(), model.preset, model.tokenizer)
    assert isinstance(formulation, TokenClassificationFormulation)
    items = [
        TaskExample(texts=tuple(words), label=("O",) * len(words)) for words in questions_of(9)
    ]
    questions = formulation.build_inputs(items)
    batch = pad_examples([q.example for q in questions], formulation.special_ids)
    with torch.no_grad():
        output = formulation.compute_scores(model.model, batch, questions)
        paths = model.model.heads["token_label"].decode(model.model.hidden_states(batch), batch)
    differs = 0
    for item, one, path in zip(items, output, paths, strict=True):
        assert one.best_labels.tolist() == path
        labels = [LABELS[i] for i in path]
        assert formulation.prediction(item, one) == tuple(labels)
        assert all(
            is_allowed_transition(a, b, "BIO")
            for a, b in zip([None, *labels], [*labels, None], strict=True)
        )
        answer = formulation.prediction_record(item, one)
        own = np.exp(one.log_probabilities[np.arange(len(path)), path])
        assert answer["probabilities"] == pytest.approx(own.tolist(), rel=1e-4)
        differs += int((one.log_probabilities.argmax(-1) != one.best_labels).sum())
    assert differs > 0


def learned(task: Task) -> float:
    """Train the head alone on a model that stays as it was drawn; return the F1 of entities."""
    preset = toy.card("bert", dropout=0.0, attention_dropout=0.0)
    model = preset.build(heads_for_task(task, preset)).initialize(3)
    formulation = formulate(task, preset, toy.tokenizer("bert"))
    drawn = (sentence(np.random.default_rng(seed)) for seed in range(120))
    items = [TaskExample(texts=tuple(words), label=tuple(tags)) for words, tags in drawn]
    questions = formulation.build_inputs(items)
    batch = pad_examples([q.example for q in questions[:80]], formulation.special_ids)
    head = model.heads["token_label"]
    with torch.no_grad():
        features = model.hidden_states(batch)
    optimizer = torch.optim.Adam(head.parameters(), 2e-2)
    torch.manual_seed(0)
    for _ in range(60):
        term = head(features, batch).terms["token_label"]
        optimizer.zero_grad()
        (term.total / term.count).backward()
        optimizer.step()
    predictions = predict_scores(formulation, model, questions[80:]).scores
    answers = [
        formulation.prediction(item, one) for item, one in zip(items[80:], predictions, strict=True)
    ]
    return TAG.compute_metrics(task, [item.label for item in items[80:]], answers)["entity_f1"]


@pytest.mark.thorough
def test_crf_learns_labels_no_word_determines() -> None:
    linear = learned(task_of(head="linear", hidden_size=200))
    recurrent = learned(task_of(hidden_size=32))
    assert recurrent > 0.9
    assert recurrent > linear + 0.3


@given(data=st.data(), scheme=st.sampled_from(["BIO", "BIOES", "IOB1"]))
def test_repaired_labels_mark_the_same_entities(data, scheme) -> None:
    every = scheme_labels(("X", "Y"), scheme)
    labels = data.draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
    output = data.draw(st.lists(st.sampled_from(labels), max_size=12))
    better = repaired_tags(output, scheme, labels)
    assert set(better) <= set(labels)
    assert extract_entities(better) == extract_entities(output)
    if set(labels) == set(every):
        edges = zip([None, *better], [*better, None], strict=True)
        assert all(is_allowed_transition(a, b, scheme) for a, b in edges)
    assert repaired_tags(better, scheme, labels) == better


def test_ill_formed_labels_are_repaired_unless_disabled() -> None:
    preset, tokenizer = toy.card("bert"), toy.tokenizer("bert")
    ill = TagPredictions(
        np.zeros((3, len(LABELS)), np.float32), np.array([0, LABELS.index("I-X"), 0])
    )
    item = TaskExample(texts=("a", "red", "cat"))
    output = {
        repair: formulate(
            task_of(head="linear", hidden_size=200, repair_tags=repair), preset, tokenizer
        ).prediction(item, ill)
        for repair in (True, False)
    }
    assert output == {True: ("O", "B-X", "O"), False: ("O", "I-X", "O")}


def tagged(path: Path, *tags: str) -> Path:
    path.write_text("\n\n".join("\n".join(f"w {t}" for t in row.split()) for row in tags) + "\n")
    return path


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        (("O B-X I-X", "B-X"), "BIO"),
        (("O I-X I-X", "I-X B-X"), "IOB1"),
        (("O S-X", "B-X E-X"), "BIOES"),
        (("DET NOUN", "NOUN"), None),
    ],
)
def test_tag_scheme_is_inferred_from_the_training_file(tags, scheme, tmp_path: Path) -> None:
    path = tagged(tmp_path / "a.conll", *tags)
    tuning = FinetuneConfig(base="bert-tiny", task="tag", train=str(path), dev=str(path))
    assert read_data(tuning).task_options["tag_scheme"] == scheme


def test_numeric_tags_are_read_by_their_names(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"tokens": ["a", "b"], "ner_tags": [1, 2]}, {"tokens": ["a"], "ner_tags": [0]}]
    path.write_text("\n".join(map(json.dumps, rows)))
    tuning = FinetuneConfig(
        base="bert-tiny", task="tag", train=str(path), dev=str(path), labels=("O", "B-X", "I-X"),
        label="ner_tags",
    )  # fmt: skip
    assert read_data(tuning).task_options["tag_scheme"] == "BIO"


def test_invalid_options_are_named() -> None:
    with pytest.raises(ValueError, match=r"options\.hidden_size must be at least 1, got 0"):
        TaggingOptions(head="recurrent", hidden_size=0)
    with pytest.raises(ValueError, match=r"need options\.head = 'recurrent'"):
        from_dict(TaggingOptions, {"use_crf": False}, "options")
    items = [TaskExample(texts=("a",), label=("NOUN",))]
    with pytest.raises(ValueError, match=r"options\.tag_scheme = 'BIO' needs entity labels"):
        TAG.infer_options_from_examples(items, ("NOUN", "VERB"), {"tag_scheme": "BIO"})


def test_head_of_same_labels_is_kept_in_its_own_order(tmp_path: Path) -> None:
    model = opened("bert")
    write_folder(tmp_path, model.model, model.preset, model.tokenizer, LABELS)
    task = task_of()
    turned = replace(task, labels=LABELS[::-1])
    for source in (str(tmp_path), model):
        initial = load_initial_model(source, turned, [])
        assert initial.task.labels == LABELS
        assert initial.preset.heads == model.preset.heads  # what is impossible, too
        assert not initial.newly_initialized()
    others = (
        replace(task, labels=("O", "B-X", "I-X", "B-Z", "I-Z")),
        replace(task, labels=("O", "B-X", "I-X")),
        task_of(hidden_size=8),
        task_of(use_crf=False),
        task_of(head="linear", hidden_size=200),
    )
    for other in others:
        initial = load_initial_model(str(tmp_path), other, [])
        assert any(name.startswith("heads.token_label.") for name in initial.newly_initialized())
        assert initial.task.labels == other.labels


def test_damaged_head_is_named(tmp_path: Path) -> None:
    model = opened("bert")
    write_folder(tmp_path, model.model, model.preset, model.tokenizer, LABELS)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["unmask"]["heads"]["token_label"]["hidden_size"] = 4
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"tensor heads\.token_label\.\S+ has shape"):
        load_folder(tmp_path)
    config["unmask"]["heads"]["token_label"]["kind"] = "Other"
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"config\.json: unmask\S* .*Other"):
        load_folder(tmp_path)


@settings(max_examples=20)
@given(st.lists(st.sampled_from(toy.WORDS), max_size=40))
def test_any_sentence_has_an_allowed_path(words: list[str]) -> None:
    model = opened("gpt2")
    (answer,) = predict(model, [words], task=task_of(length=12))
    labels = answer["labels"]
    assert len(labels) == len(words)
    assert repaired_tags(labels, "BIO", LABELS) == tuple(labels)
