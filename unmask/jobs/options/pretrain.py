"""PretrainOptions: the options of `pretrain`, in Python and on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from unmask.compression.options import CompressionOptions, training_methods
from unmask.config import to_dict
from unmask.options import Flag, LoaderOptions, QuietOptions, flag
from unmask.shards.remote.access import RemoteOptions

if TYPE_CHECKING:
    from unmask.training.config import Recipe

_RECIPE_CLASS = "unmask.training.config:Recipe"


def _of_recipe(*names: str, metavar: str | None = None, of: str = "recipe") -> Mapping[str, Flag]:
    """Return the metadata of an option that sets a key of the recipe."""
    return flag(
        *names, metavar=metavar, shown_default=f"that of the {of}", documented_in=_RECIPE_CLASS
    )


@dataclass(frozen=True)
class PretrainOptions(LoaderOptions, RemoteOptions, QuietOptions, CompressionOptions):
    """Model, data and length of pretraining; None keeps a key of the recipe."""

    model: str | Path | Recipe | None = field(
        default=None, metadata=flag(metavar="MODEL", is_argument=True)
    )
    """Catalogue name (see `unmask models`), or a recipe file (.toml); in Python also a Recipe. Not
    needed with `resume`."""
    _: KW_ONLY
    data: str | Path | Sequence[str | Path] = field(default=(), metadata=flag(metavar="PATH"))
    """Data source: a file (.txt, .jsonl, .csv, .tsv, .parquet, each also .gz, .xz, .zst), a folder,
    a quoted glob pattern, hf:owner/name, or one folder written by `unmask prepare`, also by its
    URL (s3://bucket/folder, https://host/folder, gs://, az://)."""
    out: str | Path = field(metadata=flag(metavar="FOLDER"))
    """Output folder of the run, a new one unless `resume`."""
    steps: int | None = field(default=None, metadata=flag(shown_default="that of the recipe"))
    """Number of optimizer steps. A resumed run may have more than before, if the learning rates of
    completed steps do not depend on it."""
    tokens: int | None = None
    """Training length in tokens read, padding included; instead of `steps`."""
    minutes: int | float | None = field(default=None, metadata=flag(metavar="M"))
    """Training length in minutes; instead of `steps`. The number of steps is measured on this
    machine and fixed at the start."""
    init_from: str | Path | None = field(default=None, metadata=flag("--from", metavar="MODEL"))
    """Initial weights, with their tokenizer: a run folder, a Hugging Face folder, hf:owner/name or
    unmask-mini-en."""
    tokenizer: str | Path | None = field(default=None, metadata=flag(metavar="FOLDER"))
    """Folder of a tokenizer to use instead of training one."""
    vocab_size: int | None = field(default=None, metadata=_of_recipe(of="model"))
    sequence_length: int | None = field(default=None, metadata=_of_recipe())
    document_separator: Literal["blank", "line", "file"] | None = field(
        default=None, metadata=_of_recipe("--document", of="recipe: blank")
    )
    text_column: str | None = field(
        default=None,
        metadata=flag(
            "--text", metavar="COLUMN", shown_default="text", documented_in=_RECIPE_CLASS
        ),
    )
    encoding_errors: Literal["strict", "replace"] | None = field(
        default=None, metadata=_of_recipe(of="recipe: strict")
    )
    sampling_exponent: int | float | None = field(default=None, metadata=_of_recipe())
    source_weights: Mapping[str, int | float] | Sequence[str] = field(
        default=(),
        metadata=flag("--source-weight", metavar="NAME=WEIGHT", documented_in=_RECIPE_CLASS),
    )
    seed: int | None = field(default=None, metadata=_of_recipe())
    objective: str | None = field(
        default=None, metadata=flag(metavar="NAME", shown_default="that of the model")
    )
    """Pretraining objective, e.g. mlm, clm, rtd, mlm:rate=0.3+nsp (docs/objectives.md)."""
    checkpoint_every: int | None = field(default=None, metadata=_of_recipe())
    changes: Sequence[str | Mapping[str, Any]] = field(
        default=(), metadata=flag("--set", metavar="KEY=VALUE")
    )
    """Any other key of the recipe, e.g. learning_rate=5e-4."""
    resume: bool = False
    """Continue the run in `out` from its last intact checkpoint."""
    strategy: Literal["ddp", "fsdp"] = "ddp"
    """Parallelism of the processes of torchrun: ddp (they share the batch) or fsdp (also weights,
    gradients and optimizer state, of which each has its part)."""
    checkpoint_activations: bool = False
    """Activation checkpointing: only the inputs of layers are kept for the backward, which computes
    the rest again: less memory, a third more time. Results do not depend on it."""
    tensorboard: bool = False
    """Write TensorBoard event files as well."""

    def recipe_keys(self) -> dict[str, Any]:
        """Return the keys of the recipe that options set, as plain data, except `distillation`."""
        from unmask.text.mixtures import source_weights
        from unmask.training.config import Recipe

        sources = (self.data,) if isinstance(self.data, str | Path) else tuple(self.data)
        keys: dict[str, Any] = {"data": [str(source) for source in sources] or None}
        options = {one.name for one in fields(self)} - {"model", "data"}
        keys |= {f.name: getattr(self, f.name) for f in fields(Recipe) if f.name in options}
        for name in ("init_from", "tokenizer"):
            keys[name] = None if keys[name] is None else str(keys[name])
        keys["compression"] = [to_dict(method) for method in training_methods(self)] or None
        if self.sampling_exponent is not None:
            keys["sampling_exponent"] = float(self.sampling_exponent)
        keys["source_weights"] = source_weights(self.source_weights) or None
        return {key: value for key, value in keys.items() if value is not None}
