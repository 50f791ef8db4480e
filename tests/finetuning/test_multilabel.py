"""Multi-label tasks: read from lists and texts, learned, and predicted label by label."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_models as toy

import unmask
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.read import LoadedModel, load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.finetuning.formulations.build import formulate, heads_for_task
from unmask.finetuning.formulations.formulation import resolve_max_length
from unmask.finetuning.results.predict import infer_task, predict
from unmask.finetuning.results.score import score
from unmask.heads.classification.label_losses import BinaryCrossEntropy
from unmask.jobs.finetune import finetune
from unmask.tasks.all_kinds import TASK_KINDS, resolve_options
from unmask.tasks.readers.tables import read_table
from unmask.tasks.task import Task, TaskColumns, TaskExample

CLOSE = 1e-4
LABELS = ("cat", "moon", "sun")
TASK = Task(
    task_kind="multilabel", columns=TaskColumns(texts=("text",), label="labels"), labels=LABELS,
    max_length=24, metric="micro_f1",
)  # fmt: skip
KIND = TASK_KINDS["multilabel"]
OTHERS = [word for word in toy.WORDS if word not in LABELS]


def some(n: int, seed: int = 0) -> list[tuple[str, tuple[str, ...]]]:
    """Make texts with the labels that they name."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        held = [label for label in LABELS if rng.random() < 0.4]
        words = [*rng.choice(OTHERS, rng.integers(1, 6)).tolist(), *held]
        made.append((" ".join(rng.permutation(words).tolist()), tuple(held)))
    return made


