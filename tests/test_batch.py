from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.batch import Batch, Example, Feature, Tokens, Visibility
from unmask.batching.collate import collate
from unmask.model.layers.attention.block_local_mask import Window
from unmask.tokenizers.spec import SpecialTokenIds

ranks = st.lists(st.integers(0, 4), min_size=1, max_size=8)


@given(ranks, st.data())
def test_key_is_visible_iff_same_document_and_no_higher_rank(rank: list[int], data) -> None:
    n = len(rank)
    document = data.draw(st.lists(st.integers(-1, 1), min_size=n, max_size=n))
    causal = data.draw(st.booleans())
    strict = data.draw(st.booleans())
    queries = data.draw(st.integers(1, n))
    r = list(range(n)) if causal else rank
    visibility = Visibility(
        rank=None if causal else torch.tensor([rank]),
        document=torch.tensor([document]),
        causal=causal,
    )
    expected = [
        [document[i] == document[j] and (r[j] < r[i] if strict else r[j] <= r[i]) for j in range(n)]
        for i in range(n - queries, n)
    ]
    visible = visibility.to_mask(queries, n, excluding_self=strict)
    assert visible is not None
    assert visible.shape == (1, 1, queries, n)
    assert visible[0, 0].tolist() == expected


def test_mask_is_omitted_where_unneeded() -> None:
    assert Visibility().to_mask(3, 3) is None
    assert Visibility(causal=True).to_mask(3, 3) is None
    assert Visibility(causal=True).to_mask(3, 3, excluding_self=True) is not None


@given(ranks, st.data())
def test_window_restricts_all_but_global_tokens(rank: list[int], data) -> None:
    n = len(rank)
    window, queries = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    wide = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    columns = torch.tensor([[i if is_wide else -1 for i, is_wide in enumerate(wide)]])
    near = Window(window, global_positions=columns).to_mask(queries, n)
    visible = Visibility(rank=torch.tensor([rank])).to_mask(queries, n, near=near)
    assert visible is not None
    assert visible[0, 0].tolist() == [
        [(abs(i - j) <= window or wide[i] or wide[j]) and rank[j] <= rank[i] for j in range(n)]
        for i in range(n - queries, n)
    ]


def test_inconsistent_shapes_are_refused() -> None:
    ids = torch.zeros(2, 3, dtype=torch.long)
    with pytest.raises(ValueError, match=r"targets has shape \[2, 4\], inputs \[2, 3\]"):
        Batch(inputs=ids, targets=torch.zeros(2, 4, dtype=torch.long))
    with pytest.raises(TypeError):
        Example(inputs=np.zeros(3, np.int64), targets=np.zeros(4, np.int64))


def test_batch_moves_with_all_its_tensors() -> None:
    ids = torch.zeros(2, 3, dtype=torch.long)
    batch = Batch(inputs=ids, targets=ids, visibility=Visibility(document=ids, causal=True))
    moved = batch.to("meta")
    assert moved.inputs.device.type == moved.targets.device.type == "meta"
    assert moved.visibility.document.device.type == "meta"
    assert moved.visibility.causal
    assert moved.source is None


def test_slice_of_tokens_is_tokens() -> None:
    text = Tokens(np.arange(5), np.arange(5, dtype=np.uint8))
    assert len(text) == 5
    assert text[1:3].ids.tolist() == [1, 2]
    assert text[1:3].boundaries.tolist() == [1, 2]


@dataclass(frozen=True)
class Weights(Feature):
    """A feature that nobody but this test knows."""

    column_fields: ClassVar[Mapping[str, int]] = {"weights": 7}
    weights: Any


def test_any_feature_is_padded_checked_and_moved() -> None:
    ids = np.arange(3)
    plain = Example(inputs=ids[:2], targets=ids[:2])
    weighed = Example(inputs=ids, targets=ids, features=(Weights(ids + 1),))
    special = SpecialTokenIds(vocab_size=9, pad=0, start=1, end=2, unknown=3)
    batch = collate([[weighed], [plain]], special, min_width=4).to_batch().to("cpu")
    found = batch.feature(Weights)
    assert found is not None
    assert found.weights.tolist() == [[1, 2, 3, 7], [7, 7, 7, 7]]
    assert found.pad_columns(1).weights.tolist() == [[1, 2, 3, 7, 7], [7] * 5]
    assert batch.has(Weights)
    assert not batch.without(Weights).has(Weights)
    twice = batch.with_feature(Weights(found.weights + 1))
    assert [f.weights[0, 0].item() for f in twice.features] == [2]
    with pytest.raises(ValueError, match=r"weights has shape \[2, 3\], inputs \[2, 4\]"):
        batch.with_feature(Weights(found.weights[:, :3]))
