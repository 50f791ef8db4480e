"""Options of fine-tuning: of one run and of a suite, in Python and on the command line.

`TaskFields` and `TrainingFields` are also the fields of `FinetuneConfig`, which is saved with a
run. What the options take in several forms (`tune="lora:rank=4"`) is resolved there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from unmask.compression.options import CompressionOptions
from unmask.finetuning.options.values import ClassWeights, OptimizerName, ScheduleShape
from unmask.options import DeviceOptions, EncodingOptions, Precision, TerminalOptions, flag
from unmask.tasks.kind_names import TaskKindName

if TYPE_CHECKING:
    from unmask.checkpoints.huggingface.read import LoadedModel
    from unmask.finetuning.methods.adapt_first import TaskAdaptivePretraining
    from unmask.finetuning.methods.method import FinetuningMethod
    from unmask.tokenizers.vocabulary import VocabularySpec


@runtime_checkable
class HasLoadedModel(Protocol):
    """What `unmask.load` and `finetune` return: a loaded model."""

    @property
    def loaded_model(self) -> LoadedModel:
        """The model with its tokenizer."""
        ...


@dataclass(frozen=True, kw_only=True)
class TaskFields:
    """One task: its type, its files, and how its model is selected and prompted."""

    task: TaskKindName
    """Type of task."""
    label: str | None = field(
        default=None, metadata=flag(metavar="COLUMN", shown_default="found by customary names")
    )
    """Name of the column with labels, numbers or tags."""
    metric: str | None = field(
        default=None, metadata=flag(metavar="NAME", shown_default="that of the task type")
    )
    """Metric for selecting the best checkpoint."""
    task_name: str | None = field(
        default=None, metadata=flag(metavar="NAME", shown_default="the task type")
    )
    """Task name put before each input of an encoder-decoder, e.g. sst2."""
    language: str | None = field(default=None, metadata=flag(metavar="NAME", shown_default="none"))
    """Language of the texts, for models with language embeddings (XLM): en; of text pairs in two
    languages, both: de+en. The model is evaluated in others by `evaluate --language`."""


@dataclass(frozen=True, kw_only=True)
class TrainingFields(EncodingOptions):
    """How a model is fine-tuned on any task. None: derived from the model and the data."""

    rows: int | None = field(default=None, metadata=flag(shown_default="all"))
    """Number of training rows, drawn at random with seed 0; fewer rows are among more. Development
    and test data are read whole."""
    initialize: Literal["pretrained", "random"] = "pretrained"
    """Initial weights: pretrained, or random (same network and tokenizer)."""
    baseline: bool = False
    """Fine-tune from random weights as well, with the same seeds, data and budget, and compare; of
    one label for a text, with a bag of words too (logistic regression)."""
    epochs: float | None = field(
        default=None,
        metadata=flag(metavar="N", shown_default="3 to 20, for about 1,000 steps or more"),
    )
    """Number of passes over the training data."""
    batch_size: int | None = field(
        default=None, metadata=flag(shown_default="32; 16 with fewer than 2,000 rows")
    )
    """Batch size in rows."""
    learning_rate: float | None = field(
        default=None,
        metadata=flag(metavar="R", shown_default="derived from the model and --tune"),
    )
    """Peak learning rate."""
    max_length: int | None = field(
        default=None, metadata=flag(shown_default="512, or the model's maximum if smaller")
    )
    """Maximum input length in tokens."""
    batch_tokens: int | None = None
    """Batch size in tokens, padding included; instead of `batch_size`. Rows of similar length form
    a batch; for an encoder-decoder the longer side counts."""
    warmup: float = field(default=0.1, metadata=flag(metavar="R"))
    """Length of the linear learning-rate warmup: a fraction of all steps if below 1, else a number
    of steps (Devlin et al. 2019, appendix A.2)."""
    schedule: ScheduleShape | None = field(
        default=None,
        metadata=flag(
            shown_default="that of the model's paper, mostly linear; constant with adafactor"
        ),
    )
    """Learning-rate decay after the warmup: to zero, as 1 / sqrt(step) (Vaswani et al. 2017,
    section 5.3), or none."""
    optimizer: OptimizerName = "adamw"
    """Optimizer. adafactor: learning rate relative to each tensor's scale, 1e-3 and constant by
    default, as for T5 (Raffel et al. 2020, section 3.1.2)."""
    average: int = 0
    """Number of last evaluated checkpoints to average at the end; the average is kept if it scores
    better (Vaswani et al. 2017, section 6.1). 0: none."""
    weight_decay: float = field(default=0.01, metadata=flag(metavar="R"))
    """Decoupled weight decay of weight matrices, multiplied by the learning rate."""
    class_weights: ClassWeights | None = field(default=None, metadata=flag(shown_default="equal"))
    """Weights of labels in the loss. balanced: rare labels weigh more."""
    lm_loss_weight: float | None = field(
        default=None, metadata=flag(metavar="R", shown_default="0; GPT: 0.5")
    )
    """Weight of an auxiliary language-modeling loss, for decoders with a classification head
    (Radford et al. 2018, section 4.1)."""
    dropout: float | None = field(
        default=None, metadata=flag(metavar="R", shown_default="that of the model")
    )
    """Dropout probability, instead of the model's."""
    evaluate_every: int | None = field(
        default=None, metadata=flag(shown_default="one epoch, at most 1,000")
    )
    """Interval between evaluations, in steps."""
    patience: int | None = field(default=None, metadata=flag(shown_default="no early stopping"))
    """Number of evaluations without improvement before the run stops early."""
    seed: int = 0
    """Random seed for initialization, data order, masking and dropout."""
    seeds: int = 1
    """Number of runs with consecutive seeds; mean and standard deviation are reported, and the best
    model is kept."""
    search: int = 0
    """Number of hyperparameter trials (learning rate, batch size) before the runs. 0: none."""
    precision: Precision = "auto"
    """Floating-point precision of training."""


