"""Attention within windows: block by block it equals attention with a mask of all pairs."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from unmask.batch import Visibility
from unmask.model.layers.attention import attention
from unmask.model.layers.attention.attention import AttentionMask, Scoring, attend
from unmask.model.layers.attention.block_local_mask import Window, columns_to_mask

WINDOWS = range(1, 8)
B, H, E = 2, 3, 4


def lengths(window: int) -> list[int]:
    """Return lengths around multiples of a window, and some that are shorter."""
    return sorted(
        {n for n in (1, window, *(m * window + d for m in (2, 5) for d in (-1, 0, 1))) if n}
    )


def visibilities(t: int) -> dict[str, Visibility]:
    position = torch.arange(t)
    shuffled = torch.stack([torch.randperm(t) for _ in range(B)])
    two = torch.stack((position * 2 // max(t, 1), (position > t // 3).long()))
    padded = torch.stack((torch.zeros(t).long(), torch.where(position < t // 2 + 1, 0, -1)))
    return {
        "plain": Visibility(),
        "causal": Visibility(causal=True),
        "rank": Visibility(rank=shuffled),
        "the same rank in all rows": Visibility(rank=shuffled[:1]),
        "documents": Visibility(document=two),
        "padding": Visibility(document=padded),
        "documents, causal": Visibility(document=two, causal=True),
        "documents, rank": Visibility(document=two, rank=shuffled),
    }


def visible(
    v: Visibility, t: int, window: int, wide: list[list[int]] | None = None, dilation: int = 1
) -> Tensor:
    """Say pair by pair, in plain Python, who sees whom within a window."""
    near = range(-window * dilation, window * dilation + 1, dilation)
    found = torch.zeros(B, t, t, dtype=torch.bool)
    for b, i, j in itertools.product(range(B), range(t), range(t)):
        free = wide is not None and (i in wide[b] or j in wide[b])
        rank = None if v.rank is None else v.rank[b % len(v.rank)]
        document = None if v.document is None else v.document[b % len(v.document)]
        found[b, i, j] = (
            (i - j in near or free)
            and (not v.causal or j <= i)
            and (rank is None or bool(rank[j] <= rank[i]))
            and (document is None or bool(document[i] == document[j]))
        )
    return found[:, None]


def inputs(t: int) -> list[Tensor]:
    return [torch.randn(B, H, t, E, dtype=torch.float64, requires_grad=True) for _ in "qkv"]


def reference(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return (q @ k.mT * 0.3).masked_fill(~mask, -torch.inf).softmax(-1) @ v


def in_blocks(
    v: Visibility, t: int, _: int = 0, *, window: int, wide: Tensor | None = None, dilation: int = 1
) -> AttentionMask:
    """Return a sight that is a band, however short the text is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "BLOCK_LOCAL_MIN_KEYS", -1000)
        sight = AttentionMask.from_visibility(v, t, t, Window(window, dilation, wide))
    assert sight.block_local_mask is not None
    return sight


def check(sight: AttentionMask, v: Visibility, t: int, mask: Tensor) -> None:
    """Compare outputs and all gradients with the definition's."""
    x = inputs(t)
    ours, expected = attend(*x, sight, Scoring(0.3)), reference(*x, mask)
    assert torch.allclose(ours, expected, atol=1e-12)
    pull = torch.randn_like(expected)
    for mine, theirs in zip(
        torch.autograd.grad((ours * pull).sum(), x),
        torch.autograd.grad((expected * pull).sum(), x),
        strict=True,
    ):
        assert torch.allclose(mine, theirs, atol=1e-12)


@pytest.mark.sample(14)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("case", visibilities(3))
@pytest.mark.parametrize("path", ["plain", "fused"])
def test_block_attention_equals_full_mask(path, case, window, monkeypatch) -> None:
    monkeypatch.setattr(attention, "eager_is_faster", lambda *a, **k: path == "plain")
    for t in lengths(window):
        torch.manual_seed(t)
        v = visibilities(t)[case]
        mask = visible(v, t, window)
        check(in_blocks(v, t, window=window), v, t, mask)
        dense = AttentionMask.from_visibility(v, t, t, Window(window))
        if dense.block_local_mask is None:
            check(dense, v, t, mask)


@pytest.mark.sample(9)
@pytest.mark.parametrize("window", [1, 2, 5])
@pytest.mark.parametrize("dilation", [2, 3, 7])
@pytest.mark.parametrize("case", visibilities(3))
def test_dilated_window_equals_full_mask(case: str, dilation: int, window: int) -> None:
    """Linear in blocks as without, also where the text is no multiple of anything."""
    for t in (1, 2 * dilation, 17, 23):
        torch.manual_seed(t)
        v = visibilities(t)[case]
        mask = visible(v, t, window, dilation=dilation)
        check(in_blocks(v, t, window=window, dilation=dilation), v, t, mask)
        dense = AttentionMask.from_visibility(v, t, t, Window(window, dilation))
        assert dense.block_local_mask is None
        check(dense, v, t, mask)
        at = torch.randint(t, (B,))
        row = in_blocks(v, t, window=window, dilation=dilation).for_columns(at, t).mask
        assert row is not None
        assert torch.equal(row[:, 0, 0], mask[torch.arange(B), 0, at])


def test_dilated_window_includes_global_tokens() -> None:
    t, v = 19, Visibility()
    mask = visible(v, t, 2, COLUMNS.tolist(), dilation=3)
    blocks = in_blocks(v, t, window=2, wide=COLUMNS, dilation=3)
    x = inputs(t)
    ours, expected = attend(*x, blocks, Scoring(0.3)), reference(*x, mask)
    narrow = [[i for i in range(t) if i not in row] for row in COLUMNS.tolist()]
    for b, rows in enumerate(
        narrow
    ):  # what the wide ones ask, `GlobalAttentionProjections` asks again
        assert torch.allclose(ours[b][:, rows], expected[b][:, rows], atol=1e-12)


