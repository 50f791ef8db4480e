"""Tiny models of the catalogue, with the vocabulary of the toy language."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from small_models import tokenizer

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.heads.spec import HeadSpec
from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.model.backbones.transformer import Architecture
from unmask.zoo.catalogue import TEXT_MODELS, get_preset
from unmask.zoo.preset import Published

FAMILIES = {
    card.family: card.name
    for card in reversed(TEXT_MODELS.values())
    if isinstance(card.architecture, Architecture)
}
"""The first card of each family of one stack of blocks."""

ENCODER_DECODERS = {
    card.family: card.name
    for card in reversed(TEXT_MODELS.values())
    if isinstance(card.architecture, EncoderDecoderArchitecture)
}
"""The first card of each family of two stacks."""


def shrunk(a: Architecture) -> Architecture:
    """Return the same kind of network, with tiny widths."""
    patterns = (
        len(a.attention_window),
        len(a.layers.types),
        len(getattr(a.position, "schemes", ())),
    )
    sizes: dict[str, Any] = {
        "d_model": 32, "d_ff": 64, "n_heads": 4, "n_layers": max(2, *patterns),
        "embedding_size": None if a.embedding_size is None else 16,
        "head_dim": None if a.head_dim is None else 12,
        "n_kv_heads": None if a.n_kv_heads is None else min(a.n_kv_heads, 2),
    }  # fmt: skip
    return replace(a, **sizes)


def _by_tiny_network() -> dict[str, list[str]]:
    """Return the cards that have the same network once it is tiny."""
    found: dict[str, list[str]] = {}
    for card in TEXT_MODELS.values():
        if isinstance(a := card.architecture, Architecture):
            found.setdefault(repr(shrunk(a).with_vocab_size(99)), []).append(card.name)
    return found


OTHERS = [names[0] for names in _by_tiny_network().values() if names[0] not in FAMILIES.values()]
"""A card for each other network of one stack of blocks, once they are tiny."""


def tiny(
    name: str, heads: dict[str, HeadSpec] | None = None, *, languages: int = 0, **more: Any
) -> LoadedModel:
    """Make a model with random weights, large enough that differences show."""
    preset: Published = get_preset(name)
    a: Any = preset.architecture
    if a.is_encoder_decoder:
        known = tokenizer("t5" if "t5" in preset.family else "bart")
        stacks = {name: shrunk(stack) for name, stack in a.stacks.items()}
        a = a.with_stacks(stacks)
    else:
        known = tokenizer("gpt2" if a.causal else "bert")
        a = shrunk(a).with_languages(languages) if languages else shrunk(a)
    preset = replace(
        preset,
        architecture=a.with_vocab_size(known.vocab_size),
        heads=preset.heads if heads is None else heads,
    )
    model = preset.build().initialize(0).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.2, generator=generator)
    given = {"label_names": (), "missing": (), "unexpected": ()} | more
    return LoadedModel(preset=preset, model=model, tokenizer=known, **given)


def check_alike(ours: Any, theirs: Any) -> None:
    """Compare answers, numbers within rounding."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        ours, theirs = list(ours.values()), list(theirs.values())
    if isinstance(theirs, list):
        for one, other in zip(ours, theirs, strict=True):
            check_alike(one, other)
    else:
        assert ours == (pytest.approx(theirs, abs=1e-4) if isinstance(theirs, float) else theirs)
