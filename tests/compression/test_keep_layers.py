"""Layers that are removed: which stay, and a model of those that stay."""

from pathlib import Path

import pytest
import torch
from small_models import make
from torch import nn

import unmask
from unmask.batch import Batch
from unmask.compression.structure.layers import KeepLayers, every_nth, keep_layers, select_layers
from unmask.config import from_dict
from unmask.model.backbones.transformer import Transformer


def test_distilbert_layers_equal_released_code() -> None:
    assert every_nth(12, 6) == (0, 2, 4, 7, 9, 11)
    assert every_nth(24, 6) == (0, 5, 9, 14, 18, 23)
    assert every_nth(12, 1) == (0,)
    assert every_nth(5, 5) == (0, 1, 2, 3, 4)


def test_strategies_select_the_layers_of_the_paper() -> None:
    assert select_layers(12, 8, "top") == (0, 1, 2, 3, 4, 5, 6, 7)
    assert select_layers(12, 8, "bottom") == (4, 5, 6, 7, 8, 9, 10, 11)
    assert select_layers(12, 8, "symmetric") == (0, 1, 2, 3, 8, 9, 10, 11)
    # "odd-alternate layers - {5, 7, 9, 11}" are removed, counted from 1 (section 2.2)
    assert select_layers(12, 8, "alternate") == (0, 1, 2, 3, 5, 7, 9, 11)
    assert select_layers(12, 6, "alternate") == (1, 3, 5, 7, 9, 11)


@pytest.mark.parametrize("strategy", ["spaced", "top", "bottom", "alternate", "symmetric"])
def test_requested_number_of_layers_is_kept(strategy: str) -> None:
    for n in range(1, 9):
        for kept in range(1, n + 1):
            if strategy == "alternate" and n - kept > n // 2:
                with pytest.raises(ValueError, match="alternate removes at most"):
                    select_layers(n, kept, strategy)
                continue
            found = select_layers(n, kept, strategy)  # pyright: ignore[reportArgumentType]
            assert len({*found}) == kept
            assert list(found) == sorted(found)
            assert all(0 <= i < n for i in found)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"keep": 0}, "keep must be a number of layers"),
        ({"keep": "0+"}, "keep must be a number of layers"),
        ({"keep": "two"}, "keep must be a number of layers"),
        ({}, "keep"),
        ({"keep": 1, "strategy": "random"}, "strategy"),
    ],
)
def test_options_are_validated(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_dict(KeepLayers, fields)


def test_reduced_model_holds_the_kept_layers(tmp_path: Path) -> None:
    _, before = make("bert", tmp_path / "model", num_hidden_layers=4)
    after = keep_layers(before, (1, 3))
    backbone = before.model.backbone
    assert isinstance(backbone, Transformer)
    backbone.layers = nn.ModuleList([backbone.layers[1], backbone.layers[3]])
    batch = Batch(inputs=torch.arange(5, 17).reshape(2, 6))
    assert torch.equal(before.model.backbone(batch), after.model.backbone(batch))
    assert after.model.architecture.decoder_stack.n_layers == 2
    assert after.preset.architecture == after.model.architecture
    for name, w in after.model.own_weights().items():  # copies
        assert w.data_ptr() not in {x.data_ptr() for x in before.model.own_weights().values()}, name


def test_one_of_two_stacks_can_be_reduced(tmp_path: Path) -> None:
    _, before = make("t5", tmp_path / "model", num_layers=3, num_decoder_layers=3)
    after = KeepLayers(keep=1, stack="decoder").restructure(before)
    stacks = after.model.architecture.stacks
    assert (stacks["encoder"].n_layers, stacks["decoder"].n_layers) == (3, 1)
    _, one = make("gpt2", tmp_path / "one")
    with pytest.raises(ValueError, match="stack must be all"):
        KeepLayers(keep=1, stack="decoder").restructure(one)


def test_reduced_folder_stays_in_its_family(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    make("bert", tmp_path / "model", num_hidden_layers=4)
    result = unmask.compress(tmp_path / "model", method=["layers:keep=0+3"], out=tmp_path / "small")
    assert result.bytes_after < result.bytes_before
    loaded = unmask.load(tmp_path / "small")
    reference = transformers.AutoModel.from_pretrained(tmp_path / "small").eval()
    ids = torch.arange(5, 17).reshape(2, 6)
    with torch.no_grad():
        theirs = reference(input_ids=ids).last_hidden_state
        ours = loaded.model.backbone(Batch(inputs=ids))
    assert torch.allclose(ours, theirs, atol=1e-5)  # float32
    assert "layers (keep 0+3" in unmask.describe(str(tmp_path / "small"))["note"]
    assert "compressed by" in (tmp_path / "small" / "README.md").read_text()
    unmask.compress(tmp_path / "small", method=["layers:keep=1", "int8"], out=tmp_path / "both")
    assert unmask.load(tmp_path / "both").model.architecture.decoder_stack.n_layers == 1


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ((), "rising indices from 0 to 1"),
        ((1, 0), "rising indices"),
        ((0, 0), "rising indices"),
        ((0, 2), "rising indices"),
        ((-1,), "rising indices"),
    ],
)
def test_indices_are_validated(indices: tuple[int, ...], message: str, tmp_path: Path) -> None:
    _, before = make("bert", tmp_path / "model", num_hidden_layers=2)
    with pytest.raises(ValueError, match=message):
        keep_layers(before, indices)
