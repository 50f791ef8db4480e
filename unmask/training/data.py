"""What a recipe trains on: its tokenizer, its shards, and the batches made of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from unmask.batch import Batch
from unmask.batching.loader import BatchLoader
from unmask.batching.plan import DataCursor
from unmask.batching.source_sampling import SourceSampling, rows_per_source
from unmask.config import from_dict, to_dict
from unmask.objectives.objective import AnyObjective
from unmask.objectives.published import ObjectiveSpec, components_of, stream_step
from unmask.objectives.sentence_pairs.tasks import SINGLE_DOCUMENT_TERMS
from unmask.objectives.sentence_pairs.translation import TranslationLM
from unmask.shards.concatenated import ConcatenatedDocuments, document_separator_ids
from unmask.shards.read import TokenShards
from unmask.shards.translation_pairs import (
    TranslationPairRows,
    check_pairs_fit,
    special_ids_of_source,
    translation_pair_rows,
)
from unmask.text.documents import Document
from unmask.text.mixtures import (
    pair_languages,
    read_documents_by_source,
    smoothed_shares,
    source_languages,
    source_names,
)
from unmask.tokenizers.load import with_data_languages
from unmask.tokenizers.spec import SpecialTokenIds, SpecialTokens, TokenizerSpec
from unmask.tokenizers.vocabulary import ByteLevel, CharacterCoverageVocabulary, CodePoints
from unmask.training.config import Recipe
from unmask.zoo.preset import Published

MAX_DEV_TOKENS = 65_536
"""Held-out tokens that each evaluation during training reads, at most."""
N_SAMPLE_ROWS = 256
"""Number of rows that are inspected for what an objective needs."""


def resolve_tokenizer_spec(recipe: Recipe, preset: Published) -> TokenizerSpec:
    """Return the card's kind of tokenizer, of the size and coverage that the recipe says.

    Its language embeddings are those of the recipe's sources.

    Raises:
        ValueError: the card's kind has no coverage, or reads no text.
    """
    if not preset.reads_texts:
        raise ValueError(f"{preset.name} reads pictures: it has no tokenizer, and reads no text")
    spec, coverage = preset.tokenizer, recipe.character_coverage
    if recipe.data:
        spec = replace(spec, special_tokens=with_data_languages(spec.special_tokens, recipe.data))
    if coverage is not None:
        if not isinstance(spec.vocabulary, CharacterCoverageVocabulary):
            raise ValueError(
                f"character_coverage = {coverage}: is of word pieces and SentencePiece's kinds, "
                f"but {preset.name} learns {type(spec.vocabulary).__name__}"
            )
        spec = replace(spec, vocabulary=replace(spec.vocabulary, character_coverage=coverage))
    if recipe.vocab_size is None or isinstance(spec.vocabulary, ByteLevel | CodePoints):
        return spec
    return replace(spec, vocabulary=replace(spec.vocabulary, vocab_size=recipe.vocab_size))


def open_documents(recipe: Recipe) -> Iterator[Document]:
    """Open the recipe's documents anew; of several sources, each says of which it is."""
    return read_documents_by_source(
        recipe.data,
        document_separator=recipe.document_separator,
        text_column=recipe.text_column,
        encoding_errors=recipe.encoding_errors,
    )


def open_prepared(sources: Sequence[str]) -> TokenShards | None:
    """Open a folder written by `unmask prepare`, if the sources name one.

    Raises:
        ValueError: there are further sources beside the folder.
    """
    folders = [s for s in sources if (Path(s) / "shards.json").is_file()]
    if folders and len(sources) > 1:
        raise ValueError(f"{folders[0]} is prepared already: give it alone, without other data")
    return TokenShards.open(Path(folders[0])) if folders else None


