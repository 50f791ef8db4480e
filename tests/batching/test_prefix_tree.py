"""Rows in which texts share their prefix: each distinct prefix once, and nobody sees another's."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from vocabularies import GPT

from unmask.batching.collate import pad_examples
from unmask.batching.prefix_tree import PrefixTree, share_prefixes

TEXTS = st.lists(st.lists(st.integers(10, 12), min_size=1, max_size=7), min_size=1, max_size=9)


@given(TEXTS, st.integers(1, 40), st.integers(1, 300))
def test_each_token_sees_exactly_the_tokens_before_it_in_its_text(texts, limit, width):
    rows = share_prefixes(texts, limit, width)
    assert sorted(i for row in rows for i in row.texts) == list(range(len(texts)))
    batch = pad_examples([row.to_example() for row in rows], GPT)
    tree = batch.feature(PrefixTree)
    t = batch.inputs.shape[1]
    mask = torch.ones(t, t).tril().bool().expand(len(rows), t, t)
    position = torch.arange(t).expand(len(rows), t)
    if tree is not None:
        assert batch.position_ids is not None
        mask, position = tree.to_mask()[:, 0], batch.position_ids
    assert bool(mask.diagonal(dim1=1, dim2=2).all())  # no softmax over nothing
    for r, row in enumerate(rows):
        assert len(row.token_ids) <= max(limit, max(len(texts[i]) for i in row.texts))
        for i, columns in zip(row.texts, row.columns, strict=True):
            assert batch.inputs[r, columns].tolist() == texts[i]
            assert position[r, columns].tolist() == list(range(len(texts[i])))
            for n, column in enumerate(columns.tolist(), 1):
                assert np.flatnonzero(mask[r, column]).tolist() == columns[:n].tolist()


def test_prefix_of_several_texts_is_there_once():
    texts = [[5, 6, 7, 8], [5, 6, 7, 9], [1, 2], [5, 6, 7]]
    (first, second) = share_prefixes(texts, 100, 64)
    assert first.token_ids == [1, 2]
    assert second.token_ids == [5, 6, 7, 8, 9]
    assert second.depths == [0, 1, 2, 3, 3]
    assert second.ends == [5, 5, 5, 4, 5]
    assert first.to_example().features == ()


def test_long_endings_after_short_prefix_have_rows_of_their_own():
    texts = [[1, *range(10, 40)], [1, *range(50, 80)]]
    assert len(share_prefixes(texts, 100, 64)) == 2
    assert len(share_prefixes(texts, 100, 1024)) == 1
