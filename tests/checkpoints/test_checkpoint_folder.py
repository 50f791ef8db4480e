import errno
import json
import os
import signal
import stat

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.checkpoints import folder as checkpoints
from unmask.checkpoints.folder import (
    find_damage,
    newest_checkpoint,
    truncate_logs,
    write_checkpoint,
)
from unmask.checkpoints.tensors import read_tensors, write_tensors
from unmask.files import lock_run_folder

TENSORS = {
    "model": {"a.weight": torch.arange(6.0).view(2, 3), "b": torch.tensor(5)},
    "optimizer": {"a.weight.step": torch.tensor(3.0)},
}


def saved(folder, *steps, **changes):
    return [
        write_checkpoint(folder, step, TENSORS, {"tokens": step * 10} | changes) for step in steps
    ]


def names(folder):
    return sorted(p.name for p in (folder / "checkpoints").iterdir())


def test_saved_checkpoint_reads_back(tmp_path):
    saved(tmp_path, 7)
    found, damaged = newest_checkpoint(tmp_path)
    assert not damaged
    assert found.step == 7
    assert found.progress["tokens"] == 70
    for kind, tensors in TENSORS.items():
        read = found.tensors(kind)
        assert read.keys() == tensors.keys()
        assert all(torch.equal(read[n], t) and read[n].dtype == t.dtype for n, t in tensors.items())


def test_empty_folder_has_no_checkpoint(tmp_path):
    assert newest_checkpoint(tmp_path) == (None, [])
    (tmp_path / "checkpoints").mkdir()
    assert newest_checkpoint(tmp_path) == (None, [])


def test_newest_two_checkpoints_are_kept(tmp_path):
    saved(tmp_path, 10, 20, 30, 100_000_000)
    assert names(tmp_path) == ["step-00000030", "step-100000000"]
    assert newest_checkpoint(tmp_path)[0].step == 100_000_000


def test_file_modes_follow_the_umask(tmp_path):
    (path,) = saved(tmp_path, 1)
    modes = {stat.S_IMODE(p.stat().st_mode) for p in path.iterdir()}
    (tmp_path / "plain").touch()
    assert modes == {stat.S_IMODE((tmp_path / "plain").stat().st_mode)}


@pytest.mark.trials("checkpoints")
@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.safetensors", "progress.json", "manifest.json"]
)
@pytest.mark.parametrize("how", ["shorter", "empty", "changed", "gone"])
def test_damaged_newest_checkpoint_falls_back_to_previous(tmp_path, name, how):
    file = saved(tmp_path, 1, 2)[1] / name
    data = file.read_bytes()
    if how == "gone":
        file.unlink()
    else:
        middle = len(data) // 2
        changed = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        file.write_bytes({"shorter": data[:-2], "empty": b"", "changed": changed}[how])
    found, damaged = newest_checkpoint(tmp_path)
    assert found.step == 1
    assert len(damaged) == 1
    assert "step-00000002: damaged, not used: " in damaged[0]
    assert name in damaged[0] or name == "manifest.json"


@pytest.mark.trials("checkpoints")
@pytest.mark.parametrize(
    "manifest",
    [
        "null",
        "[]",
        "{",
        "{}",
        '{"files": {}}',
        '{"files": {"progress.json": {}}}',
        '{"files": {"progress.json": 3}}',
        '{"files": {"progress.json": {"size": "x", "sha256": "y"}}}',
    ],
)
def test_empty_manifest_counts_as_damage(tmp_path, manifest):
    (path,) = saved(tmp_path, 1)
    (path / "manifest.json").write_text(manifest)
    assert "manifest.json" in find_damage(path)
    assert newest_checkpoint(tmp_path)[0] is None


@pytest.mark.trials("checkpoints")
def test_manifest_cannot_name_a_file_outside(tmp_path):
    (path,) = saved(tmp_path, 1)
    manifest = json.loads((path / "manifest.json").read_bytes())
    manifest["files"]["../../secret"] = {"size": 3, "sha256": "0" * 64}
    (tmp_path / "secret").write_text("abc")
    (path / "manifest.json").write_text(json.dumps(manifest))
    assert find_damage(path) == (
        "manifest.json names ../../secret, which is not a file of this folder"
    )


@pytest.mark.trials("checkpoints")
def test_checkpoint_of_later_format_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as m:
        m.setattr(checkpoints, "FORMAT", 3)
        saved(tmp_path, 1)
    with pytest.raises(ValueError, match="format 3 is not read"):
        newest_checkpoint(tmp_path)


def test_damaged_checkpoint_is_replaced_at_the_same_step(tmp_path):
    path = saved(tmp_path, 1, 2)[1]
    (path / "model.safetensors").write_bytes(b"")
    saved(tmp_path, 2)
    assert newest_checkpoint(tmp_path)[0].step == 2
    assert names(tmp_path) == ["step-00000001", "step-00000002"]


