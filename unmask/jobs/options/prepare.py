"""PrepareOptions: the options of `prepare`, in Python and on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Literal

from unmask.options import EncodingOptions, QuietOptions, flag

_RECIPE = "unmask.training.config:Recipe"


@dataclass(frozen=True)
class PrepareOptions(EncodingOptions, QuietOptions):
    """The corpus to tokenize, how it is cleaned, and the tokenizer."""

    corpus: str | Path | Sequence[str | Path] = field(
        metadata=flag(metavar="PATH", is_argument=True)
    )
    """Data sources: files, folders, quoted glob patterns, hf:owner/name."""
    _: KW_ONLY
    out: str | Path = field(metadata=flag(metavar="FOLDER"))
    """Output folder; an interrupted preparation in it is continued."""
    model: str = field(default="bert-mini", metadata=flag(metavar="MODEL"))
    """Catalogue name of the model whose type of tokenizer is trained."""
    tokenizer: str | Path | None = field(
        default=None,
        metadata=flag(
            metavar="FOLDER", documented_in="unmask.jobs.options.pretrain:PretrainOptions"
        ),
    )
    vocab_size: int | None = field(
        default=None, metadata=flag(shown_default="that of the model", documented_in=_RECIPE)
    )
    character_coverage: float | None = field(
        default=None, metadata=flag(shown_default="that of the model", documented_in=_RECIPE)
    )
    objective: str | None = field(
        default=None, metadata=flag(metavar="NAME", shown_default="that of the model")
    )
    """Pretraining objective whose special tokens the tokenizer has, e.g. mlm, clm, rtd,
    mlm:rate=0.3+nsp (docs/objectives.md)."""
    document_separator: Literal["blank", "line", "file"] = field(
        default="blank", metadata=flag("--document", documented_in=_RECIPE)
    )
    text_column: str | None = field(
        default=None,
        metadata=flag("--text", metavar="COLUMN", shown_default="text", documented_in=_RECIPE),
    )
    clean: str | Sequence[str] = field(default=(), metadata=flag(metavar="RULE"))
    """Rule of cleaning, applied in order: unicode (repair of mojibake, entities, controls), c4,
    gopher, repetition, language:codes=de; each with its fields, e.g. gopher:min_words=20
    (docs/preparation.md). Default: the text stays as it is."""
    deduplicate: str | Sequence[str] = field(default=(), metadata=flag(metavar="KIND"))
    """Duplicates to remove: exact, near (MinHash), exact:unit=paragraph, near:unit=paragraph. The
    first of them stays. Default: none."""
    decontaminate: str | Path | Sequence[str | Path] = field(
        default=(), metadata=flag(metavar="FILE")
    )
    """Evaluation file (.jsonl, .csv, .tsv, .txt): paragraphs that share 13 words in a row with one
    are removed."""
    sampling_exponent: int | float = 1.0
    """Exponent of each source's size in its sampling probability, for training the tokenizer. 1:
    proportional to size; 0.3: small sources are upsampled. A folder counts as one source."""
    source_weights: Mapping[str, int | float] | Sequence[str] = field(
        default=(), metadata=flag("--source-weight", metavar="NAME=WEIGHT")
    )
    """Share of a source in the text that the tokenizer is trained on, by its name or the last part
    of it. Instead of `sampling_exponent`. Default: sources are not weighted."""
    workers: int = 1
    """Number of processes that clean and tokenize. The result does not depend on it."""
