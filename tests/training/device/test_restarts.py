"""Processes that are killed come back, on one machine and on two, and end with the same weights."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from launched import TINY, environment, pretrain, torchrun_command

STEPS, KILLED_AFTER = 40, 13
ARGUMENTS = ("--steps", STEPS, "--checkpoint-every", 5)
SECONDS = 240
REBOOT_SECONDS = 25
"""Longer than torch's rendezvous takes for a machine that gives no sign: 3 x 5 s."""


def n_logged(run: Path) -> int:
    path = run / "log.jsonl"
    return len(path.read_text().splitlines()) if path.is_file() else 0


def wait_for_step(run: Path, started: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + SECONDS
    while n_logged(run) < KILLED_AFTER:
        assert started.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < end
        time.sleep(0.02)


def worker_of(run: Path, rank: int) -> int:
    """Find the process of a rank by its environment."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        is_worker = os.fsencode(run) in words and b"torch.distributed.run" not in words
        if is_worker and f"RANK={rank}".encode() in variables:
            return int(folder.name)
    raise AssertionError(f"there is no process of rank {rank}")


def check_same(one: Path, other: Path) -> None:
    for name in ("log.jsonl", "model.safetensors"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.fixture(scope="module", params=["ddp", "fsdp"])
def undisturbed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run by two processes; its folder's name is the strategy."""
    run = tmp_path_factory.mktemp("runs") / request.param
    pretrain(2, run, *ARGUMENTS, "--strategy", request.param)
    return run


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("rank", [0, 1])
def test_killed_worker_comes_back(undisturbed: Path, tmp_path: Path, rank: int) -> None:
    """The agent starts all processes again, which go on from the last checkpoint by themselves."""
    run = tmp_path / "run"
    own = ("pretrain", *TINY, "--out", run, *ARGUMENTS, "--strategy", undisturbed.name)
    command = torchrun_command(2, "-m", "unmask.cli", *own, options=("--max-restarts", "2"))
    agent = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE)
    wait_for_step(run, agent)
    os.kill(worker_of(run, rank), signal.SIGKILL)
    _, errors = agent.communicate(timeout=SECONDS)
    assert agent.returncode == 0, errors[-3000:]
    assert b"another process of this run has ended" in errors
    check_same(undisturbed, run)
    steps = [json.loads(line)["step"] for line in (run / "log.jsonl").read_text().splitlines()]
    assert sorted(set(steps)) == list(range(1, STEPS + 1))


def may_make_networks() -> bool:
    """Whether this process may make network namespaces."""
    if shutil.which("ip") is None:
        return False
    made = subprocess.run(["ip", "netns", "add", "unmask-try"], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "delete", "unmask-try"], capture_output=True, check=False)
    return made.returncode == 0


@contextmanager
def two_networks() -> Generator[tuple[str, str]]:
    """Make two network namespaces, joined by a cable: 10.231.7.1 and 10.231.7.2."""
    names = (f"unmask-a-{os.getpid()}", f"unmask-b-{os.getpid()}")

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    with ExitStack() as stack:
        for name in names:
            ip("netns", "add", name)
            stack.callback(ip, "netns", "delete", name)
        ip("link", "add", "cable0", "netns", names[0], "type", "veth",
           "peer", "name", "cable1", "netns", names[1])  # fmt: skip
        for i, name in enumerate(names):
            ip("-n", name, "address", "add", f"10.231.7.{i + 1}/24", "dev", f"cable{i}")
            ip("-n", name, "link", "set", f"cable{i}", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names


def start_machine(i: int, network: str, run: Path, strategy: str) -> subprocess.Popen[bytes]:
    """Start torchrun in a network, as on a machine of its own."""
    address = f"10.231.7.{i + 1}"
    options = (
        "--nnodes", "2", "--max-restarts", "3", "--rdzv-backend", "c10d", "--rdzv-id", "run",
        "--rdzv-endpoint", "10.231.7.1:29431", "--local-addr", address,
        "--rdzv-conf", "is_host=" + ("true" if i == 0 else "false"),
    )  # fmt: skip
    own = ("pretrain", *TINY, "--out", run, *ARGUMENTS, "--strategy", strategy, "--resume")
    command = torchrun_command(1, "-m", "unmask.cli", *own, options=options)
    return subprocess.Popen(
        ["ip", "netns", "exec", network, *command],
        # With its store shared, the rendezvous of torch 2.13 waits for an address that the first
        # agent does not write again.
        env=environment(GLOO_SOCKET_IFNAME=f"cable{i}", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1"),
        stderr=subprocess.PIPE,
    )


@pytest.mark.thorough
def test_killed_machine_comes_back(undisturbed: Path, tmp_path: Path) -> None:
    """Two machines in miniature: all of one is killed and started again; the other one waits."""
    if not may_make_networks():
        pytest.skip("needs the right to make network namespaces")
    run = tmp_path / "run"
    with two_networks() as networks, ExitStack() as stack:
        machines = [
            start_machine(i, network, run, undisturbed.name) for i, network in enumerate(networks)
        ]
        for network in networks:
            stack.callback(kill_all, network)
        wait_for_step(run, machines[0])
        kill_all(networks[1])
        machines[1].communicate()
        time.sleep(REBOOT_SECONDS)
        machines[1] = start_machine(1, networks[1], run, undisturbed.name)
        for machine in machines:
            _, errors = machine.communicate(timeout=SECONDS)
            assert machine.returncode == 0, errors[-3000:]
    check_same(undisturbed, run)


def kill_all(network: str) -> None:
    """Kill all processes of a network: torchrun's workers have sessions of their own."""
    found = subprocess.run(
        ["ip", "netns", "pids", network], capture_output=True, text=True, check=True
    )
    for pid in found.stdout.split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
