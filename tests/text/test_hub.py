import json
import sys
from pathlib import Path

import datasets
import pytest

from unmask.text.documents import read_documents, read_rows
from unmask.text.formats.hub import split_hub_name, stream_records


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set in a folder named as on the Hub: the datasets library looks there first."""
    folder = tmp_path / "owner" / "name"
    folder.mkdir(parents=True)
    rows = ['{"text": "a\\n\\nb", "n": 1}', '{"text": null, "n": 2}', '{"text": "c", "n": 3}']
    (folder / "train.jsonl").write_text("\n".join(rows))
    (folder / "test.jsonl").write_text('{"text": "t", "n": 1}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.mark.parametrize(
    ("name", "expected"),
    {
        "owner/name": ("owner/name", None, "train"),
        "name": ("name", None, "train"),
        "owner/name:en": ("owner/name", "en", "train"),
        "owner/name:en:test": ("owner/name", "en", "test"),
        "owner/name::test": ("owner/name", None, "test"),
    }.items(),
)
def test_config_and_split_follow_colons(name: str, expected: tuple[str, str | None, str]):
    assert split_hub_name(name) == expected


@pytest.mark.parametrize("name", ["", ":en", "a/b:c:d:e", "a/b::train[:10]"])
def test_malformed_names_are_refused(name: str):
    with pytest.raises(ValueError, match=r"must be hf:owner/name, hf:owner/name:config"):
        split_hub_name(name)


def test_rows_are_streamed(here: Path):
    assert list(stream_records("owner/name", "text")) == [(1, "a\n\nb"), (3, "c")]
    assert list(stream_records("owner/name::test", "text")) == [(1, "t")]


def test_rows_are_treated_as_those_of_a_file(here: Path):
    texts = ["a\n\n  b", None, "", " \n", "c", ""]
    path = here / "train.jsonl"
    path.write_text("".join(json.dumps({"text": text, "n": 1}) + "\n" for text in texts))
    expected = ["a\n  b", "", "", "", "c", ""]
    rows = list(read_rows("hf:owner/name"))
    assert [row.text for row in rows] == expected
    assert [row.text for row in read_rows(path)] == expected
    assert [row.location for row in rows] == [f"hf:owner/name:{i}" for i in range(1, 7)]
    assert [one.text for one in read_documents("hf:owner/name")] == ["a\n  b", "c"]
    path.write_text('{"text": ""}\n{"text": null}\n')
    with pytest.raises(ValueError, match="hf:owner/name: no text in it"):
        list(read_rows("hf:owner/name"))


@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        ("owner/name", "body", "hf:owner/name: no column 'body', only 'text', 'n'"),
        ("owner/name", "n", "hf:owner/name:1: 'n' must be text, got int 1"),
        ("owner/name:fr", "text", "hf:owner/name:fr: "),
        ("owner/name::dev", "text", "hf:owner/name::dev: "),
    ],
)
def test_mistakes_are_one_line(here: Path, name: str, column: str, message: str):
    with pytest.raises(ValueError, match="hf:") as caught:
        list(stream_records(name, column))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_missing_network_is_one_line(monkeypatch: pytest.MonkeyPatch):
    def load(*_: object, **__: object):
        raise ConnectionError("no\nroute\nto host")

    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(ConnectionError) as caught:
        list(stream_records("owner/name", "text"))
    assert str(caught.value) == "hf:owner/name: cannot be reached: no route to host"


def test_network_failure_while_reading_is_one_line(here: Path, monkeypatch: pytest.MonkeyPatch):
    from huggingface_hub.errors import HfHubHTTPError

    kind = HfHubHTTPError.__bases__[0]

    class Rows:
        column_names = None

        def __iter__(self):
            yield {"text": "a"}
            raise kind("connection reset")

    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: Rows())
    rows = stream_records("owner/name", "text")
    assert next(rows) == (1, "a")
    with pytest.raises(ConnectionError, match="hf:owner/name: cannot be reached: connection reset"):
        next(rows)


def test_unknown_dataset_is_not_found(monkeypatch: pytest.MonkeyPatch):
    def load(*_: object, **__: object):
        raise datasets.exceptions.DatasetNotFoundError("Dataset 'x' doesn't exist on the Hub")

    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(FileNotFoundError, match="hf:x: Dataset 'x' doesn't exist on the Hub"):
        list(stream_records("x", "text"))


def test_dataset_with_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "owner" / "name"
    folder.mkdir(parents=True)
    (folder / "name.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="hf:owner/name: "):
        list(stream_records("owner/name", "text"))
    assert not (tmp_path / "ran").exists()


def test_missing_module_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        ImportError, match=r"reading hf: needs datasets: pip install 'unmask\[data\]'"
    ):
        list(stream_records("owner/name", "text"))