def test_later_checkpoints_are_removed_after_going_back(tmp_path):
    path = saved(tmp_path, 10, 20)[1]
    (path / "progress.json").unlink()
    saved(tmp_path, 15)
    assert names(tmp_path) == ["step-00000010", "step-00000015"]


def test_saving_a_step_again_rewrites_only_if_logs_grew(tmp_path):
    (path,) = saved(tmp_path, 1)
    before = os.stat(path).st_ino
    saved(tmp_path, 1)
    assert os.stat(path).st_ino == before
    (tmp_path / "log.jsonl").write_text("{}\n")
    saved(tmp_path, 1)
    assert newest_checkpoint(tmp_path)[0].progress["logs"] == {"log.jsonl": 3}
    assert names(tmp_path) == ["step-00000001"]


def test_leftovers_of_interrupted_writes_are_removed(tmp_path):
    saved(tmp_path, 1)
    home = tmp_path / "checkpoints"
    for left in (
        ".step-00000002.fresh.part",
        ".step-00000001.removed.part",
        ".step-00000001.damaged.removed.part",
        "..step-00000002.fresh.part.0123456789ab.part",
    ):
        (home / left).mkdir()
        (home / left / "model.safetensors").write_bytes(b"x")
    assert newest_checkpoint(tmp_path)[0].step == 1
    assert names(tmp_path) == ["step-00000001"]


def test_unrelated_files_are_left_alone(tmp_path):
    saved(tmp_path, 1)
    home = tmp_path / "checkpoints"
    (home / "notes.txt").write_text("mine")
    (home / "step-7").mkdir()
    saved(tmp_path, 2, 3)
    assert newest_checkpoint(tmp_path)[0].step == 3
    assert names(tmp_path) == ["notes.txt", "step-00000002", "step-00000003", "step-7"]


class Killed(BaseException):
    """What no handler of errors catches: the nearest thing to a kill within one process."""


@settings(max_examples=40)
@given(after=st.integers(0, 60), steps=st.integers(1, 3))
def test_kill_at_any_system_call_keeps_a_whole_checkpoint(tmp_path_factory, after, steps):
    """Break off at the n-th call that changes the disk, without any cleaning up after it."""
    folder = tmp_path_factory.mktemp("run")
    saved(folder, *range(1, steps))
    left = [after]

    def counted(real):
        def call(*args, **kwargs):
            if left[0] <= 0:
                raise Killed  # what this sets off to clean up ends at its first call, here again
            left[0] -= 1
            return real(*args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "replace", "rename", "mkdir", "unlink", "rmdir", "open"):
            patch.setattr(os, name, counted(getattr(os, name)))
        try:
            write_checkpoint(folder, steps, TENSORS, {"tokens": steps * 10})
            done = True
        except Killed:
            done = False
    found, damaged = newest_checkpoint(folder)
    assert not damaged
    assert (found.step if found else 0) in ({steps} if done else {steps, steps - 1})
    if found:
        assert found.progress["tokens"] == found.step * 10
        assert torch.equal(found.tensors("model")["a.weight"], TENSORS["model"]["a.weight"])
    if (folder / "checkpoints").exists():
        assert all(name.startswith("step-") for name in names(folder))
    saved(folder, steps)
    assert newest_checkpoint(folder)[0].step == steps


