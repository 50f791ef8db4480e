"""Devices as data: peak FLOP/s, memory, power and price of one, each with its source."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from unmask.config import near_hint
from unmask.planning.energy import check_positive

ITEM_BYTES: Mapping[str, int] = {"bfloat16": 2, "float16": 2, "float32": 4}
"""Of a weight or an activation, by precision; those that are faster come first."""
THIS_CPU = "cpu"
"""Name of the processor that plans, whose peak is measured."""
GB = 10**9
TERA = 1e12


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """One device: an accelerator, a TPU chip, or the processor of a machine."""

    name: str
    kind: Literal["gpu", "tpu", "cpu"]
    peak_flops: Mapping[str, int | float]
    """FLOP/s of dense matrix products by precision: float32, bfloat16, float16. A device without
    bfloat16 has float16 (mixed precision) in its place."""
    memory_bytes: int
    bandwidth: int | float | None = None
    """Of its memory, in bytes per second. None: unknown."""
    watts: int | float | None = None
    """Thermal design power. None: unknown."""
    price_per_hour: int | float | None = None
    """Rent in US dollars, on demand. None: unknown."""
    spot_price_per_hour: int | float | None = None
    """Rent in US dollars where it may be taken away. None: unknown."""
    source: str = ""
    """Where the numbers are from."""
    power_source: str = field(default="thermal design power")
    """What `watts` is."""

    @property
    def best_precision(self) -> str:
        """The first of `ITEM_BYTES` that it has a peak for."""
        return next(name for name in ITEM_BYTES if name in self.peak_flops)

    def peak(self, precision: str) -> float:
        """Return the peak FLOP/s in a precision.

        Raises:
            ValueError: the device has none for it.
        """
        if precision not in self.peak_flops:
            raise ValueError(
                f"precision: {self.name} has a peak for {', '.join(self.peak_flops)}, got "
                f"{precision!r}"
            )
        return self.peak_flops[precision]


HARDWARE: Mapping[str, Hardware] = {
    one.name: one
    for one in (
        Hardware(
            name="p100",
            kind="gpu",
            peak_flops={"float32": 10.6 * TERA, "float16": 21.2 * TERA},
            memory_bytes=16 * GB,
            bandwidth=732e9,
            watts=300,
            price_per_hour=1.46,
            spot_price_per_hour=0.43,
            source="NVIDIA Tesla P100 SXM2 data sheet (2016); Google Cloud prices of 2019, which "
            "table 3 of arXiv:1906.02243 implies",
        ),
        Hardware(
            name="v100",
            kind="gpu",
            peak_flops={"float32": 15.7 * TERA, "float16": 125 * TERA},
            memory_bytes=32 * GB,
            bandwidth=900e9,
            watts=300,
            price_per_hour=2.48,
            spot_price_per_hour=0.74,
            source="NVIDIA V100 SXM2 data sheet (2017); Google Cloud prices of 2019, which table 3 "
            "of arXiv:1906.02243 implies",
        ),
        Hardware(
            name="a100",
            kind="gpu",
            peak_flops={"float32": 19.5 * TERA, "bfloat16": 312 * TERA},
            memory_bytes=80 * GB,
            bandwidth=2039e9,
            watts=400,
            price_per_hour=40.97 / 8,
            source="NVIDIA A100 80 GB SXM data sheet (2021), dense; an eighth of the price of AWS "
            "p4de.24xlarge in 2022",
        ),
        Hardware(
            name="h100",
            kind="gpu",
            peak_flops={"float32": 67 * TERA, "bfloat16": 989 * TERA},
            memory_bytes=80 * GB,
            bandwidth=3350e9,
            watts=700,
            price_per_hour=98.32 / 8,
            source="NVIDIA H100 SXM data sheet (2023), dense; an eighth of the price of AWS "
            "p5.48xlarge in 2023",
        ),
        Hardware(
            name="tpuv2",
            kind="tpu",
            peak_flops={"bfloat16": 46 * TERA},
            memory_bytes=16 * GB,
            bandwidth=700e9,
            watts=280,
            price_per_hour=4.50 / 4,
            spot_price_per_hour=1.35 / 4,
            source="one chip: Jouppi et al. 2020, doi:10.1145/3360307, table 3; a quarter of the "
            "price of a Cloud TPU v2-8 in 2019",
        ),
        Hardware(
            name="tpuv3",
            kind="tpu",
            peak_flops={"bfloat16": 123 * TERA},
            memory_bytes=32 * GB,
            bandwidth=900e9,
            watts=450,
            price_per_hour=8.00 / 4,
            spot_price_per_hour=2.40 / 4,
            source="one chip: Jouppi et al. 2020, doi:10.1145/3360307, table 3; a quarter of the "
            "price of a Cloud TPU v3-8 in 2019",
        ),
        *(
            Hardware(
                name=name,
                kind="gpu",
                peak_flops={"float32": float32 * TERA, half: peak * TERA},
                memory_bytes=memory * GB,
                bandwidth=bandwidth * 1e9,
                watts=watts,
                source=f"NVIDIA {source}, dense",
            )
            for name, half, float32, peak, memory, bandwidth, watts, source in (
                ("h200", "bfloat16", 67, 989, 141, 4800, 700, "H200 SXM data sheet (2024)"),
                ("b200", "bfloat16", 75, 2250, 180, 7700, 1000, "HGX B200 data sheet (2025) / 8"),
                ("l4", "bfloat16", 30.3, 121, 24, 300, 72, "L4 data sheet (2023)"),
                ("t4", "float16", 8.1, 65, 16, 320, 70, "T4 data sheet (2018)"),
                ("rtx4090", "bfloat16", 82.6, 165.2, 24, 1008, 450, "Ada architecture (2022)"),
                ("rtx3090", "bfloat16", 35.6, 71, 24, 936, 350, "GA102 architecture (2020)"),
            )
        ),
        *(
            Hardware(
                name=chip,
                kind="gpu",
                peak_flops={"float32": cores * 256 * clock * 1e9},
                memory_bytes=memory * GB,
                bandwidth=bandwidth * 1e9,
                watts=watts,
                source=f"{cores} cores x 128 units x 2 FLOP x {clock:g} GHz; its largest memory "
                "is shared with the processor (--memory-gb gives another)",
                power_source="maximum of the whole computer, by Apple,",
            )
            for chip, cores, clock, memory, bandwidth, watts in (
                ("m1", 8, 1.278, 16, 68, 39),
                ("m1-max", 32, 1.296, 64, 400, 115),
                ("m2", 10, 1.398, 24, 100, 50),
                ("m2-max", 38, 1.398, 96, 400, 145),
                ("m3-ultra", 80, 1.398, 512, 819, 270),
                ("m4", 10, 1.578, 32, 120, 65),
                ("m4-max", 40, 1.578, 128, 546, 145),
            )
        ),
    )
}
"""Devices by name. Prices are those of the year in `source`; give today's where it matters."""

