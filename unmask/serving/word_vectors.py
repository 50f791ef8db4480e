"""Word vectors learned of prepared text, to a run folder like all others."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unmask.channels import Stream
from unmask.checkpoints import folder as checkpoints
from unmask.checkpoints.huggingface import Opened
from unmask.config import to_dict
from unmask.files import whole, written_file
from unmask.model.architecture import Architecture
from unmask.published.card import Published
from unmask.serving.record import Near
from unmask.tokens.intact import Intact
from unmask.tokens.shards import Shards
from unmask.tokens.tokenizer import Tokenizer
from unmask.training import loop, parallel
from unmask.training.log import Log, Report, Sums
from unmask.training.recipe import Recipe
from unmask.vectors.corpus import Lexicon, count_ids, lexicon_of, of_shards
from unmask.vectors.learning import KEYS, METHODS, NGRAMS, Learning, Method, Step, Told, begin
from unmask.vectors.lsa import Lsa
from unmask.vectors.phrases import joined
from unmask.vectors.space import Space
from unmask.vectors.svd import Svd

UNITS = ("document", "paragraph", "sentence")
COUNTS = "counts"
"""The folder of a run in which pairs are counted."""
PHRASES = "phrases"
"""The folder of a run with the text whose phrases are joined."""
SHOWN = 12
"""Words of the report, at most, with those that are near."""
TERM = "neighbors"
"""What the log calls the loss."""


def method_of(card: Published) -> Method | None:
    """Return what a card's word vectors are learned by; None: it is another model."""
    return card.objective if isinstance(card.objective, METHODS) else None


def check_recipe(recipe: Recipe, usual: Recipe, *, long: bool) -> None:
    """Check that a recipe says nothing that word vectors do not have.

    Args:
        recipe: of the run.
        usual: the card's own.
        long: a number of steps, tokens or minutes is asked for.

    Raises:
        ValueError: it does; the key is named.
    """
    if long:
        raise ValueError(
            "word vectors are learned for whole epochs, not for steps, tokens or minutes: "
            "--set objective.epochs=10"
        )
    mine, theirs = to_dict(recipe), to_dict(usual)
    for key, value in mine.items():
        if key not in (*KEYS, "kind") and value != theirs[key]:
            raise ValueError(f"{key}: word vectors have no {key}, got {value!r}")
    if other := recipe.architecture.keys() - {"d_model"}:
        raise ValueError(f"architecture.{min(other)}: word vectors have d_model alone, their width")
    if recipe.unit not in UNITS:
        raise ValueError(f"unit: windows lie within one of {list(UNITS)}, got {recipe.unit!r}")
    if not isinstance(recipe.objective, METHODS):
        names = ", ".join(sorted(kind.__name__ for kind in METHODS))
        raise ValueError(f"objective: word vectors are learned by one of {names}")
    if isinstance(recipe.objective, Svd | Lsa) and recipe.rate != usual.rate:
        raise ValueError(f"rate: factors are computed, at no rate, got {recipe.rate:g}")


