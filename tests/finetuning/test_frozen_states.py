"""What frozen layers compute is remembered: each text once, and the scores of every epoch alike."""

from pathlib import Path

import numpy as np
import pytest
import torch
import toy_models as toy

from unmask.batch import Batch
from unmask.finetuning import train_run
from unmask.finetuning.methods import frozen_states
from unmask.finetuning.methods.frozen_states import (
    FrozenStates,
    StateStore,
    WholeNetwork,
    frozen_part,
)
from unmask.finetuning.methods.method import apply_method, parse_method
from unmask.jobs.finetune import finetune
from unmask.model.backbones.transformer import Transformer

EPOCHS, TRAIN, DEV = 4, 40, 12


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {
        "train": toy.write(tmp_path / "train.tsv", toy.texts(TRAIN, 1, most=5)),
        "dev": toy.write(tmp_path / "dev.tsv", toy.texts(DEV, 2)),
    }


def tuned(base: Path, files: dict[str, Path], tune: str, **more):
    options = {
        "task": "classify",
        "learning_rate": 1e-2,
        "epochs": float(EPOCHS),
        "batch_size": 8,
        "terminal": None,
        "precision": "float32",
        "device": "cpu",
        "dropout": 0.0,
    }
    return finetune(base, tune=tune, **files, **options | more)


@pytest.fixture
def rows_read(monkeypatch) -> list[int]:
    """Count the rows that go through the first layer of a Transformer."""
    counts: list[int] = []
    embed = Transformer.embed

    def counted(self: Transformer, batch: Batch, n_past: int = 0) -> torch.Tensor:
        counts.append(len(batch.inputs))
        return embed(self, batch, n_past)

    monkeypatch.setattr(Transformer, "embed", counted)
    return counts


@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize("tune", ["frozen", "top:n_layers=1", "scalar_mix"])
def test_states_of_frozen_layers_are_computed_once(
    tune, family, files, tmp_path, monkeypatch, rows_read
) -> None:
    base = toy.pretrained(family, tmp_path / "base")
    once = tuned(base, files, tune)
    n_once = sum(rows_read)
    rows_read.clear()
    monkeypatch.setattr(train_run, "_remember_frozen_states", lambda *_, **__: None)
    each = tuned(base, files, tune)
    n_each = sum(rows_read)
    assert once.best_run.dev == pytest.approx(each.best_run.dev, abs=1e-5)  # other rows, float32
    trained = each.loaded_model.model.state_dict()
    for name, x in once.loaded_model.model.state_dict().items():
        torch.testing.assert_close(x, trained[name], atol=1e-4, rtol=1e-4)
    assert once.loaded_model.model.frozen_states is None
    last_batch = 8  # its loss is computed again after the last step
    assert n_each - n_once == (EPOCHS - 1) * (TRAIN + DEV) + last_batch


@pytest.mark.parametrize("tune", ["frozen", "top:n_layers=1", "scalar_mix"])
def test_seeds_share_states_and_random_weights_have_their_own(
    tune, files, tmp_path, rows_read
) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    alone = [tuned(base, files, tune, seed=seed).best_run for seed in (0, 1)]
    rows_read.clear()
    both = tuned(base, files, tune, seeds=2)
    n_shared = sum(rows_read)
    assert [run.dev for run in both.run_results] == [run.dev for run in alone]
    assert n_shared == TRAIN + DEV + 2 * DEV  # dev texts of each run once more, to be scored
    rows_read.clear()
    with_baseline = tuned(base, files, tune, seeds=2, baseline=True)
    assert sum(rows_read) == 3 * (TRAIN + DEV) + 4 * DEV  # a random network for each seed
    assert [run.dev for run in with_baseline.run_results[:2]] == [run.dev for run in alone]


def test_states_with_dropout_are_not_remembered() -> None:
    """A dev text may be one of training."""
    model = toy.card("bert", dropout=0.5).build().initialize(3)
    states = FrozenStates(WholeNetwork(), StateStore())
    batch = toy.batch("bert", [[5, 6, 7], [8, 9]])
    model.frozen_states = states
    states.fill(model, [batch])
    assert states.draws_in_training
    assert not len(states.store)
    model.eval()
    with torch.no_grad():
        found = states(model.backbone, batch)
    assert torch.equal(found[batch.is_token()], model.backbone(batch)[batch.is_token()])


def test_dropout_is_drawn_in_each_epoch(files, tmp_path, monkeypatch) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    remembered = tuned(base, files, "frozen", dropout=0.3)
    monkeypatch.setattr(train_run, "_remember_frozen_states", lambda *_, **__: None)
    assert tuned(base, files, "frozen", dropout=0.3).best_run == remembered.best_run


@pytest.mark.parametrize(("memory", "disk"), [(1, 0.5), (2**20, 0.0)])
def test_states_lie_on_disk_or_are_computed_again(memory, disk, monkeypatch) -> None:
    monkeypatch.setattr(frozen_states, "MEMORY_BYTES", memory)
    monkeypatch.setattr(frozen_states, "MAX_DISK_FRACTION", disk)
    model = toy.card("bert", dropout=0.0).build().initialize(3).eval()
    states = FrozenStates(WholeNetwork(), StateStore())
    batch = toy.batch("bert", [[5, 6, 7], [8, 9]])
    with torch.no_grad():
        for _ in range(2):
            found = states(model.backbone, batch)
            assert torch.equal(found[batch.is_token()], model.backbone(batch)[batch.is_token()])
    assert len(states.store) == (2 if disk else 0)
    assert bool((found[1, 2] == 0).all()) == bool(disk)  # padding


@pytest.mark.parametrize(
    ("tune", "part"),
    [
        ("frozen", "WholeNetwork"),
        ("top:n_layers=1", "FirstLayers"),
        ("scalar_mix", "MixedLayers"),
        ("top:n_layers=2", "NoneType"),
        ("full", "NoneType"),
        ("gradual", "NoneType"),
        ("bitfit", "NoneType"),
        ("lora:rank=2", "NoneType"),
    ],
)
def test_part_that_stays_the_same(tune, part) -> None:
    method, model = parse_method(tune), toy.card("bert").build()
    apply_method(method, model, 0)
    assert type(frozen_part(method, model)).__name__ == part


def test_rows_that_differ_have_states_of_their_own() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(5, 7, (64, 6))
    batch = Batch(inputs=torch.from_numpy(rows))
    keys = frozen_states._row_keys(batch)
    assert keys is not None
    assert len(set(keys)) == len({tuple(row) for row in rows.tolist()})
    other = frozen_states._row_keys(
        Batch(inputs=batch.inputs, segments=torch.ones_like(batch.inputs))
    )
    assert other is not None
    assert not set(keys) & set(other)
