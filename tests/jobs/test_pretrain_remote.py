"""A run from a prepared folder at a URL is the run from the same folder on disk."""

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from range_server import Served, serve
from toy_text import corpus

from unmask.jobs.corpus.prepare import prepare
from unmask.jobs.pretrain.pretrain import pretrain
from unmask.shards.remote import fetch
from unmask.shards.remote.transport import BrokenConnectionError
from unmask.training import loop

CHANGES = (
    "architecture={d_model=32,d_ff=64,n_layers=1,n_heads=2}",
    "sequence_length=32",
    "batch_tokens=256",
    "log_every=3",
    "dev_fraction=0.1",
)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("remote-run")
    (folder / "text.txt").write_text(corpus(60))
    prepare(
        folder / "text.txt", out=folder / "tokens", model="bert-tiny", vocab_size=120, quiet=True
    )
    return folder / "tokens"


@pytest.fixture
def server(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(fetch, "BLOCK_BYTES", 512)
    shutil.copytree(prepared, tmp_path / "served" / "tokens")
    with serve(tmp_path / "served") as served:
        yield served


def run(data: str | Path, out: Path, steps: int = 12, **more: Any) -> None:
    pretrain(
        "bert-tiny", data=data, out=out, steps=steps, threads=1, quiet=True,
        **({"checkpoint_every": 5, "changes": CHANGES} | more),
    )  # fmt: skip


def run_remote(
    server: Served, tmp_path: Path, name: str = "remote", steps: int = 12, **more: Any
) -> None:
    more = {"data_cache": tmp_path / "cache", "data_retries": 1} | more
    run(f"{server.url}/tokens", tmp_path / name, steps, **more)


def learned(out: Path) -> list[bytes]:
    """All that must be equal bit for bit."""
    return [(out / name).read_bytes() for name in ("model.safetensors", "log.jsonl")]


def checkpoints(out: Path) -> list[str]:
    return [path.name for path in (out / "checkpoints").iterdir()]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("workers", "more"),
    [
        (2, {}),
        (0, {"objective": "mlm", "changes": (*CHANGES, "row_unit=corpus")}),
        (0, {"objective": "clm", "changes": (*CHANGES, "row_unit=stream")}),
        (
            1,
            {
                "objective": "mlm",
                "changes": (*CHANGES, "row_unit=corpus", "reshuffle_documents=true"),
                "steps": 25,
            },
        ),
    ],
)
def test_run_is_that_of_the_folder_on_disk(
    workers: int, more: dict[str, Any], server: Served, tmp_path: Path, prepared: Path
) -> None:
    run(prepared, tmp_path / "local", **more)
    run_remote(server, tmp_path, workers=workers, **more)
    assert learned(tmp_path / "remote") == learned(tmp_path / "local")


def test_second_run_reads_the_cache(server: Served, tmp_path: Path) -> None:
    run_remote(server, tmp_path, "first", 5)
    server.paths.clear()
    run_remote(server, tmp_path, "second", 5)
    assert {*server.paths} == {"/tokens/shards.json"}
    assert learned(tmp_path / "second") == learned(tmp_path / "first")


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [0, 1])
def test_run_that_lost_its_connection_goes_on(
    workers: int,
    server: Served,
    tmp_path: Path,
    prepared: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog,
) -> None:
    run(prepared, tmp_path / "local")
    train = loop.train

    def train_until_lost(*arguments: Any) -> Iterator[Any]:
        for report in train(*arguments):
            yield report
            if report.step == 7:
                server.failures = -1
                shutil.rmtree(tmp_path / "cache" / "blocks")

    monkeypatch.setattr(loop, "train", train_until_lost)
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(BrokenConnectionError, match="checkpoints are kept: go on with --resume"),
    ):
        run_remote(server, tmp_path, workers=workers)
    monkeypatch.undo()
    server.failures = 0
    assert checkpoints(tmp_path / "remote") == ["step-00000005"]
    run_remote(server, tmp_path, resume=True)
    assert learned(tmp_path / "remote")[0] == learned(tmp_path / "local")[0]


@pytest.mark.thorough
def test_secrets_are_not_recorded(server: Served, tmp_path: Path) -> None:
    server.query = "sig=hush"
    run(f"{server.url}/tokens?sig=hush", tmp_path / "run", data_cache=tmp_path / "cache")
    record = json.loads((tmp_path / "run" / "unmask.json").read_text())
    assert record["recipe"]["data"] == [f"{server.url}/tokens"]
    for path in (tmp_path / "run").rglob("*"):
        assert not path.is_file() or b"hush" not in path.read_bytes()
    for path in (tmp_path / "cache").rglob("*"):
        assert not path.is_file() or b"hush" not in path.read_bytes()
    with pytest.raises(ValueError, match="server refuses it: 403"):
        run((), tmp_path / "run", data_cache=tmp_path / "cache", resume=True)


def test_folder_that_was_replaced_ends_the_run_before_a_checkpoint(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = loop.train

    def train_until_replaced(*arguments: Any) -> Iterator[Any]:
        for report in train(*arguments):
            yield report
            if report.step == 7:
                path = server.folder / "tokens" / "00000.marks"
                path.write_bytes(path.read_bytes()[::-1])

    monkeypatch.setattr(loop, "train", train_until_replaced)
    with pytest.raises(ValueError, match=r"tokens/00000.marks was changed while it was read"):
        run_remote(server, tmp_path)
    assert checkpoints(tmp_path / "remote") == ["step-00000005"]
