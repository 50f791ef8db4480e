"""What a model needs to answer: bytes on disk, time, memory, energy."""

import multiprocessing
import statistics
from collections.abc import Sequence
from pathlib import Path

import torch

from unmask.checkpoints.packed import PACKED_WEIGHTS
from unmask.checkpoints.tensors import SAFETENSORS_WEIGHTS
from unmask.inference.onnx.record import MODEL_FILE, WEIGHTS_FILE
from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline
from unmask.planning.hardware import CPU_WATTS_PER_CORE
from unmask.planning.this_machine import EnergyMeter
from unmask.studies.compression.result import Measurements
from unmask.training.device.memory import peak_memory_bytes, restart_peak_memory
from unmask.training.device.stopwatch import Stopwatch

BATCH_SIZES = (1, 32)
"""Numbers of texts in a call."""
WORDS_PER_TEXT = 96
"""Words of a timed text, some 128 tokens."""
N_ROUNDS = 9
"""Rounds of timing; in each, both models take a turn."""
_WEIGHT_FILES = (SAFETENSORS_WEIGHTS, PACKED_WEIGHTS, MODEL_FILE, WEIGHTS_FILE)


def timed_texts(texts: Sequence[str], n: int = max(BATCH_SIZES)) -> list[str]:
    """Return `n` texts of equal numbers of words, cut from the words of given texts in turn."""
    words = " ".join(texts).split()
    return [
        " ".join(words[(i * WORDS_PER_TEXT + j) % len(words)] for j in range(WORDS_PER_TEXT))
        for i in range(n)
    ]


def measure_model(folder: Path, whole: Path, texts: Sequence[str]) -> Measurements:
    """Measure a model in turn with the whole one, on texts of `timed_texts`."""
    own, other = load(folder), load(whole)
    milliseconds: dict[str, float] = {}
    ratios: dict[str, float] = {}
    watts, seconds, source = 0.0, 0.0, ""
    for size in BATCH_SIZES:
        some = list(texts[:size])
        for pipeline in (own, other):
            pipeline.predict(some)
        meter, pairs = EnergyMeter(), list[tuple[float, float]]()
        for _ in range(N_ROUNDS):
            pairs.append((_seconds(own, some), _seconds(other, some)))
        measured = meter.watts()
        watts = CPU_WATTS_PER_CORE * torch.get_num_threads() if measured is None else measured
        source = f"{CPU_WATTS_PER_CORE:g} W per core" if measured is None else "RAPL"
        seconds = statistics.median(a for a, _ in pairs)
        milliseconds[str(size)] = round(1000 * seconds, 3)
        ratios[str(size)] = round(statistics.median(a / b for a, b in pairs), 4)
    return Measurements(
        disk_bytes=sum(f.stat().st_size for n in _WEIGHT_FILES if (f := folder / n).is_file()),
        milliseconds=milliseconds,
        latency_ratios=ratios,
        memory_bytes=_peak_memory(folder, texts),
        joules=round(watts * seconds / max(BATCH_SIZES) * 1000, 3),
        power_source=source,
    )


def _seconds(pipeline: Pipeline, texts: Sequence[str]) -> float:
    watch = Stopwatch()
    pipeline.predict(texts)
    return max(watch.seconds, 1e-9)


def _peak_memory(folder: Path, texts: Sequence[str]) -> int:
    """Return the bytes by which opening a model and answering raise the peak of a new process."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_answer_once, (folder, list(texts), torch.get_num_threads()))


def _answer_once(folder: Path, texts: list[str], n_threads: int) -> int:
    torch.set_num_threads(n_threads)
    before = restart_peak_memory()
    load(folder).predict(texts)
    return peak_memory_bytes(torch.device("cpu")) - before
