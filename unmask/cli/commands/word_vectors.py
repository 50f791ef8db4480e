"""`neighbors`, `picture`, `align`: word and sentence vectors."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from unmask.cli.inputs import check_utf8, is_word_vectors, load_pipeline
from unmask.jobs.options.align import AlignOptions
from unmask.jobs.options.shell.from_dataclass import command, refuse_options
from unmask.jobs.options.shell.shared_options import (
    JsonOption,
    LimitOption,
    TextColumn,
    TextPoolingOptions,
)
from unmask.options import DeviceOptions, EncodingOptions, QuietOptions, flag
from unmask.output import print_json, print_line, print_table

if TYPE_CHECKING:
    from unmask.word_vectors.keyed_vectors import Neighbor


@dataclass(frozen=True, kw_only=True)
class _NeighborsOptions(
    TextColumn, TextPoolingOptions, LimitOption, EncodingOptions, DeviceOptions
):
    vectors: str = field(metadata=flag(metavar="VECTORS", is_argument=True))
    """Word vectors: word2vec .vec or .bin, GloVe .txt, each also .gz, .xz, .zst; or a fastText
    model.bin. With --sentences also a MODEL."""
    words: Sequence[str] = field(metadata=flag(metavar="WORD", is_argument=True))
    """Query words; several are combined into one query. With --sentences, query sentences, each a
    query of its own."""
    top_k: int = field(default=10, metadata=flag("-k", "--top-k", metavar="K"))
    """Number of neighbors."""
    minus: Sequence[str] = field(default=(), metadata=flag(metavar="WORD"))
    """Word whose vector is subtracted from the query."""
    multiply: bool = False
    """Combine words by multiplying cosines (3CosMul) instead of adding vectors (3CosAdd)."""
    sentences_file: str | None = field(default=None, metadata=flag("--sentences", metavar="FILE"))
    """File of candidate sentences: one per line, or records as for --data."""
    word: str | None = field(default=None, metadata=flag(metavar="WORD"))
    """Word to compare in its context in each sentence, with --sentences."""


@command(_NeighborsOptions, JsonOption)
def neighbors(given: Mapping[str, Any], output: JsonOption) -> None:
    """Show the nearest words by their vectors, or the nearest sentences of a file.

    Analogy: what is to woman as king is to man? neighbors VECTORS king woman --minus man. Similar
    lines of a file: neighbors MODEL --sentences FILE "A sentence." Similar uses of a word:
    neighbors MODEL --sentences FILE --word play "They play outside."
    """
    import unmask

    options = _NeighborsOptions(**given)
    if options.sentences_file is not None:
        refuse_options(
            _NeighborsOptions,
            "--sentences: leave out ",
            minus=options.minus,
            multiply=options.multiply,
        )
        _show_nearest_sentences(options, options.sentences_file, output.as_json)
        return
    for_sentences = ("word", "text_column", "pooling", "layer")
    refuse_options(
        _NeighborsOptions, "", " needs --sentences", **{name: given[name] for name in for_sentences}
    )
    space = unmask.load_word_vectors(options.vectors, limit=options.limit)
    positive = [check_utf8(word) for word in options.words]
    negative = [check_utf8(word) for word in options.minus]
    results = space.most_similar(
        positive, negative, options.top_k, "multiply" if options.multiply else "add"
    )
    if output.as_json:
        neighbors_found = [{"word": word, "score": score} for word, score in results]
        print_json({"plus": positive, "minus": negative, "neighbors": neighbors_found})
        return
    for word, score in results:
        print_line(f"{score:7.4f}  {word}")


def _show_nearest_sentences(options: _NeighborsOptions, file: str, as_json: bool) -> None:
    """Show the nearest sentences of a file."""
    import unmask

    queries = [check_utf8(word) for word in options.words]
    vectors = options.vectors
    results = unmask.nearest_sentences(
        vectors if is_word_vectors(vectors) else load_pipeline(vectors, options.device),
        queries,
        file,
        options.top_k,
        word=None if options.word is None else check_utf8(options.word),
        pooling=options.pooling,
        layer=options.layer,
        limit=options.limit,
        text_column=options.text_column,
        encoding_errors=options.encoding_errors,
    )
    _print_nearest_sentences(queries, results, as_json)


def _print_nearest_sentences(
    queries: Sequence[str], results: Sequence[Sequence[Neighbor]], as_json: bool
) -> None:
    """Print the nearest sentences of each query, as a line of JSON or a paragraph each."""
    for i, (sentence, found) in enumerate(zip(queries, results, strict=True)):
        if as_json:
            nearest = [{"text": one.word, "score": one.score} for one in found]
            print_json({"text": sentence, "neighbors": nearest})
            continue
        if len(queries) > 1:
            if i:
                print_line("")
            print_line(sentence)
        for one in found:
            print_line(f"{one.score:7.4f}  {one.word}")


@dataclass(frozen=True, kw_only=True)
class _PictureOptions(LimitOption):
    vectors: str = field(metadata=flag(metavar="VECTORS", is_argument=True))
    """Word vectors: word2vec .vec or .bin, GloVe .txt, each also .gz, .xz, .zst; or a fastText
    model.bin."""
    words: Sequence[str] = field(default=(), metadata=flag(metavar="WORD", is_argument=True))
    """Words to plot. Default without --words: the first 100 of the file."""
    out: Path = field(default=Path("words.svg"), metadata=flag(metavar="FILE"))
    """Output file, an SVG."""
    file: Path | None = field(default=None, metadata=flag("--words", metavar="FILE"))
    """File with further words, one per line."""
    method: Literal["pca", "tsne"] = "pca"
    """Projection: pca (principal components; keeps directions) or tsne (t-SNE; keeps neighbors)."""
    seed: int = 0
    """Random seed for t-SNE."""


@command(_PictureOptions, JsonOption)
def picture(options: Mapping[str, Any], output: JsonOption) -> None:
    """Plot word vectors in two dimensions."""
    import unmask
    from unmask.word_vectors.projection import TSNE, PrincipalComponents

    projections = {"pca": PrincipalComponents(), "tsne": TSNE(options["seed"])}
    words_drawn = unmask.draw_word_map(
        options["vectors"],
        [check_utf8(word) for word in options["words"]],
        out=options["out"],
        file=options["file"],
        projection=projections[options["method"]],
        limit=options["limit"],
        terminal=sys.stderr,
    )
    if output.as_json:
        print_json({"file": str(options["out"]), "words": words_drawn})
    else:
        print_line(f"{options['out']}: {len(words_drawn):,} words")


@command(AlignOptions, QuietOptions, JsonOption)
def align(options: Mapping[str, Any], progress: QuietOptions, output: JsonOption) -> None:
    """Align two spaces of word vectors: two languages, or two periods.

    With --semantic-shift: list the words whose vectors changed most between two periods or groups.
    """
    import unmask

    is_quiet = progress.quiet or output.as_json
    aligned = unmask.align(**options, terminal=None if is_quiet else sys.stderr)
    if output.as_json:
        print_json(aligned.summary)
        return
    for (names, rows), left in ((aligned.score_table(), 1), (aligned.shift_table(), 4)):
        if rows:
            print_table("", names, rows, n_left_aligned=left)
    for line in aligned.notes():
        print_line(line)
    if options["out"] is not None:
        print_line(f"{options['out']}: done; source.vec and target.vec share one space")
