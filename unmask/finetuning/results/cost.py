"""What fine-tuning cost, all runs of a job together, beside what was planned."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from unmask.finetuning.job.finetune_job import FinetuneJob
from unmask.heads.model import Model
from unmask.planning.flops import training_flops_per_token
from unmask.training.config import Recipe
from unmask.training.device.memory import peak_memory_bytes
from unmask.training.log import (
    LOG_FILE,
    TIMING_FILE,
    finite_number,
    process_boundaries,
    read_log_lines,
)


def flops_per_token(job: FinetuneJob, model: Model) -> float:
    """Count the FLOPs per token of a training step, for texts of the mean length.

    They are 0 of a model without matrix products, such as static vectors.
    """
    shape = job.shape
    return training_flops_per_token(model, shape.length, shape.target_fraction, job.teachers)


def begin_cost(job: FinetuneJob, model: Model, recipe: Recipe) -> None:
    """Plan all runs of a job by the first one that begins, if the machine's peak is known.

    Args:
        job: the job.
        model: of a run, with all that is added to it.
        recipe: of one run.
    """
    if not job.peak_flops or not flops_per_token(job, model) or job.cost.planned is not None:
        return
    t, length = job.config, job.shape.length
    batch = max(t.batch_tokens or (t.batch_size or 1) * length, length)
    whole = replace(
        recipe,
        steps=recipe.steps * len(job.runs),
        batch_tokens=batch,
        micro_batch_tokens=min(t.micro_batch_tokens or batch, batch),
    )
    dev_tokens = length * len(job.dev_subset[1])
    job.cost.begin(model, whole, job.shape, job.world, job.peak_flops, dev_tokens, job.teachers)


def measured_cost(job: FinetuneJob) -> dict[str, Any]:
    """Return the cost of all runs of a job, as plain data for `unmask.json`."""
    folders = [job.run_folder(arm, seed) for arm, seed in job.runs]
    seconds, tokens, peak = (0.0, 0.0, 0.0)
    for folder in folders:
        timings, _ = read_log_lines(folder / TIMING_FILE)
        lines, _ = read_log_lines(folder / LOG_FILE)
        seconds += process_boundaries(timings)[1] or 0.0
        tokens += _largest(lines, "tokens")
        peak = max(peak, _largest(timings, "memory_bytes"))
    return job.cost.record(
        seconds=seconds,
        n_tokens=int(tokens),
        peak_memory_bytes=max(int(peak), peak_memory_bytes(job.world.device)),
    )


def _largest(lines: Sequence[Mapping[str, Any]], name: str) -> float:
    return max((finite_number(line.get(name)) or 0.0 for line in lines), default=0.0)
