"""GPTQ: the equations of the paper written once more, and the model that comes of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from toy_models import pretrained, texts

import unmask
from unmask.checkpoints.huggingface.read import load_folder
from unmask.cli.main import run
from unmask.compression.calibration import calibration_batches
from unmask.compression.gptq import GPTQ, quantized_names
from unmask.compression.prune import layer_matrices
from unmask.compression.quantize import Quantize, round_weights
from unmask.compression.structure.low_rank import second_moments
from unmask.config import from_dict


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inputs(n: int, seed: int = 1) -> Tensor:
    """Return inputs [400 n] that depend on each other, of different sizes."""
    sizes = torch.linspace(0.2, 3, n, dtype=torch.float64).flip(0)
    return (random(400, n, seed=seed) @ (torch.eye(n) + 0.3 * random(n, n, seed=5))) * sizes


def by_hand(
    w: np.ndarray, h: np.ndarray, bits: int, group: int, damping: float, columns: np.ndarray
) -> np.ndarray:
    """Round one column after another, and remove each from H^-1 by Gaussian elimination."""
    w, h, found = w.copy(), h.copy(), np.zeros_like(w)
    h += np.eye(len(h)) * damping * np.diag(h).mean()
    inverse = np.linalg.inv(h)
    low, step = np.zeros((2, len(w), -(-w.shape[1] // group)))
    started = set[int]()
    for q in columns:
        g = q // group
        if g not in started:
            part = w[:, g * group : (g + 1) * group]
            low[:, g] = part.min(1)
            step[:, g] = (part.max(1) - part.min(1)) / (2**bits - 1)
            if group < w.shape[1]:
                low, step = (x.astype(np.float16).astype(float) for x in (low, step))
            started.add(g)
        codes = np.clip(np.round((w[:, q] - low[:, g]) / step[:, g]), 0, 2**bits - 1)
        found[:, q] = codes * step[:, g] + low[:, g]
        w -= np.outer((w[:, q] - found[:, q]) / inverse[q, q], inverse[q])
        inverse -= np.outer(inverse[:, q], inverse[q]) / inverse[q, q]
        inverse[q, q] = 1.0  # which is not used again
    return found


@pytest.mark.parametrize("bits", [4, 3, 2])
@pytest.mark.parametrize("group", [10, 16, 48])
@pytest.mark.parametrize("order", ["natural", "descending"])
@pytest.mark.parametrize("block", [7, 128])
def test_weights_are_those_of_the_equations(bits: int, group: int, order: str, block: int) -> None:
    w, x = random(6, 48), inputs(48)
    h = 2 * x.mT @ x
    form = {"bits": bits, "granularity": "group", "group": group, "order": order, "block": block}
    method = from_dict(GPTQ, form | {"clipping": "minmax"})
    n = len(h)
    columns = np.argsort(-h.diagonal().numpy()) if order == "descending" else np.arange(n)
    expected = by_hand(w.numpy(), h.numpy(), bits, group, 0.01, columns)
    found = method.quantize(w, h).double().numpy()
    # A code is equal or another one: float32 moves a value by less than 1e-5 of the largest.
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("order", ["natural", "descending"])
@pytest.mark.parametrize("clipping", ["minmax", "normal", "mse"])
@pytest.mark.parametrize("bits", [4, 3, 2, 1.58, 1])
def test_outputs_are_nearer_than_by_rounding(bits: float, clipping: str, order: str) -> None:
    w, x = random(16, 128), inputs(128)
    clipping = "minmax" if bits != 2 and clipping == "normal" else clipping
    form = {"bits": bits, "clipping": clipping, "embedding_bits": bits}
    found = from_dict(GPTQ, form | {"order": order}).quantize(w, x.mT @ x)
    rounded = round_weights(from_dict(Quantize, form), w.float())

    def error(q: Tensor) -> float:
        return float((x @ (w - q).mT).square().sum())

    assert error(found) < 0.8 * error(rounded)


@pytest.mark.parametrize("bits", [8, 4, 2, 1.58, 1])
def test_without_correlations_it_is_rounding(bits: float) -> None:
    w = random(8, 96)
    for h in (torch.eye(96), torch.zeros(96, 96)):
        found = from_dict(GPTQ, {"bits": bits}).quantize(w, h.double())
        assert torch.equal(found, round_weights(from_dict(Quantize, {"bits": bits}), w.float()))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("granularity", ["channel", "group"])
@pytest.mark.parametrize("bits", [8, 4, 2, 1.58])
def test_codes_stand_for_the_weights_as_they_are(
    bits: float, granularity: str, symmetric: bool
) -> None:
    """Although no weight of a group need have the outermost codes."""
    form = {"bits": bits, "granularity": granularity, "symmetric": symmetric or bits < 2}
    method = from_dict(GPTQ, form | {"group": 24})
    w, x = random(16, 64), inputs(64)
    found = method.quantize(w, x.mT @ x)
    written = round_weights(method.packing(), found)
    # An offset is another one than before where no weight has the lowest code: in float16.
    torch.testing.assert_close(written, found, rtol=0, atol=2**-11 * float(found.abs().max()))
    again = method.packing().encode(written).decode()
    torch.testing.assert_close(again, written, rtol=0, atol=1e-6)


def test_inputs_that_are_zero_do_not_matter() -> None:
    w, x = random(4, 32), inputs(32)
    x[:, ::3] = 0
    found = GPTQ(bits=3.0, damping=0.0).quantize(w, x.mT @ x)
    assert bool(found.isfinite().all())
    x[:, 1] = x[:, 2]
    for last_bits in (0.0, 1e-9, -1e-9, 1e-8):  # as other processors round
        hessian = (x.mT @ x).double()
        hessian[1, 1] *= 1 + last_bits
        with pytest.raises(ValueError, match="linearly dependent: damping must be larger"):
            GPTQ(bits=3.0, damping=0.0).quantize(w, hessian)
    with pytest.raises(ValueError, match="not finite"):
        GPTQ(bits=3.0).quantize(w, x.mT @ x * torch.nan)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("\n\n".join(text for text, _ in texts(20)))
    return tmp_path / "text.txt"


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_a_folder_has_the_codes(family: str, data: Path, tmp_path: Path) -> None:
    before = load_folder(pretrained(family, tmp_path / "model"))
    loaded: dict[str, Any] = {}
    for method in ("gptq:bits=3", "int3"):
        more: dict[str, Any] = {"data": data} if method != "int3" else {}
        result = unmask.compress(
            tmp_path / "model", method=[method], out=tmp_path / method[:4], **more
        )
        assert result.bytes_after < result.bytes_before
        loaded[method] = unmask.load(tmp_path / method[:4]).model.own_weights()
    found, rounded = loaded.values()
    names = quantized_names(before.model)
    assert names
    for name, w in found.items():
        assert torch.equal(w, rounded[name]) == (name not in names), name
    for name in names:
        groups = found[name].reshape(len(found[name]), -1)[:, :64]
        assert all(len(row.unique()) <= 8 for row in groups)
    facts = json.loads((tmp_path / "gptq" / "unmask.json").read_text())
    assert [one["method"] for one in facts["compression"]] == ["gptq"]
    assert facts["compression"][0]["bits"] == 3


def test_later_layers_see_the_codes_of_earlier_ones(data: Path, tmp_path: Path) -> None:
    """The second layer has other codes than one whose first layer has its weights still."""
    loaded = load_folder(pretrained("bert", tmp_path / "model"))
    method, batches = GPTQ(bits=2.0), calibration_batches(loaded, data, 16)
    name = "backbone.layers.1.attention.q"
    before = layer_matrices(loaded.model)[f"{name}.weight"].detach().clone()
    unseen = second_moments(loaded.model, {name: before}, batches)[name]
    model = method.restructure(loaded, batches).model
    seen = second_moments(model, {name: before}, batches)[name]
    after = layer_matrices(model)[f"{name}.weight"]
    packing = method.packing()
    assert torch.equal(after, round_weights(packing, method.quantize(before, seen)))
    assert not torch.equal(after, round_weights(packing, method.quantize(before, unseen)))


def test_mistakes_are_one_line(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrained("bert", tmp_path / "model")
    arguments = ["compress", str(tmp_path / "model"), "--out", str(tmp_path / "small")]
    capsys.readouterr()
    assert run([*arguments, "--method", "gptq:bits=4"]) == 2
    error = capsys.readouterr().err.strip()
    assert "gptq needs calibration texts: --data FILE" in error
    assert "\n" not in error
    with pytest.raises(ValueError, match="must be the last method"):
        unmask.compress(
            tmp_path / "model", method=["gptq", "int8"], data=data, out=tmp_path / "small"
        )
    assert not (tmp_path / "small").exists()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bits": 5}, "bits must be one of"),
        ({"damping": -1}, "damping must be from 0"),
        ({"block": 0}, "block must be at least 1"),
        ({"order": "random"}, "order"),
        ({"granularity": "tensor"}, "granularity must be channel or group for gptq"),
    ],
)
def test_options_are_checked(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_dict(GPTQ, fields)
