"""Alignment of two languages by layer: a copy is found, another order is not."""

from dataclasses import replace

import pytest
from small_models import texts, tokenizer

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.evaluation.translations import align_layers
from unmask.shards.fertility import text_fertility
from unmask.zoo.catalogue import MODELS

SENTENCES = texts(30, seed=5, most=8)


def encoder(seed: int = 0, n_layers: int = 2) -> LoadedModel:
    """Make a random encoder of the words of the toy language."""
    preset, words = MODELS["bert-tiny"], tokenizer("bert")
    sizes = {"d_model": 32, "d_ff": 32, "n_layers": n_layers}
    preset = replace(preset, architecture=replace(preset.architecture, **sizes))
    preset = preset.with_vocabulary(words.special_ids)
    return LoadedModel(
        preset=preset, model=preset.build().initialize(seed), tokenizer=words, label_names=(),
        missing=(), unexpected=(),
    )  # fmt: skip


def test_a_copy_is_its_own_nearest_in_every_layer() -> None:
    unique = [*dict.fromkeys(SENTENCES)]
    layers = align_layers(encoder(), unique, unique)
    assert [one.layer for one in layers] == [0, 1, 2]
    for one in layers:
        assert (one.retrieved, one.retrieved_back) == (100.0, 100.0)
        assert one.shuffled < 20


def test_models_that_share_nothing_align_by_chance() -> None:
    unique = [*dict.fromkeys(SENTENCES)]
    other = encoder(seed=1)
    layers = align_layers(encoder(), unique, unique, other)
    assert max(one.retrieved for one in layers) < 60
    assert max(one.retrieved_back for one in layers) < 60


def test_wrong_lists_and_models_are_refused() -> None:
    model = encoder()
    with pytest.raises(ValueError, match="two or more, and as many, got 2 and 1"):
        align_layers(model, SENTENCES[:2], SENTENCES[:1])
    with pytest.raises(ValueError, match="as many layers, got 2 and 1"):
        align_layers(model, SENTENCES[:2], SENTENCES[:2], encoder(n_layers=1))
    with pytest.raises(ValueError, match="bert-tiny: this model has no tokenizer"):
        align_layers(replace(model, tokenizer=None), SENTENCES[:2], SENTENCES[:2])


def test_tokens_per_word_are_those_of_the_tokenizer() -> None:
    words = tokenizer("bert")
    n = sum(len(words.encode(text).ids) for text in SENTENCES)
    assert text_fertility(words, SENTENCES) == n / sum(len(text.split()) for text in SENTENCES)
    with pytest.raises(ValueError, match="none of 2 texts has a word"):
        text_fertility(words, ["", " "])
