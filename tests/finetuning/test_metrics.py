"""Metrics: equal to scikit-learn's and SciPy's on anything, and numbers where those have none."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as theirs

from unmask.finetuning import metrics
from unmask.finetuning.metrics import entities, entity_scores, marks_entities

EXACT = 1e-12  # both are float64
pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40)
finite = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 3))
number_pairs = st.lists(st.tuples(finite, finite), min_size=2, max_size=40)


def columns(rows, dtype=np.int64):
    table = np.array(rows, dtype)
    return table[:, 0], table[:, 1]


@given(pairs)
def test_figures_of_classes_equal_scikit_learns(rows) -> None:
    truth, said = columns(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class that is never said
        expected = {
            "accuracy": theirs.accuracy_score(truth, said),
            "macro_f1": theirs.f1_score(truth, said, average="macro", zero_division=0),
            "matthews": theirs.matthews_corrcoef(truth, said),
        }
    assert metrics.of_classes(truth, said, 4) == pytest.approx(expected, abs=EXACT)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30))
def test_f1_of_two_classes_is_that_of_the_last(rows) -> None:
    truth, said = columns(rows)
    ours = metrics.of_classes(truth, said, 2)["f1"]
    assert ours == pytest.approx(theirs.f1_score(truth, said, zero_division=0), abs=EXACT)


@given(number_pairs)
def test_correlations_equal_scipys(rows) -> None:
    truth, said = columns(rows, np.float64)
    if np.ptp(truth) < 1e-3 or np.ptp(said) < 1e-3:
        return  # theirs is not a number, or a warning
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nearly constant
        linear, ranked = stats.pearsonr(truth, said)[0], stats.spearmanr(truth, said)[0]
    # theirs subtracts means of numbers up to 1e6 that may differ by 1e-3
    assert metrics.pearson(truth, said) == pytest.approx(linear, abs=1e-6)
    assert metrics.spearman(truth, said) == pytest.approx(ranked, abs=EXACT)


@given(number_pairs)
def test_squared_error_equals_scikit_learns(rows) -> None:
    truth, said = columns(rows, np.float64)
    ours = metrics.mean_squared_error(truth, said)
    assert ours == pytest.approx(theirs.mean_squared_error(truth, said), rel=1e-12)


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=20),
    st.sampled_from([1e-300, 1e-8, 1.0, 1e8, 1e300]),
)
def test_a_correlation_is_a_number_for_any_finite_numbers(values, scale) -> None:
    x = np.array(values, np.float64)
    y = np.arange(len(x)) * scale
    assert -1 <= metrics.pearson(x, y) <= 1
    assert -1 <= metrics.spearman(x, y) <= 1


def test_what_does_not_vary_correlates_with_nothing() -> None:
    same, other = np.full(7, 0.1), np.arange(7.0)
    assert metrics.pearson(same, other) == 0
    assert metrics.spearman(other, same) == 0
    assert metrics.pearson(np.array([1.0]), np.array([2.0])) == 0
    one = np.zeros(5, np.int64)
    assert metrics.matthews(one, one) == 0
    assert metrics.f1(one, one) == 0


def test_figures_of_nothing_are_zero() -> None:
    none, numbers = np.zeros(0, np.int64), np.zeros(0)
    assert set(metrics.of_classes(none, none, 2).values()) == {0.0}
    assert set(metrics.of_numbers(numbers, numbers).values()) == {0.0}
    assert set(metrics.of_tags([], [], ("O", "B-X")).values()) == {0.0}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("score", [metrics.pearson, metrics.spearman, metrics.mean_squared_error])
def test_numbers_that_are_not_finite_are_an_error(score, bad) -> None:
    with pytest.raises(FloatingPointError, match="diverged"):
        score(np.array([1.0, 2.0]), np.array([1.0, bad]))


def test_matthews_counts_beyond_64_bits() -> None:
    truth = np.repeat([0, 1], 100_000)
    assert metrics.matthews(truth, truth) == 1


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("O B-PER I-PER O B-LOC", [(1, 3, "PER"), (4, 5, "LOC")]),
        ("B-PER B-PER", [(0, 1, "PER"), (1, 2, "PER")]),
        ("I-PER I-PER O I-LOC", [(0, 2, "PER"), (3, 4, "LOC")]),  # IOB1
        ("I-PER B-PER", [(0, 1, "PER"), (1, 2, "PER")]),  # IOB1: B parts neighbors
        ("B-PER I-LOC", [(0, 1, "PER"), (1, 2, "LOC")]),
        ("S-PER S-PER B-LOC E-LOC", [(0, 1, "PER"), (1, 2, "PER"), (2, 4, "LOC")]),  # IOBES
        ("B-LOC I-LOC E-LOC E-LOC I-LOC", [(0, 3, "LOC"), (3, 4, "LOC"), (4, 5, "LOC")]),
        ("B-a-b I-a-b", [(0, 2, "a-b")]),
        ("O O", []),
        ("", []),
    ],
)
def test_entities_are_found_as_conlleval_finds_them(tags, found) -> None:
    assert entities(tags.split()) == found


spans = st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["PER", "LOC", ""])), max_size=8)


@given(spans, st.booleans())
def test_entities_that_are_written_are_read_back(parts, singles) -> None:
    tags, expected = [], []
    for n, kind in parts:
        if not kind:
            tags += ["O"] * n
            continue
        expected.append((len(tags), len(tags) + n, kind))
        if singles:
            inner = ["B", *["I"] * (n - 2), "E"] if n > 1 else ["S"]
        else:
            inner = ["B", *["I"] * (n - 1)]
        tags += [f"{part}-{kind}" for part in inner]
    assert entities(tags) == expected


def test_entities_count_once_borders_and_type_are_right() -> None:
    truth = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-ORG"]]
    said = [["B-PER", "O", "O", "B-LOC"], ["B-ORG", "B-LOC"]]
    scores = entity_scores(truth, said)
    assert scores.precision == 1 / 4
    assert scores.recall == 1 / 3
    assert scores.f1 == pytest.approx(2 / 7)
    assert metrics.token_accuracy(truth, said) == 3 / 6


def test_tags_mark_entities_only_where_all_do() -> None:
    assert marks_entities(("O", "B-X", "I-X"))
    assert not marks_entities(("NOUN", "VERB"))
    assert not marks_entities(("O",))
    assert not marks_entities(("O", "B-X", "NOUN"))
    assert not marks_entities(("B-", "O"))
