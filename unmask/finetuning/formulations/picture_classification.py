"""Classification of whole pictures, by a head on the class token.

Dosovitskiy et al. 2021, arXiv:2010.11929, section 3.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from jaxtyping import Float

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.batching.pictures import UnreadPicture, stored_picture
from unmask.checkpoints.huggingface.preprocessing import preset_preprocessing
from unmask.config import from_dict
from unmask.finetuning.formulations.formulation import (
    LABEL_HEAD,
    PredictionRecord,
    TaskFormulation,
    TaskInput,
    label_cross_entropy,
    label_indices,
    label_prediction_record,
)
from unmask.heads.model import Model
from unmask.heads.spec import HeadSpec
from unmask.heads.vision.distilled_classification import DistilledClassification
from unmask.images.preprocessing import ImagePreprocessing
from unmask.model.backbones.vision_transformer import VisionArchitecture
from unmask.tasks.kinds.pictures import PictureTaskOptions
from unmask.tasks.task import Label, Task, TaskExample
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.preset import Published

DISTILLED_HEAD = "distilled"
"""DeiT's two classifiers."""


@dataclass(frozen=True, kw_only=True)
class PictureClassification:
    """Labels of pictures; pixels are read when a batch is made."""

    task: Task
    tokenizer: Tokenizer
    picture_ids: tuple[int, ...]
    """What stands for a picture: special tokens and patches."""
    preprocessing: ImagePreprocessing

    @property
    def special_ids(self) -> SpecialTokenIds:
        """Those of pictures."""
        return self.tokenizer.special_ids

    def build_inputs(self, items: Sequence[TaskExample]) -> list[TaskInput]:
        """Refer to each picture, with the number of its label.

        Raises:
            ValueError: an item is a text.
        """
        return [
            TaskInput(item_index=i, example=self._example(item)) for i, item in enumerate(items)
        ]

    def _example(self, item: TaskExample) -> Example:
        if item.picture is None:
            raise ValueError(f"{item.location} is a text: this model labels pictures")
        inputs = np.array(self.picture_ids)
        return Example(
            inputs=inputs,
            targets=np.full(len(inputs), IGNORE_INDEX),
            label=None if item.label is None else label_indices(self.task, item.label)[0],
            features=(UnreadPicture(item.picture.store, item.picture.index, self.preprocessing),),
        )

    def sample_example(self, example: Example, rng: np.random.Generator) -> Example:
        """Read the pixels of a training picture, changed by chance."""
        options = from_dict(PictureTaskOptions, dict(self.task.options), "options")
        unread = example.feature(UnreadPicture)
        assert unread is not None
        if (augmentation := options.augmentation) is None:
            return example
        pixels = augmentation.pixels(unread.pixels, self.preprocessing, rng)
        return replace(example, features=(stored_picture(pixels, self.preprocessing),))

    def compute_scores(
        self, model: Model, batch: Batch, task_inputs: Sequence[TaskInput]
    ) -> list[Float[np.ndarray, "_ labels"]]:
        """Run the head."""
        found = model(replace(batch, labels=None), return_logits=True)
        logits = found.logits[LABEL_HEAD].float()
        return list(logits.log_softmax(-1).cpu().numpy()[:, None])

    def merge_scores(
        self, task_inputs: Sequence[TaskInput], input_scores: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Return the scores of the only input of an item."""
        return np.concatenate(input_scores)

    def prediction(self, item: TaskExample, scores: Float[np.ndarray, "1 labels"]) -> Label:
        """Return the most likely label."""
        return self.task.labels[int(scores[0].argmax())]

    def prediction_record(
        self, item: TaskExample, scores: Float[np.ndarray, "1 labels"]
    ) -> PredictionRecord:
        """Return {"label", "probability", "probabilities"}."""
        predicted = self.task.labels[int(scores[0].argmax())]
        return label_prediction_record(self.task, predicted, scores)

    def loss(self, item: TaskExample, scores: Float[np.ndarray, "1 labels"]) -> tuple[float, int]:
        """Return the cross-entropy in nats."""
        assert item.label is not None
        return label_cross_entropy(self.task, item.label, scores), 1


def picture_heads(task: Task, preset: Published) -> dict[str, HeadSpec]:
    """Return the preset's classification head for the labels of the task.

    Raises:
        ValueError: the model reads no pictures, or has no such head.
    """
    if not preset.reads_pictures or preset.reads_texts:
        raise ValueError(f"task = pictures: {preset.name} is no network that reads pictures alone")
    options = from_dict(PictureTaskOptions, dict(task.options), "options")
    n = max(len(task.labels), 1)
    if options.distillation_token:
        return {DISTILLED_HEAD: _distilled_head(preset, options, n)}
    head = preset.classification_head
    if head is None:
        raise ValueError(f"{preset.name} has no classification head")
    return {LABEL_HEAD: replace(head, n_labels=n, pooling=options.pooling or head.pooling)}


def _distilled_head(
    preset: Published, options: PictureTaskOptions, n_labels: int
) -> DistilledClassification:
    """Return the classifiers of both special tokens.

    Raises:
        ValueError: the network has no distillation token, or tokens are to be pooled.
    """
    if not preset.architecture.encoder_stack.has_distillation_token:
        raise ValueError(
            f"options.distillation_token: {preset.name} has none; DeiT's networks have, as "
            "deit-mini"
        )
    if options.pooling == "mean":
        raise ValueError(
            "options.pooling = mean: with a distillation token, two tokens are classified; leave "
            "pooling out"
        )
    return DistilledClassification(n_labels=n_labels)


def formulate_pictures(
    task: Task, preset: Published, tokenizer: Tokenizer
) -> PictureClassification:
    """Formulate the classification of pictures; their preprocessing is that of a new model."""
    preprocessing = preset_preprocessing(preset)
    assert preprocessing is not None
    return PictureClassification(
        task=task,
        tokenizer=tokenizer,
        picture_ids=cast(VisionArchitecture, preset.architecture).picture_ids,
        preprocessing=preprocessing,
    )


def with_picture_preprocessing(
    formulation: TaskFormulation, preprocessing: ImagePreprocessing | None
) -> TaskFormulation:
    """Return the formulation for pictures that are prepared in this way; others are unchanged."""
    if preprocessing is None or formulation.task.task_kind != "pictures":
        return formulation
    return replace(cast(PictureClassification, formulation), preprocessing=preprocessing)