COLUMNS = torch.tensor([[0, 4, 7], [2, -1, -1]])


@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("case", visibilities(3))
def test_blocks_with_global_tokens_equal_full_mask(case, window, monkeypatch) -> None:
    """Except for queries of global tokens, which `GlobalAttentionProjections` computes again."""
    monkeypatch.setattr(attention, "BLOCK_LOCAL_MIN_KEYS", 1000)
    t = 11
    torch.manual_seed(t)
    v = visibilities(t)[case]
    mask = visible(v, t, window, COLUMNS.tolist())
    x = inputs(t)
    expected = reference(*x, mask)
    assert torch.allclose(
        attend(
            *x,
            AttentionMask.from_visibility(v, t, t, Window(window, global_positions=COLUMNS)),
            Scoring(0.3),
        ),
        expected,
    )
    narrow = ~columns_to_mask(COLUMNS, t)
    ours = attend(*x, in_blocks(v, t, window=window, wide=COLUMNS), Scoring(0.3))
    assert torch.allclose(
        ours[narrow[:, None].expand(-1, H, -1)], expected[narrow[:, None].expand(-1, H, -1)]
    )
    pull = torch.randn_like(expected) * narrow[:, None, :, None]
    for mine, theirs in zip(
        torch.autograd.grad((ours * pull).sum(), x),
        torch.autograd.grad((expected * pull).sum(), x),
        strict=True,
    ):
        assert torch.allclose(mine, theirs, atol=1e-12)


@pytest.mark.parametrize("wide", [None, COLUMNS], ids=["narrow", "wide"])
@pytest.mark.parametrize("case", visibilities(3))
@pytest.mark.parametrize("banded", [True, False])
def test_single_query_column_equals_full_attention(banded, case, wide, monkeypatch) -> None:
    monkeypatch.setattr(attention, "BLOCK_LOCAL_MIN_KEYS", 1000)
    t, window = 11, 2
    torch.manual_seed(t)
    v = visibilities(t)[case]
    q, k, values = inputs(t)
    mask = visible(v, t, window, None if wide is None else wide.tolist())
    expected = reference(q, k, values, mask)
    if banded:
        sight = in_blocks(v, t, window=window, wide=wide)
    else:
        sight = AttentionMask.from_visibility(v, t, t, Window(window, global_positions=wide))
    for at in (torch.tensor([0, 2]), torch.tensor([10, 5])):
        rows = torch.arange(B)
        one = attend(q[rows, :, at][:, :, None], k, values, sight.for_columns(at, t), Scoring(0.3))
        assert torch.allclose(one[:, :, 0], expected[rows, :, at])


@settings(max_examples=60)
@given(st.integers(1, 9), st.integers(1, 40), st.data())
def test_blocks_equal_mask_for_any_ranks_and_documents(window: int, t: int, data) -> None:
    numbers = st.lists(st.integers(-1, 2), min_size=t, max_size=t)
    rows = st.lists(numbers, min_size=B, max_size=B).map(torch.tensor)
    v = Visibility(
        data.draw(st.none() | rows), data.draw(st.none() | rows), data.draw(st.booleans())
    )
    check(in_blocks(v, t, window=window), v, t, visible(v, t, window))


def test_dropout_applies_within_the_window() -> None:
    torch.manual_seed(0)
    t, window = 12, 2
    q, k = torch.randn(2, B, H, t, t, dtype=torch.float64)
    v = torch.eye(t, dtype=torch.float64).expand(B, H, t, t)
    drop = attention.Dropout(0.5).train()
    shares = attend(q, k, v, in_blocks(Visibility(), t, window=window), Scoring(0.3, dropout=drop))
    whole = attend(q, k, v, in_blocks(Visibility(), t, window=window), Scoring(0.3))
    near = visible(Visibility(), t, window).expand_as(shares)
    assert (shares[~near] == 0).all()
    dropped = shares[near] == 0
    assert 0.3 < dropped.float().mean() < 0.7
    assert torch.allclose(shares[near][~dropped], 2 * whole[near][~dropped])


def test_only_long_texts_are_split_into_blocks() -> None:
    window = 4
    n = attention.BLOCK_LOCAL_MIN_KEYS + 3 * window
    assert (
        AttentionMask.from_visibility(Visibility(), n - 1, n - 1, Window(window)).block_local_mask
        is None
    )
    assert (
        AttentionMask.from_visibility(Visibility(), n, n, Window(window)).block_local_mask
        is not None
    )
    assert (
        AttentionMask.from_visibility(Visibility(), 1, n, Window(window)).block_local_mask is None
    ), "a cache holds the others"
    assert AttentionMask.from_visibility(Visibility(), n, n).block_local_mask is None


def test_memory_and_work_grow_linearly_with_length() -> None:
    """Both the numbers in the largest tensor and the work grow with the length alone."""
    largest = {}
    for t in (256, 512, 1024):
        x = [torch.randn(1, 1, t, E) for _ in "qkv"]
        with torch.profiler.profile(record_shapes=True) as profile:
            attend(*x, in_blocks(Visibility(), t, window=8), Scoring(1.0))
        shapes = [s for e in profile.events() for s in e.input_shapes if s]
        largest[t] = max(torch.Size(s).numel() for s in shapes)
    assert largest[1024] == pytest.approx(2 * largest[512], rel=0.05)
    assert largest[512] == pytest.approx(2 * largest[256], rel=0.05)
