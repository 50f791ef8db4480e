"""Recipe: all that a run depends on, as a value.

A TOML file is a difference to a card's recipe, `--set` one to the file's.
"""

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from unmask.config import (
    MAX_LEARNING_RATE,
    check_number_fields,
    from_dict,
    parse_expression,
    read_toml,
    to_dict,
)
from unmask.objectives.published import ObjectiveSpec
from unmask.tokenizers.vocabulary import MAX_VOCAB_SIZE
from unmask.training.schedules import WSD, Linear, Schedule
from unmask.word_vectors.train.trainer import WordVectorMethod

Precision = Literal["auto", "float32", "bfloat16"]


_MAX_WEIGHT_DECAY = 1e3
"""Of a weight decay, which a step multiplies by its rate."""


def _check_between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value < high:
        allowed = f"at least {low:g}" if high == math.inf else f"from {low:g} to below {high:g}"
        raise ValueError(f"{name} must be {allowed}, got {value}")


def _check_adam(betas: tuple[float, float], eps: float, weight_decay: float) -> None:
    for beta in betas:
        _check_between("optimizer.betas", beta, 0.0, 1.0)
    _check_between("optimizer.weight_decay", weight_decay, 0.0, _MAX_WEIGHT_DECAY)
    if not 0 < eps <= 1:
        raise ValueError(f"optimizer.eps must be above 0 and at most 1, got {eps}")


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2).

    The defaults are RoBERTa's (Liu et al. 2019, arXiv:1907.11692, section 3.1 and table 9).
    """

    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-6
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        _check_adam(self.betas, self.eps, self.weight_decay)


@dataclass(frozen=True, kw_only=True)
class LAMB:
    """Adam, scaled to each tensor's norm: large batches (You et al. 2020, arXiv:1904.00962)."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        _check_adam(self.betas, self.eps, self.weight_decay)


@dataclass(frozen=True, kw_only=True)
class Muon:
    """Orthogonalized momentum (Jordan et al. 2024, kellerjordan.github.io/posts/muon).

    Tables, heads, biases and norms are moved by `other_parameters`. Updates are scaled to the size
    of AdamW's, so that one rate serves both (Liu et al. 2025, arXiv:2502.16982, section 2.2).
    """

    momentum: float = 0.95
    weight_decay: float = 0.1
    other_parameters: AdamW = field(default_factory=AdamW)

    def __post_init__(self) -> None:
        _check_between("optimizer.momentum", self.momentum, 0.0, 1.0)
        _check_between("optimizer.weight_decay", self.weight_decay, 0.0, _MAX_WEIGHT_DECAY)


@dataclass(frozen=True, kw_only=True)
class Adafactor:
    """Of squared gradients the sums over rows and columns alone are remembered.

    Shazeer and Stern 2018, arXiv:1804.04235, algorithm 4, without a mean of gradients. The rate is
    relative: a tensor moves by that share of its root mean square, the update's being at most 1
    (section 8); and never by more than 1 / sqrt(step), as in algorithm 4.
    """

    decay_rate: float = 0.8
    """Squared gradients are forgotten at 1 - step^-decay (section 7.2)."""
    clip_threshold: float = 1.0
    """The root mean square of an update, at most (section 6)."""
    min_parameter_scale: float = 1e-3
    """What a tensor of smaller numbers moves relative to."""
    eps: float = 1e-15
    """The smallest root of what is divided by: that of the paper's epsilon 1, 1e-30."""
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _check_between("optimizer.decay_rate", self.decay_rate, 0.0, 1.0 + 1e-9)
        _check_between("optimizer.weight_decay", self.weight_decay, 0.0, _MAX_WEIGHT_DECAY)
        for name in ("clip_threshold", "min_parameter_scale", "eps"):
            if not 0 < getattr(self, name) <= MAX_LEARNING_RATE:
                raise ValueError(
                    f"optimizer.{name} must be above 0 and at most {MAX_LEARNING_RATE:g}, got "
                    f"{getattr(self, name)}"
                )


@dataclass(frozen=True, kw_only=True)
class SGD:
    """Each number goes down its gradient (Robbins and Monro 1951, doi:10.1214/aoms/1177729586)."""

    momentum: float = 0.0
    weight_decay: float = 0.0
    averaging_patience: int | None = None
    """Once the held-out loss is above the best of all but the last so many evaluations, the mean of
    the weights of all steps from there on is what is evaluated and kept: NT-ASGD (Merity et al.
    2018, arXiv:1708.02182, algorithm 1). None: never."""

    def __post_init__(self) -> None:
        _check_between("optimizer.momentum", self.momentum, 0.0, 1.0)
        _check_between("optimizer.weight_decay", self.weight_decay, 0.0, _MAX_WEIGHT_DECAY)
        if self.averaging_patience is not None and self.averaging_patience < 1:
            raise ValueError(
                f"optimizer.averaging_patience must be at least 1, got {self.averaging_patience}"
            )


