"""Threads that sleep while the machine is crowded."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from unmask.training.device import shared_cores
from unmask.training.device.shared_cores import (
    CROWDED_SHARE,
    FREE_LOOKS,
    Crowding,
    SleepingThreads,
    read_waited_seconds,
    share_cores,
)

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def gradients() -> list[Tensor]:
    """Compute gradients of which some are sums over threads."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 256, 0.0, batch_first=True)
    layer(torch.randn(8, 64, 64)).square().mean().backward()
    return [p.grad for p in layer.parameters() if p.grad is not None]


def test_sleeping_threads_change_no_bit(two_threads: None) -> None:
    expected = gradients()
    sleepers = SleepingThreads(3)
    try:
        found = gradients()
        assert torch.get_num_threads() == 2
    finally:
        sleepers.end()
    assert torch.get_num_threads() == 2
    for one, other, again in zip(expected, found, gradients(), strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one, again)


def test_a_machine_is_crowded_while_threads_wait() -> None:
    crowding, waited, now = Crowding(1.0, 1.0, 0.0), 1.0, 0.0
    seen = list[bool]()
    for share in [0.0] * FREE_LOOKS + [CROWDED_SHARE / 2] * 3 + [0.5] + [0.0] * FREE_LOOKS:
        waited, now = waited + share, now + 1
        crowding.look(waited, now)
        seen.append(crowding.is_crowded)
    until_free = [True] * (FREE_LOOKS - 1) + [False]
    assert seen == [*until_free, False, False, False, True, *until_free]


@pytest.mark.parametrize("was_crowded", [True, False])
def test_a_machine_that_is_neither_stays_as_it_was(was_crowded: bool) -> None:
    crowding = Crowding(1.0, 1.0 if was_crowded else 99.0, 0.0)
    for i in range(1, 3 * FREE_LOOKS):
        crowding.look(1.0 + CROWDED_SHARE / 2 * i, float(i))
        assert crowding.is_crowded is was_crowded


def looks(crowding: Crowding, shares: list[float]) -> list[bool]:
    seen, waited = list[bool](), 1.0
    for i, share in enumerate(shares):
        waited += share
        crowding.look(waited, i + 1.0)
        seen.append(crowding.is_crowded)
    return seen


def test_what_runs_for_a_moment_now_and_then_does_not_keep_a_machine_crowded() -> None:
    usual = [0.004, 0.006, 0.003, 0.036] * 4  # seconds waited of each second, on a free machine
    seen = looks(Crowding(1.0, 1.0, 0.0), usual)
    assert seen == [True] * (FREE_LOOKS - 1) + [False] * (len(usual) - FREE_LOOKS + 1)


def test_a_neighbor_that_is_just_above_the_limit_keeps_a_machine_crowded() -> None:
    above = CROWDED_SHARE * 1.1
    seen = looks(Crowding(1.0, 99.0, 0.0), [0.0] * 2 * FREE_LOOKS + [above] * 2 * FREE_LOOKS)
    assert seen == [False] * 2 * FREE_LOOKS + [True] * 2 * FREE_LOOKS


@LINUX
def test_waiting_is_read_from_the_system() -> None:
    first, second = read_waited_seconds(), read_waited_seconds()
    assert first is not None
    assert second is not None
    assert 0 <= first <= second


@pytest.mark.parametrize(
    ("cores", "threads", "sleepers"), [(2, 1, 0), (2, 2, 2), (2, 4, 2), (8, 2, 8), (8, 8, 2)]
)
def test_with_the_sleepers_there_are_more_threads_than_cores(
    cores: int, threads: int, sleepers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    assert shared_cores._count_sleepers(threads) == sleepers
    assert not sleepers or threads + sleepers - 1 > cores


def test_one_thread_waits_for_no_other() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    assert share_cores() is False
    torch.set_num_threads(before)


_ENDS = """
import threading, torch
from unmask.training.device import shared_cores
ones, is_at_work = torch.ones, threading.Event()
def work(n):
    is_at_work.set()
    return [ones(1 << 24) for _ in range(40)][-1]
torch.ones = work
shared_cores.Crowding.is_crowded = property(lambda self: True, lambda self, value: None)
torch.set_num_threads(2)
assert shared_cores.share_cores()
is_at_work.wait()
"""


@LINUX
def test_a_process_ends_well_while_threads_are_made() -> None:
    made = subprocess.run(
        [sys.executable, "-c", _ENDS], capture_output=True, text=True, check=False
    )
    assert (made.returncode, made.stderr) == (0, "")
