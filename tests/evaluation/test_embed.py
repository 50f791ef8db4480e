"""Vectors: every layer equals the reference's, pooling sees no padding, neighbors do not matter."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import FAMILIES, make, texts, tokenizer

from unmask.adapters.attach import attach, detach
from unmask.adapters.prefix import PrefixTuning, PromptTuning
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.evaluation.sentence_embeddings import embed
from unmask.generation.text_batches import with_special_tokens
from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.model import Model

TOLERANCE = 1e-5  # relative to the largest number, float32, in batches of other shapes
SOME = ["", *texts(14, most=9), "the old king " * 30]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, LoadedModel]]:
    return {family: make(family, tmp_path_factory.mktemp(family)) for family in FAMILIES}


def read(family: str) -> list[torch.Tensor]:
    known, most = tokenizer(family), None if family == "t5" else 40
    return [torch.from_numpy(ids)[None] for ids in with_special_tokens(known, SOME, most)]


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
def test_every_layer_equals_reference_per_token(family: str, models: dict) -> None:
    reference, loaded = models[family]
    expected = [states(family, reference, ids) for ids in read(family)]
    n = len(expected[0])
    for layer in range(-n, n):
        vectors = embed(loaded.model, tokenizer(family), SOME, pooling="none", layer=layer)
        for ours, theirs in zip(vectors, expected, strict=True):
            close(ours, theirs[layer])
    last = embed(loaded.model, tokenizer(family), SOME, pooling="none")
    assert all(np.array_equal(a, b) for a, b in zip(last, vectors, strict=True))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layer", [-1, 1])
def test_pooling_ignores_padding(family: str, layer: int, models: dict) -> None:
    reference, loaded = models[family]
    expected = [states(family, reference, ids)[layer] for ids in read(family)]
    pools = {"mean": lambda x: x.mean(0), "first": lambda x: x[0], "last": lambda x: x[-1]}
    for pooling, pooled in pools.items():
        vectors = embed(loaded.model, tokenizer(family), SOME, pooling=pooling, layer=layer)
        close(vectors, np.stack([pooled(x) for x in expected]))


@pytest.fixture
def prompted(models: dict) -> Iterator[Callable[[str, Any], Model]]:
    """Attach an adapter to a family's model for a while."""
    used = []

    def attached(family: str, spec: Any) -> Model:
        model = models[family][1].model
        torch.nn.init.normal_(next(attach(model, spec).parameters()), std=0.5)
        used.append(model)
        return model

    yield attached
    for model in used:
        detach(model, "default")


@torch.no_grad()
def behind(reference: Any, ids: torch.Tensor, prompt: torch.Tensor) -> list[np.ndarray]:
    """Give the reference's hidden states of a text behind a prompt of vectors."""
    reader = getattr(reference, "encoder", reference)
    read = torch.cat((prompt[None], reference.get_input_embeddings()(ids)), 1)
    out = reader(inputs_embeds=read, output_hidden_states=True)
    return [layer[0, len(prompt) :].numpy() for layer in out.hidden_states]


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_after_a_prompt_have_their_own_vectors_in_every_layer(
    family: str, models: dict, prompted: Callable[[str, Any], Model]
) -> None:
    reference = models[family][0]
    model = prompted(family, PromptTuning(n_virtual_tokens=4))
    prompt = model.adapters["default"].vectors
    some = SOME[:-1]  # the last is longer than what then is left of the positions
    known = [
        torch.from_numpy(ids)[None] for ids in with_special_tokens(tokenizer(family), some, None)
    ]
    expected = [behind(reference, ids, prompt) for ids in known]
    for layer in range(len(expected[0])):
        vectors = embed(model, tokenizer(family), some, pooling="none", layer=layer)
        for ours, theirs in zip(vectors, expected, strict=True):
            close(ours, theirs[layer])
        pools = {"mean": lambda x: x.mean(0), "first": lambda x: x[0], "last": lambda x: x[-1]}
        for pooling, pooled in pools.items():
            pooled_ours = embed(model, tokenizer(family), some, pooling=pooling, layer=layer)
            close(pooled_ours, np.stack([pooled(x[layer]) for x in expected]))


