"""Paths neither leave a workplace nor come in."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.web.workplace import Workplace


@pytest.mark.parametrize(
    "run_id",
    [
        "", ".", "..", "../a", "a/../b", "a/..", "/etc", "a//b", "a/", "/a", ".unmask/trash",
        "a/.b", "a\0b", "a\nb", "a\\b", "\udce9", "a" * 1001, "a/" * 400 + "a" * 300,
    ],
)  # fmt: skip
def test_what_is_no_id_is_refused_in_one_line(tmp_path: Path, run_id: str) -> None:
    with pytest.raises(ValueError, match=r"not a run's id|leads out") as caught:
        Workplace(tmp_path).path_of(run_id)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


@given(st.text(max_size=30))
def test_no_text_leads_out(text: str) -> None:
    place = Workplace(Path("/nowhere/runs"))
    try:
        path = place.path_of(text)
    except ValueError:
        return
    assert Path(os.path.normpath(path)).is_relative_to(place.root)
    assert path != place.root
    assert place.id_of(path) == text


def test_links_out_of_the_root_or_into_hidden_folders_are_refused(tmp_path: Path) -> None:
    place = Workplace(tmp_path / "runs")
    (tmp_path / "else").mkdir()
    assert place.trash_folder.is_dir()
    for name, target in (
        ("out", tmp_path / "else"), ("hidden", place.trash_folder), ("self", place.root),
        ("loop", place.root / "loop"),
    ):  # fmt: skip
        (place.root / name).symlink_to(target)
        with pytest.raises(ValueError, match="leads out"):
            place.path_of(name)
    (place.root / "run").mkdir()
    (place.root / "same").symlink_to(place.root / "run")
    assert place.path_of("same") == place.root / "same"


def test_names_of_new_runs(tmp_path: Path) -> None:
    place = Workplace(tmp_path)
    for name in ("mine", "Größe 2", "a.b-c_d", "1", "_x", "a" * 100):
        assert place.new_run_path(name) == tmp_path / name
    for name in ("", " a", "a ", "a.", ".a", "-a", "a/b", "a\tb", "a:b", "a" * 101, "ü" * 101):
        with pytest.raises(ValueError, match="must be 1 to 100"):
            place.new_run_path(name)
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileExistsError, match="mine: there is a run of this name already"):
        place.new_run_path("mine")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        place.new_run_path("broken")


def test_a_name_in_two_normal_forms_is_one(tmp_path: Path) -> None:
    assert Workplace(tmp_path).new_run_path("u\N{COMBINING DIAERESIS}").name == "ü"


def test_existing_runs(tmp_path: Path) -> None:
    place = Workplace(tmp_path)
    (tmp_path / "mine").mkdir()
    assert place.existing("mine") == tmp_path / "mine"
    with pytest.raises(FileNotFoundError, match="other: no such run"):
        place.existing("other")


def test_shown_values_have_no_paths(tmp_path: Path) -> None:
    place = Workplace(tmp_path)
    assert place.shown(
        {"a": str(tmp_path / "mine" / "x"), "b": ["/home/me/text.txt", "en/text.txt"], "c": 1.5}
    ) == {"a": "mine/x", "b": ["text.txt", "en/text.txt"], "c": 1.5}
    assert place.shown(str(tmp_path)) == tmp_path.name
    assert place.shown("a\udce9") == "a?"


def test_tags_of_a_damaged_file_are_none(tmp_path: Path) -> None:
    place = Workplace(tmp_path)
    assert place.read_tags() == {}
    place.write_tags({"b": ["x"], "a": ["y", "z"], "c": []})
    assert place.read_tags() == {"a": ["y", "z"], "b": ["x"]}
    path = tmp_path / ".unmask" / "tags.json"
    path.write_text('{"a": ["y", 1], "b": "x"}')
    assert place.read_tags() == {"a": ["y"]}
    path.write_text("{")
    assert place.read_tags() == {}