def check_sampling(recipe: Recipe, shards: TokenShards | None) -> None:
    """Check that there are several sources if the recipe samples from sources.

    Args:
        recipe: the recipe with the sources.
        shards: the tokenized sources, if there are any yet.

    Raises:
        ValueError: there is one source, or the shards do not tell them apart.
    """
    if recipe.sampling_exponent == 1:
        return
    told = f"sampling_exponent = {recipe.sampling_exponent:g}"
    if recipe.row_unit == "stream":
        raise ValueError(
            f"{told}: row_unit = stream keeps the order of the text; take another row_unit"
        )
    if shards is not None and shards.sources_of_documents is None:
        raise ValueError(
            f"{told}: {shards.folder} does not say of several sources which document is of which; "
            "prepare it anew, with a folder, pattern or file for each"
        )
    if shards is None and len(names := set(source_names(recipe.data))) < 2:
        raise ValueError(
            f"{told} needs several sources, and {', '.join(names)} is one; name a folder, pattern "
            "or file for each with --data"
        )


def check_languages(
    recipe: Recipe, special_ids: SpecialTokenIds | SpecialTokens, shards: TokenShards | None
) -> None:
    """Check that the language of each text is known, if the tokenizer has language tokens.

    Args:
        recipe: the recipe with the sources.
        special_ids: the tokenizer's special tokens.
        shards: the tokenized sources, if there are any yet.

    Raises:
        ValueError: a language is not known, or has no token.
    """
    if shards is None:
        names = source_languages(recipe.data)
    elif shards.sources_of_documents is None:
        names = [None]
    else:
        found = shards.sources_of_documents[0]
        names = [language for name in found for language in pair_languages(name) or (name,)]
    check_source_languages(names, special_ids)


def check_source_languages(
    names: Iterable[str | None], special_ids: SpecialTokenIds | SpecialTokens
) -> None:
    """Check that sources are called by languages, where the tokenizer has tokens for these.

    Raises:
        ValueError: one is not.
    """
    known = (
        special_ids.languages
        if isinstance(special_ids, SpecialTokens)
        else [n for n, _ in special_ids.languages]
    )
    for name in names:
        if known and name not in known:
            got = "one without a language" if name is None else repr(name)
            raise ValueError(
                f"this model says of each text in which language it is: name each source as "
                f"LANGUAGE=PATH with one of {', '.join(known)}; got {got}"
            )


def check_row_unit(recipe: Recipe, objective: AnyObjective) -> None:
    """Check that the objective can be computed on the recipe's rows.

    Raises:
        ValueError: the objective needs rows of one document, and these hold several.
    """
    about_one = [name for name in SINGLE_DOCUMENT_TERMS if name in objective.loss_terms]
    if recipe.row_unit == "stream" and recipe.packing == "pack":
        raise ValueError(
            "row_unit = stream: its rows are full, and cannot be packed; leave 'bucket'"
        )
    if recipe.bidirectional_data and objective.causal:
        raise ValueError("bidirectional_data: this objective is causal; leave it false")
    if recipe.row_unit in ("corpus", "stream") and about_one:
        raise ValueError(
            f"row_unit = {recipe.row_unit}: its rows are of several documents, and "
            f"{about_one[0]} is asked about one; take 'document', 'paragraph', 'sentence' or "
            "'sentences', or an objective without a question"
        )


def check_translation_pairs(
    recipe: Recipe, objective: AnyObjective, source_names: Iterable[str]
) -> None:
    """Check that translation pairs are read by an objective that hides both sides.

    Raises:
        ValueError: they are not, or rows are those of a stream.
    """
    name = next((name for name in source_names if pair_languages(name) is not None), None)
    if name is None:
        return
    if not isinstance(objective, TranslationLM):
        raise ValueError(
            f"{name}: translation pairs need an objective that hides both sides: --objective tlm"
        )
    if recipe.row_unit == "stream":
        raise ValueError(
            f"{name}: a translation pair is a row of its own; take another row_unit than stream"
        )


@dataclass(frozen=True)
class SourceShare:
    """A source: its tokens to train on, its share of all, and the share that it gets."""

    name: str
    n_tokens: int
    token_share: float
    sampling_share: float


