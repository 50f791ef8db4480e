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
from unmask.files import parsed, read_bytes, write_whole
from unmask.finetuning.batches import an_epoch
from unmask.finetuning.job import Job
from unmask.finetuning.plan import Tuning, paced
from unmask.tasks.metrics.metric import METRICS

TRIALS = "search.jsonl"
FACTOR = 10.0
"""Rates are tried from the customary one divided by this to the customary one times this."""
BATCHES = (8, 16, 32, 64)
_AT_RANDOM = 4
"""So many trials are drawn before there is something to learn from."""
_DECIDED = frozenset({"rate", "batch", "evaluate_every", "micro_tokens", "search"})
"""What of a recipe the trials do not depend on, or decide."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A rate and a batch size, and how good the model was on the dev file: a line of the file."""

    number: int
    """From 1. The first trial is what is customary."""
    rate: float
    batch: int
    score: float | None
    """None where the model diverged."""
    seconds: float
    run: str
    """A hash of all else that the trial depends on."""


def check(asked: Tuning) -> None:
    """Check that there is something to search, and with what.

    Raises:
        ImportError: optuna is not installed.
        ValueError: rate and batch size are both given.
    """
    if importlib.util.find_spec("optuna") is None:
        raise ImportError("search needs optuna: pip install 'unmask[search]'")
    if asked.batch_tokens is not None:
        raise ValueError("search tries rates and batches of so many texts; leave out batch_tokens")
    if asked.rate is not None and asked.batch is not None:
        raise ValueError("search tries rates and batch sizes, but both are given")


def searched(job: Job, asked: Tuning, attempt: Callable[[Job], float | None]) -> Job:
    """Try what is open of rate and batch size, and return the job with the best; of ties the first.

    What a folder holds of trials is not tried again. Each draw depends on the seed, its number and
    the trials before it alone, so that a search that was interrupted goes on as if it was not.

    Args:
        job: with the customary rate and batch size.
        asked: as it was before these were decided.
        attempt: makes a run, and returns the best score on the dev file, or None if it diverged.

    Raises:
        ValueError: the folder holds trials of another run.
        FloatingPointError: no trial gave a number.
    """
    found = trials(job.folder)
    run = _digest(job)
    if any(one.run != run for one in found):
        raise ValueError(f"{job.folder / TRIALS}: holds trials of another run")
    metric = job.task.metric
    for number in range(len(found) + 1, asked.search + 1):
        rate, batch = _draw(job, asked, found, number)
        start = time.perf_counter()
        score = attempt(_with(job, asked, rate, batch))
        seconds = round(time.perf_counter() - start, 3)
        found.append(
            Trial(number=number, rate=rate, batch=batch, score=score, seconds=seconds, run=run)
        )
        _write(job.folder, found)
        said = "diverged" if score is None else f"{metric} {score:.4f}"
        job.say(
            f"trial {number} of {asked.search}: rate {rate:.3g}, batch {batch}: {said} "
            f"({seconds:.0f} s)"
        )
    chosen = best(found, metric)
    job.say(f"of {len(found)} trials the best is rate {chosen.rate:.3g}, batch {chosen.batch}")
    return _with(job, asked, chosen.rate, chosen.batch)


def best(found: Sequence[Trial], metric: str) -> Trial:
    """Return the best trial, of ties the first.

    Raises:
        FloatingPointError: no trial gave a number.
    """
    scored = [(one.score, one) for one in found if one.score is not None]
    if not scored:
        raise FloatingPointError(f"all {len(found)} trials diverged; name a lower rate")
    sign = 1 if METRICS[metric].higher_is_better else -1
    return max(scored, key=lambda pair: sign * pair[0])[1]


def trials(folder: Path) -> list[Trial]:
    """Read the trials that a folder holds.

    Raises:
        ValueError: a line is none.
    """
    path = folder / TRIALS
    if not path.is_file():
        return []
    found: list[Trial] = []
    for n, line in enumerate(read_bytes(path).splitlines(), 1):
        try:
            found.append(from_dict(Trial, parsed(line)))
        except ValueError as error:
            raise ValueError(f"{path}:{n}: not a trial ({error})") from None
    return found


def plain(trial: Trial) -> dict[str, Any]:
    """Return what a report shows of a trial."""
    return {k: v for k, v in to_dict(trial).items() if k not in ("kind", "run")}


def _write(folder: Path, found: Sequence[Trial]) -> None:
    lines = [json.dumps({k: v for k, v in to_dict(one).items() if k != "kind"}) for one in found]
    write_whole(folder / TRIALS, "".join(f"{line}\n" for line in lines))


def _with(job: Job, asked: Tuning, rate: float, batch: int) -> Job:
    """Return the job with another rate and batch size, for the same number of epochs."""
    tuning = replace(job.tuning, rate=rate, batch=batch, evaluate_every=asked.evaluate_every)
    tuning = paced(tuning, an_epoch(job.examples, batch, None, job.sources))
    return replace(job, tuning=tuning, facts=dict(job.facts) | {"recipe": to_dict(tuning)})


def _digest(job: Job) -> str:
    recipe = {k: v for k, v in job.facts["recipe"].items() if k not in _DECIDED}
    said = json.dumps([recipe, job.facts["data"]], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _draw(job: Job, asked: Tuning, found: Sequence[Trial], number: int) -> tuple[float, int]:
    """Draw a rate and a batch size, knowing the trials so far; the first are the customary ones."""
    rate, batch = job.tuning.rate, job.tuning.batch
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
    if asked.rate is None:
        space["rate"] = FloatDistribution(rate / FACTOR, rate * FACTOR, log=True)
    if asked.batch is None:
        space["batch"] = CategoricalDistribution(sorted({*BATCHES, batch}))
    seed = int(np.random.SeedSequence((job.tuning.seed, number)).generate_state(1)[0])
    level = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    try:
        study = create_study(
            direction="maximize" if METRICS[job.task.metric].higher_is_better else "minimize",
            sampler=TPESampler(seed=seed, n_startup_trials=_AT_RANDOM),
        )
        for one in found:
            params = {name: getattr(one, name) for name in space}
            state = TrialState.FAIL if one.score is None else TrialState.COMPLETE
            study.add_trial(
                create_trial(state=state, params=params, distributions=space, value=one.score)
            )
        drawn = study.ask(space).params
    finally:
        logging.set_verbosity(level)
    return float(drawn.get("rate", rate)), int(drawn.get("batch", batch))
