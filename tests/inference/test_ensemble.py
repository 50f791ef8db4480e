"""Ensembles predict the mean of their members' probabilities."""

from pathlib import Path

import numpy as np
import pytest
import toy_models as toy

import unmask
from unmask import Ensemble
from unmask.cli import main as cli


def tuned(folder: Path, seed: int, rows: list, task: str = "classify", **more: object) -> Path:
    base = toy.pretrained("bert", folder / f"base-{seed}", seed=seed)
    train = toy.write(folder / f"train-{seed}.tsv", rows)
    unmask.finetune(
        str(base), task=task, train=train, dev=train, out=folder / f"run-{seed}",
        epochs=1.0, batch_size=16, learning_rate=1e-2, terminal=None, device="cpu", **more,
    )  # fmt: skip
    return folder / f"run-{seed}"


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    rows = toy.texts(32, 1)
    return [tuned(tmp_path, 1, rows), tuned(tmp_path, 2, rows, labels=("yes", "no"))]


def test_probabilities_are_averaged_for_any_label_order(two, tmp_path) -> None:
    texts = [text for text, _ in toy.texts(8, 3)]
    each = [unmask.load(run).predict(texts) for run in two]
    both = Ensemble(two).predict(texts)
    for one, other, mean in zip(*each, both, strict=True):
        for label in ("no", "yes"):
            expected = (one["probabilities"][label] + other["probabilities"][label]) / 2
            assert mean["probabilities"][label] == pytest.approx(expected, abs=1e-6)
        assert mean["label"] == max(mean["probabilities"], key=mean["probabilities"].get)
    assert Ensemble(two).predict([]) == []
    alone = Ensemble([two[0]]).predict(texts)
    assert [a["label"] for a in alone] == [a["label"] for a in each[0]]
    test = toy.write(tmp_path / "test.tsv", toy.texts(40, 4))
    scores = Ensemble(two).score(test)
    right = [
        label == predictions["label"]
        for (_, label), predictions in zip(
            toy.texts(40, 4), Ensemble(two).predict([t for t, _ in toy.texts(40, 4)]), strict=True
        )
    ]
    assert scores["accuracy"] == pytest.approx(np.mean(right))


def test_regression_predictions_are_averaged(tmp_path) -> None:
    rows = [(text, str(len(text) / 10)) for text, _ in toy.texts(32, 1)]
    two = [tuned(tmp_path, seed, rows, "regress", label="label") for seed in (1, 2)]
    one, other = (unmask.load(run).predict(["a good cat"])[0] for run in two)
    assert Ensemble(two).predict("a good cat")[0] == pytest.approx((one + other) / 2, rel=1e-6)


@pytest.mark.thorough
def test_members_of_other_labels_are_refused(two, tmp_path) -> None:
    other = tuned(tmp_path, 3, [(text, "abc"[i % 3]) for i, (text, _) in enumerate(toy.texts(30))])
    with pytest.raises(
        ValueError, match=r"classify \('a', 'b', 'c'\), but the first .*'no', 'yes'"
    ):
        Ensemble([two[0], other])
    with pytest.raises(ValueError, match="there are no models"):
        Ensemble([])


@pytest.mark.thorough
def test_command_line_runs_an_ensemble(two, tmp_path, capsys) -> None:
    test = toy.write(tmp_path / "test.tsv", toy.texts(20, 4))
    assert cli.run(["predict", str(two[0]), "--ensemble", str(two[1]), "a good cat"]) == 0
    assert '"probabilities"' in capsys.readouterr().out
    words = ["evaluate", str(two[0]), "--ensemble", str(two[1]), "--data", str(test)]
    assert cli.run(words) == 0
    assert "accuracy" in capsys.readouterr().out
    assert cli.run([*words, "--task", "blimp"]) == 2
    assert "--ensemble applies to fine-tuned models, not to --task" in capsys.readouterr().err
