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
    """Resolve open options.

    Small data sets have up to 20 epochs (Mosbach et al. 2021, arXiv:2006.04884, section 6), so that
    there are at least about 1,000 steps; large ones have 3 (Devlin et al. 2019, appendix A.3).

    Args:
        config: the config with open options.
        task: the task.
        n_train: number of training items.
        n_parameters: number of parameters of the model.
        uses_word_labels: whether the model predicts labels as words.
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
    """Return whether the rate is constant: with Adafactor, without a schedule of the method."""
    return config.optimizer == "adafactor" and not config.tune.unfreezes_gradually


def describe_batch_size(config: FinetuneConfig) -> str:
    """Describe the batch size of a resolved config."""
    return (
        str(config.batch_size) if config.batch_tokens is None else f"{config.batch_tokens:,} tokens"
    )


def default_learning_rate(n_parameters: int, *, uses_word_labels: bool) -> float:
    """Return the default peak learning rate with AdamW for a number of parameters.

    Encoders and decoders: Devlin et al. 2019, appendix A.3, for the published sizes, and Turc et
    al. 2019, arXiv:1908.08962, section 4, for small ones. T5 is fine-tuned at 1e-3 with Adafactor
    (Raffel et al. 2020, section 3.1.1), whose steps are relative to the scale of the weights; a
    third to a tenth of that is common with AdamW.
    """
    if uses_word_labels:
        return 1e-3 if n_parameters < 20_000_000 else 3e-4 if n_parameters < 400_000_000 else 1e-4
    for most, rate in _LEARNING_RATES_BY_SIZE:
        if n_parameters < most:
            return rate
    return 2e-5


def resolve_evaluation_interval(config: FinetuneConfig, steps_per_epoch: int) -> FinetuneConfig:
    """Resolve the evaluation interval, given the steps per epoch.

    Raises:
        ValueError: there are fewer evaluations than checkpoints to average.
    """
    interval = config.evaluate_every or min(steps_per_epoch, _MAX_STEPS_BETWEEN_EVALUATIONS)
    n = count_steps(config, steps_per_epoch)
    if (n_evaluations := n // interval) < config.average:
        raise ValueError(
            f"average = {config.average} is the mean of so many evaluations, but with one every "
            f"{interval:,} of {n:,} steps there are {n_evaluations}; lower evaluate_every"
        )
    return replace(config, evaluate_every=interval)


def count_steps(config: FinetuneConfig, steps_per_epoch: int) -> int:
    """Count the steps of a resolved config, given the steps per epoch."""
    assert config.epochs is not None
    return max(math.ceil(config.epochs * steps_per_epoch), 1)
