"""Paths: every kernel path of `attend` equals the plain one; cached decoding equals uncached."""

import itertools

import pytest
import torch
from test_leak import FAMILIES, IN_ORDER, build
from torch import Tensor
from vocabularies import BERT

from unmask.adapters.attach import attach
from unmask.adapters.prefix import PrefixTuning, PromptTuning
from unmask.batch import Batch, Visibility
from unmask.batching.collate import pad_examples
from unmask.batching.prefix_tree import PrefixTree, share_prefixes
from unmask.model import cache
from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.model.backbones.transformer import Architecture
from unmask.model.layers.attention import attention
from unmask.model.layers.attention.attention import AttentionMask, Scoring, attend
from unmask.model.requested_states import KnownStates, RequestedStates


def reference(q, k, v, visible, bias, scale, cap):
    """Write softmax(capped q kᵀ·scale + bias, over the visible keys) v out in double precision."""
    shared = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(shared, 1).double() for x in (k, v))
    scores = q.double() @ k.mT * scale
    if cap is not None:
        scores = torch.tanh(scores / cap) * cap
    if bias is not None:
        scores = scores + bias.double()
    if visible is not None:
        scores = scores.masked_fill(~visible, -torch.inf)
    return scores.softmax(-1) @ v


@pytest.mark.sample(90)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("queries", [1, 5, 12])
@pytest.mark.parametrize("sees", ["everyone", "causal", "some"])
@pytest.mark.parametrize("path", ["plain", "fused"])
@pytest.mark.parametrize(("groups", "cap"), [(6, None), (2, None), (1, None), (6, 1.5), (3, 1.5)])
def test_every_attention_path_equals_the_definition(
    groups, cap, path, sees, queries, biased, monkeypatch
) -> None:
    torch.manual_seed(0)
    keys = 12
    q = torch.randn(2, 6, queries, 8, requires_grad=True)
    k, v = torch.randn(2, groups, keys, 8), torch.randn(2, groups, keys, 8)
    bias = torch.randn(1, 6, queries, keys) if biased else None
    visible = None
    sight = AttentionMask()
    if sees == "causal":
        sight = AttentionMask(causal=True)
        visible = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    if sees == "some":
        visible = torch.rand(2, 1, queries, keys) < 0.5
        visible[..., 0] = True
        sight = AttentionMask(visible)
    monkeypatch.setattr(attention, "eager_is_faster", lambda *a, **k: path == "plain")
    ours = attend(q, k, v, sight, Scoring(0.3, cap), bias)
    expected = reference(q, k, v, visible, bias, 0.3, cap)
    assert torch.allclose(ours.double(), expected, atol=1e-6)  # float32 against float64
    (ours_d,) = torch.autograd.grad(ours.square().sum(), q)
    (expected_d,) = torch.autograd.grad(expected.square().sum(), q)
    assert torch.allclose(ours_d, expected_d, atol=1e-5)


@pytest.mark.sample(11)
@pytest.mark.parametrize("family", [f for f, c in FAMILIES.items() if f != "bert"])
@torch.no_grad()
def test_cached_decoding_equals_uncached(family: str) -> None:
    model = build(family)
    torch.manual_seed(1)
    b, t, s = 2, 11, 6
    ids = torch.randint(0, 50, (b, t))
    more = {}
    if isinstance(model.architecture, EncoderDecoderArchitecture):
        there = torch.tensor([[0] * 6, [0] * 4 + [-1] * 2])
        more = {
            "source": torch.randint(0, 50, (b, s)),
            "source_visibility": Visibility(document=there),
        }
    whole = model.backbone(Batch(inputs=ids, visibility=Visibility(causal=True), **more))
    cache = model.backbone.new_cache()

    def read(i: int, j: int) -> Tensor:
        part = Batch(inputs=ids[:, i:j], visibility=Visibility(causal=True), **more)
        return model.backbone(part, cache)

    a = model.decoder_architecture
    if isinstance(a, Architecture) and a.layers.ngram_encoding is not None:
        read(0, 4)  # each token reads the one after it
        with pytest.raises(ValueError, match="it has no cache"):
            read(4, 5)
        return
    parts = [read(i, j) for i, j in ((0, 4), (4, 5), (5, 6), (6, 11))]
    assert torch.allclose(torch.cat(parts, 1), whole, atol=1e-5)
    assert cache.length == t


