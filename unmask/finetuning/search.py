"""Search: short of knowing the best rate and batch size, some are tried, and the best is taken.

Each trial is one run with the first seed, scored on the dev file. Trials are drawn by optuna's
tree-structured Parzen estimator (Bergstra et al. 2011, "Algorithms for Hyper-Parameter
Optimization", section 4); optuna is optional.
"""

import hashlib
import importlib.util
import json
import time
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

TRIALS_FILE = "search.jsonl"
LEARNING_RATE_FACTOR = 10.0
"""Rates are tried from the customary one divided by this to the customary one times this."""
BATCH_SIZES = (8, 16, 32, 64)
_N_RANDOM_TRIALS = 4
"""So many trials are drawn before there is something to learn from."""
_IGNORED_KEYS = frozenset(
    {"learning_rate", "batch_size", "evaluate_every", "micro_batch_tokens", "search"}
)
"""What of a recipe the trials do not depend on, or decide."""


@dataclass(frozen=True, kw_only=True)
class SearchTrial:
    """A rate and a batch size, and how good the model was on the dev file: a line of the file."""

    index: int
    """From 1. The first trial is what is customary."""
    learning_rate: float
    batch_size: int
    score: float | None
    """None where the model diverged."""
    seconds: float
    run_digest: str
    """A hash of all else that the trial depends on."""


def check_search(requested_config: FinetuneConfig) -> None:
    """Check that there is something to search, and with what.

    Raises:
        ImportError: optuna is not installed.
        ValueError: rate and batch size are both given.
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
    """Try what is open of rate and batch size, and return the job with the best; of ties the first.

    What a folder holds of trials is not tried again. Each draw depends on the seed, its number and
    the trials before it alone, so that a search that was interrupted continues as if it was not.

    Args:
        job: with the customary rate and batch size.
        requested_config: as it was before these were decided.
        run_trial: makes a run, and returns the best score on the dev file, or None if it diverged.

    Raises:
        ValueError: the folder holds trials of another run.
        FloatingPointError: no trial gave a number.
    """
    found = read_trials(job.folder)
    run = _digest(job)
    if any(one.run_digest != run for one in found):
        raise ValueError(f"{job.folder / TRIALS_FILE}: holds trials of another run")
    metric = job.task.metric
    for number in range(len(found) + 1, requested_config.search + 1):
        rate, batch = _suggest(job, requested_config, found, number)
        start = time.perf_counter()
        score = run_trial(_with_trial(job, requested_config, rate, batch))
        seconds = round(time.perf_counter() - start, 3)
        found.append(
            SearchTrial(
                index=number,
                learning_rate=rate,
                batch_size=batch,
                score=score,
                seconds=seconds,
                run_digest=run,
            )
        )
        _write_trials(job.folder, found)
        said = "diverged" if score is None else f"{metric} {score:.4f}"
        job.print_progress(
            f"trial {number} of {requested_config.search}: rate {rate:.3g}, batch {batch}: {said} "
            f"({seconds:.0f} s)"
        )
    chosen = best_trial(found, metric)
    job.print_progress(
        f"of {len(found)} trials the best is rate {chosen.learning_rate:.3g}, batch "
        f"{chosen.batch_size}"
    )
    return _with_trial(job, requested_config, chosen.learning_rate, chosen.batch_size)


def best_trial(completed: Sequence[SearchTrial], metric: str) -> SearchTrial:
    """Return the best trial, of ties the first.

    Raises:
        FloatingPointError: no trial gave a number.
    """
    scored = [(one.score, one) for one in completed if one.score is not None]
    if not scored:
        raise FloatingPointError(f"all {len(completed)} trials diverged; name a lower rate")
    sign = 1 if METRICS[metric].higher_is_better else -1
    return max(scored, key=lambda pair: sign * pair[0])[1]


def read_trials(folder: Path) -> list[SearchTrial]:
    """Read the trials that a folder holds.

    Raises:
        ValueError: a line is none.
    """
    path = folder / TRIALS_FILE
    if not path.is_file():
        return []
    found: list[SearchTrial] = []
    for n, line in enumerate(read_bytes(path).splitlines(), 1):
        try:
            found.append(from_dict(SearchTrial, parse_json(line)))
        except ValueError as error:
            raise ValueError(f"{path}:{n}: not a trial ({error})") from None
    return found


def trial_record(trial: SearchTrial) -> dict[str, Any]:
    """Return what a report shows of a trial."""
    return {
        "number": trial.index,
        "rate": trial.learning_rate,
        "batch": trial.batch_size,
        "score": trial.score,
        "seconds": trial.seconds,
    }


def _write_trials(folder: Path, completed: Sequence[SearchTrial]) -> None:
    lines = [
        json.dumps({k: v for k, v in to_dict(one).items() if k != "kind"}) for one in completed
    ]
    write_atomically(folder / TRIALS_FILE, "".join(f"{line}\n" for line in lines))


def _with_trial(
    job: FinetuneJob, requested_config: FinetuneConfig, learning_rate: float, batch_size: int
) -> FinetuneJob:
    """Return the job with another rate and batch size, for the same number of epochs."""
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
    said = json.dumps([recipe, job.run_record["data"]], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _suggest(
    job: FinetuneJob,
    requested_config: FinetuneConfig,
    completed: Sequence[SearchTrial],
    number: int,
) -> tuple[float, int]:
    """Draw a rate and a batch size, knowing the trials so far; the first are the customary ones."""
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
        for one in completed:
            params = {name: getattr(one, name) for name in space}
            state = TrialState.FAIL if one.score is None else TrialState.COMPLETE
            study.add_trial(
                create_trial(state=state, params=params, distributions=space, value=one.score)
            )
        drawn = study.ask(space).params
    finally:
        logging.set_verbosity(level)
    return float(drawn.get("learning_rate", rate)), int(drawn.get("batch_size", batch))
