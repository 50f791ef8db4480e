"""Heads by what a model loses without them: as if they were really removed."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import make
from test_leak import build

import unmask
from unmask.analysis.attention.importance import measure_heads
from unmask.cli.main import run
from unmask.compression.structure.importance import masked_loss
from unmask.compression.structure.widths import heads_of_projections, keep_heads
from unmask.jobs.compress import read_texts_with_targets

TEXT = "the old king saw her brother at night. once again a stranger feared the sea. " * 12


@pytest.fixture(scope="module", params=["bert", "gpt2", "t5", "bart"])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp(request.param)
    make(request.param, folder / "model")
    (folder / "text.txt").write_text(TEXT)
    pipeline = unmask.load(folder / "model")
    return pipeline, read_texts_with_targets(pipeline, folder / "text.txt", 4)


def test_loss_without_a_head_is_that_of_the_model_it_was_removed_from(opened) -> None:
    pipeline, batches = opened
    modules = heads_of_projections(pipeline.model, "test")
    for name, (_, n) in modules.items():
        kept = {other: list(range(k)) for other, (_, k) in modules.items()}
        kept[name] = list(range(1, n))
        mask = torch.ones(n)
        mask[0] = 0
        smaller = keep_heads(pipeline.loaded_model, kept, "test").model
        ours = masked_loss(pipeline.model, modules, {name: mask}, batches)
        assert ours == pytest.approx(masked_loss(smaller, {}, {}, batches), rel=1e-5), name


@pytest.mark.sample(2)
def test_all_orders_begin_and_end_alike(opened) -> None:
    pipeline, batches = opened
    loss, layers, curves = measure_heads(pipeline.model, batches, fractions=(0.0, 0.5, 1.0))
    assert list(curves) == ["importance", "magnitude", "random"]
    first, _, last = (np.array([curve[i] for curve in curves.values()]) for i in range(3))
    assert np.allclose(first, loss)
    assert np.allclose(last, last[0])
    for one in layers:
        assert len(one.importance) == len(one.increases) == len(one.without_others)
        norms = np.linalg.norm(one.importance)
        assert norms == pytest.approx(1) or norms == 0
    assert len({one.name for one in layers}) == len(layers)


def test_files_and_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make("bert", tmp_path / "model")
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    given = ["probe", str(tmp_path / "model"), "--analysis"]
    more = ["--data", str(text), "--out", str(tmp_path / "out")]
    assert run([*given, "importance:texts=0", *more]) == 2
    assert "texts must be at least 1, got 0" in capsys.readouterr().err
    assert run([*given, "importance", "--out", str(tmp_path / "out")]) == 2
    assert "--data" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert run([*given, "importance:texts=4", *more]) == 0
    names = [f"importance{x}" for x in ("-heads.svg", "-orders.svg", ".html", ".json", ".md")]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == names


def test_networks_without_heads_are_refused() -> None:
    with pytest.raises(ValueError, match="only Transformer"):
        heads_of_projections(build("lstm"), "importance")
