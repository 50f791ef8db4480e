"""Predictions of each text: independent of its batch, and equal to the reference library's."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_models as toy
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.checkpoints.huggingface.read import LoadedModel, load_folder
from unmask.finetuning.formulations.build import heads_for_task
from unmask.finetuning.results.predict import infer_task, predict, read_task
from unmask.tasks.task import Task, TaskColumns

CLOSE = 1e-4  # float32, in batches of other shapes
ONE, TWO = TaskColumns(texts=("text",), label="label"), TaskColumns(texts=("a", "b"), label="label")
LABELS = ("no", "perhaps", "yes")
TASKS = {
    "classify": Task(
        task_kind="classify", columns=ONE, labels=LABELS, task_name="classify", max_length=24
    ),
    "pairs": Task(task_kind="pairs", columns=TWO, labels=LABELS, task_name="pairs", max_length=24),
    "regress": Task(
        task_kind="regress", columns=ONE, task_name="regress", max_length=24, metric="pearson"
    ),
    "tag": Task(
        task_kind="tag", columns=ONE, labels=LABELS, max_length=24, metric="token_accuracy"
    ),
}
CASES = [(f, k) for f in toy.FAMILIES for k in TASKS if (f, k) != ("t5", "tag")]


def opened(family: str, kind: str) -> tuple[LoadedModel, Task]:
    """Make a random model for a task, its weights large enough that texts differ."""
    preset, task = toy.card(family), TASKS[kind]
    if (family, kind) == ("t5", "regress"):
        task = replace(task, labels=("0.0", "0.5", "1.0"))
    heads = heads_for_task(task, preset)
    model = replace(preset, heads=heads).build().eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(std=0.2)
    return LoadedModel(
        preset=replace(preset, heads=heads), model=model, tokenizer=toy.tokenizer(family),
        label_names=task.labels, missing=(), unexpected=(),
    ), task  # fmt: skip


def some(kind: str, seed: int, n: int = 12) -> list:
    texts = [text for text, _ in toy.texts(2 * n, seed, 1, 30)]
    texts[0], texts[3] = "", "cat " * 500
    if kind == "pairs":
        return list(zip(texts[:n], texts[n:], strict=True))
    return [text.split() for text in texts[:n]] if kind == "tag" else texts[:n]


def numbers(answer) -> list[float]:
    if isinstance(answer, float):
        return [answer]
    probabilities = answer["probabilities"]
    return list(probabilities.values()) if isinstance(probabilities, dict) else probabilities


@pytest.mark.quick("bert", "gpt2-classify", "t5-classify")
@pytest.mark.parametrize(("family", "kind"), CASES)
def test_prediction_does_not_depend_on_other_texts(family: str, kind: str) -> None:
    model, task = opened(family, kind)
    texts = some(kind, 1)
    alone = [predict(model, [text], task=task)[0] for text in texts]
    order = np.random.default_rng(0).permutation(len(texts))
    for batch_tokens in (1, 60, 10_000):
        together = predict(model, [texts[i] for i in order], task=task, batch_tokens=batch_tokens)
        for i, answer in zip(order, together, strict=True):
            assert numbers(answer) == pytest.approx(numbers(alone[i]), abs=CLOSE)
            if isinstance(answer, dict):
                assert answer.get("label") == alone[i].get("label")
                assert answer.get("labels") == alone[i].get("labels")
    if (family, kind) != ("t5", "regress"):  # which says the nearest of three numbers
        assert len({str(a) for a in alone}) > 3  # texts do differ


@pytest.mark.thorough
@settings(max_examples=30)
@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60), case=st.sampled_from(CASES)
)
def test_any_text_has_a_prediction(text: str, case) -> None:
    family, kind = case
    model, task = opened(family, kind)
    given = {"pairs": (text, text), "tag": text.split(" ")}.get(kind, text)
    (answer,) = predict(model, [given], task=task)
    if isinstance(answer, float):
        assert np.isfinite(answer)
    elif kind == "tag":
        assert len(answer["labels"]) == len(answer["probabilities"]) == len(given)
        assert set(answer["labels"]) <= set(LABELS)
    else:
        assert answer["probability"] == answer["probabilities"][answer["label"]]
        assert sum(answer["probabilities"].values()) == pytest.approx(1)
        assert tuple(answer["probabilities"]) == LABELS


def test_no_input_gives_no_predictions() -> None:
    model, task = opened("bert", "classify")
    assert predict(model, [], task=task) == []
    tagger, task = opened("bert", "tag")
    assert predict(tagger, [[]], task=task) == [{"labels": [], "probabilities": []}]


def test_empty_text_is_predicted_with_a_note(caplog: pytest.LogCaptureFixture) -> None:
    for kind, empty, full in (
        ("classify", " ", "a"), ("pairs", ("", ""), ("", "a")), ("tag", [], ["a"])
    ):  # fmt: skip
        model, task = opened("bert", kind)
        predict(model, [full], task=task)
        assert not caplog.records
        predict(model, [full, empty], task=task)
        assert [r.getMessage() for r in caplog.records] == [
            "an empty text is answered too; what is said of it rests on no word"
        ]
        caplog.clear()


def test_long_sentence_has_a_label_for_every_word() -> None:
    for family in ("bert", "gpt2"):
        model, task = opened(family, "tag")
        (answer,) = predict(model, [["cat"] * 100], task=task)
        assert len(answer["labels"]) == 100


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("classify", ("a", "b"), r"text 2 must be a text, got tuple"),
        ("pairs", "a", r"text 2 must be a pair of texts \(in a line, .*\), got str 'a'"),
        ("pairs", ("a",), r"text 2 must be a pair of texts"),
        ("tag", "a b", r"text 2 must be a list of words, got str"),
    ],
)
def test_input_of_wrong_shape_is_named(kind: str, text, message: str) -> None:
    model, task = opened("bert", kind)
    fitting = {"classify": "a", "pairs": ("a", "b"), "tag": ["a"]}[kind]
    with pytest.raises(ValueError, match=message):
        predict(model, [fitting, text], task=task)


def test_models_without_label_head_are_named(tmp_path: Path) -> None:
    pretrained = load_folder(toy.pretrained("bert", tmp_path))
    with pytest.raises(ValueError, match="has no head that labels texts; fine-tune it first"):
        predict(pretrained, ["a"])
    with pytest.raises(ValueError, match="has no tokenizer"):
        predict(replace(pretrained, tokenizer=None), ["a"])


@pytest.mark.sample(4)
@pytest.mark.parametrize("family", ["bert", "gpt2", "bart", "mbart"])
@pytest.mark.parametrize("kind", ["classify", "pairs", "regress"])
def test_transformers_classifier_predicts_equally(family: str, kind: str, tmp_path: Path) -> None:
    import transformers as hf

    tokenizer = toy.tokenizer(family)
    n = 1 if kind == "regress" else 3
    torch.manual_seed(0)
    if family == "bert":
        config = hf.BertConfig(
            vocab_size=tokenizer.vocab_size,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=40,
            num_labels=n,
            initializer_range=0.3,
        )
        theirs = hf.BertForSequenceClassification(config)
    elif family in ("bart", "mbart"):
        name = {"bart": "Bart", "mbart": "MBart"}[family]
        config = getattr(hf, f"{name}Config")(
            vocab_size=tokenizer.vocab_size, d_model=32, encoder_layers=2, decoder_layers=1,
            encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=64,
            decoder_ffn_dim=64, max_position_embeddings=40, num_labels=n, init_std=0.3,
        )  # fmt: skip
        theirs = getattr(hf, f"{name}ForSequenceClassification")(config)
    else:
        config = hf.GPT2Config(
            vocab_size=tokenizer.vocab_size, n_embd=32, n_layer=2, n_head=2, n_positions=40,
            num_labels=n, pad_token_id=tokenizer.special_ids.pad, initializer_range=0.3,
        )  # fmt: skip
        theirs = hf.GPT2ForSequenceClassification(config)
    theirs.eval().save_pretrained(tmp_path)
    tokenizer.save(tmp_path)
    ours = load_folder(tmp_path)
    most = 20 if kind == "classify" else 3  # theirs cuts GPT-2's pairs at their end
    texts = [text for text, _ in toy.texts(16, 2, 1, most)]
    given = list(zip(texts[:8], texts[8:], strict=True)) if kind == "pairs" else texts
    answers = predict(ours, given)
    reader = hf.AutoTokenizer.from_pretrained(tmp_path)
    for text, answer in zip(given, answers, strict=True):
        pair = (text,) if isinstance(text, str) else text
        if kind == "pairs" and family == "gpt2":
            pair = (f"{text[0]}<|endoftext|>{text[1]}",)  # theirs puts nothing between two texts
        read = reader(*pair, truncation=True, max_length=40, return_tensors="pt")
        with torch.no_grad():
            logits = theirs(**read).logits[0]
        expected = logits if kind == "regress" else logits.softmax(-1)
        assert numbers(answer) == pytest.approx(expected.tolist(), abs=CLOSE)
    assert infer_task(ours).max_length == 40


def test_folder_task_is_read_or_none(tmp_path: Path) -> None:
    assert read_task(tmp_path) is None
    (tmp_path / "unmask.json").write_text('{"format": 2, "kind": "pretrain"}')
    assert read_task(tmp_path) is None
    (tmp_path / "unmask.json").write_text('{"task": {"kind": "Task", "max_length": 5}}')
    with pytest.raises(ValueError, match=r"unmask\.json: task"):
        read_task(tmp_path)
    (tmp_path / "unmask.json").write_text("{")
    with pytest.raises(ValueError, match=r"unmask\.json: "):
        read_task(tmp_path)
