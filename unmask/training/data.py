"""What a recipe trains on: its tokenizer, its shards, and the batches made of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from unmask.batch import Batch
from unmask.config import from_dict, to_dict
from unmask.hiding.loader import Cursor, Loader
from unmask.hiding.objectives import Objective
from unmask.published.card import Published
from unmask.text.corpus import Document, documents
from unmask.tokens.shards import Shards
from unmask.tokens.vocabulary import Bytes, CodePoints, TokenizerSpec
from unmask.training.recipe import Recipe

DEV_TOKENS = 65_536
"""Held-out tokens that each evaluation during training reads, at most."""


def tokenizer_spec(recipe: Recipe, card: Published) -> TokenizerSpec:
    """Return the card's kind of tokenizer, of the size that the recipe says."""
    spec = card.tokenizer
    if recipe.vocab_size is None or isinstance(spec.vocabulary, Bytes | CodePoints):
        return spec
    return replace(spec, vocabulary=replace(spec.vocabulary, size=recipe.vocab_size))


def read_documents(recipe: Recipe) -> Iterator[Document]:
    """Open the recipe's documents anew."""
    return documents(
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


@dataclass(frozen=True, kw_only=True)
class Data:
    """Where batches come from: all that is needed to make any of them again."""

    shards: Shards
    objective: Objective
    recipe: Recipe
    length: int
    train_rows: Int[np.ndarray, "n 2"]
    dev_rows: Int[np.ndarray, "m 2"]
    train_spans: Int[np.ndarray, "k 2"]
    workers: int = 0
    rank: int = 0
    world: int = 1

    def batches(self, cursor: Any) -> Iterator[tuple[Sequence[Batch], Any]]:
        """Give the micro-batches of each step after a cursor (plain data; None: the beginning)."""
        start = Cursor() if cursor is None else from_dict(Cursor, cursor)
        for micro, after in self._loader(self.train_rows, start):
            yield micro, to_dict(after)

    def dev_batches(self) -> list[Batch]:
        """Make the batches on which the run is evaluated; always the same."""
        if not len(self.dev_rows):
            return []
        ends = np.cumsum(self.dev_rows[:, 1] - self.dev_rows[:, 0])
        enough = int(np.searchsorted(ends, DEV_TOKENS)) + 1
        recipe = replace(self.recipe, seed=0)
        loader = replace(self, recipe=recipe, workers=0, rank=0, world=1)._loader(
            self.dev_rows[:enough], Cursor(), epochs=1
        )
        return [batch for micro, _ in loader for batch in micro]

    def _loader(
        self, rows: Int[np.ndarray, "n 2"], cursor: Cursor, epochs: int | None = None
    ) -> Loader:
        starts = self.shards.documents[:, 0]
        return Loader(
            texts=self.shards,
            rows=rows,
            objective=self.objective,
            special=self.shards.tokenizer.special,
            length=self.length,
            batch_tokens=self.recipe.batch_tokens,
            micro_tokens=self.recipe.micro_tokens,
            strategy=self.recipe.packing,
            documents=np.searchsorted(starts, rows[:, 0], side="right") - 1,
            seed=self.recipe.seed,
            cursor=cursor,
            epochs=epochs,
            workers=self.workers,
            rank=self.rank,
            world=self.world,
        )


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

    Some are held out for evaluation.

    Raises:
        ValueError: there is not enough text.
    """
    train, dev = shards.held_out(recipe.dev, recipe.seed)
    budget = objective.budget(length, shards.tokenizer.special)
    return Data(
        shards=shards,
        objective=objective,
        recipe=recipe,
        length=length,
        train_rows=shards.rows(budget, recipe.unit, within=train),
        dev_rows=shards.rows(budget, recipe.unit, within=dev),
        train_spans=train,
        workers=workers,
        rank=rank,
        world=world,
    )
