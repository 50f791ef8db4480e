"""Heads and columns that are removed: importance by its definition, and the same numbers after."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_models import make, texts
from torch import Tensor

import unmask
from unmask.batch import Batch
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.cli.main import run
from unmask.compression.calibration import calibration_batches
from unmask.compression.structure.importance import mask_gradients, normalized
from unmask.compression.structure.widths import ColumnPruning, HeadPruning
from unmask.heads.model import Model
from unmask.heads.pretraining.generator_inputs import GeneratorInputs
from unmask.model.backbones.transformer import Architecture
from unmask.model.layers.per_layer import LayerWidths
from unmask.zoo.catalogue import MODELS


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("\n\n".join(texts(12)))
    return tmp_path / "text.txt"


def stacks_of(loaded: LoadedModel) -> dict[str, Architecture]:
    return {
        side: a
        for side, a in loaded.model.architecture.stacks.items()
        if isinstance(a, Architecture)
    }


def loss(model: Model, batch: Batch) -> Tensor:
    """Compute the loss in float64; a model's own is float32."""
    assert batch.targets is not None
    (logits,) = model(batch, return_logits=True).logits.values()
    targets = batch.targets.flatten()
    if batch.target_positions is not None and len(targets) != len(logits):
        targets = targets[batch.target_positions]
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, -2), targets, reduction="sum"
    ).detach()


def scaled(model: Model, name: str, columns: slice, factor: float) -> Model:
    """Scale what a head or column adds: its columns of the map that follows."""
    found = copy.deepcopy(model)
    with torch.no_grad():
        dict(found.named_parameters())[name][:, columns] *= factor
    return found


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_mask_gradients_equal_finite_differences(family: str, tmp_path: Path, corpus: Path) -> None:
    kind = {"gpt2": "GPT2LMHeadModel", "t5": "T5ForConditionalGeneration"}[family]
    _, loaded = make(family, tmp_path / "model", kind)
    model = loaded.model.double().eval()
    a = loaded.model.decoder_architecture
    assert isinstance(a, Architecture)
    around = "backbone.decoder.layers.0" if family == "t5" else "backbone.layers.0"
    batches = calibration_batches(loaded, corpus, 3)
    rows = [b for batch in batches for b in rows_of(batch)]
    width = a.n_heads * a.d_head
    for part, n, size in (
        ("attention.o", a.n_heads, width),
        ("feed_forward.down", a.d_ff, a.d_ff),
    ):
        module = model.get_submodule(f"{around}.{part}")
        found = mask_gradients(model, {"one": (module, n)}, rows)["one"]
        step, per = 1e-5, size // n
        for i in (0, n - 1):
            columns = slice(i * per, (i + 1) * per)
            expected = 0.0
            for row in rows:
                more, less = (
                    float(loss(scaled(model, f"{around}.{part}.weight", columns, f), row))
                    for f in (1 + step, 1 - step)
                )
                expected += abs(more - less) / (2 * step)
            assert float(found[i]) == pytest.approx(expected / len(rows), rel=1e-5, abs=1e-9)


def rows_of(batch: Batch) -> list[Batch]:
    """Return batches of one row each, with the targets of that row."""
    assert batch.targets is not None
    found: list[Batch] = []
    width = batch.inputs.shape[1]
    for i in range(len(batch.inputs)):
        one = {
            name: value[i : i + 1]
            for name in ("inputs", "targets", "source", "segments", "position_ids")
            if (value := getattr(batch, name)) is not None
        }
        for name in ("visibility", "source_visibility"):
            seen = getattr(batch, name)
            one[name] = replace(
                seen,
                rank=None if seen.rank is None else seen.rank[i : i + 1],
                document=None if seen.document is None else seen.document[i : i + 1],
            )
        if batch.target_positions is not None:
            where = batch.target_positions
            own = where[(where >= i * width) & (where < (i + 1) * width)] - i * width
            one["target_positions"] = own
        found.append(Batch(**one))
    return found


def test_each_text_of_a_batch_counts_by_itself(tmp_path: Path, corpus: Path) -> None:
    _, loaded = make("gpt2", tmp_path / "model")
    model = loaded.model.double()
    modules = {"one": (model.get_submodule("backbone.layers.0.attention.o"), 2)}
    batches = calibration_batches(loaded, corpus, 6)
    assert max(len(b.inputs) for b in batches) > 1
    whole = mask_gradients(model, modules, batches)["one"]
    apart = mask_gradients(model, modules, [r for b in batches for r in rows_of(b)])["one"]
    torch.testing.assert_close(whole, apart)
    assert all(p.requires_grad for p in model.parameters())  # as before


@pytest.mark.thorough
def test_generator_samples_are_reproducible() -> None:
    preset = MODELS["electra-mini"]
    model = preset.build().initialize(0)
    ids = torch.randint(10, 100, (2, 9), generator=torch.Generator().manual_seed(0))
    batch = Batch(inputs=ids, targets=ids, features=(GeneratorInputs(ids),))
    modules = {"one": (model.get_submodule("backbone.layers.0.attention.o"), 4)}
    first, second = (mask_gradients(model, modules, [batch])["one"] for _ in range(2))
    assert torch.equal(first, second)


def test_importance_of_each_layer_has_norm_one() -> None:
    found = normalized({"a": torch.tensor([3.0, 4.0]), "b": torch.zeros(2)})
    torch.testing.assert_close(found["a"], torch.tensor([0.6, 0.8]))
    assert not found["b"].any()


