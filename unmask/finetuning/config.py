"""FinetuneConfig: the complete configuration of a fine-tuning run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast, get_type_hints

from unmask.compression.config import TrainingCompression, check_training_methods
from unmask.compression.distillation.terms import Distillation
from unmask.compression.options import distillation, training_methods
from unmask.config import MAX_LEARNING_RATE, check_value, to_dict
from unmask.finetuning.methods.adapt_first import MAX_EPOCHS, TaskAdaptivePretraining
from unmask.finetuning.methods.method import (
    FinetuningMethod,
    FullFinetuning,
    SourceEncoder,
    parse_method,
)
from unmask.finetuning.options.finetune import (
    FinetuneOptions,
    FinetuneSuiteOptions,
    TaskFields,
    TrainingFields,
)
from unmask.options import keywords
from unmask.tasks.kind_names import TASK_KIND_NAMES
from unmask.text.formats.records import format_names
from unmask.tokenizers.vocabulary import VocabularySpec, parse_vocabulary

RANDOM_INITIALIZATION = "not pretrained"
PRETRAINED = "pretrained"

_MINIMUM: Mapping[str, int] = {
    "batch_size": 1, "batch_tokens": 1, "max_length": 1, "micro_batch_tokens": 1,
    "evaluate_every": 1, "patience": 1, "log_every": 1, "average": 0, "seeds": 1, "rows": 1,
    "search": 0, "weight_decay": 0, "lm_loss_weight": 0, "max_grad_norm": 0,
}  # fmt: skip
_MAXIMUM: Mapping[str, float] = {
    "learning_rate": MAX_LEARNING_RATE, "weight_decay": 1e3, "lm_loss_weight": 1e3,
    "max_grad_norm": 1e9, "warmup": 1e12,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(TaskFields, TrainingFields):
    """The complete configuration of a run. None: derived from the model and the data."""

    base: str
    """Model: a run folder, a folder in the Hugging Face layout, `hf:owner/name`, or a catalogue
    name."""
    train: str
    dev: str | None = None
    test: str | None = None
    text: tuple[str, ...] = ()
    """Columns of text, two for pairs. Empty: found by common names."""
    choices: tuple[str, ...] = ()
    """Columns of answer choices."""
    columns: tuple[str, ...] = ()
    """Names of all columns, of files without a header."""
    labels: tuple[str, ...] = ()
    """All labels, in order. Empty: those of the training file. Numbers 0, 1, ... in a file are
    indices into this list; see `columns.replace_class_numbers`."""
    task_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the task type; see `unmask.tasks.kinds`."""
    adapt_first: TaskAdaptivePretraining | None = None
    """Task-adaptive pretraining before fine-tuning. None: none."""
    tokenizer: str | None = None
    """Folder of a tokenizer, for a catalogue name. None: trained on the training texts."""
    vocabulary: VocabularySpec | None = None
    """Type of tokenizer to train. None: that of the preset."""
    tune: FinetuningMethod = field(default_factory=FullFinetuning)
    """Tuning method."""
    compression: tuple[TrainingCompression, ...] = ()
    """Compression while training; see `Recipe`."""
    distillation: Distillation | None = None
    """Teachers, fine-tuned on the same task, and what the model is compared with. None: none."""
    max_grad_norm: float = 1.0
    """Maximum norm of gradients; larger ones are scaled down."""
    micro_batch_tokens: int | None = None
    """Tokens in one forward pass, padding included; results depend on it up to rounding only. None:
    chosen by available memory."""
    log_every: int = 10
    """Interval between log entries, in steps."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        if self.task not in TASK_KIND_NAMES:
            raise ValueError(f"task must be one of {', '.join(TASK_KIND_NAMES)}, got {self.task!r}")
        for name, kind in get_type_hints(FinetuneConfig).items():
            check_value(kind, to_dict(getattr(self, name)), name)
        self._check_numbers()
        _check_finite(to_dict(self), "")
        _check_labels(self.labels)
        for name in ("train", "dev", "test"):
            if getattr(self, name) == "":
                raise ValueError(f"{name} must name a file, got ''")

    def _check_numbers(self) -> None:
        for name, least in _MINIMUM.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        for name in ("epochs", "learning_rate"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, got {value}")
        self._check_maximum()
        if self.epochs is not None and self.epochs > MAX_EPOCHS:
            raise ValueError(f"epochs must be at most {MAX_EPOCHS:,.0f}, got {self.epochs}")
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, got {self.seed}")
        if self.seeds > (most := 2**63 - self.seed):
            raise ValueError(
                f"seeds must be at most {most}, up to the last seed below 2^63, got {self.seeds}"
            )
        if not (0 <= self.warmup < 1 or (self.warmup > 0 and self.warmup % 1 == 0)):
            raise ValueError(
                "warmup must be a share of the steps from 0 to below 1, or a whole number of "
                f"steps, got {self.warmup}"
            )
        self._check_combinations()

    def _check_maximum(self) -> None:
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be from 0 to below 1, got {self.dropout}")
        for name, most in _MAXIMUM.items():
            value = getattr(self, name)
            if value is not None and value > most and math.isfinite(value):
                raise ValueError(f"{name} must be at most {most:g}, got {value}")

    def _check_combinations(self) -> None:
        if self.batch_size is not None and self.batch_tokens is not None:
            raise ValueError(
                "batch_size counts texts and batch_tokens their tokens: give one of them"
            )
        if self.tokenizer is not None and self.vocabulary is not None:
            raise ValueError(
                "vocabulary is for a new tokenizer: give vocabulary or tokenizer, not both"
            )
        if self.average == 1:
            raise ValueError("average must be at least 2, or 0 for none, got 1")
        if self.average and self.patience is not None:
            raise ValueError(
                "average and patience cannot be combined: patience may stop a run early"
            )
        if self.adapt_first is not None and self.initialize == "random":
            raise ValueError(
                "adapt_first needs pretrained weights: initialize must not be 'random'"
            )
        if self.adapt_first is not None and self.search:
            raise ValueError(
                "search and adapt_first cannot be combined: run adapt_first, then search on the "
                "model of that run"
            )
        stores = self.distillation is not None and self.distillation.store is not None
        if stores and (self.seeds > 1 or self.search):
            raise ValueError("store is of one run and its seed: leave out seeds and search")
        check_training_methods(self.compression)
        if self.schedule is not None and self.tune.unfreezes_gradually:
            raise ValueError("gradual has a schedule of its own, a slanted triangle")
        if isinstance(self.tune, SourceEncoder) and self.task != "generate":
            raise ValueError(f"tune = source_encoder is for task = generate, got {self.task!r}")


def make_config(options: FinetuneOptions | FinetuneSuiteOptions, base: str) -> FinetuneConfig:
    """Resolve the options of a run, or of a suite, to a config; a suite's benchmarks share it.

    Raises:
        ValueError: an option is invalid.
    """
    resolved: dict[str, Any] = keywords(TrainingFields, options) | {
        "base": base,
        "tokenizer": None if options.tokenizer is None else str(options.tokenizer),
        "vocabulary": None if options.vocabulary is None else parse_vocabulary(options.vocabulary),
        "tune": parse_method(options.tune),
        "compression": training_methods(options),
        "distillation": distillation(options),
        "lm_loss_weight": None if options.lm_loss_weight is None else float(options.lm_loss_weight),
    }
    if isinstance(options, FinetuneSuiteOptions):  # each benchmark has its own task
        if resolved["distillation"] is not None:
            raise ValueError("teacher: each benchmark needs one of its own; fine-tune them singly")
        return FinetuneConfig(**resolved, task="classify", train=options.tasks)
    adapt = options.adapt_first
    resolved |= keywords(TaskFields, options) | {
        "train": str(options.train),
        "dev": None if options.dev is None else str(options.dev),
        "test": None if options.test is None else str(options.test),
        "text": _as_tuple(options.text),
        "choices": _as_tuple(options.choices),
        "labels": tuple(options.labels),
        "columns": tuple(options.columns),
        "task_options": options.task_options or {},
        "adapt_first": TaskAdaptivePretraining() if adapt is True else adapt or None,
    }
    return FinetuneConfig(**resolved)


def _as_tuple(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _check_finite(value: Any, name: str) -> None:
    """Check that all numbers are finite, including those of the method and the task options."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value}")
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            _check_finite(item, f"{name}.{key}".lstrip("."))


def _check_labels(labels: Sequence[str]) -> None:
    if labels and (len(labels) < 2 or len(set(labels)) < len(labels)):
        raise ValueError(f"labels must be two or more that differ, got {format_names(labels)}")
