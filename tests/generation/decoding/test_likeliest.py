"""The likeliest tokens: those of a look at all, also where many are equal or impossible."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.generation.decoding.likeliest import likeliest
from unmask.generation.settings import Sampling


@given(
    b=st.integers(1, 3),
    v=st.integers(1, 3000),
    k=st.integers(1, 9),
    levels=st.sampled_from([2, 50, 10**6]),
    seed=st.integers(0, 10**6),
)
def test_likeliest_equal_those_of_all(b: int, v: int, k: int, levels: int, seed: int) -> None:
    rng, k = np.random.default_rng(seed), min(k, v)
    logits = torch.from_numpy(rng.integers(0, levels, (b, v)).astype(np.float32))
    logits[:, rng.integers(0, v)] = -torch.inf
    values, ids = likeliest(logits, k)
    assert torch.equal(values, logits.topk(k).values)
    assert torch.equal(logits.gather(1, ids), values)
    assert all(len({*row}) == k for row in ids.tolist())
    if k == 1:
        assert torch.equal(ids[:, 0], logits.argmax(-1))


def by_sorting(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """Keep the fewest that reach a probability, of equal ones the first."""
    ordered, order = probabilities.sort(descending=True, stable=True)
    before = ordered.double().cumsum(-1) - ordered
    removed = torch.zeros_like(order, dtype=torch.bool).scatter(-1, order, before >= top_p)
    return probabilities.masked_fill(removed, 0)


@pytest.mark.parametrize("top_p", [1e-6, 0.3, 0.9, 0.999999])
@pytest.mark.parametrize("spread", [0.0, 0.5, 3.0, 12.0])
@pytest.mark.parametrize("step", [0.0, 0.5])
def test_top_p_equals_that_of_a_sorted_vocabulary(top_p: float, spread: float, step: float) -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, 5000) * spread
    if step:  # many equal ones
        logits = (logits / step).round() * step
    probabilities = logits.softmax(-1)
    found = Sampling(top_p=top_p).probabilities(probabilities.log())
    expected = by_sorting(probabilities.log().softmax(-1), top_p)
    assert torch.equal(found > 0, expected > 0)
    torch.testing.assert_close(found, expected)