def test_magnitude_importance_is_invariant_to_factor_scale(tmp_path: Path) -> None:
    _, loaded = make("bert", tmp_path / "model")
    before = HeadPruning().scores(loaded.model, stacks_of(loaded))
    weights = loaded.model.own_weights()
    with torch.no_grad():
        weights["backbone.layers.0.attention.v.weight"] *= 4
        weights["backbone.layers.0.attention.o.weight"] /= 4
    after = HeadPruning().scores(loaded.model, stacks_of(loaded))
    for name, x in before.items():
        torch.testing.assert_close(x, after[name])


def zeroed(model: Model, out: str, kept: Mapping[str, Sequence[int]], n: int) -> Model:
    """Zero what all others add."""
    found = copy.deepcopy(model)
    for name, parts in kept.items():
        weight = dict(found.named_parameters())[f"{name}.{out}.weight"]
        mask = torch.zeros(n, weight.shape[1] // n)
        mask[list(parts)] = 1
        with torch.no_grad():
            weight.mul_(mask.flatten())
    return found


def test_narrowed_model_equals_model_with_zeros(tmp_path: Path) -> None:
    preset = MODELS["bert-mini"]
    model = preset.build().initialize(0)
    loaded = LoadedModel(
        preset=preset, model=model.eval(), tokenizer=None, label_names=(), missing=(), unexpected=()
    )
    ids = torch.randint(0, 100, (2, 9), generator=torch.Generator().manual_seed(0))
    batch = Batch(inputs=ids)
    small = HeadPruning(fraction=0.45).restructure(loaded)
    widths = small.model.decoder_architecture.layers.widths  # pyright: ignore[reportAttributeAccessIssue]
    assert isinstance(widths, LayerWidths)
    kept = {f"backbone.layers.{i}.attention": heads for i, heads in enumerate(widths.heads)}
    assert sum(map(len, widths.heads)) == 9
    with torch.no_grad():
        expected = zeroed(model, "o", kept, 4).backbone(batch)
        torch.testing.assert_close(small.model.backbone(batch), expected, atol=1e-5, rtol=1e-5)
    again = ColumnPruning(fraction=0.5).restructure(HeadPruning(fraction=0.3).restructure(small))
    assert again.model.parameter_count() < small.model.parameter_count()
    assert (
        again.model.backbone.flops(64) < small.model.backbone.flops(64) < (model.backbone.flops(64))
    )


def test_selected_heads_keep_their_position_biases(tmp_path: Path) -> None:
    _, loaded = make("t5", tmp_path / "model")
    torch.manual_seed(0)
    with torch.no_grad():
        for p in loaded.model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    small = HeadPruning(fraction=0.5, scope="layer").restructure(loaded)
    stacks = stacks_of(small)
    kept: dict[str, Sequence[int]] = {}
    for side, a in stacks.items():
        assert a.layers.widths is not None
        kept |= {
            f"backbone.{side}.layers.{i}.{part}": heads
            for part, each in (
                ("attention", a.layers.widths.heads),
                ("cross", a.layers.widths.cross_heads),
            )
            for i, heads in enumerate(each)
        }
    batch = Batch(inputs=torch.arange(5, 11)[None], source=torch.arange(7, 15)[None])
    whole = zeroed(loaded.model, "o", kept, stacks["encoder"].n_heads)
    with torch.no_grad():
        torch.testing.assert_close(
            small.model.backbone(batch), whole.backbone(batch), atol=1e-4, rtol=1e-4
        )


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        (LayerWidths(heads=((0,),)), "must have 4 layers, got 1"),
        (LayerWidths(heads=((),) * 4), "rising indices from 0 to 3"),
        (LayerWidths(heads=((0, 4),) * 4), "rising indices"),
        (LayerWidths(d_ff=(0, 1, 2, 3)), "d_ff must be at least 1"),
    ],
)
def test_widths_are_validated(widths: LayerWidths, message: str) -> None:
    a = MODELS["bert-mini"].architecture
    assert isinstance(a, Architecture)
    with pytest.raises(ValueError, match=message):
        replace(a, layers=replace(a.layers, widths=widths))


def test_key_value_groups_stay_whole() -> None:
    a = MODELS["llama-mini"].architecture
    assert isinstance(a, Architecture)
    assert a.n_heads == 2 * a.n_key_value_heads
    widths = LayerWidths(heads=((0, 2),) * a.n_layers)
    with pytest.raises(ValueError, match="belong together"):
        replace(a, layers=replace(a.layers, widths=widths))


@pytest.mark.thorough
def test_command_measures_importance_on_texts(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make("bert", tmp_path / "model")
    arguments = ["compress", str(tmp_path / "model"), "--method", "heads:fraction=0.5"]
    arguments += ["--method", "columns:fraction=0.5", "--method", "int8", "--data", str(corpus)]
    assert run([*arguments, "--out", str(tmp_path / "small")]) == 0
    assert "times smaller" in capsys.readouterr().out
    assert run(["fill", str(tmp_path / "small"), "the [MASK]"]) == 0
    assert run(["evaluate", str(tmp_path / "small"), "--data", str(corpus)]) == 0


@pytest.mark.parametrize(
    ("method", "data", "message"),
    [
        ("heads:importance=gradient", None, "needs calibration texts"),
        ("heads:fraction=1", None, "fraction must be from 0 to below 1"),
        ("int8", "text.txt", "no method here uses calibration texts"),
        ("heads", "empty.txt", "no text in it"),
        ("heads", "none.txt", "none.txt"),
        ("heads", "bytes.txt", "UTF-8"),
    ],
)
def test_invalid_options_are_refused_in_one_line(
    method: str, data: str | None, message: str, tmp_path: Path, corpus: Path
) -> None:
    make("bert", tmp_path / "model")
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x80 a")
    location = None if data is None else tmp_path / data
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        unmask.compress(tmp_path / "model", method=[method], data=location, out=tmp_path / "small")
    assert not (tmp_path / "small").exists()
