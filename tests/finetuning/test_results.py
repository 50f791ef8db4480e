"""Results: confusions, mistakes and chance are what a person would count by hand."""

import numpy as np
import pytest
import toy_models as toy

from unmask.finetuning.formulations.build import formulate
from unmask.finetuning.formulations.span_head import SpanPredictions
from unmask.finetuning.formulations.token_classification_head import TagPredictions
from unmask.finetuning.results import report
from unmask.finetuning.results.error_analysis import list_errors
from unmask.tasks.task import Task, TaskColumns, TaskExample

COLUMNS = TaskColumns(texts=("text",), label="label")
CLASSIFY = Task(task_kind="classify", columns=COLUMNS, labels=("a", "b"))
ITEMS = [TaskExample(texts=(f"text {i}",), label=t) for i, t in enumerate("abba")]


def scores(*shares: float) -> list[np.ndarray]:
    return [np.log(np.array([[1 - s, s]])) for s in shares]


SAID = scores(0.9, 0.8, 0.4, 0.1)  # wrong about the first, surely, and about the third


def test_confusion_matrix_counts_truth_and_prediction() -> None:
    formulation = formulate(CLASSIFY, toy.card("bert"), toy.tokenizer("bert"))
    table = report.confusion_matrix(formulation, ITEMS, SAID)
    assert table == {"labels": ["a", "b"], "counts": [[1, 1], [1, 1]]}


def test_errors_are_listed_by_confidence() -> None:
    formulation = formulate(CLASSIFY, toy.card("bert"), toy.tokenizer("bert"))
    found = list_errors(formulation, ITEMS, SAID)
    assert [wrong["text"] for wrong in found] == ["text 0", "text 2"]
    assert found[0]["truth"] == "a"
    assert found[0]["predicted"] == "b"
    assert found[0]["probability"] == pytest.approx(0.9)


def test_calibration_compares_probability_with_correctness() -> None:
    found = report.calibration_report(CLASSIFY, ITEMS, SAID)
    assert found is not None
    # Said "b" at 0.9 (wrong) and 0.8, "a" at 0.6 (wrong) and 0.9: each alone in its bin but 0.9.
    assert found["ece"] == pytest.approx((abs(1.8 - 1) + 0.2 + 0.6) / 4)
    assert found["brier"] == pytest.approx(2 * (0.9**2 + 0.2**2 + 0.6**2 + 0.1**2) / 4)
    assert sum(one["count"] for one in found["bins"]) == 4
    unscaled = [rows + 3.0 for rows in SAID]  # scores that are no logarithms of shares
    assert report.calibration_report(CLASSIFY, ITEMS, unscaled)["ece"] == pytest.approx(
        found["ece"]
    )
    number = Task(task_kind="regress", columns=COLUMNS, metric="pearson")
    assert report.calibration_report(number, ITEMS, SAID) is None


def test_probabilities_between_two_labels_are_counted_by_hundredths() -> None:
    found = report.probability_counts(CLASSIFY, ITEMS, scores(0.9, 0.8, 0.4, 0.1))
    assert found is not None
    assert found["label"] == "b"
    assert {i: n for i, n in enumerate(found["positives"]) if n} == {40: 1, 80: 1}
    assert {i: n for i, n in enumerate(found["negatives"]) if n} == {10: 1, 90: 1}
    sure = report.probability_counts(CLASSIFY, ITEMS[:1], [np.array([[-1000.0, 0.0]])])
    assert sure is not None
    assert sure["negatives"][100] == 1
    three = Task(task_kind="classify", columns=COLUMNS, labels=("a", "b", "c"))
    assert report.probability_counts(three, ITEMS, SAID) is None


def test_errors_have_the_probability_of_the_truth() -> None:
    formulation = formulate(CLASSIFY, toy.card("bert"), toy.tokenizer("bert"))
    found = list_errors(formulation, ITEMS, SAID)
    assert [wrong["truth_probability"] for wrong in found] == pytest.approx([0.1, 0.4])


