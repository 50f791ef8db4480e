"""Preparation of a corpus, once for many runs: cleaned, deduplicated, tokenized."""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.files import is_empty_folder, parse_json, write_atomically
from unmask.jobs.corpus.clean import clean_corpus, is_cleaned_folder, read_cleaned
from unmask.jobs.corpus.cleaning_report import cleaning_page, describe_cleaning
from unmask.jobs.corpus.corpus import DOCUMENT_OPTIONS, CorpusDocuments, provenance, recipe_corpus
from unmask.jobs.options.prepare import PrepareOptions
from unmask.options import takes_options
from unmask.output import OutputStream, ProgressLine, print_line
from unmask.reports.formatting import NARROW_SPACE, format_si
from unmask.shards.manifest import ShardsManifest, read_manifest
from unmask.shards.read import MANIFEST_FILE, TEXT_FOLDER, UNFINISHED_FILE, TokenShards
from unmask.shards.remote.location import is_remote, parse_location
from unmask.shards.workers import check_workers
from unmask.shards.write import write_shards
from unmask.text.cleaning.rules import Cleaning, parse_cleaning
from unmask.text.documents import Document, list_files
from unmask.text.mixtures import (
    parse_source,
    repeat_documents,
    source_places,
    source_weights,
)
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.load import load_tokenizer, with_language_names
from unmask.tokenizers.unknown_tokens import pass_known
from unmask.tokenizers.vocabulary import ByteLevel, CodePoints
from unmask.training.config import Recipe
from unmask.training.data.sources import (
    check_sampling,
    open_documents,
    open_prepared,
    resolve_tokenizer_spec,
)
from unmask.training.device.stopwatch import Stopwatch
from unmask.training.interrupt import interrupt_on_signal
from unmask.zoo.catalogue import get_preset
from unmask.zoo.objectives.adapt_preset import adapt_to_objective
from unmask.zoo.preset import Published

_DEFAULT_OPTIONS = {"sampling_exponent": 1.0, "source_weights": None, "cleaning": None}
"""Default values, which are not recorded."""


