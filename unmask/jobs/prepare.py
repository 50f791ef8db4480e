"""Tokenization of a corpus, once for many runs."""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.files import is_empty_folder, parse_json
from unmask.jobs.options.prepare import PrepareOptions
from unmask.options import takes_options
from unmask.output import OutputStream, ProgressLine, print_line
from unmask.reports.formatting import NARROW_SPACE, format_si
from unmask.shards.manifest import ShardsManifest, read_manifest
from unmask.shards.read import TokenShards
from unmask.shards.workers import check_workers
from unmask.shards.write import write_shards
from unmask.text.documents import Document, list_files
from unmask.text.mixtures import repeat_documents, smoothed_shares, source_places
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.load import load_tokenizer, with_language_names
from unmask.tokenizers.vocabulary import ByteLevel, CodePoints
from unmask.training.config import Recipe
from unmask.training.data.sources import (
    check_sampling,
    open_documents,
    open_prepared,
    resolve_tokenizer_spec,
)
from unmask.training.interrupt import interrupt_on_signal
from unmask.zoo.catalogue import get_preset
from unmask.zoo.objectives.adapt_preset import adapt_to_objective
from unmask.zoo.preset import Published

DOCUMENT_OPTIONS = (
    "tokenizer",
    "vocab_size",
    "character_coverage",
    "document_separator",
    "text_column",
    "encoding_errors",
)
"""Fields of a recipe that determine the tokenized documents."""

_DEFAULT_OPTIONS = {"sampling_exponent": 1.0}
"""Default values, which are not recorded."""

"""Seconds between updates on a terminal, and between lines elsewhere."""


