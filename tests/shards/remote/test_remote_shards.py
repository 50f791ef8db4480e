"""Prepared folders at a URL are read as those on disk; what is wrong is named in one line."""

import json
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import fsspec
import numpy as np
import pytest
from range_server import Served, serve
from toy_text import corpus

from unmask.jobs.corpus.prepare import prepare
from unmask.shards.read import TokenShards
from unmask.shards.remote import fetch
from unmask.shards.remote.access import RemoteAccess
from unmask.shards.remote.location import separate_secrets
from unmask.shards.remote.shards import RemoteTokenShards, open_remote
from unmask.shards.remote.transport import BrokenConnectionError
from unmask.shards.write import write_shards
from unmask.text.documents import Document
from unmask.tokenizers.load import load_tokenizer

SHARD_TOKENS = 1500


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of several shards."""
    folder = tmp_path_factory.mktemp("remote")
    (text := folder / "text.txt").write_text(corpus(60))
    prepare(text, out=folder / "first", model="bert-tiny", vocab_size=120, quiet=True)
    texts = corpus(60).split("\n\n")
    write_shards(
        (Document(text, f"document {i}") for i, text in enumerate(texts)),
        load_tokenizer(folder / "first" / "tokenizer"),
        folder / "tokens",
        shard_tokens=SHARD_TOKENS,
    )
    return folder / "tokens"


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "BLOCK_BYTES", 256)


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits between attempts, which take no time."""
    waits: list[float] = []
    clock = SimpleNamespace(sleep=waits.append)
    monkeypatch.setattr("unmask.shards.remote.transport.time", clock)
    return waits


@pytest.fixture
def server(prepared: Path, tmp_path: Path) -> Iterator[Served]:
    """A server of a copy of the folder."""
    shutil.copytree(prepared, tmp_path / "served" / "tokens")
    with serve(tmp_path / "served") as served:
        yield served


def access(tmp_path: Path, retries: int = 3) -> RemoteAccess:
    return RemoteAccess(folder=tmp_path / "cache", retries=retries)


def open_served(server: Served, tmp_path: Path, retries: int = 3) -> RemoteTokenShards:
    return open_remote(f"{server.url}/tokens", access(tmp_path, retries))


def assert_same(remote: TokenShards, local: TokenShards) -> None:
    assert remote.manifest == local.manifest
    assert len(local.manifest.shards) > 3
    np.testing.assert_array_equal(remote.document_spans, local.document_spans)
    for start, end in [(0, local.n_tokens), (3, 4), (SHARD_TOKENS - 9, SHARD_TOKENS + 900), (7, 7)]:
        there, here = remote.read_tokens(start, end), local.read_tokens(start, end)
        np.testing.assert_array_equal(there.ids, here.ids)
        np.testing.assert_array_equal(there.boundaries, here.boundaries)
    for unit in ("document", "paragraph", "sentence", "sentences"):
        np.testing.assert_array_equal(remote.row_spans(20, unit), local.row_spans(20, unit))
    for theirs, ours in zip(remote.mapped_arrays(1), local.mapped_arrays(1), strict=True):
        np.testing.assert_array_equal(theirs, ours)
    text = "A stranger saw the sea."
    ours = local.tokenizer.encode_ids_batch([text])
    assert [*map(list, remote.tokenizer.encode_ids_batch([text]))] == [*map(list, ours)]


@pytest.mark.usefixtures("small_blocks")
def test_folder_over_http_is_that_on_disk(server: Served, tmp_path: Path, prepared: Path) -> None:
    remote = open_served(server, tmp_path)
    assert_same(remote, TokenShards.open(prepared))
    remote.check_unchanged()
    assert remote.location == f"{server.url}/tokens"
    again = pickle.loads(pickle.dumps(remote))
    assert again.location == remote.location
    server.paths.clear()
    assert_same(again, TokenShards.open(prepared))
    assert server.paths == [], "all is in the cache"
    assert_same(open_served(server, tmp_path), TokenShards.open(prepared))
    assert server.paths == ["/tokens/shards.json"], "a second run reads the manifest alone"