CPU_WATTS_PER_CORE = 12.0
"""Of a processor that is not known better (Lannelongue et al. 2021, doi:10.1002/advs.202100707,
Green Algorithms, its default per core)."""


def get_hardware(
    name: str, peak_tflops: int | float | None = None, memory_gb: int | float | None = None
) -> Hardware:
    """Return a device of the table, or one of another name whose peak and memory are given.

    Args:
        name: of the device.
        peak_tflops: TFLOP/s of its dense matrix products, in any precision. None: of the table.
        memory_gb: its memory in units of 10^9 bytes. None: of the table.

    Raises:
        ValueError: the table has none of that name and its numbers are not given; all names are
            listed; or a number is not above 0.

    >>> get_hardware("v100").watts
    300
    >>> get_hardware("rtx5090", peak_tflops=210, memory_gb=32).memory_bytes
    32000000000
    """
    for option, value in (("peak_tflops", peak_tflops), ("memory_gb", memory_gb)):
        if value is not None:
            check_positive(option, value)
    known = HARDWARE.get(name)
    if known is None and (peak_tflops is None or memory_gb is None):
        hint = near_hint(name, HARDWARE)
        raise ValueError(
            f"hardware must be one of {', '.join((THIS_CPU, *HARDWARE))}, or another name with "
            f"--peak-tflops and --memory-gb (and --watts, --price), got {name!r}{hint}"
        )
    device = known or Hardware(name=name, kind="gpu", peak_flops={}, memory_bytes=0, source="given")
    if peak_tflops is not None:
        peaks = dict.fromkeys(known.peak_flops if known else ITEM_BYTES, peak_tflops * TERA)
        device = replace(device, peak_flops=peaks)
    if memory_gb is not None:
        device = replace(device, memory_bytes=round(memory_gb * GB))
    return device