@takes_options(PrepareOptions)
@interrupt_on_signal()
def prepare(options: PrepareOptions) -> TokenShards:
    """Tokenize a corpus into a folder for `pretrain`.

    After an interruption the same call continues; when finished, it only compares.

    The fields of `PrepareOptions` are its keywords.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the text cannot be read, the folder has other content, or the model does not
            support the objective.
        KeyboardInterrupt: the job was stopped.
    """
    if options.tokenizer is not None and options.vocab_size is not None:
        raise ValueError(f"vocab_size is for a new tokenizer, but {options.tokenizer} is given")
    corpus = options.corpus
    sources = (corpus,) if isinstance(corpus, str | Path) else tuple(corpus)
    card = get_preset(options.model)
    recipe = Recipe(
        model=card.name,
        data=tuple(map(str, sources)),
        document_separator=options.document_separator,
        text_column=options.text_column,
        encoding_errors=options.encoding_errors,
        sampling_exponent=float(options.sampling_exponent),
        tokenizer=None if options.tokenizer is None else str(options.tokenizer),
        vocab_size=options.vocab_size,
        character_coverage=options.character_coverage,
        objective=options.objective,
    )
    if options.objective is not None:
        card = adapt_to_objective(card, options.objective)
    if open_prepared(recipe.data) is not None:
        raise ValueError(f"{recipe.data[0]}: is already prepared")
    folder, terminal = Path(options.out), None if options.quiet else sys.stderr
    check_workers(options.workers, minimum=1)
    check_sources(recipe.data)
    check_sampling(recipe, None)
    _check_output_folder(folder, _provenance(recipe))
    try:
        trained = load_or_train_tokenizer(recipe, folder, terminal, card)
        return tokenize_corpus(
            recipe, folder, trained, n_workers=options.workers, terminal=terminal
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{options.out}: interrupted; the same command continues") from None


def tokenize_corpus(
    recipe: Recipe,
    output_folder: Path,
    tokenizer: Tokenizer,
    *,
    n_workers: int = 1,
    terminal: OutputStream | None = None,
) -> TokenShards:
    """Tokenize the data of a recipe into a folder.

    Args:
        recipe: the recipe.
        output_folder: a new folder, or one with an interrupted tokenization.
        tokenizer: see `load_or_train_tokenizer`.
        n_workers: number of tokenization processes.
        terminal: stream for progress.

    Raises:
        FileNotFoundError: a file is not there.
        ValueError: the text cannot be read, or the folder was made from something else.
    """
    made_from = json.dumps(_provenance(recipe))
    texts = _with_progress(open_documents(recipe), "tokenizing", terminal)
    return write_shards(texts, tokenizer, output_folder, n_workers=n_workers, made_from=made_from)


def check_sources(sources: Sequence[str]) -> None:
    """Check that sources exist and are distinct.

    Raises:
        FileNotFoundError: a file is not there.
        ValueError: a file is given twice: it would be in both training and held-out data.
    """
    files: set[str] = set()
    sources = source_places(sources)
    for file in [*list_files(sources), *(Path(s) for s in sources if s.startswith("hf:"))]:
        real = os.path.realpath(file)
        if real in files:
            raise ValueError(f"{file}: is given twice by {', '.join(sources)}; give it once")
        files.add(real)


def _provenance(recipe: Recipe) -> dict[str, Any]:
    sampling = (
        {} if recipe.sampling_exponent == 1 else {"sampling_exponent": recipe.sampling_exponent}
    )
    objective = {"objective": recipe.objective} if isinstance(recipe.objective, str) else {}
    paths = source_places(recipe.data)
    return {name: getattr(recipe, name) for name in ("model", *DOCUMENT_OPTIONS)} | {
        "data": recipe.data,
        "files": [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in list_files(paths)],
        **sampling,
        **objective,
    }


def _check_output_folder(output_folder: Path, requested: Mapping[str, Any]) -> None:
    """Check that a folder is new, or was made with the same options.

    Raises:
        ValueError: it has other content. (`write_shards` compares the documents.)
    """
    if output_folder.exists() and not output_folder.is_dir():
        raise ValueError(f"{output_folder}: is a file; name a folder")
    manifests = [
        name for name in ("shards.json", "unfinished.json") if (output_folder / name).is_file()
    ]
    if not manifests and output_folder.is_dir() and not is_empty_folder(output_folder):
        raise FileExistsError(
            f"{output_folder}: holds files, but no prepared tokens; name a new folder"
        )
    for name in manifests:
        check_prepared_options(
            output_folder,
            read_manifest(output_folder / name),
            requested,
            ("model", "sampling_exponent", "objective", *DOCUMENT_OPTIONS),
        )


def check_prepared_options(
    output_folder: Path,
    manifest: ShardsManifest,
    requested: Mapping[str, Any],
    option_names: Iterable[str],
) -> None:
    """Check that a folder was prepared with the requested options.

    Raises:
        ValueError: an option differs; the message has both values.
    """
    try:
        recorded = parse_json(manifest.made_from)
    except ValueError:  # shards of the library's API have no record
        return
    if not isinstance(recorded, dict):
        raise ValueError(
            f"{output_folder}: made_from must be an object, got {manifest.made_from!r:.40}"
        )
    for name in option_names:
        old, new = (
            options.get(name, _DEFAULT_OPTIONS.get(name)) for options in (recorded, requested)
        )
        if old != new:
            raise ValueError(
                f"{output_folder}: was prepared with {name} = {old!r}, not {new!r}; name another "
                "folder"
            )


def load_or_train_tokenizer(
    recipe: Recipe,
    output_folder: Path,
    terminal: OutputStream | None = None,
    preset: Published | None = None,
) -> Tokenizer:
    """Load the tokenizer of a partly prepared folder, or the recipe's; or train one.

    Raises:
        FileNotFoundError: a folder or file is missing.
        ValueError: the text cannot be read, or is too little for a vocabulary of this size.
    """
    if (output_folder / "tokenizer" / "tokenizer_config.json").is_file():
        return load_tokenizer(output_folder / "tokenizer")
    preset = get_preset(recipe.model) if preset is None else preset
    if recipe.tokenizer is not None:
        given = load_tokenizer(Path(recipe.tokenizer))
        return with_language_names(given, preset.tokenizer.special_tokens, recipe.data)
    spec = resolve_tokenizer_spec(recipe, preset)
    is_fixed = isinstance(spec.vocabulary, ByteLevel | CodePoints)
    if terminal is not None and is_fixed and recipe.vocab_size is not None:
        unit = "bytes" if isinstance(spec.vocabulary, ByteLevel) else "characters"
        note = f"vocab_size = {recipe.vocab_size} is not used: {recipe.model} has {unit} as tokens"
        print_line(note, terminal)
    activity = f"training a {type(spec.vocabulary).__name__} tokenizer"
    texts = _with_progress(_tokenizer_training_documents(recipe, terminal), activity, terminal)
    return train_tokenizer(spec, (document.text for document in texts))


def _tokenizer_training_documents(
    recipe: Recipe, terminal: OutputStream | None
) -> Iterable[Document]:
    """Open the documents for training a tokenizer, sampled by the rate of their source."""
    if recipe.sampling_exponent == 1:
        return open_documents(recipe)
    sizes = Counter[str | None]()
    for document in _with_progress(open_documents(recipe), "measuring the sources", terminal):
        sizes[document.source] += len(document.text)
    total, wanted = sizes.total(), smoothed_shares([*sizes.values()], recipe.sampling_exponent)
    times = {
        name: share * total / n for (name, n), share in zip(sizes.items(), wanted, strict=True)
    }
    return repeat_documents(open_documents(recipe), times)


def _with_progress(
    documents: Iterable[Document], activity: str, terminal: OutputStream | None
) -> Iterable[Document]:
    """Yield documents, with progress on a terminal."""
    return (
        documents
        if terminal is None
        else _report_progress(documents, activity, ProgressLine(terminal))
    )


def _report_progress(
    documents: Iterable[Document], activity: str, progress: ProgressLine
) -> Iterator[Document]:
    begin = time.monotonic()
    n = size = 0

    def status() -> str:
        seconds = time.monotonic() - begin
        speed = f", {format_si(size / seconds)} a second" if seconds >= 1 else ""
        return f"{activity}: {n:,} documents, {format_si(size)} characters{speed}".replace(
            NARROW_SPACE, " "
        )

    for document in documents:
        yield document
        n, size = n + 1, size + len(document.text)
        progress.show(status)
    progress.show(status, last=True)
    progress.finish()
