"""Plan: what a pretraining run will cost on given devices."""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
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
from unmask.planning.interruptions import (
    CHECKPOINT_BYTES_PER_SECOND,
    DEFAULT_DEVICE_MTBF_HOURS,
    DEFAULT_RESTART_SECONDS,
    Interruptions,
)
from unmask.planning.memory import MemorySettings, Strategy, TrainingMemory, training_memory
from unmask.planning.rows import RowShape
from unmask.training.config import Recipe
from unmask.training.data.texts import MAX_DEV_TOKENS

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
    device_mtbf_hours: int | float | None = None
    """Mean time between failures of one device."""
    checkpoint_seconds: int | float | None = None
    """Of writing a checkpoint."""
    restart_seconds: int | float = DEFAULT_RESTART_SECONDS
    """From a failure to the next step."""

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
        limits = {"utilization": 1.0, "load": 2.0, "watts": math.inf, "restart_seconds": math.inf}
        limits |= {"device_mtbf_hours": math.inf, "checkpoint_seconds": math.inf}
        for name, most in limits.items():
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
    elif hardware.watts is None:
        watts, source = None, "unknown"
    else:
        watts = settings.n_devices * hardware.watts * load
        measured = hardware.power_source == "RAPL"
        source = "RAPL" if measured else f"{hardware.power_source} x load {load:g}"
    kwh = None if watts is None else energy_kwh(watts, hours, settings.pue)
    given = settings.price_per_hour
    rent = hardware.price_per_hour if given is None else given
    spot = hardware.spot_price_per_hour if given is None else given
    device_hours = settings.n_devices * hours
    return Energy(
        watts=watts,
        power_source=source,
        kwh=kwh,
        co2e_kg=None if kwh is None else co2e_kg(kwh, settings.grid_kg_per_kwh),
        price=None if rent is None else rent * device_hours,
        spot_price=None if spot is None else spot * device_hours,
    )


@dataclass(frozen=True, kw_only=True)
class MeasuredStep:
    """A training step as measured on the machine that is planned for."""

    seconds: int | float
    """Of one step of the run."""
    working_bytes: int | None = None
    """What a micro-batch allocates and frees. None: not measured."""
    kept_share: int | float = 0.0
    """What the allocator will keep beside it, as a share of it."""
    source: str
    """How it was measured: "the first 3 steps"."""


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
    step_seconds: int | float
    evaluation_steps: int | float = 0.0
    """Forward passes on held-out text before the last step ends, counted in steps."""
    measured: MeasuredStep | None = None
    """What time and memory rest on. None: they are computed."""
    energy: Energy
    notes: tuple[str, ...] = field(default=())

    @property
    def seconds(self) -> float:
        """Of all steps and of the evaluations between them."""
        return _run_seconds(self.step_seconds, self.steps, self.evaluation_steps)

    @property
    def flops(self) -> float:
        """Of the whole run."""
        return self.flops_per_token * self.tokens

    @property
    def peak_share(self) -> float:
        """Share of the peak FLOP/s that its steps reach."""
        if self.measured is None:
            return self.settings.peak_share
        peak = self.settings.n_devices * self.settings.hardware.peak(self.settings.precision)
        return self.flops / (self.steps * self.step_seconds * peak)

    def with_measured(self, step: MeasuredStep) -> "Plan":
        """Return the plan with the time, and if it is known the memory, of a measured step."""
        memory = self.memory
        if step.working_bytes is not None:
            memory = memory.with_working(step.working_bytes, step.kept_share)
        seconds = _run_seconds(step.seconds, self.steps, self.evaluation_steps)
        return replace(
            self,
            step_seconds=step.seconds,
            measured=step,
            memory=memory,
            energy=self.settings.energy(seconds / 3600),
        )

    @property
    def interruptions(self) -> Interruptions | None:
        """Failures of the devices; None: one device, whose rate was not given.

        A checkpoint has float32 weights and the optimizer's state. By fsdp every device writes its
        part, by ddp one writes all.
        """
        settings, n = self.settings, self.settings.n_devices
        hours = settings.device_mtbf_hours
        if n == 1 and hours is None:
            return None
        shards = n if settings.strategy == "fsdp" else 1
        own_bytes = 4 * self.parameters / shards + self.memory.optimizer
        return Interruptions(
            mtbf_seconds=(hours or DEFAULT_DEVICE_MTBF_HOURS) * 3600 / n,
            checkpoint_seconds=settings.checkpoint_seconds
            or own_bytes / CHECKPOINT_BYTES_PER_SECOND,
            restart_seconds=settings.restart_seconds,
        )

    @property
    def checkpoint_every(self) -> int | None:
        """The interval between checkpoints that costs least, in steps; None: see above."""
        found = self.interruptions
        return None if found is None else max(1, round(found.interval_seconds / self.step_seconds))

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
            "step_seconds": self.step_seconds,
            "utilization": self.peak_share,
            "measured": None if self.measured is None else asdict(self.measured),
            "tokens_per_second": self.tokens_per_second,
            "energy": asdict(self.energy) | {"familiar": self.energy.familiar},
            "pue": settings.pue,
            "grid_kg_per_kwh": settings.grid_kg_per_kwh,
            "interruptions": self._interruptions_record(),
            "notes": list(self.notes),
        }

    def _interruptions_record(self) -> dict[str, int | float] | None:
        found = self.interruptions
        if found is None or self.checkpoint_every is None:
            return None
        interval = self.checkpoint_every * self.step_seconds
        return asdict(found) | {
            "checkpoint_every": self.checkpoint_every,
            "interval_seconds": interval,
            "lost_share": found.lost_share(interval),
        }


def make_plan(
    model: Model,
    recipe: Recipe,
    shape: RowShape,
    settings: PlanSettings,
    *,
    teachers: Collection[Model] = (),
    dev_tokens: int = MAX_DEV_TOKENS,
) -> Plan:
    """Plan a run of a recipe.

    Args:
        model: the network with its heads, perhaps on the meta device.
        recipe: steps, batch size and optimizer.
        shape: of rows.
        settings: devices and what they cost.
        teachers: models that it learns from, in the precision that they compute in.
        dev_tokens: held-out tokens of an evaluation.

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
    step_seconds = _step_seconds(per_token * step_tokens, memory, settings)
    evaluated = _evaluation_steps(recipe, dev_tokens)
    seconds = _run_seconds(step_seconds, recipe.steps, evaluated)
    return Plan(
        model=recipe.model,
        settings=settings,
        shape=shape,
        parameters=model.parameter_count(),
        steps=recipe.steps,
        batch_tokens=recipe.batch_tokens,
        micro_batch_tokens=micro,
        tokens=recipe.steps * step_tokens,
        flops_per_token=per_token,
        memory=memory,
        step_seconds=step_seconds,
        evaluation_steps=evaluated,
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
    bandwidth = settings.hardware.bandwidth or math.inf
    return max(flops / settings.reached_flops, 2 * state / bandwidth)


def _evaluation_steps(recipe: Recipe, dev_tokens: int) -> float:
    """Count the evaluations before the end of the last step, and its own, in training steps.

    A forward pass is a third of a step. The last evaluation follows the last step.
    """
    n = (recipe.steps - 1) // recipe.evaluate_every if recipe.dev_fraction else 0
    between = n * dev_tokens / recipe.batch_tokens
    return (between + 1) / 3


def _run_seconds(step_seconds: int | float, steps: int, evaluation_steps: int | float) -> float:
    return float(step_seconds * (steps + evaluation_steps))
