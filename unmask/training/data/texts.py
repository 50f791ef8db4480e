"""Texts that a recipe trains on: their rows, and the batches made of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Int

from unmask.batch import Batch
from unmask.batching.loader import BatchLoader
from unmask.batching.plan import DataCursor
from unmask.batching.source_sampling import SourceSampling, rows_per_source
from unmask.config import from_dict, to_dict
from unmask.objectives.published import ObjectiveSpec, components_of, stream_step
from unmask.shards.concatenated import ConcatenatedDocuments, document_separator_ids
from unmask.shards.read import TokenShards
from unmask.shards.reshuffled import DocumentGroup, ReshuffledDocuments, ReshuffledRows
from unmask.shards.translation_pairs import (
    TranslationPairRows,
    check_pairs_fit,
    special_ids_of_source,
    translation_pair_rows,
)
from unmask.shards.verify import ShardVerifier
from unmask.text.mixtures import pair_languages
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.training.config import Recipe
from unmask.training.data.sources import (
    check_languages,
    check_row_unit,
    check_sampling,
    check_translation_pairs,
)

MAX_DEV_TOKENS = 65_536
"""Held-out tokens that each evaluation during training reads, at most."""
N_SAMPLE_ROWS = 256
"""Number of rows that are inspected for what an objective needs."""


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
    epoch_rows: ReshuffledRows | None = None
    """The training rows of each epoch, where documents are in another order in each."""
    n_workers: int = 0
    rank: int = 0
    world_size: int = 1

    @property
    def tokenizer(self) -> Tokenizer:
        """That of the shards."""
        return self.shards.tokenizer

    @property
    def text_shards(self) -> TokenShards:
        """The tokenized texts."""
        return self.shards

    def with_recipe(self, recipe: Recipe) -> "TrainingData":
        """Return the same for another number of steps."""
        return replace(self, recipe=recipe)

    def verifier(self) -> ShardVerifier:
        """Compare the files with their checksums while training goes on."""
        return ShardVerifier(self.shards)

    def notes(self) -> list[str]:
        """Describe the shares of sources, and what is left out."""
        notes = self.shards.reading_notes()
        if self.source_shares:
            shares = _format_source_shares(self.source_shares)
            notes.append(f"{self.recipe.sampling_name}: {shares}")
        if n := self.train_rows.n_long_pairs:
            notes.append(f"{n:,} translation pairs are longer than a row and are left out")
        if self.recipe.dev_fraction and not len(self.dev_rows.row_spans):
            notes.append(
                "nothing is held out for evaluation: each source is a single document; blank lines "
                "separate documents, or lines with --document line"
            )
        return notes

    def source_epochs(self) -> dict[str, float]:
        """Return how often each source is read in the recipe's steps, where sources are sampled.

        Estimated from the batches of the first window of the first epoch.
        """
        if not self.source_shares:
            return {}
        epochs = self.recipe.steps / self._steps_per_epoch
        sampling = self._source_sampling(self.train_rows)
        counts = np.bincount(sampling.source_of_row).tolist()
        return {
            share.name: epochs * take / n
            for share, take, n in zip(
                self.source_shares, sampling.rows_per_epoch, counts, strict=True
            )
        }

    @cached_property
    def _steps_per_epoch(self) -> int:
        plan = self._training_loader(DataCursor()).plan
        return plan.n_windows * len(plan.window_batches(0, 0, plan.row_order(0)))

    def batches(self, cursor: Any) -> Iterator[tuple[Sequence[Batch], Any]]:
        """Yield the micro-batches of each step after a cursor (plain data; None: the beginning)."""
        start = DataCursor() if cursor is None else from_dict(DataCursor, cursor)
        loader = self._training_loader(start)
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
        loader = self._training_loader(DataCursor())
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
        evenly = bool(self.recipe.source_weights)
        return SourceSampling(source_of_row=of, rows_per_epoch=takes, spread_evenly=evenly)

    def _training_loader(self, cursor: DataCursor) -> BatchLoader:
        """Make the loader of the training rows, those of each epoch where they differ."""
        if self.epoch_rows is None:
            return self.make_loader(
                self.train_rows, cursor, sample_sources=bool(self.source_shares)
            )
        documents = self.epoch_rows.documents
        return replace(
            self.make_loader(self.train_rows, cursor),
            token_source=documents,
            row_spans=self.epoch_rows.row_spans(0),
            epoch_rows=self.epoch_rows,
            evenly=bool(self.recipe.source_weights),
            document_of_row=None,
            read_ahead=documents.read_ahead if self.shards.is_remote else None,
        )

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
            read_ahead=corpus_rows.token_source.read_ahead if self.shards.is_remote else None,
            seed=self.recipe.seed,
            start_cursor=cursor,
            max_epochs=max_epochs,
            n_workers=self.n_workers,
            rank=self.rank,
            world_size=self.world_size,
        )


def _format_source_shares(source_shares: Sequence[SourceShare]) -> str:
    """Format the token and sampling shares of the first twenty sources."""
    parts = [
        f"{s.name} has {s.token_share:.1%} of the tokens and gets {s.sampling_share:.1%}"
        for s in source_shares[:20]
    ]
    return "; ".join(
        [*parts, f"and {len(source_shares) - 20} more"] if len(source_shares) > 20 else parts
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
    shards: TokenShards, corpus_rows: CorpusRows, recipe: Recipe
) -> tuple[SourceShare, ...]:
    """Count the tokens of each source, and say what it gets.

    Raises:
        ValueError: a source that has a weight has no row to train on.
    """
    assert shards.sources_of_documents is not None
    names, of = shards.sources_of_documents[0], source_of_rows(shards, corpus_rows)
    counts = np.bincount(of, corpus_rows.row_lengths, minlength=len(names))
    tokens = [int(n) for n in counts]
    if 0 in tokens and recipe.source_weights:
        raise ValueError(
            f"source_weights: {names[tokens.index(0)]} has no text to train on; give it more, or "
            "a smaller dev_fraction"
        )
    shares = recipe.sampling_shares(names, tokens)
    return tuple(
        SourceShare(name, n, n / sum(tokens), gets)
        for name, n, gets in zip(names, tokens, shares, strict=True)
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


def _reshuffled_rows(
    shards: TokenShards,
    spans: Int[np.ndarray, "n 2"],
    recipe: Recipe,
    source_shares: Sequence[SourceShare],
    row_sizes: tuple[int, int],
) -> ReshuffledRows:
    """Return the rows of each epoch, as `_cut_rows` cuts those of documents in their order."""
    sizes = spans[:, 1] - spans[:, 0]
    sources, is_stream = shards.sources_of_documents, recipe.row_unit == "stream"
    of = np.zeros(len(spans), np.int64)
    if sources is not None and not is_stream:
        of = sources[1][shards.document_of(spans[:, 0])]
    groups = [
        DocumentGroup(spans=spans[of == i], tokens_per_epoch=int(sizes[of == i].sum()))
        for i in np.unique(of)
    ]
    if source_shares:
        groups = [
            replace(group, tokens_per_epoch=max(1, round(share.sampling_share * sizes.sum())))
            for group, share in zip(groups, source_shares, strict=True)
        ]
    length, stride = row_sizes
    documents = ReshuffledDocuments(
        shards=shards,
        groups=tuple(groups),
        separator_ids=document_separator_ids(shards.tokenizer.special_ids),
        seed=recipe.seed,
    )
    return ReshuffledRows(
        documents=documents, row_length=length, stride=stride if is_stream else None
    )


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
    special, *others = _special_ids_by_source(shards)
    if recipe.reshuffle_documents and others:
        raise ValueError(
            "reshuffle_documents: the rows of this tokenizer have tokens of their language; leave "
            "it false"
        )
    sampled = recipe.samples_sources
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
    source_shares = _source_shares(shards, train, recipe) if sampled else ()
    return TrainingData(
        shards=shards,
        objective=objective,
        recipe=recipe,
        max_length=max_length,
        train_rows=train,
        dev_rows=_cut_rows(shards, held_out, recipe, budget, step),
        train_spans=spans,
        source_shares=source_shares,
        epoch_rows=_reshuffled_rows(shards, spans, recipe, source_shares, (budget, step))
        if recipe.reshuffle_documents
        else None,
        n_workers=n_workers,
        rank=rank,
        world_size=world_size,
    )
