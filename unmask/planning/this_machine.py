"""The machine that plans, as a device: its peak by a short product, its memory, its power."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from unmask import machine_memory
from unmask.planning.hardware import CPU_WATTS_PER_CORE, THIS_CPU, Hardware
from unmask.training.device.distributed import matmul_peak_flops, weight_dtype
from unmask.training.device.stopwatch import Stopwatch

PROGRAM_BYTES = 250 * 2**20
"""Of the interpreter, torch and this library, loaded (docs/planning.md)."""
RUN_PROCESS_BYTES = 150 * 2**20
"""What a run holds beside its network and the program: text, tokenizer, samples, and what glibc
keeps of all that was freed in making them, about half of it. Before the first step of three runs on
5 MB of text it was 137 to 159 MiB (docs/planning.md)."""
POWERCAP = Path("/sys/class/powercap")
"""Where Linux keeps the energy counters of processors (RAPL)."""


def measure_this_cpu(
    precision: Literal["float32", "bfloat16"], *, seconds: int | float = 0.3
) -> Hardware:
    """Return this processor as a device, with the threads that torch has.

    Its power is what its energy counters say during the measurement, where they can be read, or
    else the default of a core times the threads.
    """
    meter = EnergyMeter()
    peak = matmul_peak_flops(weight_dtype(precision), "cpu", seconds=seconds)
    measured = describe_this_cpu({precision: peak}, meter.watts())
    return replace(measured, bandwidth=_copy_bandwidth())


def describe_this_cpu(
    peak_flops: Mapping[str, int | float], watts: int | float | None = None
) -> Hardware:
    """Return this processor as a device of a known peak, whose memory does not limit it.

    `watts`: as its energy counters say.
    """
    threads = torch.get_num_threads()
    return Hardware(
        name=THIS_CPU,
        kind="cpu",
        peak_flops=peak_flops,
        memory_bytes=_total_memory_bytes(),
        watts=CPU_WATTS_PER_CORE * threads if watts is None else watts,
        source=f"measured here, {threads} {'thread' if threads == 1 else 'threads'}",
        power_source=f"{CPU_WATTS_PER_CORE:g} W per core, doi:10.1002/advs.202100707,"
        if watts is None
        else "RAPL",
    )


class EnergyMeter:
    """Joules that the processors of this machine have used since it was made (RAPL).

    The counters are those of whole packages: what other programs use is in them.
    """

    def __init__(self, folder: Path = POWERCAP) -> None:
        self._folder = folder
        self._begin, self._watch = _read_counters(folder), Stopwatch()

    def joules(self) -> float | None:
        """Return the energy so far; None: the counters cannot be read."""
        now = _read_counters(self._folder)
        if not self._begin or now.keys() != self._begin.keys():
            return None
        total = 0
        for zone, (used, limit) in now.items():
            total += (used - self._begin[zone][0]) % limit
        return total / 1e6

    def watts(self) -> float | None:
        """Return the mean power so far; None: the counters cannot be read."""
        joules, seconds = self.joules(), self._watch.seconds
        return joules / seconds if joules and seconds > 0 else None


def _read_counters(folder: Path) -> Mapping[str, tuple[int, int]]:
    """Read microjoules, and where they begin anew, of each package."""
    found: dict[str, tuple[int, int]] = {}
    for zone in sorted(folder.glob("intel-rapl:*")):
        if zone.name.count(":") != 1:  # a part of a package
            continue
        try:
            used = int((zone / "energy_uj").read_text())
            limit = int((zone / "max_energy_range_uj").read_text())
        except (OSError, ValueError):  # only root may read them, since 2020
            return {}
        found[zone.name] = used, limit + 1
    return found


def _total_memory_bytes() -> int:
    return machine_memory.total_bytes() or 0


def _copy_bandwidth(n_bytes: int = 2**25, tries: int = 3) -> float:
    """Measure bytes per second of a copy, read and written: the best of some tries."""
    a = torch.zeros(n_bytes, dtype=torch.uint8)
    b = torch.empty_like(a).copy_(a)
    best = math.inf
    for _ in range(tries):
        watch = Stopwatch()
        b.copy_(a)
        best = min(best, watch.seconds)
    return 2 * n_bytes / max(best, 1e-9)
