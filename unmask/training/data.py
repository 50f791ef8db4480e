"""What a recipe trains on: its tokenizer, its shards, and the batches made of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from unmask.batch import Batch
from unmask.config import from_dict, to_dict
from unmask.hiding.hide import AnyObjective
from unmask.hiding.loader import Cursor, Loader
from unmask.hiding.objectives import Objective, parts_of, step_of
from unmask.hiding.questions import ABOUT_ONE
from unmask.hiding.sources import Sources, rows_to_take
from unmask.published.card import Published
from unmask.text.corpus import Document
from unmask.text.mix import called, named_documents, smoothed, source_names
from unmask.tokens.joined import Joined, separator
from unmask.tokens.shards import Shards
from unmask.tokens.vocabulary import Bytes, CodePoints, Covering, Frame, Special, TokenizerSpec
from unmask.training.recipe import Recipe

DEV_TOKENS = 65_536
"""Held-out tokens that each evaluation during training reads, at most."""
SAMPLE_ROWS = 256
"""So many rows show what can be asked of the data."""


def tokenizer_spec(recipe: Recipe, card: Published) -> TokenizerSpec:
    """Return the card's kind of tokenizer, of the size and coverage that the recipe says.

    Raises:
        ValueError: the card's kind has no coverage.
    """
    spec, coverage = card.tokenizer, recipe.character_coverage
    if coverage is not None:
        if not isinstance(spec.vocabulary, Covering):
            raise ValueError(
                f"character_coverage = {coverage}: is of word pieces and SentencePiece's kinds, "
                f"but {card.name} learns {type(spec.vocabulary).__name__}"
            )
        spec = replace(spec, vocabulary=replace(spec.vocabulary, character_coverage=coverage))
    if recipe.vocab_size is None or isinstance(spec.vocabulary, Bytes | CodePoints):
        return spec
    return replace(spec, vocabulary=replace(spec.vocabulary, size=recipe.vocab_size))


def read_documents(recipe: Recipe) -> Iterator[Document]:
    """Open the recipe's documents anew; of several sources, each says of which it is."""
    return named_documents(
        recipe.data,
        document=recipe.document,
        text=recipe.text,
        encoding_errors=recipe.encoding_errors,
    )


def prepared(sources: Sequence[str]) -> Shards | None:
    """Open the folder that `unmask prepare` made, if that is what the sources name.

    Raises:
        ValueError: it stands beside other sources.
    """
    folders = [s for s in sources if (Path(s) / "shards.json").is_file()]
    if folders and len(sources) > 1:
        raise ValueError(f"{folders[0]} is prepared already: give it alone, without other data")
    return Shards.open(Path(folders[0])) if folders else None


def check_sampling(recipe: Recipe, shards: Shards | None) -> None:
    """Check that there are sources to sample from, if that is asked for.

    Args:
        recipe: names the sources.
        shards: what they were made into, if that is done.

    Raises:
        ValueError: there is one source, or the shards do not tell them apart.
    """
    if recipe.sampling == 1:
        return
    told = f"sampling = {recipe.sampling:g}"
    if recipe.unit == "stream":
        raise ValueError(f"{told}: unit = stream keeps the order of the text; take another unit")
    if shards is not None and shards.sources is None:
        raise ValueError(
            f"{told}: {shards.folder} does not say of several sources which document is of which; "
            "prepare it anew, with a folder, pattern or file for each"
        )
    if shards is None and len(names := set(source_names(recipe.data))) < 2:
        raise ValueError(
            f"{told} needs several sources, and {', '.join(names)} is one; name a folder, pattern "
            "or file for each with --data"
        )


def check_languages(recipe: Recipe, special: Special | Frame, shards: Shards | None) -> None:
    """Check that of each text is said in which language it is, where a token says that.

    Args:
        recipe: names the sources.
        special: what the tokenizer knows.
        shards: what the sources were made into, if that is done.

    Raises:
        ValueError: it is not said, or there is no token for the language.
    """
    if shards is not None:
        names = shards.sources[0] if shards.sources is not None else (None,)
    else:
        names = tuple(called(name)[0] for name in recipe.data)
    check_named(names, special)


def check_named(names: Iterable[str | None], special: Special | Frame) -> None:
    """Check that sources are called by languages, where the tokenizer has tokens for these.

    Raises:
        ValueError: one is not.
    """
    known = special.languages if isinstance(special, Frame) else [n for n, _ in special.languages]
    for name in names:
        if known and name not in known:
            got = "one without a language" if name is None else repr(name)
            raise ValueError(
                f"this model says of each text in which language it is: name each source as "
                f"LANGUAGE=PATH with one of {', '.join(known)}; got {got}"
            )


