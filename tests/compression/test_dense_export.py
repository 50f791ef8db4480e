"""Dense layers for other libraries, and heads that these libraries removed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_models import make
from torch import Tensor

import unmask
from unmask.batch import Batch, Visibility
from unmask.checkpoints.huggingface.read import LoadedModel, load_folder
from unmask.compression.structure.low_rank import LowRank
from unmask.compression.structure.whole import is_divided, to_whole
from unmask.compression.structure.widths import ColumnPruning, HeadPruning
from unmask.model.layers.per_layer import LayerWidths

IDS = torch.arange(5, 21).reshape(2, 8)
REMOVED = {0: [1], 2: [0, 3]}


def states(loaded: LoadedModel) -> Tensor:
    a = loaded.model.architecture
    source = IDS if a.is_encoder_decoder else None
    visible = Visibility(causal=a.decoder_stack.causal)
    with torch.no_grad():
        return loaded.model.backbone(Batch(inputs=IDS, visibility=visible, source=source))


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5", "bart"])
def test_dense_layers_give_equal_outputs(family: str, tmp_path: Path) -> None:
    _, before = make(family, tmp_path / "model")
    small = HeadPruning(fraction=0.4).restructure(before)
    small = ColumnPruning(fraction=0.6).restructure(small)
    small = LowRank(fraction=0.5).restructure(small)
    assert is_divided(small.model.architecture)
    whole = to_whole(small)
    assert not is_divided(whole.model.architecture)
    assert whole.preset.config_mapping.model_type == before.preset.config_mapping.model_type
    torch.testing.assert_close(states(whole), states(small), atol=1e-4, rtol=1e-4)
    again = to_whole(before)
    assert again is before


def test_layers_of_equal_width_are_padded_to_format_widths(tmp_path: Path) -> None:
    _, before = make("bert", tmp_path / "model")
    small = HeadPruning(fraction=0.5, scope="layer").restructure(before)
    assert small.preset.config_mapping.model_type == "unmask-bert"  # which has no head_dim
    whole = to_whole(small)
    assert whole.preset.config_mapping.model_type == "bert"
    torch.testing.assert_close(states(whole), states(small), atol=1e-5, rtol=1e-5)


def cut_bert(weights: dict[str, Tensor], i: int, rows: Tensor) -> dict[str, Tensor]:
    layer = f"bert.encoder.layer.{i}.attention."
    found = {
        f"{layer}self.{part}.{kind}": weights[f"{layer}self.{part}.{kind}"][rows]
        for part in ("query", "key", "value")
        for kind in ("weight", "bias")
    }
    out = f"{layer}output.dense.weight"
    return found | {out: weights[out][:, rows]}


def cut_gpt2(weights: dict[str, Tensor], i: int, rows: Tensor) -> dict[str, Tensor]:
    layer = f"transformer.h.{i}.attn."
    width = len(weights[f"{layer}c_proj.weight"])
    all_rows = torch.cat([rows + part * width for part in range(3)])
    return {
        f"{layer}c_attn.weight": weights[f"{layer}c_attn.weight"][:, all_rows],
        f"{layer}c_attn.bias": weights[f"{layer}c_attn.bias"][all_rows],
        f"{layer}c_proj.weight": weights[f"{layer}c_proj.weight"][rows],
    }


def pruned_folder(family: str, folder: Path) -> Tensor:
    """Write what transformers 4 writes after `prune_heads`; return the hidden states.

    transformers 5 has no such method: the states are those of heads that add nothing.
    """
    depth: dict[str, Any] = {"n_layer" if family == "gpt2" else "num_hidden_layers": 3}
    reference, _ = make(family, folder, None, **depth)
    cut: Any = {"bert": cut_bert, "gpt2": cut_gpt2}[family]
    weights = load_file(folder / "model.safetensors")
    state, changed = reference.state_dict(), dict(weights)
    for i, heads in REMOVED.items():
        kept = [head for head in range(4) if head not in heads]
        rows = torch.cat([torch.arange(8) + 8 * head for head in kept])
        changed |= cut(weights, i, rows)
        name = {
            "bert": f"bert.encoder.layer.{i}.attention.output.dense.weight",
            "gpt2": f"transformer.h.{i}.attn.c_proj.weight",
        }[family]
        gone = torch.tensor([j for j in range(32) if j not in rows])
        state[name].index_fill_(1 if family == "bert" else 0, gone, 0)
    save_file({n: x.contiguous() for n, x in changed.items()}, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["pruned_heads"] = {str(i): heads for i, heads in REMOVED.items()}
    (folder / "config.json").write_text(json.dumps(config))
    with torch.no_grad():
        return reference.base_model(input_ids=IDS).last_hidden_state


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_heads_pruned_by_transformers_are_read(family: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    expected = pruned_folder(family, tmp_path / "model")
    loaded = unmask.load(tmp_path / "model")
    widths = vars(loaded.model.architecture)["layers"].widths
    assert isinstance(widths, LayerWidths)
    assert widths.heads == ((0, 2, 3), (0, 1, 2, 3), (1, 2))
    torch.testing.assert_close(states(loaded.loaded_model), expected, atol=1e-5, rtol=1e-5)
    loaded.save(tmp_path / "whole")  # which transformers 5 opens, too
    again = transformers.AutoModel.from_pretrained(tmp_path / "whole").eval()
    with torch.no_grad():
        theirs = again(input_ids=IDS).last_hidden_state
    torch.testing.assert_close(theirs, expected, atol=1e-5, rtol=1e-5)
    loaded.save(tmp_path / "own", format="unmask")
    own = unmask.load(tmp_path / "own")
    assert own.model.parameter_count() == loaded.model.parameter_count()
    torch.testing.assert_close(states(own.loaded_model), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("pruned", "message"),
    [
        ({"0": [9]}, "layer 0 has no heads"),
        ({"7": [0]}, "layer 7 has no heads"),
        ({"0": [0, 1, 2, 3]}, "rising indices"),
        ({"0": 1}, "lists of heads by layer"),
        ({"first": [1]}, "lists of heads by layer"),
        ([1], "must be an object"),
        ({"1": [0]}, "has shape .* pruned_heads"),
    ],
)
def test_records_contradicting_the_weights_are_refused(
    pruned: object, message: str, tmp_path: Path
) -> None:
    make("bert", tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pruned_heads": pruned}))
    with pytest.raises(ValueError, match=message):
        load_folder(tmp_path / "model")