@takes_options(PrepareOptions)
@interrupt_on_signal()
def prepare(options: PrepareOptions) -> TokenShards:
    """Clean a corpus and tokenize it into a folder for `pretrain`.

    Cleaned text is kept in `text/` of the folder, with a report of what was removed.

    After an interruption the same call continues; when finished, it only compares.

    The fields of `PrepareOptions` are its keywords.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the text cannot be read, the folder has other content, the model does not
            support the objective, or there is no such rule.
        ImportError: what a rule needs is not installed.
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
        source_weights=source_weights(options.source_weights),
        tokenizer=None if options.tokenizer is None else str(options.tokenizer),
        vocab_size=options.vocab_size,
        character_coverage=options.character_coverage,
        objective=options.objective,
    )
    if options.objective is not None:
        card = adapt_to_objective(card, options.objective)
    if url := next((source for source in recipe.data if is_remote(source)), None):
        raise ValueError(f"{parse_location(url).url}: text is read from files, folders and hf:")
    if open_prepared(recipe.data) is not None:
        raise ValueError(f"{recipe.data[0]}: is already prepared")
    folder, terminal = Path(options.out), None if options.quiet else sys.stderr
    check_workers(options.workers, minimum=1)
    check_sources(recipe.data)
    check_sampling(recipe, None)
    cleaning = _parse_cleaning(options)
    corpus = CorpusDocuments(lambda: open_documents(recipe), provenance(recipe, cleaning))
    _check_output_folder(folder, corpus.made_from)
    try:
        if not cleaning.is_empty:
            corpus = _clean(recipe, cleaning, folder, options.workers, terminal)
        trained = load_or_train_tokenizer(recipe, folder, terminal, card, corpus)
        return tokenize_corpus(
            recipe, folder, trained, n_workers=options.workers, terminal=terminal, corpus=corpus
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
    corpus: CorpusDocuments | None = None,
) -> TokenShards:
    """Tokenize the data of a recipe into a folder.

    Args:
        recipe: the recipe.
        output_folder: a new folder, or one with an interrupted tokenization.
        tokenizer: see `load_or_train_tokenizer`.
        n_workers: number of tokenization processes.
        terminal: stream for progress.
        corpus: the documents; those of the recipe by default.

    Raises:
        FileNotFoundError: a file is not there.
        ValueError: the text cannot be read, most of its tokens are unknown, or the folder was made
            from something else.
    """
    corpus = corpus or recipe_corpus(recipe)
    made_from = json.dumps(corpus.made_from)
    texts = _with_progress(corpus.open(), "tokenizing", terminal)
    texts = pass_known(tokenizer, texts, ", ".join(recipe.data))
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


def _parse_cleaning(options: PrepareOptions) -> Cleaning:
    """Return how the text is cleaned, once it is known that it can be.

    Raises:
        FileNotFoundError: an evaluation file is missing.
        ValueError: there is no such rule, or an evaluation file cannot be read.
    """
    cleaning = parse_cleaning(
        _as_tuple(options.clean), _as_tuple(options.deduplicate), _as_tuple(options.decontaminate)
    )
    if cleaning.decontamination is not None:
        cleaning.decontamination.check()
    return cleaning


def _as_tuple(given: str | Path | Sequence[str | Path]) -> tuple[str, ...]:
    return (str(given),) if isinstance(given, str | Path) else tuple(map(str, given))


def _clean(
    recipe: Recipe,
    cleaning: Cleaning,
    output_folder: Path,
    n_workers: int,
    terminal: OutputStream | None,
) -> CorpusDocuments:
    """Clean the documents of a recipe into `text/` of a folder, unless that is done.

    Raises:
        ValueError: they are translation pairs, of which a line must stay beside its translation.
    """
    if pair := next((s for s in recipe.data if len(parse_source(s).places) > 1), None):
        raise ValueError(f"{pair}: translation pairs cannot be cleaned: lines would lose theirs")
    made_from = provenance(recipe, cleaning)
    kinds = ("model", "tokenizer", "vocab_size", "character_coverage", "objective")
    folder = output_folder / TEXT_FOLDER
    report = clean_corpus(
        _with_progress(open_documents(recipe), "cleaning", terminal),
        cleaning,
        folder,
        made_from={name: value for name, value in made_from.items() if name not in kinds},
        n_workers=n_workers,
    )
    write_atomically(folder / "report.html", cleaning_page(report, cleaning))
    if terminal is not None:
        for line in describe_cleaning(report):
            print_line(line, terminal)
    return CorpusDocuments(lambda: read_cleaned(folder), made_from)


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
    if not manifests and output_folder.is_dir() and not _holds_text_alone(output_folder):
        raise FileExistsError(
            f"{output_folder}: holds files, but no prepared tokens; name a new folder"
        )
    for name in manifests:
        check_prepared_options(
            output_folder,
            read_manifest(output_folder / name),
            requested,
            (
                "model",
                "sampling_exponent",
                "source_weights",
                "objective",
                "cleaning",
                *DOCUMENT_OPTIONS,
            ),
        )


def _holds_text_alone(output_folder: Path) -> bool:
    """Return whether there is nothing but what cleaning wrote before tokens were made of it."""
    text = output_folder / TEXT_FOLDER
    if text.is_dir() and not is_cleaned_folder(text):
        return False
    return is_empty_folder(output_folder, but_for=TEXT_FOLDER)


def check_prepared_options(
    output_folder: Path | str,
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
        if old != new and name == "cleaning":
            raise ValueError(
                f"{output_folder}: was prepared with other values of clean, deduplicate or "
                "decontaminate; name another folder"
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
    corpus: CorpusDocuments | None = None,
) -> Tokenizer:
    """Load the tokenizer of a partly prepared folder, or the recipe's; or train one.

    Raises:
        FileNotFoundError: a folder or file is missing.
        ValueError: the text cannot be read, or is too little for a vocabulary of this size.
    """
    if _has_closed_shard(output_folder):
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
    documents = _tokenizer_training_documents(recipe, corpus or recipe_corpus(recipe), terminal)
    texts = _with_progress(documents, activity, terminal)
    return train_tokenizer(spec, (document.text for document in texts))


def _has_closed_shard(folder: Path) -> bool:
    """Whether tokens of a tokenizer are kept, with digests of the texts that it was trained on.

    Before the first shard is closed nothing says which texts a tokenizer saw: they may have changed
    since, so it is trained again.
    """
    if (folder / MANIFEST_FILE).is_file():
        return True
    unfinished = folder / UNFINISHED_FILE
    return unfinished.is_file() and bool(read_manifest(unfinished).shards)


def _tokenizer_training_documents(
    recipe: Recipe, corpus: CorpusDocuments, terminal: OutputStream | None
) -> Iterable[Document]:
    """Open the documents for training a tokenizer, sampled by the rate of their source."""
    if not recipe.samples_sources:
        return corpus.open()
    sizes = Counter[str | None]()
    for document in _with_progress(corpus.open(), "measuring the sources", terminal):
        sizes[document.source] += len(document.text)
    names = [name for name in sizes if name is not None]
    total, wanted = sizes.total(), recipe.sampling_shares(names, [*sizes.values()])
    times = {
        name: share * total / n for (name, n), share in zip(sizes.items(), wanted, strict=True)
    }
    return repeat_documents(corpus.open(), times)


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
    watch = Stopwatch()
    n = size = 0

    def status() -> str:
        seconds = watch.seconds
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
