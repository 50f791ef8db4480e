"""What a run cost, beside what was planned for it."""

from collections.abc import Collection
from dataclasses import asdict, replace
from typing import Any

import torch

from unmask.heads.model import Model
from unmask.planning.hardware import HARDWARE, Hardware
from unmask.planning.plan import Plan, PlanSettings, device_energy, make_plan
from unmask.planning.rows import RowShape
from unmask.planning.this_machine import EnergyMeter, describe_this_cpu, resident_bytes
from unmask.training.config import Recipe
from unmask.training.device.distributed import World


class RunCost:
    """The cost of one process's part of a run: planned before its first step, then measured."""

    def __init__(self) -> None:
        self._meter: EnergyMeter | None = None
        self.planned: Plan | None = None
        """None: of the device nothing is known but its name."""

    def begin(
        self,
        model: Model,
        recipe: Recipe,
        shape: RowShape,
        world: World,
        peak_flops: int | float,
        teachers: Collection[Model] = (),
    ) -> None:
        """Plan the run as it is about to begin.

        Args:
            model: as it is in memory, its weights on the device.
            recipe: with the precision that was resolved.
            shape: of rows.
            world: the processes, and this one's device.
            peak_flops: FLOP/s of one device's matrix product, measured.
            teachers: models that it learns from.
        """
        self._meter = EnergyMeter()
        precision = recipe.precision
        hardware = _hardware_of(world.device, precision, peak_flops)
        if hardware is None:
            return
        settings = PlanSettings(
            hardware=hardware,
            n_devices=world.size,
            strategy="ddp" if world.size > 1 else "single",
            precision=precision,
        )
        planned = make_plan(model, recipe, shape, settings, teachers=teachers)
        if hardware.kind == "cpu":
            others = max(resident_bytes() - planned.memory.weights - planned.memory.teachers, 0)
            planned = replace(planned, memory=replace(planned.memory, process=others))
        self.planned = planned

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
            "utilization": plan.settings.peak_share,
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


def _energy_record(energy: Any) -> dict[str, Any]:
    return {
        "energy_joules": energy.kwh * 3.6e6,
        "watts": energy.watts,
        "power_source": energy.power_source,
        "co2e_kg": energy.co2e_kg,
        "price": energy.price,
    }


def _hardware_of(device: torch.device, precision: str, peak_flops: int | float) -> Hardware | None:
    """Return the device of a run; None: it is in no table."""
    if device.type == "cpu":
        return describe_this_cpu({precision: peak_flops})
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device).lower()
    known = next((one for one in HARDWARE.values() if one.name in name), None)
    if known is None:
        return None
    memory = torch.cuda.get_device_properties(device).total_memory
    return replace(known, peak_flops={precision: peak_flops}, memory_bytes=memory)