def test_regression_errors_are_ranked_by_distance() -> None:
    task = Task(task_kind="regress", columns=COLUMNS, metric="pearson")
    formulation = formulate(task, toy.card("bert"), toy.tokenizer("bert"))
    items = [TaskExample(texts=("x",), label=1.0), TaskExample(texts=("y",), label=2.0)]
    found = list_errors(formulation, items, [np.array([[1.5]]), np.array([[12.0]])])
    assert [(w["truth"], w["predicted"]) for w in found] == [
        ("2", "12"), ("1", "1.5"),
    ]  # fmt: skip


def test_majority_baseline_is_most_frequent_training_label() -> None:
    train = [TaskExample(texts=("x",), label=t) for t in "bbba"]
    assert report.majority_baseline(CLASSIFY, train, ITEMS[:3]) == pytest.approx(2 / 3)
    number = Task(task_kind="regress", columns=COLUMNS, metric="mean_squared_error")
    items = [TaskExample(texts=("x",), label=t) for t in (1.0, 3.0)]
    assert report.majority_baseline(number, items, items) == 1.0
    tag = Task(task_kind="tag", columns=COLUMNS, labels=("B-X", "O"), metric="token_accuracy")
    items = [TaskExample(texts=("x", "y", "z"), label=("O", "B-X", "O"))]
    assert report.majority_baseline(tag, items, items) == pytest.approx(2 / 3)


TAG = Task(
    task_kind="tag", columns=COLUMNS, labels=("B-X", "I-X", "O"), metric="entity_f1",
    options={"tag_scheme": "BIO"},
)  # fmt: skip
SENTENCES = [
    TaskExample(texts=("cat", "runs", "cat"), label=("B-X", "O", "B-X")),
    TaskExample(texts=("dog",), label=("B-X",)),
]


def tagged(*rows: tuple[float, ...]) -> TagPredictions:
    shares = np.array(rows)
    return TagPredictions(np.log(shares), shares.argmax(1))


OF_WORDS = [
    tagged((0.8, 0.1, 0.1), (0.7, 0.1, 0.2), (0.6, 0.2, 0.2)),
    tagged((0.05, 0.05, 0.9)),
]


def test_tagging_errors_are_listed_by_confidence_with_position() -> None:
    formulation = formulate(TAG, toy.card("bert"), toy.tokenizer("bert"))
    found = list_errors(formulation, SENTENCES, OF_WORDS)
    assert [(w["text"], w["truth"], w["predicted"]) for w in found] == [
        ("dog", "B-X", "O"), ("cat runs cat", "O", "B-X"),
    ]  # fmt: skip
    assert [w["probability"] for w in found] == pytest.approx([0.9, 0.7])
    start, end = found[1]["marked"]
    assert found[1]["text"][start:end] == "runs"


def test_error_in_long_sentence_is_shown_with_its_neighbors() -> None:
    formulation = formulate(TAG, toy.card("bert"), toy.tokenizer("bert"))
    words = ("tree",) * 200
    item = TaskExample(texts=words, label=("O",) * 99 + ("B-X",) + ("O",) * 100)
    (wrong,) = list_errors(formulation, [item], [tagged(*[(0.1, 0.1, 0.8)] * 200)])
    start, end = wrong["marked"]
    assert wrong["text"][start:end] == "tree"
    assert wrong["text"].startswith("…")
    assert wrong["text"].endswith("…")
    assert len(wrong["text"]) < 300


def test_tagging_confusion_and_calibration_are_per_word() -> None:
    formulation = formulate(TAG, toy.card("bert"), toy.tokenizer("bert"))
    table = report.confusion_matrix(formulation, SENTENCES, OF_WORDS)
    assert table == {"labels": ["B-X", "I-X", "O"], "counts": [[2, 0, 1], [0, 0, 0], [1, 0, 0]]}
    found = report.calibration_report(TAG, SENTENCES, OF_WORDS)
    assert found is not None
    assert sum(one["count"] for one in found["bins"]) == 4
    assert found["ece"] == pytest.approx((0.2 + 0.7 + 0.4 + 0.9) / 4)