OptimizerConfig = AdamW | LAMB | Muon | Adafactor | SGD


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that a run depends on. What is None is the preset's."""

    model: str
    """A name of the catalogue."""
    init_from: str | None = None
    """A folder or `hf:owner/name` whose weights and tokenizer begin it. None: from scratch."""
    architecture: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Differences to the preset's architecture, as plain data: {"d_model": 128}."""
    heads: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Differences to the preset's heads, likewise: {"generator": {"width_factor": 1.0}}."""
    dropout: float | None = None
    init_previous_token_heads: int = 0
    """In so many layers, the first, or in all, two heads begin by looking at the place before and
    the one after, and one of a decoder by looking for its own token in the source (see
    `unmask.model.previous_token_heads`). Not of a network that begins with given weights."""
    frozen: tuple[str, ...] = ()
    """Names of parameters that stay as they are; * and ? stand for anything: "backbone.tokens.*",
    the vectors of tokens."""
    objective: ObjectiveSpec | WordVectorMethod | str | None = None
    """A name of `unmask.zoo.objectives.presets` with its options ("rtd:generator_size=0.25"), or
    all of its parts as a table."""

    data: tuple[str, ...] = ()
    """Files, folders, globs or `hf:owner/name`."""
    document_separator: Literal["blank", "line", "file"] = "blank"
    """What separates documents in plain text."""
    text_column: str | None = None
    """The field or column that holds the text."""
    encoding_errors: Literal["strict", "replace"] = "strict"
    sampling_exponent: float = 1.0
    """Exponent of each source's share of the tokens (see `unmask.text.mixtures`). 1: as they are;
    below, rows of small sources repeat, and those of large ones wait for a later epoch."""
    dev_fraction: float = 0.01
    """Share of the documents that are never trained on."""
    tokenizer: str | None = None
    """A folder with a tokenizer. None: the card's kind is learned from the data."""
    vocab_size: int | None = None
    character_coverage: float | None = None
    """Share of the text whose characters are pieces of a vocabulary that is learned; rarer ones are
    unknown, or bytes. None: the card's, 0.9999."""

    sequence_length: int | None = None
    """Tokens a row, at most."""
    row_unit: Literal["corpus", "stream", "document", "paragraph", "sentence", "sentences"] = (
        "document"
    )
    """What a row is a piece of: rows never cross its borders. "sentences": as many full sentences
    as fit, of one document (DOC-SENTENCES of Liu et al. 2019, section 4.2). "corpus": likewise, of
    one document after the other, with a special token between documents, which see each other
    (there, FULL-SENTENCES). "stream": all documents one after the other, cut into rows of one
    length, which keep their order: those of a step go on where those of the step before ended."""
    memory_length: int = 0
    """With row_unit = stream: so many places before each row, as the network has read them, stand
    behind it in every layer (Dai et al. 2019, section 3.2). 0: none."""
    bidirectional_data: bool = False
    """With row_unit = stream: every other row goes on where that of the step before began (Yang et
    al. 2019, section 2.2). So what is remembered of it stands behind it in the text."""
    sequence_length_jitter: float = 0.0
    """With row_unit = stream: rows end so far from where they would, the standard deviation as a
    share of a row, elsewhere in every epoch; the learning rate is that of a row's length (Merity et
    al. 2018, arXiv:1708.02182, section 4.1). Deviates: there some rows are half as long, too."""
    packing: Literal["bucket", "pack"] = "bucket"
    """Rows of like length padded to the longest, or several in one, which do not see each other."""
    batch_tokens: int = 4096
    """Tokens a step, padding included, over all devices."""
    micro_batch_tokens: int | None = None
    """Tokens that go through the model at once. None: a device's whole share of the step."""

    steps: int = 10_000
    optimizer: OptimizerConfig = field(default_factory=AdamW)
    learning_rate: float = 1e-3
    """The peak learning rate."""
    schedule: Schedule = field(default_factory=Linear)
    layerwise_lr_decay: float = 1.0
    """Each layer's rate is this share of the rate of the layer above it: discriminative rates, for
    going on from given weights (Howard and Ruder 2018, arXiv:1801.06146, section 3.2)."""
    max_grad_norm: float = 1.0
    """Gradients whose norm is larger are scaled down to it. 0: never."""
    max_skipped_steps: int = 10
    """So many steps without a finite loss and gradient in a row end the run."""

    precision: Precision = "auto"
    """Of the model's weights and activations; sums and what the optimizer moves are float32."""
    compile: bool = False
    """Through torch's compiler: faster for some shapes. A resumed run is then equal up to rounding
    only, since the compiler's kernels depend on the shapes that a process meets first."""
    seed: int = 0

    log_every: int = 10
    evaluate_every: int = 500
    checkpoint_every: int = 500
    keep_checkpoints: int = 2
    """Checkpoints that are kept."""

    def __post_init__(self) -> None:
        """Check what the types do not say."""
        check_number_fields(self)
        for name in _POSITIVE_FIELDS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not 0 < self.learning_rate <= MAX_LEARNING_RATE:
            raise ValueError(
                f"learning_rate must be above 0 and at most {MAX_LEARNING_RATE:g}, got "
                f"{self.learning_rate}"
            )
        if not 0 < self.layerwise_lr_decay <= 1:
            raise ValueError(
                f"layerwise_lr_decay must be above 0 and at most 1, got {self.layerwise_lr_decay}"
            )
        _check_between("max_grad_norm", self.max_grad_norm, 0.0, math.inf)
        _check_between("dropout", self.dropout or 0.0, 0.0, 1.0)
        _check_between("dev_fraction", self.dev_fraction, 0.0, 1.0)
        _check_between("memory_length", float(self.memory_length), 0.0, math.inf)
        _check_between("sequence_length_jitter", self.sequence_length_jitter, 0.0, 1.0)
        if self.sequence_length_jitter and (self.row_unit != "stream" or self.bidirectional_data):
            raise ValueError(
                f"sequence_length_jitter = {self.sequence_length_jitter:g} is of streams that are "
                "read forward: row_unit must be 'stream', and bidirectional_data false"
            )
        if self.bidirectional_data and self.row_unit != "stream":
            raise ValueError(
                f"bidirectional_data: row_unit must be 'stream', got {self.row_unit!r}"
            )
        if self.memory_length and self.row_unit != "stream":
            raise ValueError(
                f"memory_length = {self.memory_length} is of what stood before a row, so row_unit "
                f"must be 'stream', got {self.row_unit!r}"
            )
        _check_between(
            "init_previous_token_heads", float(self.init_previous_token_heads), 0.0, math.inf
        )
        if not 0 <= self.sampling_exponent <= 1:
            raise ValueError(f"sampling_exponent must be from 0 to 1, got {self.sampling_exponent}")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be from 0 to 2^63 - 1, got {self.seed}")
        self._check_sizes()

    def _check_sizes(self) -> None:
        if self.vocab_size is not None and self.vocab_size > MAX_VOCAB_SIZE:
            raise ValueError(
                f"vocab_size must be at most {MAX_VOCAB_SIZE:,}, got {self.vocab_size:,}"
            )
        if self.sequence_length is not None and self.batch_tokens < self.sequence_length:
            raise ValueError(
                f"batch_tokens must be at least sequence_length, {self.sequence_length}, got "
                f"{self.batch_tokens}"
            )
        if (
            self.sequence_length is not None
            and self.micro_batch_tokens is not None
            and self.micro_batch_tokens < self.sequence_length
        ):
            raise ValueError(
                f"micro_batch_tokens must be at least sequence_length, {self.sequence_length}, got "
                f"{self.micro_batch_tokens}"
            )
        spans = [self.schedule.warmup]
        if isinstance(self.schedule, WSD):
            spans.append(self.schedule.decay)
        # Not rounded up: shares of a very short run may overlap by a step.
        needed = sum(s if isinstance(s, int) else s * self.steps for s in spans)
        if needed > self.steps:
            raise ValueError(
                f"schedule: warm-up and decay take {math.ceil(needed)} steps, but steps is "
                f"{self.steps}; "
                "a share such as 0.06 fits every run"
            )

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of a step; steps count from 1."""
        return self.learning_rate * self.schedule.factor(step, self.steps)


def first_differing_step(recipe: Recipe, other: Recipe, steps: int) -> int | None:
    """Return the first of some steps that two recipes take at different rates; None: none."""
    return next(
        (s for s in range(1, steps + 1) if recipe.learning_rate_at(s) != other.learning_rate_at(s)),
        None,
    )


_POSITIVE_FIELDS = (
    "vocab_size",
    "sequence_length",
    "batch_tokens",
    "micro_batch_tokens",
    "steps",
    "max_skipped_steps",
    "log_every",
    "evaluate_every",
    "checkpoint_every",
    "keep_checkpoints",
)


def read_recipe(
    source: str | Path,
    *,
    base: Callable[[str], Recipe] = lambda name: Recipe(model=name),
    changes: Iterable[str | Mapping[str, Any]] = (),
) -> Recipe:
    """Read a recipe file, or take a card's own recipe by name, and apply changes.

    Args:
        source: a path that ends in `.toml`, or the name of a card.
        base: gives the recipe of the card that the file names under `model`; the file is a
            difference to it.
        changes: see `changed`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: no TOML, an unknown key, or a value that does not fit, with file (or `--set`),
            key and what is allowed.
    """
    if str(source).endswith(".toml"):
        recipe = _apply_difference(read_toml(Path(source)), base, str(source))
    else:
        recipe = base(str(source))
    return apply_changes(recipe, changes)


def apply_changes(
    recipe: Recipe, changes: Iterable[str | Mapping[str, Any]], origin: str = "--set"
) -> Recipe:
    """Apply changes to a recipe: all of them, then what they lead to must fit together.

    Args:
        recipe: what they change.
        changes: texts `key=value` or `key.key=value`, see `parse`, and plain data; of two that
            change the same, the later one counts.
        origin: where.

    Raises:
        ValueError: an unknown key, or a value that does not fit.
    """
    plain, steps = to_dict(recipe), list(changes)
    for change in steps:
        plain = merge(plain, _parse_if_text(change, origin))
    try:
        return from_dict(Recipe, plain)
    except ValueError as error:
        plain = to_dict(recipe)
        for change in steps:  # since which of them is this wrong?
            plain = merge(plain, _parse_if_text(change, origin))
            try:
                from_dict(Recipe, plain)
            except ValueError as one:
                if str(one) == str(error):
                    where = f"{origin} {change}: " if isinstance(change, str) else ""
                    raise ValueError(f"{where}{error}") from None
        raise


def _parse_if_text(change: str | Mapping[str, Any], origin: str) -> Mapping[str, Any]:
    if not isinstance(change, str):
        return change
    try:
        return parse_change(change)
    except ValueError as error:
        raise ValueError(f"{origin} {change}: {error}") from None


def parse_change(change: str) -> dict[str, Any]:
    """Turn `schedule.warmup=0.1` into {"schedule": {"warmup": 0.1}}.

    The value is read as TOML (numbers, `true`, lists, inline tables), or as `unmask show` writes
    it: `LearnedPositions(length=512)`, `[none, 64]`. `none` is None, and anything else a string.

    Raises:
        ValueError: there is no `=`, or nothing before it.
    """
    key, equals, text = change.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not equals or not all(path):
        raise ValueError("must be key=value or key.key=value")
    value: Any = _parse_toml_value(text.strip())
    for part in reversed(path):
        value = {part: value}
    return value


def merge(plain_data: Mapping[str, Any], difference: Mapping[str, Any]) -> dict[str, Any]:
    """Lay a difference over plain data: tables into tables of the same kind; others are replaced.

    A string stands for a table of that kind: `schedule = "Cosine"`. Where an objective holds
    another one, as a pair does, what is no key of its own is one of that: `objective.choose.rate`.
    """
    result = dict(plain_data)
    for key, value in difference.items():
        if (
            key not in plain_data
            and isinstance(plain_data.get("objective"), Mapping)
            and not _is_recipe(plain_data)
        ):
            key, value = "objective", {key: value}
        old = result.get(key)
        if key == "objective" and _is_recipe(plain_data):
            if isinstance(value, str) and value[:1].islower():
                result[key] = value  # its name, and no kind
                continue
            _check_not_named(old, value)
        tables = isinstance(old, Mapping)
        if tables and "kind" in old and isinstance(value, str):
            value = {"kind": value}
        if (
            tables
            and isinstance(value, Mapping)
            and value.get("kind", old.get("kind")) == old.get("kind")
        ):
            value = merge(old, value)
        result[key] = value
    return result


def _check_not_named(old: Any, value: Any) -> None:
    """Refuse to change a part of what is named as a whole.

    Raises:
        ValueError: so it is.
    """
    if isinstance(old, str) and isinstance(value, Mapping) and "kind" not in value:
        raise ValueError(
            f"objective = {old!r} is a name, whose options follow a colon (mlm:rate=0.3); to "
            "change its parts, say it as a table with a kind"
        )


def _is_recipe(plain_data: Mapping[str, Any]) -> bool:
    """Say whether plain data are a recipe, of which an objective is a part."""
    return plain_data.get("kind") == Recipe.__name__


def _apply_difference(
    plain_data: Mapping[str, Any], base: Callable[[str], Recipe], where: str
) -> Recipe:
    name = plain_data.get("model")
    if not isinstance(name, str):
        raise ValueError(f"{where}: model must be the name of a preset, got {name!r}")
    try:
        return from_dict(Recipe, merge(to_dict(base(name)), plain_data))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _parse_toml_value(text: str) -> Any:
    if text == "none":
        return None
    try:
        read = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # no TOML, or an integer of thousands of digits
        return _parse_shown_value(text)
    return read["value"] if set(read) == {"value"} else text


def _parse_shown_value(text: str) -> Any:
    """Read a list or a value with a kind, as `unmask show` writes it; all else is a string."""
    if not (text.startswith("[") or re.fullmatch(r"[A-Za-z]\w*\(.*\)", text, re.DOTALL)):
        return text
    try:
        return parse_expression(text)
    except ValueError:
        return text