def check_unit(recipe: Recipe, objective: AnyObjective) -> None:
    """Check that what is asked can be asked of the recipe's rows.

    Raises:
        ValueError: a question about one document is asked of rows of several.
    """
    about_one = [name for name in ABOUT_ONE if name in objective.asks]
    if recipe.unit == "stream" and recipe.packing == "pack":
        raise ValueError("unit = stream: its rows are full, and cannot be packed; leave 'bucket'")
    if recipe.both_ways and objective.causal:
        raise ValueError("both_ways: this objective is told forward; leave false")
    if recipe.unit in ("corpus", "stream") and about_one:
        raise ValueError(
            f"unit = {recipe.unit}: its rows are of several documents, and {about_one[0]} is asked "
            "about one; take 'document', 'paragraph', 'sentence' or 'sentences', or an objective "
            "without a question"
        )


@dataclass(frozen=True)
class Share:
    """A source: its tokens to train on, its share of all, and the share that it gets."""

    name: str
    tokens: int
    share: float
    gets: float


@dataclass(frozen=True, eq=False)
class Part:
    """A part of the corpus, cut into rows: what is trained on, or what is held out."""

    texts: Shards | Joined
    """What the rows' tokens are read from."""
    rows: Int[np.ndarray, "n 2"]
    """The first and the last place (exclusive) of each."""

    @property
    def documents(self) -> Int[np.ndarray, "n"]:
        """The number of the document in which each row begins."""
        return self.texts.document_of(self.rows[:, 0])

    @property
    def sizes(self) -> Int[np.ndarray, "n"]:
        """How many tokens each row has."""
        return self.rows[:, 1] - self.rows[:, 0]