def jsonl(path: Path, rows: list[tuple[str, object]]) -> Path:
    lines = [json.dumps({"text": text, "labels": labels}) for text, labels in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def items(path: Path, **given) -> list[TaskExample]:
    table = read_table(path)
    columns = KIND.reader.find_columns(table, (), None, ())
    return KIND.reader.read_examples(
        table, columns, "strict", has_labels=True, options=resolve_options("multilabel", given)
    )


def test_labels_are_a_list_or_separated_text(tmp_path: Path) -> None:
    rows = [("a", ["sun", "moon"]), ("b", []), ("c", None), ("d", "cat"), ("e", [2, 1.0])]
    found = items(jsonl(tmp_path / "a.jsonl", rows))
    assert [item.label for item in found] == [("moon", "sun"), (), (), ("cat",), ("1", "2")]
    tsv = toy.write(
        tmp_path / "a.tsv", [("a", " sun, moon"), ("b", ""), ("c", "cat|sun")], "text\tlabels"
    )
    assert [item.label for item in items(tsv)] == [("moon", "sun"), (), ("cat|sun",)]
    assert [i.label for i in items(tsv, separator="|")] == [("sun, moon",), (), ("cat", "sun")]


LISTS = [str, json.dumps, lambda labels: str(tuple(labels)), lambda labels: f" {labels} \n"]
LISTS += [
    lambda labels: str(np.array(labels)),
    lambda labels: str(dict.fromkeys(labels).keys())[10:-1],
]


@pytest.mark.parametrize("write", LISTS)
def test_a_list_that_is_a_text_has_its_labels(write, tmp_path: Path) -> None:
    labels = [["sun", "moon"], ["it's", "a, b", 'c "d" [e]'], ["sun"], ["naïve ☀", "\\n"], [2, 1]]
    found = items(jsonl(tmp_path / "a.jsonl", [("x", write(own)) for own in labels]))
    assert [item.label for item in found] == [tuple(sorted(map(str, own))) for own in labels]
    empty = ["[]", " [ ] ", "()"]
    plain = ["(sun)", "sun (hot), moon (cold)"]
    found = items(jsonl(tmp_path / "a.jsonl", [("x", text) for text in (*empty, *plain)]))
    kept = [("(sun)",), ("moon (cold)", "sun (hot)")]
    assert [item.label for item in found] == [(), (), (), *kept]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        *(
            (text, r"a.jsonl:2: 'labels' must be a list of quoted texts, got str")
            for text in (
                "[sun, moon]",
                "{sun,moon}",
                "['sun', moon]",
                "['sun''moon']",
                "['sun', ['moon']]",
                "['sun' ... 'moon']",
                "[f(2)]",
                "{}",
                "set()",
                "array(['sun', 'moon'], dtype=object)",
                "['a\nb']",
                "{'sun': 1}",
                '{"sun": 1}',
                "[" * 9**5 + "]",
            )
        ),
        ("['sun', 'sun']", r"a.jsonl:2: 'sun' is repeated"),
        ("['sun', '']", r"a.jsonl:2: an empty label"),
        ("sun,,moon", r"a.jsonl:2: an empty label in column 'labels': str 'sun,,moon'"),
        (["sun", ""], r"a.jsonl:2: an empty label"),
        (
            [1, 0, 1],
            r"a.jsonl:2: '1' is repeated in column 'labels', list \[1, 0, 1\]; a row must list",
        ),
        ("sun,moon,sun", r"a.jsonl:2: 'sun' is repeated"),
        (["sun", None], r"a.jsonl:2: an empty label"),
        ([["sun"]], r"a.jsonl:2"),
        ({"sun": 1}, r"a.jsonl:2"),
    ],
)
def test_invalid_line_is_named(value, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        items(jsonl(tmp_path / "a.jsonl", [("x", ["sun"]), ("y", value)]))


def test_unknown_labels_options_and_models_are_named(tmp_path: Path) -> None:
    found = items(jsonl(tmp_path / "a.jsonl", [("x", ["sun", "cow"])]))
    with pytest.raises(
        ValueError, match=r"a.jsonl:1: label 'cow' in column 'labels' must be one of"
    ):
        KIND.check_examples(found, LABELS, "labels")
    with pytest.raises(ValueError, match=r"threshold must be between 0 and 1, got 1\.5"):
        resolve_options("multilabel", {"threshold": 1.5})
    with pytest.raises(ValueError, match="separator must not be empty"):
        resolve_options("multilabel", {"separator": ""})
    with pytest.raises(ValueError, match="fine-tune it with the task `generate`"):
        heads_for_task(TASK, toy.card("t5"))


def opened(family: str) -> LoadedModel:
    preset = toy.card(family)
    preset = replace(preset, heads=heads_for_task(TASK, preset))
    model = preset.build().eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(std=0.2)
    return LoadedModel(
        preset=preset,
        model=model,
        tokenizer=toy.tokenizer(family),
        label_names=LABELS,
        missing=(),
        unexpected=(),
    )


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_prediction_does_not_depend_on_other_texts(family: str) -> None:
    model = opened(family)
    texts = [text for text, _ in some(9, 3)] + ["", "cat " * 300]
    alone = [predict(model, [text], task=TASK)[0] for text in texts]
    for batch_tokens in (1, 60, 10_000):
        for one, answer in zip(
            alone, predict(model, texts, task=TASK, batch_tokens=batch_tokens), strict=True
        ):
            assert answer["labels"] == one["labels"]
            assert answer["probabilities"] == pytest.approx(one["probabilities"], abs=CLOSE)
            output = [label for label, p in answer["probabilities"].items() if p >= 0.5]
            assert answer["labels"] == output


def test_threshold_decides_predicted_labels() -> None:
    model = opened("bert")
    texts = [text for text, _ in some(9, 3)]
    for threshold in (0.01, 0.3, 0.99):
        task = replace(TASK, options=resolve_options("multilabel", {"threshold": threshold}))
        for answer in predict(model, texts, task=task):
            probabilities = answer["probabilities"]
            assert answer["labels"] == [
                label for label in LABELS if probabilities[label] >= threshold
            ]


def test_scores_and_loss_equal_reference(tmp_path: Path) -> None:
    import transformers as hf

    tokenizer = toy.tokenizer("bert")
    config = hf.BertConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=64, pad_token_id=tokenizer.special_ids.pad,
        problem_type="multi_label_classification", id2label=dict(enumerate(LABELS)),
        label2id={label: i for i, label in enumerate(LABELS)},
    )  # fmt: skip
    theirs = hf.BertForSequenceClassification(config).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for p in theirs.parameters():
            p.normal_(std=0.2)
    theirs.save_pretrained(tmp_path)
    tokenizer.save(tmp_path)
    mine = load_folder(tmp_path)
    task = infer_task(mine)
    assert (task.task_kind, task.labels) == ("multilabel", LABELS)
    found = [TaskExample(texts=(text,), label=held) for text, held in some(7, 5)]
    formulation = formulate(task, mine.preset, tokenizer)
    questions = formulation.build_inputs(found)
    batch = pad_examples([q.example for q in questions], formulation.special_ids)
    with torch.no_grad():
        out = theirs(
            input_ids=batch.inputs,
            attention_mask=(batch.inputs != tokenizer.special_ids.pad).long(),
            labels=batch.labels,
        )
        prediction = mine.model(batch, return_logits=True)
    term = prediction.terms["label"]
    assert term.count == mine.model.count_targets(batch)["label"] == 7 * 3
    assert term.loss.item() == pytest.approx(out.loss.item(), rel=1e-5)
    assert torch.allclose(prediction.logits["label"], out.logits, atol=1e-4)
    assert int(term.n_correct) == int(((out.logits > 0) == (batch.labels > 0)).sum())
    figures = score(formulation, mine.model, found, questions)
    assert figures["loss"] == pytest.approx(out.loss.item(), rel=1e-5)
    texts = [item.texts[0] for item in found]
    for answer, row in zip(predict(mine, texts), out.logits.sigmoid().tolist(), strict=True):
        assert list(answer["probabilities"].values()) == pytest.approx(row, abs=CLOSE)
    assert task.max_length == resolve_max_length(mine.preset, None)

    write_folder(tmp_path / "ours", mine.model, mine.preset, tokenizer, LABELS)
    again = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path / "ours")
    assert again.config.problem_type == "multi_label_classification"
    with torch.no_grad():
        same = again.eval()(
            batch.inputs, attention_mask=(batch.inputs != tokenizer.special_ids.pad).long()
        )
    assert torch.equal(same.logits, out.logits)