def test_head_reading_the_prompt_leaves_text_vectors_unchanged(
    models: dict, tmp_path: Path
) -> None:
    """The heads of labels read the prompt's first column; a text's first vector is its own."""
    _, loaded = make("bert", tmp_path)
    weights = loaded.model.own_weights()
    found = []
    for heads in ({}, {"label": SequenceClassification(n_labels=3)}):
        model = Model(loaded.model.architecture, heads).initialize(0)
        model.load_state_dict(weights, strict=False)
        attach(model, PromptTuning(n_virtual_tokens=4), seed=1)
        found.append(embed(model, tokenizer("bert"), SOME, pooling="first"))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    "spec", [PromptTuning(n_virtual_tokens=4), PrefixTuning(n_virtual_tokens=4)], ids=str
)
@pytest.mark.parametrize("family", FAMILIES)
def test_each_token_after_virtual_tokens_has_a_vector(
    family: str, spec: Any, prompted: Callable[[str, Any], Model]
) -> None:
    model = prompted(family, spec)
    most = None if family == "t5" else 40 - 4
    lengths = [len(ids) for ids in with_special_tokens(tokenizer(family), SOME, most)]
    for layer in range(-1, 3):
        vectors = embed(model, tokenizer(family), SOME, pooling="none", layer=layer)
        assert [len(x) for x in vectors] == lengths
        mean = embed(model, tokenizer(family), SOME, layer=layer, batch_tokens=60)
        close(mean, np.stack([x.mean(0) for x in vectors]))


@pytest.mark.parametrize("family", FAMILIES)
def test_order_and_batch_size_do_not_matter(family: str, models: dict) -> None:
    _, loaded = models[family]
    whole = embed(loaded.model, tokenizer(family), SOME)
    order = np.random.default_rng(0).permutation(len(SOME))
    for batch_tokens in (1, 50, 100_000):
        again = embed(
            loaded.model, tokenizer(family), [SOME[i] for i in order], batch_tokens=batch_tokens
        )
        close(again, whole[order])


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_text_beyond_the_positions_is_truncated(family: str, models: dict) -> None:
    _, loaded = models[family]
    long, longer = "the old king " * 30, "the old king " * 30 + "saw a silver ring."
    (tokens,) = embed(loaded.model, tokenizer(family), [long], pooling="none")
    assert len(tokens) == 40
    a, b = embed(loaded.model, tokenizer(family), [long, longer])
    np.testing.assert_array_equal(a, b)


def test_special_tokens_typed_in_text_are_plain_text(models: dict) -> None:
    _, loaded = models["bert"]
    (tokens,) = embed(loaded.model, tokenizer("bert"), ["[MASK]"], pooling="none")
    assert len(tokens) > 3


def test_no_texts_give_no_vectors(models: dict) -> None:
    _, loaded = models["t5"]
    vectors = embed(loaded.model, tokenizer("t5"), [])
    assert vectors.shape == (0, 32)
    assert vectors.dtype == np.float32
    assert embed(loaded.model, tokenizer("t5"), [], pooling="none") == []


def test_embedding_runs_in_evaluation_mode(tmp_path: Path) -> None:
    _, loaded = make("bert", tmp_path, hidden_dropout_prob=0.5)
    expected = embed(loaded.model, tokenizer("bert"), SOME)
    loaded.model.train()
    np.testing.assert_array_equal(embed(loaded.model, tokenizer("bert"), SOME), expected)
    assert loaded.model.training


def test_bfloat16_model_returns_float32(models: dict, tmp_path: Path) -> None:
    _, loaded = make("bert", tmp_path)
    exact = embed(loaded.model, tokenizer("bert"), SOME)
    rough = embed(loaded.model.bfloat16(), tokenizer("bert"), SOME)
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
def test_invalid_setting_is_named(wrong: dict, message: str, models: dict) -> None:
    _, loaded = models["bert"]
    unchecked = getattr(embed, "__wrapped__", embed)  # the tests' type checker would be first
    with pytest.raises(ValueError, match=message):
        unchecked(loaded.model, tokenizer("bert"), ["a"], **wrong)
