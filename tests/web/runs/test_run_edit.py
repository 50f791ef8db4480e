"""Runs moved into the trash and back, renamed, tagged."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from made_runs import SAVED, held_lock, make_run, workplace

from unmask.web.runs.edit import (
    delete_run,
    deleted_runs,
    purge_trash,
    rename_run,
    restore_run,
    runs_made_from,
    tag_run,
)
from unmask.web.runs.index import RunIndex


def test_deleted_run_can_be_had_back(tmp_path: Path) -> None:
    place = workplace(tmp_path)
    make_run(tmp_path / "group" / "a")
    before = RunIndex(place).get("group/a")
    tag_run(place, "group/a", ["good", "good ", "mine"])
    deleted = delete_run(place, "group/a")
    assert RunIndex(place).list() == []
    assert place.read_tags() == {}
    assert deleted_runs(place) == [deleted]
    shutil.rmtree(tmp_path / "group")
    assert restore_run(place, deleted.id) == "group/a"
    after = RunIndex(place).get("group/a")
    assert after.tags == ("good", "mine")
    assert (after.headline, after.state) == (before.headline, before.state)
    assert deleted_runs(place) == []
    assert list(place.trash_folder.iterdir()) == []


def test_two_runs_of_one_name_are_both_in_the_trash(tmp_path: Path) -> None:
    place = workplace(tmp_path)
    found = []
    for card in ("one", "two"):
        make_run(tmp_path / "a", card=card)
        found.append(delete_run(place, "a"))
    assert restore_run(place, found[0].id) == "a"
    with pytest.raises(FileExistsError, match="a: there is a run of this name already"):
        restore_run(place, found[1].id)
    assert RunIndex(place).get("a").model == "one"
    assert deleted_runs(place) == found[1:]


def test_run_in_which_a_process_trains_stays(tmp_path: Path) -> None:
    place = workplace(tmp_path)
    shutil.copytree(SAVED / "study", tmp_path / "study")
    for folder in ("study", "study/pretrained/much", "study/.running/much"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        with held_lock(tmp_path / folder):
            with pytest.raises(BlockingIOError, match="study: a process is training in it"):
                delete_run(place, "study")
            with pytest.raises(BlockingIOError, match="study: a process is training in it"):
                rename_run(place, "study", "other")
    assert list(place.trash_folder.iterdir()) == []
    assert delete_run(place, "study").run_id == "study"


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    place = workplace(tmp_path)
    (tmp_path / "group").mkdir()
    for run_id in ("none", "group"):
        with pytest.raises(FileNotFoundError, match=f"{run_id}: no such run"):
            delete_run(place, run_id)
        with pytest.raises(FileNotFoundError, match=f"{run_id}: no such run"):
            rename_run(place, run_id, "b")
        with pytest.raises(FileNotFoundError, match=f"{run_id}: no such run"):
            tag_run(place, run_id, ["x"])
    for deleted_id in ("none", "..", "../..", "", "."):
        with pytest.raises(FileNotFoundError, match="no such run in the trash"):
            restore_run(place, deleted_id)
    with pytest.raises(ValueError, match="not a run's id"):
        delete_run(place, "..")


def test_restoring_does_not_lead_out(tmp_path: Path) -> None:
    place = workplace(tmp_path / "runs")
    make_run(place.root / "a")
    deleted = delete_run(place, "a")
    path = place.trash_folder / deleted.id / "deleted.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"run": "../b"}))
    with pytest.raises(ValueError, match="not a run's id"):
        restore_run(place, deleted.id)
    path.write_text("{")
    assert deleted_runs(place) == []
    with pytest.raises(ValueError, match=r"deleted\.json: not JSON"):
        restore_run(place, deleted.id)


def test_failed_move_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = workplace(tmp_path)
    make_run(tmp_path / "a")

    def rename(source: Path, target: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "rename", rename)
    tag_run(place, "a", ["x"])
    with pytest.raises(OSError, match=r"^a: cannot be moved: Invalid cross-device link$"):
        delete_run(place, "a")
    assert list(place.trash_folder.iterdir()) == []
    assert RunIndex(place).get("a").tags == ("x",)


def test_run_that_two_delete_is_deleted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, original = workplace(tmp_path), os.rename
    make_run(tmp_path / "a")

    def rename(source: Path, target: Path) -> None:
        original(source, tmp_path / "elsewhere")
        original(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(FileNotFoundError, match="a: no such run any more"):
        delete_run(place, "a")
    assert list(place.trash_folder.iterdir()) == []


def test_trash_is_purged_after_a_week(tmp_path: Path) -> None:
    place = workplace(tmp_path)
    for name in "ab":
        make_run(tmp_path / name)
        deleted = delete_run(place, name)
        if name == "a":
            path = place.trash_folder / deleted.id / "deleted.json"
            facts = json.loads(path.read_text())
            path.write_text(json.dumps(facts | {"deleted": time.time() - 8 * 24 * 3600}))
    (place.trash_folder / "damaged").mkdir()
    assert purge_trash(place) == 1
    assert [one.run_id for one in deleted_runs(place)] == ["b"]
    assert purge_trash(place, older_than=-1) == 2
    assert list(place.trash_folder.iterdir()) == []


def test_renamed_run_keeps_its_tags(tmp_path: Path) -> None:
    place = workplace(tmp_path)
    make_run(tmp_path / "group" / "a")
    make_run(tmp_path / "group" / "b")
    tag_run(place, "group/a", ["x"])
    assert rename_run(place, "group/a", "c 2") == "group/c 2"
    assert rename_run(place, "group/b", "b") == "group/b"
    assert {run.id: run.tags for run in RunIndex(place).list()} == {
        "group/c 2": ("x",), "group/b": (),
    }  # fmt: skip
    with pytest.raises(FileExistsError, match="group/b: there is a run of this name"):
        rename_run(place, "group/c 2", "b")
    with pytest.raises(ValueError, match="must be 1 to 100 letters"):
        rename_run(place, "group/c 2", "../d")


def test_run_that_others_were_made_from_keeps_its_name(tmp_path: Path) -> None:
    place = workplace(tmp_path)
    base = make_run(tmp_path / "base")
    make_run(tmp_path / "base2")
    make_run(tmp_path / "other", kind="finetune", recipe={"base": str(base)})
    make_run(tmp_path / "third", recipe={"data": ["base2/data"]})
    assert runs_made_from(place, "base") == ["other"]
    assert runs_made_from(place, "base2") == ["third"]
    assert runs_made_from(place, "other") == []
    with pytest.raises(ValueError, match="base: keeps its name, by which other refers to it"):
        rename_run(place, "base", "new")
    shutil.copytree(SAVED / "suite", tmp_path / "suite")
    with pytest.raises(ValueError, match="suite/How-long: belongs to suite"):
        rename_run(place, "suite/How-long", "new")


def test_tags_that_are_none(tmp_path: Path) -> None:
    place = workplace(tmp_path)
    make_run(tmp_path / "a")
    for tag in ("", "  ", "x" * 41, "a\nb", "\udce9"):
        with pytest.raises(ValueError, match="must be 1 to 40 visible characters"):
            tag_run(place, "a", [tag])
    with pytest.raises(ValueError, match="tags: a run has at most 20, got 21"):
        tag_run(place, "a", [str(i) for i in range(21)])
    assert tag_run(place, "a", ["x" * 40, "é"]) == ("x" * 40, "é")
    assert tag_run(place, "a", []) == ()
    assert place.read_tags() == {}