@pytest.mark.usefixtures("small_blocks")
def test_folder_in_memory_is_that_on_disk(tmp_path: Path, prepared: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.put(str(prepared), "/there/tokens", recursive=True)
    try:
        remote = open_remote("memory://there/tokens", access(tmp_path))
        assert_same(remote, TokenShards.open(prepared))
        with pytest.raises(ValueError, match="memory of one process: take --workers 0"):
            pickle.dumps(remote)
    finally:
        memory.rm("/there", recursive=True)


def test_blocks_asked_for_ahead_are_fetched_once(server: Served, tmp_path: Path) -> None:
    remote = open_served(server, tmp_path)
    server.paths.clear()
    for start in range(0, 1000, 100):
        remote.read_ahead(start, start + 100)
    remote.read_tokens(0, 1000)
    assert sorted(server.paths) == ["/tokens/00000.marks", "/tokens/00000.tokens"]


def test_threads_that_have_nothing_to_fetch_end(
    server: Served, tmp_path: Path, prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unmask.shards.remote.fetch.IDLE_SECONDS", 0.01)
    before = set(threading.enumerate())
    remote = open_served(server, tmp_path)
    for start in (0, SHARD_TOKENS):  # threads begin anew after they ended
        np.testing.assert_array_equal(
            remote.read_tokens(start, start + 50).ids,
            TokenShards.open(prepared).read_tokens(start, start + 50).ids,
        )
        for thread in set(threading.enumerate()) - before:
            thread.join(timeout=5 if "_work" in thread.name else 0)
        assert not [t for t in set(threading.enumerate()) - before if "_work" in t.name]


@pytest.mark.parametrize("failure", ["close", "half", "503", "429"])
def test_broken_connection_is_tried_again(
    failure: str, server: Served, tmp_path: Path, prepared: Path, waited: list[float]
) -> None:
    remote = open_served(server, tmp_path)
    server.failures, server.failure = 2, failure
    local = TokenShards.open(prepared).read_tokens(0, 500)
    np.testing.assert_array_equal(remote.read_tokens(0, 500).ids, local.ids)
    assert waited == [0.5, 1]


def test_connection_that_stays_broken_is_one_line(
    server: Served, tmp_path: Path, waited: list[float]
) -> None:
    remote = open_served(server, tmp_path)
    server.failures = -1
    with pytest.raises(BrokenConnectionError) as error:
        remote.read_tokens(0, 500)
    assert str(error.value).startswith(f"{server.url}/tokens/00000.tokens: the connection broke 4 ")
    assert str(error.value).endswith("checkpoints are kept: go on with --resume")
    assert "\n" not in str(error.value)
    assert waited == [0.5, 1, 2]
    server.failures = 0
    remote.read_tokens(0, 500)


def test_nobody_there_is_one_line(tmp_path: Path, waited: list[float]) -> None:
    with pytest.raises(BrokenConnectionError, match=r"the connection broke 3 times within 1.5 sec"):
        open_remote("http://127.0.0.1:9/tokens", access(tmp_path, 2))


def test_secrets_open_the_folder_and_are_in_no_message(
    server: Served, tmp_path: Path, prepared: Path, waited: list[float]
) -> None:
    server.authorization = "Basic bWU6d29yZA=="  # of me:word
    server.query = "sig=a%2Fb"
    host = server.url.removeprefix("http://")
    (clean,), secrets = separate_secrets([f"http://me:word@{host}/tokens?sig=a%2Fb"])
    own = RemoteAccess(folder=tmp_path / "cache", retries=1, secrets=secrets)
    remote = open_remote(clean, own)
    assert_same(remote, TokenShards.open(prepared))
    assert_same(pickle.loads(pickle.dumps(remote)), TokenShards.open(prepared))
    shown = [repr(remote), repr(own)]
    shutil.rmtree(tmp_path / "cache" / "blocks")
    server.failures = -1
    with pytest.raises(BrokenConnectionError) as broken:
        remote.read_tokens(0, 9)
    server.failures, server.query = 0, "sig=other"
    with pytest.raises(ValueError, match=r"/00000.tokens: the server refuses it: 403") as refused:
        remote.read_tokens(0, 9)
    with pytest.raises(ValueError, match=r"shards.json: the server refuses it: 401") as unknown:
        open_remote(clean, access(tmp_path))
    shown += [str(error.value) for error in (broken, refused, unknown)]
    for text in shown:
        assert "\n" not in text
        for secret in ("word", "sig", "a%2Fb", "me:"):
            assert secret not in text


def test_server_without_ranges_is_refused(server: Served, tmp_path: Path) -> None:
    remote = open_served(server, tmp_path)
    server.ignores_ranges = True
    with pytest.raises(ValueError, match=r"00000.marks: the server does not answer ranges"):
        remote._fetcher.remote.read("00000.marks", 5, 10)


def test_replaced_file_is_named(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "BLOCK_BYTES", 256)
    remote = open_served(server, tmp_path)
    remote.read_tokens(0, 10)
    path = server.folder / "tokens" / "00000.tokens"
    path.write_bytes(path.read_bytes()[::-1])
    message = r"/tokens/00000.tokens was changed while it was read: it had [\d,]+ bytes, version \""
    with pytest.raises(ValueError, match=message) as error:
        remote.check_unchanged()
    assert "\n" not in str(error.value)
    monkeypatch.setattr(fetch, "CHECK_SECONDS", 0.0)
    with pytest.raises(ValueError, match=message):
        remote.read_tokens(0, 1000)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"/tokens/00000.tokens is missing"):
        remote.check_unchanged()


@pytest.mark.usefixtures("small_blocks")
def test_tokens_that_are_not_those_of_the_manifest_are_named(
    server: Served, tmp_path: Path
) -> None:
    path = server.folder / "tokens" / "00000.marks"
    path.write_bytes(path.read_bytes()[::-1])
    remote = open_served(server, tmp_path)
    n = remote.manifest.shards[0].n_tokens
    remote.read_tokens(0, n // 2)
    remote.check_unchanged()  # of a part nothing is known
    remote.read_tokens(n // 2, n)
    with pytest.raises(ValueError, match=r"/00000.marks is damaged: its SHA-256 is") as error:
        remote.check_unchanged()
    assert "\n" not in str(error.value)
    marks = remote._files[0]["marks"], remote._files[0]["tokens"]
    assert [remote._fetcher.cache.is_verified(file.key) for file in marks] == [False, True]


def test_file_that_is_not_as_declared_is_named_before_anything_is_read(
    server: Served, tmp_path: Path, waited: list[float]
) -> None:
    folder = server.folder / "tokens"

    def refused(error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message) as caught:
            open_served(server, tmp_path)
        assert str(caught.value).startswith(f"{server.url}/tokens")
        assert "\n" not in str(caught.value)

    marks = folder / "00001.marks"
    whole = marks.read_bytes()
    marks.write_bytes(whole[:-1])
    refused(ValueError, "/00001.marks is truncated or damaged: it has [0-9]+ bytes, expected")
    marks.unlink()
    refused(FileNotFoundError, "/00001.marks is missing")
    marks.write_bytes(whole)
    places = folder / "00001.documents"
    whole = places.read_bytes()
    places.write_bytes(whole[::-1])
    refused(ValueError, "/00001.documents is damaged: its SHA-256 is")
    places.write_bytes(whole)
    (folder / "tokenizer" / "vocab.txt").write_text("another")
    open_served(server, tmp_path)  # what was fetched before is what it was
    shutil.rmtree(tmp_path / "cache")
    refused(ValueError, "/tokenizer is not the tokenizer that made the tokens")
    (folder / "tokenizer" / "vocab.txt").unlink()
    open_served(server, tmp_path)
    manifest = json.loads((folder / "shards.json").read_text())
    (folder / "shards.json").write_text(json.dumps(manifest | {"n_tokens": 5}))
    refused(ValueError, "/shards.json is damaged: its counts are not the sums")
    (folder / "shards.json").rename(folder / "unfinished.json")
    refused(FileNotFoundError, "is unfinished: what was uploaded was interrupted")
    (folder / "unfinished.json").unlink()
    refused(FileNotFoundError, "holds no prepared tokens: it has no shards.json")


def test_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"data at a URL needs fsspec: pip install 'unmask\[rem"):
        open_remote("http://127.0.0.1:9/tokens", access(tmp_path))
    with pytest.raises(ImportError, match="needs fsspec"):
        open_remote("s3://bucket/tokens", access(tmp_path))


@pytest.mark.usefixtures("small_blocks")
def test_folder_on_s3_is_that_on_disk(
    tmp_path: Path, prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    pytest.importorskip("moto.server", reason="moto[server] is not installed")
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "Running on" in line)
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.split()[-1].strip())
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "testing")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        storage = fsspec.filesystem("s3", skip_instance_cache=True)
        storage.mkdir("bucket")
        storage.put(str(prepared), "bucket/tokens", recursive=True)
        remote = open_remote("s3://bucket/tokens", access(tmp_path))
        assert_same(remote, TokenShards.open(prepared))
        remote.check_unchanged()
        storage.pipe_file("bucket/tokens/00000.marks", b"1" * 2000)
        with pytest.raises(ValueError, match=r"s3://bucket/tokens/00000.marks was changed"):
            remote.check_unchanged()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
