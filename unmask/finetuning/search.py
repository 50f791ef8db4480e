"""Hyperparameter search over learning rate and batch size.

Each trial is one run with the first seed, scored on the dev file. Trials are sampled by optuna's
tree-structured Parzen estimator (Bergstra et al. 2011, "Algorithms for Hyper-Parameter
Optimization", section 4); optuna is optional.
"""

import hashlib
import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from unmask.config import from_dict, to_dict
from unmask.files import parse_json, read_bytes, write_atomically
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.data.batch_stream import count_epoch_steps
from unmask.finetuning.job.finetune_job import FinetuneJob
from unmask.finetuning.options.derived import resolve_evaluation_interval
from unmask.tasks.metrics.metric import METRICS
from unmask.training.device.stopwatch import Stopwatch

TRIALS_FILE = "search.jsonl"
LEARNING_RATE_FACTOR = 10.0
"""Range of learning rates: from the default divided by this factor to the default times it."""
BATCH_SIZES = (8, 16, 32, 64)
_N_RANDOM_TRIALS = 4
"""Number of random trials before the estimator is used."""
_IGNORED_KEYS = frozenset(
    {"learning_rate", "batch_size", "evaluate_every", "micro_batch_tokens", "search"}
)
"""Fields of a config on which trials do not depend, or which they determine."""


@dataclass(frozen=True, kw_only=True)
class SearchTrial:
    """A learning rate, a batch size and the dev score: a line of the trials file."""

    index: int
    """Number of the trial, from 1. The first trial has the defaults."""
    learning_rate: float
    batch_size: int
    score: float | None
    """Dev score. None: the model diverged."""
    seconds: float
    run_digest: str
    """Hash of everything else on which the trial depends."""


def check_search(requested_config: FinetuneConfig) -> None:
    """Check that there is something to search, and that optuna is installed.

    Raises:
        ImportError: optuna is not installed.
        ValueError: learning rate and batch size are both given.
    """
    if importlib.util.find_spec("optuna") is None:
        raise ImportError("search needs optuna: pip install 'unmask[search]'")
    if requested_config.batch_tokens is not None:
        raise ValueError("search tries rates and batches of so many texts; leave out batch_tokens")
    if requested_config.learning_rate is not None and requested_config.batch_size is not None:
        raise ValueError("search tries rates and batch sizes, but both are given")


def run_search(
    job: FinetuneJob,
    requested_config: FinetuneConfig,
    run_trial: Callable[[FinetuneJob], float | None],
) -> FinetuneJob:
    """Search the open ones of learning rate and batch size; return the job with the best trial.

    Completed trials in the folder are not repeated. Each sample depends only on the seed, its
    number and the trials before it, so that an interrupted search continues identically. Of ties
    the first trial is the best.

    Args:
        job: the job, with the default learning rate and batch size.
        requested_config: the config before these defaults were resolved.
        run_trial: function that makes a run, and returns the best dev score, or None if it
            diverged.

    Raises:
        ValueError: the folder has trials of another run.
        FloatingPointError: all trials diverged.
    """
    trials = read_trials(job.folder)
    run = _digest(job)
    if any(one.run_digest != run for one in trials):
        raise ValueError(f"{job.folder / TRIALS_FILE}: holds trials of another run")
    metric = job.task.metric
    for number in range(len(trials) + 1, requested_config.search + 1):
        rate, batch = _suggest(job, requested_config, trials, number)
        watch = Stopwatch()
        score = run_trial(_with_trial(job, requested_config, rate, batch))
        seconds = round(watch.seconds, 3)
        trials.append(
            SearchTrial(
                index=number,
                learning_rate=rate,
                batch_size=batch,
                score=score,
                seconds=seconds,
                run_digest=run,
            )
        )
        _write_trials(job.folder, trials)
        outcome = "diverged" if score is None else f"{metric} {score:.4f}"
        job.print_progress(
            f"trial {number} of {requested_config.search}: rate {rate:.3g}, batch {batch}: "
            f"{outcome} ({seconds:.0f} s)"
        )
    chosen = best_trial(trials, metric)
    job.print_progress(
        f"of {len(trials)} trials the best is rate {chosen.learning_rate:.3g}, batch "
        f"{chosen.batch_size}"
    )
    return _with_trial(job, requested_config, chosen.learning_rate, chosen.batch_size)


