"""What a run cost, beside what was planned for it.

The plan of a run rests on its first steps: their time, and the memory that they took. Before these,
and where a run is too short for any, it is computed.
"""

import re
import statistics
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import torch

from unmask.heads.model import Model
from unmask.planning.energy import Energy
from unmask.planning.hardware import HARDWARE, Hardware
from unmask.planning.plan import MeasuredStep, Plan, PlanSettings, device_energy, make_plan
from unmask.planning.rows import RowShape
from unmask.planning.this_machine import EnergyMeter, describe_this_cpu
from unmask.training.config import Recipe
from unmask.training.device.distributed import World
from unmask.training.device.memory import (
    peak_memory_bytes,
    resident_bytes,
    trim_freed_memory,
)

N_UNTIMED_STEPS = 2
"""First steps that allocate, warm caches and compile."""
_SHARE_OF_STEPS, _MIN_STEPS, _MAX_STEPS = 0.2, 3, 20
"""Steps after these on which a plan rests: a share of all, but from 3 to 20."""
_GROWTH_FACTOR, _MAX_GROWTH_SHARE = 1.5, 0.4
"""What glibc comes to keep beside a micro-batch on a CPU: so many times what it came to keep within
the steps that were seen, and at most this share of the micro-batch (docs/planning.md)."""


class RunCost:
    """The cost of one process's part of a run: planned by its first steps, then measured."""

    def __init__(self) -> None:
        self._meter: EnergyMeter | None = None
        self._device = torch.device("cpu")
        self._first_seconds: list[float] = []
        self._early_peak = 0
        self._has_evaluated = False
        self.planned: Plan | None = None
        """None: the run has not begun."""

    def begin(
        self,
        model: Model,
        recipe: Recipe,
        shape: RowShape,
        world: World,
        peak_flops: int | float,
        dev_tokens: int,
        teachers: Collection[Model] = (),
    ) -> None:
        """Compute a plan of the run as it is about to begin.

        Args:
            model: as it is in memory, its weights on the device.
            recipe: with the precision that was resolved.
            shape: of rows.
            world: the processes, and this one's device.
            peak_flops: FLOP/s of one device's matrix product, measured.
            dev_tokens: held-out tokens of an evaluation.
            teachers: models that it learns from.
        """
        self._meter, self._device = EnergyMeter(), world.device
        precision = recipe.precision
        hardware = _hardware_of(world.device, precision, peak_flops)
        settings = PlanSettings(
            hardware=hardware,
            n_devices=world.size,
            strategy="ddp" if world.size > 1 else "single",
            precision=precision,
        )
        planned = make_plan(
            model, recipe, shape, settings, teachers=teachers, dev_tokens=dev_tokens
        )
        if hardware.kind == "cpu":
            trim_freed_memory()
            others = max(resident_bytes() - planned.memory.weights - planned.memory.teachers, 0)
            planned = replace(planned, memory=replace(planned.memory, process=others))
        self.planned = planned

    def observe(self, seconds: int | float) -> None:
        """Take note of a step; after the first ones of this process, plan the run by them."""
        plan, seen = self.planned, self._first_seconds
        if plan is None:
            return
        n_timed = min(max(round(_SHARE_OF_STEPS * plan.steps), _MIN_STEPS), _MAX_STEPS)
        if len(seen) == N_UNTIMED_STEPS + n_timed:
            return
        seen.append(seconds)
        if len(seen) == N_UNTIMED_STEPS:
            self._early_peak = self._peak_bytes()
        if len(seen) < N_UNTIMED_STEPS + n_timed:
            return
        memory = plan.memory
        working = self._peak_bytes() - (memory.total - memory.working - memory.allocator)
        growth = _GROWTH_FACTOR * (self._peak_bytes() - self._early_peak) / max(working, 1)
        on_cpu = plan.settings.hardware.kind == "cpu"
        self.planned = plan.with_measured(
            MeasuredStep(
                seconds=statistics.median(seen[N_UNTIMED_STEPS:]),
                working_bytes=working if working > 0 else None,
                kept_share=min(growth, _MAX_GROWTH_SHARE) if on_cpu else 0.0,
                source=f"steps {N_UNTIMED_STEPS + 1} to {len(seen)}",
            )
        )

    def observe_evaluation(self, step: int) -> None:
        """Take note of an evaluation after a step; the first may need more memory than steps do."""
        plan = self.planned
        if plan is None or plan.measured is None or self._has_evaluated or step >= plan.steps:
            return
        self._has_evaluated = True
        more = self._peak_bytes() - plan.memory.total
        if more > 0:
            memory = replace(plan.memory, workspace=plan.memory.workspace + more)
            source = f"{plan.measured.source}, and the first evaluation"
            measured = replace(plan.measured, source=source)
            self.planned = replace(plan, memory=memory, measured=measured)

    def _peak_bytes(self) -> int:
        return peak_memory_bytes(self._device)

    def record(
        self, *, seconds: int | float, n_tokens: int, peak_memory_bytes: int
    ) -> dict[str, Any]:
        """Return the cost of the run, as plain data for `unmask.json`.

        Args:
            seconds: of all processes that worked on the run, one after another.
            n_tokens: read in training, without padding.
            peak_memory_bytes: the most that was held at once.
        """
        found: dict[str, Any] = {
            "seconds": seconds,
            "tokens": n_tokens,
            "tokens_per_second": n_tokens / seconds if seconds else 0.0,
            "peak_memory_bytes": peak_memory_bytes,
        }
        plan = self.planned
        if plan is None:
            return found
        watts = None if self._meter is None else self._meter.watts()
        settings = plan.settings
        if watts is not None and settings.hardware.kind == "cpu":
            own = replace(settings.hardware, watts=watts, power_source="RAPL")
            settings = replace(settings, hardware=own, load=1.0)
        energy = device_energy(settings, seconds / 3600)
        planned = {
            "seconds": plan.seconds,
            "tokens": plan.tokens,
            "tokens_per_second": plan.tokens_per_second,
            "flops": plan.flops,
            "memory_bytes": asdict(plan.memory) | {"total": plan.memory.total},
            "utilization": plan.peak_share,
            "measured_in": None if plan.measured is None else plan.measured.source,
        } | _energy_record(plan.energy)
        return (
            found
            | _energy_record(energy)
            | {
                "flops": plan.flops_per_token * n_tokens,
                "pue": settings.pue,
                "grid_kg_per_kwh": settings.grid_kg_per_kwh,
                "familiar": energy.familiar,
                "planned": planned,
            }
        )


