"""All metrics of captions together, and diversity."""

import importlib.util

import pytest

from unmask.tasks.metrics.captioning.captions import (
    CAPTION_METRICS,
    caption_metrics,
    diversity_metrics,
)
from unmask.tasks.metrics.captioning.cider import cider_d_scores, document_frequencies
from unmask.tasks.metrics.metric import METRICS

LABELS = [["a dog runs on grass", "a dog"], ["two cats sleep", "cats"]]
SAID = ["a dog runs on grass", "two dogs sleep"]


def test_all_metrics_by_name() -> None:
    found = caption_metrics(LABELS, SAID)
    assert tuple(found) == CAPTION_METRICS
    assert {*found} <= {*METRICS}
    assert 0 < found["bleu4"] < found["bleu1"] < 100
    assert 0 < found["cider_d"] <= found["cider"] < 10
    assert 0 < found["meteor"] < 1
    assert caption_metrics([], []) == dict.fromkeys(CAPTION_METRICS, 0)


def test_frequencies_of_other_captions_change_cider_only() -> None:
    known = document_frequencies([*LABELS, ["a horse"], ["a car"]])
    found, other = caption_metrics(LABELS, SAID), caption_metrics(LABELS, SAID, known)
    assert {name for name in found if found[name] != other[name]} == {"cider", "cider_d"}
    assert other["cider_d"] == pytest.approx(cider_d_scores(LABELS, SAID, known).mean())


def test_without_nltk_there_is_no_meteor(monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert tuple(caption_metrics(LABELS, SAID)) == CAPTION_METRICS[:-1]


def test_diversity() -> None:
    found = diversity_metrics(["A dog.", "a dog", "a cat runs", ""])
    assert found == {"distinct_captions": 0.75, "vocabulary": 4, "mean_length": 1.75}
    assert set(diversity_metrics([]).values()) == {0}