@pytest.mark.thorough
@pytest.mark.quick("bert")
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_multilabel_is_learned_and_reloaded(family: str, tmp_path: Path) -> None:
    train = jsonl(tmp_path / "train.jsonl", some(240, 0))
    dev = jsonl(tmp_path / "dev.jsonl", some(40, 1))
    base = toy.pretrained(family, tmp_path / "base")
    tuned = finetune(
        base,
        task="multilabel",
        train=train,
        dev=dev,
        out=tmp_path / "out",
        learning_rate=2e-3,
        batch_size=16,
        epochs=10.0,
        terminal=None,
        dropout=0.0,
        precision="float32",
    )
    assert tuned.task.metric == "micro_f1"
    assert tuned.best_run.dev["micro_f1"] > 0.85  # all labels of each text: 0.57
    assert set(tuned.best_run.dev) == {"micro_f1", "macro_f1", "subset_accuracy", "loss"}
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    again = unmask.load(tmp_path / "out")
    texts = [text for text, _ in some(8, 7)]
    for a, b in zip(tuned.predict(texts), again.predict(texts), strict=True):
        assert a["labels"] == b["labels"]
        assert a["probabilities"] == pytest.approx(b["probabilities"], abs=1e-5)
    assert again.score(dev)["micro_f1"] == pytest.approx(tuned.best_run.dev["micro_f1"])
    assert infer_task(again.loaded_model).task_kind == "multilabel"

    # A multi-label head is new where one label is predicted, and only there.
    more = finetune(
        tmp_path / "out", task="multilabel", train=train, dev=dev, epochs=0.1, learning_rate=1e-6,
        terminal=None, precision="float32",
    )  # fmt: skip
    assert more.best_run.dev["micro_f1"] == pytest.approx(tuned.best_run.dev["micro_f1"], abs=0.02)
    assert not any("newly initialized" in note for note in more.notes)
    single = jsonl(tmp_path / "one.jsonl", [(text, held[0]) for text, held in some(40, 2) if held])
    other = finetune(
        tmp_path / "out", task="classify", train=single, epochs=0.1, terminal=None, label="labels"
    )
    assert any("heads.label.out.weight" in note for note in other.notes)
    assert not isinstance(other.loaded_model.model.head_specs["label"].loss, BinaryCrossEntropy)
