"""Linear maps in two factors: the best approximation, of weights and of outputs."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from small_models import make, texts
from torch import Tensor

import unmask
from unmask.batch import Batch
from unmask.compression.calibration import calibration_batches
from unmask.compression.prune import layer_matrices
from unmask.compression.structure.low_rank import LowRank, decompose, second_moments
from unmask.compression.structure.widths import HeadPruning
from unmask.config import from_dict
from unmask.model.layers.per_layer import FactorizedLinear


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (7, 7)])
@pytest.mark.parametrize("weighted", [False, True])
def test_all_singular_values_reproduce_the_matrix(shape: tuple[int, int], weighted: bool) -> None:
    w, x = random(*shape), random(200, shape[1], seed=1)
    found = decompose(w, x.mT @ x / len(x) if weighted else None)
    narrow, widen = found.of_rank(min(shape))
    torch.testing.assert_close(widen @ narrow, w)


def test_error_equals_that_of_dropped_singular_values() -> None:
    w = random(8, 12)
    found = decompose(w)
    narrow, widen = found.of_rank(3)
    assert narrow.shape == (3, 12)
    assert widen.shape == (8, 3)
    torch.testing.assert_close((widen @ narrow - w).square().sum(), found.energies[3:].sum())


def test_weighting_by_activations_reduces_output_error() -> None:
    """No other approximation of the rank has a smaller error on the texts."""
    w, x = random(8, 12), random(500, 12, seed=1) * torch.arange(1, 13, dtype=torch.float64)
    c = x.mT @ x / len(x)

    def error(factors: tuple[Tensor, Tensor]) -> float:
        narrow, widen = factors
        return float((x @ (widen @ narrow - w).mT).square().sum() / len(x))

    plain, weighted = decompose(w), decompose(w, c)
    for rank in range(1, 8):
        assert error(weighted.of_rank(rank)) < error(plain.of_rank(rank))
        expected = float(weighted.energies[rank:].sum())
        assert error(weighted.of_rank(rank)) == pytest.approx(expected, rel=1e-8)


def test_directions_without_activations_are_no_error() -> None:
    w, c = random(5, 4), torch.diag(torch.tensor([4.0, 1.0, 0.0, 0.0], dtype=torch.float64))
    narrow, widen = decompose(w, c).of_rank(2)
    torch.testing.assert_close((widen @ narrow)[:, :2], w[:, :2], rtol=1e-5, atol=1e-5)
    with pytest.raises(FloatingPointError, match="not finite"):
        decompose(w * torch.inf)


def test_ranks_follow_energy_per_weight() -> None:
    matrices = {"a": torch.zeros(8, 8), "b": torch.zeros(8, 8)}
    energies: Mapping[str, Tensor] = {
        "a": torch.tensor([8.0] * 8),  # all alike
        "b": torch.tensor([100.0, 50.0] + [0.0] * 6),
    }
    found = LowRank(fraction=0.5, scope="global").ranks(
        energies, matrices
    )  # 64 weights of 128: 4 values of 16
    assert found == {"a": 2, "b": 2}
    assert LowRank(fraction=0.5).ranks(energies, matrices) == {"a": 2, "b": 2}
    assert LowRank(rank=3).ranks(energies, matrices) == {"a": 3, "b": 3}
    assert LowRank(rank=4).ranks(energies, matrices) == {}  # as many weights as before
    used = LowRank(fraction=0.75, scope="global").ranks(energies, matrices)
    assert sum(used.values()) == 6
    assert max(used.values()) == 3


def test_second_moments_are_of_real_tokens(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join(texts(9)))
    _, loaded = make("t5", tmp_path / "model")
    model = loaded.model
    maps = {n.removesuffix(".weight"): w for n, w in layer_matrices(model).items()}
    batches = calibration_batches(loaded, tmp_path / "text.txt", 6)
    found = second_moments(model, maps, batches)
    assert found.keys() == maps.keys()
    name = "backbone.encoder.layers.0.attention.q"
    seen: list[Tensor] = []
    handle = model.get_submodule(name).register_forward_pre_hook(
        lambda _, inputs: seen.append(inputs[0])
    )
    with torch.no_grad():
        for batch in batches:
            model(batch)
    handle.remove()
    kept: list[Tensor] = []
    for batch, x in zip(batches, seen, strict=True):
        document = batch.source_visibility.document
        kept.append(x.flatten(0, 1) if document is None else x[document >= 0])
    x = torch.cat(kept).double()
    torch.testing.assert_close(found[name], x.mT @ x / len(x))
    whole = sum(s.numel() // s.shape[-1] for s in seen)
    assert len(x) < whole, "some are padding"


def test_folder_holds_the_factors(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join(texts(9)))
    _, before = make("bert", tmp_path / "model")
    result = unmask.compress(
        tmp_path / "model", method=["lowrank:rank=8"], data=tmp_path / "text.txt",
        out=tmp_path / "small",
    )  # fmt: skip
    assert result.bytes_after < result.bytes_before
    loaded = unmask.load(tmp_path / "small")
    q = loaded.model.get_submodule("backbone.layers.0.attention.q")
    assert isinstance(q, FactorizedLinear)
    assert q.narrow.weight.shape == (8, 32)
    assert loaded.model.backbone.flops(16) < before.model.backbone.flops(16)
    narrower = HeadPruning(fraction=0.5).restructure(loaded.loaded_model)
    assert narrower.model.parameter_count() < loaded.model.parameter_count()
    batch = Batch(inputs=torch.arange(5, 15)[None])
    with torch.no_grad():
        assert bool(narrower.model.backbone(batch).isfinite().all())
    with pytest.raises(ValueError, match="no linear map has fewer weights"):
        LowRank(rank=10_000).restructure(before)


def test_full_rank_leaves_outputs_unchanged(tmp_path: Path) -> None:
    """Factors of the largest rank of a map of low rank give the same numbers."""
    _, before = make("gpt2", tmp_path / "model")
    for name, w in layer_matrices(before.model).items():
        narrow, widen = decompose(w).of_rank(6)
        with torch.no_grad():
            w.copy_(widen @ narrow)
        assert "layers" in name
    after = LowRank(rank=6).restructure(before)
    batch = Batch(inputs=torch.arange(5, 15)[None])
    with torch.no_grad():
        expected = before.model.backbone(batch)
        torch.testing.assert_close(after.model.backbone(batch), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"fraction": 0}, "fraction must be above 0"), ({"rank": 0}, "rank must be at least 1")],
)
def test_options_are_validated(fields: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_dict(LowRank, fields)
