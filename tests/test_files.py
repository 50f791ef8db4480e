import errno
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from unmask import files
from unmask.files import atomic_path, merge_folder, remove_partial_files, sha256, write_atomically


class Killed(BaseException):
    """The process ends here: nothing after it happens, no cleaning up either."""


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int) -> Callable[[], int]:
    """Stop at the `step`th flush or renaming; return a function that counts them."""
    steps = 0

    def counted(effect: Callable[..., None] | None) -> Callable[..., None]:
        def act(*args: object) -> None:
            nonlocal steps
            steps += 1
            if steps == step:
                monkeypatch.setattr(files, "_remove", lambda _: None)
                raise Killed
            if effect:
                effect(*args)

        return act

    monkeypatch.setattr(os, "fsync", counted(None))
    monkeypatch.setattr(os, "replace", counted(os.replace))
    return lambda: steps


def names(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def test_string_is_written_as_utf8(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", "é\n")
    assert (tmp_path / "a").read_bytes() == b"\xc3\xa9\n"


def test_existing_file_is_replaced(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", b"old and longer")
    write_atomically(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


def test_relative_path_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_atomically(Path("a"), b"x")
    assert names(tmp_path) == ["a"]


def test_name_may_have_the_maximum_length(tmp_path: Path) -> None:
    name = "é" * 127
    write_atomically(tmp_path / name, b"x")
    assert names(tmp_path) == [name]


def test_permissions_are_those_of_a_new_file(tmp_path: Path) -> None:
    (tmp_path / "usual").write_bytes(b"")
    write_atomically(tmp_path / "a", b"")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_link_is_replaced_and_its_target_unchanged(tmp_path: Path) -> None:
    (tmp_path / "shared").write_bytes(b"shared")
    (tmp_path / "a").symlink_to("shared")
    write_atomically(tmp_path / "a", b"own")
    assert (tmp_path / "shared").read_bytes() == b"shared"
    assert (tmp_path / "a").read_bytes() == b"own"


def test_folder_appears_with_all_its_content(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "a") as beside:
        (beside / "deep" / "deeper").mkdir(parents=True)
        (beside / "deep" / "deeper" / "x").write_text("x")
        (beside / "leads nowhere").symlink_to("nowhere")
        assert not (tmp_path / "a").exists()
    assert names(tmp_path) == ["a", "a/deep", "a/deep/deeper", "a/deep/deeper/x", "a/leads nowhere"]


def test_folder_replaces_only_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with atomic_path(tmp_path / "empty") as beside:
        beside.mkdir()
        (beside / "x").write_text("x")
    with (
        pytest.raises(FileExistsError, match="empty is there already"),
        atomic_path(tmp_path / "empty"),
    ):
        pytest.fail("the body must not run")
    assert names(tmp_path) == ["empty", "empty/x"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_error_in_the_body_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    write_atomically(tmp_path / "file", b"before")
    for name in ("file", "new", "folder"):
        with pytest.raises(error), atomic_path(tmp_path / name) as beside:  # noqa: PT012
            if name == "folder":
                beside.mkdir()
                beside = beside / "x"
            beside.write_bytes(b"half")
            raise error
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"before"


def test_missing_parent_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        write_atomically(tmp_path / "nowhere" / "a", b"x")


@pytest.mark.trials("full disk")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", b"before")

    def write_to_full_disk() -> None:
        with atomic_path(tmp_path / "a") as beside:
            beside.symlink_to("/dev/full")
            beside.write_bytes(b"x")

    with pytest.raises(OSError, match="No space left on device") as caught:
        write_to_full_disk()
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(tmp_path)
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"before"


def test_data_is_flushed_before_rename_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        done.append(path.name if not path.name.endswith(".part") else "beside")

    replace = os.replace
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", lambda *a: (done.append("rename"), replace(*a)))
    with atomic_path(tmp_path / "a") as beside:
        (beside / "sub").mkdir(parents=True)
        (beside / "sub" / "x").write_text("x")
        (beside / "y").write_text("y")
    assert sorted(done[:4]) == ["beside", "sub", "x", "y"]
    assert done[4:] == ["rename", tmp_path.name]


@pytest.mark.parametrize("folder", [False, True])
def test_kill_at_any_step_leaves_old_or_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: bool
) -> None:
    def put(path: Path) -> None:
        with atomic_path(path) as beside:
            if folder:
                beside.mkdir()
                (beside / "x").write_bytes(b"new")
                (beside / "y").write_bytes(b"new")
            else:
                beside.write_bytes(b"new")

    with monkeypatch.context() as patch:
        steps = kill_at(patch, 0)
        put(tmp_path / "uninterrupted")
    n = steps()
    assert n == (5 if folder else 3)
    for step in range(1, n + 1):
        path = tmp_path / str(step) / "a"
        path.parent.mkdir()
        if not folder:
            path.write_bytes(b"old")
        with monkeypatch.context() as patch:
            kill_at(patch, step)
            with pytest.raises(Killed):
                put(path)
        if folder:
            assert not path.exists() or names(path) == ["x", "y"]
        else:
            assert path.read_bytes() == (b"new" if step == n else b"old")
        remove_partial_files(path.parent)
        assert names(path.parent) in ([], ["a"], ["a", "a/x", "a/y"])


def test_sweeping_removes_only_interrupted_writes(tmp_path: Path) -> None:
    for name in ("a", ".hidden", ".notes.part", "x.0123456789ab.part"):
        (tmp_path / name).write_text("mine")
    (tmp_path / ".a.0123456789ab.part").write_text("half")
    (tmp_path / ".b.ba9876543210.part" / "deep").mkdir(parents=True)
    remove_partial_files(tmp_path)
    assert names(tmp_path) == [".hidden", ".notes.part", "a", "x.0123456789ab.part"]


def test_two_writers_of_one_path_do_not_mix(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "a") as first, atomic_path(tmp_path / "a") as second:
        first.write_bytes(b"first")
        second.write_bytes(b"second")
    assert (tmp_path / "a").read_bytes() == b"first"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_folder_made_by_a_concurrent_writer_is_kept_and_named(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model"

    def write() -> None:
        with atomic_path(path) as ours:
            with atomic_path(path) as theirs:
                theirs.mkdir()
                (theirs / "a").write_text("theirs")
            if kind == "folder":
                ours.mkdir()
            (ours / "a" if kind == "folder" else ours).write_text("ours")

    with pytest.raises(FileExistsError, match=r"model: another writer has made it"):
        write()
    assert names(tmp_path) == ["model", "model/a"]
    assert (path / "a").read_text() == "theirs"


def test_non_utf8_name_round_trips_through_json(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9 \xc3\xa9")
    write_atomically(tmp_path / "a", json.dumps({name: name}, ensure_ascii=False))
    assert files.read_json(tmp_path / "a") == {name: name}


def test_hash_is_that_of_the_content(tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000
    (tmp_path / "a").write_bytes(data)
    assert sha256(tmp_path / "a") == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("size", [0, 1, 4096, 256 * 4096, 2 * 256 * 4096 + 4097])
def test_checksum_of_a_file_is_that_of_all_its_bytes(tmp_path: Path, size: int) -> None:
    data = bytes(range(251)) * (size // 251 + 1)
    (tmp_path / "a").write_bytes(data[:size])
    expected = files.checksum(memoryview(data)[:size])
    assert files.file_checksum(tmp_path / "a") == f"{expected:08x}"


def test_files_move_into_a_fuller_folder_with_the_last_one_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, folder = tmp_path / "beside", tmp_path / "run"
    beside.mkdir()
    folder.mkdir()
    (folder / "log").write_text("log")
    for name in ("a", "config", "z"):
        (beside / name).write_text(name)
    moved: list[str] = []
    replace_file = os.replace

    def note(source: Path, target: Path) -> None:
        moved.append(target.name)
        replace_file(source, target)

    monkeypatch.setattr(os, "replace", note)
    merge_folder(beside, folder, last_name="config")
    assert moved == ["a", "z", "config"]
    assert {p.name: p.read_text() for p in folder.iterdir()} == {n: n for n in (*moved, "log")}
    assert not beside.exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipe_or_device_is_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FileExistsError, match="is a device or a pipe"):
        files.write_atomically(pipe, "text")
    assert pipe.is_fifo()
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"]