def _energy_record(energy: Energy) -> dict[str, Any]:
    return {
        "energy_joules": None if energy.kwh is None else energy.kwh * 3.6e6,
        "watts": energy.watts,
        "power_source": energy.power_source,
        "co2e_kg": energy.co2e_kg,
        "price": energy.price,
    }


def _hardware_of(device: torch.device, precision: str, peak_flops: int | float) -> Hardware:
    """Return the device of a run; of one that is in no table, power and price are unknown."""
    if device.type == "cpu":
        return describe_this_cpu({precision: peak_flops})
    name, memory = device.type, 0
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        memory = torch.cuda.get_device_properties(device).total_memory
    return accelerator(name, {precision: peak_flops}, memory)


def accelerator(name: str, peak_flops: Mapping[str, int | float], memory_bytes: int) -> Hardware:
    """Return an accelerator by the name that its driver has for it, as it was measured."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    names = {*words, *map("".join, pairwise(words))}  # RTX 4090 is rtx4090
    known = next((one for one in HARDWARE.values() if one.name in names - {""}), None)
    if "laptop" in words:  # a slower chip of the same name
        known = None
    if known is None:
        return Hardware(
            name=name,
            kind="gpu",
            peak_flops=peak_flops,
            memory_bytes=memory_bytes,
            source="measured here",
        )
    return replace(known, peak_flops=peak_flops, memory_bytes=memory_bytes)
