import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import toy

from unmask.checkpoints.folder import newest_checkpoint
from unmask.checkpoints.tensors import read_tensors
from unmask.training import loop
from unmask.training.config import Recipe
from unmask.training.device import distributed
from unmask.training.device.distributed import World
from unmask.training.optimizers.config import AdamW
from unmask.training.resume import restore_run, trained_tensors

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Train in two processes; each reads half of the texts of each step."""
    out = tmp_path_factory.mktemp("two")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    for rank in "01":
        (out / rank).mkdir()
    script = str(HERE / "two_processes.py")
    paths = os.pathsep.join([str(HERE), str(HERE.parents[1])])
    processes = [
        subprocess.Popen(
            [sys.executable, script, rank, port, str(out)],
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        )
        for rank in "01"
    ]
    assert [p.wait(timeout=60) for p in processes] == [0, 0]
    return out


@pytest.fixture(scope="module")
def one():
    recipe = Recipe(
        model="toy",
        steps=6,
        precision="float32",
        learning_rate=1e-2,
        log_every=2,
        optimizer=AdamW(eps=1e-3),
    )
    model = toy.model()
    model.backbone.dropout = 0.0
    run = loop.start_run(recipe, model, toy.batches())
    return run, list(loop.train(run))


@pytest.mark.thorough
def test_two_processes_equal_one_up_to_rounding(one, two):
    run, reports = one
    tensors = trained_tensors(run)
    for rank in "01":
        facts = json.loads((two / rank / "said.json").read_text())
        assert [t for _, _, t in facts["losses"]] == [report.n_tokens for report in reports]
        for (loss, norm, _), report in zip(facts["losses"], reports, strict=True):
            # Float32 sums in another order.
            assert loss == pytest.approx(report.loss, rel=1e-5)
            assert norm == pytest.approx(report.gradient_norm, rel=1e-4)
        for name, t in read_tensors(two / rank / "state.safetensors").items():
            if name != "seen":  # counts forwards: half the texts, but as many micro-batches
                torch.testing.assert_close(t, tensors[name], rtol=1e-3, atol=1e-5)


@pytest.mark.thorough
def test_processes_hold_equal_weights_and_logs(two):
    a, b = (read_tensors(two / rank / "state.safetensors") for rank in "01")
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert (two / "0" / "log.jsonl").read_bytes() == (two / "1" / "log.jsonl").read_bytes()


@pytest.mark.thorough
def test_processes_broadcast_plain_data(two):
    for rank in "01":
        facts = json.loads((two / rank / "said.json").read_text())
        assert facts["told"] == [{"rank": 0}, {"rank": 1}]
        assert facts["gathered"] == [{"of 0": [[0.5] * 2]}, {"of 1": [[1.5] * 2] * 2}]
        assert facts["first"] == "from 0"
        assert facts["agreed"] is True
        assert facts["newest"] == 6


@pytest.mark.thorough
def test_processes_agree_on_the_number_of_steps(two):
    steps = [json.loads((two / rank / "said.json").read_text())["steps"] for rank in "01"]
    assert steps[0] == steps[1] >= 1


@pytest.mark.thorough
def test_only_first_process_saves_and_one_process_can_resume(two):
    checkpoint, damaged = newest_checkpoint(two)
    assert not damaged
    run = toy.run(steps=8, precision="float32", learning_rate=1e-2, optimizer=AdamW(eps=1e-3))
    restore_run(run, checkpoint)
    assert [report.step for report in loop.train(run)] == [7, 8]


def test_single_process_broadcasts_to_itself():
    world = World()
    assert world.all_gather_object([1, None]) == [[1, None]]
    assert world.sum_by_name({"a": 2}) == {"a": 2}
    assert world.broadcast_object("x") == "x"


def test_unknown_device_is_an_error():
    for name in ("cuda:99", "toaster"):
        with pytest.raises(ValueError, match=f"device '{name}' cannot be used here") as error:
            distributed.resolve_device(name)
        assert "\n" not in str(error.value)


def test_missing_cuda_is_a_clear_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="PyTorch finds no CUDA; auto takes what there is"):
        distributed.resolve_device("cuda")


def test_precision_is_as_requested_or_native():
    assert distributed.resolve_precision("float32") == "float32"
    assert distributed.resolve_precision("bfloat16") == "bfloat16"
    native = distributed.has_native_bfloat16(torch.device("cpu"))
    assert distributed.resolve_precision("auto") == ("bfloat16" if native else "float32")
    flags = Path("/proc/cpuinfo")
    if flags.exists() and "avx512_bf16" in flags.read_text():
        assert native == (torch.backends.cpu.get_cpu_capability() not in ("DEFAULT", "AVX2"))


def test_threads_never_exceed_the_cores():
    before = torch.get_num_threads()
    try:
        assert distributed.set_threads(1) == 1 == torch.get_num_threads()
        assert 1 <= distributed.set_threads() <= (os.cpu_count() or 1)
    finally:
        torch.set_num_threads(before)


def test_matmul_peak_is_plausible():
    peak = distributed.matmul_peak_flops(torch.float32, seconds=0.02, sizes=(128, 256))
    assert 1e8 < peak < 1e16
