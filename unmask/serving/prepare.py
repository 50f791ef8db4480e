"""A corpus, tokenized once for many runs."""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.channels import Stream, over, tell
from unmask.files import holds_nothing, parsed
from unmask.published.card import Published
from unmask.published.catalogue import published
from unmask.published.fit import fit
from unmask.serving.words import NARROW, short
from unmask.text.corpus import Document, Separator, files
from unmask.text.lines import EncodingErrors
from unmask.text.mix import called, repeated, smoothed
from unmask.tokens.manifest import Manifest, read_manifest
from unmask.tokens.shards import Shards, write
from unmask.tokens.tokenizer import Tokenizer, learn
from unmask.tokens.vocabulary import Bytes, CodePoints
from unmask.tokens.workers import check_workers
from unmask.training.data import check_sampling, prepared, read_documents, tokenizer_spec
from unmask.training.recipe import Recipe
from unmask.training.stopping import interruptible

OPTIONS = ("tokenizer", "vocab_size", "character_coverage", "document", "text", "encoding_errors")
"""Fields of a recipe that decide what becomes of the documents."""

_USUAL = {"sampling": 1.0}
"""What is not written of a folder where it is so."""

_LIVE, _PLAIN = 0.2, 10.0
"""Seconds between two live lines on a terminal, and between two lines elsewhere."""


@interruptible()
def prepare(
    corpus: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    model: str = "bert-mini",
    tokenizer: str | Path | None = None,
    vocab_size: int | None = None,
    character_coverage: float | None = None,
    objective: str | None = None,
    document: Separator = "blank",
    text: str | None = None,
    encoding_errors: EncodingErrors = "strict",
    sampling: int | float = 1.0,
    workers: int = 1,
    quiet: bool = False,
) -> Shards:
    """Tokenize a corpus into a folder that `pretrain` takes as its data.

    Interrupted, the same call goes on; finished, it only compares.

    Args:
        corpus: text files, folders, globs or `hf:owner/name`.
        out: a new folder, or one in which this was begun.
        model: the card whose kind of tokenizer is learned.
        tokenizer: a folder with a tokenizer to use instead.
        vocab_size: of the learned tokenizer; None: the card's.
        character_coverage: share of the text whose characters it knows; None: the card's.
        objective: name of the objective that is pretrained on it, whose special tokens the
            tokenizer then has; None: the card's.
        document: what a document of plain text is: parted by blank lines, a line, or a file.
        text: the column that holds the text of a record.
        encoding_errors: with "replace", what is not UTF-8 becomes U+FFFD.
        sampling: exponent of each source's share of the text that the tokenizer is learned from;
            1: as they are. All of the text is tokenized.
        workers: processes that tokenize; the result is the same.
        quiet: show nothing on the terminal.

    Raises:
        FileNotFoundError: a file is not there.
        ValueError: the text cannot be read, the folder was made from something else, or the model
            cannot have the objective.
        KeyboardInterrupt: someone stopped it.
    """
    if tokenizer is not None and vocab_size is not None:
        raise ValueError(f"vocab_size is of a tokenizer that is learned, but {tokenizer} is given")
    sources = (corpus,) if isinstance(corpus, str | Path) else tuple(corpus)
    recipe = Recipe(
        model=published(model).name,
        data=tuple(map(str, sources)),
        document=document,
        text=text,
        encoding_errors=encoding_errors,
        sampling=float(sampling),
        tokenizer=None if tokenizer is None else str(tokenizer),
        vocab_size=vocab_size,
        character_coverage=character_coverage,
        objective=objective,
    )
    card = published(model) if objective is None else fit(published(model), objective)
    if prepared(recipe.data) is not None:
        raise ValueError(f"{recipe.data[0]}: is prepared already")
    folder, terminal = Path(out), None if quiet else sys.stderr
    check_workers(workers, least=1)
    check_sources(recipe.data)
    check_sampling(recipe, None)
    _check_folder(folder, _made_from(recipe))
    try:
        made = find_tokenizer(recipe, folder, terminal, card)
        return tokenize(recipe, folder, made, workers=workers, terminal=terminal)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{out}: interrupted; the same command goes on") from None


def tokenize(
    recipe: Recipe,
    out: Path,
    tokenizer: Tokenizer,
    *,
    workers: int = 1,
    terminal: Stream | None = None,
) -> Shards:
    """Tokenize what a recipe trains on into a folder.

    Args:
        recipe: names the documents.
        out: a new folder, or one in which this was begun.
        tokenizer: see `find_tokenizer`.
        workers: processes that tokenize.
        terminal: where progress is shown.

    Raises:
        FileNotFoundError: a file is not there.
        ValueError: the text cannot be read, or the folder was made from something else.
    """
    made_from = json.dumps(_made_from(recipe))
    texts = _counted(read_documents(recipe), "tokenizing", terminal)
    return write(texts, tokenizer, out, workers=workers, made_from=made_from)


def check_sources(sources: Sequence[str]) -> None:
    """Check that there is text to read, each of it once.

    Raises:
        FileNotFoundError: a file is not there.
        ValueError: a file is named twice: it would be held out and learned from at once.
    """
    seen: set[str] = set()
    sources = [called(source)[1] for source in sources]
    for file in [*files(sources), *(Path(s) for s in sources if s.startswith("hf:"))]:
        real = os.path.realpath(file)
        if real in seen:
            raise ValueError(f"{file}: is named twice by {', '.join(sources)}; name it once")
        seen.add(real)


