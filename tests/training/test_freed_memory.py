import subprocess
import sys
from pathlib import Path

import pytest
import torch

from unmask.training.device import memory

STEPS = """
import torch
from unmask.training.device.memory import FreedMemoryLimit, keep_freed_memory, resident_bytes

assert keep_freed_memory()
limit = FreedMemoryLimit(torch.device("cpu"))


def step(n_megabytes):
    tensors = [torch.ones(2**18) for _ in range(n_megabytes)]
    kept.append(torch.ones(2**16))  # above them, so that the heap cannot end before
    del tensors
    return limit.apply(), resident_bytes()


kept = []
_, begin = step(10)
print(begin)
for n_megabytes in (10, 10, 200, 10):
    print(*map(int, step(n_megabytes)))
"""


class FakeLibrary:
    """The C library of a process that holds `in_use`, and beside it what it keeps."""

    def __init__(self, monkeypatch):
        self.in_use, self.kept, self.n_trimmed = 100, 0, 0
        monkeypatch.setattr(memory, "_glibc", lambda: self)
        monkeypatch.setattr(memory, "resident_bytes", lambda: self.in_use + self.kept)

    def malloc_trim(self, _):
        self.kept = 0
        self.n_trimmed += 1


def faults(megabytes):
    """Page faults of fetching and freeing a large tensor five times."""
    import resource

    start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.zeros(megabytes << 18)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.thorough
def test_freed_memory_is_kept_and_can_be_released():
    if not memory.keep_freed_memory(False):
        pytest.skip("no glibc")
    before = faults(100)
    try:
        assert memory.keep_freed_memory()
        during = min(faults(100) for _ in range(4))  # the first rounds fetch what is then kept
    finally:
        assert memory.keep_freed_memory(False)
    after = faults(100)
    assert during * 20 < before
    assert after * 4 > before  # some of it may lie where others freed theirs


def test_without_glibc_nothing_is_changed(monkeypatch):
    monkeypatch.setattr(memory.platform, "libc_ver", lambda: ("", ""))
    assert memory.keep_freed_memory() is False
    assert memory.FreedMemoryLimit(torch.device("cpu")).apply() is False


def test_freed_memory_does_not_grow_from_step_to_step(monkeypatch):
    library = FakeLibrary(monkeypatch)
    limit = memory.FreedMemoryLimit(torch.device("cpu"))
    held = []
    for step in range(100):
        library.in_use += step == 50  # such as an evaluation's result
        library.kept = max(library.kept, 40) + 1  # what a step fetches, and what does not fit it
        limit.apply()
        held.append(library.in_use + library.kept)
    assert max(held) <= 100 + 1 + (1 + memory.FREED_SHARE) * 41
    assert 5 <= library.n_trimmed <= 12  # the first step, and each time that 10 were kept in vain


def test_steps_that_need_more_are_not_held_up(monkeypatch):
    library = FakeLibrary(monkeypatch)
    limit = memory.FreedMemoryLimit(torch.device("cpu"))
    for step in range(100):
        library.kept = max(library.kept, 40 if step < 20 else 80)
        limit.apply()
    assert library.n_trimmed == 2  # the first step, and the first that needs more


def test_an_accelerator_has_no_limit(monkeypatch):
    library = FakeLibrary(monkeypatch)
    assert memory.FreedMemoryLimit(torch.device("meta")).apply() is False
    assert library.n_trimmed == 0


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="of Linux alone")
def test_freed_memory_goes_back_to_the_system():
    if memory.platform.libc_ver()[0] != "glibc":
        pytest.skip("no glibc")
    begin, *steps = run(STEPS)
    returned, held = steps[::2], steps[1::2]
    assert returned == [0, 0, 1, 0]
    assert max(held) < begin + 40 * 2**20


def test_peak_memory_exceeds_an_allocated_tensor():
    assert memory.peak_memory_bytes(torch.device("cpu")) > 10 << 20


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="of Linux alone")
def test_peak_memory_begins_anew():
    (added,) = run(
        "import torch;"
        "from unmask.training.device.memory import peak_memory_bytes, restart_peak_memory;"
        "big = torch.ones(10**8); del big;"
        "before = restart_peak_memory();"
        "small = torch.ones(10**7);"
        "print(peak_memory_bytes(torch.device('cpu')) - before)"
    )
    assert 3.9e7 <= added < 1.5e8