@pytest.fixture
def small_disk():
    """Let no file grow beyond 100 kB: to a writer, a disk that is full (EFBIG, not ENOSPC)."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.trials("full disk")
@pytest.mark.usefixtures("small_disk")
def test_full_disk_is_one_line_and_keeps_earlier_checkpoints(tmp_path):
    saved(tmp_path, 1, 2)
    large = {"model": {"a": torch.zeros(100_000)}}
    with pytest.raises(
        OSError, match="the checkpoint of step 3 was not written, earlier ones are untouched"
    ) as error:
        write_checkpoint(tmp_path, 3, large, {})
    assert error.value.errno == errno.EFBIG
    assert "\n" not in str(error.value)
    assert names(tmp_path) == ["step-00000001", "step-00000002"]
    assert newest_checkpoint(tmp_path)[0].step == 2


@pytest.mark.trials("checkpoints")
def test_damaged_checkpoint_does_not_displace_a_whole_one(tmp_path):
    path = saved(tmp_path, 10, 20)[1]
    (path / "model.safetensors").write_bytes(b"")
    assert newest_checkpoint(tmp_path)[0].step == 10
    assert names(tmp_path) == ["step-00000010", "step-00000020.damaged"]
    saved(tmp_path, 25)
    assert names(tmp_path) == ["step-00000010", "step-00000025"]


def test_reading_changes_nothing(tmp_path):
    path = saved(tmp_path, 10, 20)[1]
    (path / "model.safetensors").write_bytes(b"")
    (tmp_path / "checkpoints" / ".step-00000030.fresh.part").mkdir()
    before = names(tmp_path)
    assert newest_checkpoint(tmp_path, clean_up=False)[0].step == 10
    assert names(tmp_path) == before


@pytest.mark.trials("full disk")
@pytest.mark.parametrize("call", range(12))
def test_no_space_at_any_flush_is_reported_alike(tmp_path, monkeypatch, call):
    (tmp_path / "log.jsonl").write_text("{}\n")
    saved(tmp_path, 1)
    real, left = os.fsync, [call]

    def fsync(descriptor):
        left[0] -= 1
        if left[0] == -1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    output = None
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        try:
            saved(tmp_path, 2)
        except OSError as error:
            output = error
    if output is not None:
        assert output.errno == errno.ENOSPC
        assert "the checkpoint of step 2 was not written" in str(output)
        assert "No space left on device" in str(output)
    assert newest_checkpoint(tmp_path)[0].step in (1, 2)
    assert newest_checkpoint(tmp_path)[1] == []
    assert all(name.startswith("step-") for name in names(tmp_path))


def test_logs_are_truncated_to_their_checkpoint(tmp_path):
    log, timing = tmp_path / "log.jsonl", tmp_path / "timing.jsonl"
    log.write_text("one\n")
    saved(tmp_path, 1)
    log.write_text("one\ntwo\nthr")
    timing.write_text("one\n")
    assert truncate_logs(tmp_path, newest_checkpoint(tmp_path)[0]) == []
    assert log.read_text() == "one\n"
    assert timing.read_text() == ""
    assert truncate_logs(tmp_path, None) == []
    assert log.read_text() == ""


def test_log_shorter_than_checkpoint_is_reported(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text("one\ntwo\n")
    saved(tmp_path, 1)
    log.write_text("one\n")
    (warning,) = truncate_logs(tmp_path, newest_checkpoint(tmp_path)[0])
    assert "log.jsonl: 4 bytes of the log are missing" in warning
    assert log.read_text() == "one\n"


@settings(max_examples=60)
@given(data=st.data())
def test_damaged_tensor_file_is_refused_by_name_or_equal(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("t") / "model.safetensors"
    write_tensors(path, TENSORS["model"])
    whole = path.read_bytes()
    damaged = data.draw(
        st.one_of(
            st.integers(0, len(whole) - 1).map(lambda n: whole[:n]),
            st.binary(max_size=200),
            st.tuples(st.integers(0, len(whole) - 1), st.integers(1, 255)).map(
                lambda at: whole[: at[0]] + bytes([whole[at[0]] ^ at[1]]) + whole[at[0] + 1 :]
            ),
        )
    )
    path.write_bytes(damaged)
    found, message = None, ""
    try:
        found = read_tensors(path)
    except ValueError as error:
        message = str(error)
    if found is None:
        assert "model.safetensors: truncated or damaged" in message
        assert "\n" not in message
        return
    assert found.keys() == TENSORS["model"].keys()  # what was hit says nothing of them
    for name, x in found.items():
        assert x.dtype == TENSORS["model"][name].dtype
        assert x.tolist() == TENSORS["model"][name].tolist()


def test_any_flipped_bit_is_an_error(tmp_path):
    path = tmp_path / "model.safetensors"
    write_tensors(path, {"a": torch.randn(3000), "b": torch.zeros(7, dtype=torch.bfloat16)})
    whole = path.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    for at in [*range(start, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(ValueError, match=r"model\.safetensors: truncated or damaged"):
            read_tensors(path)
    path.write_bytes(whole)
    read_tensors(path)
    write_tensors(tmp_path / "again", read_tensors(path))
    assert (tmp_path / "again").read_bytes() == whole  # the header's order is ours


def test_missing_tensor_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors: no such file"):
        read_tensors(tmp_path / "model.safetensors")
    with pytest.raises(FileNotFoundError):
        read_tensors(tmp_path)


@pytest.mark.trials("data and workers")
def test_two_processes_cannot_train_in_one_folder(tmp_path):
    with lock_run_folder(tmp_path):
        if os.fork() == 0:
            try:
                with lock_run_folder(tmp_path):
                    os._exit(1)
            except ValueError as error:
                os._exit(0 if "another process is training in this folder" in str(error) else 2)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    with lock_run_folder(tmp_path):
        pass


@pytest.mark.trials("data and workers")
def test_folder_lock_does_not_outlive_its_process_in_a_worker(tmp_path):
    """As after `kill -9`: a worker process lives on for a while, and the run is resumed at once."""
    ready, output = os.pipe()
    first = os.fork()
    if first == 0:
        with lock_run_folder(tmp_path):
            if os.fork() == 0:
                os.write(output, b"%d" % os.getpid())
                signal.pause()
            signal.pause()
    worker = int(os.read(ready, 20))
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    try:
        with lock_run_folder(tmp_path):
            pass
    finally:
        os.kill(worker, signal.SIGKILL)