def _made_from(recipe: Recipe) -> dict[str, Any]:
    sampling = {} if recipe.sampling == 1 else {"sampling": recipe.sampling}
    objective = {"objective": recipe.objective} if isinstance(recipe.objective, str) else {}
    places = [called(source)[1] for source in recipe.data]
    return {name: getattr(recipe, name) for name in ("model", *OPTIONS)} | {
        "data": recipe.data,
        "files": [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in files(places)],
        **sampling,
        **objective,
    }


def _check_folder(out: Path, asked: Mapping[str, Any]) -> None:
    """Check that a folder is new, or compare what it was made from with what is asked for.

    Raises:
        ValueError: it is something else. (Whether the documents are the same, `write` sees.)
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out}: is a file; name a folder")
    begun = [name for name in ("shards.json", "unfinished.json") if (out / name).is_file()]
    if not begun and out.is_dir() and not holds_nothing(out):
        raise FileExistsError(f"{out}: holds files, but no prepared tokens; name a new folder")
    for name in begun:
        check_options(
            out, read_manifest(out / name), asked, ("model", "sampling", "objective", *OPTIONS)
        )


def check_options(
    out: Path, manifest: Manifest, asked: Mapping[str, Any], names: Iterable[str]
) -> None:
    """Check that a folder was prepared with the options that are asked for.

    Raises:
        ValueError: another was; it is named, with both values.
    """
    try:
        found = parsed(manifest.made_from)
    except ValueError:  # made by another part of the library: it says nothing
        return
    if not isinstance(found, dict):
        raise ValueError(f"{out}: made_from must hold an object, got {manifest.made_from!r:.40}")
    for name in names:
        was, now = (said.get(name, _USUAL.get(name)) for said in (found, asked))
        if was != now:
            raise ValueError(
                f"{out}: was prepared with {name} = {was!r}, not {now!r}; name another folder"
            )


def find_tokenizer(
    recipe: Recipe, out: Path, terminal: Stream | None = None, card: Published | None = None
) -> Tokenizer:
    """Load the tokenizer of a folder that is being prepared, or the recipe's; or learn one.

    Raises:
        FileNotFoundError: a folder or file is not there.
        ValueError: the text cannot be read, or is too little for a vocabulary of this size.
    """
    if (out / "tokenizer" / "tokenizer_config.json").is_file():
        return Tokenizer.load(out / "tokenizer")
    if recipe.tokenizer is not None:
        return Tokenizer.load(Path(recipe.tokenizer))
    spec = tokenizer_spec(recipe, published(recipe.model) if card is None else card)
    unlearned = isinstance(spec.vocabulary, Bytes | CodePoints)
    if terminal is not None and unlearned and recipe.vocab_size is not None:
        read = "bytes" if isinstance(spec.vocabulary, Bytes) else "characters"
        said = f"vocab_size = {recipe.vocab_size} is not used: {recipe.model} reads {read}"
        tell(said, terminal)
    what = f"learning a {type(spec.vocabulary).__name__} tokenizer"
    texts = _counted(_to_learn_from(recipe, terminal), what, terminal)
    return learn(spec, (document.text for document in texts))


def _to_learn_from(recipe: Recipe, terminal: Stream | None) -> Iterable[Document]:
    """Open the documents that a tokenizer is learned from, each as often as its source is due."""
    if recipe.sampling == 1:
        return read_documents(recipe)
    sizes = Counter[str | None]()
    for document in _counted(read_documents(recipe), "measuring the sources", terminal):
        sizes[document.source] += len(document.text)
    total, wanted = sizes.total(), smoothed([*sizes.values()], recipe.sampling)
    times = {
        name: share * total / n for (name, n), share in zip(sizes.items(), wanted, strict=True)
    }
    return repeated(read_documents(recipe), times)


def _counted(
    documents: Iterable[Document], what: str, terminal: Stream | None
) -> Iterable[Document]:
    """Show on a terminal how many documents were read so far, as they are."""
    return documents if terminal is None else _shown(documents, what, _Line(terminal))


def _shown(documents: Iterable[Document], what: str, line: "_Line") -> Iterator[Document]:
    begin = time.monotonic()
    n = size = 0

    def said() -> str:
        seconds = time.monotonic() - begin
        speed = f", {short(size / seconds)} a second" if seconds >= 1 else ""
        return f"{what}: {n:,} documents, {short(size)} characters{speed}".replace(NARROW, " ")

    for document in documents:
        yield document
        n, size = n + 1, size + len(document.text)
        line.show(said)
    line.end(said)


class _Line:
    """One line that is overwritten in place on a terminal; elsewhere, a line now and then."""

    def __init__(self, terminal: Stream) -> None:
        self._terminal = terminal
        self._live = terminal.isatty()
        self._shown = 0
        self._next = time.monotonic() + (_LIVE if self._live else _PLAIN)

    def show(self, said: Callable[[], str]) -> None:
        """Show where it is, unless that was just done."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + (_LIVE if self._live else _PLAIN)
            self._write(said())

    def end(self, said: Callable[[], str]) -> None:
        """Show where it ended."""
        self._write(said(), last=True)

    def _write(self, text: str, *, last: bool = False) -> None:
        if not self._live:
            tell(text, self._terminal)
            return
        self._shown = over(text, self._terminal, self._shown)
        if last:
            tell("", self._terminal)
