"""FinetuneConfig: all that a fine-tuning run depends on, and how what is left open is decided."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast, get_type_hints

import numpy as np

from unmask.config import MAX_LEARNING_RATE, check_value, to_dict
from unmask.finetuning.data.class_weights import ClassWeights
from unmask.finetuning.data.task_mixture import TaskMixture, is_mixture, read_mixture
from unmask.finetuning.methods.adapt_first import MAX_EPOCHS, TaskAdaptivePretraining
from unmask.finetuning.methods.method import (
    FinetuningMethod,
    FullFinetuning,
    GradualUnfreezing,
    ScheduleShape,
    SourceEncoder,
    method_learning_rate,
)
from unmask.tasks.kinds.all_kinds import TASK_KINDS
from unmask.tasks.kinds.task_kind import InfersOptionsFromExamples
from unmask.tasks.readers import columns as column_values
from unmask.tasks.readers import tables
from unmask.tasks.readers.task_reader import InfersOptionsFromTable, NamesColumnsInOptions
from unmask.tasks.task import (
    TASK_KIND_NAMES,
    Task,
    TaskColumns,
    TaskExample,
    TaskKindName,
    split_dev,
)
from unmask.tasks.text_templates import parse_template, resolve_template
from unmask.text.documents import read_documents
from unmask.text.lines import EncodingErrors
from unmask.text.records import format_names
from unmask.tokenizers.vocabulary import VocabularySpec
from unmask.training.config import Precision

OptimizerName = Literal["adamw", "adafactor"]
"""What takes the steps."""
RANDOM_INITIALIZATION = "random initialization"
PRETRAINED = "pretrained"

_MIN_STEPS, _MAX_DEFAULT_EPOCHS, _MIN_DEFAULT_EPOCHS = 1000, 20, 3
_MAX_STEPS_BETWEEN_EVALUATIONS = 1000
_MINIMUM: Mapping[str, int] = {
    "batch_size": 1, "batch_tokens": 1, "max_length": 1, "micro_batch_tokens": 1,
    "evaluate_every": 1, "patience": 1, "log_every": 1, "average": 0, "seeds": 1, "rows": 1,
    "search": 0, "weight_decay": 0, "lm_loss_weight": 0, "max_grad_norm": 0,
}  # fmt: skip
_MAXIMUM: Mapping[str, float] = {
    "learning_rate": MAX_LEARNING_RATE, "weight_decay": 1e3, "lm_loss_weight": 1e3,
    "max_grad_norm": 1e9, "warmup": 1e12,
}  # fmt: skip
_ADAFACTOR_LEARNING_RATE = 1e-3
_MIXTURE_COLUMNS = TaskColumns(texts=("source",), label="target")
"""What is read of a mixture: what its tasks' templates make of their columns."""
# The first two are measured: docs/log.md, 2026-11-21.
_LEARNING_RATES_BY_SIZE = (
    (2_500_000, 1e-3), (6_000_000, 5e-4), (20_000_000, 3e-4), (80_000_000, 1e-4),
    (200_000_000, 5e-5),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """All that a run depends on. What is None is decided from the model and the data."""

    base: str
    """A run folder, a folder in the Hugging Face layout, `hf:owner/name`, or a name of the
    catalogue."""
    task: TaskKindName
    train: str
    dev: str | None = None
    """By which the best epoch and seed are chosen. None: a tenth of the training file."""
    test: str | None = None
    """Scored once, at the end."""
    text: tuple[str, ...] = ()
    """Columns of text, of which a pair has two. None named: found by their customary names."""
    label: str | None = None
    choices: tuple[str, ...] = ()
    """Columns of the options to choose from."""
    columns: tuple[str, ...] = ()
    """Names of the columns, of files without a header."""
    labels: tuple[str, ...] = ()
    """All labels, in their order. None named: those of the training file. Where a file has the
    numbers 0, 1 and so on, these are places in them; see `columns.replace_class_numbers`."""
    rows: int | None = None
    """Learn from so many rows of the training file, drawn by seed 0; fewer are among more."""
    task_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else the kind of task lets one choose; see `unmask.tasks.kinds`."""
    encoding_errors: EncodingErrors = "strict"

    initialize: Literal["pretrained", "random"] = "pretrained"
    """random: the same network and tokenizer, its weights drawn from the seed."""
    baseline: bool = False
    """Also tune a randomly initialized network, with the same seeds, data and budget."""
    adapt_first: TaskAdaptivePretraining | None = None
    """The model first goes on with pretraining on the text of the task. None: it does not."""
    tokenizer: str | None = None
    """A folder, for a name of the catalogue. None: learned from the training texts."""
    vocabulary: VocabularySpec | None = None
    """What is learned from them. None: the card's kind."""
    tune: FinetuningMethod = field(default_factory=FullFinetuning)
    """What is tuned."""
    dropout: float | None = None
    task_name: str | None = None
    """What an encoder-decoder reads before a text. None: the kind of the task."""
    max_length: int | None = None
    """Tokens that are read of a text, or of a pair, at most."""

    metric: str | None = None
    """By which the best state is kept."""
    epochs: float | None = None
    batch_size: int | None = None
    """Texts a step."""
    batch_tokens: int | None = None
    """Tokens a step, padding included, in the place of `batch_size`: as many texts of like length
    as have so many; of an encoder-decoder, of the side that has more."""
    learning_rate: float | None = None
    """The peak."""
    warmup: float = 0.1
    """Share of the steps in which the rate rises, or, from 1 on, so many steps; then it falls
    (Devlin et al. 2019, appendix A.2)."""
    schedule: ScheduleShape | None = None
    """How it falls: to zero, in a line, or as 1 / sqrt(step) (Vaswani et al. 2017, section 5.3).
    None: as in the model's paper, of most models in a line; with Adafactor not at all."""
    optimizer: OptimizerName = "adamw"
    """adafactor: a rate that is relative to each tensor's size, 1e-3 and constant unless told
    otherwise (Raffel et al. 2020, section 3.1.2)."""
    average: int = 0
    """At the end the mean of the weights at so many last evaluations is scored, too, and kept if it
    is better than the best of them (Vaswani et al. 2017, section 6.1: 5, of the large model 20)."""
    weight_decay: float = 0.01
    class_weights: ClassWeights | None = None
    """How much each label counts while it is learned, or "balanced": rare ones count more."""
    lm_loss_weight: float | None = None
    """Weight of a language model's loss beside the task's, for decoders with a head of labels; 0.5
    in Radford et al. 2018, section 4.1. None: that of the model's paper, which most do not have."""
    max_grad_norm: float = 1.0
    micro_batch_tokens: int | None = None
    """Tokens, padding included, that go through the model at once; no result depends on it but for
    rounding. None: as many as help and fit into the memory."""
    precision: Precision = "auto"
    evaluate_every: int | None = None
    """Steps. None: each epoch, or 1,000 if that has more."""
    patience: int | None = None
    """A run ends early after so many evaluations that were not better than the best one."""
    log_every: int = 10
    seed: int = 0
    seeds: int = 1
    """So many runs, of consecutive seeds; the best is kept."""
    search: int = 0
    """So many rates and batch sizes are tried first, where these are open; see
    `unmask.finetuning.search`."""

    def __post_init__(self) -> None:
        """Check what the types do not say."""
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
            raise ValueError("vocabulary is of a tokenizer that is learned: give it or tokenizer")
        if self.average == 1:
            raise ValueError("average must be at least 2, or 0 for none, got 1")
        if self.average and self.patience is not None:
            raise ValueError("average is of a run's end, which patience leaves open: give one")
        if self.adapt_first is not None and self.initialize == "random":
            raise ValueError("adapt_first goes on from trained weights: initialize is not 'random'")
        if self.adapt_first is not None and self.search:
            raise ValueError(
                "search is of a model that is there: give one of search and adapt_first, and "
                "search on the model of a run that had adapt_first"
            )
        if self.schedule is not None and isinstance(self.tune, GradualUnfreezing):
            raise ValueError("gradual has a schedule of its own, a slanted triangle")
        if isinstance(self.tune, SourceEncoder) and self.task != "generate":
            raise ValueError(f"tune = source_encoder is for task = generate, got {self.task!r}")


def _check_finite(value: Any, name: str) -> None:
    """Check every number, also of what is tuned and of the options of the task."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value}")
    if isinstance(value, Mapping):
        for key, one in cast("Mapping[str, Any]", value).items():
            _check_finite(one, f"{name}.{key}".lstrip("."))


def _check_labels(labels: Sequence[str]) -> None:
    if labels and (len(labels) < 2 or len(set(labels)) < len(labels)):
        raise ValueError(f"labels must be two or more that differ, got {format_names(labels)}")


@dataclass(frozen=True, kw_only=True)
class FinetuneData:
    """What is learned from, chosen by and tested on."""

    columns: TaskColumns
    train: Sequence[TaskExample]
    dev: Sequence[TaskExample]
    test: Sequence[TaskExample]
    labels: tuple[str, ...]
    notes: tuple[str, ...]
    """What a user should be told."""
    warnings: tuple[str, ...]
    """And what may be a mistake."""
    task_options: Mapping[str, Any]
    """Those of the task, with what the training file decides of them."""
    mixture: TaskMixture | None = None
    """Where several tasks are learned: which, and how often."""


def read_data(config: FinetuneConfig) -> FinetuneData:
    """Read the files of a run.

    Raises:
        FileNotFoundError: one is missing.
        ValueError: one is not what it should be, with file and line.
    """
    return _read_mixture(config) if is_mixture(config.train) else _read_task(config)


def _read_task(config: FinetuneConfig) -> FinetuneData:
    """Read the files of one task."""
    kind = TASK_KINDS[config.task]
    table = _read_table(config, config.train)
    columns = kind.reader.find_columns(table, *_named_columns(config, table), config.choices)
    _check_columns(columns, config.train)
    notes = [] if tables.parallel_paths(config.train) else [_describe_columns(columns)]
    if isinstance(kind.reader, InfersOptionsFromTable):
        said = kind.reader.infer_options_from_table(
            table, columns, config.encoding_errors, config.task_options
        )
        config = replace(config, task_options=said)
    train = _read_items(config, table, columns)
    if not train:
        raise ValueError(f"{config.train}: no sentence has a word")
    labels = _resolve_labels(config, train, columns)
    if isinstance(kind, InfersOptionsFromExamples):
        config = replace(
            config,
            task_options=kind.infer_options_from_examples(train, labels, config.task_options),
        )
    dev, test = (
        _read_other_split(config, path, columns, labels) for path in (config.dev, config.test)
    )
    if config.dev is None:
        what = "sentences, parted by blank lines" if kind.reader.word_per_line else "rows"
        train, dev = split_dev(train, where=config.train, unit=what)
        n, m = len(train), len(dev)
        notes.append(
            f"no dev file: {m:,} of the {n + m:,} training rows are set aside to choose by"
        )
    if config.rows is not None and config.rows < len(train):
        notes.append(f"{config.rows:,} of {len(train):,} training rows are learned from")
        train = sample_rows(train, config.rows)
        kind.find_labels(train, f"{config.rows} rows of {config.train}")
    warnings = _unseen_label_warnings(train, labels, config.train)
    for path, some in ((config.train, train), (config.dev, dev), (config.test, test)):
        warnings += _empty_text_warnings(some, path or config.train)
    return FinetuneData(
        columns=columns, train=train, dev=dev, test=test, labels=labels,
        notes=tuple(notes), warnings=tuple(warnings), task_options=config.task_options,
    )  # fmt: skip


def _named_columns(
    config: FinetuneConfig, table: tables.Table
) -> tuple[tuple[str, ...], str | None]:
    """Return the columns that are named, by options of their own or by those of the task."""
    files = TASK_KINDS[config.task].reader
    if not isinstance(files, NamesColumnsInOptions):
        return config.text, config.label
    texts, label = files.columns_in_options(config.task_options)
    if texts and config.text and config.text != texts:
        raise ValueError(
            f"text: the source of options.template names the columns, {format_names(texts)}; got "
            f"{format_names(config.text)}"
        )
    texts = config.text or texts
    return texts, config.label or label or files.find_target_column(
        table, texts, config.task_options
    )


def _read_mixture(config: FinetuneConfig) -> FinetuneData:
    """Read the parts of a mixture, each as if it were alone, and put them together."""
    mixture = read_mixture(config.train)
    _check_mixture_options(config)
    read = {name: _read_mixture_task(config, mixture, name) for name in mixture.tasks}
    plain = [
        TaskExample(texts=(text.text,), location=text.location, component=name)
        for name, part in mixture.text.items()
        for text in read_documents(
            [_relative_to_mixture(config, one) for one in part.data],
            encoding_errors=config.encoding_errors,
        )
    ]

    def items(which: Literal["train", "dev", "test"]) -> list[TaskExample]:
        return [
            replace(item, component=name)
            for name, one in read.items()
            for item in getattr(one, which)
        ]

    templates = {name: one.task_options["template"] for name, one in read.items()}
    return FinetuneData(
        columns=_MIXTURE_COLUMNS,
        train=[*items("train"), *plain],
        dev=items("dev"),
        test=items("test"),
        labels=(),
        notes=_prefixed_lines(read, "notes"),
        warnings=_prefixed_lines(read, "warnings"),
        task_options=dict(config.task_options)
        | {"task_templates": templates, "plain_text_components": list(mixture.text)},
        mixture=mixture,
    )


def _prefixed_lines(
    data_by_task: Mapping[str, FinetuneData], field_name: Literal["notes", "warnings"]
) -> tuple[str, ...]:
    return tuple(
        f"{name}: {line}" for name, one in data_by_task.items() for line in getattr(one, field_name)
    )


def _check_mixture_options(config: FinetuneConfig) -> None:
    """Refuse what a mixture says itself, or what is of one file."""
    if config.task != "generate":
        raise ValueError(
            f"{config.train}: a mixture is learned by task = generate, got {config.task!r}; other "
            "tasks are learned from a file of rows"
        )
    own = {
        "dev": config.dev, "test": config.test, "labels": config.labels, "columns": config.columns,
        "choices": config.choices, "options.template": config.task_options.get("template"),
        "text": config.text if config.text != _MIXTURE_COLUMNS.texts else (),
        "label": config.label if config.label != _MIXTURE_COLUMNS.label else None,
    }  # fmt: skip
    if given := [name for name, value in own.items() if value]:
        raise ValueError(
            f"{config.train}: a mixture says itself what it reads; leave out {given[0]}"
        )
    if config.batch_tokens is not None:
        raise ValueError(
            f"{config.train}: a mixture is learned in steps of so many texts; give batch_size in "
            "place of batch_tokens"
        )


def _read_mixture_task(config: FinetuneConfig, mixture: TaskMixture, name: str) -> FinetuneData:
    """Read the files of one task of a mixture, and decide all of its template."""
    part, where = mixture.tasks[name], f"{config.train}: tasks.{name}"
    template = resolve_template(
        name if part.template is None else part.template, f"{where}.template"
    )
    if part.metric is not None:
        try:
            template = replace(template, metric=part.metric)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
    dev, test = (
        None if one is None else _relative_to_mixture(config, one) for one in (part.dev, part.test)
    )
    found = _read_task(
        replace(
            config,
            train=_relative_to_mixture(config, part.train),
            dev=dev,
            test=test,
            text=(),
            choices=(),
            label=part.label,
            columns=part.column_names,
            batch_tokens=None,
            metric=None,
            task_options=dict(config.task_options)
            | {
                "task_templates": {},
                "plain_text_components": [],
                "template": to_dict(template),
            },
        )
    )
    if template.source is None and len(found.columns.texts) > 1:
        raise ValueError(
            f"{where}.template.source must say how {format_names(found.columns.texts)} are read"
        )
    template = parse_template(found.task_options["template"], where)
    template = replace(
        template,
        target=found.columns.label,
        metric=template.metric or template.metric_names[0],
    )
    return replace(found, task_options=dict(found.task_options) | {"template": to_dict(template)})


def _relative_to_mixture(config: FinetuneConfig, path: str) -> str:
    """Return the path of a file, or of two, that a mixture names, from its own folder on."""
    folder = Path(config.train).parent
    if path.startswith("hf:"):
        return path
    first, plus, second = path.partition("+")
    if plus and "/" in second and not (folder / path).exists():
        return f"{folder / first}+{folder / second}"
    return str(folder / path)


def _check_columns(columns: TaskColumns, path: str) -> None:
    """Check that no column is read as two things."""
    for name in columns.texts:
        if name in (columns.label, *columns.choices) or columns.texts.count(name) > 1:
            what = "text twice" if columns.texts.count(name) > 1 else "text and as something else"
            raise ValueError(
                f"{path}: column {name!r} would be read as {what}; name another by text or label "
                "(--text, --label)"
            )


def _empty_text_warnings(items: Sequence[TaskExample], path: str) -> list[str]:
    """Say how many texts are empty, if any.

    Raises:
        ValueError: all are.
    """
    n = sum(not any(text.strip() for text in (*item.texts, *item.choices)) for item in items)
    if n and n == len(items):
        raise ValueError(f"{path}: all {n:,} texts are empty; there is nothing to read")
    return [f"{path}: {n:,} of {len(items):,} texts are empty"] if n else []


def _describe_columns(columns: TaskColumns) -> str:
    """Say which columns are read."""
    shown = " and ".join(repr(name) for name in columns.texts)
    if columns.choices:
        shown += ", choices " + " and ".join(repr(name) for name in columns.choices)
    return f"columns: text {shown}, label {columns.label!r}"


def _read_other_split(
    config: FinetuneConfig, path: str | None, columns: TaskColumns, labels: tuple[str, ...]
) -> list[TaskExample]:
    """Read a dev or test file, if there is one."""
    if path is None:
        return []
    found = _read_items(config, _read_table(config, path), columns)
    TASK_KINDS[config.task].check_examples(found, labels, columns.label)
    if not found:
        raise ValueError(f"{path}: no sentence has a word")
    return found


def _read_table(config: FinetuneConfig, path: str) -> tables.Table:
    return tables.read_table(
        path,
        header=config.columns,
        word_per_line=TASK_KINDS[config.task].reader.word_per_line,
        encoding_errors=config.encoding_errors,
    )


def _read_items(
    config: FinetuneConfig, table: tables.Table, columns: TaskColumns
) -> list[TaskExample]:
    found = TASK_KINDS[config.task].reader.read_examples(
        table, columns, config.encoding_errors, has_labels=True, options=config.task_options
    )
    return column_values.with_label_names(found, config.labels) if config.labels else found


def _resolve_labels(
    config: FinetuneConfig, train: Sequence[TaskExample], columns: TaskColumns
) -> tuple[str, ...]:
    """Return all labels: those that are given, or those of the training file.

    Raises:
        ValueError: there is nothing to learn, or some are given and there are none or others.
    """
    kind = TASK_KINDS[config.task]
    found = kind.find_labels(train, config.train)
    if not config.labels:
        return found
    if not found:
        raise ValueError(f"labels: the answers of {config.task} are not labels")
    kind.check_examples(train, config.labels, columns.label)
    return config.labels


def _unseen_label_warnings(
    train: Sequence[TaskExample], labels: Sequence[str], path: str
) -> list[str]:
    """Say which labels are not learned, if any."""
    seen = {label for item in train for label in column_values.example_labels(item)}
    unseen = [label for label in labels if label not in seen]
    return [f"{path}: no row that is learned from has {format_names(unseen)}"] if unseen else []


def sample_rows(items: Sequence[TaskExample], n_rows: int) -> list[TaskExample]:
    """Draw so many items by seed 0, in their order; those of a smaller number are among them."""
    order = np.random.default_rng(0).permutation(len(items))
    return [items[i] for i in sorted(order[:n_rows].tolist())]


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
    """Say whether the rate does not fall: with Adafactor, but for methods with a schedule."""
    return config.optimizer == "adafactor" and not isinstance(config.tune, GradualUnfreezing)


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
