"""Settings: filters equal the reference's, tokens are drawn as they are probable."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.generation.settings import (
    BeamSearch,
    GenerationConfig,
    Greedy,
    Sampling,
    generation_config,
)
from unmask.generation.state import NO_TOKEN, select_tokens

scores = st.lists(st.integers(-90, 90).map(lambda i: i / 4), min_size=2, max_size=40, unique=True)


def warped(row: torch.Tensor, *warpers: Any) -> torch.Tensor:
    """Let the reference's filters act one after another."""
    for warper in warpers:
        row = warper(torch.zeros(1, 1), row)
    return row


@given(some=scores, k=st.integers(1, 45))
def test_top_k_equals_reference(some: list[float], k: int) -> None:
    from transformers import TopKLogitsWarper

    row = torch.tensor([some])
    expected = warped(row, TopKLogitsWarper(k)).softmax(-1)
    torch.testing.assert_close(Sampling(top_k=k).probabilities(row), expected)


@given(some=scores, k=st.none() | st.integers(1, 45), p=st.floats(0.01, 0.99))
def test_top_p_equals_reference(some: list[float], k: int | None, p: float) -> None:
    from transformers import TopKLogitsWarper, TopPLogitsWarper

    row = torch.tensor([some])
    cut = row if k is None else warped(row, TopKLogitsWarper(k))
    expected = warped(cut, TopPLogitsWarper(p)).isfinite()
    share = Sampling(top_k=k, top_p=p).probabilities(row)[0]
    ordered = cut[0].double().softmax(-1).sort(descending=True).values
    if float((ordered.cumsum(0) - p).abs().min()) > 1e-5:  # not where rounding decides
        assert ((share > 0) == (expected[0] & (cut[0].softmax(-1) > 0))).all()
    # By definition: the fewest tokens with at least p.
    kept = share[share > 0].double()
    assert float(kept.sum()) > p - 1e-5
    assert float(kept.sum() - kept.min()) < p + 1e-5


@given(some=scores, p=st.floats(0.01, 0.99), temperature=st.sampled_from([0.5, 1.0, 3.0]))
def test_min_p_equals_reference(some: list[float], p: float, temperature: float) -> None:
    from transformers import MinPLogitsWarper, TemperatureLogitsWarper

    row = torch.tensor([some])
    expected = warped(row, TemperatureLogitsWarper(temperature), MinPLogitsWarper(p))
    ratio = ((row - row.max()) / temperature).double().exp()
    if float((ratio - p).abs().min()) > 1e-5:  # not where rounding decides
        share = Sampling(temperature=temperature, min_p=p).probabilities(row)
        assert torch.equal(share > 0, expected.isfinite() & (expected.softmax(-1) > 0))


@given(some=scores, p=st.floats(0.01, 0.99), k=st.none() | st.integers(1, 45))
def test_typical_p_equals_reference(some: list[float], p: float, k: int | None) -> None:
    from transformers import TopKLogitsWarper, TypicalLogitsWarper

    row = torch.tensor([some]) / 8  # so that several tokens are probable
    cut = row if k is None else warped(row, TopKLogitsWarper(k))
    expected = warped(cut, TypicalLogitsWarper(p))
    exact = cut[0].double().softmax(-1)
    far = (-exact.log() - torch.special.entr(exact).sum()).abs()
    order = far.argsort()
    sums = exact[order].cumsum(0)
    near = far[order].diff()
    if float((sums - p).abs().min()) > 1e-5 and float(near.nan_to_num(1.0).min()) > 1e-5:
        share = Sampling(top_k=k, typical_p=p).probabilities(row)
        assert torch.equal(share > 0, expected.isfinite())


def test_typical_p_drops_too_likely_tokens() -> None:
    # Meister et al. 2023, section 4, worked out by hand: -ln p is 0.51, 1.39, 2.30 and 3.00, the
    # entropy 1.03; nearest are the second (0.36), the first (0.52), the third and the last.
    row = torch.tensor([[0.6, 0.25, 0.1, 0.05]]).log()
    assert (Sampling(typical_p=0.2).probabilities(row) > 0).tolist() == [
        [False, True, False, False]
    ]
    assert (Sampling(typical_p=0.3).probabilities(row) > 0).tolist() == [[True, True, False, False]]
    assert (Sampling(typical_p=1.0).probabilities(row) > 0).all()


@given(some=scores, k=st.integers(2, 30), p=st.floats(0.3, 0.9), low=st.floats(0.01, 0.4))
def test_filters_apply_in_fixed_order(some: list[float], k: int, p: float, low: float) -> None:
    import transformers as hf

    row = torch.tensor([some])
    steps = [hf.TemperatureLogitsWarper(2.0), hf.TopKLogitsWarper(k), hf.TopPLogitsWarper(p)]
    steps += [hf.MinPLogitsWarper(low), hf.TypicalLogitsWarper(0.95)]
    expected = warped(row, *steps).softmax(-1)
    how = Sampling(temperature=2.0, top_k=k, top_p=p, min_p=low, typical_p=0.95)
    share = how.probabilities(row)
    # each filter with numbers a little to both sides: where they agree, rounding does not decide
    sides = [
        Sampling(
            temperature=2.0, top_k=k, top_p=p + e, min_p=low + e, typical_p=0.95 + e
        ).probabilities(row)
        for e in (-1e-5, 1e-5)
    ]
    if torch.equal(sides[0] > 0, sides[1] > 0):
        torch.testing.assert_close(share / share.sum(), expected, rtol=1e-5, atol=1e-7)


