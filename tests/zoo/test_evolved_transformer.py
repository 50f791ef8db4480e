"""The Evolved Transformer and Meena by their formulas, in float64, and what they refuse."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from unmask.batch import Batch, Visibility
from unmask.model.backbones.evolved.parts import (
    EvolvedDecoderConvolutions,
    EvolvedEncoderConvolutions,
)
from unmask.model.backbones.transformer import Architecture, Transformer
from unmask.model.cache import ConvolutionCache
from unmask.model.layers.convolution import NgramInputEncoding
from unmask.model.positions.rotary import Rotary
from unmask.model.variants import DepthWeightedSublayers, LayerVariants
from unmask.zoo.catalogue import MODELS
from unmask.zoo.encoder_decoders import evolved_transformer

D, HEADS, V = 32, 4, 50
SOURCES, TARGETS = (
    ([7, 9, 30, 4, 41, 22, 3, 18, 6, 2, 11, 5], [8, 1, 17]),
    ([0, *range(5, 20)],) * 2,
)
Weights = dict[str, Tensor]


def model():
    encoder = replace(evolved_transformer.ENCODER, vocab_size=V, d_model=D, n_heads=HEADS, d_ff=48)
    a = evolved_transformer.encoder_decoder(replace(encoder, n_layers=4), 3)
    made = replace(MODELS["meena-mini"], architecture=a).build().eval()
    torch.manual_seed(0)
    for p in made.parameters():
        torch.nn.init.normal_(p, mean=0.5 if p.dim() == 1 else 0.0, std=0.3)
    return made.double()


def linear(w: Weights, name: str, x: Tensor) -> Tensor:
    return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))


def norm(w: Weights, name: str, x: Tensor) -> Tensor:
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
    return (x - mean) / (variance + 1e-6).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]


def attention(w: Weights, name: str, x: Tensor, read: Tensor, heads: int, causal: bool) -> Tensor:
    q, k, v = (
        linear(w, f"{name}.{y}", z).view(len(z), heads, D // heads).transpose(0, 1)
        for y, z in (("q", x), ("k", read), ("v", read))
    )
    scores = q @ k.mT / math.sqrt(D // heads)
    if causal:
        hidden = torch.ones(len(x), len(read), dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    return linear(w, f"{name}.o", (scores.softmax(-1) @ v).transpose(0, 1).reshape(len(x), D))


def tap(x: Tensor, i: int) -> Tensor:
    return x[i] if 0 <= i < len(x) else torch.zeros_like(x[0])


def separable(w: Weights, name: str, x: Tensor, first: int) -> Tensor:
    """Sum over k of kernel[:, k] * x[i + first + k], then a map of each token."""
    kernel = w[f"{name}.kernel.weight"][:, 0]
    rows = [
        sum(kernel[:, k] * tap(x, i + first + k) for k in range(kernel.shape[1]))
        for i in range(len(x))
    ]
    return linear(w, f"{name}.out", torch.stack(rows))


def padded(x: Tensor, width: int) -> Tensor:
    return torch.cat((x, x.new_zeros(len(x), width - x.shape[1])), 1)


def vectors(w: Weights, ids: list[int]) -> Tensor:
    speed = 10_000.0 ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    angle = torch.arange(len(ids), dtype=torch.float64)[:, None] * speed
    return w["tokens.weight"][ids] * math.sqrt(D) + torch.cat((angle.sin(), angle.cos()), 1).float()


def encoded(w: Weights, ids: list[int]) -> Tensor:
    x = vectors(w, ids)
    for block in range(2):
        at = f"encoder.layers.{2 * block}"
        y = norm(w, f"{at}.gated_norm.into", x)
        x = x + linear(w, f"{at}.values", y) * torch.sigmoid(linear(w, f"{at}.gates", y))
        y = norm(w, f"{at}.convolved_norm.into", x)
        kernel, bias = w[f"{at}.narrow.weight"], w[f"{at}.narrow.bias"]
        near = [
            bias + sum(kernel[:, :, k] @ tap(y, i + k - 1) for k in range(3)) for i in range(len(y))
        ]
        left = linear(w, f"{at}.up", y).clamp(min=0)
        both = left + padded(torch.stack(near).clamp(min=0), 4 * D)
        inner = norm(w, f"{at}.inner_norm", both)
        x = x + padded(separable(w, f"{at}.wide", inner, -4), D)
        at = f"encoder.layers.{2 * block + 1}"
        y = norm(w, f"{at}.attention_norm.into", x)
        x = x + attention(w, f"{at}.attention", y, y, HEADS, causal=False)
        y = linear(w, f"{at}.feed_forward.up", norm(w, f"{at}.feed_forward_norm.into", x))
        x = x + linear(w, f"{at}.feed_forward.down", y.clamp(min=0))
    return norm(w, "encoder.final_norm", x)


def decoded(w: Weights, ids: list[int], memory: Tensor) -> Tensor:
    x = vectors(w, ids)
    for block in range(3):
        at = f"decoder.layers.{2 * block}"
        y = norm(w, f"{at}.attention_norm.into", x)
        x = (
            x
            + attention(w, f"{at}.attention", y, y, 16, causal=True)
            + attention(w, f"{at}.cross", y, memory, HEADS, causal=False)
        )
        y = norm(w, f"{at}.convolved_norm.into", x)
        left = separable(w, f"{at}.wide", y, -10).clamp(min=0)
        both = left + padded(separable(w, f"{at}.narrow", y, -6), 2 * D)
        x = x + separable(w, f"{at}.after", norm(w, f"{at}.inner_norm", both), -6)
        at = f"decoder.layers.{2 * block + 1}"
        y = norm(w, f"{at}.attention_norm.into", x)
        x = x + attention(w, f"{at}.attention", y, y, HEADS, causal=True)
        y = norm(w, f"{at}.cross_norm.into", x)
        x = x + attention(w, f"{at}.cross", y, memory, HEADS, causal=False)
        y = linear(w, f"{at}.feed_forward.up", norm(w, f"{at}.feed_forward_norm.into", x))
        y = norm(w, f"{at}.feed_forward.inside", y * torch.sigmoid(y))
        x = x + linear(w, f"{at}.feed_forward.down", y)
    return norm(w, "decoder.final_norm", x)


@torch.no_grad()
def test_padded_stacks_equal_formula() -> None:
    made = model()
    w = {n.removeprefix("backbone."): x for n, x in made.own_weights().items()}
    width = max(map(len, SOURCES))
    rows = [[*ids, *[0] * (width - len(ids))] for ids in SOURCES]
    document = torch.tensor([[0] * len(s) + [-1] * (width - len(s)) for s in SOURCES])
    batch = Batch(
        inputs=torch.tensor(TARGETS),
        visibility=Visibility(causal=True),
        source=torch.tensor(rows),
        source_visibility=Visibility(document=document),
    )
    hidden = made.backbone(batch)
    scores = made.language_head.logits(hidden)
    for row, (source, ids) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        expected = decoded(w, ids, encoded(w, source))
        torch.testing.assert_close(hidden[row], expected, rtol=1e-9, atol=1e-9)
        by_table = expected @ w["tokens.weight"].T
        torch.testing.assert_close(scores[row], by_table, rtol=1e-9, atol=1e-8)


@torch.no_grad()
def test_packed_texts_equal_texts_alone() -> None:
    made = model()
    first, second = [0, *range(5, 19)], [0, *range(20, 41)]
    where = torch.tensor([[0] * len(first) + [1] * len(second)])
    there = torch.tensor([[0] * 12 + [1] * 3])
    position = torch.tensor([[*range(len(first)), *range(len(second))]])
    packed = made.backbone.decoder(
        Batch(
            inputs=torch.tensor([[*first, *second]]),
            visibility=Visibility(causal=True, document=where),
            position_ids=position,
        ),
        encoder_hidden_states=(encoded := torch.randn(1, 15, D, dtype=torch.float64)),
        encoder_visibility=Visibility(document=there),
    )
    texts = (first, slice(15), slice(12)), (second, slice(15, 37), slice(12, 15))
    for ids, columns, keys in texts:
        alone = made.backbone.decoder(
            Batch(inputs=torch.tensor([ids]), visibility=Visibility(causal=True)),
            encoder_hidden_states=encoded[:, keys],
            encoder_visibility=Visibility(),
        )
        torch.testing.assert_close(packed[:, columns], alone, rtol=1e-9, atol=1e-9)


def test_meena_has_one_encoder_and_thirteen_decoder_blocks() -> None:
    a = MODELS["meena"].architecture
    assert (a.encoder.n_layers, a.decoder.n_layers) == (2, 26)
    assert [type(a.encoder.layer_type(i)).__name__ for i in (0, 1)] == [
        "EvolvedEncoderConvolutions",
        "NoneType",
    ]
    assert MODELS["meena"].n_parameters == pytest.approx(2.6e9, rel=0.005)
    with torch.device("meta"):
        decoder = Transformer(a.decoder)
    assert decoder.layers[0].attention.d_head == 80  # 32 heads, more than 16


GATED = replace(evolved_transformer.ENCODER, d_model=16, n_heads=2, d_ff=8)
ATTENDED = replace(
    GATED,
    layers=LayerVariants(types=(EvolvedDecoderConvolutions(),)),
    causal=True,
    cross_attention=True,
)


@pytest.mark.parametrize(
    ("a", "change", "message"),
    [
        (GATED, {"causal": True}, "EvolvedEncoderConvolutions are bidirectional"),
        (
            GATED,
            {"sublayers": DepthWeightedSublayers()},
            "cannot be combined with DepthWeightedSublayers",
        ),
        (
            GATED,
            {"layers": replace(GATED.layers, ngram_encoding=NgramInputEncoding(3))},
            "cannot be combined with ngram_encoding",
        ),
        (GATED, {"n_kv_heads": 1}, "cannot be combined with n_kv_heads"),
        (ATTENDED, {"cross_attention": False}, "causal and cross_attention must be true"),
        (ATTENDED, {"d_model": 24}, "d_model 24: 2 of 12, and 16, do not"),
        (ATTENDED, {"head_dim": 4}, "2 of 4, and 16, do not"),
        (ATTENDED, {"position": Rotary()}, "got Rotary"),
    ],
)
def test_unsupported_combinations_are_refused(a: Architecture, change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(a, **change)


def test_kernel_sizes_are_validated() -> None:
    with pytest.raises(ValueError, match="wide_kernel_size must be odd and at least 1, got 8"):
        EvolvedEncoderConvolutions(wide_kernel_size=8)
    with pytest.raises(ValueError, match="must be at least 1"):
        EvolvedDecoderConvolutions(n_heads=0)


def test_convolution_cache_returns_the_last_columns() -> None:
    """Whatever the pieces, what comes back is the last columns of all that was read."""
    x = torch.randn(2, 200, 3)
    recent, at = ConvolutionCache(4, max_rollback=2), 0
    for n in (1, 2, 50, 1, 1, 30, 1, 20):
        seen = recent.extend(x[:, at : at + n])
        assert torch.equal(seen, x[:, max(at - 4, 0) : at + n])
        at += n
        recent.crop(at - min(2, n))
        at -= min(2, n)
    recent.select_rows(torch.tensor([1, 1, 0]))
    assert torch.equal(recent.extend(x[[1, 1, 0], at : at + 1]), x[[1, 1, 0], at - 4 : at + 1])
    recent.extend(x[[1, 1, 0], :100])
    with pytest.raises(ValueError, match="50 tokens cannot be removed"):
        recent.crop(recent.length - 50)


def test_flops_count_each_product_once() -> None:
    """Two a weight but those of tables, norms and biases, and attention's own."""
    both = LayerVariants(types=(EvolvedDecoderConvolutions(), None))
    for a in (GATED, replace(ATTENDED, layers=both)):
        stack = Transformer(a)
        weights = sum(
            p.numel() for n, p in stack.named_parameters() if p.dim() > 1 and "tokens" not in n
        )
        looks = [
            i
            for i in range(a.n_layers)
            if not isinstance(a.layer_type(i), EvolvedEncoderConvolutions)
        ]
        each = 4 * 16 * (0.5 if a.causal else 1) * 10 * len(looks) * (1 + a.cross_attention)
        assert stack.flops(10) == 2 * weights + each


@pytest.mark.parametrize(
    ("name", "width", "dropout"),
    [("evolved-transformer-base", 512, 0.1), ("evolved-transformer-big", 1024, 0.3)],
)
def test_rate_and_dropout_equal_released_code(name: str, width: int, dropout: float) -> None:
    """The rate is 2 / sqrt(warm-up * width), and all dropout but attention's is one number."""
    preset = MODELS[name]
    assert preset.learning_rate == pytest.approx(2.0 / 8_000**0.5 / width**0.5, rel=1e-12)
    assert preset.training_options["schedule"]["warmup"] == 8_000
    for stack in (preset.architecture.encoder, preset.architecture.decoder):
        assert (stack.dropout, stack.activation_dropout) == (dropout, dropout)
        assert stack.attention_dropout == 0.1
