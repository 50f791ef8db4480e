"""Running a study of transfer: each cell is pretrained, tuned in one language, scored in others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unmask.evaluation.translations import align_layers
from unmask.files import lock_run_folder
from unmask.finetuning.results.score import FileOptions
from unmask.finetuning.results.score_groups import read_group, score_group
from unmask.inference.export import is_finished_run
from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline
from unmask.jobs.corpus.prepare import prepare
from unmask.jobs.finetune import finetune
from unmask.shards.fertility import text_fertility
from unmask.studies.page import PLOT_FILE
from unmask.studies.study import StudyCell
from unmask.studies.study_run import TUNED_FOLDER, PretrainingRun
from unmask.studies.transfer.data import Translations
from unmask.studies.transfer.labels import FoundFiles
from unmask.studies.transfer.page import draw_transfer_plot, format_transfer_page
from unmask.studies.transfer.result import LanguageScores, TransferResult, TransferStudyResult
from unmask.studies.transfer.study import TransferCell, TransferStudy

_EMBEDDINGS = "backbone.tokens.weight"


@dataclass(frozen=True, kw_only=True)
class TransferRun(PretrainingRun[TransferResult]):
    """A study of transfer to run or resume."""

    study: TransferStudy
    translations: Translations
    labeled: FoundFiles | None = None
    """Files of the task; None: labels are found by words."""

    @property
    def result_type(self) -> type[TransferResult]:
        """Type of the result of a cell."""
        return TransferResult

    def result(self, results: tuple[TransferResult, ...]) -> TransferStudyResult:
        """Return the results of all cells."""
        return TransferStudyResult(
            study=self.study, benchmarks=self.benchmarks, cell_results=results
        )

    def pages(self, results: tuple[TransferResult, ...]) -> Mapping[str, Callable[[], str]]:
        """Return the page and the plot."""
        result = self.result(results)
        return {
            PLOT_FILE: lambda: draw_transfer_plot(result),
            "README.md": lambda: format_transfer_page(result),
        }

    def score_cell(self, cell: StudyCell, outcome: TransferResult) -> TransferResult:
        """Tune a cell with each seed, unless done, and score it in each of its languages."""
        own = self._cell(cell.name)
        tuned = [self._tuned(own, seed) for seed in range(self.study.seeds)]
        languages = own.scored or self.benchmarks
        return replace(
            outcome, languages=tuple(self._score_in(one, own, tuned) for one in languages)
        )

    def _score_in(
        self, language: str, cell: TransferCell, tuned: Sequence[Pipeline]
    ) -> LanguageScores:
        """Score a cell, tuned with each seed, in a language, and measure its space."""
        task = tuned[0].required_task()
        options, by = FileOptions(), None
        if self.labeled is None or self.study.labeled is None:
            rows = self._write_rows(language, cell, held_out=True)
        else:
            rows, by = self.labeled.test[language], self.study.labeled.by or None
            options = FileOptions(
                text=self.study.labeled.text, label=self.study.labeled.label or None
            )
        items = read_group(task, rows, language, by=by, options=options)
        found = [
            score_group(
                in_language(one, language).loaded_model, language, items, one.required_task()
            )
            for one in tuned
        ]
        return replace(
            self._measure_space(cell, language),
            scores=tuple(100 * one.metrics[task.metric] for one in found),
            metric=task.metric,
            n_rows=len(items),
            most_frequent=100 * (found[0].most_frequent or 0.0),
        )

    def pretraining_text(self, cell: StudyCell) -> dict[str, Any]:
        """Return the options of `pretrain` that give a cell's text.

        With initial weights, the text is tokenized in the run: the tokenizer is not that of the
        weights.
        """
        prepared, own = self._prepare_text(cell), self._cell(cell.name)
        if not cell.init_from:
            return {"data": prepared}
        return {
            "data": self.translations.write_text(self._lines_folder(own), own),
            "tokenizer": prepared / "tokenizer",
            "document_separator": "line",
        }

    def pretraining_changes(self, cell: StudyCell) -> list[str | Mapping[str, Any]]:
        """Return all changes of a cell's recipe, with the shares of its languages."""
        return [
            *self.study.recipe_changes(cell),
            {"sampling_exponent": self.study.exponent_of(self._cell(cell.name))},
        ]

    def _cell(self, name: str) -> TransferCell:
        return next(one for one in self.study.cells if one.name == name)

    def _prepare_text(self, cell: StudyCell) -> Path:
        """Tokenize the text of a cell, with a tokenizer of its own, unless done.

        Cells that read the same languages in the same form share it.
        """
        own = self._cell(cell.name)
        text = self.folder / "text" / _text_name(own)
        text.parent.mkdir(exist_ok=True)
        with lock_run_folder(text.parent, wait=True):
            prepare(
                self.translations.write_text(self._lines_folder(own), own),
                out=text,
                model=own.model,
                vocab_size=self.study.vocab_size,
                objective="tlm" if own.is_paired else None,
                document_separator="line",
                sampling_exponent=self.study.exponent_of(own),
                workers=max(1, self.workers),
                quiet=self.terminal is None,
            )
        return text

    def _lines_folder(self, cell: TransferCell) -> Path:
        return self.folder / "lines" / _text_name(cell)

    def _write_rows(self, language: str, cell: TransferCell, *, held_out: bool) -> Path:
        """Write labeled rows, unless done."""
        name = "-".join(["scored" if held_out else "tuning", *_script(cell)])
        path = self.folder / "rows" / f"{name}.{language}.tsv"
        path.parent.mkdir(exist_ok=True)
        if not path.is_file():
            self.translations.write_rows(path, language, cell, held_out=held_out)
        return path

    def _tuned(self, cell: TransferCell, seed: int) -> Pipeline:
        """Return a tuned model; of a cell with another's body, that with the cell's embeddings."""
        if cell.body_of:
            body = self._cell(cell.body_of)
            self._pretrain(body)
            return with_embeddings_of(self._tuned(body, seed), load(self.pretraining_folder(cell)))
        out = self.folder / TUNED_FOLDER / cell.name / f"seed-{seed}"
        place = self.folder / ".running" / cell.name / "tuning"
        place.mkdir(parents=True, exist_ok=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        language = cell.tune_language or self.study.source
        with lock_run_folder(place, wait=True):
            if not is_finished_run(out):
                base = self.pretraining_folder(cell)
                known = language in known_languages(load(base))
                finetune(
                    str(base), **self._task_options(cell, language), out=out,
                    language=language if known else None,
                    epochs=self.study.epochs, seed=seed, tune=cell.tune,
                    initialize="pretrained" if cell.has_trained_weights else "random",
                    resume=out.is_dir() and any(out.iterdir()), device=self.device,
                    terminal=self.terminal,
                )  # fmt: skip
        return load(out)

    def _task_options(self, cell: TransferCell, language: str) -> dict[str, Any]:
        """Return the options of `finetune` that give the task."""
        labeled = self.study.labeled
        if self.labeled is None or labeled is None:
            return {"task": "classify", "train": self._write_rows(language, cell, held_out=False)}
        return {
            "task": labeled.task,
            "train": self.labeled.train[language],
            "rows": self.study.rows,
            "text": labeled.text,
            "label": labeled.label or None,
            "task_options": dict(labeled.options),
        }

    def _measure_space(self, cell: TransferCell, language: str) -> LanguageScores:
        """Return tokens per word and retrieval of translations of a pretrained cell."""
        model = load(self.pretraining_folder(cell))
        model = in_language(model, language)
        texts = self.translations.held_out_texts(language, cell)
        per_word = text_fertility(model.tokenizer, texts)
        source = self.study.source
        if language == source:
            return LanguageScores(language=language, tokens_per_word=per_word)
        of_source = load(self.pretraining_folder(self._cell(cell.body_of or cell.name)))
        layers = align_layers(
            in_language(of_source, source).loaded_model,
            self.translations.held_out_texts(source, cell),
            texts,
            model.loaded_model,
        )
        return LanguageScores(
            language=language,
            tokens_per_word=per_word,
            retrieval=tuple(one.retrieved for one in layers),
            shuffled=tuple(one.shuffled for one in layers),
        )


def known_languages(pipeline: Pipeline) -> set[str]:
    """Return the languages that a model has embeddings of; none without such embeddings."""
    special = pipeline.tokenizer.special_ids
    return {name for name, _ in special.languages} if special.language_embeddings else set()


def in_language(pipeline: Pipeline, language: str) -> Pipeline:
    """Return a model for texts of a language; of a language that it does not know, itself."""
    known = language in known_languages(pipeline)
    return pipeline.with_text_language(language) if known else pipeline


def with_embeddings_of(tuned: Pipeline, other: Pipeline) -> Pipeline:
    """Return a tuned model with the token embeddings and the tokenizer of another.

    Raises:
        ValueError: their embeddings differ in shape.
    """
    weights = tuned.model.state_dict()
    own, given = weights[_EMBEDDINGS], other.model.state_dict()[_EMBEDDINGS]
    if own.shape != given.shape:
        raise ValueError(
            f"{_EMBEDDINGS}: must have the shape {tuple(own.shape)}, got {tuple(given.shape)}"
        )
    tuned.model.load_state_dict(weights | {_EMBEDDINGS: given})
    return type(tuned)(
        replace(tuned.loaded_model, tokenizer=other.tokenizer, source=None), tuned.task
    )


def _text_name(cell: TransferCell) -> str:
    """Return the name of a cell's text: equal for cells that read the same."""
    return "-".join([*cell.languages, *["pairs"] * cell.is_paired, *_script(cell)])


def _script(cell: TransferCell) -> list[str]:
    return ["own-scripts"] * cell.own_scripts