@pytest.mark.sample(6)
@pytest.mark.quick("None", "llama", "t5")
@pytest.mark.parametrize(
    "adapter", [None, PrefixTuning(n_virtual_tokens=3), PromptTuning(n_virtual_tokens=3)], ids=str
)
@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in {"bert", *IN_ORDER}])
@torch.no_grad()
def test_cached_decoding_equals_uncached_far_beyond_windows(
    family: str, adapter: PrefixTuning | PromptTuning | None, monkeypatch
) -> None:
    """Rows of unequal length; some tokens are taken back, and rows chosen and repeated."""
    monkeypatch.setattr(cache, "_growth", lambda max_length: 3)  # what is forgotten is so, soon
    model = build(family, attention_window=(4, None, 1, 2), dilation=(1, 1, 1, 3))
    if model.decoder_architecture.layers.ngram_encoding is not None:
        pytest.skip("a model with a bidirectional convolution has no cache")
    if adapter is not None:
        torch.nn.init.normal_(next(attach(model, adapter).parameters()), std=0.3)
    torch.manual_seed(1)
    t, rows = 33, torch.tensor([1, 0, 1])
    ids, document = torch.randint(0, 50, (2, t)), torch.zeros(2, t).long()
    document[1, :5] = -1
    position = (torch.arange(t) - torch.tensor([[0], [5]])).clamp(min=0)
    more = {}
    if isinstance(model.architecture, EncoderDecoderArchitecture):
        more = {"source": torch.randint(0, 50, (2, 6))}

    def batch(ids: Tensor, i: int, j: int, kept: Tensor) -> Batch:
        sees = Visibility(causal=True, document=document[kept, :j])
        source = {name: x[kept] for name, x in more.items()}
        return Batch(
            inputs=ids[kept, i:j], position_ids=position[kept, i:j], visibility=sees, **source
        )

    kept, wrong = torch.tensor([0, 1]), torch.randint(0, 50, (2, t))
    whole, read = model.backbone(batch(ids, 0, t, kept)), model.backbone.new_cache(max_rollback=2)
    starts = [0, 9, *range(10, 19), 25, 26, t]
    for i, j in itertools.pairwise(starts):
        if i > 9 and j < t - 1:
            model.backbone(batch(wrong, i, i + 1, kept), read)
            model.backbone(batch(wrong, i + 1, i + 2, kept), read)
            read.crop(read.prefix_length + i)
        found = model.backbone(batch(ids, i, j, kept), read)
        there = document[kept, i:j] == 0
        assert torch.allclose(found[there], whole[kept, i:j][there], atol=1e-5)
        if i == 15:
            kept = rows
            read.select_rows(rows)
    assert read.length == read.prefix_length + t


@pytest.mark.sample(21)
@pytest.mark.parametrize("adapter", [None, PromptTuning(n_virtual_tokens=3)], ids=str)
@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in IN_ORDER])
@torch.no_grad()
def test_blockwise_windows_equal_full_masks(
    family: str, adapter: PromptTuning | None, monkeypatch
) -> None:
    model = build(family, attention_window=(4, None, 1, 2), dilation=(1, 1, 1, 3))
    if adapter is not None:
        torch.nn.init.normal_(next(attach(model, adapter).parameters()), std=0.3)
    torch.manual_seed(1)
    more = {}
    if isinstance(model.architecture, EncoderDecoderArchitecture):
        more = {"source": torch.randint(0, 50, (2, 6))}
    sees = Visibility(causal=model.decoder_architecture.causal, document=torch.zeros(2, 40).long())
    batch, found = Batch(inputs=torch.randint(0, 50, (2, 40)), visibility=sees, **more), []
    for least in (-1000, 1000):
        monkeypatch.setattr(attention, "BLOCK_LOCAL_MIN_KEYS", least)
        found.append(model.hidden_states(batch))
    assert torch.allclose(*found, atol=1e-5)


@pytest.mark.sample(11)
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_bfloat16_is_close_to_float32(family: str) -> None:
    model = build(family)
    torch.manual_seed(1)
    more = {}
    if isinstance(model.architecture, EncoderDecoderArchitecture):
        more = {"source": torch.randint(0, 50, (2, 6))}
    batch = Batch(
        inputs=torch.randint(0, 50, (2, 9)),
        visibility=Visibility(
            causal=model.decoder_architecture.causal, document=torch.zeros(2, 9).long()
        ),
        **more,
    )
    exact = model.hidden_states(batch)
    rough = model.bfloat16().hidden_states(batch).float()
    # 8 bits of fraction, four layers
    assert float((rough - exact).abs().max()) < 0.1 * float(exact.abs().max())


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_texts_that_share_their_prefix_equal_texts_apart(family: str) -> None:
    model = build(family)
    texts = [[5, 6, 7, 8, 9], [5, 6, 7, 9], [5, 6, 4, 4, 4, 4], [7, 7], [5, 6, 7, 8, 3]]
    rows = share_prefixes(texts, 100, 64)
    batch = pad_examples([row.to_example() for row in rows], BERT)
    assert batch.has(PrefixTree)
    if model.backbone.unsupported_reason("prefix_tree") is not None:
        assert family not in {"gpt2", "llama"}  # the families that it is for
        return
    found = model.hidden_states(batch)
    for r, row in enumerate(rows):
        for i, columns in zip(row.texts, row.columns, strict=True):
            ids = torch.tensor([texts[i]])
            alone = model.hidden_states(Batch(inputs=ids, visibility=Visibility(causal=True)))[0]
            # float32, other lengths of rows
            assert torch.allclose(found[r, columns], alone, atol=1e-5 * float(alone.abs().max()))


@pytest.mark.sample(11)
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_going_on_from_known_states_equals_all_layers(family: str) -> None:
    model = build(family)
    if model.backbone.unsupported_reason("known_states") is not None:
        assert family not in {"bert", "gpt2"}
        return
    batch = Batch(inputs=torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]]))
    below = model.backbone(batch.with_feature(RequestedStates(before_layer=2)))
    found = model.backbone(batch.with_feature(KnownStates(hidden=below, layer=2)))
    assert torch.equal(found, model.backbone(batch))
