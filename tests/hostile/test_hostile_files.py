"""Files that somebody else made, damaged or hostile: one line that names the file, always."""

import ast
import os
import struct
from pathlib import Path

import pytest
from readers import BY_READER

from unmask.files import MAX_NESTING, check_nesting, parse_json

ROOT = Path(__file__).parents[2] / "unmask"

PARSERS = {
    "json": ("load", "loads"), "tomllib": ("load", "loads"), "np": ("load", "fromfile", "memmap"),
    "torch": ("load",), "pickle": ("load", "loads", "Unpickler"), "csv": ("reader", "DictReader"),
    "parquet": ("ParquetFile", "read_table", "read_metadata"), "yaml": ("load", "safe_load"),
    "datasets": ("load_dataset",), "zlib": ("decompressobj", "decompress"), "tokenizers": (),
    "marshal": ("load", "loads"), "shelve": ("open",), "zipfile": ("ZipFile",),
    "tarfile": ("open",), "h5py": ("File",), "Tokenizer": ("from_file", "from_buffer"),
}  # fmt: skip
ALONE = ("safe_open", "load_file", "snapshot_download", "hf_hub_download", "eval", "exec")
READERS = {
    "files.py": "parse_json",  # all JSON
    "config.py": "parse_toml, _parse_toml_value",  # of --set
    "cli/main.py": "main",  # of nothing
    "options.py": "_plain_type",  # our own annotations
    "word_vectors/formats/npy.py": "open_npy",
    "word_vectors/formats/fasttext_model.py": "_read_matrix",  # after its size was looked at
    "shards/read.py": "document_spans, _map_arrays",  # likewise
    "checkpoints/huggingface/pickled.py": "check_before_loading",  # of `_read_pickled`
    "checkpoints/tensors.py": "_open_safetensors, _read_pickled",
    "checkpoints/llama2c.py": "read_weights",
    "checkpoints/huggingface/read.py": "resolve_model_folder",
    "tasks/suites/benchmark.py": "fetch_split",
    "tasks/readers/parquet_tables.py": "_read_columns",
    "shards/fertility.py": "tokens_per_word",  # of a folder whose sizes were looked at
    "text/formats/long_json.py": "decoded",  # its ValueError is told by the reader of lines
    "text/formats/parquet.py": "read_parquet, read_parquet_in_pieces",
    "images/formats/parquet.py": "read_parquet_images",
    "images/formats/picture_files.py": "open_archive",
    "images/store.py": "_map_numbers",  # after their sizes were looked at
    "text/formats/delimited.py": "csv_rows",
    "text/formats/hub.py": "_hub_rows",
    "text/formats/decompress.py": "_new_decompressor",
    "model/exchange/config_keys.py": "_parse_value",  # of our own table
    "jobs/corpus/clean.py": "_read_parts",  # of a folder of ours
    "jobs/corpus/cleaned_chunks.py": "make_cleaner, unpack_answer",  # of our own process
    "web/routes/exports.py": "_pack",  # written, not read
    "web/runs/series.py": "parse_lines",  # many at once; one by one where that fails
    "web/security/limits.py": "check_archive",
    "web/worker/__main__.py": "_read_requests",  # of the server
    "web/worker/client.py": "_read_answers",  # of our own process
    "tasks/readers/columns.py": "parse_list_text",  # the text of a cell
    "web/worker/calls/tables/spreadsheets.py": "read_spreadsheet, _check_archive, _main",
    "web/worker/calls/hiding.py": "hide",  # of `unmask.hide`
    "web/worker/calls/planning.py": "_measured_plan, _computed_plan",  # what was just written
}
OWN = ("to_str", "dumps", "int.from_bytes", "out /")
"""What is parsed there is our own: what was just written."""


def calls(path: Path) -> list[tuple[str, str]]:
    """List the calls of parsers in a file, and the functions that they stand in."""
    found: list[tuple[str, str]] = []

    def visit(node: ast.AST, inside: str) -> None:
        if isinstance(node, ast.FunctionDef):
            inside = node.name
        if isinstance(node, ast.Call):
            f = node.func
            named = isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name)
            theirs = named and f.attr in PARSERS.get(f.value.id, ())
            if theirs and not any(own in ast.unparse(node) for own in OWN):
                found.append((f"{f.value.id}.{f.attr}", inside))
            if isinstance(f, ast.Name) and f.id in ALONE:
                found.append((f.id, inside))
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(ast.parse(path.read_text(encoding="utf-8")), "")
    return found


def test_foreign_file_parsers_are_called_only_by_readers() -> None:
    """Each of these makes a ValueError that names the file of whatever the parser raises."""
    astray = [
        f"{path.relative_to(ROOT)}: {call} in {inside}"
        for path in sorted(ROOT.rglob("*.py"))
        for call, inside in calls(path)
        if inside not in READERS.get(str(path.relative_to(ROOT)), "").split(", ")
    ]
    assert astray == []


