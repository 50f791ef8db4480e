"""PlanOptions: the options of `plan`, in Python and on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from unmask.options import JobOptions, flag

if TYPE_CHECKING:
    from unmask.planning.hardware import Hardware
    from unmask.training.config import Recipe


@dataclass(frozen=True)
class PlanOptions(JobOptions):
    """The run to plan, and its devices."""

    model: str | Path | Recipe = field(metadata=flag(metavar="MODEL", is_argument=True))
    """Catalogue name (see `unmask models`), or a recipe file (.toml); in Python also a Recipe."""
    _: KW_ONLY
    hardware: str | Hardware = field(default="cpu", metadata=flag(metavar="NAME"))
    """Device: p100, v100, a100, h100, tpuv2, tpuv3, or cpu (this processor, measured); another name
    with --peak-tflops and --memory-gb."""
    peak_tflops: int | float | None = field(
        default=None, metadata=flag(shown_default="that of the device")
    )
    """Peak of one device's dense matrix products, in TFLOP/s (10^12)."""
    memory_gb: int | float | None = field(
        default=None, metadata=flag(shown_default="that of the device")
    )
    """Memory of one device, in GB (10^9 bytes)."""
    devices: int = 1
    """Number of devices."""
    strategy: Literal["single", "ddp", "fsdp"] | None = field(
        default=None, metadata=flag(shown_default="single, of several devices ddp")
    )
    """Parallelism of several devices: ddp (they share the batch) or fsdp (also weights, gradients
    and optimizer state)."""
    checkpoint_activations: bool = False
    """Activation checkpointing: only the inputs of layers are kept."""
    steps: int | None = field(default=None, metadata=flag(shown_default="that of the recipe"))
    """Number of optimizer steps."""
    tokens: int | None = None
    """Training length in tokens read, padding included; instead of `steps`."""
    sequence_length: int | None = field(
        default=None, metadata=flag(shown_default="that of the recipe")
    )
    """Maximum sequence length in tokens."""
    batch_tokens: int | None = field(
        default=None, metadata=flag(shown_default="that of the recipe")
    )
    """Batch size in tokens, over all devices."""
    micro_batch_tokens: int | None = field(
        default=None, metadata=flag(shown_default="that of the recipe")
    )
    """Tokens in one forward pass of one device."""
    objective: str | None = field(
        default=None, metadata=flag(metavar="NAME", shown_default="that of the model")
    )
    """Pretraining objective, e.g. mlm, clm, rtd, mlm:rate=0.3+nsp (docs/objectives.md)."""
    teacher: str | Path | Sequence[str | Path] = field(default=(), metadata=flag(metavar="MODEL"))
    """Teacher of distillation, whose forward passes and weights count as well."""
    precision: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """Floating-point precision of weights and activations; auto: bfloat16, where the device has it,
    or else float16 (mixed precision, of other software); on a CPU what it has instructions for."""
    utilization: int | float | None = field(
        default=None, metadata=flag(shown_default="0.4; this processor is measured")
    )
    """Share of the device's peak FLOP/s that training reaches, from 0 to 1; with it nothing is
    measured."""
    watts: int | float | None = field(
        default=None, metadata=flag(shown_default="thermal design power x load")
    )
    """Mean power of all devices together, in watts."""
    load: int | float | None = field(default=None, metadata=flag(shown_default="0.6, of a CPU 1"))
    """Mean power by thermal design power."""
    pue: int | float = 1.58
    """Power usage effectiveness of the data center; 1: of the devices alone."""
    grid_kg_per_kwh: int | float | None = field(
        default=None, metadata=flag("--grid", shown_default="0.433, United States")
    )
    """CO2e of the electricity, in kg per kWh."""
    price_per_hour: int | float | None = field(
        default=None, metadata=flag("--price", shown_default="that of the device, if known")
    )
    """Price of one device in US dollars per hour."""
    device_mtbf_hours: int | float | None = field(
        default=None, metadata=flag("--device-mtbf", shown_default="50,676, of several devices")
    )
    """Mean time between failures of one device, in hours, from which the interval between
    checkpoints follows."""
    checkpoint_seconds: int | float | None = field(
        default=None, metadata=flag(shown_default="that of its bytes at 1 GB/s")
    )
    """Time to write a checkpoint, in seconds."""
    restart_seconds: int | float = 600
    """Time from a failure to the next step, in seconds."""
    changes: Sequence[str | Mapping[str, Any]] = field(
        default=(), metadata=flag("--set", metavar="KEY=VALUE")
    )
    """Any other key of the recipe, e.g. optimizer.kind=Adafactor."""
