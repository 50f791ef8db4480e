"""Vectors: every layer equals the reference's, pooling sees no padding, neighbors do not matter."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import FAMILIES, make, texts, tokenizer

from unmask.checkpoints.huggingface import Opened
from unmask.evaluation.embed import embed
from unmask.generation.reading import framed

TOLERANCE = 1e-5  # relative to the largest number, float32, in batches of other shapes
SOME = ["", *texts(14, most=9), "the old king " * 30]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Opened]]:
    return {family: make(family, tmp_path_factory.mktemp(family)) for family in FAMILIES}


def read(family: str) -> list[torch.Tensor]:
    known, most = tokenizer(family), None if family == "t5" else 40
    return [torch.from_numpy(ids)[None] for ids in framed(known, SOME, most)]


@torch.no_grad()
def states(family: str, reference: Any, ids: torch.Tensor) -> list[np.ndarray]:
    """Give the reference's hidden states of one text, layer by layer."""
    reader = reference.encoder if family == "t5" else reference
    out = reader(input_ids=ids, output_hidden_states=True)
    return [layer[0].numpy() for layer in out.hidden_states]


def close(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.dtype == np.float32
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() < TOLERANCE * max(1, np.abs(theirs).max())


@pytest.mark.parametrize("family", FAMILIES)
def test_every_layer_equals_the_reference_token_by_token(family: str, models: dict) -> None:
    reference, opened = models[family]
    expected = [states(family, reference, ids) for ids in read(family)]
    n = len(expected[0])
    for layer in range(-n, n):
        vectors = embed(opened.model, tokenizer(family), SOME, pooling="none", layer=layer)
        for ours, theirs in zip(vectors, expected, strict=True):
            close(ours, theirs[layer])
    last = embed(opened.model, tokenizer(family), SOME, pooling="none")
    assert all(np.array_equal(a, b) for a, b in zip(last, vectors, strict=True))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layer", [-1, 1])
def test_pooling_sees_the_text_and_no_padding(family: str, layer: int, models: dict) -> None:
    reference, opened = models[family]
    expected = [states(family, reference, ids)[layer] for ids in read(family)]
    pools = {"mean": lambda x: x.mean(0), "first": lambda x: x[0], "last": lambda x: x[-1]}
    for pooling, pooled in pools.items():
        vectors = embed(opened.model, tokenizer(family), SOME, pooling=pooling, layer=layer)
        close(vectors, np.stack([pooled(x) for x in expected]))


@pytest.mark.parametrize("family", FAMILIES)
def test_order_and_batch_size_do_not_matter(family: str, models: dict) -> None:
    _, opened = models[family]
    whole = embed(opened.model, tokenizer(family), SOME)
    order = np.random.default_rng(0).permutation(len(SOME))
    for batch_tokens in (1, 50, 100_000):
        again = embed(
            opened.model, tokenizer(family), [SOME[i] for i in order], batch_tokens=batch_tokens
        )
        close(again, whole[order])


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_what_is_beyond_the_positions_is_cut(family: str, models: dict) -> None:
    _, opened = models[family]
    long, longer = "the old king " * 30, "the old king " * 30 + "saw a silver ring."
    (tokens,) = embed(opened.model, tokenizer(family), [long], pooling="none")
    assert len(tokens) == 40
    a, b = embed(opened.model, tokenizer(family), [long, longer])
    np.testing.assert_array_equal(a, b)


def test_special_tokens_typed_in_a_text_are_text(models: dict) -> None:
    _, opened = models["bert"]
    (tokens,) = embed(opened.model, tokenizer("bert"), ["[MASK]"], pooling="none")
    assert len(tokens) > 3


def test_no_texts_have_no_vectors(models: dict) -> None:
    _, opened = models["t5"]
    vectors = embed(opened.model, tokenizer("t5"), [])
    assert vectors.shape == (0, 32)
    assert vectors.dtype == np.float32
    assert embed(opened.model, tokenizer("t5"), [], pooling="none") == []


def test_a_model_in_training_is_read_at_rest(tmp_path: Path) -> None:
    _, opened = make("bert", tmp_path, hidden_dropout_prob=0.5)
    expected = embed(opened.model, tokenizer("bert"), SOME)
    opened.model.train()
    np.testing.assert_array_equal(embed(opened.model, tokenizer("bert"), SOME), expected)
    assert opened.model.training


def test_a_model_in_bfloat16_gives_float32(models: dict, tmp_path: Path) -> None:
    _, opened = make("bert", tmp_path)
    exact = embed(opened.model, tokenizer("bert"), SOME)
    rough = embed(opened.model.bfloat16(), tokenizer("bert"), SOME)
    assert rough.dtype == np.float32
    assert 0 < np.abs(rough - exact).max() < 0.1 * np.abs(exact).max()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"pooling": "max"}, r"pooling must be one of \['mean', .*got 'max'"),
        ({"layer": 4}, "layer must be from -4 to 3, got 4"),
        ({"layer": -5}, "layer must be from -4 to 3, got -5"),
    ],
)
def test_a_wrong_setting_is_named(wrong: dict, message: str, models: dict) -> None:
    _, opened = models["bert"]
    unchecked = getattr(embed, "__wrapped__", embed)  # the tests' type checker would be first
    with pytest.raises(ValueError, match=message):
        unchecked(opened.model, tokenizer("bert"), ["a"], **wrong)