def best_trial(completed: Sequence[SearchTrial], metric: str) -> SearchTrial:
    """Return the best trial; of ties the first.

    Raises:
        FloatingPointError: all trials diverged.
    """
    scored = [(trial.score, trial) for trial in completed if trial.score is not None]
    if not scored:
        raise FloatingPointError(f"all {len(completed)} trials diverged; name a lower rate")
    sign = 1 if METRICS[metric].higher_is_better else -1
    return max(scored, key=lambda pair: sign * pair[0])[1]


def read_trials(folder: Path) -> list[SearchTrial]:
    """Read the trials in a folder.

    Raises:
        ValueError: a line is not a trial.
    """
    path = folder / TRIALS_FILE
    if not path.is_file():
        return []
    trials: list[SearchTrial] = []
    for n, line in enumerate(read_bytes(path).splitlines(), 1):
        try:
            trials.append(from_dict(SearchTrial, parse_json(line)))
        except ValueError as error:
            raise ValueError(f"{path}:{n}: not a trial ({error})") from None
    return trials


def trial_record(trial: SearchTrial) -> dict[str, Any]:
    """Return a trial as plain data for a report."""
    return {
        "number": trial.index,
        "rate": trial.learning_rate,
        "batch": trial.batch_size,
        "score": trial.score,
        "seconds": trial.seconds,
    }


def _write_trials(folder: Path, completed: Sequence[SearchTrial]) -> None:
    lines = [
        json.dumps({k: v for k, v in to_dict(trial).items() if k != "kind"}) for trial in completed
    ]
    write_atomically(folder / TRIALS_FILE, "".join(f"{line}\n" for line in lines))


def _with_trial(
    job: FinetuneJob, requested_config: FinetuneConfig, learning_rate: float, batch_size: int
) -> FinetuneJob:
    """Return the job with another learning rate and batch size, for the same number of epochs."""
    config = replace(
        job.config,
        learning_rate=learning_rate,
        batch_size=batch_size,
        evaluate_every=requested_config.evaluate_every,
    )
    config = resolve_evaluation_interval(
        config, count_epoch_steps(job.train_examples, batch_size, None, job.source_sampling)
    )
    return replace(
        job, config=config, run_record=dict(job.run_record) | {"recipe": to_dict(config)}
    )


def _digest(job: FinetuneJob) -> str:
    recipe = {k: v for k, v in job.run_record["recipe"].items() if k not in _IGNORED_KEYS}
    serialized = json.dumps([recipe, job.run_record["data"]], sort_keys=True)
    return hashlib.sha256(serialized.encode()).hexdigest()[:16]


def _suggest(
    job: FinetuneJob,
    requested_config: FinetuneConfig,
    completed: Sequence[SearchTrial],
    number: int,
) -> tuple[float, int]:
    """Sample a learning rate and a batch size, given the trials so far; first the defaults."""
    rate, batch = job.config.learning_rate, job.config.batch_size
    assert rate is not None
    assert batch is not None
    if number == 1:
        return rate, batch
    from optuna import create_study, logging
    from optuna.distributions import (
        BaseDistribution,
        CategoricalDistribution,
        FloatDistribution,
    )
    from optuna.samplers import TPESampler
    from optuna.trial import TrialState, create_trial

    space: dict[str, BaseDistribution] = {}
    if requested_config.learning_rate is None:
        space["learning_rate"] = FloatDistribution(
            rate / LEARNING_RATE_FACTOR, rate * LEARNING_RATE_FACTOR, log=True
        )
    if requested_config.batch_size is None:
        space["batch_size"] = CategoricalDistribution(sorted({*BATCH_SIZES, batch}))
    seed = int(np.random.SeedSequence((job.config.seed, number)).generate_state(1)[0])
    level = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    try:
        study = create_study(
            direction="maximize" if METRICS[job.task.metric].higher_is_better else "minimize",
            sampler=TPESampler(seed=seed, n_startup_trials=_N_RANDOM_TRIALS),
        )
        for trial in completed:
            params = {name: getattr(trial, name) for name in space}
            state = TrialState.FAIL if trial.score is None else TrialState.COMPLETE
            study.add_trial(
                create_trial(state=state, params=params, distributions=space, value=trial.score)
            )
        suggested = study.ask(space).params
    finally:
        logging.set_verbosity(level)
    return float(suggested.get("learning_rate", rate)), int(suggested.get("batch_size", batch))
