"""Options that are derived from the model and the data where they are not given."""

import math
from dataclasses import replace

from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.methods.method import (
    method_learning_rate,
)
from unmask.tasks.task import Task

_MIN_STEPS, _MAX_DEFAULT_EPOCHS, _MIN_DEFAULT_EPOCHS = 1000, 20, 3
_MAX_STEPS_BETWEEN_EVALUATIONS = 1000
_ADAFACTOR_LEARNING_RATE = 1e-3
# The first two are measured: docs/log.md, 2026-11-21.
_LEARNING_RATES_BY_SIZE = (
    (2_500_000, 1e-3), (6_000_000, 5e-4), (20_000_000, 3e-4), (80_000_000, 1e-4),
    (200_000_000, 5e-5),
)  # fmt: skip


def resolve_config(
    config: FinetuneConfig, task: Task, n_train: int, n_parameters: int, *, uses_word_labels: bool
) -> FinetuneConfig:
    """Decide what is left open.

    Little data is learned in more epochs, up to 20 (Mosbach et al. 2021, arXiv:2006.04884, section
    6), so that there are about 1,000 steps at least; much in 3 (Devlin et al. 2019, appendix A.3).

    Args:
        config: what was asked for.
        task: as it is learned.
        n_train: items to learn from.
        n_parameters: of the model.
        uses_word_labels: the model says its answers in words.
    """
    batch = config.batch_size or (16 if n_train < 2000 else 32)
    steps = -(-n_train // batch)  # an epoch
    epochs = config.epochs or min(
        max(-(-_MIN_STEPS // steps), _MIN_DEFAULT_EPOCHS), _MAX_DEFAULT_EPOCHS
    )
    full = default_learning_rate(n_parameters, uses_word_labels=uses_word_labels)
    if config.optimizer == "adafactor":
        full = _ADAFACTOR_LEARNING_RATE
    return replace(
        config,
        batch_size=batch if config.batch_tokens is None else None,
        epochs=float(epochs),
        learning_rate=config.learning_rate or method_learning_rate(config.tune, full),
        schedule=config.schedule or ("constant" if _has_constant_learning_rate(config) else None),
        metric=task.metric,
        max_length=task.max_length,
        task_name=task.task_name,
        text=task.columns.texts,
        label=task.columns.label,
        choices=task.columns.choices,
        task_options=task.options,
    )


def _has_constant_learning_rate(config: FinetuneConfig) -> bool:
    """Return whether the rate does not fall: with Adafactor, but for methods with a schedule."""
    return config.optimizer == "adafactor" and not config.tune.unfreezes_gradually


def describe_batch_size(config: FinetuneConfig) -> str:
    """Say how large the steps of a settled run are."""
    return (
        str(config.batch_size) if config.batch_tokens is None else f"{config.batch_tokens:,} tokens"
    )


def default_learning_rate(n_parameters: int, *, uses_word_labels: bool) -> float:
    """Return the peak learning rate that is customary with AdamW for so many parameters.

    Encoders and decoders: Devlin et al. 2019, appendix A.3, for the published sizes, and Turc et
    al. 2019, arXiv:1908.08962, section 4, for small ones. T5 is tuned at 1e-3 with Adafactor
    (Raffel et al. 2020, section 3.1.1), whose steps are relative to the size of the weights; a
    third to a tenth of that is customary with AdamW.
    """
    if uses_word_labels:
        return 1e-3 if n_parameters < 20_000_000 else 3e-4 if n_parameters < 400_000_000 else 1e-4
    for most, rate in _LEARNING_RATES_BY_SIZE:
        if n_parameters < most:
            return rate
    return 2e-5


def resolve_evaluation_interval(config: FinetuneConfig, steps_per_epoch: int) -> FinetuneConfig:
    """Decide how often a settled run is scored, whose epochs have so many steps.

    Raises:
        ValueError: it is scored less often than a mean is to be of.
    """
    every = config.evaluate_every or min(steps_per_epoch, _MAX_STEPS_BETWEEN_EVALUATIONS)
    n = count_steps(config, steps_per_epoch)
    if (found := n // every) < config.average:
        raise ValueError(
            f"average = {config.average} is the mean of so many evaluations, but with one every "
            f"{every:,} of {n:,} steps there are {found}; lower evaluate_every"
        )
    return replace(config, evaluate_every=every)


def count_steps(config: FinetuneConfig, steps_per_epoch: int) -> int:
    """Count the steps of a settled run, whose epochs have so many."""
    assert config.epochs is not None
    return max(math.ceil(config.epochs * steps_per_epoch), 1)
