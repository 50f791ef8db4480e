"""Human judgments: files, and correlations with their intervals."""

import json
import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from scipy.stats import norm, spearmanr

from unmask.analysis.behavior.judgments import (
    Judgment,
    measure_judgments,
    pearson_interval,
    read_judgments,
    spearman_interval,
)
from unmask.analysis.behavior.minimal_pairs import MinimalPair

ROWS = [{"sentences": f"a {i}ity\ta {i}ness", "ratio": i / 10} for i in range(5)]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_files_are_groups(tmp_path: Path) -> None:
    write(tmp_path / "wug_past_tense.jsonl", ROWS)
    write(tmp_path / "adjectives.jsonl", [row | {"ratio": str(row["ratio"])} for row in ROWS])
    found = read_judgments(tmp_path)
    assert len(found) == 10
    pair = MinimalPair("a 2ity", "a 2ness", "adjectives", "adjectives")
    assert found[2] == Judgment(pair, 0.2)
    assert found[5].texts.paradigm == "wug_past_tense"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "the file is empty"),
        ([{"sentences": "a\tb"}], "need a column 'ratio'"),
        ([*ROWS, {"sentences": "a b", "ratio": 1}], ":6: sentences must be two texts with a tab"),
        ([{"sentences": "a\tb\tc", "ratio": 1}], "two texts with a tab"),
        ([{"sentences": "a\t ", "ratio": 1}], "two texts with a tab"),
        ([{"sentences": "a\tb", "ratio": "many"}], ":1: ratio must be a number, got str"),
        ([{"sentences": "a\tb", "ratio": math.nan}], "ratio must be a number"),
        (ROWS[:3], "needs 4 items or more whose ratios differ, got 3 with 3"),
        ([ROWS[0]] * 5, "got 5 with 1 different"),
    ],
)
def test_bad_rows_are_refused(rows: list[dict[str, Any]], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        read_judgments(write(tmp_path / "rows.jsonl", rows))


def judgments(ratings: np.ndarray, group: str) -> list[Judgment]:
    return [Judgment(MinimalPair("a", "b", group, group), float(one)) for one in ratings]


def test_correlations_of_each_group() -> None:
    rng = np.random.default_rng(0)
    ratings, preferences = rng.random(40), rng.normal(size=40)
    given = [*judgments(ratings[:25], "one"), *judgments(ratings[25:], "two")]
    found = measure_judgments("trained", given, preferences)
    assert [(one.name, one.n_items) for one in found.groups] == [("one", 25), ("two", 15)]
    # the evaluation of BabyLM: Spearman's correlation of the softmax of both likelihoods
    shares = np.exp(preferences) / (1 + np.exp(preferences))
    first, second = found.groups
    assert first.spearman.value == pytest.approx(spearmanr(shares[:25], ratings[:25])[0])
    expected = np.corrcoef(shares[25:], ratings[25:])[0, 1]
    assert second.pearson.value == pytest.approx(expected)
    assert first.spearman.low < first.spearman.value < first.spearman.high


def test_large_preferences_do_not_tie() -> None:
    given = judgments(np.arange(6.0), "one")
    preferences = np.array([-900.0, -800.0, 0.0, 40.0, 50.0, 60.0])
    group = measure_judgments("trained", given, preferences).groups[0]
    assert group.spearman.value == pytest.approx(1)
    assert 0 < group.pearson.value < 1


def test_alike_preferences_have_no_correlation() -> None:
    found = measure_judgments("fewer_tokens", judgments(np.arange(5.0), "one"), np.zeros(5))
    assert math.isnan(found.groups[0].spearman.value)
    assert found.to_json()["one"]["pearson"] == {"value": None, "low": None, "high": None}


@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_intervals_hold_the_correlation_in_95_of_100_samples(rho: float) -> None:
    rng = np.random.default_rng(1)
    covered = {"pearson": 0, "spearman": 0}
    population = 6 / math.pi * math.asin(rho / 2)  # Spearman's correlation of normal variables
    for _ in range(600):
        x, y = rng.multivariate_normal([0, 0], [[1, rho], [rho, 1]], size=30).T
        linear = pearson_interval(float(np.corrcoef(x, y)[0, 1]), 30)
        rank = spearman_interval(float(cast("Any", spearmanr(x, y)).statistic), 30)
        covered["pearson"] += linear.low < rho < linear.high
        covered["spearman"] += rank.low < population < rank.high
    margin = 600 * 0.04  # four and a half standard errors of a share of 0.95
    assert norm.cdf(4.5) > 0.99999
    assert all(abs(n - 570) < margin for n in covered.values()), covered
