"""The machine: device, precision, threads, peak; and the processes that share a run."""

import json
import math
import os
import platform
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch import distributed as dist

from unmask.options import Precision
from unmask.training.device.meeting import join_store
from unmask.training.device.shared_cores import share_cores
from unmask.training.device.stopwatch import Stopwatch

Strategy = Literal["ddp", "fsdp"]
"""What processes share: the batch, or the batch and all training state."""

_MESSAGE_BYTES = 1 << 14
"""Bytes in which each process tells the others a few numbers."""
_MAX_MATMULS = 10_000
"""Of a measurement, which a clock that stands still would not end."""


@dataclass(frozen=True)
class World:
    """The processes that share a run, of which this is one. By default there is no other."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    strategy: Strategy = "ddp"

    @property
    def is_sharded(self) -> bool:
        """Whether weights, gradients and optimizer state are divided among the processes."""
        return self.strategy == "fsdp" and self.size > 1

    def all_reduce_sum(self, tensor: Float[Tensor, "..."]) -> None:
        """Replace a tensor by its sum over all processes."""
        if self.size > 1:
            dist.all_reduce(tensor)

    def sum_by_name(self, numbers: Mapping[str, int | float]) -> dict[str, int | float]:
        """Sum numbers by name over all processes; a process that lacks a name adds nothing to it.

        Every process sums in the same order, so all get the same numbers, bit for bit.
        """
        result: dict[str, int | float] = {}
        for part in self.all_gather_object(dict(numbers)):
            for name, number in part.items():
                result[name] = result.get(name, 0) + number
        return result

    def all_gather_object(self, value: Any) -> list[Any]:
        """Gather a small value (plain data) of each process on all processes, by rank."""
        if self.size == 1:
            return [value]
        data = json.dumps(value).encode()
        if len(data) > _MESSAGE_BYTES - 4:
            raise ValueError(f"{len(data)} bytes are too much for processes to tell each other")
        mine = torch.zeros(_MESSAGE_BYTES, dtype=torch.uint8)
        mine[:4] = torch.frombuffer(bytearray(len(data).to_bytes(4, "little")), dtype=torch.uint8)
        mine[4 : 4 + len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        mine = mine.to(self.device)
        everyone = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(everyone, mine)
        return [_decode_message(box.cpu()) for box in everyone]

    def all_gather_tensors(self, tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
        """Gather the tensors of each process on all processes, by rank."""
        if self.size == 1:
            return [dict(tensors)]
        forms = self.all_gather_object(
            {n: [str(x.dtype).removeprefix("torch."), *x.shape] for n, x in tensors.items()}
        )
        result: list[dict[str, Tensor]] = []
        for rank, form in enumerate(forms):
            own = {
                name: tensors[name].contiguous()
                if rank == self.rank
                else torch.empty(shape, dtype=getattr(torch, dtype), device=self.device)
                for name, (dtype, *shape) in form.items()
            }
            for tensor in own.values():
                dist.broadcast(tensor, rank)
            result.append(own)
        return result

    def broadcast_object(self, value: Any) -> Any:
        """Broadcast a value of the first process: a path, a number of steps."""
        return self.all_gather_object(value if self.rank == 0 else None)[0]


def _decode_message(message: Tensor) -> Any:
    data = bytes(message.tolist())
    return json.loads(data[4 : 4 + int.from_bytes(data[:4], "little")])


@contextmanager
def process_group(device: str = "auto", strategy: Strategy = "ddp") -> Generator[World, None, None]:
    """Join the processes that torchrun started, if it did; leave them at the end.

    Data parallelism: gradients are summed over processes, each of which holds the whole model
    (ddp), or a part of it (fsdp). A group that the program has joined before is used, and kept.

    Raises:
        ConnectionError: another process has ended.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    here = resolve_device(device, local)
    if here.type == "cuda":
        _use_deterministic_kernels()
    if size == 1:
        yield World(device=here, strategy=strategy)
        return
    if here.type == "cuda":
        torch.cuda.set_device(here)
    is_mine = not dist.is_initialized()
    if is_mine:
        backend = "nccl" if here.type == "cuda" else "gloo"
        rank = int(os.environ["RANK"])
        dist.init_process_group(backend, store=join_store(rank, size), rank=rank, world_size=size)
    try:
        yield World(dist.get_rank(), dist.get_world_size(), here, strategy)
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise ConnectionError(
                "another process of this run has ended or cannot be reached; its message says why"
            ) from error
        raise
    finally:
        if is_mine:
            dist.destroy_process_group()


def was_restarted() -> bool:
    """Return whether torchrun has started this process again, after one of its processes failed."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def _use_deterministic_kernels() -> None:
    """Select deterministic kernels on an accelerator, which exact resumption needs.

    A CPU is deterministic given the number of threads.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.enable_cudnn_sdp(False)  # its backward adds in any order, and only warns
    torch.utils.deterministic.fill_uninitialized_memory = False  # pyright: ignore[reportAttributeAccessIssue]


