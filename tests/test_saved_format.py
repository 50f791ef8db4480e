"""Saved files say their format; another one is refused by name."""

import json
from pathlib import Path

import pytest

from unmask.saved_format import FORMAT, read_record, read_saved, write_record


@pytest.mark.parametrize("found", [1, FORMAT + 1, 0, True, "2", None])
def test_another_format_is_refused_by_name(tmp_path: Path, found: object) -> None:
    path = tmp_path / "unmask.json"
    path.write_text(json.dumps({"format": found}))
    with pytest.raises(
        ValueError, match=rf"unmask\.json: format {found!r} is not read: .* {FORMAT}"
    ):
        read_saved(path)
    with pytest.raises(ValueError, match=f"adapter: format {found!r}"):
        read_record({"format": found}, "adapter")


def test_record_is_read_without_its_format() -> None:
    plain = {"kind": "TokenMasking", "rate": 0.1}
    assert read_record(write_record(plain), "x") == read_record(plain, "x") == plain
    assert read_record("no table", "x") == "no table"
