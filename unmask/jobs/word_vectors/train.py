"""Word vectors learned of prepared text, to a run folder like all others."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unmask.checkpoints import folder as checkpoints
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.config import to_dict
from unmask.files import atomic_path, file_record
from unmask.model.architecture import StackArchitecture
from unmask.output import OutputStream
from unmask.reports.report_data import Near
from unmask.shards.read import TokenShards
from unmask.shards.verify import ShardVerifier
from unmask.tokenizers.encode import Tokenizer
from unmask.training.config import Recipe
from unmask.training.device import distributed
from unmask.training.interrupt import stop_after_step
from unmask.training.log import TrainingLog
from unmask.training.step_report import LossSums, StepReport
from unmask.word_vectors.keyed_vectors import KeyedVectors
from unmask.word_vectors.train.corpus import (
    Lexicon,
    corpus_from_shards,
    count_ids,
    lexicon_from_tokenizer,
)
from unmask.word_vectors.train.lsa import LSA
from unmask.word_vectors.train.phrases import detect_tokenizer_phrases
from unmask.word_vectors.train.svd import SVD
from unmask.word_vectors.train.trainer import (
    FASTTEXT_FILE,
    RECIPE_KEYS,
    WORD_VECTOR_METHODS,
    WordVectorMethod,
    WordVectorOptions,
    WordVectorStep,
    WordVectorTrainer,
    build_trainer,
)
from unmask.zoo.preset import Published

WORD_VECTOR_ROW_UNITS = ("document", "paragraph", "sentence")
COUNTS_FOLDER = "counts"
"""The folder of a run in which pairs are counted."""
PHRASES_FOLDER = "phrases"
"""The folder of a run with the text whose phrases are joined."""
MAX_SHOWN_WORDS = 12
"""Words of the report, at most, with those that are near."""
LOSS_TERM = "neighbors"
"""What the log calls the loss."""


def word_vector_method(preset: Published) -> WordVectorMethod | None:
    """Return what a card's word vectors are learned by; None: it is another model."""
    return preset.objective if isinstance(preset.objective, WORD_VECTOR_METHODS) else None


def check_word_vector_recipe(recipe: Recipe, preset_recipe: Recipe, *, length_given: bool) -> None:
    """Check that a recipe says nothing that word vectors do not have.

    Args:
        recipe: of the run.
        preset_recipe: the card's own.
        length_given: a number of steps, tokens or minutes is asked for.

    Raises:
        ValueError: it does; the key is named.
    """
    if length_given:
        raise ValueError(
            "word vectors are learned for whole epochs, not for steps, tokens or minutes: "
            "--set objective.epochs=10"
        )
    mine, theirs = to_dict(recipe), to_dict(preset_recipe)
    for key, value in mine.items():
        if key not in (*RECIPE_KEYS, "kind") and value != theirs[key]:
            raise ValueError(f"{key}: word vectors have no {key}, got {value!r}")
    if other := recipe.architecture.keys() - {"d_model"}:
        raise ValueError(f"architecture.{min(other)}: word vectors have d_model alone, their width")
    if recipe.row_unit not in WORD_VECTOR_ROW_UNITS:
        raise ValueError(
            f"row_unit: windows lie within one of {list(WORD_VECTOR_ROW_UNITS)}, got "
            f"{recipe.row_unit!r}"
        )
    if not isinstance(recipe.objective, WORD_VECTOR_METHODS):
        names = ", ".join(sorted(kind.__name__ for kind in WORD_VECTOR_METHODS))
        raise ValueError(f"objective: word vectors are learned by one of {names}")
    if (
        isinstance(recipe.objective, SVD | LSA)
        and recipe.learning_rate != preset_recipe.learning_rate
    ):
        raise ValueError(
            f"learning_rate: factors are computed, at no rate, got {recipe.learning_rate:g}"
        )