@dataclass(frozen=True, kw_only=True)
class Data:
    """Where batches come from: all that is needed to make any of them again."""

    shards: Shards
    objective: Objective
    recipe: Recipe
    length: int
    train: Part
    dev: Part
    train_spans: Int[np.ndarray, "k 2"]
    shares: tuple[Share, ...] = ()
    """Of each source, where they are sampled."""
    workers: int = 0
    rank: int = 0
    world: int = 1

    def batches(self, cursor: Any) -> Iterator[tuple[Sequence[Batch], Any]]:
        """Give the micro-batches of each step after a cursor (plain data; None: the beginning)."""
        start = Cursor() if cursor is None else from_dict(Cursor, cursor)
        loader = self.loader(self.train, start, sampled=bool(self.shares))
        loader = replace(loader, steps=self.recipe.steps, jitter=self.recipe.jitter)
        for micro, after in loader:
            yield micro, to_dict(after)

    def dev_batches(self) -> list[Batch]:
        """Make the batches on which the run is evaluated; always the same."""
        if not len(self.dev.rows):
            return []
        return self._asking(self.objective, DEV_TOKENS)

    def dev_parts(self) -> dict[str, list[Batch]]:
        """Make those on which each named part of a mixture is evaluated, by itself."""
        parts = parts_of(self.objective)
        if not len(self.dev.rows):
            return {}
        return {name: self._asking(o, DEV_TOKENS // len(parts)) for name, o in parts.items()}

    def sample(self) -> list[Batch]:
        """Make batches of some rows to train on, from all over the data; always the same."""
        rows = self.train.rows
        some = np.unique(np.linspace(0, len(rows) - 1, SAMPLE_ROWS).astype(np.int64))
        return self._read(replace(self.train, rows=rows[some]), self.objective)

    def _asking(self, objective: Objective, tokens: int) -> list[Batch]:
        return self._read(self._enough(self.dev, tokens), objective)

    def _read(self, part: Part, objective: Objective) -> list[Batch]:
        recipe = replace(self.recipe, seed=0)
        same = replace(self, objective=objective, recipe=recipe, workers=0, rank=0, world=1)
        loader = same.loader(part, Cursor(), epochs=1)
        return [batch for micro, _ in loader for batch in micro]

    def _enough(self, part: Part, tokens: int) -> Part:
        """Keep the first of some rows; of several sources, the first of each, by what it gets."""
        rows = part.rows
        if not self.shares:
            return replace(part, rows=rows[_first(rows, tokens)])
        of = sources_of(self.shards, part)
        parts = [
            own[_first(own, round(share.gets * tokens))]
            for i, share in enumerate(self.shares)
            if len(own := rows[of == i])
        ]
        kept = np.concatenate(parts)
        return replace(part, rows=kept[np.argsort(kept[:, 0])])

    def check_batch(self) -> str | None:
        """Say what a step holds where it is asked for more tokens than there are; None: it is not.

        Such a run is one of full batches, with the rate that was meant for larger ones.
        """
        loader = self.loader(self.train, Cursor(), sampled=bool(self.shares))
        n, asked = round(loader.plan.n_tokens), self.recipe.batch_tokens
        if asked <= n:
            return None
        return (
            f"batch_tokens = {asked:,}: a step holds all of the text to train on, {n:,} tokens; "
            "give more text, or a smaller batch_tokens"
        )

    @cached_property
    def specials(self) -> tuple[Special, ...]:
        """The special tokens of each source: those of its language, where these are told."""
        return _specials(self.shards)

    def _specials(self, part: Part) -> tuple[tuple[Special, ...], Int[np.ndarray, "n"]] | None:
        several = len(self.specials) > 1
        return (self.specials, sources_of(self.shards, part)) if several else None

    def _sources(self, part: Part) -> Sources:
        of = sources_of(self.shards, part)
        n, tokens = np.bincount(of).tolist(), [share.tokens for share in self.shares]
        takes = rows_to_take(tokens, n, [share.gets for share in self.shares])
        return Sources(of=of, takes=takes)

    def loader(
        self,
        part: Part,
        cursor: Cursor,
        epochs: int | None = None,
        *,
        sampled: bool = False,
    ) -> Loader:
        """Make what makes the batches of some rows, each once an epoch or, `sampled`, by shares."""
        return Loader(
            texts=part.texts,
            rows=part.rows,
            objective=self.objective,
            special=self.specials[0],
            specials=self._specials(part),
            length=self.length,
            batch_tokens=self.recipe.batch_tokens,
            micro_tokens=self.recipe.micro_tokens,
            strategy="stream" if self.recipe.unit == "stream" else self.recipe.packing,
            both_ways=self.recipe.both_ways,
            documents=part.documents,
            sources=self._sources(part) if sampled else None,
            seed=self.recipe.seed,
            cursor=cursor,
            epochs=epochs,
            workers=self.workers,
            rank=self.rank,
            world=self.world,
        )


def _first(rows: Int[np.ndarray, "n 2"], tokens: int) -> slice:
    """Say which rows, from the first on, have so many tokens; all if they have fewer."""
    ends = np.cumsum(rows[:, 1] - rows[:, 0])
    return slice(int(np.searchsorted(ends, tokens)) + 1)


def sources_of(shards: Shards, part: Part) -> Int[np.ndarray, "n"]:
    """Return the number of the source of each row, where shards tell them apart."""
    assert shards.sources is not None
    return shards.sources[1][part.documents]


def _specials(shards: Shards) -> tuple[Special, ...]:
    special = shards.tokenizer.special
    if not special.languages or shards.sources is None:
        return (special,)
    return tuple(special.told(name) for name in shards.sources[0])


def _shares(shards: Shards, part: Part, exponent: float) -> tuple[Share, ...]:
    """Count the tokens of each source; Lample and Conneau 2019, section 3.1, on those."""
    assert shards.sources is not None
    of = sources_of(shards, part)
    tokens = [int(n) for n in np.bincount(of, part.sizes)]
    return tuple(
        Share(name, n, n / sum(tokens), gets)
        for name, n, gets in zip(shards.sources[0], tokens, smoothed(tokens, exponent), strict=True)
    )


def _part(
    shards: Shards, spans: Int[np.ndarray, "n 2"], recipe: Recipe, length: int, step: int
) -> Part:
    """Cut some documents, or a part of one, into rows of at most `length` tokens.

    Of a stream, each goes on `step` tokens behind the one before.
    """
    if recipe.unit in ("corpus", "stream"):
        joined = Joined(shards, spans, separator(shards.tokenizer.special))
        of_stream = recipe.unit == "stream"
        return Part(joined, joined.pieces(length, step) if of_stream else joined.rows(length))
    return Part(shards, shards.rows(length, recipe.unit, within=spans))


def lay_out(
    shards: Shards,
    recipe: Recipe,
    objective: Objective,
    length: int,
    *,
    workers: int = 0,
    rank: int = 0,
    world: int = 1,
) -> Data:
    """Cut shards into rows of what the objective can hide in `length` tokens.

    Some are held out for evaluation; where sources are sampled, of each.

    Raises:
        ValueError: there is not enough text, there are no sources to sample from, or the rows are
            not such that the objective can be asked of them.
    """
    check_sampling(recipe, shards)
    check_unit(recipe, objective)
    check_languages(recipe, shards.tokenizer.special, shards)
    special = _specials(shards)[0]
    sampled = recipe.sampling != 1
    if recipe.dev and shards.n_tokens == 1:
        raise ValueError(
            f"{', '.join(recipe.data)}: is a single token for {recipe.tokenizer or recipe.model}: "
            "nothing can be held out and nothing learned; give more text"
        )
    spans, held_out = shards.held_out(recipe.dev, recipe.seed, of_each=sampled)
    budget = objective.budget(length, special)
    step = step_of(objective, budget, special)
    train = _part(shards, spans, recipe, budget, step)
    if recipe.unit == "stream" and not len(train.rows):
        n = int((spans[:, 1] - spans[:, 0]).sum())
        raise ValueError(
            f"unit = stream: the text has {n:,} tokens to train on, and a row {budget:,}; give "
            "more text, or a smaller length"
        )
    return Data(
        shards=shards,
        objective=objective,
        recipe=recipe,
        length=length,
        train=train,
        dev=_part(shards, held_out, recipe, budget, step),
        train_spans=spans,
        shares=_shares(shards, train, recipe.sampling) if sampled else (),
        workers=workers,
        rank=rank,
        world=world,
    )
