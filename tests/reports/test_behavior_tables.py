"""Tables of behavior without tuning: what their sentences count, and their numbers."""

import numpy as np

from unmask.analysis.behavior.blanks import ClozeItem
from unmask.analysis.behavior.cloze_scores import ClozeAccuracies, ClozeFindings
from unmask.analysis.behavior.minimal_pairs import MinimalPair
from unmask.analysis.behavior.pair_scores import PairAccuracies, PairFindings
from unmask.analysis.behavior.reading_scores import (
    NetworkReading,
    ReadingFindings,
    SurprisalEffect,
)
from unmask.reports.analysis.behavior.cloze_tables import cloze_sentences, cloze_table
from unmask.reports.analysis.behavior.pairs_tables import pair_sentences, phenomenon_table
from unmask.reports.analysis.behavior.reading_tables import effect_table, reading_sentences


def test_paradigms_above_and_below_chance() -> None:
    rates = {"high": 19, "low": 1, "middle": 11}
    pairs = [MinimalPair("a", "b", name, "all_kinds") for name in rates for _ in range(20)]
    credits = np.concatenate([np.arange(20) < n for n in rates.values()]).astype(float)
    findings = PairFindings(
        model="m", data="d", likelihood="l", n_pairs=60, n_pairs_in_data=90,
        accuracies=(
            PairAccuracies.of("trained", pairs, credits),
            PairAccuracies.of("fewer_tokens", pairs, np.full(60, 0.5)),
        ),
        phenomenon_of={}, errors=(),
    )  # fmt: skip
    first, second = pair_sentences(findings)
    assert "mean of 3 paradigms" in first
    assert first.endswith("above chance: 1, below: 1.")
    assert second.endswith("above chance: 0, below: 0.")
    titles, rows = phenomenon_table(findings)
    assert titles == ["phenomenon", "pairs", "ties", "trained weights", "fewer tokens"]
    assert rows[0] == ["all kinds", "60", "0", "51.7 (39.3 to 63.8)", "50.0"]


def test_tasks_above_their_own_chance() -> None:
    items = [ClozeItem("", "", ("x",) * n, 0, f"of_{n}") for n in (2, 10) for _ in range(20)]
    credits = np.tile(np.arange(20) < 10, 2).astype(float)
    findings = ClozeFindings(
        model="m", data="d", are_facts=False, n_items=40, n_in_data=40, n_too_long=0,
        n_several_tokens=0, accuracies=(ClozeAccuracies.of("trained", items, credits),),
        chance=(0.5, 0.1), overall_chance=0.3,
    )  # fmt: skip
    assert next(iter(cloze_sentences(findings))).endswith("tasks above chance: 1.")
    assert cloze_table(findings)[1][1] == ["of 10", "20", "10.0", "50.0 (29.9 to 70.1)", "–"]


def test_effects_are_in_percent() -> None:
    effects = [
        SurprisalEffect(
            measure=f"m{p}", n_words=50, r2_baseline=0.5, r2=r2, slope=-1.5, slope_low=-2.0,
            slope_high=-1.0, p_value=p,
        )
        for p, r2 in ((0.01, 0.6), (0.2, 0.51))
    ]  # fmt: skip
    network = NetworkReading(
        name="trained", mean_surprisal=9.0, frequency_correlation=-0.5, effects=tuple(effects)
    )
    findings = ReadingFindings(
        model="m", data="d", n_words=50, n_too_long=0, spillover=(), token_count=False,
        networks=(network,),
    )  # fmt: skip
    (sentence,) = reading_sentences(findings)
    assert "explains 11.00\N{NARROW NO-BREAK SPACE}% of what the baseline leaves" in sentence
    assert "2 measures, 1 of which are significant" in sentence
    assert effect_table(findings)[1][0] == [
        "m0.01", "50", "50.00", "trained", "+10.00", "20.00", "−1.50 (−2.00 to −1.00)", "0.010",
    ]  # fmt: skip
