"""Tuning: all that a fine-tuning run depends on, and how what is left open is decided."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast, get_type_hints

import numpy as np

from unmask.config import MOST_RATE, check, to_dict
from unmask.finetuning.in_domain import MOST_EPOCHS, InDomain
from unmask.finetuning.kinds.catalogue import TASK_KINDS
from unmask.finetuning.kinds.kind import Informed
from unmask.finetuning.methods import Full, Gradual, Method, Shape, SourceEncoder, rate_of
from unmask.finetuning.mixture import Mixture, is_mixture, read_mixture
from unmask.finetuning.weights import ClassWeights
from unmask.tasks.readers import column_values, tables
from unmask.tasks.readers.task_files import Deciding, Naming
from unmask.tasks.task import KINDS, Columns, Item, Kind, Task, split
from unmask.tasks.text_forms import form_of, plain_form
from unmask.text.corpus import documents
from unmask.text.lines import EncodingErrors
from unmask.text.records import listed
from unmask.tokens.vocabulary import Vocabulary
from unmask.training.recipe import Precision

Word = Literal["adamw", "adafactor"]
"""What takes the steps."""
RANDOM = "random initialization"
PRETRAINED = "pretrained"

_STEPS, _MOST_EPOCHS, _LEAST_EPOCHS = 1000, 20, 3
_OFTEN = 1000
_LEAST: Mapping[str, int] = {
    "batch": 1, "batch_tokens": 1, "length": 1, "micro_tokens": 1, "evaluate_every": 1,
    "patience": 1, "log_every": 1, "average": 0, "seeds": 1, "rows": 1, "search": 0,
    "weight_decay": 0, "auxiliary": 0, "clip": 0,
}  # fmt: skip
_MOST: Mapping[str, float] = {
    "rate": MOST_RATE, "weight_decay": 1e3, "auxiliary": 1e3, "clip": 1e9, "warmup": 1e12,
}  # fmt: skip
_RELATIVE_RATE = 1e-3
_MIXED = Columns(texts=("source",), label="target")
"""What is read of a mixture: what its tasks' forms make of their columns."""
# The first two are measured: docs/log.md, 2026-11-21.
_RATES = (
    (2_500_000, 1e-3), (6_000_000, 5e-4), (20_000_000, 3e-4), (80_000_000, 1e-4),
    (200_000_000, 5e-5),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """All that a run depends on. What is None is decided from the model and the data."""

    base: str
    """A run folder, a folder in the Hugging Face layout, `hf:owner/name`, or a name of the
    catalogue."""
    task: Kind
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
    numbers 0, 1 and so on, these are places in them; see `column_values.with_names`."""
    rows: int | None = None
    """Learn from so many rows of the training file, drawn by seed 0; fewer are among more."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else the kind of task lets one choose; see `unmask.finetuning.kinds`."""
    encoding_errors: EncodingErrors = "strict"

    initialize: Literal["pretrained", "random"] = "pretrained"
    """random: the same network and tokenizer, its weights drawn from the seed."""
    baseline: bool = False
    """Also tune a randomly initialized network, with the same seeds, data and budget."""
    in_domain: InDomain | None = None
    """The model first goes on with pretraining on the text of the task. None: it does not."""
    tokenizer: str | None = None
    """A folder, for a name of the catalogue. None: learned from the training texts."""
    vocabulary: Vocabulary | None = None
    """What is learned from them. None: the card's kind."""
    tune: Method = field(default_factory=Full)
    """What is tuned."""
    dropout: float | None = None
    name: str | None = None
    """What an encoder-decoder reads before a text. None: the kind of the task."""
    length: int | None = None
    """Tokens that are read of a text, or of a pair, at most."""

    metric: str | None = None
    """By which the best state is kept."""
    epochs: float | None = None
    batch: int | None = None
    """Texts a step."""
    batch_tokens: int | None = None
    """Tokens a step, padding included, in the place of `batch`: as many texts of like length as
    have so many; of an encoder-decoder, of the side that has more."""
    rate: float | None = None
    """The peak."""
    warmup: float = 0.1
    """Share of the steps in which the rate rises, or, from 1 on, so many steps; then it falls
    (Devlin et al. 2019, appendix A.2)."""
    schedule: Shape | None = None
    """How it falls: to zero, in a line, or as 1 / sqrt(step) (Vaswani et al. 2017, section 5.3).
    None: as in the model's paper, of most models in a line; with Adafactor not at all."""
    optimizer: Word = "adamw"
    """adafactor: a rate that is relative to each tensor's size, 1e-3 and constant unless told
    otherwise (Raffel et al. 2020, section 3.1.2)."""
    average: int = 0
    """At the end the mean of the weights at so many last evaluations is scored, too, and kept if it
    is better than the best of them (Vaswani et al. 2017, section 6.1: 5, of the large model 20)."""
    weight_decay: float = 0.01
    class_weights: ClassWeights | None = None
    """How much each label counts while it is learned, or "balanced": rare ones count more."""
    auxiliary: float | None = None
    """Weight of a language model's loss beside the task's, for decoders with a head of labels; 0.5
    in Radford et al. 2018, section 4.1. None: that of the model's paper, which most do not have."""
    clip: float = 1.0
    micro_tokens: int | None = None
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
        if self.task not in KINDS:
            raise ValueError(f"task must be one of {', '.join(KINDS)}, got {self.task!r}")
        for name, kind in get_type_hints(Tuning).items():
            check(kind, to_dict(getattr(self, name)), name)
        self._check_numbers()
        _check_finite(to_dict(self), "")
        _check_labels(self.labels)
        for name in ("train", "dev", "test"):
            if getattr(self, name) == "":
                raise ValueError(f"{name} must name a file, got ''")

    def _check_numbers(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        for name in ("epochs", "rate"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, got {value}")
        self._check_most()
        if self.epochs is not None and self.epochs > MOST_EPOCHS:
            raise ValueError(f"epochs must be at most {MOST_EPOCHS:,.0f}, got {self.epochs}")
        if not 0 <= self.seed <= 2**63 - self.seeds:
            raise ValueError(f"seed must be from 0 to below 2^63, got {self.seed}")
        if not (0 <= self.warmup < 1 or (self.warmup > 0 and self.warmup % 1 == 0)):
            raise ValueError(
                "warmup must be a share of the steps from 0 to below 1, or a whole number of "
                f"steps, got {self.warmup}"
            )
        self._check_together()

    def _check_most(self) -> None:
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be from 0 to below 1, got {self.dropout}")
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is not None and value > most and math.isfinite(value):
                raise ValueError(f"{name} must be at most {most:g}, got {value}")

    def _check_together(self) -> None:
        if self.batch is not None and self.batch_tokens is not None:
            raise ValueError("batch counts texts and batch_tokens their tokens: give one of them")
        if self.tokenizer is not None and self.vocabulary is not None:
            raise ValueError("vocabulary is of a tokenizer that is learned: give it or tokenizer")
        if self.average == 1:
            raise ValueError("average must be at least 2, or 0 for none, got 1")
        if self.average and self.patience is not None:
            raise ValueError("average is of a run's end, which patience leaves open: give one")
        if self.in_domain is not None and self.initialize == "random":
            raise ValueError("in_domain goes on from trained weights: initialize is not 'random'")
        if self.in_domain is not None and self.search:
            raise ValueError(
                "search is of a model that is there: give one of search and in_domain, and search "
                "on the model of a run that had in_domain"
            )
        if self.schedule is not None and isinstance(self.tune, Gradual):
            raise ValueError("gradual has a schedule of its own, a slanted triangle")
        if isinstance(self.tune, SourceEncoder) and self.task != "generate":
            raise ValueError(f"tune = source is for task = generate, got {self.task!r}")


def _check_finite(value: Any, name: str) -> None:
    """Check every number, also of what is tuned and of the options of the task."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value}")
    if isinstance(value, Mapping):
        for key, one in cast("Mapping[str, Any]", value).items():
            _check_finite(one, f"{name}.{key}".lstrip("."))


def _check_labels(labels: Sequence[str]) -> None:
    if labels and (len(labels) < 2 or len(set(labels)) < len(labels)):
        raise ValueError(f"labels must be two or more that differ, got {listed(labels)}")


@dataclass(frozen=True, kw_only=True)
class Data:
    """What is learned from, chosen by and tested on."""

    columns: Columns
    train: Sequence[Item]
    dev: Sequence[Item]
    test: Sequence[Item]
    labels: tuple[str, ...]
    notes: tuple[str, ...]
    """What a user should be told."""
    warnings: tuple[str, ...]
    """And what may be a mistake."""
    options: Mapping[str, Any]
    """Those of the task, with what the training file decides of them."""
    mixture: Mixture | None = None
    """Where several tasks are learned: which, and how often."""


def read(tuning: Tuning) -> Data:
    """Read the files of a run.

    Raises:
        FileNotFoundError: one is missing.
        ValueError: one is not what it should be, with file and line.
    """
    return _read_mixture(tuning) if is_mixture(tuning.train) else _read(tuning)


def _read(tuning: Tuning) -> Data:
    """Read the files of one task."""
    kind = TASK_KINDS[tuning.task]
    table = _table(tuning, tuning.train)
    columns = kind.files.columns(table, *_named(tuning, table), tuning.choices)
    _check_columns(columns, tuning.train)
    notes = [] if tables.pair_of(tuning.train) else [_of_columns(columns)]
    if isinstance(kind.files, Deciding):
        said = kind.files.decided(table, columns, tuning.encoding_errors, tuning.options)
        tuning = replace(tuning, options=said)
    train = _items(tuning, table, columns)
    if not train:
        raise ValueError(f"{tuning.train}: no sentence has a word")
    labels = _labels(tuning, train, columns)
    if isinstance(kind, Informed):
        tuning = replace(tuning, options=kind.informed(train, labels, tuning.options))
    dev, test = (_other(tuning, path, columns, labels) for path in (tuning.dev, tuning.test))
    if tuning.dev is None:
        what = "sentences, parted by blank lines" if kind.files.tagged else "rows"
        train, dev = split(train, where=tuning.train, what=what)
        n, m = len(train), len(dev)
        notes.append(
            f"no dev file: {m:,} of the {n + m:,} training rows are set aside to choose by"
        )
    if tuning.rows is not None and tuning.rows < len(train):
        notes.append(f"{tuning.rows:,} of {len(train):,} training rows are learned from")
        train = drawn(train, tuning.rows)
        kind.labels(train, f"{tuning.rows} rows of {tuning.train}")
    warnings = _unseen(train, labels, tuning.train)
    for path, some in ((tuning.train, train), (tuning.dev, dev), (tuning.test, test)):
        warnings += _empty(some, path or tuning.train)
    return Data(
        columns=columns, train=train, dev=dev, test=test, labels=labels,
        notes=tuple(notes), warnings=tuple(warnings), options=tuning.options,
    )  # fmt: skip


def _named(tuning: Tuning, table: tables.Table) -> tuple[tuple[str, ...], str | None]:
    """Return the columns that are named, by options of their own or by those of the task."""
    files = TASK_KINDS[tuning.task].files
    if not isinstance(files, Naming):
        return tuning.text, tuning.label
    texts, label = files.named(tuning.options)
    if texts and tuning.text and tuning.text != texts:
        raise ValueError(
            f"text: the source of options.form names the columns, {listed(texts)}; got "
            f"{listed(tuning.text)}"
        )
    texts = tuning.text or texts
    return texts, tuning.label or label or files.target(table, texts, tuning.options)


def _read_mixture(tuning: Tuning) -> Data:
    """Read the parts of a mixture, each as if it were alone, and put them together."""
    mixture = read_mixture(tuning.train)
    _check_alone(tuning)
    read = {name: _part(tuning, mixture, name) for name in mixture.tasks}
    plain = [
        Item(texts=(text.text,), where=text.where, part=name)
        for name, part in mixture.text.items()
        for text in documents(
            [_beside(tuning, one) for one in part.data], encoding_errors=tuning.encoding_errors
        )
    ]

    def items(which: Literal["train", "dev", "test"]) -> list[Item]:
        return [
            replace(item, part=name) for name, one in read.items() for item in getattr(one, which)
        ]

    forms = {name: one.options["form"] for name, one in read.items()}
    return Data(
        columns=_MIXED, train=[*items("train"), *plain], dev=items("dev"), test=items("test"),
        labels=(), notes=_said(read, "notes"), warnings=_said(read, "warnings"),
        options=dict(tuning.options) | {"tasks": forms, "plain": list(mixture.text)},
        mixture=mixture,
    )  # fmt: skip


def _said(read: Mapping[str, Data], which: Literal["notes", "warnings"]) -> tuple[str, ...]:
    return tuple(f"{name}: {line}" for name, one in read.items() for line in getattr(one, which))


def _check_alone(tuning: Tuning) -> None:
    """Refuse what a mixture says itself, or what is of one file."""
    if tuning.task != "generate":
        raise ValueError(
            f"{tuning.train}: a mixture is learned by task = generate, got {tuning.task!r}; other "
            "tasks are learned from a file of rows"
        )
    own = {
        "dev": tuning.dev, "test": tuning.test, "labels": tuning.labels, "columns": tuning.columns,
        "choices": tuning.choices, "options.form": tuning.options.get("form"),
        "text": tuning.text if tuning.text != _MIXED.texts else (),
        "label": tuning.label if tuning.label != _MIXED.label else None,
    }  # fmt: skip
    if given := [name for name, value in own.items() if value]:
        raise ValueError(
            f"{tuning.train}: a mixture says itself what it reads; leave out {given[0]}"
        )
    if tuning.batch_tokens is not None:
        raise ValueError(
            f"{tuning.train}: a mixture is learned in steps of so many texts; give batch in place "
            "of batch_tokens"
        )


def _part(tuning: Tuning, mixture: Mixture, name: str) -> Data:
    """Read the files of one task of a mixture, and decide all of its form."""
    part, where = mixture.tasks[name], f"{tuning.train}: tasks.{name}"
    form = form_of(name if part.form is None else part.form, f"{where}.form")
    if part.metric is not None:
        try:
            form = replace(form, metric=part.metric)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
    dev, test = (None if one is None else _beside(tuning, one) for one in (part.dev, part.test))
    found = _read(
        replace(
            tuning, train=_beside(tuning, part.train), dev=dev, test=test, text=(), choices=(),
            label=part.label, columns=part.columns, batch_tokens=None, metric=None,
            options=dict(tuning.options) | {"tasks": {}, "plain": [], "form": to_dict(form)},
        )
    )  # fmt: skip
    if form.source is None and len(found.columns.texts) > 1:
        raise ValueError(f"{where}.form.source must say how {listed(found.columns.texts)} are read")
    form = plain_form(found.options["form"], where)
    form = replace(form, target=found.columns.label, metric=form.metric or form.metrics[0])
    return replace(found, options=dict(found.options) | {"form": to_dict(form)})


def _beside(tuning: Tuning, named: str) -> str:
    """Return the path of a file, or of two, that a mixture names, from its own folder on."""
    folder = Path(tuning.train).parent
    if named.startswith("hf:"):
        return named
    first, plus, second = named.partition("+")
    if plus and "/" in second and not (folder / named).exists():
        return f"{folder / first}+{folder / second}"
    return str(folder / named)


def _check_columns(columns: Columns, path: str) -> None:
    """Check that no column is read as two things."""
    for name in columns.texts:
        if name in (columns.label, *columns.choices) or columns.texts.count(name) > 1:
            what = "text twice" if columns.texts.count(name) > 1 else "text and as something else"
            raise ValueError(
                f"{path}: column {name!r} would be read as {what}; name another by text or label "
                "(--text, --label)"
            )


def _empty(items: Sequence[Item], path: str) -> list[str]:
    """Say how many texts are empty, if any.

    Raises:
        ValueError: all are.
    """
    n = sum(not any(text.strip() for text in (*item.texts, *item.options)) for item in items)
    if n and n == len(items):
        raise ValueError(f"{path}: all {n:,} texts are empty; there is nothing to read")
    return [f"{path}: {n:,} of {len(items):,} texts are empty"] if n else []


def _of_columns(columns: Columns) -> str:
    """Say which columns are read."""
    shown = " and ".join(repr(name) for name in columns.texts)
    if columns.choices:
        shown += ", choices " + " and ".join(repr(name) for name in columns.choices)
    return f"columns: text {shown}, label {columns.label!r}"


def _other(
    tuning: Tuning, path: str | None, columns: Columns, labels: tuple[str, ...]
) -> list[Item]:
    """Read a dev or test file, if there is one."""
    if path is None:
        return []
    found = _items(tuning, _table(tuning, path), columns)
    TASK_KINDS[tuning.task].check(found, labels, columns.label)
    if not found:
        raise ValueError(f"{path}: no sentence has a word")
    return found


def _table(tuning: Tuning, path: str) -> tables.Table:
    return tables.read(
        path,
        header=tuning.columns,
        tagged=TASK_KINDS[tuning.task].files.tagged,
        errors=tuning.encoding_errors,
    )


def _items(tuning: Tuning, table: tables.Table, columns: Columns) -> list[Item]:
    found = TASK_KINDS[tuning.task].files.items(
        table, columns, tuning.encoding_errors, known=True, options=tuning.options
    )
    return column_values.with_names(found, tuning.labels) if tuning.labels else found


def _labels(tuning: Tuning, train: Sequence[Item], columns: Columns) -> tuple[str, ...]:
    """Return all labels: those that are given, or those of the training file.

    Raises:
        ValueError: there is nothing to learn, or some are given and there are none or others.
    """
    kind = TASK_KINDS[tuning.task]
    found = kind.labels(train, tuning.train)
    if not tuning.labels:
        return found
    if not found:
        raise ValueError(f"labels: the answers of {tuning.task} are not labels")
    kind.check(train, tuning.labels, columns.label)
    return tuning.labels


def _unseen(train: Sequence[Item], labels: Sequence[str], path: str) -> list[str]:
    """Say which labels are not learned, if any."""
    seen = {label for item in train for label in column_values.labels_in(item)}
    unseen = [label for label in labels if label not in seen]
    return [f"{path}: no row that is learned from has {listed(unseen)}"] if unseen else []


def drawn(items: Sequence[Item], rows: int) -> list[Item]:
    """Draw so many items by seed 0, in their order; those of a smaller number are among them."""
    order = np.random.default_rng(0).permutation(len(items))
    return [items[i] for i in sorted(order[:rows].tolist())]


def settle(tuning: Tuning, task: Task, n_train: int, parameters: int, *, words: bool) -> Tuning:
    """Decide what is left open.

    Little data is learned in more epochs, up to 20 (Mosbach et al. 2021, arXiv:2006.04884, section
    6), so that there are about 1,000 steps at least; much in 3 (Devlin et al. 2019, appendix A.3).

    Args:
        tuning: what was asked for.
        task: as it is learned.
        n_train: items to learn from.
        parameters: of the model.
        words: the model says its answers in words.
    """
    batch = tuning.batch or (16 if n_train < 2000 else 32)
    steps = -(-n_train // batch)  # an epoch
    epochs = tuning.epochs or min(max(-(-_STEPS // steps), _LEAST_EPOCHS), _MOST_EPOCHS)
    full = customary_rate(parameters, words=words)
    if tuning.optimizer == "adafactor":
        full = _RELATIVE_RATE
    return replace(
        tuning,
        batch=batch if tuning.batch_tokens is None else None,
        epochs=float(epochs),
        rate=tuning.rate or rate_of(tuning.tune, full),
        schedule=tuning.schedule or ("constant" if _keeps_rate(tuning) else None),
        metric=task.metric,
        length=task.length,
        name=task.name,
        text=task.columns.texts,
        label=task.columns.label,
        choices=task.columns.choices,
        options=task.options,
    )


def _keeps_rate(tuning: Tuning) -> bool:
    """Say whether the rate does not fall: with Adafactor, but for methods with a schedule."""
    return tuning.optimizer == "adafactor" and not isinstance(tuning.tune, Gradual)


def batch_of(tuning: Tuning) -> str:
    """Say how large the steps of a settled run are."""
    return str(tuning.batch) if tuning.batch_tokens is None else f"{tuning.batch_tokens:,} tokens"


def customary_rate(parameters: int, *, words: bool) -> float:
    """Return the peak learning rate that is customary with AdamW for so many parameters.

    Encoders and decoders: Devlin et al. 2019, appendix A.3, for the published sizes, and Turc et
    al. 2019, arXiv:1908.08962, section 4, for small ones. T5 is tuned at 1e-3 with Adafactor
    (Raffel et al. 2020, section 3.1.1), whose steps are relative to the size of the weights; a
    third to a tenth of that is customary with AdamW.
    """
    if words:
        return 1e-3 if parameters < 20_000_000 else 3e-4 if parameters < 400_000_000 else 1e-4
    for most, rate in _RATES:
        if parameters < most:
            return rate
    return 2e-5


def paced(tuning: Tuning, an_epoch: int) -> Tuning:
    """Decide how often a settled run is scored, whose epochs have so many steps.

    Raises:
        ValueError: it is scored less often than a mean is to be of.
    """
    every = tuning.evaluate_every or min(an_epoch, _OFTEN)
    n = steps(tuning, an_epoch)
    if (found := n // every) < tuning.average:
        raise ValueError(
            f"average = {tuning.average} is the mean of so many evaluations, but with one every "
            f"{every:,} of {n:,} steps there are {found}; lower evaluate_every"
        )
    return replace(tuning, evaluate_every=every)


def steps(tuning: Tuning, an_epoch: int) -> int:
    """Count the steps of a settled run, whose epochs have so many."""
    assert tuning.epochs is not None
    return max(math.ceil(tuning.epochs * an_epoch), 1)
