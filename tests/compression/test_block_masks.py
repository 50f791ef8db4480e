"""Heads and feed-forward sublayers whose weights become zero."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import make, texts

from unmask.batch import Batch, Visibility
from unmask.checkpoints.huggingface.read import load_folder
from unmask.cli.main import run as run_command
from unmask.compression.calibration import calibration_batches
from unmask.compression.masks.blocks import BlockPruning
from unmask.compression.masks.given import MaskPruning
from unmask.compression.structure.widths import HeadPruning, gated_projections
from unmask.heads.model import Model

SIZES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
}  # fmt: skip


def zero_heads(model: Model) -> list[list[int]]:
    return [
        (w.unflatten(1, (n, -1)) == 0).all(2).all(0).nonzero().flatten().tolist()
        for w, n in gated_projections(model, "heads").values()
    ]


def zero_sublayers(model: Model) -> list[str]:
    weights = model.own_weights()
    return [n for n, w in weights.items() if n.endswith("down.weight") and not bool(w.any())]


@pytest.mark.parametrize("with_texts", [False, True])
def test_least_important_parts_are_zero(with_texts: bool, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join(texts(9)))
    loaded = make("bert", tmp_path / "model", "BertForMaskedLM", **SIZES)[1]
    batches = calibration_batches(loaded, tmp_path / "text.txt", 6) if with_texts else []
    removed = HeadPruning(fraction=0.25).restructure(loaded, batches)
    masked = BlockPruning(heads=0.25).restructure(loaded, batches)
    assert sum(map(len, zero_heads(masked.model))) == 2
    ids = torch.randint(5, 90, (3, 9), generator=torch.Generator().manual_seed(1))
    batch = Batch(inputs=ids, targets=ids, visibility=Visibility())
    for one in (removed, masked):
        one.model.eval()
    with torch.no_grad():
        a, b = (one.model.backbone(batch) for one in (removed, masked))
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)  # the same two heads
    before = zero_heads(masked.model)
    again = BlockPruning(heads=0.5, feed_forward=0.5).restructure(masked, batches)
    after = zero_heads(again.model)
    assert all(set(a) <= set(b) for a, b in zip(before, after, strict=True))
    assert sum(map(len, after)) == 4
    assert len(zero_sublayers(again.model)) == 1


def test_such_zeros_are_a_mask_for_another_start(tmp_path: Path) -> None:
    make("bert", tmp_path / "model", "BertForMaskedLM", **SIZES)
    folder, out = str(tmp_path / "model"), str(tmp_path / "masked")
    method = "blocks:heads=0.5,feed_forward=0.5,random=3"
    assert run_command(["compress", folder, "--method", method, "--out", out]) == 0
    masked = load_folder(tmp_path / "masked").model
    ticket = MaskPruning(source=out).restructure(load_folder(tmp_path / "model")).model
    assert zero_heads(ticket) == zero_heads(masked)
    assert zero_sublayers(ticket) == zero_sublayers(masked)
    assert sum(map(len, zero_heads(ticket))) == 4


def test_a_layer_may_keep_all_of_its_heads(tmp_path: Path) -> None:
    loaded = make("bert", tmp_path / "model", "BertForMaskedLM", **SIZES)[1]
    masked = BlockPruning(heads=0.125).restructure(loaded).model
    assert sorted(map(len, zero_heads(masked))) == [0, 1]


@pytest.mark.parametrize(
    ("element", "message"),
    [
        ("blocks", "blocks: heads or feed_forward must be above 0"),
        ("blocks:heads=1", "heads must be from 0 to below 1, got 1"),
    ],
)
def test_bad_fractions_are_refused_in_one_line(
    element: str, message: str, tmp_path: Path, capsys: Any
) -> None:
    out = tmp_path / "masked"
    arguments = ["compress", "unmask-mini-en", "--method", element, "--out", str(out)]
    assert run_command(arguments) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
    assert not out.exists()