NUMPY = b"\x93NUMPY\x01\0v\0{'descr': "
DEEP = 100_000
HOSTILE = {
    "empty": b"",
    "blank": b" \n\n",
    "truncated": b'{"a": [1, 2',
    "deep lists": b"[" * DEEP,
    "closed lists": b"[" * DEEP + b"]" * DEEP,
    "lists that fit the parser": b"[" * 900 + b"]" * 900,
    "tables that fit the parser": b'{"a":' * 900 + b"1" + b"}" * 900,
    "deep tables": b'{"a":' * DEEP,
    "deep in TOML": b"a = " + b"[" * DEEP,
    "dotted keys": b".".join([b"a"] * 5000) + b" = 1",
    "a list": b"[]",
    "a list of lists": b"[[1]]",
    "a text": b'"x"',
    "a number": b"3",
    "nothing": b"null",
    "not finite": b'{"a": NaN, "format": NaN, "version": Infinity}',
    "infinite": b'{"format": 1e400, "kind": 1e400, "entries": 1e400, "data": 1e400, "files": 1}',
    "wrong types": b'{"format": [], "kind": {}, "entries": 1, "task": 3, "recipe": [], "data": 1}',
    "many digits": b'{"format": ' + b"9" * 5000 + b"}",
    "many digits in TOML": b"a = " + b"9" * 5000,
    "BOM": b'\xef\xbb\xbf{"a": 1}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "UTF-16 without BOM": '{"a": 1}'.encode("utf-16-le"),
    "latin-1": b'{"a": "caf\xe9"}',
    "surrogate": b'{"a": "\\ud800"}',
    "NUL": b'{"a": "\0"}',
    "bytes": bytes(range(256)) * 8,
    "gzip": b"\x1f\x8b\x08\0" + b"\0" * 40,
    "zip": b"PK\x03\x04" + b"\0" * 60,
    "pickle": b"\x80\x04\x95\x10\0\0\0\0\0\0\0\x8c\x02os\x94\x8c\x06system\x94\x93\x94.",
    "HDF5": b"\x89HDF\r\n\x1a\n" + b"\xff" * 100,
    "NumPy": NUMPY + b"'<f4', 'fortran_order': False, 'shape': (9999999999,), }",
    "NumPy of objects": NUMPY + b"'|O', 'fortran_order': False, 'shape': (1,), }" + b" " * 60
    + b"\n" + b"\0" * 8,
    "Parquet": b"PAR1" + b"\xff" * 60 + b"\x3c\0\0\0PAR1",
    "safetensors": struct.pack("<Q", 2**62) + b"{}",
    "safetensors of a shape": struct.pack("<Q", 62)
    + b'{"a":{"dtype":"F32","shape":[9999999999],"data_offsets":[0,4]}}' + b"\0" * 4,
    "word2vec": b"99999999999 300\n" + b"a " + b"\0" * 40,
    "fastText": struct.pack("<2i", 793712314, 12) + b"\xff" * 100,
}  # fmt: skip


def check(error: Exception, path: Path) -> None:
    output = f"{error} {getattr(error, 'filename', '') or ''}"
    assert path.name in output or str(path.parent) in output, output
    assert "\n" not in str(error)
    assert len(str(error)) < 900


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("reader", BY_READER)
def test_hostile_file_is_refused_in_one_line_by_name(reader: str, tmp_path: Path) -> None:
    name, read = BY_READER[reader]
    for i, (what, data) in enumerate(HOSTILE.items()):
        folder = tmp_path / str(i)
        folder.mkdir()
        path = folder / name
        path.write_bytes(data)
        try:
            read(path)
        except (ValueError, OSError) as error:
            check(error, path)
        except BaseException as error:
            pytest.fail(f"{what}: {error!r:.300}")


PIPED = (
    "dictionary", "word pairs", "llama2.c", "array", "chat template",
    "spreadsheet of .xlsx", "spreadsheet of .ods",
)  # fmt: skip
"""What may be read from a pipe, once; or is found among the files of a folder."""


@pytest.mark.parametrize("reader", BY_READER)
def test_malformed_file_is_refused_in_one_line_by_name(reader: str, tmp_path: Path) -> None:
    name, read = BY_READER[reader]
    for what in ("folder", "link", "pipe", "none"):
        folder = tmp_path / what
        folder.mkdir()
        path = folder / name
        if what == "folder":
            path.mkdir()
        elif what == "link":
            path.symlink_to(folder / "nowhere")
        elif what == "pipe":
            os.mkfifo(path)
        if what == "pipe" and (reader in PIPED or reader.startswith("documents")):
            continue
        try:
            read(path)
        except (ValueError, OSError) as error:
            check(error, path)
        except BaseException as error:
            pytest.fail(f"{what}: {error!r:.300}")


def test_nesting_depth_is_limited() -> None:
    assert parse_json("[" * MAX_NESTING + "]" * MAX_NESTING)
    for data in (
        "[" * (MAX_NESTING + 1) + "]" * (MAX_NESTING + 1),
        '{"a":' * 300 + "1" + "}" * 300,
    ):
        with pytest.raises(ValueError, match="nested too deeply"):
            parse_json(data)
    assert parse_json('[[{"a": [1, "[[["]}], {}, []]') == [[{"a": [1, "[[["]}], {}, []]
    check_nesting({"a": [1] * 5})
    assert parse_json("[" + "[]," * 1000 + "[]]")[-1] == []
