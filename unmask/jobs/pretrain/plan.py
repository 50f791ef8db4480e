"""The planned cost of a pretraining run."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from unmask.compression.distillation.teacher import load_teachers
from unmask.compression.options import CompressionOptions, distillation
from unmask.config import to_dict
from unmask.jobs.options.plan import PlanOptions
from unmask.jobs.pretrain.apply_recipe import apply_recipe
from unmask.jobs.pretrain.data.planned_rows import PlannedRows, make_planned_rows
from unmask.jobs.pretrain.network import freeze_parameters
from unmask.jobs.pretrain.recipe_defaults import keys_of_changes
from unmask.jobs.pretrain.resolve_options import (
    check_run_numbers,
    drop_unsupported,
    resolve_recipe,
    with_run_length,
)
from unmask.options import takes_options
from unmask.planning.energy import DEFAULT_GRID_KG_PER_KWH, FAMILIAR_CO2E_KG
from unmask.planning.flops import compute_optimal_tokens, six_nd, training_flops_per_token
from unmask.planning.hardware import THIS_CPU, Hardware, get_hardware
from unmask.planning.memory import KEPT_SHARE
from unmask.planning.plan import MeasuredStep, Plan, PlanSettings, make_plan
from unmask.planning.this_machine import PROGRAM_BYTES, RUN_PROCESS_BYTES, measure_this_cpu
from unmask.planning.trial import (
    MAX_FIRST_SECONDS,
    MAX_ROW_SECONDS,
    MAX_STEP_SECONDS,
    try_training,
)
from unmask.reports.formatting import (
    NARROW_SPACE,
    format_bytes,
    format_energy,
    format_number,
    format_percent,
    format_seconds,
    format_si,
)
from unmask.training.config import Recipe
from unmask.training.device import distributed
from unmask.training.device.activation_memory import free_memory_bytes
from unmask.word_vectors.train.trainer import WORD_VECTOR_METHODS
from unmask.zoo.catalogue import get_preset


@takes_options(PlanOptions)
def plan(options: PlanOptions) -> Plan:
    """Plan a pretraining run: FLOPs, memory by part, time, energy, CO2e and price.

    The shapes of rows are counted on some of the bundled text, or on pictures of noise. For this
    processor, a network of which some steps take a few seconds is trained on them for so long, and
    time and memory are those that were measured; of other hardware and larger networks they are
    computed, no weight is allocated, and `notes` says why. The fields of `PlanOptions` are its
    keywords.

    Raises:
        ValueError: a name, key or number is not allowed, or the model has no network (word
            vectors).
    """
    recipe = _resolve(options)
    preset = apply_recipe(get_preset(recipe.model), recipe)
    objective = preset.objective
    if isinstance(objective, WORD_VECTOR_METHODS):
        raise ValueError(
            f"model: {recipe.model} learns word vectors, which have no network to plan; "
            "unmask pretrain reports their speed"
        )
    settings = plan_settings(options, recipe)
    with TemporaryDirectory() as folder:
        rows = make_planned_rows(recipe, preset, objective, Path(folder))
        return _plan_rows(options, recipe, settings, rows)


def _plan_rows(
    options: PlanOptions, recipe: Recipe, settings: PlanSettings, rows: PlannedRows
) -> Plan:
    """Plan a run whose rows are like some."""
    preset, shape = rows.preset, rows.shape
    if recipe.vocab_size is not None:
        preset = rows.with_vocabulary(recipe.vocab_size)
    with torch.device("meta"):
        model = preset.build()
    freeze_parameters(model, recipe.frozen)
    given = recipe.distillation
    teachers = [] if given is None else [one.model for one in load_teachers(given)]
    made = make_plan(model, recipe, shape, settings, teachers=teachers)
    if options.hardware != THIS_CPU or options.utilization is not None:
        return made
    if (reason := _too_large(made)) is not None:
        return replace(made, notes=(reason,))
    return made.with_measured(_measure_step(made, recipe, replace(rows, preset=preset)))


def _too_large(computed: Plan) -> str | None:
    """Return why a network is not tried on this processor; None: it is."""
    positions = computed.batch_tokens // computed.settings.n_devices
    row_seconds = computed.step_seconds * computed.shape.length / positions
    if row_seconds > MAX_ROW_SECONDS:
        return (
            f"computed, not measured: a step with one row of {computed.shape.length:,} tokens "
            f"takes more than {MAX_ROW_SECONDS:g} seconds here"
        )
    needed, free = computed.memory.total, free_memory_bytes(torch.device("cpu"))
    if free is not None and needed > free:
        return (
            f"computed, not measured: it needs {format_bytes(needed)}, and {format_bytes(free)} "
            "are free here"
        )
    return None


def _measure_step(computed: Plan, recipe: Recipe, rows: PlannedRows) -> MeasuredStep:
    """Train the network for a few steps on some rows, and scale what was measured.

    A step of the run has the time of its positions, and one update; a micro-batch the memory of the
    trial's, by the ratio of what is computed for both.
    """
    shape, settings = computed.shape, computed.settings
    own_preset = rows.with_vocabulary(rows.preset.architecture.vocab_size)
    objective = own_preset.objective
    assert not isinstance(objective, WORD_VECTOR_METHODS)
    large = _trial_recipe(recipe, computed, MAX_FIRST_SECONDS)
    small = _trial_recipe(recipe, computed, MAX_STEP_SECONDS)
    with torch.random.fork_rng():
        model = own_preset.build().initialize(recipe.seed)
        freeze_parameters(model, recipe.frozen)
        data, first = (rows.training_data(one, objective) for one in (small, large))
        trial = try_training(model, small, first.batches, data.batches)
    flops = training_flops_per_token(model, shape.length, shape.target_fraction)
    ratio = computed.flops_per_token / flops * (4 / 3 if settings.checkpoint_activations else 1)
    single = replace(settings, n_devices=1, strategy="single")
    counted = make_plan(model, large, shape, single).memory.working
    working = trial.working_bytes
    return MeasuredStep(
        seconds=trial.step_seconds(ratio * computed.batch_tokens / settings.n_devices),
        working_bytes=working and round(working * computed.memory.working / counted),
        kept_share=KEPT_SHARE,
        source=f"{trial.n_steps} steps of {trial.positions:,} positions here",
    )


def _trial_recipe(recipe: Recipe, computed: Plan, max_seconds: float) -> Recipe:
    """Return the recipe of steps of one micro-batch, of as many rows as fit into the seconds."""
    shape, settings = computed.shape, computed.settings
    own = computed.batch_tokens / settings.n_devices
    fitting = min(computed.micro_batch_tokens, int(max_seconds / computed.step_seconds * own))
    return replace(
        recipe, batch_tokens=max(fitting // shape.length, 1) * shape.length, distillation=None,
        micro_batch_tokens=None, precision=settings.precision, data=(), tokenizer=None,
        sampling_exponent=1.0, source_weights={}, dev_fraction=0.0,
    )  # fmt: skip


def _resolve(options: PlanOptions) -> Recipe:
    """Return the requested recipe, as `pretrain` does."""
    check_run_numbers(steps=options.steps, tokens=options.tokens)
    own = {
        name: value
        for name in ("steps", "sequence_length", "batch_tokens", "micro_batch_tokens", "objective")
        if (value := getattr(options, name)) is not None
    }
    given = distillation(CompressionOptions(teacher=options.teacher))
    if given is not None:
        own["distillation"] = to_dict(given)
    changes = [*options.changes, own]
    recipe = resolve_recipe(options.model, changes)
    if options.tokens is not None:
        recipe = with_run_length(recipe, math.ceil(options.tokens / recipe.batch_tokens))
    return drop_unsupported(recipe, keys_of_changes(changes))[0]


def plan_settings(options: PlanOptions, recipe: Recipe) -> PlanSettings:
    """Return the devices of a plan; this processor is measured."""
    precision = options.precision if options.precision != "auto" else recipe.precision
    is_chosen = options.precision != "auto"
    hardware = options.hardware
    on_this_machine = hardware == THIS_CPU
    if on_this_machine:
        if precision == "float16":
            raise ValueError("precision: this processor trains in float32 or bfloat16, not float16")
        if options.peak_tflops is not None or options.memory_gb is not None:
            raise ValueError(
                "peak_tflops and memory_gb are of other hardware; cpu is this one, and measured"
            )
        distributed.set_threads()
        precision = distributed.resolve_precision(precision, torch.device("cpu"))
        hardware = measure_this_cpu(precision)
    elif not isinstance(hardware, Hardware):
        hardware = get_hardware(hardware, options.peak_tflops, options.memory_gb)
    if precision == "auto" or not (is_chosen or precision in hardware.peak_flops):
        precision = hardware.best_precision
    given = options.grid_kg_per_kwh
    return PlanSettings(
        hardware=hardware,
        n_devices=options.devices,
        strategy=options.strategy or ("ddp" if options.devices > 1 else "single"),
        checkpoint_activations=options.checkpoint_activations,
        precision=precision,
        utilization=options.utilization,
        watts=options.watts,
        load=options.load,
        pue=options.pue,
        grid_kg_per_kwh=DEFAULT_GRID_KG_PER_KWH if given is None else given,
        price_per_hour=options.price_per_hour,
        device_mtbf_hours=options.device_mtbf_hours,
        checkpoint_seconds=options.checkpoint_seconds,
        restart_seconds=options.restart_seconds,
        process_bytes=PROGRAM_BYTES + RUN_PROCESS_BYTES if hardware.kind == "cpu" else 0,
    )


def format_plan(plan: Plan) -> Iterator[str]:
    """Format a plan as lines for a terminal."""
    for name, text in _rows(plan):
        yield f"{name:16}{text}".replace(NARROW_SPACE, " ")


def _rows(plan: Plan) -> Iterator[tuple[str, str]]:
    settings, memory, energy = plan.settings, plan.memory, plan.energy
    hardware = settings.hardware
    several = f"{settings.n_devices:,} x " if settings.n_devices > 1 else ""
    yield "model", f"{plan.model}, {plan.parameters:,} parameters"
    yield (
        "hardware",
        f"{several}{hardware.name}, {format_si(hardware.peak(settings.precision))}FLOP/s in "
        f"{settings.precision}, {_strategy(settings)} ({hardware.source})",
    )
    yield (
        "steps",
        f"{plan.steps:,} of {plan.batch_tokens:,} positions, "
        f"{plan.micro_batch_tokens:,} at a time on a device; {format_si(plan.tokens)} tokens",
    )
    yield (
        "computation",
        f"{format_si(plan.flops)}FLOP, {format_si(plan.flops_per_token)}FLOP a token "
        f"(6ND: {format_si(six_nd(plan.parameters, plan.tokens))}FLOP)",
    )
    parts: dict[str, Any] = {
        name: getattr(memory, name)
        for name in (
            "weights", "gradients", "optimizer", "activations", "workspace", "allocator",
            "teachers", "process",
        )
    }  # fmt: skip
    shown = ", ".join(f"{name} {format_bytes(n)}" for name, n in parts.items() if n)
    fits = "fits" if plan.fits else "DOES NOT FIT"
    of = f"{fits} into {format_bytes(hardware.memory_bytes)}"
    yield "memory", f"{format_bytes(memory.total)} a device, {of}: {shown}"
    yield (
        "time",
        f"{format_seconds(plan.seconds)}, {format_si(plan.tokens_per_second)} tokens/s, at "
        f"{format_percent(plan.peak_share, 0)} of the peak"
        + (f", measured in {plan.measured.source}" if plan.measured else _share_note(settings)),
    )
    for note in plan.notes:
        yield "", note
    if energy.watts is None or energy.kwh is None or energy.co2e_kg is None:
        yield "energy", "unknown: give --watts, the mean power of all devices"
    else:
        yield (
            "energy",
            f"{format_energy(energy.kwh * 3.6e6)}: {format_number(energy.watts)} W "
            f"({energy.power_source}) x PUE {settings.pue:g}",
        )
        yield "CO2e", f"{format_number(energy.co2e_kg)} kg, {_familiar(energy.co2e_kg)}"
    yield "price", _price(plan)
    if (text := _checkpoints(plan)) is not None:
        yield "checkpoints", text
    optimal = compute_optimal_tokens(plan.parameters)
    yield (
        "advice",
        f"a compute-optimal decoder of this size reads {format_si(optimal)} tokens "
        f"(arXiv:2203.15556); this run, {format_si(plan.tokens)}",
    )


def _share_note(settings: PlanSettings) -> str:
    return ", which is assumed: give --utilization" if settings.utilization is None else ""


def _checkpoints(plan: Plan) -> str | None:
    """Say how often to write checkpoints, and what failures cost then; None: of one device."""
    found, every = plan.interruptions, plan.checkpoint_every
    if found is None or every is None:
        return None
    interval = every * plan.step_seconds
    return (
        f"every {format_seconds(interval)} (--checkpoint-every {every}): a failure every "
        f"{format_seconds(found.mtbf_seconds)}, {format_seconds(found.checkpoint_seconds)} to "
        f"write one, {format_seconds(found.restart_seconds)} to restart; "
        f"{format_percent(found.lost_share(interval))} of the time is lost (Daly 2006)"
    )


def _strategy(settings: PlanSettings) -> str:
    return settings.strategy + (
        " with activation checkpointing" if settings.checkpoint_activations else ""
    )


def _familiar(kg: float) -> str:
    """Compare with the smallest familiar consumption that is larger, or the largest."""
    larger = [(name, x) for name, x in FAMILIAR_CO2E_KG.items() if x >= kg]
    name, amount = larger[0] if larger else list(FAMILIAR_CO2E_KG.items())[-1]
    return f"{format_number(kg / amount)} of {name}"


def _price(plan: Plan) -> str:
    energy = plan.energy
    if energy.price is None:
        return "unknown: give --price, in US dollars per device and hour"
    if energy.spot_price is None or energy.spot_price == energy.price:
        return f"${energy.price:,.2f}"
    return f"${energy.spot_price:,.2f} (spot) to ${energy.price:,.2f} (on demand)"
