"""Results: confusions, mistakes and chance are what a person would count by hand."""

import numpy as np
import pytest
import toy_models as toy

from unmask.finetuning import results
from unmask.finetuning.kinds.catalogue import ask
from unmask.finetuning.tasks import Columns, Item, Task

COLUMNS = Columns(texts=("text",), label="label")
CLASSIFY = Task(does="classify", columns=COLUMNS, labels=("a", "b"))
ITEMS = [Item(texts=(f"text {i}",), truth=t) for i, t in enumerate("abba")]


def scores(*shares: float) -> list[np.ndarray]:
    return [np.log(np.array([[1 - s, s]])) for s in shares]


SAID = scores(0.9, 0.8, 0.4, 0.1)  # wrong about the first, surely, and about the third


def test_confusions_are_counted_by_truth_and_answer() -> None:
    table = results.confusion(CLASSIFY, ITEMS, SAID)
    assert table == {"labels": ["a", "b"], "counts": [[1, 1], [1, 1]]}


def test_mistakes_are_listed_surest_first() -> None:
    asked = ask(CLASSIFY, toy.card("bert"), toy.tokenizer("bert"))
    found = results.mistakes(asked, ITEMS, SAID)
    assert [wrong["text"] for wrong in found] == ["text 0", "text 2"]
    assert found[0]["truth"] == "a"
    assert found[0]["predicted"] == "b"
    assert found[0]["probability"] == pytest.approx(0.9)


def test_probabilities_are_compared_with_what_is_right() -> None:
    found = results.trust(CLASSIFY, ITEMS, SAID)
    assert found is not None
    # Said "b" at 0.9 (wrong) and 0.8, "a" at 0.6 (wrong) and 0.9: each alone in its bin but 0.9.
    assert found["ece"] == pytest.approx((abs(1.8 - 1) + 0.2 + 0.6) / 4)
    assert found["brier"] == pytest.approx(2 * (0.9**2 + 0.2**2 + 0.6**2 + 0.1**2) / 4)
    assert sum(one["count"] for one in found["bins"]) == 4
    unscaled = [rows + 3.0 for rows in SAID]  # scores that are no logarithms of shares
    assert results.trust(CLASSIFY, ITEMS, unscaled)["ece"] == pytest.approx(found["ece"])
    number = Task(does="regress", columns=COLUMNS, metric="pearson")
    assert results.trust(number, ITEMS, SAID) is None


def test_mistakes_have_the_probability_of_the_truth() -> None:
    asked = ask(CLASSIFY, toy.card("bert"), toy.tokenizer("bert"))
    found = results.mistakes(asked, ITEMS, SAID)
    assert [wrong["truth_probability"] for wrong in found] == pytest.approx([0.1, 0.4])


def test_numbers_are_mistaken_by_how_far_they_are_off() -> None:
    task = Task(does="regress", columns=COLUMNS, metric="pearson")
    asked = ask(task, toy.card("bert"), toy.tokenizer("bert"))
    items = [Item(texts=("x",), truth=1.0), Item(texts=("y",), truth=2.0)]
    found = results.mistakes(asked, items, [np.array([[1.5]]), np.array([[12.0]])])
    assert [(w["truth"], w["predicted"], w["probability"]) for w in found] == [
        ("2", "12", None), ("1", "1.5", None),
    ]  # fmt: skip


def test_chance_is_the_most_frequent_label_of_training() -> None:
    train = [Item(texts=("x",), truth=t) for t in "bbba"]
    assert results.chance(CLASSIFY, train, ITEMS[:3]) == pytest.approx(2 / 3)
    number = Task(does="regress", columns=COLUMNS, metric="mean_squared_error")
    items = [Item(texts=("x",), truth=t) for t in (1.0, 3.0)]
    assert results.chance(number, items, items) == 1.0
    tag = Task(does="tag", columns=COLUMNS, labels=("B-X", "O"), metric="token_accuracy")
    items = [Item(texts=("x", "y", "z"), truth=("O", "B-X", "O"))]
    assert results.chance(tag, items, items) == pytest.approx(2 / 3)
