"""The bag of words learns what words tell, and is scored beside a network without pretraining."""

import json
from pathlib import Path

import pytest
from small_models import make

from unmask.finetuning.results.bag_of_words import bag_of_words, bag_of_words_score
from unmask.jobs.finetune import finetune
from unmask.tasks.task import Task, TaskColumns, TaskExample

WORDS = ("soup", "bread", "king", "gate", "sea", "fire")


def rows(n: int) -> list[tuple[str, int]]:
    """Texts with one word that tells, and one pair of words that does."""
    found: list[tuple[str, int]] = []
    for i in range(n):
        label = i % 3
        word = WORDS[i % len(WORDS)]
        told = ("lovely", "not bad", "bad")[label]
        found.append((f"The {word} was {told}, {WORDS[i // 3 % len(WORDS)]}!", label))
    return found


def test_words_and_their_pairs_are_learned() -> None:
    train, test = rows(90), rows(33)
    model = bag_of_words(3).fit([text for text, _ in train], [label for _, label in train])
    assert model.predict([text for text, _ in test]).tolist() == [label for _, label in test]
    assert len(model.predict(["", "unknown words alone"])) == 2


def test_only_one_label_for_a_text_is_scored() -> None:
    items = [TaskExample(texts=(text,), label="abc"[label]) for text, label in rows(60)]
    columns = TaskColumns(texts=("text",), label="label")
    task = Task(task_kind="classify", columns=columns, labels=("a", "b", "c"), max_length=32)
    assert bag_of_words_score(task, items, items[:9]) == 1.0
    several = Task(task_kind="multilabel", columns=columns, labels=("a", "b"), max_length=32)
    assert bag_of_words_score(several, items, items[:9]) is None
    alike = [item for item in items if item.label == "a"]
    assert bag_of_words_score(task, alike, items[:9]) is None


def test_it_is_a_baseline_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make("bert", tmp_path / "base")
    lines = [f"{text}\t{'abc'[label]}" for text, label in rows(36)]
    (tmp_path / "rows.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    for name, baseline in (("with", True), ("without", False)):
        finetune(
            tmp_path / "base", task="classify", train=tmp_path / "rows.tsv",
            dev=tmp_path / "rows.tsv", out=tmp_path / name, epochs=1.0, baseline=baseline,
        )  # fmt: skip
    assert "bag of words: accuracy held out 1.0000" in capsys.readouterr().err
    files = [tmp_path / one / "results.json" for one in ("with", "without")]
    results = [json.loads(path.read_text()) for path in files]
    assert results[0]["bag_of_words"] == 1.0
    assert "bag_of_words" not in results[1]
