"""Weights of labels: rare ones count more, the mean over the data stays 1."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import toy_models as toy
from torch.nn import functional as F

from unmask.batching.collate import pad_examples
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.data.class_weights import resolve_class_weights
from unmask.finetuning.job.prepare import prepare_job
from unmask.heads.classification.label_losses import CrossEntropy
from unmask.jobs.finetune import finetune
from unmask.tasks.task import TaskExample
from unmask.training.device.distributed import process_group

ITEMS = [TaskExample(texts=("x",), label=t) for t in ["a"] * 6 + ["b"] * 3 + ["c"]]
LABELS = ("a", "b", "c")


def test_balanced_weights_equal_scikit_learn() -> None:
    weights = resolve_class_weights("balanced", LABELS, ITEMS)
    # compute_class_weight("balanced", ...): n / (k * n_label)
    assert weights == pytest.approx((10 / 18, 10 / 9, 10 / 3))
    assert 6 * weights[0] + 3 * weights[1] + weights[2] == pytest.approx(10)


def test_given_weights_are_normalized_to_mean_one() -> None:
    weights = resolve_class_weights({"b": 2.0, "c": 5.0}, LABELS, ITEMS)
    assert weights[1] / weights[0] == pytest.approx(2)
    assert weights[2] / weights[0] == pytest.approx(5)
    assert 6 * weights[0] + 3 * weights[1] + weights[2] == pytest.approx(10)
    assert resolve_class_weights({}, LABELS, ITEMS) == (1.0, 1.0, 1.0)


def test_tagging_weights_count_words() -> None:
    items = [TaskExample(texts=("x",) * 4, label=("a", "a", "b", "a"))]
    assert resolve_class_weights("balanced", ("a", "b"), items) == pytest.approx((4 / 6, 2.0))


def test_unused_label_changes_no_other_weight() -> None:
    assert resolve_class_weights("balanced", (*LABELS, "d"), ITEMS)[:3] == resolve_class_weights(
        "balanced", LABELS, ITEMS
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"d": 1.0}, "no label 'd'"),
        ({"a": 0.0}, "'a' must have a weight above 0"),
        ({"a": float("nan")}, "'a' must have a weight above 0"),
    ],
)
def test_invalid_weights_are_named(given, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve_class_weights(given, LABELS, ITEMS)


def rows(n: int, rare: int) -> list[tuple[str, ...]]:
    """Make texts of which few are "yes", with no word that tells them apart."""
    words = toy.WORDS
    return [(words[i % 20], "yes" if i < rare else "no") for i in range(n)]


def test_weighted_loss_equals_torch_per_text(tmp_path: Path) -> None:
    base = toy.pretrained("bert", tmp_path / "base", dropout=0.0, attention_dropout=0.0)
    train = toy.write(tmp_path / "train.tsv", rows(20, 4))
    tuning = FinetuneConfig(
        base=str(base), task="classify", train=str(train), dev=str(train), dropout=0.0,
        class_weights="balanced",
    )  # fmt: skip
    with process_group("cpu") as world:
        job = prepare_job(tuning, None, tmp_path / "out", world, 1, None)
    spec = job.initial_model.preset.heads["label"]
    assert spec.loss == CrossEntropy(label_weights=(20 / (2 * 16), 20 / (2 * 4)))
    batch = pad_examples(job.train_examples, job.formulation.special_ids)
    heads = {"label": replace(spec, dropout=0.0)}
    model = replace(
        job.initial_model, preset=replace(job.initial_model.preset, heads=heads)
    ).build_model(0)
    prediction = model.eval()(batch, return_logits=True)
    plain = F.cross_entropy(prediction.logits["label"], batch.labels)
    assert prediction.terms["label"].loss.item() == pytest.approx(plain.item(), rel=1e-6)
    learned = model.train()(batch)
    weights = torch.tensor(spec.loss.label_weights)
    # Over all data, whose mean weight is 1, torch's weighted mean is the same.
    expected = F.cross_entropy(prediction.logits["label"], batch.labels, weights)
    assert learned.terms["label"].loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert learned.terms["label"].count == 20


@pytest.mark.thorough
def test_rare_label_is_predicted_when_weighted_higher(tmp_path: Path) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    train = toy.write(
        tmp_path / "train.tsv", [("a cat", "yes" if i < 8 else "no") for i in range(32)]
    )

    def chance(weights) -> float:
        tuned = finetune(
            base,
            task="classify",
            train=train,
            dev=train,
            epochs=16.0,
            batch_size=16,
            learning_rate=3e-3,
            evaluate_every=1000,
            terminal=None,
            class_weights=weights,
            dropout=0.0,
            precision="float32",
        )
        (answer,) = tuned.predict(["a cat"])
        return answer["probabilities"]["yes"]

    # The same text in all rows: what is learned is the share of its labels, as they are weighed.
    assert chance(None) == pytest.approx(0.25, abs=0.1)
    assert chance("balanced") == pytest.approx(0.5, abs=0.1)
    assert chance({"yes": 9.0}) == pytest.approx(0.75, abs=0.1)


def test_tagging_is_weighted_and_unlabelled_tasks_are_refused(tmp_path: Path) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    path = tmp_path / "tags.jsonl"
    path.write_text('{"words": ["a", "cat", "runs"], "tags": ["O", "B", "O"]}\n' * 8)
    tuned = finetune(
        base, task="tag", train=path, dev=path, epochs=1.0, terminal=None, class_weights="balanced"
    )
    assert tuned.loaded_model.preset.heads["token_label"].loss.label_weights == pytest.approx(
        (1.5, 0.75)
    )
    numbers = toy.write(tmp_path / "n.tsv", [("a", "1"), ("b", "2")] * 4, "text\tscore")
    with pytest.raises(ValueError, match="class_weights are of labels of which a head says one"):
        finetune(
            base, task="regress", train=numbers, dev=numbers, terminal=None,
            class_weights="balanced",
        )  # fmt: skip
    train = toy.write(tmp_path / "train.tsv", rows(20, 4))
    with pytest.raises(ValueError, match="not of classify with"):
        finetune(
            toy.pretrained("t5", tmp_path / "t5"), task="classify", train=train, dev=train,
            terminal=None, class_weights="balanced",
        )  # fmt: skip
