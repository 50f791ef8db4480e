"""Show, Attend and Tell: its equations in float64, a cache, the penalty, folders."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from unmask.batch import IGNORE_INDEX, Batch, Visibility
from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.generation.captions import picture_prompts
from unmask.generation.decode import generate
from unmask.generation.settings import generation_config
from unmask.heads.model import Model
from unmask.heads.vision.doubly_stochastic_attention import DoublyStochasticAttention
from unmask.images.preprocessing import ImagePreprocessing
from unmask.model.backbones.vision_transformer import picture_batch
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.catalogue import MODELS

HOW = ImagePreprocessing(resize=(96, 96))
PICTURES = np.random.default_rng(0).integers(0, 256, (3, 20, 30, 3), np.uint8)
PICTURES[1:] //= 9
SPECIAL = SpecialTokenIds(vocab_size=50, pad=0, start=0, end=0, all_ids=frozenset({0}))
PRESET = MODELS["show-attend-and-tell-mini"].with_vocabulary(SPECIAL)


@pytest.fixture(scope="module")
def model() -> Model:
    model = PRESET.build().eval()
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model


def captioned(model: Model, ids: torch.Tensor) -> Batch:
    """Return the pictures with texts."""
    pixels = torch.from_numpy(np.stack([HOW(picture) for picture in PICTURES]))
    seen = picture_batch(pixels[: len(ids)], model.architecture.picture_stack)
    return Batch(
        inputs=ids,
        visibility=Visibility(causal=True),
        source=seen.inputs,
        features=seen.features,
    )


def by_formula(
    weights: dict[str, np.ndarray], a: np.ndarray, ids: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits of each next token of one caption, and the attention: the paper's text."""
    w = {n.removeprefix("backbone.decoder."): x for n, x in weights.items()}
    embeddings = weights["backbone.tokens.weight"]

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    mean = a.mean(0)
    h = np.tanh(w["first_h.weight"] @ mean + w["first_h.bias"])
    c = np.tanh(w["first_c.weight"] @ mean + w["first_c.bias"])
    logits, alphas = [], []
    for token in ids:
        keys = a @ w["attention.keys.weight"].T + w["attention.keys.bias"]
        e = np.tanh(keys + w["attention.queries.weight"] @ h) @ w["attention.score.weight"][0]
        alpha = np.exp(e - e.max()) / np.exp(e - e.max()).sum()
        beta = sigmoid(w["gate.weight"] @ h + w["gate.bias"])
        z = beta * (alpha @ a)
        x = embeddings[token]
        gates = w["layers.0.reads.weight"] @ np.concatenate((x, z)) + w["layers.0.reads.bias"]
        i, f, g, o = np.split(gates + w["layers.0.recalls.weight"] @ h, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        deep = x + w["from_hidden.weight"] @ h + w["from_context.weight"] @ z
        logits.append(weights["heads.language.out.weight"] @ deep + weights["heads.language.bias"])
        alphas.append(alpha)
    return np.stack(logits), np.stack(alphas)


@torch.no_grad()
def test_logits_and_attention_equal_the_paper(model: Model) -> None:
    batch = captioned(model, torch.randint(50, (3, 7)))
    weights = {n: x.double().numpy() for n, x in model.own_weights().items()}
    annotations = model.backbone.encode(batch)
    assert annotations.shape == (3, 64, 192), "a vector for each patch, none for the class token"
    found = model.language_head.logits(model.backbone(batch))
    attention = model.backbone.patch_attention(batch)
    for i in range(3):
        ids = batch.inputs[i].tolist()
        logits, alphas = by_formula(weights, annotations[i].double().numpy(), ids)
        torch.testing.assert_close(found[i].double(), torch.tensor(logits), rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(
            attention[i].double(), torch.tensor(alphas), rtol=1e-3, atol=1e-5
        )


@torch.no_grad()
def test_no_token_depends_on_those_after_it(model: Model) -> None:
    ids = torch.randint(50, (3, 7))
    other = ids.clone()
    other[:, 4] = (other[:, 4] + 1) % 50
    a, b = (model.backbone(captioned(model, x)) for x in (ids, other))
    assert torch.equal(a[:, :4], b[:, :4])
    assert not torch.isclose(a[:, 4:], b[:, 4:]).all(-1).any()


@torch.no_grad()
def test_cached_captions_equal_those_read_anew(model: Model) -> None:
    found = generate(
        model, picture_prompts(model, list(PICTURES), HOW), SPECIAL,
        generation_config(max_new_tokens=8),
    )  # fmt: skip
    for i, caption in enumerate(found):
        ids = [0]
        for _ in range(8):
            hidden = model.backbone(captioned(model, torch.tensor([ids] * 3)))[i, -1:]
            token = int(model.language_head.logits(hidden).argmax())
            if token == 0:
                break
            ids.append(token)
        assert caption == ids[1:]
    assert len({tuple(caption) for caption in found}) > 1


@torch.no_grad()
def test_steps_with_a_cache_equal_teacher_forcing(model: Model) -> None:
    batch = captioned(model, torch.randint(50, (3, 7)))
    whole, cache = model.backbone(batch), model.backbone.new_cache(4)
    steps = [
        model.backbone(replace(batch, inputs=batch.inputs[:, i:j]), cache)
        for i, j in ((0, 2), (2, 3), (3, 7))
    ]
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-5, atol=1e-5)
    cache.crop(4)
    again = model.backbone(replace(batch, inputs=batch.inputs[:, 4:]), cache)
    torch.testing.assert_close(again, whole[:, 4:], rtol=1e-5, atol=1e-5)


def test_beams_of_a_batch_equal_those_of_each_picture(model: Model) -> None:
    config = generation_config(max_new_tokens=6, beams=5)
    prompts = picture_prompts(model, list(PICTURES), HOW)
    together = generate(model, prompts, SPECIAL, config)
    assert together == [generate(model, [one], SPECIAL, config)[0] for one in prompts]


def test_penalty_is_that_of_equation_14(model: Model) -> None:
    ids = torch.randint(1, 50, (3, 6))
    targets = ids.roll(-1, 1)
    targets[0, 4:] = IGNORE_INDEX  # a shorter caption: padding looks nowhere
    at = torch.nonzero(targets.flatten() != IGNORE_INDEX)[:, 0]
    batch = replace(captioned(model, ids), targets=targets, target_positions=at)
    trained = PRESET.build()
    trained.load_state_dict(model.state_dict())
    prediction = trained.train()(batch)
    alphas = model.backbone.patch_attention(batch)
    expected = sum((1 - alphas[i, :n].sum(0)).square().sum() for i, n in enumerate((4, 6, 6)))
    term = prediction.terms["attention"]
    torch.testing.assert_close(term.total, expected)
    assert term.count == 16 == prediction.terms["next_token"].count
    total = prediction.terms["next_token"].total + expected
    torch.testing.assert_close(prediction.loss, total / 16)
    assert trained.count_targets(batch) == {"next_token": 16, "attention": 16}
    term.total.backward()
    assert trained.backbone.decoder.attention.score.weight.grad.abs().sum() > 0
    assert set(trained.eval()(batch).terms) == {"next_token"}


def test_folders_are_of_our_format(model: Model, tmp_path: Path) -> None:
    write_folder(tmp_path, model, PRESET, None)
    again = load_folder(tmp_path)
    assert again.preset.architecture == PRESET.architecture
    weights = again.model.own_weights()
    assert all(torch.equal(x, weights[n]) for n, x in model.own_weights().items())


@pytest.mark.parametrize(
    ("side", "changes", "message"),
    [
        ("decoder", {"n_layers": 2}, "n_layers = 1, got 2"),
        ("decoder", {"cell": "gru"}, "cell = 'lstm', got 'gru'"),
        ("decoder", {"embedding_size": 64}, "embedding_size = None, got 64"),
        ("decoder", {"d_annotation": 64}, "d_annotation must be encoder.d_model = 192, got 64"),
        ("decoder", {"d_attention": 0}, "d_attention must be at least 1"),
    ],
)
def test_what_does_not_fit_is_one_line(side: str, changes: dict, message: str) -> None:
    a = PRESET.architecture
    with pytest.raises(ValueError, match=message):
        replace(a, **{side: replace(getattr(a, side), **changes)})


def test_penalty_needs_attention() -> None:
    other = MODELS["show-and-tell-mini"]
    heads = {**other.heads, "attention": DoublyStochasticAttention()}
    with pytest.raises(ValueError, match="for an LSTM that attends to patches"):
        replace(other, heads=heads).build()


def test_network_without_pictures_is_one_line(model: Model) -> None:
    with pytest.raises(ValueError, match="describes pictures, and the batch has none"):
        model.hidden_states(Batch(inputs=torch.zeros(1, 3, dtype=torch.long)))