@dataclass(eq=False)
class Job:
    """A run of word vectors."""

    recipe: Recipe
    card: Published
    tokenizer: Tokenizer
    words: Lexicon
    learning: Learning
    shards: Shards

    @classmethod
    def start(
        cls, recipe: Recipe, card: Published, shards: Shards, out: Path, threads: int
    ) -> "Job":
        """Choose the words, count pairs where that is the method, and draw the first vectors.

        Raises:
            ValueError: no word is left, or a number makes no sense.
            ImportError: a library is not installed.
        """
        method = method_of(card)
        assert method is not None
        assert isinstance(card.architecture, Architecture)
        within = shards.held_out(recipe.dev, recipe.seed)[0] if recipe.dev else None
        assert recipe.unit in UNITS
        corpus, tokenizer = of_shards(shards, recipe.unit, within), shards.tokenizer
        if method.phrases is not None:
            corpus, tokenizer = joined(corpus, tokenizer, method.phrases, out / PHRASES)
        words = lexicon_of(tokenizer, count_ids(corpus), least=1)
        told = Told(
            d_model=card.architecture.d_model, rate=recipe.rate, seed=recipe.seed, threads=threads
        )
        learning = begin(method, corpus, words, told, out / COUNTS)
        return cls(
            replace(recipe, steps=learning.n_steps), card, tokenizer, words, learning, shards
        )

    def go_on(self, out: Path) -> tuple[checkpoints.Checkpoint | None, list[str]]:
        """Go back to the newest whole checkpoint, if there is one; say which are damaged."""
        found, damaged = checkpoints.newest(out)
        if found is not None:
            arrays = {name: x.numpy() for name, x in found.tensors("vectors").items()}
            self.learning.restore(arrays)
        return found, damaged

    def save(self, out: Path, step: Step, asked: "Asked") -> None:
        """Write a checkpoint."""
        arrays = {n: torch.from_numpy(x) for n, x in self.learning.state().items()}
        progress = {"place": step.place, "loss": asked.loss, "asked": asked.n}
        checkpoints.save(out, step.step, {"vectors": arrays}, progress, keep=self.recipe.keep)

    def learn(
        self,
        out: Path,
        terminal: Stream | None,
        last: Mapping[str, Any] | None,
        *,
        tensorboard: bool = False,
    ) -> bool:
        """Take the steps that are left, with checkpoints; False if someone stops it.

        Args:
            out: the run's folder.
            terminal: where the live line goes.
            last: the progress that the checkpoint told, with which it goes on.
            tensorboard: also write TensorBoard's event files.
        """
        recipe, since, asked = self.recipe, Asked.of(last), Asked()
        place, taken = (int(last["place"]), int(last["step"])) if last else (0, 0)
        logged, saved = taken // recipe.log_every, taken // recipe.checkpoint_every
        begun = time.perf_counter()
        with (
            Log(
                out,
                memory=lambda: parallel.memory_bytes(torch.device("cpu")),
                terminal=terminal,
                tensorboard=tensorboard,
            ) as log,
            loop.stopping() as stop,
            Intact(self.shards) as intact,
        ):
            for step in self.learning.steps():
                now = time.perf_counter()
                asked = Asked.at(step)
                since = since + asked
                end = step.step >= recipe.steps
                told = end or step.step // recipe.log_every > logged
                log(
                    Report(
                        step=step.step,
                        steps=recipe.steps,
                        tokens=step.place,
                        new_tokens=step.place - place,
                        sums=asked.sums,
                        since=since.sums if told else None,
                        rate=step.rate,
                        gradient_norm=math.nan,
                        seconds=now - begun,
                        skipped=0,
                    )
                )
                begun, place = now, step.place
                if told:
                    since, logged = Asked(), step.step // recipe.log_every
                if end or stop.asked or step.step // recipe.checkpoint_every > saved:
                    saved = step.step // recipe.checkpoint_every
                    intact.wait()
                    self.save(out, step, since)
                if stop.asked and not end:
                    return False
        return True

    def keep_ngrams(self, out: Path) -> None:
        """Write the vectors of n-grams, where words are composed of them."""
        if (data := self.learning.composed()) is None:
            return
        with whole(out / NGRAMS) as beside, beside.open("wb") as file:
            file.writelines(data)

    def files(self, out: Path) -> dict[str, Any]:
        """Return what is to be known of the file of n-grams, if there is one."""
        return {NGRAMS: written_file(out / NGRAMS)} if (out / NGRAMS).is_file() else {}

    @property
    def said(self) -> str:
        """What was learned from, for people."""
        n = self.words.n_words
        return f"{n:,} words of text, {len(self.words):,} of them different"

    def near(self) -> tuple[Near, ...]:
        """Return some words, from frequent to rare, each with those that are nearest to it."""
        space, n = Space(self.words.words, self.learning.vectors()), len(self.words)
        rows = np.unique(np.geomspace(n // 200 + 1, n // 2 + 1, SHOWN).astype(int) - 1)
        words = [space.words[row] for row in rows]
        return tuple(
            Near(word=word, neighbors=tuple((one.word, one.score) for one in some))
            for word, some in zip(words, space.neighbors(words, 5), strict=True)
        )

    def opened(self) -> Opened:
        """Return the model: a table of vectors, zeros of what is no word."""
        tokenizer = self.tokenizer
        card = self.card.with_vocabulary(tokenizer.special)
        model = card.build().requires_grad_(False)
        table = model.weights()["backbone.tokens.weight"]
        table.zero_()
        ids = np.flatnonzero(self.words.row_of >= 0)
        rows = self.learning.vectors()[self.words.row_of[ids]]
        if not np.isfinite(rows).all():
            raise FloatingPointError(
                f"the vectors are not finite: the rate {self.recipe.rate:g} was too high"
            )
        table[torch.from_numpy(ids)] = torch.from_numpy(rows)
        return Opened(
            card=card, model=model.requires_grad_(True), tokenizer=tokenizer, labels=(),
            missing=(), extra=(),
        )  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """Questions since some step, and their loss."""

    n: int = 0
    loss: float = 0.0

    @classmethod
    def at(cls, step: Step) -> "Asked":
        """Return those of a step."""
        n = step.asked if math.isfinite(step.loss) else 0
        return cls(n, n * step.loss if n else 0.0)

    @classmethod
    def of(cls, progress: Mapping[str, Any] | None) -> "Asked":
        """Return those that a checkpoint tells."""
        return cls(int(progress["asked"]), float(progress["loss"])) if progress else cls()

    def __add__(self, other: "Asked") -> "Asked":
        return Asked(self.n + other.n, self.loss + other.loss)

    @property
    def sums(self) -> Sums:
        """As the log has them."""
        return Sums({TERM: self.loss}, {TERM: self.n})
