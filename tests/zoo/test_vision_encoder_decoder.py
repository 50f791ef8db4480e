"""Captioners: transformers' VisionEncoderDecoder gives the same numbers, or a key is refused."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from configured import TOLERANCE, differ, ours, quiet, reference_outputs, rewrite, theirs
from perturbed import values
from reference import V, saved, vision_encoder_decoder
from safetensors.torch import load_file

from unmask.batch import Batch, Visibility
from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.model.backbones.captioning.vision_encoder_decoder import (
    VisionEncoderDecoderArchitecture,
)
from unmask.model.backbones.vision_transformer import picture_batch
from unmask.model.exchange.config_keys import ConfigKey
from unmask.zoo.catalogue import MODELS
from unmask.zoo.native_format import with_expressible_format
from unmask.zoo.vision.caption_decoders import DECODERS
from unmask.zoo.vision.vision_encoder_decoder import ENCODER_KEYS

T = 9
SHAPES: dict[str, Callable[[], Any]] = {
    "widths differ": vision_encoder_decoder,
    "one width": lambda: vision_encoder_decoder(decoder={"n_embd": 32}),
    "tables not tied, relu, narrow inner layer": lambda: vision_encoder_decoder(
        decoder={"tie_word_embeddings": False, "n_inner": 20, "activation_function": "relu"}
    ),
    "deit, gray, no biases of attention": lambda: vision_encoder_decoder(
        encoder={"model_type": "deit", "num_channels": 1, "qkv_bias": False}
    ),
    "bert": lambda: vision_encoder_decoder(decoder={"model_type": "bert"}),
    "bert, one width, not tied, relu": lambda: vision_encoder_decoder(
        decoder={
            "model_type": "bert",
            "hidden_size": 32,
            "tie_word_embeddings": False,
            "hidden_act": "relu",
        }
    ),
    "deit and roberta": lambda: vision_encoder_decoder(
        encoder={"model_type": "deit"}, decoder={"model_type": "roberta"}
    ),
    "roberta, another padding, two segments, not tied": lambda: vision_encoder_decoder(
        decoder={
            "model_type": "roberta",
            "pad_token_id": 3,
            "type_vocab_size": 2,
            "tie_word_embeddings": False,
        }
    ),
    "high pictures": lambda: vision_encoder_decoder(encoder={"image_size": [32, 16]}),
}


def captioned(model: Any, pixels: torch.Tensor, ids: torch.Tensor) -> Batch:
    """Return pictures with the texts that a decoder reads."""
    batch = picture_batch(pixels, model.architecture.encoder)
    return Batch(
        inputs=ids,
        visibility=Visibility(causal=True),
        source=batch.inputs,
        features=batch.features,
        targets=ids.roll(-1, 1),
        target_positions=torch.arange(ids.numel()),
    )


@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_logits_and_loss_equal_reference(shape: str, tmp_path: Path) -> None:
    reference = SHAPES[shape]()
    loaded = load_folder(saved(reference, tmp_path))
    assert (loaded.missing, loaded.unexpected) == ((), ())
    expected = reference_outputs(reference, T)
    assert differ(ours(tmp_path, T), expected) < 1e-5
    a = loaded.model.architecture
    side = reference.config.encoder.image_size
    sides = (side, side) if isinstance(side, int) else tuple(side)
    pixels = torch.randn(2, a.encoder.n_channels, *sides)
    ids = torch.randint(1, V, (2, T))
    prediction = loaded.model(captioned(loaded.model, pixels, ids))
    out = reference(pixel_values=pixels, decoder_input_ids=ids, labels=ids.roll(-1, 1))
    torch.testing.assert_close(prediction.terms["next_token"].loss, out.loss, rtol=1e-5, atol=0)


@pytest.mark.sample(3)
@pytest.mark.parametrize("shape", SHAPES)
def test_weights_and_config_round_trip_bitwise(shape: str, tmp_path: Path) -> None:
    import transformers as hf

    reference = SHAPES[shape]()
    opened = load_folder(saved(reference, tmp_path / "theirs"))
    write_folder(tmp_path / "back", opened.model, opened.preset, None)
    before, after = (
        load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "back")
    )
    assert before.keys() == after.keys()
    unused = {n for n in before if f"{n[:-5]}.decoder.bias" in before}  # of tables not tied
    assert all(torch.equal(x, after[n]) for n, x in before.items() if n not in unused)
    again, output = hf.VisionEncoderDecoderModel.from_pretrained(
        tmp_path / "back", output_loading_info=True
    )
    assert not any(output.values()), output
    state = again.state_dict()
    weights = reference.state_dict().items()
    assert all(torch.equal(x, state[n]) for n, x in weights if n not in unused)
    assert load_folder(tmp_path / "back").preset.architecture == opened.preset.architecture


@cache
def _made(folder: Path, decoder: str) -> Any:
    with quiet():
        made = vision_encoder_decoder(decoder={"model_type": decoder})
        return saved(made, folder), made


def _outcome(key: ConfigKey, made: Any, folder: Path) -> str:
    """Return what comes of a folder: equal, refused, or what is wrong."""
    try:
        expected: Any = theirs(made, folder, T)
    except Exception as error:
        expected = error
    try:
        found = ours(folder, T)
    except ValueError as error:
        message = str(error)
        known = any(name and name in message for name in (key.name, key.alias_of))
        known = known or any(
            x in message for x in ("has shape", "the weights", "pooler_output_size")
        )
        if key.use == "harmless" and not isinstance(expected, Exception):
            return f"refused, but harmless: {message}"
        return "refused" if known and "\n" not in message else f"refused badly: {message}"
    if isinstance(expected, Exception):
        return "equal" if key.use == "harmless" else f"opened, but theirs: {expected!r}"
    return "equal" if differ(found, expected) < TOLERANCE else f"{differ(found, expected)} apart"


def _nested(folder: Path, side: str, name: str, value: Any) -> None:
    own = json.loads((folder / "config.json").read_text())[side]
    rewrite(folder, {side: own | {name: value}})


def _try(side: str, key: ConfigKey, decoder: str, plain: Path, folder: Path) -> dict[str, str]:
    """Write each other value of a key by hand, and into a model of its own."""
    _, made = _made(plain, decoder)
    out: dict[str, str] = {}
    for value in values(key):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(plain, folder)
        _nested(folder, side, key.name, value)
        out[f"{side}.{key.name} = {value!r} by hand"] = _outcome(key, made, folder)
        shutil.rmtree(folder)
        sides = {"decoder": {"model_type": decoder}}
        sides[side] = sides.get(side, {}) | {key.name: value}
        try:
            with quiet():
                other = vision_encoder_decoder(**sides)
                type(other).from_pretrained(saved(other, folder))
        except Exception:  # of any type: the reference library refuses to build it
            continue
        out[f"{side}.{key.name} = {value!r} built"] = _outcome(key, other, folder)
    return out


KEYS = {"vit": ENCODER_KEYS} | {name: x.config_keys for name, x in DECODERS.items()}
USUAL = [
    ("vit", "hidden_act"), ("vit", "image_size"), ("vit", "pruned_heads"),
    ("gpt2", "add_cross_attention"), ("gpt2", "cross_attention_hidden_size"),
    ("gpt2", "n_embd"), ("gpt2", "tie_word_embeddings"),
    ("bert", "is_decoder"), ("bert", "tie_word_embeddings"), ("roberta", "pad_token_id"),
]  # fmt: skip
ALL = [(family, name) for family, keys in KEYS.items() for name in keys.table]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("family", "name"),
    [pytest.param(*one, marks=() if one in USUAL else pytest.mark.slow) for one in ALL],
)
def test_keys_of_both_sides_give_reference_logits_or_are_refused(
    family: str, name: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    side, decoder = ("encoder", "gpt2") if family == "vit" else ("decoder", family)
    plain = tmp_path_factory.getbasetemp() / f"captioner-{decoder}"
    found = _try(side, KEYS[family].table[name], decoder, plain, tmp_path / "x")
    wrong = {key: how for key, how in found.items() if how not in ("equal", "refused")}
    assert not wrong, json.dumps(wrong, indent=1)


@pytest.mark.parametrize(
    ("side", "change", "message"),
    [
        ("encoder", {"model_type": "swin"}, "encoder.model_type = 'swin' is not supported"),
        ("decoder", {"model_type": "trocr"}, "decoder.model_type = 'trocr' is not supported"),
        ("decoder", {"model_type": "bert"}, "decoder: lacks 'hidden_size'"),
        ("decoder", {"add_cross_attention": None}, "add_cross_attention"),
        ("encoder", {"hidden_size": "wide"}, "encoder: hidden_size must be an integer"),
        ("decoder", {"n_head": 5}, "decoder: n_head = 5 must divide n_embd = 48"),
        ("decoder", {"n_layer": 4}, "the weights have 3 layers of the decoder"),
    ],
)
def test_unsupported_sides_are_refused_by_name(
    side: str, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    saved(vision_encoder_decoder(), tmp_path)
    for name, value in change.items():
        _nested(tmp_path, side, name, value)
    with pytest.raises(ValueError, match=message):
        load_folder(tmp_path)


def test_network_without_pictures_is_one_line() -> None:
    model = MODELS["vit-gpt2-mini"].build().initialize(0)
    with pytest.raises(ValueError, match="describes pictures, and the batch has none"):
        model.hidden_states(Batch(inputs=torch.zeros(1, 3, dtype=torch.long)))


def test_decoder_must_attend_to_its_encoder() -> None:
    a = MODELS["vit-gpt2-mini"].architecture
    with pytest.raises(ValueError, match="cross_attention = True"):
        VisionEncoderDecoderArchitecture(
            encoder=a.encoder, decoder=MODELS["gpt2-mini"].architecture
        )
    assert a.picture_stack is a.encoder
    assert a.with_vocab_size(50).encoder == a.encoder


def test_decoder_of_bert_without_its_head_has_no_format_of_theirs(tmp_path: Path) -> None:
    opened = load_folder(saved(vision_encoder_decoder(decoder={"model_type": "bert"}), tmp_path))
    assert with_expressible_format(opened.preset) == opened.preset
    for changes in ({"transform": None}, {"bias": False}, {"transform": "relu"}):
        head = replace(opened.preset.heads["language"], **changes)
        other = with_expressible_format(replace(opened.preset, heads={"language": head}))
        assert not other.config_mapping.in_transformers
