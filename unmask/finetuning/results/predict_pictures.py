"""Predictions of a fine-tuned model for new pictures, and its scores on labeled ones."""

import tempfile
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.config import from_dict
from unmask.finetuning.data.read_pictures import picture_examples
from unmask.finetuning.formulations.build import formulate
from unmask.finetuning.formulations.formulation import PredictionRecord, TaskFormulation
from unmask.finetuning.formulations.picture_classification import with_picture_preprocessing
from unmask.finetuning.results.predict import predict_scores
from unmask.images.reading import picture_records
from unmask.images.records import ImageColumns, ImageRecord
from unmask.images.sources import read_images
from unmask.images.store import write_images
from unmask.tasks.kinds.pictures import PICTURES, PictureTaskOptions
from unmask.tasks.readers.columns import with_label_names
from unmask.tasks.task import Task, TaskExample
from unmask.tokenizers.learn.tokenizer import picture_tokenizer


def predict_pictures(
    loaded_model: LoadedModel, pictures: Iterable[Any], task: Task, batch_tokens: int
) -> list[PredictionRecord]:
    """Label pictures, in their order; those of a folder are sorted by name.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a picture cannot be read.
    """
    records = picture_records(pictures)
    first = next(records, None)
    if first is None:
        return []
    formulation = _formulate(loaded_model, task)
    with _stored_examples(loaded_model, chain([first], records), skip_bad=False) as items:
        inputs = formulation.build_inputs(items)
        found = predict_scores(formulation, loaded_model.model, inputs, batch_tokens)
        return [
            formulation.prediction_record(item, scores)
            for item, scores in zip(items, found.scores, strict=True)
        ]


@contextmanager
def labeled_pictures(
    loaded_model: LoadedModel, path: str | Path, task: Task, columns: ImageColumns
) -> Generator[tuple[TaskFormulation, list[TaskExample]]]:
    """Yield the formulation of a task and the labeled pictures of a source.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a picture cannot be read or has no label, or a label is unknown.
    """
    options = from_dict(PictureTaskOptions, dict(task.options), "options")
    records = read_images(path, columns)
    bad = options.bad == "skip"
    with _stored_examples(loaded_model, records, skip_bad=bad, labels=str(path)) as items:
        named = with_label_names(items, task.labels)
        PICTURES.check_examples(named, task.labels, columns.label or "label")
        yield _formulate(loaded_model, task), list(named)


def _formulate(loaded_model: LoadedModel, task: Task) -> TaskFormulation:
    formulation = formulate(task, loaded_model.preset, picture_tokenizer())
    return with_picture_preprocessing(formulation, loaded_model.preprocessing)


@contextmanager
def _stored_examples(
    loaded_model: LoadedModel,
    records: Iterable[ImageRecord],
    *,
    skip_bad: bool,
    labels: str | None = None,
) -> Generator[Sequence[TaskExample]]:
    """Decode pictures into a temporary store; yield an example for each."""
    with tempfile.TemporaryDirectory() as folder:
        store = write_images(
            records, Path(folder) / "store", loaded_model.preprocessing, skip_bad=skip_bad
        )
        yield picture_examples(store, labels or "", need_labels=labels is not None)
