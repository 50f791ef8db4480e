"""Initial weights: the model's are kept, missing ones are drawn from the seed; both are named."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import toy_models as toy

from unmask.checkpoints.huggingface.read import load_folder
from unmask.finetuning.initial_model.load import InitialModelOptions, load_initial_model
from unmask.tasks.task import Task, TaskColumns
from unmask.tokenizers.vocabulary import WordLevel, parse_vocabulary

COLUMNS = TaskColumns(texts=("text",), label="label")
TASK = Task(task_kind="classify", columns=COLUMNS, labels=("no", "yes"), task_name="classify")
TASK_OF_TEXTS = Task(task_kind="generate", columns=COLUMNS, task_name="generate")
NUMBER = Task(task_kind="regress", columns=COLUMNS, task_name="regress")
TAGS = Task(task_kind="tag", columns=COLUMNS, labels=("B", "O"), metric="token_accuracy")


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("family", toy.FAMILIES)
def test_backbone_is_loaded_bitwise(family: str, loaded: bool, tmp_path: Path) -> None:
    folder = toy.pretrained(family, tmp_path)
    before = load_folder(folder)
    initial = load_initial_model(before if loaded else str(folder), TASK, [])
    model = initial.build_model(3)
    theirs = before.model.own_weights()
    for name, tensor in model.own_weights().items():
        if name.startswith("backbone."):
            assert torch.equal(tensor, theirs[name]), name
    heads = {name for name in model.own_weights() if name.startswith("heads.")}
    known = {"t5": heads, "bert": {n for n in heads if ".dense." in n}}
    assert set(initial.newly_initialized()) == heads - known.get(family, set())
    if family == "bert":
        pooler = theirs["heads.next_sentence.dense.weight"]
        assert torch.equal(model.own_weights()["heads.label.dense.weight"], pooler)
        assert len(initial.unexpected) >= 7  # the heads of pretraining


def test_new_parameters_depend_on_the_seed(tmp_path: Path) -> None:
    initial = load_initial_model(str(toy.pretrained("bert", tmp_path)), TASK, [])
    name = "heads.label.out.weight"
    one, same, other = (initial.build_model(seed).own_weights() for seed in (1, 1, 2))
    assert torch.equal(one[name], same[name])
    assert not torch.equal(one[name], other[name])
    table = "backbone.tokens.weight"
    random = initial.build_model(1, use_pretrained=False).own_weights()
    assert torch.equal(one[table], other[table])
    assert not torch.equal(one[table], random[table])


def test_open_model_is_not_changed(tmp_path: Path) -> None:
    loaded = load_folder(toy.pretrained("bert", tmp_path))
    before = {name: x.clone() for name, x in loaded.model.own_weights().items()}
    model = load_initial_model(loaded, TASK, []).build_model(0)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1)
    assert all(torch.equal(x, before[name]) for name, x in loaded.model.own_weights().items())


def classifier(folder: Path, kind: str, labels: list[str]) -> Path:
    """Save a classifier of the reference library, with our tokenizer."""
    import transformers as hf

    tokenizer = toy.tokenizer("bert")
    config = hf.BertConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64, num_labels=len(labels), id2label=dict(enumerate(labels)),
        label2id={x: i for i, x in enumerate(labels)},
    )  # fmt: skip
    torch.manual_seed(0)
    getattr(hf, kind)(config).save_pretrained(folder)
    tokenizer.save(folder)
    return folder


def test_head_of_same_labels_is_kept_with_their_order(tmp_path: Path) -> None:
    folder = classifier(tmp_path, "BertForSequenceClassification", ["yes", "no"])
    initial = load_initial_model(str(folder), TASK, [])
    assert initial.newly_initialized() == ()
    assert initial.task.labels == ("yes", "no")


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("BertForSequenceClassification", ["yes", "perhaps"]),
        ("BertForSequenceClassification", ["no", "yes", "perhaps"]),
        ("BertForTokenClassification", ["no", "yes"]),
        ("BertForTokenClassification", ["no", "yes", "perhaps"]),
        ("BertForMaskedLM", ["no", "yes"]),
        ("BertModel", ["no", "yes"]),
    ],
)
def test_head_of_other_task_is_initialized_anew(kind: str, labels: list[str], tmp_path) -> None:
    initial = load_initial_model(str(classifier(tmp_path, kind, labels)), TASK, [])
    assert {"heads.label.out.weight", "heads.label.out.bias"} <= set(initial.newly_initialized())
    assert initial.task.labels == ("no", "yes")
    has_pooler = kind in ("BertForSequenceClassification", "BertModel")
    assert ("heads.label.dense.weight" in initial.newly_initialized()) == (not has_pooler)
    assert initial.preset.heads["label"].pooling == "first"


def test_regression_head_is_kept_for_regression(tmp_path: Path) -> None:
    folder = classifier(tmp_path, "BertForSequenceClassification", ["LABEL_0"])
    assert load_initial_model(str(folder), NUMBER, []).newly_initialized() == ()
    assert load_initial_model(str(folder), TASK, []).newly_initialized() != ()


def test_tagging_has_a_head_of_its_own(tmp_path: Path) -> None:
    folder = classifier(tmp_path, "BertForTokenClassification", ["O", "B"])
    initial = load_initial_model(str(folder), TAGS, [])
    assert initial.newly_initialized() == ()
    assert initial.task.labels == ("O", "B")


def test_preset_name_learns_a_vocabulary_and_has_no_weights() -> None:
    initial = load_initial_model(
        "bert-tiny",
        TASK,
        [text for text, _ in toy.texts(50)] * 2,
        InitialModelOptions(dropout=0.25),
    )
    assert not initial.is_pretrained
    assert initial.preset.architecture.vocab_size == initial.tokenizer.vocab_size
    assert (
        initial.preset.architecture.dropout == initial.preset.architecture.attention_dropout == 0.25
    )
    assert set(initial.newly_initialized()) == {
        name for name, _ in initial.build_model(0).named_parameters()
    }


def test_preset_name_accepts_a_given_vocabulary(tmp_path: Path) -> None:
    toy.tokenizer("bert").save(tmp_path)
    initial = load_initial_model(
        "bert-tiny", TASK, [], InitialModelOptions(tokenizer=str(tmp_path))
    )
    assert initial.tokenizer.vocab_size == toy.tokenizer("bert").vocab_size


def test_preset_name_learns_the_requested_kind_of_vocabulary() -> None:
    texts = ["add x 2", "mul x 3"] * 2
    initial = load_initial_model(
        "transformer-mini",
        TASK_OF_TEXTS,
        texts,
        InitialModelOptions(vocabulary=parse_vocabulary("words")),
    )
    ids = initial.tokenizer.encode_ids_batch(["mul 3 x add"])[0]
    assert initial.tokenizer.pieces(ids.tolist()) == ["mul", "3", "x", "add"]
    assert initial.tokenizer.decode(ids) == "mul 3 x add"
    assert initial.preset.tokenizer.vocabulary == WordLevel()
    assert (
        initial.build_model(0).vocab_size == initial.tokenizer.vocab_size == 5 + 3
    )  # words; pad, end, unknown


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("no/such/folder", FileNotFoundError, "no such folder, and no model of the catalogue"),
        ("bert-mni", FileNotFoundError, "did you mean 'bert-mini'"),
        ("unmask-mini", FileNotFoundError, "did you mean 'unmask-mini-en'"),
    ],
)
def test_missing_model_is_named(source, error, message) -> None:
    with pytest.raises(error, match=message):
        load_initial_model(source, TASK, [])


def test_unsuitable_model_is_refused_before_learning_a_vocabulary() -> None:
    def texts() -> Iterator[str]:
        pytest.fail("a vocabulary is learned")
        yield

    with pytest.raises(ValueError, match="t5-mini predicts labels as words"):
        load_initial_model("t5-mini", replace(TASK, task_kind="tag"), texts())


def test_unsuitable_folders_are_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(FileNotFoundError, match=r"config\.json: no such file"):
        load_initial_model(str(empty), TASK, [])
    bare = toy.pretrained("bert", tmp_path / "bare")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (bare / name).unlink()
    with pytest.raises(ValueError, match="has no tokenizer"):
        load_initial_model(str(bare), TASK, [])
    with pytest.raises(ValueError, match="cannot label each word"):
        load_initial_model(str(toy.pretrained("t5", tmp_path / "t5")), TAGS, [])
    with pytest.raises(ValueError, match="tokenizer is for a model of the catalogue"):
        load_initial_model(str(tmp_path / "t5"), TASK, [], InitialModelOptions(tokenizer=str(bare)))
    with pytest.raises(ValueError, match="vocabulary is for a model of the catalogue"):
        load_initial_model(
            str(tmp_path / "t5"), TASK, [], InitialModelOptions(vocabulary=WordLevel())
        )