def test_ties_with_the_kth_token_are_kept() -> None:
    row = torch.tensor([[1.0, 3.0, 1.0, 0.0]])
    assert (Sampling(top_k=2).probabilities(row)[0] > 0).tolist() == [True, True, True, False]
    long = torch.zeros(1, 50_000)
    assert int((Sampling(top_p=1.0).probabilities(long) > 0).sum()) == 50_000
    assert int((Sampling(top_p=0.5).probabilities(long) > 0).sum()) == pytest.approx(25_000, abs=1)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**40),
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    k=st.none() | st.integers(1, 8),
    p=st.none() | st.floats(0.2, 1.0),
    low=st.none() | st.floats(0.01, 0.5),
    typical=st.none() | st.floats(0.2, 1.0),
)
def test_sample_frequencies_equal_probabilities(
    seed: int,
    temperature: float,
    k: int | None,
    p: float | None,
    low: float | None,
    typical: float | None,
) -> None:
    n = 4000
    row = torch.randn(1, 9, generator=torch.Generator().manual_seed(seed % 2**31))
    how = Sampling(temperature=temperature, top_k=k, top_p=p, min_p=low, typical_p=typical)
    generator = [np.random.default_rng([seed, i]) for i in range(n)]
    drawn = np.bincount(select_tokens(row.expand(n, -1), how, generator).numpy(), minlength=9)
    share = how.probabilities(row)[0].double()
    expected = (share / share.sum()).numpy() * n
    assert (drawn[expected == 0] == 0).all()
    some = expected > 5
    chi = float(((drawn - expected)[some] ** 2 / expected[some]).sum())
    assert chi < 40  # 8 degrees of freedom: above it once in 300,000


def test_no_token_is_selected_where_none_is_allowed() -> None:
    none = torch.tensor([[-torch.inf, -torch.inf], [-torch.inf, 0.0]])
    for by in (Greedy(), Sampling()):
        generator = [np.random.default_rng(i) for i in range(2)]
        assert select_tokens(none, by, generator).tolist() == [NO_TOKEN, 1]


def test_named_settings_build_the_config() -> None:
    assert (
        generation_config()
        == generation_config(temperature=0)
        == generation_config(temperature=0.0, seed=0)
        == GenerationConfig()
    )
    drawn = generation_config(temperature=0.5, min_p=0.1, stop="a", max_new_tokens=3)
    sample = Sampling(temperature=0.5, min_p=0.1)
    assert drawn == GenerationConfig(strategy=sample, stop=("a",), max_new_tokens=3)
    assert generation_config(beams=3, n_best=2, no_repeat_ngram_size=2) == GenerationConfig(
        strategy=BeamSearch(beams=3, n_best=2), no_repeat_ngram_size=2
    )
    assert generation_config(stop=["a", "b"]).stop == ("a", "b")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1, got 0"),
        ({"min_new_tokens": 51}, "min_new_tokens must be from 0 to the 50 new tokens, got 51"),
        ({"min_new_tokens": -1}, "min_new_tokens must be from 0 to the 50 new tokens, got -1"),
        ({"temperature": -0.1}, "temperature must be from 1e-6 to 1e6, got -0.1"),
        ({"temperature": float("nan")}, "temperature must be from 1e-6 to 1e6, got nan"),
        ({"temperature": float("inf")}, "temperature must be from 1e-6 to 1e6, got inf"),
        ({"temperature": 1.0, "top_k": 0}, "top_k must be at least 1, got 0"),
        ({"temperature": 1.0, "top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0"),
        ({"temperature": 1.0, "top_p": 1.1}, "top_p must be above 0 and at most 1, got 1.1"),
        ({"temperature": 1.0, "min_p": 0.0}, "min_p must be above 0 and at most 1, got 0.0"),
        (
            {"temperature": 1.0, "typical_p": 2.0},
            "typical_p must be above 0 and at most 1, got 2.0",
        ),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"top_k": 5}, "at temperature 0 none is: give a temperature above 0"),
        ({"temperature": 0, "top_p": 0.9}, "top_p: says among which tokens one is drawn"),
        ({"beams": 0}, "beams must be at least 1, got 0"),
        ({"beams": 2, "n_best": 3}, "n_best must be from 1 to the 2 beams, got 3"),
        ({"beams": 2, "length_penalty": float("nan")}, "length_penalty must be a number, got nan"),
        ({"beams": 2, "temperature": 1.0}, "give beams or temperature, not both"),
        ({"n_best": 2}, "n_best: for a search with beams: give beams, or samples of what is drawn"),
        ({"n_best": 2, "temperature": 1.0}, "give beams, or samples"),
        ({"samples": 3}, "samples are drawn: give a temperature above 0"),
        ({"samples": 3, "temperature": 0}, "samples are drawn: give a temperature above 0"),
        ({"samples": 0, "temperature": 1.0}, "samples must be at least 1, got 0"),
        ({"samples": 2, "n_best": 3, "temperature": 1.0}, "n_best must be from 1 to the 2 samples"),
        ({"samples": 2, "beams": 3, "temperature": 1.0}, "give beams or temperature, not both"),
        ({"beams": 2, "window": True}, "give beams or window, not both"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be above 0, got 0.0"),
        ({"no_repeat_ngram_size": 0}, "no_repeat_ngram_size must be at least 1, got 0"),
        ({"stop": ["a", ""]}, "a stop string is empty"),
        ({"beens": 2}, "no setting 'beens'; there are beams, early_stopping,"),
    ],
)
def test_invalid_setting_is_named(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generation_config(**wrong)