@dataclass(frozen=True)
class _RunOptions(TrainingFields, CompressionOptions, DeviceOptions, TerminalOptions):
    """A run from a model, on whatever data."""

    base: str | Path | LoadedModel | HasLoadedModel = field(
        metadata=flag(metavar="MODEL", is_argument=True)
    )
    """Model: a run folder, a folder in the Hugging Face layout, hf:owner/name, the bundled
    unmask-mini-en, or any catalogue name, then with random weights. Not needed with `resume`."""
    _: KW_ONLY
    tune: str | FinetuningMethod = field(default="full", metadata=flag(metavar="METHOD"))
    """Tuning method: full, frozen, top, scalar_mix, gradual, bitfit, houlsby, pfeiffer, adamix,
    lora, ia3, prefix, prompt or source_encoder; with settings: lora:rank=4."""
    tokenizer: str | Path | None = field(
        default=None, metadata=flag(metavar="FOLDER", shown_default="trained on the training data")
    )
    """Folder of a tokenizer, for a catalogue name."""
    vocabulary: str | VocabularySpec | None = field(
        default=None, metadata=flag(metavar="KIND[:SIZE]", shown_default="that of the model")
    )
    """Type, and size in tokens, of the tokenizer trained for a catalogue name: words, characters,
    bytes, unigram:8000, ..."""
    resume: bool = False
    """Continue the run in `out` from its last checkpoint."""


@dataclass(frozen=True)
class FinetuneOptions(TaskFields, _RunOptions):
    """A model, a labeled task, and how the model is trained on it."""

    _: KW_ONLY
    train: str | Path = field(metadata=flag(metavar="FILE"))
    """Training data: .tsv, .csv, .json, .jsonl, .parquet; for tagging .conllu, .conll; for
    generation and instructions also a mixture of tasks, .toml."""
    dev: str | Path | None = field(
        default=None, metadata=flag(metavar="FILE", shown_default="a tenth of --train")
    )
    """Development data, for selecting the best checkpoint."""
    test: str | Path | None = field(default=None, metadata=flag(metavar="FILE"))
    """Test data, scored once at the end."""
    out: str | Path | None = field(default=None, metadata=flag(metavar="FOLDER"))
    """Output folder of the run. None: nothing is written."""
    text: str | Sequence[str] = field(
        default=(), metadata=flag(metavar="COLUMN", shown_default="found by customary names")
    )
    """Name of the text column; two for text pairs."""
    choices: str | Sequence[str] = field(default=(), metadata=flag(metavar="COLUMN"))
    """Name of a column with answer choices; one column may hold a list."""
    labels: Sequence[str] = field(
        default=(),
        metadata=flag(metavar="A,B,...", separator=",", shown_default="those of --train"),
    )
    """Comma-separated list of all labels, in order."""
    columns: Sequence[str] = field(default=(), metadata=flag(metavar="A,B,...", separator=","))
    """Comma-separated names of all columns, for files without a header."""
    task_options: Mapping[str, Any] | None = field(
        default=None, metadata=flag("--option", metavar="KEY=VALUE", is_assignments=True)
    )
    """Option of the task type, e.g. use_crf=false."""
    adapt_first: bool | TaskAdaptivePretraining = False
    """Continue pretraining on the unlabeled text of the training data first (task-adaptive
    pretraining)."""


@dataclass(frozen=True)
class FinetuneSuiteOptions(_RunOptions):
    """A model, a suite of benchmarks, and how the model is trained on each."""

    _: KW_ONLY
    tasks: str = field(metadata=flag(metavar="SUITE"))
    """Suite of benchmarks, with one run for each, instead of `task` and `train`: as-text, choices,
    glue, imdb-few, nli, questions, sentences, sentiment, sick, summaries, tagger, tags,
    text-to-text, topics, trec-few, or a .toml file."""
    out: str | Path = field(metadata=flag(metavar="FOLDER"))
    """Output folder, in which each benchmark has one."""
    data: str | Path | None = field(
        default=None, metadata=flag(metavar="FOLDER", shown_default="download from the Hub")
    )
    """Folder with the files of the suite `tasks`."""
    include_test: bool = True
    """Score the test files as well, where there are any."""
