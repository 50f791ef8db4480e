"""Inputs of linear layers in few bits: the formulas once more in float64, ranges, folders."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from toy_models import WORDS, card, pretrained, texts, write

import unmask
from unmask.checkpoints.activations import ACTIVATIONS_FILE
from unmask.checkpoints.huggingface.read import load_folder
from unmask.cli.main import run
from unmask.compression.activations import InputHistogram, quantizable_inputs, quantize_inputs
from unmask.compression.calibration import calibration_batches
from unmask.compression.config import QuantizationAware
from unmask.compression.quantize import Quantize
from unmask.compression.while_training import build_transforms
from unmask.config import from_dict
from unmask.model.layers.quantized_inputs import (
    InputQuantization,
    InputQuantizer,
    attach_quantizers,
    quantized_inputs,
)
from unmask.zoo.catalogue import MODELS


def by_hand(x: np.ndarray, bits: int, low: float, high: float, symmetric: bool) -> np.ndarray:
    """Round as in Q8BERT, equation 1, or with a code for zero, in float64."""
    if symmetric:
        most = 2 ** (bits - 1) - 1
        scale = most / high
        return np.clip(np.rint(x * scale), -most, most) / scale
    step = (high - low) / (2**bits - 1)
    zero = np.rint(-low / step)
    return (np.clip(np.rint(x / step) + zero, 0, 2**bits - 1) - zero) * step


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(st.integers(0, 99), st.integers(2, 8), st.floats(0.1, 5), st.floats(0.1, 5), st.booleans())
def test_values_are_those_of_the_formula(
    seed: int, bits: int, below: float, above: float, symmetric: bool
) -> None:
    x = drawn(seed, 300)
    low = -above if symmetric else -below
    form = InputQuantization(bits=bits, low=low, high=above, symmetric=symmetric)
    expected = by_hand(x.double().numpy(), bits, low, above, symmetric)
    found = form.round(x).double().numpy()
    # Halfway between two values float32 and float64 may differ: by one step, seldom.
    off = np.abs(found - expected) > 1e-5
    assert off.mean() < 0.02
    assert np.abs(found - expected).max() < form.scale * 1.001
    assert float(form.round(torch.zeros(1))) == 0


def test_gradients_pass_as_if_nothing_were_rounded() -> None:
    x = drawn(0, 50).requires_grad_()
    InputQuantization(bits=2, low=-0.1, high=0.1).round(x).backward(drawn(1, 50))
    assert torch.equal(x.grad, drawn(1, 50))  # also beyond the range


def test_a_range_of_nothing_gives_zeros() -> None:
    form = InputQuantization(low=0.0, high=0.0)
    assert torch.equal(form.round(torch.zeros(3)), torch.zeros(3))
    assert form.round(drawn(0, 3)).abs().max() < 1e-30


@pytest.mark.parametrize("symmetric", [True, False])
def test_ranges_are_those_of_the_inputs(symmetric: bool) -> None:
    x = torch.cat([drawn(0, 20_000).abs() * 2, drawn(1, 5_000), torch.tensor([30.0])])
    histogram = InputHistogram()
    for part in x.split(7_000):
        histogram.add(part)
    assert histogram.n == len(x)

    def found(**fields: Any) -> InputQuantization:
        form = {"activations": 6, "activation_symmetric": symmetric} | fields
        return histogram.quantization(from_dict(Quantize, form))

    assert (found().low, found().high) == (-30 if symmetric else float(x.min()), 30)
    for percentile in (50, 90.0, 99.9, 100):
        one = found(activation_range="percentile", activation_percentile=percentile)
        numbers = x.abs().double().numpy() if symmetric else x.double().numpy()
        high = np.quantile(numbers, percentile / 100, method="inverted_cdf")
        low = -high if symmetric else np.quantile(numbers, 1 - percentile / 100)
        # A bin's width is 2^-10 of its values; low has a value of another rule of quantiles.
        np.testing.assert_allclose(one.high, high, rtol=2**-10)
        np.testing.assert_allclose(one.low, min(low, 0), rtol=2**-10 if symmetric else 0.05)
    errors = []
    for ratio in (2 ** (-i / 8) for i in range(41)):
        ends = (-30 * ratio if symmetric else float(x.min()) * ratio, 30 * ratio)
        rounded = by_hand(x.double().numpy(), 6, *ends, symmetric)
        errors.append((((rounded - x.double().numpy()) ** 2).sum(), ends))
    best = found(activation_range="mse")
    np.testing.assert_allclose((best.low, best.high), min(errors)[1], rtol=1e-6)
    with pytest.raises(FloatingPointError):
        histogram.add(torch.tensor([math.nan]))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("\n\n".join(text for text, _ in texts(20)))
    return tmp_path / "text.txt"


@pytest.mark.quick("bert")
@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_a_model_computes_with_rounded_inputs(family: str, data: Path, tmp_path: Path) -> None:
    """Its logits are those of one whose linear layers are computed by hand."""
    loaded = load_folder(pretrained(family, tmp_path / "model"))
    model = loaded.model
    batches = calibration_batches(loaded, data, 12)
    plain = model(batches[0], return_logits=True).terms
    quantize_inputs(model, Quantize(bits=8.0, activations=4), batches)
    found = quantized_inputs(model)
    assert set(found) <= set(quantizable_inputs(model))
    assert {n.rpartition(".")[2] for n in found} >= {"q", "k", "v", "o", "up", "down", "projected"}
    rounded = model(batches[0], return_logits=True).terms
    attach_quantizers(model, {})
    for name, one in found.items():

        def by_formula(_: nn.Module, inputs: tuple[Tensor], one: Any = one) -> tuple[Tensor]:
            values = by_hand(inputs[0].detach().double().numpy(), one.bits, one.low, one.high, True)
            return (torch.from_numpy(values).float(),)

        model.get_submodule(name).register_forward_pre_hook(by_formula)
    expected = model(batches[0], return_logits=True).terms
    for name, term in rounded.items():
        # A few inputs halfway between two values may be rounded otherwise.
        torch.testing.assert_close(term.total, expected[name].total, rtol=1e-3, atol=1e-3)
        assert not torch.equal(term.total, plain[name].total)


@pytest.mark.thorough
@pytest.mark.quick("bert")
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_every_command_opens_the_folder(
    family: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrained(family, tmp_path / "model")
    words = ["compress", str(tmp_path / "model"), "--method", "int8:activations=5"]
    assert run([*words, "--data", str(data), "--out", str(tmp_path / "small")]) == 0
    small = unmask.load(tmp_path / "small")
    found = quantized_inputs(small.model)
    assert found
    assert {one.bits for one in found.values()} == {5}
    note = f"inputs of {len(found)} linear layers in 5 bits"
    assert note in (tmp_path / "small" / "README.md").read_text()
    capsys.readouterr()
    assert run(["show", str(tmp_path / "small")]) == 0
    assert note in " ".join(capsys.readouterr().out.split())
    texts_ = [" ".join(WORDS[:8]), " ".join(WORDS[9:14])]
    vectors = small.embed(texts_)
    attach_quantizers(small.model, {})
    assert not np.allclose(small.embed(texts_), vectors)
    # In our words they stay; elsewhere they are refused, before anything is written.
    again = unmask.load(tmp_path / "small")
    again.save(tmp_path / "again", format="unmask")
    assert quantized_inputs(unmask.load(tmp_path / "again").model) == found
    np.testing.assert_allclose(unmask.load(tmp_path / "again").embed(texts_), vectors, atol=1e-6)
    for name in ("huggingface", "gguf", "onnx"):
        with pytest.raises(ValueError, match=f"which format {name} does not hold"):
            again.save(tmp_path / "other", format=name)  # pyright: ignore[reportArgumentType]
        assert not (tmp_path / "other").exists()
    # Codes of weights once more keep the ranges; other methods are refused.
    unmask.compress(tmp_path / "small", method=["int4"], out=tmp_path / "smaller")
    assert quantized_inputs(unmask.load(tmp_path / "smaller").model) == found
    with pytest.raises(ValueError, match="quantize activations last"):
        unmask.compress(tmp_path / "small", method=["prune"], out=tmp_path / "other")


@pytest.mark.thorough
def test_fine_tuning_keeps_the_ranges_and_moves_those_it_follows(
    data: Path, tmp_path: Path
) -> None:
    pretrained("bert", tmp_path / "model")
    unmask.compress(
        tmp_path / "model", method=["int8:activations=8"], data=data, out=tmp_path / "small"
    )
    given_ranges = quantized_inputs(unmask.load(tmp_path / "small").model)
    write(tmp_path / "train.tsv", texts(16, 1))
    usual: dict[str, Any] = {
        "task": "classify", "train": tmp_path / "train.tsv", "epochs": 1.0, "batch_size": 8,
    }  # fmt: skip
    unmask.finetune(tmp_path / "small", out=tmp_path / "plain", **usual)
    kept = quantized_inputs(unmask.load(tmp_path / "plain").model)
    assert kept == {n: one for n, one in given_ranges.items() if n.startswith("backbone.")}
    assert "linear layers in 8 bits" in (tmp_path / "plain" / "README.md").read_text()
    unmask.finetune(
        tmp_path / "model", out=tmp_path / "qat", compression=["qat:activations=8"], **usual
    )
    learned = unmask.load(tmp_path / "qat")
    ranges = quantized_inputs(learned.model)
    assert {n for n in ranges if n.startswith("heads.label.")}
    assert kept.keys() < ranges.keys()
    assert len(learned.predict(["a good dog"])) == 1
    unmask.compress(tmp_path / "qat", method=["packed"], out=tmp_path / "packed")
    packed = unmask.load(tmp_path / "packed")
    assert quantized_inputs(packed.model) == ranges
    assert packed.predict(["a good dog"]) == learned.predict(["a good dog"])


def test_ranges_follow_the_largest_inputs() -> None:
    """The moving average of section 2, whatever the division into micro-batches."""
    for parts in (1, 3):
        model = card("bert").build().initialize(0)
        method = QuantizationAware(activations=8, activation_decay=0.75)
        (transform,) = build_transforms((method,), model)
        name, expected = "backbone.layers.0.attention.q", None
        linear = model.get_submodule(name)
        model.train()
        for step in range(1, 5):
            transform.update({}, step, 4)
            transform.begin_step()
            x = drawn(step, 6, 32) * step
            for part in x.chunk(parts):
                out = linear(part)
                if expected is not None:
                    high = expected
                    rounded = by_hand(part.double().numpy(), 8, -high, high, True)
                    weight, bias = linear.weight.double(), linear.bias.double()
                    by_formula = torch.from_numpy(rounded) @ weight.mT + bias
                    torch.testing.assert_close(out.double(), by_formula, rtol=0, atol=2e-3)
            transform.take_step(1.0)
            most = float(x.abs().max())
            expected = most if expected is None else 0.75 * expected + 0.25 * most
        assert quantized_inputs(model)[name].high == pytest.approx(expected)
        (other,) = build_transforms((method,), again := card("bert").build().initialize(0))
        other.load_state(transform.state_tensors())
        other.update({}, 5, 5)
        assert quantized_inputs(again) == quantized_inputs(model)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"activations": 1}, "activations must be from 2 to 16 bits, got 1"),
        ({"activations": 17}, "activations must be from 2 to 16 bits, got 17"),
        ({"activation_range": "mse"}, "activation_range needs activations"),
        ({"activation_symmetric": False}, "activation_symmetric needs activations"),
        (
            {"activations": 8, "activation_range": "percentile", "activation_percentile": 101},
            "activation_percentile must be from 50 to 100, got 101",
        ),
        ({"activations": 8, "activation_percentile": 99}, "needs activation_range=percentile"),
        ({"activations": 8, "activation_range": "median"}, "activation_range"),
    ],
)
def test_options_are_checked(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_dict(Quantize, fields)


def test_mistakes_are_one_line(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrained("bert", tmp_path / "model")
    (tmp_path / "empty.txt").write_text("\n \n")
    words = ["compress", str(tmp_path / "model"), "--out", str(tmp_path / "small"), "--method"]
    capsys.readouterr()
    for rest, message in (
        (["int8:activations=8"], "activations need calibration texts: --data FILE"),
        (["int8:activations=8", "--data", str(tmp_path / "empty.txt")], "no text in it"),
        (["int8:activations=0", "--data", str(data)], "from 2 to 16 bits, got 0"),
    ):
        assert run([*words, *rest]) == 2
        error = capsys.readouterr().err.strip()
        assert message in error
        assert "\n" not in error
    assert not (tmp_path / "small").exists()
    static = MODELS["word2vec-cbow-mini"].build()
    with pytest.raises(ValueError, match="no linear layers"):
        quantizable_inputs(static)


@pytest.mark.thorough
def test_a_damaged_file_is_refused(data: Path, tmp_path: Path) -> None:
    pretrained("bert", tmp_path / "model")
    unmask.compress(
        tmp_path / "model", method=["int8:activations=8"], data=data, out=tmp_path / "small"
    )
    path = tmp_path / "small" / ACTIVATIONS_FILE
    whole = json.loads(path.read_text())
    name = next(iter(whole["inputs"]))
    for change in ({"bits": 40}, {"low": 1.0}, {"high": math.inf}, {"scale": 1.0}, {"high": "4"}):
        inputs = whole["inputs"] | {name: whole["inputs"][name] | change}
        path.write_text(json.dumps(whole | {"inputs": inputs}))
        with pytest.raises(ValueError, match=ACTIVATIONS_FILE):
            load_folder(tmp_path / "small")
    path.write_text(json.dumps({"format": 2, "inputs": {"backbone.x": whole["inputs"][name]}}))
    with pytest.raises(ValueError, match=r"backbone\.x: this model has no such linear layer"):
        load_folder(tmp_path / "small")


def test_a_quantizer_takes_the_place_of_another() -> None:
    model = card("bert").build().initialize(0)
    name = "backbone.layers.0.attention.q"
    for high in (0.5, 1.0):
        attach_quantizers(
            model, {name: InputQuantizer(InputQuantization(bits=2, low=-high, high=high))}
        )
    x = torch.tensor([[0.8] * 32])
    linear = model.get_submodule(name)
    expected = torch.nn.functional.linear(torch.ones(1, 32), linear.weight, linear.bias)
    torch.testing.assert_close(linear(x), expected)
