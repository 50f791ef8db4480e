"""Metrics of tags: entities are those of `conlleval`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.tasks.metrics.tagging import (
    entity_counts,
    entity_scores,
    extract_entities,
    has_entity_labels,
    tagging_metrics,
    token_accuracy,
)


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
def test_entities_equal_conlleval(tags, found) -> None:
    assert extract_entities(tags.split()) == found


spans = st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["PER", "LOC", ""])), max_size=8)


@given(spans, st.booleans())
def test_written_entities_read_back(parts, singles) -> None:
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
    assert extract_entities(tags) == expected


def test_entity_counts_if_boundaries_and_type_are_correct() -> None:
    labels = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-ORG"]]
    predictions = [["B-PER", "O", "O", "B-LOC"], ["B-ORG", "B-LOC"]]
    scores = entity_scores(labels, predictions)
    assert scores.precision == 1 / 4
    assert scores.recall == 1 / 3
    assert scores.f1 == pytest.approx(2 / 7)
    assert token_accuracy(labels, predictions) == 3 / 6


def test_labels_mark_entities_only_if_all_do() -> None:
    assert has_entity_labels(("O", "B-X", "I-X"))
    assert not has_entity_labels(("NOUN", "VERB"))
    assert not has_entity_labels(("O",))
    assert not has_entity_labels(("O", "B-X", "NOUN"))
    assert not has_entity_labels(("B-", "O"))


def test_metrics_of_no_sentences_are_zero() -> None:
    assert set(tagging_metrics([], [], ("O", "B-X")).values()) == {0.0}


def test_entities_are_counted_by_type() -> None:
    truth = ["B-PER", "I-PER", "O", "B-LOC", "B-LOC"]
    predicted = ["B-PER", "I-PER", "O", "B-ORG", "B-LOC"]
    assert entity_counts([(truth, predicted)]) == [
        {"label": "LOC", "found": 1, "missed": 1, "invented": 0},
        {"label": "ORG", "found": 0, "missed": 0, "invented": 1},
        {"label": "PER", "found": 1, "missed": 0, "invented": 0},
    ]
