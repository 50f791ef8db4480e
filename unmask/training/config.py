"""Recipe: all that a run depends on, as a value.

A TOML file is a difference to a card's recipe, `--set` one to the file's.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from unmask.compression.config import TrainingCompression, check_training_methods
from unmask.compression.distillation.terms import Distillation
from unmask.config import (
    MAX_LEARNING_RATE,
    check_number_fields,
    from_dict,
    parse_change,
    read_toml,
    to_dict,
)
from unmask.images.reading import PictureOptions
from unmask.objectives.published import ObjectiveSpec
from unmask.options import Precision
from unmask.text.mixtures import check_source_weights, smoothed_shares, weighted_shares
from unmask.tokenizers.vocabulary import MAX_VOCAB_SIZE
from unmask.training.optimizers.config import AdamW, OptimizerConfig, check_between
from unmask.training.schedules import WSD, Linear, Schedule
from unmask.word_vectors.train.trainer import WordVectorMethod


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that a pretraining run depends on. None: the value of the preset."""

    model: str
    """Catalogue name of the preset."""
    init_from: str | None = None
    """Initial weights, with their tokenizer: a folder or `hf:owner/name`. None: random weights."""
    architecture: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Differences to the preset's architecture, as plain data: {"d_model": 128}."""
    heads: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Differences to the preset's heads, likewise: {"generator": {"width_factor": 1.0}}."""
    dropout: float | None = None
    """Dropout probability, instead of the preset's."""
    init_previous_token_heads: int = 0
    """Number of first layers in which two heads are initialized to attend to the previous and the
    next position, and one of a decoder to its own token in the source; at most all layers (see
    `unmask.model.previous_token_heads`). Not with `init_from`."""
    frozen: tuple[str, ...] = ()
    """Names of parameters that are not trained, with the wildcards * and ?: "backbone.tokens.*" are
    the token embeddings."""
    objective: ObjectiveSpec | WordVectorMethod | str | None = None
    """Pretraining objective: a name of `unmask.zoo.objectives.presets` with its options
    ("rtd:generator_size=0.25"), or all of its parts as a table."""

    data: tuple[str, ...] = ()
    """Data sources: files, folders, glob patterns or `hf:owner/name`."""
    document_separator: Literal["blank", "line", "file"] = "blank"
    """Unit that forms one document in .txt files: blank (text between blank lines), line or
    file."""
    text_column: str | None = None
    """Name of the column with the text, in records."""
    encoding_errors: Literal["strict", "replace"] = "strict"
    """Handling of bytes that are not valid UTF-8: strict (error) or replace (by U+FFFD)."""
    sampling_exponent: float = 1.0
    """Exponent of each source's size in its sampling probability. 1: proportional to size; 0.3:
    small sources are upsampled, so that their rows repeat and those of large ones wait for a later
    epoch. A folder counts as one source."""
    source_weights: Mapping[str, float] = field(default_factory=dict[str, float])
    """Share of a source in the tokens that are read, in any unit, by its name or the last part of
    it: wiki=7, code=3. A source that is used up is read again, its rows in another order. Instead
    of `sampling_exponent`. Default: sources are not weighted."""
    image_size: tuple[int, int] | None = None
    """Height and width of pictures in pixels, multiples of the patch size. None: the preset's."""
    pictures: PictureOptions | None = None
    """How pictures are read and changed, of a network that reads pictures. None: as they are."""
    dev_fraction: float = 0.01
    """Fraction of the documents, or pictures, that is held out for evaluation."""
    tokenizer: str | None = None
    """Folder of a tokenizer. None: one of the preset's type is trained on the data."""
    vocab_size: int | None = None
    """Vocabulary size of the trained tokenizer, in tokens."""
    character_coverage: float | None = None
    """Fraction of the text's characters covered by the trained tokenizer's alphabet, above 0 and at
    most 1; rarer ones are unknown, or bytes. None: that of the preset, 0.9999."""

    sequence_length: int | None = None
    """Maximum sequence length in tokens."""
    row_unit: Literal["corpus", "stream", "document", "paragraph", "sentence", "sentences"] = (
        "document"
    )
    """Unit whose borders a row does not cross. "sentences": as many full sentences of one document
    as fit (DOC-SENTENCES of Liu et al. 2019, section 4.2). "corpus": likewise, of consecutive
    documents, with a special token between them, which attend to each other (FULL-SENTENCES,
    ibid.). "stream": all documents in sequence, cut into rows of one length that keep their order:
    the rows of a step continue those of the step before."""
    reshuffle_documents: bool = False
    """Join the documents in another order in each epoch, with row_unit = corpus or stream, so that
    other documents are neighbors; those of a source stay together. False: in their order."""
    memory_length: int = 0
    """Length of the recurrent memory before each row in every layer, in positions, with row_unit =
    stream (Dai et al. 2019, section 3.2). 0: none."""
    bidirectional_data: bool = False
    """Reverse every other row, with row_unit = stream, so that its memory holds what follows it in
    the text (Yang et al. 2019, section 2.2)."""
    sequence_length_jitter: float = 0.0
    """Standard deviation of row ends, as a fraction of a row, sampled in every epoch, with row_unit
    = stream; the learning rate is scaled by the length of a row (Merity et al. 2018,
    arXiv:1708.02182, section 4.1).
    Deviates: the paper also halves the length of some rows."""
    packing: Literal["bucket", "pack"] = "bucket"
    """Layout of rows. bucket: rows of similar length, padded to the longest; pack: several texts in
    one row, which do not attend to each other."""
    batch_tokens: int = 4096
    """Batch size in tokens, padding included, over all devices."""
    micro_batch_tokens: int | None = None
    """Tokens in one forward pass. None: a device's whole share of the batch."""

    steps: int = 10_000
    """Number of optimizer steps."""
    optimizer: OptimizerConfig = field(default_factory=AdamW)
    """Optimizer with its settings."""
    learning_rate: float = 1e-3
    """Peak learning rate."""
    schedule: Schedule = field(default_factory=Linear)
    """Learning-rate schedule: warmup and decay."""
    layerwise_lr_decay: float = 1.0
    """Ratio of each layer's learning rate to that of the layer above it: discriminative
    fine-tuning, with `init_from` (Howard and Ruder 2018, arXiv:1801.06146, section 3.2)."""
    max_grad_norm: float = 1.0
    """Norm to which larger gradients are scaled down. 0: never."""
    max_skipped_steps: int = 10
    """Number of consecutive skipped steps that end the run: without a finite loss and gradient, or
    spikes."""
    skip_spikes: float | None = None
    """Standard deviations above the mean of the last 128 steps, of the loss or the gradient norm,
    from which a step is skipped, 6 for instance (OLMo-core's default). None: none is."""

    compression: tuple[TrainingCompression, ...] = ()
    """Compression while training: at most one method that sets weights to zero (GradualPruning,
    MovementPruning, KeepZeros), then at most one that rounds them (QuantizationAware)."""

    distillation: Distillation | None = None
    """Teachers, and what the model is compared with beside its own objective. None: no teacher."""

    precision: Precision = "auto"
    """Floating-point precision of weights and activations in training; sums and the optimizer's
    weights are float32."""
    compile: bool = False
    """Compile the network with torch.compile: faster for some shapes. A resumed run is then equal
    up to rounding only, since the kernels depend on the shapes that a process meets first."""
    seed: int = 0
    """Random seed for initialization, data order, masking and dropout."""

    log_every: int = 10
    """Interval between log entries, in steps; shorter where few steps fit into `--minutes`."""
    evaluate_every: int = 500
    """Interval between evaluations on held-out text, in steps."""
    checkpoint_every: int = 500
    """Interval between checkpoints, in steps."""
    keep_checkpoints: int = 2
    """Number of checkpoints that are kept, the latest ones."""

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
        check_between("max_grad_norm", self.max_grad_norm, 0.0, math.inf)
        check_between("dropout", self.dropout or 0.0, 0.0, 1.0)
        check_between("dev_fraction", self.dev_fraction, 0.0, 1.0)
        check_between("memory_length", float(self.memory_length), 0.0, math.inf)
        check_between("sequence_length_jitter", self.sequence_length_jitter, 0.0, 1.0)
        if self.sequence_length_jitter and (self.row_unit != "stream" or self.bidirectional_data):
            raise ValueError(
                f"sequence_length_jitter = {self.sequence_length_jitter:g} is of streams that are "
                "read forward: row_unit must be 'stream', and bidirectional_data false"
            )
        if self.reshuffle_documents and self.row_unit not in ("corpus", "stream"):
            raise ValueError(
                f"reshuffle_documents: row_unit must be 'corpus' or 'stream', got "
                f"{self.row_unit!r}, whose rows are of one document and in another order in each "
                "epoch as it is"
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
        check_between(
            "init_previous_token_heads", float(self.init_previous_token_heads), 0.0, math.inf
        )
        self._check_sources()
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be from 0 to 2^63 - 1, got {self.seed}")
        check_training_methods(self.compression)
        self._check_sizes()

    def _check_sources(self) -> None:
        if not 0 <= self.sampling_exponent <= 1:
            raise ValueError(f"sampling_exponent must be from 0 to 1, got {self.sampling_exponent}")
        check_source_weights(self.source_weights)
        if self.source_weights and self.sampling_exponent != 1:
            raise ValueError(
                f"source_weights and sampling_exponent = {self.sampling_exponent:g}: both say how "
                "often sources are read; give one"
            )

    @property
    def samples_sources(self) -> bool:
        """Whether sources are read in other shares than they have."""
        return self.sampling_exponent != 1 or bool(self.source_weights)

    @property
    def sampling_name(self) -> str:
        """What says how often sources are read, for messages."""
        if self.source_weights:
            return "source_weights"
        return f"sampling_exponent = {self.sampling_exponent:g}"

    def sampling_shares(self, names: Sequence[str], sizes: Sequence[int]) -> list[float]:
        """Return the share of the tokens that each source gets.

        Args:
            names: of the sources.
            sizes: of the sources, in any unit.

        Raises:
            ValueError: a weight is of no source, or a source has none.
        """
        if self.source_weights:
            return weighted_shares(names, self.source_weights)
        return smoothed_shares(sizes, self.sampling_exponent)

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


def merge(plain_data: Mapping[str, Any], difference: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a difference into plain data: tables of the same kind are merged, others replaced.

    A string is a table of that kind: `schedule = "Cosine"`. Where an objective contains another
    one, as a sentence pair does, a key that it does not have is one of the inner objective:
    `objective.choose.rate`.
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
    """Return whether plain data are those of a recipe."""
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
