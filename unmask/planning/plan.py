"""Plan: what a pretraining run will cost on given devices."""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from unmask.heads.model import Model
from unmask.planning.energy import (
    DEFAULT_GRID_KG_PER_KWH,
    DEFAULT_PUE,
    Energy,
    check_positive,
    co2e_kg,
    energy_kwh,
)
from unmask.planning.flops import compute_optimal_tokens, six_nd, training_flops_per_token
from unmask.planning.hardware import Hardware
from unmask.planning.memory import MemorySettings, Strategy, TrainingMemory, training_memory
from unmask.planning.rows import RowShape
from unmask.training.config import Recipe

DEFAULT_UTILIZATION: Mapping[str, int | float] = {"gpu": 0.4, "tpu": 0.4, "cpu": 0.33}
"""Share of the peak FLOP/s that training reaches: Chowdhery et al. 2022, arXiv:2204.02311, table 3,
has 21 to 46 % for models of 175 to 540 billion parameters; small models reach less. On a processor
0.29 to 0.34, by the logs of bert-tiny, bert-mini and gpt2-mini (docs/planning.md)."""
DEFAULT_LOAD: Mapping[str, int | float] = {"gpu": 0.6, "tpu": 0.6, "cpu": 1.0}
"""Mean power of a machine by the thermal design power of its accelerators: 0.59 to 0.63 in
table 3 of Strubell et al. 2019, for P100s and V100s; of processors Green Algorithms takes all."""
MAX_DEVICES = 10**6
MAX_PUE = 10.0


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """Devices, and what their hours cost; None: the default of the device."""

    hardware: Hardware
    n_devices: int = 1
    strategy: Strategy = "single"
    checkpoint_activations: bool = False
    precision: str = "bfloat16"
    utilization: int | float | None = None
    """Share of the peak FLOP/s."""
    watts: int | float | None = None
    """Mean power of all devices together."""
    load: int | float | None = None
    """Mean power by thermal design power."""
    pue: int | float = DEFAULT_PUE
    grid_kg_per_kwh: int | float = DEFAULT_GRID_KG_PER_KWH
    price_per_hour: int | float | None = None
    """Of one device, in US dollars."""
    process_bytes: int = 0
    """Memory of the program itself, where a device's memory is the machine's."""

    def __post_init__(self) -> None:
        """Refuse numbers that nothing can have.

        Raises:
            ValueError: a number is out of its range, or a strategy needs other devices.
        """
        if not 1 <= self.n_devices <= MAX_DEVICES:
            raise ValueError(f"devices must be from 1 to {MAX_DEVICES:,}, got {self.n_devices:,}")
        if self.strategy == "single" and self.n_devices > 1:
            raise ValueError(
                f"strategy: {self.n_devices} devices share a run by ddp or fsdp, got 'single'"
            )
        for name, most in (("utilization", 1.0), ("load", 2.0), ("watts", math.inf)):
            if (value := getattr(self, name)) is not None:
                check_positive(name, value, most)
        if not 1 <= self.pue <= MAX_PUE:
            raise ValueError(f"pue must be from 1 to {MAX_PUE:g}, got {self.pue:g}")
        for name in ("grid_kg_per_kwh", "price_per_hour"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} must be at least 0, got {value:g}")
        self.hardware.peak(self.precision)

    @property
    def peak_share(self) -> float:
        """Share of the peak FLOP/s that training reaches."""
        return self.utilization or DEFAULT_UTILIZATION[self.hardware.kind]

    @property
    def reached_flops(self) -> float:
        """FLOP/s that all devices reach in training."""
        return self.n_devices * self.hardware.peak(self.precision) * self.peak_share

    def energy(self, hours: int | float) -> Energy:
        """Return the energy, CO2e and price of so many hours of all devices."""
        return device_energy(self, hours)


