"""Runs on sources with weights: each has its share of the tokens; used-up ones are read again."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_text import corpus

from unmask.jobs.corpus.prepare import prepare
from unmask.jobs.pretrain.pretrain import pretrain
from unmask.objectives import published
from unmask.shards.read import TokenShards
from unmask.training.config import Recipe
from unmask.training.data.texts import TrainingData, build_training_data, source_of_rows

SIZES = {"wiki": 300, "code": 100, "books": 12}
WEIGHTS = {"wiki": 2.0, "code": 5.0, "books": 3.0}
SHARES = [0.2, 0.5, 0.3]
LENGTH = 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weighted")
    for name, n_documents in SIZES.items():
        (folder / f"{name}.txt").write_text(corpus(n_documents, seed=n_documents))
    named = [folder / f"{name}.txt" for name in SIZES]
    prepare(named, out=folder / "tokens", model="roberta-mini", vocab_size=320, quiet=True)
    return folder


@pytest.fixture(scope="module")
def shards(folder: Path) -> TokenShards:
    return TokenShards.open(folder / "tokens")


def make(shards: TokenShards, **changes: Any) -> TrainingData:
    plain: dict[str, Any] = {
        "model": "roberta-mini", "source_weights": WEIGHTS, "batch_tokens": 512,
        "dev_fraction": 0.05, "steps": 400,
    }  # fmt: skip
    return build_training_data(shards, Recipe(**plain | changes), published.MASKED_LM, LENGTH)


def read_tokens(data: TrainingData, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Count the tokens and the rows of each source that the first steps read."""
    loader = data.make_loader(data.train_rows, cursor(), sample_sources=True)
    of, n = source_of_rows(data.shards, data.train_rows), data.train_rows.row_lengths
    tokens, rows = np.zeros(3), np.zeros(3)
    for step in itertools.islice(loader.plan.global_batches(cursor()), steps):
        read = np.array([i for group in step.row_groups for i in group]) % len(n)
        tokens += np.bincount(of[read], n[read], minlength=3)
        rows += np.bincount(of[read], minlength=3)
    return tokens, rows


def cursor() -> Any:
    from unmask.batching.plan import DataCursor

    return DataCursor()


@pytest.mark.parametrize("row_unit", ["document", "corpus", "sentence"])
@pytest.mark.parametrize("packing", ["bucket", "pack"])
def test_realized_shares_of_tokens_are_within_a_percent(
    packing: str, row_unit: str, shards: TokenShards
) -> None:
    data = make(shards, packing=packing, row_unit=row_unit)
    assert [s.name.rpartition("/")[2] for s in data.source_shares] == [f"{n}.txt" for n in SIZES]
    assert [s.sampling_share for s in data.source_shares] == pytest.approx(SHARES)
    for steps in (150, 400):
        tokens, rows = read_tokens(data, steps)
        assert tokens / tokens.sum() == pytest.approx(SHARES, abs=0.01)
        counts = np.bincount(source_of_rows(shards, data.train_rows))
        epochs = data.with_recipe(replace(data.recipe, steps=steps)).source_epochs()
        assert list(epochs.values()) == pytest.approx(list(rows / counts), rel=0.02)
    assert epochs[data.source_shares[2].name] > 10, "books are read again and again"


def batches(data: TrainingData, n: int, after: Any = None) -> list[Any]:
    found = itertools.islice(data.batches(after), n)
    return [([b.inputs.tolist() for b in micro], following) for micro, following in found]


def test_order_is_that_of_any_workers_and_after_resuming(shards: TokenShards) -> None:
    data = make(shards)
    whole = batches(data, 60)
    assert batches(replace(data, n_workers=1), 6) == whole[:6]
    assert batches(data, 20, whole[39][1]) == whole[40:]
    first, second = (batches(replace(data, rank=r, world_size=2), 6) for r in (0, 1))
    for (a, _), (b, _), (both, _) in zip(first, second, whole, strict=False):
        assert sorted(map(len, (a[0], b[0]))) == sorted((-(-len(both[0]) // 2), len(both[0]) // 2))
    assert batches(make(shards, seed=1), 6) != whole[:6]


def test_run_prints_and_records_the_epochs_of_each_source(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = [
        "architecture={d_model=32,d_ff=64,n_layers=1,n_heads=2}", "sequence_length=32",
        "batch_tokens=256",
    ]  # fmt: skip
    given = [f"{name}={weight:g}" for name, weight in WEIGHTS.items()]
    pretrain(
        "roberta-mini", data=folder / "tokens", out=tmp_path / "run", steps=3, changes=changes,
        source_weights=given, threads=1,
    )  # fmt: skip
    lines = capsys.readouterr().err.split("\n")
    (shares,) = [line for line in lines if line.startswith("source_weights: ")]
    assert "books.txt has 2.9%" in shares
    assert "gets 30.0%" in shares
    (epochs,) = [line for line in lines if line.startswith("epochs of each source: ")]
    record = json.loads((tmp_path / "run" / "unmask.json").read_text())
    assert record["recipe"]["source_weights"] == WEIGHTS
    for name, facts in record["sources"].items():
        assert f"{name} {facts['epochs']:.2f}" in epochs
        assert 0 < facts["epochs"] < 3
    with pytest.raises(ValueError, match="this run has source_weights = "):
        pretrain(
            data=(), out=tmp_path / "run", steps=3, resume=True, source_weights={"wiki": 1.0},
            quiet=True,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampling_exponent": 0.5}, "source_weights and sampling_exponent = 0.5: both say how"),
        ({"source_weights": {"wiki": 0.0}}, "source_weights: wiki must be above 0, got 0.0"),
        ({"source_weights": {"wiki": 1.0}}, "code.txt, .*books.txt has no weight; give each"),
        ({"row_unit": "stream"}, "source_weights: row_unit = stream keeps the order of the text"),
    ],
)
def test_what_cannot_be_is_one_line(
    changes: dict[str, Any], message: str, shards: TokenShards
) -> None:
    with pytest.raises(ValueError, match=message) as error:
        make(shards, **changes)
    assert "\n" not in str(error.value)


def test_weights_are_of_the_tokenizers_text_too(folder: Path, tmp_path: Path) -> None:
    named = [folder / f"{name}.txt" for name in SIZES]
    options: dict[str, Any] = {"model": "bert-tiny", "vocab_size": 100, "quiet": True}
    prepare(named, out=tmp_path / "out", source_weights=WEIGHTS, **options)
    with pytest.raises(ValueError, match="was prepared with source_weights = "):
        prepare(named, out=tmp_path / "out", **options)
    with pytest.raises(ValueError, match="source_weights: pictures is no source"):
        prepare(named, out=tmp_path / "new", source_weights={"pictures": 1}, **options)
    assert not (tmp_path / "new").exists()
