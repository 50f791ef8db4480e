"""Training of word vectors on prepared text, to a run folder."""

import math
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
from unmask.training.device.memory import peak_memory_bytes
from unmask.training.device.stopwatch import Stopwatch
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
"""Subfolder of a run for counted pairs."""
PHRASES_FOLDER = "phrases"
"""Subfolder of a run for the text with joined phrases."""
MAX_SHOWN_WORDS = 12
"""Maximum number of words in the report, with neighbors."""
LOSS_TERM = "neighbors"
"""Name of the loss in the log."""


def word_vector_method(preset: Published) -> WordVectorMethod | None:
    """Return the training method of a preset's word vectors; None: it is another model."""
    return preset.objective if isinstance(preset.objective, WORD_VECTOR_METHODS) else None


def check_word_vector_recipe(recipe: Recipe, preset_recipe: Recipe, *, length_given: bool) -> None:
    """Check that a recipe has no keys that word vectors lack.

    Args:
        recipe: the recipe of the run.
        preset_recipe: the preset's recipe.
        length_given: whether steps, tokens or minutes are given.

    Raises:
        ValueError: it has; the message names the key.
    """
    if length_given:
        raise ValueError(
            "word vectors are trained for whole epochs, not for steps, tokens or minutes: "
            "--set objective.epochs=10"
        )
    mine, allowed = to_dict(recipe), to_dict(preset_recipe)
    for key, value in mine.items():
        if key not in (*RECIPE_KEYS, "kind") and value != allowed[key]:
            raise ValueError(f"{key}: word vectors have no {key}, got {value!r}")
    if unsupported := recipe.architecture.keys() - {"d_model"}:
        raise ValueError(
            f"architecture.{min(unsupported)}: word vectors have only d_model, their width"
        )
    if recipe.row_unit not in WORD_VECTOR_ROW_UNITS:
        raise ValueError(
            f"row_unit: windows need one of {list(WORD_VECTOR_ROW_UNITS)}, got {recipe.row_unit!r}"
        )
    if not isinstance(recipe.objective, WORD_VECTOR_METHODS):
        names = ", ".join(sorted(kind.__name__ for kind in WORD_VECTOR_METHODS))
        raise ValueError(f"objective: word vectors need one of {names}")
    if (
        isinstance(recipe.objective, SVD | LSA)
        and recipe.learning_rate != preset_recipe.learning_rate
    ):
        raise ValueError(
            f"learning_rate: matrix factorization has none, got {recipe.learning_rate:g}"
        )


@dataclass(eq=False)
class WordVectorJob:
    """A training run of word vectors."""

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
        """Choose the vocabulary, count pairs if the method needs it, and initialize vectors.

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
        """Restore the newest intact checkpoint, if there is one; report damaged ones."""
        checkpoint, damaged = checkpoints.newest_checkpoint(output_folder)
        if checkpoint is not None:
            arrays = {name: x.numpy() for name, x in checkpoint.tensors("vectors").items()}
            self.trainer.restore(arrays)
        return checkpoint, damaged

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
        """Run the remaining steps, with checkpoints; False if stopped.

        Args:
            output_folder: the run's folder.
            terminal: stream for the progress line.
            last_progress: progress of the restored checkpoint.
            tensorboard: whether to write TensorBoard event files.
        """
        recipe, since, losses = (
            self.recipe,
            ExampleLossSum.of_progress(last_progress),
            ExampleLossSum(),
        )
        place, n_completed = (
            (int(last_progress["place"]), int(last_progress["step"])) if last_progress else (0, 0)
        )
        logged, saved = n_completed // recipe.log_every, n_completed // recipe.checkpoint_every
        watch, before = Stopwatch(), 0.0
        with (
            TrainingLog(
                output_folder,
                memory_usage=lambda: peak_memory_bytes(torch.device("cpu")),
                terminal=terminal,
                tensorboard=tensorboard,
            ) as log,
            stop_after_step() as stop,
            ShardVerifier(self.shards) as intact,
        ):
            for step in self.trainer.steps():
                now = watch.seconds
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
                        seconds=now - before,
                        n_skipped=0,
                    )
                )
                before, place = now, step.position
                if is_logged:
                    since, logged = ExampleLossSum(), step.step // recipe.log_every
                stopped = stop.is_requested
                if end or stopped or step.step // recipe.checkpoint_every > saved:
                    saved = step.step // recipe.checkpoint_every
                    intact.wait()
                    self.save_checkpoint(output_folder, step, since)
                if stopped:
                    return False
        return True

    def write_ngrams(self, output_folder: Path) -> None:
        """Write the vectors of n-grams, if words are composed of them."""
        if (data := self.trainer.fasttext_bytes()) is None:
            return
        with atomic_path(output_folder / FASTTEXT_FILE) as beside, beside.open("wb") as file:
            file.writelines(data)

    def file_records(self, output_folder: Path) -> dict[str, Any]:
        """Return the record of the file of n-grams, if there is one."""
        return (
            {FASTTEXT_FILE: file_record(output_folder / FASTTEXT_FILE)}
            if (output_folder / FASTTEXT_FILE).is_file()
            else {}
        )

    @property
    def training_summary(self) -> str:
        """Size of the training text and vocabulary, as text."""
        n = self.lexicon.n_words
        return f"{n:,} words of text, {len(self.lexicon):,} of them different"

    def neighbor_samples(self) -> tuple[Near, ...]:
        """Return some words, from frequent to rare, with their nearest neighbors."""
        space, n = KeyedVectors(self.lexicon.words, self.trainer.vectors()), len(self.lexicon)
        rows = np.unique(np.geomspace(n // 200 + 1, n // 2 + 1, MAX_SHOWN_WORDS).astype(int) - 1)
        words = [space.words[row] for row in rows]
        return tuple(
            Near(word=word, neighbors=tuple((one.word, one.score) for one in some))
            for word, some in zip(words, space.neighbors(words, 5), strict=True)
        )

    def to_model(self) -> LoadedModel:
        """Return the model: a table of vectors, zeros for ids that are not words."""
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
    """Number of training examples and their loss since some step."""

    n_examples: int = 0
    total_loss: float = 0.0

    @classmethod
    def of_step(cls, step: WordVectorStep) -> "ExampleLossSum":
        """Return the sums of a step."""
        n = step.n_examples if math.isfinite(step.loss) else 0
        return cls(n, n * step.loss if n else 0.0)

    @classmethod
    def of_progress(cls, progress: Mapping[str, Any] | None) -> "ExampleLossSum":
        """Return the sums of a checkpoint."""
        return cls(int(progress["asked"]), float(progress["loss"])) if progress else cls()

    def __add__(self, other: "ExampleLossSum") -> "ExampleLossSum":
        return ExampleLossSum(
            self.n_examples + other.n_examples, self.total_loss + other.total_loss
        )

    @property
    def loss_sums(self) -> LossSums:
        """The sums for the log."""
        return LossSums({LOSS_TERM: self.total_loss}, {LOSS_TERM: self.n_examples})