@dataclass(frozen=True, eq=False)
class CorpusRows:
    """A part of the corpus, cut into rows: what is trained on, or what is held out."""

    token_source: TokenShards | ConcatenatedDocuments
    """What the rows' tokens are read from."""
    row_spans: Int[np.ndarray, "n 2"]
    """The first and the last place (exclusive) of each."""
    n_long_pairs: int = 0
    """Translation pairs that are longer than a row, and in none."""

    @property
    def document_of_row(self) -> Int[np.ndarray, "n"]:
        """The number of the document in which each row begins."""
        return self.token_source.document_of(self.row_spans[:, 0])

    @property
    def row_lengths(self) -> Int[np.ndarray, "n"]:
        """How many tokens each row has."""
        return self.row_spans[:, 1] - self.row_spans[:, 0]

    def with_pairs(self, shards: TokenShards, pairs: TranslationPairRows | None) -> "CorpusRows":
        """Replace the rows of sources of translation pairs, none of which has two sources."""
        if pairs is None:
            return self
        kept = self.row_spans[~pairs.is_pair_source[source_of_rows(shards, self)]]
        rows = np.concatenate((kept, pairs.row_spans))
        ordered = rows[np.argsort(rows[:, 0])]
        return replace(self, row_spans=ordered, n_long_pairs=pairs.n_long)


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """Where batches come from: all that is needed to make any of them again."""

    shards: TokenShards
    objective: ObjectiveSpec
    recipe: Recipe
    max_length: int
    train_rows: CorpusRows
    dev_rows: CorpusRows
    train_spans: Int[np.ndarray, "k 2"]
    source_shares: tuple[SourceShare, ...] = ()
    """Of each source, where they are sampled."""
    n_workers: int = 0
    rank: int = 0
    world_size: int = 1

    def batches(self, cursor: Any) -> Iterator[tuple[Sequence[Batch], Any]]:
        """Yield the micro-batches of each step after a cursor (plain data; None: the beginning)."""
        start = DataCursor() if cursor is None else from_dict(DataCursor, cursor)
        loader = self.make_loader(self.train_rows, start, sample_sources=bool(self.source_shares))
        loader = replace(
            loader, total_steps=self.recipe.steps, length_jitter=self.recipe.sequence_length_jitter
        )
        for micro, after in loader:
            yield micro, to_dict(after)

    def dev_batches(self) -> list[Batch]:
        """Make the batches on which the run is evaluated; always the same."""
        if not len(self.dev_rows.row_spans):
            return []
        return self._dev_batches_of(self.objective, MAX_DEV_TOKENS)

    def dev_batches_by_component(self) -> dict[str, list[Batch]]:
        """Make those on which each named part of a mixture is evaluated, by itself."""
        parts = components_of(self.objective)
        if not len(self.dev_rows.row_spans):
            return {}
        return {
            name: self._dev_batches_of(o, MAX_DEV_TOKENS // len(parts)) for name, o in parts.items()
        }

    def sample_batches(self) -> list[Batch]:
        """Make batches of some rows to train on, from all over the data; always the same."""
        rows = self.train_rows.row_spans
        some = np.unique(np.linspace(0, len(rows) - 1, N_SAMPLE_ROWS).astype(np.int64))
        return self._all_batches(replace(self.train_rows, row_spans=rows[some]), self.objective)

    def _dev_batches_of(self, objective: ObjectiveSpec, tokens: int) -> list[Batch]:
        return self._all_batches(self._first_rows(self.dev_rows, tokens), objective)

    def _all_batches(self, corpus_rows: CorpusRows, objective: ObjectiveSpec) -> list[Batch]:
        recipe = replace(self.recipe, seed=0)
        same = replace(self, objective=objective, recipe=recipe, n_workers=0, rank=0, world_size=1)
        loader = same.make_loader(corpus_rows, DataCursor(), max_epochs=1)
        return [batch for micro, _ in loader for batch in micro]

    def _first_rows(self, corpus_rows: CorpusRows, tokens: int) -> CorpusRows:
        """Keep the first of some rows; of several sources, the first of each, by what it gets."""
        rows = corpus_rows.row_spans
        if not self.source_shares:
            return replace(corpus_rows, row_spans=rows[_first_rows_with(rows, tokens)])
        of = source_of_rows(self.shards, corpus_rows)
        parts = [
            own[_first_rows_with(own, round(share.sampling_share * tokens))]
            for i, share in enumerate(self.source_shares)
            if len(own := rows[of == i])
        ]
        kept = np.concatenate(parts)
        return replace(corpus_rows, row_spans=kept[np.argsort(kept[:, 0])])

    def batch_size_warning(self) -> str | None:
        """Return a note if a step is larger than the training data; else None.

        Each step of such a run is a full epoch, at the learning rate of larger batches.
        """
        loader = self.make_loader(
            self.train_rows, DataCursor(), sample_sources=bool(self.source_shares)
        )
        n, asked = round(loader.plan.n_tokens), self.recipe.batch_tokens
        if asked <= n:
            return None
        return (
            f"batch_tokens = {asked:,}: a step holds all of the text to train on, {n:,} tokens; "
            "give more text, or a smaller batch_tokens"
        )

    @cached_property
    def special_ids_by_source(self) -> tuple[SpecialTokenIds, ...]:
        """The special tokens of each source, those of its language where languages are known."""
        return _special_ids_by_source(self.shards)

    def _special_ids_of_rows(
        self, corpus_rows: CorpusRows
    ) -> tuple[tuple[SpecialTokenIds, ...], Int[np.ndarray, "n"]] | None:
        several = len(self.special_ids_by_source) > 1
        return (
            (self.special_ids_by_source, source_of_rows(self.shards, corpus_rows))
            if several
            else None
        )

    def _source_sampling(self, corpus_rows: CorpusRows) -> SourceSampling:
        of = source_of_rows(self.shards, corpus_rows)
        n, tokens = np.bincount(of).tolist(), [share.n_tokens for share in self.source_shares]
        takes = rows_per_source(tokens, n, [share.sampling_share for share in self.source_shares])
        return SourceSampling(source_of_row=of, rows_per_epoch=takes)

    def make_loader(
        self,
        corpus_rows: CorpusRows,
        cursor: DataCursor,
        max_epochs: int | None = None,
        *,
        sample_sources: bool = False,
    ) -> BatchLoader:
        """Make the loader of some rows, each once an epoch or, `sample_sources`, by shares."""
        return BatchLoader(
            token_source=corpus_rows.token_source,
            row_spans=corpus_rows.row_spans,
            objective=self.objective,
            special_ids=self.special_ids_by_source[0],
            special_ids_by_source=self._special_ids_of_rows(corpus_rows),
            max_length=self.max_length,
            batch_tokens=self.recipe.batch_tokens,
            micro_batch_tokens=self.recipe.micro_batch_tokens,
            strategy="stream" if self.recipe.row_unit == "stream" else self.recipe.packing,
            bidirectional=self.recipe.bidirectional_data,
            document_of_row=corpus_rows.document_of_row,
            source_sampling=self._source_sampling(corpus_rows) if sample_sources else None,
            seed=self.recipe.seed,
            start_cursor=cursor,
            max_epochs=max_epochs,
            n_workers=self.n_workers,
            rank=self.rank,
            world_size=self.world_size,
        )


def _first_rows_with(row_spans: Int[np.ndarray, "n 2"], n_tokens: int) -> slice:
    """Return the first rows that together have a number of tokens; all if they have fewer."""
    ends = np.cumsum(row_spans[:, 1] - row_spans[:, 0])
    return slice(int(np.searchsorted(ends, n_tokens)) + 1)


def source_of_rows(shards: TokenShards, corpus_rows: CorpusRows) -> Int[np.ndarray, "n"]:
    """Return the number of the source of each row, where shards tell them apart."""
    assert shards.sources_of_documents is not None
    return shards.sources_of_documents[1][corpus_rows.document_of_row]


def _special_ids_by_source(shards: TokenShards) -> tuple[SpecialTokenIds, ...]:
    special, found = shards.tokenizer.special_ids, shards.sources_of_documents
    if found is None or not (special.languages or any(map(pair_languages, found[0]))):
        return (special,)
    return tuple(special_ids_of_source(special, name) for name in found[0])


def _source_shares(
    shards: TokenShards, corpus_rows: CorpusRows, exponent: float
) -> tuple[SourceShare, ...]:
    """Count the tokens of each source; Lample and Conneau 2019, section 3.1, on those."""
    assert shards.sources_of_documents is not None
    of = source_of_rows(shards, corpus_rows)
    tokens = [int(n) for n in np.bincount(of, corpus_rows.row_lengths)]
    return tuple(
        SourceShare(name, n, n / sum(tokens), gets)
        for name, n, gets in zip(
            shards.sources_of_documents[0], tokens, smoothed_shares(tokens, exponent), strict=True
        )
    )


def _cut_rows(
    shards: TokenShards, spans: Int[np.ndarray, "n 2"], recipe: Recipe, row_length: int, stride: int
) -> CorpusRows:
    """Split documents, or a part of one, into rows of at most `row_length` tokens.

    In a stream, each row starts `stride` tokens after the previous one.
    """
    if recipe.row_unit not in ("corpus", "stream"):
        rows = shards.row_spans(row_length, recipe.row_unit, within_spans=spans)
        pairs = translation_pair_rows(shards, spans, spans[:, 0], row_length)
        return CorpusRows(shards, rows).with_pairs(shards, pairs)
    joined = ConcatenatedDocuments(
        shards, spans, document_separator_ids(shards.tokenizer.special_ids)
    )
    if recipe.row_unit == "stream":
        return CorpusRows(joined, joined.fixed_length_rows(row_length, stride))
    pairs = translation_pair_rows(shards, spans, joined.starts, row_length)
    return CorpusRows(joined, joined.sentence_rows(row_length)).with_pairs(shards, pairs)


def build_training_data(
    shards: TokenShards,
    recipe: Recipe,
    objective: ObjectiveSpec,
    max_length: int,
    *,
    n_workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
) -> TrainingData:
    """Split shards into rows from which the objective makes examples of `max_length` tokens.

    Some rows are held out for evaluation, of each source if sources are sampled.

    Raises:
        ValueError: there is not enough text, there are no sources to sample from, or the objective
            cannot be computed on the rows.
    """
    check_sampling(recipe, shards)
    check_row_unit(recipe, objective)
    check_languages(recipe, shards.tokenizer.special_ids, shards)
    if shards.sources_of_documents is not None:
        check_translation_pairs(recipe, objective, shards.sources_of_documents[0])
    special = _special_ids_by_source(shards)[0]
    sampled = recipe.sampling_exponent != 1
    if recipe.dev_fraction and shards.n_tokens == 1:
        raise ValueError(
            f"{', '.join(recipe.data)}: is a single token for {recipe.tokenizer or recipe.model}: "
            "nothing can be held out and nothing learned; give more text"
        )
    spans, held_out = shards.split_held_out(recipe.dev_fraction, recipe.seed, by_source=sampled)
    budget = objective.max_text_length(max_length, special)
    step = stream_step(objective, budget, special)
    train = _cut_rows(shards, spans, recipe, budget, step)
    if train.n_long_pairs:
        check_pairs_fit(shards, source_of_rows(shards, train), budget)
    if recipe.row_unit == "stream" and not len(train.row_spans):
        n = int((spans[:, 1] - spans[:, 0]).sum())
        raise ValueError(
            f"row_unit = stream: the text has {n:,} tokens to train on, and a row {budget:,}; give "
            "more text, or a smaller sequence_length"
        )
    return TrainingData(
        shards=shards,
        objective=objective,
        recipe=recipe,
        max_length=max_length,
        train_rows=train,
        dev_rows=_cut_rows(shards, held_out, recipe, budget, step),
        train_spans=spans,
        source_shares=_source_shares(shards, train, recipe.sampling_exponent) if sampled else (),
        n_workers=n_workers,
        rank=rank,
        world_size=world_size,
    )
