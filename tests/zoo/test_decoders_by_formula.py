"""Decoders that no reference library has: hidden states by the papers' formulas, in float64."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from unmask.batch import Batch, Visibility
from unmask.zoo.catalogue import MODELS

T, D, H, E, V = 21, 24, 4, 6, 50
Weights = dict[str, Tensor]


def small(name: str, **changes):
    preset = MODELS[name]
    sizes = {"vocab_size": V, "d_model": D, "n_heads": H, "d_ff": 40, "n_layers": 4}
    a = replace(preset.architecture, **sizes, **changes)
    model = replace(preset, architecture=a).build().eval()
    torch.manual_seed(0)
    for p in model.parameters():
        torch.nn.init.normal_(p, mean=0.5 if p.dim() == 1 else 0.0, std=0.3)
    return model


def our_outputs(model) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids, hidden states and scores of two texts."""
    ids = torch.randint(0, V, (2, T), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        hidden = model.hidden_states(Batch(inputs=ids, visibility=Visibility(causal=True)))
        return ids, hidden, model.language_head.logits(hidden)


def close(ours: Tensor, expected: Tensor) -> None:
    scale = max(1.0, expected.abs().max().item())
    assert (ours.double() - expected).abs().max().item() < 1e-5 * scale


def layer(w: Weights, i: int) -> Weights:
    start = f"backbone.layers.{i}."
    return {n.removeprefix(start).removesuffix(".weight"): x for n, x in w.items() if start in n}


def attend(q: Tensor, k: Tensor, v: Tensor, added: Tensor) -> Tensor:
    """Mix values, of one head for each query and key [b t h e]."""
    scores = torch.einsum("bthe,bshe->bhts", q, k) + added
    return torch.einsum("bhts,bshe->bthe", scores.softmax(-1), v).flatten(2)


def causal(window: int | None = None) -> Tensor:
    away = torch.arange(T)[:, None] - torch.arange(T)
    seen = (away >= 0) & (away < (window or T))
    return torch.zeros(T, T).double().masked_fill(~seen, -torch.inf)


def turned(x: Tensor) -> Tensor:
    """Su et al. 2021, equation 34, halves of a head as pairs [b t h e]."""
    half = x.shape[-1] // 2
    speed = 10_000 ** (-torch.arange(half).double() / half)
    angle = (torch.arange(T).double()[:, None] * speed)[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


def test_palm_equals_its_formula() -> None:
    """y = x + MLP(LayerNorm(x)) + Attention(LayerNorm(x)), one head of keys and values."""
    model = small("palm-mini")
    w = {n: x.double() for n, x in model.own_weights().items()}
    ids, hidden, scores = our_outputs(model)
    x = w["backbone.tokens.weight"][ids]
    for i in range(4):
        p = layer(w, i)
        n = F.layer_norm(x, (D,), p["attention_norm.into"], eps=1e-6)
        q = turned((n @ p["attention.q"].T).unflatten(-1, (H, E))) / math.sqrt(E)
        k = turned((n @ p["attention.k"].T)[:, :, None]).expand(-1, -1, H, -1)
        v = (n @ p["attention.v"].T)[:, :, None].expand(-1, -1, H, -1)
        inner = F.silu(n @ p["feed_forward.gate"].T) * (n @ p["feed_forward.up"].T)
        mixed = attend(q, k, v, causal()) @ p["attention.o"].T
        x = x + inner @ p["feed_forward.down"].T + mixed
    x = F.layer_norm(x, (D,), w["backbone.final_norm.weight"], eps=1e-6)
    close(hidden, x)
    close(scores, x @ w["backbone.tokens.weight"].T / math.sqrt(D))
    assert not any("feed_forward_norm" in name for name in w)


def bucket(away: int) -> int:
    """Raffel et al. 2020, section 2.1: 16 exact buckets, 16 logarithmic ones up to 128."""
    if away < 16:
        return away
    return min(31, 16 + int(math.log(away / 16) / math.log(128 / 16) * 16))


def test_lamda_equals_its_formula() -> None:
    """T5's norms and biases of distances, GELU gates, but what follows is not seen."""
    model = small("lamda-mini")
    w = {n: x.double() for n, x in model.own_weights().items()}
    ids, hidden, scores = our_outputs(model)
    away = [[bucket(max(t - s, 0)) for s in range(T)] for t in range(T)]
    bias = w["backbone.position.table.weight"][torch.tensor(away)].permute(2, 0, 1)
    x = w["backbone.tokens.weight"][ids]
    for i in range(4):
        p = layer(w, i)
        n = F.rms_norm(x, (D,), p["attention_norm.into"], eps=1e-6)
        q, k, v = ((n @ p[f"attention.{y}"].T).unflatten(-1, (H, E)) for y in "qkv")
        x = x + attend(q, k, v, bias + causal()) @ p["attention.o"].T
        n = F.rms_norm(x, (D,), p["feed_forward_norm.into"], eps=1e-6)
        gate = F.gelu(n @ p["feed_forward.gate"].T, approximate="tanh")
        x = x + (gate * (n @ p["feed_forward.up"].T)) @ p["feed_forward.down"].T
    x = F.rms_norm(x, (D,), w["backbone.final_norm.weight"], eps=1e-6)
    close(hidden, x)
    close(scores, x @ w["backbone.tokens.weight"].T / math.sqrt(D))


@pytest.mark.parametrize("band", [3, 100])
def test_gpt3_is_gpt2_with_alternating_banded_layers(band: int) -> None:
    model = small("gpt3-mini", attention_window=(None, band))
    w = {n: x.double() for n, x in model.own_weights().items()}
    ids, hidden, scores = our_outputs(model)

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (D,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-5)

    def linear(x: Tensor, name: str) -> Tensor:
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    x = w["backbone.tokens.weight"][ids] + w["backbone.position.table.weight"][:T]
    for i in range(4):
        at = f"backbone.layers.{i}"
        n = norm(x, f"{at}.attention_norm.into")
        q, k, v = (linear(n, f"{at}.attention.{y}").unflatten(-1, (H, E)) for y in "qkv")
        added = causal(band + 1 if i % 2 else None)
        x = x + linear(attend(q / math.sqrt(E), k, v, added), f"{at}.attention.o")
        n = norm(x, f"{at}.feed_forward_norm.into")
        inner = F.gelu(linear(n, f"{at}.feed_forward.up"), approximate="tanh")
        x = x + linear(inner, f"{at}.feed_forward.down")
    x = norm(x, "backbone.final_norm")
    close(hidden, x)
    close(scores, x @ w["backbone.tokens.weight"].T)