def test_multilabel_results_are_counted_per_label() -> None:
    task = Task(task_kind="multilabel", columns=COLUMNS, labels=("a", "b"), metric="micro_f1")
    formulation = formulate(task, toy.card("bert"), toy.tokenizer("bert"))
    items = [TaskExample(texts=("x",), label=("a",)), TaskExample(texts=("y",), label=("a", "b"))]
    output = [np.log([[3.0, 9.0]]), np.log([[1 / 9, 9.0]])]  # odds of 0.75 and 0.9; 0.1 and 0.9
    assert report.confusion_matrix(formulation, items, output) is None
    assert report.label_counts(formulation, items, output) == [
        {"label": "a", "found": 1, "missed": 1, "invented": 0},
        {"label": "b", "found": 1, "missed": 0, "invented": 1},
    ]
    trusted = report.calibration_report(task, items, output)
    assert trusted is not None
    assert sum(one["count"] for one in trusted["bins"]) == 4
    # That "a" holds of the second, and "b" of the first, is decided wrongly, each at 0.9.
    assert trusted["ece"] == pytest.approx((1 - 0.75 + 3 * 0.9 - 1) / 4)
    first, second = list_errors(formulation, items, output)
    assert (first["truth"], first["predicted"]) == ("a | b", "b")
    assert first["probability"] == pytest.approx(0.9 * 0.9)
    assert first["truth_probability"] == pytest.approx(0.1 * 0.9)
    assert second["probability"] == pytest.approx(0.75 * 0.9)


def test_choice_results_have_calibration_and_errors() -> None:
    columns = TaskColumns(texts=("context",), label="label", choices=("choices",))
    task = Task(task_kind="choose", columns=columns)
    formulation = formulate(task, toy.card("bert"), toy.tokenizer("bert"))
    items = [
        TaskExample(texts=("x", ""), label=0, choices=("one", "two", "three")),
        TaskExample(texts=("y", ""), label=1, choices=("one", "two")),
    ]
    output = [np.log([[0.3, 0.6, 0.1]]), np.log([[0.2, 0.8]])]
    (wrong,) = list_errors(formulation, items, output)
    assert (wrong["truth"], wrong["predicted"]) == ("one", "two")
    assert wrong["probability"] == pytest.approx(0.6)
    assert wrong["truth_probability"] == pytest.approx(0.3)
    found = report.calibration_report(task, items, output)
    assert found is not None
    assert found["ece"] == pytest.approx((0.6 + 0.2) / 2)


def test_gold_answer_is_marked_in_a_wrong_prediction() -> None:
    task = Task(
        task_kind="answer", columns=TaskColumns(texts=("question", "context"), label="answers"),
        metric="answer_f1", options={"allow_no_answer": False},
    )  # fmt: skip
    formulation = formulate(task, toy.card("bert"), toy.tokenizer("bert"))
    context = "the tree. " * 50 + "the cat runs. " + "the dog. " * 50
    item = TaskExample(texts=("who runs?", context), label=("the cat",), answer_starts=(500,))
    spoken = SpanPredictions(
        spans=np.array([[500, 507 + 5], [0, 8]]),
        span_scores=np.array([2.0, 1.0]),
        null_score=0.0,
        total_loss=1.0,
        n_windows=1,
    )
    (wrong,) = list_errors(formulation, [item], [spoken])
    start, end = wrong["marked"]
    assert wrong["text"][start:end] == "the cat"
    assert wrong["text"].startswith("who runs? | …")
    assert wrong["predicted"] == "the cat runs"
    assert wrong["probability"] == pytest.approx(1 / (1 + np.exp(-1)))
