"""Minimal pairs: files of several layouts, samples, and accuracies by group."""

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import make, tokenizer

from unmask.analysis.behavior.minimal_pairs import MinimalPair, read_minimal_pairs, sample_pairs
from unmask.analysis.behavior.pair_scores import (
    PairAccuracies,
    PairLikelihoods,
    score_pairs,
    worst_errors,
)


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_layouts_of_files(tmp_path: Path) -> None:
    both = {"sentence_good": "Dogs run.", "sentence_bad": "Dogs runs."}
    named = both | {"UID": "agreement_1", "linguistics_term": "agreement", "field": "syntax"}
    short = {"good": "a", "bad": "b", "uid": "agreement_1", "term": "agreement"}
    agreement = MinimalPair("Dogs run.", "Dogs runs.", "agreement_1", "agreement")
    assert read_minimal_pairs(write(tmp_path / "a.jsonl", [named])) == [agreement]
    assert read_minimal_pairs(write(tmp_path / "b.jsonl", [short])) == [
        MinimalPair("a", "b", "agreement_1", "agreement")
    ]
    packed = tmp_path / "turn_taking.jsonl.xz"
    packed.write_bytes(lzma.compress(json.dumps(both).encode()))
    alone = MinimalPair("Dogs run.", "Dogs runs.", "turn_taking", "turn_taking")
    assert read_minimal_pairs(packed) == [alone]
    (tmp_path / "notes.txt").write_text("not a pair")
    folder = read_minimal_pairs(tmp_path)
    assert folder == [agreement, MinimalPair("a", "b", "agreement_1", "agreement"), alone]


EWOK = {
    "Domain": "spatial", "ConceptA": "in", "Context1": "It is in.", "Context2": "It is out.",
    "Target1": "Close it.", "Target2": "Get it.",
}  # fmt: skip


def test_targets_or_contexts_are_compared(tmp_path: Path) -> None:
    path = write(tmp_path / "spatial_relations.jsonl", [EWOK])
    targets = MinimalPair("Close it.", "Get it.", "spatial", "spatial", "It is in.", "It is in.")
    contexts = MinimalPair(
        "Close it.", "Close it.", "spatial", "spatial", "It is in.", "It is out."
    )
    assert read_minimal_pairs(path) == [targets]
    assert read_minimal_pairs(path, compared="contexts") == [contexts]
    write(path, [{k: v for k, v in EWOK.items() if k != "Domain"}])
    assert read_minimal_pairs(path)[0].paradigm == "spatial_relations"


def test_each_sentence_is_scored_after_its_own_context(tmp_path: Path) -> None:
    model, known = make("gpt2", tmp_path)[1].model, tokenizer("gpt2")
    pair = MinimalPair("the sea", "the sea", "a", "a", "the old king saw", "A fox slept.")
    found = score_pairs(model, known, [pair, MinimalPair("the sea", "the sea", "a", "a")])
    assert found.good[0] != pytest.approx(found.bad[0])
    assert found.good[0] != pytest.approx(found.good[1])
    assert found.length_credits.tolist() == [0.5, 0.5]
    assert found.credits[1] == 0.5


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "the file is empty"),
        ([EWOK | {"Context2": " "}], r":1: Context2 must be a text, got str"),
        ([{"Context1": "a"}], "no column 'Context2'"),
        ([{"good": "a", "uid": "x"}], "need a column sentence_bad or bad"),
        ([{"good": "a", "bad": "b"}, {"good": "a"}], r":2: bad must be a text, got NoneType"),
        ([{"good": " ", "bad": "b"}], r":1: good must be a text, got str"),
        ([{"good": "a", "bad": 3}], r":1: bad must be a text, got int 3"),
        ([{"good": "a", "bad": "b", "uid": None}], r":1: uid must be a text"),
    ],
)
def test_bad_files_are_refused(rows: list[dict[str, Any]], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        read_minimal_pairs(write(tmp_path / "pairs.jsonl", rows))


def test_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_minimal_pairs(tmp_path / "none.jsonl")
    with pytest.raises(FileNotFoundError, match=r"has no \.jsonl file"):
        read_minimal_pairs(tmp_path)


def pairs(*paradigms: str) -> list[MinimalPair]:
    return [MinimalPair(str(i), f"-{i}", one, one[0]) for i, one in enumerate(paradigms)]


def test_samples_are_spread_over_each_paradigm() -> None:
    given = pairs(*["a1"] * 10, "b1", *["a2"] * 3)
    assert [one.good for one in sample_pairs(given, 2)] == ["0", "5", "10", "11", "12"]
    assert sample_pairs(given, None) == given


def test_accuracy_by_paradigm_phenomenon_and_overall() -> None:
    given = pairs("a1", "a1", "a2", "b1")
    likelihoods = PairLikelihoods(
        good=np.array([-1.0, -2.0, -3.0, -4.0]),
        bad=np.array([-2.0, -2.0, -1.0, -4.5]),
        n_good_tokens=np.array([3, 3, 3, 4]),
        n_bad_tokens=np.array([4, 3, 2, 3]),
    )
    assert likelihoods.credits.tolist() == [1, 0.5, 0, 1]
    assert likelihoods.length_credits.tolist() == [1, 0.5, 0, 0]
    found = PairAccuracies.of("trained", given, likelihoods.credits)
    assert [(x.name, x.accuracy, x.n_ties) for x in found.by_paradigm] == [
        ("a1", 0.75, 1), ("a2", 0.0, 0), ("b1", 1.0, 0),
    ]  # fmt: skip
    assert [(x.name, x.accuracy) for x in found.by_phenomenon] == [("a", 0.5), ("b", 1.0)]
    assert found.overall.accuracy == 0.625
    assert found.paradigm_mean == pytest.approx((0.75 + 0 + 1) / 3)


def test_errors_are_the_worst_of_each_paradigm() -> None:
    given = pairs("a", "a", "b", "c", "d")
    likelihoods = PairLikelihoods(
        np.array([-5.0, -9.0, -2.0, -1.0, -3.0]), np.full(5, -2.0), np.ones(5, int), np.ones(5, int)
    )
    errors = worst_errors(given, likelihoods, 5)
    assert [(one.pair.good, one.margin) for one in errors] == [("1", -7.0), ("4", -1.0)]
    assert worst_errors(given, likelihoods, 1) == errors[:1]


def test_scores_and_lengths_are_those_of_each_sentence(tmp_path: Path) -> None:
    model, known = make("gpt2", tmp_path)[1].model, tokenizer("gpt2")
    given = [MinimalPair("the sea", "the old king saw the sea", "a", "a")]
    found = score_pairs(model, known, [*given, MinimalPair(given[0].bad, given[0].good, "b", "b")])
    assert found.n_good_tokens.tolist() == [
        len(known.encode(given[0].good)),
        *found.n_bad_tokens[:1],
    ]
    assert found.length_credits.tolist() == [1, 0]
    assert found.good[0] == pytest.approx(found.bad[1]) != pytest.approx(found.good[1])
    assert found.credits.tolist() == [1, 0]  # a shorter sentence, by a network without training