def resolve_device(name: str = "auto", local_rank: int = 0) -> torch.device:
    """Choose the accelerator of this process, or the CPU.

    Raises:
        ValueError: there is no such device here.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", local_rank % torch.cuda.device_count())
        return torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(
            f"device {name!r} cannot be used here: it is none of auto, cpu, cuda, cuda:1, mps, ..."
        ) from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device {name!r} cannot be used here: PyTorch finds no CUDA; auto takes what there is"
        )
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device {name!r} cannot be used here: {reason}") from None
    return device


def resolve_precision(
    precision: Precision, device: torch.device | str = "cpu"
) -> Literal["float32", "bfloat16"]:
    """Resolve "auto": bfloat16 where the hardware multiplies it, else float32, then the faster."""
    if precision != "auto":
        return precision
    return "bfloat16" if has_native_bfloat16(torch.device(device)) else "float32"


def weight_dtype(precision: Precision) -> torch.dtype:
    """Return the type of the model's own weights."""
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def has_native_bfloat16(device: torch.device) -> bool:
    """Return whether hardware multiplies bfloat16 matrices (x86: AVX512-BF16, AMX; ARM: BF16).

    False where `ATEN_CPU_CAPABILITY` keeps torch to older instructions.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu":
        return False
    if platform.machine().lower() in ("x86_64", "amd64"):
        # Public names for these came only after torch 2.8.
        avx, amx = torch.cpu._is_avx512_bf16_supported, torch.cpu._is_amx_tile_supported  # pyright: ignore[reportPrivateUsage]
        is_capped = torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2")
        return (avx() or amx()) and not is_capped
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


MAX_THREADS = 1024


def check_threads(n_threads: int | None) -> None:
    """Check a number of threads.

    Raises:
        ValueError: it is below 1 or above 1,024.
    """
    if n_threads is not None and n_threads < 1:
        raise ValueError(f"threads must be at least 1, got {n_threads}")
    if n_threads is not None and n_threads > MAX_THREADS:
        raise ValueError(f"threads must be at most {MAX_THREADS:,}, got {n_threads}")


def set_threads(n_threads: int | None = None) -> int:
    """Set the number of compute threads, and return it; they share the cores with other programs.

    None: torch's default, which is OMP_NUM_THREADS or the number of cores, limited by the container
    and divided by the processes of this machine.

    Raises:
        ValueError: the number is not allowed.
    """
    check_threads(n_threads)
    n = n_threads or max(1, min(torch.get_num_threads(), _available_cores()) // _local_processes())
    torch.set_num_threads(n)
    share_cores()
    return n


def _local_processes() -> int:
    """Count the processes of this machine among which the cores must still be divided.

    One if OMP_NUM_THREADS is set, as torchrun does: the cores are divided already.
    """
    return 1 if "OMP_NUM_THREADS" in os.environ else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _available_cores() -> int:
    """Count the cores that this process may use; a container may be given less time than cores."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    for path in ("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"):
        with suppress(OSError, ValueError):
            words = Path(path).read_text().split()
            period = (
                words[1]
                if len(words) > 1
                else Path(path).with_name("cpu.cfs_period_us").read_text()
            )
            share = int(words[0]) / int(period)
            if share > 0:
                cores = min(cores, max(1, math.ceil(share)))
    return cores


def matmul_peak_flops(
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    *,
    seconds: float = 0.3,
    sizes: Sequence[int] = (),
) -> float:
    """Measure the most FLOP/s of a product of square matrices: the best of some sizes and tries."""
    here = torch.device(device)
    sizes = sizes or ((4096, 8192) if here.type == "cuda" else (512, 1024, 1536))
    return max(_time_matmul(n, dtype, here, seconds / len(sizes)) for n in sizes)


def _time_matmul(n: int, dtype: torch.dtype, device: torch.device, seconds: float) -> float:
    a, b = (torch.full((n, n), 1 / n, dtype=dtype, device=device) for _ in range(2))
    out = torch.empty(n, n, dtype=dtype, device=device)
    wait = _synchronizer(device)
    torch.mm(a, b, out=out)
    wait()
    best, spent = math.inf, 0.0
    for _ in range(_MAX_MATMULS):
        watch = Stopwatch()
        torch.mm(a, b, out=out)
        wait()
        best = min(best, taken := watch.seconds)
        spent += taken
        if spent >= seconds:
            break
    return 2 * n**3 / max(best, 1e-9)


def _synchronizer(device: torch.device) -> Callable[[], None]:
    return (lambda: torch.cuda.synchronize(device)) if device.type == "cuda" else (lambda: None)
