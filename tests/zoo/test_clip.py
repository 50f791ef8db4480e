"""CLIP: transformers' CLIPModel gives the same numbers, or a key is refused."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from unmask.batch import Batch, Visibility
from unmask.heads.model import Model
from unmask.heads.vision.picture_text_contrast import MAX_LOGIT_SCALE
from unmask.model.backbones.captioning.two_towers import TwoTowerArchitecture, zero_shot_weights
from unmask.objectives.inputs.pictures import Pictures
from unmask.zoo.vision.clip import (
    BASE_PATCH_16,
    BASE_PATCH_32,
    CONFIG_MAPPING,
    HEADS,
    LARGE_PATCH_14,
    MINI,
    TEXT_KEYS,
    VISION_KEYS,
    WEIGHT_NAMES,
)

V, END = 50, 49
TEXT = {
    "vocab_size": V, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 12, "eos_token_id": END,
    "bos_token_id": 48, "pad_token_id": 0,
}  # fmt: skip
VISION = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "image_size": 16, "patch_size": 8,
}  # fmt: skip
CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "plain": {},
    "greatest id": {"text_config": {"eos_token_id": 2}},
    "end in the middle of the vocabulary": {"text_config": {"eos_token_id": 7}},
    "gelu": {"text_config": {"hidden_act": "gelu"}, "vision_config": {"hidden_act": "relu"}},
    "eps": {"text_config": {"layer_norm_eps": 0.1}, "vision_config": {"layer_norm_eps": 0.2}},
    "gray": {"vision_config": {"num_channels": 1, "image_size": 24}},
    "wide projection": {"projection": {"projection_dim": 40}},
    "narrow projection": {"projection": {"projection_dim": 10}},
}


def clip(name: str = "plain") -> Any:
    """Make a CLIP of random weights, whose norms and biases are not those of a new one."""
    import transformers as hf

    changes = CHANGES[name]
    config = hf.CLIPConfig(
        text_config=TEXT | changes.get("text_config", {}),
        vision_config=VISION | changes.get("vision_config", {}),
        **{"projection_dim": 16} | changes.get("projection", {}),
    )
    model = hf.CLIPModel(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for x in model.parameters():
            x += 0.2 * torch.randn(x.shape, generator=generator)
    return model


def opened(reference: Any) -> Model:
    """Read a model of transformers."""
    theirs = CONFIG_MAPPING.config_keys.complete(reference.config.to_dict())
    architecture = CONFIG_MAPPING.to_architecture(theirs)
    model = Model(architecture, HEADS).eval()
    expected = {name: x.shape for name, x in model.own_weights().items()}
    read = WEIGHT_NAMES.from_external(reference.state_dict(), expected)
    assert (read.missing, read.unexpected) == ((), ())
    model.load_state_dict(dict(read.tensors))
    return model


def pairs(model: Model, b: int = 5, t: int = 9, seed: int = 0) -> Batch:
    """Return random texts, each with an end and padding behind it, and pictures."""
    generator = torch.Generator().manual_seed(seed)
    a = model.architecture
    assert isinstance(a, TwoTowerArchitecture)
    ids = torch.randint(8, END, (b, t), generator=generator)
    for i in range(b):
        ids[i, t - 1 - i % 3] = END if a.end_id is None else a.end_id
        ids[i, t - i % 3 :] = 0
    pixels = torch.randn(b, a.vision.n_channels, *a.vision.image_size, generator=generator)
    return Batch(inputs=ids, visibility=Visibility(causal=True), features=(Pictures(pixels),))


def differ(x: torch.Tensor, y: torch.Tensor) -> float:
    """Return the greatest difference relative to the greatest number."""
    assert x.shape == y.shape
    return float((x - y).abs().max() / y.abs().max())


@pytest.mark.parametrize("name", CHANGES)
@torch.no_grad()
def test_embeddings_scores_states_and_loss_equal_reference(name: str) -> None:
    reference = clip(name)
    model = opened(reference)
    batch = pairs(model)
    pixels = batch.features[0].pixels
    out = reference(
        input_ids=batch.inputs, pixel_values=pixels, attention_mask=(batch.inputs != 0).long(),
        return_loss=True,
    )  # fmt: skip
    prediction = model(batch, return_logits=True)
    assert differ(prediction.logits["contrast"], out.logits_per_image) < 1e-5
    torch.testing.assert_close(prediction.terms["contrast"].loss, out.loss, rtol=1e-5, atol=0)
    embeddings = F.normalize(model.hidden_states(batch), dim=-1)
    assert differ(embeddings[:, 0], out.text_embeds) < 1e-5
    assert differ(embeddings[:, 1], out.image_embeds) < 1e-5
    backbone: Any = model.backbone
    is_read = batch.inputs != 0
    texts = out.text_model_output.last_hidden_state
    assert differ(backbone.encode(batch)[is_read], texts[is_read]) < 1e-5


@pytest.mark.parametrize("name", CHANGES)
def test_weights_and_config_round_trip_bitwise(name: str, tmp_path: Path) -> None:
    import transformers as hf

    reference = clip(name)
    model = opened(reference)
    back = WEIGHT_NAMES.to_external(model.own_weights())
    state = reference.state_dict()
    assert back.keys() == {n for n in state if not n.endswith("position_ids")}
    assert all(torch.equal(x, state[n]) for n, x in back.items())
    written = CONFIG_MAPPING.from_architecture(model.architecture)
    again = hf.CLIPModel(hf.CLIPConfig(**written))
    again.load_state_dict(back, strict=False)
    assert (
        CONFIG_MAPPING.to_architecture(CONFIG_MAPPING.config_keys.complete(again.config.to_dict()))
        == model.architecture
    )


@pytest.mark.parametrize(
    ("side", "key", "value"),
    [
        ("text_config", "hidden_act", "mish"),
        ("text_config", "num_attention_heads", 5),
        ("text_config", "eos_token_id", [1, 2]),
        ("text_config", "pruned_heads", {"0": [1]}),
        ("vision_config", "patch_size", [4, 8]),
        ("vision_config", "image_size", [8, 16]),
        ("vision_config", "image_size", 15),
        ("vision_config", "num_channels", 2),
        ("vision_config", "quantization_config", {"load_in_4bit": True}),
    ],
)
def test_other_values_are_refused_by_key(side: str, key: str, value: Any) -> None:
    theirs = {"text_config": dict(TEXT), "vision_config": dict(VISION), "projection_dim": 16}
    theirs[side][key] = value
    with pytest.raises(ValueError, match="hidden_act|" + key) as caught:
        CONFIG_MAPPING.to_architecture(CONFIG_MAPPING.config_keys.complete(theirs))
    assert "\n" not in str(caught.value)


def test_defaults_are_those_of_the_reference() -> None:
    import transformers as hf

    for keys, config in ((TEXT_KEYS, hf.CLIPTextConfig()), (VISION_KEYS, hf.CLIPVisionConfig())):
        plain = config.to_dict()
        for key in keys.table.values():
            if key.default:
                assert plain[key.name] == key.default[0], key.name


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        (MINI, None),
        (BASE_PATCH_32, 151_277_313),
        (BASE_PATCH_16, 149_620_737),
        (LARGE_PATCH_14, 427_616_513),
    ],
)
def test_sizes_are_published_ones(architecture: TwoTowerArchitecture, expected: int | None) -> None:
    with torch.device("meta"):
        n = Model(architecture, HEADS).parameter_count()
    assert n == expected or (expected is None and n < 10_000_000)


def test_loss_is_the_formula_and_same_pictures_and_texts_are_no_negatives() -> None:
    model = opened(clip())
    batch = pairs(model, 6)
    pixels, ids = batch.features[0].pixels.clone(), batch.inputs.clone()
    pixels[3], ids[5] = pixels[1], ids[0]
    batch = replace(batch, inputs=ids, features=(Pictures(pixels),))
    prediction = model(batch, return_logits=True)
    scores = prediction.logits["contrast"].double()
    apart = scores.exp()
    for i, j in ((1, 3), (0, 5)):
        apart[i, j] = apart[j, i] = 0
    own = scores.diagonal()
    expected = ((apart.sum(1).log() - own) + (apart.sum(0).log() - own)).mean() / 2
    torch.testing.assert_close(
        prediction.terms["contrast"].loss.double(), expected, rtol=1e-5, atol=0
    )
    prediction.terms["contrast"].loss.backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in model.parameters())


def test_scale_begins_as_published_and_is_clipped_in_training_only() -> None:
    model = Model(MINI, HEADS).initialize(0)
    head: Any = model.heads["contrast"]
    assert float(head.logit_scale.detach().exp()) == pytest.approx(1 / 0.07)
    with torch.no_grad():
        head.logit_scale.fill_(7.0)
    batch = pairs(model, 2)
    model.eval()(batch)
    assert float(head.logit_scale.detach()) == 7
    model.train()(batch)
    assert float(head.logit_scale.detach()) == pytest.approx(MAX_LOGIT_SCALE)
    assert math.exp(MAX_LOGIT_SCALE) == pytest.approx(100)


def test_texts_alone_have_embeddings_and_no_loss() -> None:
    model = opened(clip())
    both = pairs(model)
    alone = replace(both, features=())
    torch.testing.assert_close(model.hidden_states(alone), model.hidden_states(both)[:, :1])
    assert not model(alone).terms
    with pytest.raises(ValueError, match="must have the end token 49"):
        model(replace(alone, inputs=both.inputs.clamp(max=40)))


def test_zero_shot_direction_is_the_mean_of_normalized_templates() -> None:
    x = torch.tensor([[[3.0, 0.0], [0.0, 0.5]]])
    torch.testing.assert_close(zero_shot_weights(x), torch.full((1, 2), 0.5**0.5))


def test_pairs_are_learned() -> None:
    torch.manual_seed(0)
    small = replace(
        MINI,
        text=replace(MINI.text, vocab_size=V, d_model=32, n_layers=1, n_heads=2, d_ff=64),
        vision=replace(MINI.vision, d_model=32, n_layers=1, n_heads=2, d_ff=64),
        d_projection=32,
    )
    model = Model(small, HEADS).initialize(0).train()
    batch = pairs(model, 8)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        model(batch).terms["contrast"].loss.backward()
        optimizer.step()
    term = model(batch).terms["contrast"]
    assert float(term.loss.detach()) < 0.2 < math.log(8)
    assert int(term.n_correct) == 8