@dataclass(eq=False)
class WordVectorJob:
    """A run of word vectors."""

    recipe: Recipe
    preset: Published
    tokenizer: Tokenizer
    lexicon: Lexicon
    trainer: WordVectorTrainer
    shards: TokenShards

    @classmethod
    def start(
        cls,
        recipe: Recipe,
        preset: Published,
        shards: TokenShards,
        output_folder: Path,
        n_threads: int,
    ) -> "WordVectorJob":
        """Choose the words, count pairs where that is the method, and draw the first vectors.

        Raises:
            ValueError: no word is left, or a number is out of range.
            ImportError: a library is not installed.
        """
        method = word_vector_method(preset)
        assert method is not None
        assert isinstance(preset.architecture, StackArchitecture)
        within = (
            shards.split_held_out(recipe.dev_fraction, recipe.seed)[0]
            if recipe.dev_fraction
            else None
        )
        assert recipe.row_unit in WORD_VECTOR_ROW_UNITS
        corpus, tokenizer = corpus_from_shards(shards, recipe.row_unit, within), shards.tokenizer
        if method.phrase_detection is not None:
            corpus, tokenizer = detect_tokenizer_phrases(
                corpus, tokenizer, method.phrase_detection, output_folder / PHRASES_FOLDER
            )
        words = lexicon_from_tokenizer(tokenizer, count_ids(corpus), min_count=1)
        options = WordVectorOptions(
            d_model=preset.architecture.d_model,
            rate=recipe.learning_rate,
            seed=recipe.seed,
            threads=n_threads,
        )
        trainer = build_trainer(method, corpus, words, options, output_folder / COUNTS_FOLDER)
        return cls(
            replace(recipe, steps=trainer.n_steps), preset, tokenizer, words, trainer, shards
        )

    def restore_newest(
        self, output_folder: Path
    ) -> tuple[checkpoints.Checkpoint | None, list[str]]:
        """Go back to the newest whole checkpoint, if there is one; say which are damaged."""
        found, damaged = checkpoints.newest_checkpoint(output_folder)
        if found is not None:
            arrays = {name: x.numpy() for name, x in found.tensors("vectors").items()}
            self.trainer.restore(arrays)
        return found, damaged

    def save_checkpoint(
        self, output_folder: Path, step: WordVectorStep, losses: "ExampleLossSum"
    ) -> None:
        """Write a checkpoint."""
        arrays = {n: torch.from_numpy(x) for n, x in self.trainer.state().items()}
        progress = {"place": step.position, "loss": losses.total_loss, "asked": losses.n_examples}
        checkpoints.write_checkpoint(
            output_folder,
            step.step,
            {"vectors": arrays},
            progress,
            n_kept=self.recipe.keep_checkpoints,
        )

    def train(
        self,
        output_folder: Path,
        terminal: OutputStream | None,
        last_progress: Mapping[str, Any] | None,
        *,
        tensorboard: bool = False,
    ) -> bool:
        """Take the steps that are left, with checkpoints; False if someone stops it.

        Args:
            output_folder: the run's folder.
            terminal: where the live line goes.
            last_progress: the progress that the checkpoint told, with which it continues.
            tensorboard: also write TensorBoard's event files.
        """
        recipe, since, losses = (
            self.recipe,
            ExampleLossSum.of_progress(last_progress),
            ExampleLossSum(),
        )
        place, taken = (
            (int(last_progress["place"]), int(last_progress["step"])) if last_progress else (0, 0)
        )
        logged, saved = taken // recipe.log_every, taken // recipe.checkpoint_every
        begun = time.perf_counter()
        with (
            TrainingLog(
                output_folder,
                memory_usage=lambda: distributed.peak_memory_bytes(torch.device("cpu")),
                terminal=terminal,
                tensorboard=tensorboard,
            ) as log,
            stop_after_step() as stop,
            ShardVerifier(self.shards) as intact,
        ):
            for step in self.trainer.steps():
                now = time.perf_counter()
                losses = ExampleLossSum.of_step(step)
                since = since + losses
                end = step.step >= recipe.steps
                is_logged = end or step.step // recipe.log_every > logged
                log(
                    StepReport(
                        step=step.step,
                        total_steps=recipe.steps,
                        n_tokens=step.position,
                        step_tokens=step.position - place,
                        sums=losses.loss_sums,
                        sums_since_log=since.loss_sums if is_logged else None,
                        learning_rate=step.rate,
                        gradient_norm=math.nan,
                        seconds=now - begun,
                        n_skipped=0,
                    )
                )
                begun, place = now, step.position
                if is_logged:
                    since, logged = ExampleLossSum(), step.step // recipe.log_every
                if end or stop.is_requested or step.step // recipe.checkpoint_every > saved:
                    saved = step.step // recipe.checkpoint_every
                    intact.wait()
                    self.save_checkpoint(output_folder, step, since)
                if stop.is_requested and not end:
                    return False
        return True

    def write_ngrams(self, output_folder: Path) -> None:
        """Write the vectors of n-grams, where words are composed of them."""
        if (data := self.trainer.fasttext_bytes()) is None:
            return
        with atomic_path(output_folder / FASTTEXT_FILE) as beside, beside.open("wb") as file:
            file.writelines(data)

    def file_records(self, output_folder: Path) -> dict[str, Any]:
        """Return what is to be known of the file of n-grams, if there is one."""
        return (
            {FASTTEXT_FILE: file_record(output_folder / FASTTEXT_FILE)}
            if (output_folder / FASTTEXT_FILE).is_file()
            else {}
        )

    @property
    def training_summary(self) -> str:
        """What was learned from, for people."""
        n = self.lexicon.n_words
        return f"{n:,} words of text, {len(self.lexicon):,} of them different"

    def neighbor_samples(self) -> tuple[Near, ...]:
        """Return some words, from frequent to rare, each with those that are nearest to it."""
        space, n = KeyedVectors(self.lexicon.words, self.trainer.vectors()), len(self.lexicon)
        rows = np.unique(np.geomspace(n // 200 + 1, n // 2 + 1, MAX_SHOWN_WORDS).astype(int) - 1)
        words = [space.words[row] for row in rows]
        return tuple(
            Near(word=word, neighbors=tuple((one.word, one.score) for one in some))
            for word, some in zip(words, space.neighbors(words, 5), strict=True)
        )

    def to_model(self) -> LoadedModel:
        """Return the model: a table of vectors, zeros of what is no word."""
        tokenizer = self.tokenizer
        card = self.preset.with_vocabulary(tokenizer.special_ids)
        model = card.build().requires_grad_(False)
        table = model.own_weights()["backbone.tokens.weight"]
        table.zero_()
        ids = np.flatnonzero(self.lexicon.row_of >= 0)
        rows = self.trainer.vectors()[self.lexicon.row_of[ids]]
        if not np.isfinite(rows).all():
            raise FloatingPointError(
                f"the vectors are not finite: the rate {self.recipe.learning_rate:g} was too high"
            )
        table[torch.from_numpy(ids)] = torch.from_numpy(rows)
        return LoadedModel(
            preset=card, model=model.requires_grad_(True), tokenizer=tokenizer, label_names=(),
            missing=(), unexpected=(),
        )  # fmt: skip


@dataclass(frozen=True)
class ExampleLossSum:
    """Questions since some step, and their loss."""

    n_examples: int = 0
    total_loss: float = 0.0

    @classmethod
    def of_step(cls, step: WordVectorStep) -> "ExampleLossSum":
        """Return those of a step."""
        n = step.n_examples if math.isfinite(step.loss) else 0
        return cls(n, n * step.loss if n else 0.0)

    @classmethod
    def of_progress(cls, progress: Mapping[str, Any] | None) -> "ExampleLossSum":
        """Return those that a checkpoint tells."""
        return cls(int(progress["asked"]), float(progress["loss"])) if progress else cls()

    def __add__(self, other: "ExampleLossSum") -> "ExampleLossSum":
        return ExampleLossSum(
            self.n_examples + other.n_examples, self.total_loss + other.total_loss
        )

    @property
    def loss_sums(self) -> LossSums:
        """As the log has them."""
        return LossSums({LOSS_TERM: self.total_loss}, {LOSS_TERM: self.n_examples})
