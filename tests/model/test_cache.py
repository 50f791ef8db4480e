"""Caches: what tokens may see is there, what none can see any more is forgotten."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.model import cache as module
from unmask.model.backbones.transformer import Architecture, Transformer
from unmask.model.cache import Cache, LayerCache
from unmask.model.positions.rotary import Rotary
from unmask.model.positions.scheme import PositionScheme
from unmask.model.positions.transformer_xl import TransformerXLPositions

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(1, 25)),
        st.tuples(st.just("cut"), st.integers(0, 4)),
        st.tuples(st.just("keep"), st.lists(st.integers(0, 1), min_size=2, max_size=2)),
    ),
    max_size=20,
)


@given(
    STEPS,
    st.none() | st.integers(0, 12),
    st.integers(0, 5),
    st.integers(0, 4),
    st.sampled_from((1, 8)),
)
@settings(max_examples=300)
def test_windowed_cache_equals_unbounded_list(steps, span, first, back, spare) -> None:
    cache, known = LayerCache(span, back), torch.zeros(2, 1, 0, 1)
    cache.prefix_length, number, far = first, 0, 0
    for what, how in [("read", first + 1), *steps]:
        n = known.shape[2]
        if what == "read":
            new = torch.arange(number, number + 2 * how).view(2, 1, how, 1).float()
            number, known = number + 2 * how, torch.cat((known, new), 2)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(module, "_growth", lambda most: spare)
                k, v = cache.extend(new, -new)
            start = 0 if span is None else max(n - span, first)
            seen = torch.cat((known[:, :, :first], known[:, :, max(start, first) :]), 2)
            assert torch.equal(k, seen)
            assert torch.equal(v, -seen)
            far = max(far, n + how)
        elif what == "keep":
            cache.select_rows(torch.tensor(how))
            known = known[how]
        elif n - how >= max(far - back, first):
            cache.crop(n - how)
            known = known[:, :, : n - how]
        assert cache.length == known.shape[2]


def test_capacity_is_little_more_than_the_window() -> None:
    cache = LayerCache(window=100, max_rollback=4)
    cache.prefix_length = 6
    one = torch.zeros(2, 3, 1, 5)
    cache.extend(one.expand(-1, -1, 900, -1), one.expand(-1, -1, 900, -1))
    for _ in range(300):
        k, _ = cache.extend(one, one)
        assert k.shape[2] == 6 + 100 + 1
        assert cache.capacity <= (6 + 100 + 4) * 5 / 4
    assert cache.length == 1200


def test_evicted_tokens_cannot_be_restored() -> None:
    cache, one = Cache([None, 10], max_rollback=2), torch.zeros(1, 1, 60, 1)
    for layer in cache.layers:
        layer.extend(one, one)
    cache.crop(58)
    with pytest.raises(ValueError, match="1 tokens cannot be removed: the window before them"):
        cache.crop(57)
    assert cache.layers[0].all_keys_values is not None
    assert cache.layers[1].all_keys_values is None


@pytest.mark.parametrize("position", [Rotary(), TransformerXLPositions()])
def test_layers_evict_by_their_window_unless_positions_need_all(
    position: PositionScheme,
) -> None:
    a = Architecture(
        vocab_size=20,
        d_model=8,
        n_layers=3,
        n_heads=2,
        d_ff=8,
        position=position,
        attention_window=(5, None),
    )
    cache, one = Transformer(a).new_cache(), torch.zeros(1, 2, 70, 4)
    seen = [layer.extend(one, one) and layer.extend(one, one)[0].shape[2] for layer in cache.layers]
    assert seen == ([75, 140, 75] if isinstance(position, Rotary) else [140] * 3)