def device_energy(settings: PlanSettings, hours: int | float) -> Energy:
    """Return the energy, CO2e and price of all devices for so many hours."""
    hardware = settings.hardware
    load = settings.load or DEFAULT_LOAD[hardware.kind]
    if settings.watts is not None:
        watts, source = settings.watts, "given"
    else:
        watts = settings.n_devices * hardware.watts * load
        measured = hardware.power_source == "RAPL"
        source = "RAPL" if measured else f"{hardware.power_source} x load {load:g}"
    kwh = energy_kwh(watts, hours, settings.pue)
    given = settings.price_per_hour
    rent = hardware.price_per_hour if given is None else given
    spot = hardware.spot_price_per_hour if given is None else given
    device_hours = settings.n_devices * hours
    return Energy(
        watts=watts,
        power_source=source,
        kwh=kwh,
        co2e_kg=co2e_kg(kwh, settings.grid_kg_per_kwh),
        price=None if rent is None else rent * device_hours,
        spot_price=None if spot is None else spot * device_hours,
    )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run will cost."""

    model: str
    settings: PlanSettings
    shape: RowShape
    parameters: int
    steps: int
    batch_tokens: int
    """Positions of the stack that reads texts, in a step, padding included."""
    micro_batch_tokens: int
    """Likewise, in one forward of one device."""
    tokens: int | float
    """Read in all steps, of both stacks, padding included."""
    flops_per_token: int | float
    """Of a training step."""
    memory: TrainingMemory
    """Of each device."""
    seconds: int | float
    energy: Energy
    notes: tuple[str, ...] = field(default=())

    @property
    def flops(self) -> float:
        """Of the whole run."""
        return self.flops_per_token * self.tokens

    @property
    def tokens_per_second(self) -> float:
        """Read by all devices together."""
        return self.tokens / self.seconds

    @property
    def fits(self) -> bool:
        """Whether a device has as much memory."""
        return self.memory.total <= self.settings.hardware.memory_bytes

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain data, in bytes, seconds, kWh, kg and US dollars."""
        settings, hardware = self.settings, self.settings.hardware
        return {
            "model": self.model,
            "parameters": self.parameters,
            "hardware": asdict(hardware),
            "devices": settings.n_devices,
            "strategy": settings.strategy,
            "checkpoint_activations": settings.checkpoint_activations,
            "precision": settings.precision,
            "rows": asdict(self.shape),
            "steps": self.steps,
            "batch_tokens": self.batch_tokens,
            "micro_batch_tokens": self.micro_batch_tokens,
            "tokens": self.tokens,
            "flops_per_token": self.flops_per_token,
            "flops": self.flops,
            "flops_6nd": six_nd(self.parameters, self.tokens),
            "compute_optimal_tokens": compute_optimal_tokens(self.parameters),
            "memory_bytes": asdict(self.memory) | {"total": self.memory.total},
            "fits": self.fits,
            "seconds": self.seconds,
            "tokens_per_second": self.tokens_per_second,
            "energy": asdict(self.energy) | {"familiar": self.energy.familiar},
            "pue": settings.pue,
            "grid_kg_per_kwh": settings.grid_kg_per_kwh,
            "notes": list(self.notes),
        }


def make_plan(
    model: Model,
    recipe: Recipe,
    shape: RowShape,
    settings: PlanSettings,
    *,
    teachers: Collection[Model] = (),
    name: str = "",
) -> Plan:
    """Plan a run of a recipe.

    Args:
        model: the network with its heads, perhaps on the meta device.
        recipe: steps, batch size and optimizer.
        shape: of rows.
        settings: devices and what they cost.
        teachers: models that it learns from, in the precision that they compute in.
        name: of the model; by default the recipe's.

    Raises:
        ValueError: the network has no steps of matrix products, as word vectors have none.
    """
    per_token = training_flops_per_token(model, shape.length, shape.target_fraction, teachers)
    if per_token <= 0:
        raise ValueError(f"model: {recipe.model} has no network whose cost can be counted")
    own_batch = recipe.batch_tokens // settings.n_devices
    most = min(recipe.micro_batch_tokens or own_batch, own_batch)
    micro = max(most // shape.length, 1) * shape.length
    memory = training_memory(
        model,
        recipe.optimizer,
        shape,
        micro,
        MemorySettings(
            precision=settings.precision,
            strategy=settings.strategy,
            n_devices=settings.n_devices,
            checkpoint_activations=settings.checkpoint_activations,
            on_cpu=settings.hardware.kind == "cpu",
            process_bytes=settings.process_bytes,
        ),
        teachers,
    )
    step_tokens = recipe.batch_tokens * shape.tokens_per_position
    seconds = recipe.steps * _step_seconds(per_token * step_tokens, memory, settings)
    return Plan(
        model=name or recipe.model,
        settings=settings,
        shape=shape,
        parameters=model.parameter_count(),
        steps=recipe.steps,
        batch_tokens=recipe.batch_tokens,
        micro_batch_tokens=micro,
        tokens=recipe.steps * step_tokens,
        flops_per_token=per_token,
        memory=memory,
        seconds=seconds,
        energy=settings.energy(seconds / 3600),
    )


def _step_seconds(flops: int | float, memory: TrainingMemory, settings: PlanSettings) -> float:
    """Return the seconds of a step: of its products, but not less than its state takes to pass.

    Activations computed twice cost a third more: four forwards' worth instead of three (Chen et al.
    2016, section 4.4).
    """
    if settings.checkpoint_activations:
        flops *= 4 / 3
    state = memory.weights + memory.gradients + memory.optimizer
    return max(flops / settings.reached_flops, 2 * state / settings.hardware.bandwidth)
