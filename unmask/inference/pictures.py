"""Pictures in a pipeline: captions, vectors, retrieval and classes by their names."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from unmask.evaluation.captions import CAPTIONING, CaptionEvaluation, evaluate_captions
from unmask.evaluation.picture_vectors import (
    DEFAULT_TEMPLATE,
    RetrievalEvaluation,
    class_probabilities,
    embed_pictures,
    evaluate_retrieval,
    zero_shot_accuracy,
)
from unmask.evaluation.sentence_embeddings import EmbeddingPooling
from unmask.generation.settings import GenerationConfig
from unmask.images.preprocessing import ImagePreprocessing
from unmask.images.reading import picture_records
from unmask.images.records import ImageColumns, ImageRecord
from unmask.images.sources import read_images
from unmask.inference.generation import GenerationPipeline
from unmask.model.backbones.captioning.two_towers import check_joint_space, has_joint_space


class PicturePipeline(GenerationPipeline):
    """A model that may read pictures."""

    @property
    def compares_pictures(self) -> bool:
        """Whether it has one space for pictures and texts."""
        return has_joint_space(self.model.architecture)

    @property
    def describes_pictures(self) -> bool:
        """Whether it writes texts about pictures."""
        return self.preset.reads_pictures and self.model.architecture.is_encoder_decoder

    def evaluate_captions(
        self,
        data: str | Path | Sequence[str | Path],
        columns: ImageColumns | None = None,
        config: GenerationConfig = CAPTIONING,
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> CaptionEvaluation:
        """Describe pictures, and score the captions beside those of people.

        BLEU-1 to 4, CIDEr, CIDEr-D and, with NLTK, METEOR.

        Args:
            data: pictures with captions, as `unmask.images.sources.read_images` reads them.
            columns: columns and rows of tables.
            config: how captions are generated: three beams.
            on_progress: called with the number of pictures so far.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the model does not describe pictures, or one has no caption.
        """
        preprocessing = self.loaded_model.preprocessing
        if preprocessing is None or not self.describes_pictures:
            raise ValueError(f"{self.preset.name} does not describe pictures")
        return evaluate_captions(
            self.model,
            self.tokenizer,
            read_images(data, columns),
            preprocessing,
            config,
            on_progress=on_progress,
        )

    def embed_pictures(
        self, pictures: Any, *, pooling: EmbeddingPooling | None = None
    ) -> Float[np.ndarray, "n d"]:
        """Return a vector for each picture [n d], those of a folder sorted by name.

        Args:
            pictures: one or several paths (files, folders, archives, tables), uint8 arrays [h w c],
                or images of Pillow.
            pooling: the class token (first), the mean or the last of the hidden states, or the
                projection into the space of texts. None: that of the preset.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the model reads no pictures, or one cannot be read.
        """
        several = pictures if isinstance(pictures, list | tuple) else [pictures]
        return embed_pictures(
            self.model,
            self._picture_preprocessing(),
            picture_records(several),
            pooling=self.preset.pooling if pooling is None else pooling,
        )

    def evaluate_retrieval(
        self,
        data: str | Path | Sequence[str | Path],
        columns: ImageColumns | None = None,
        *,
        seed: int = 0,
    ) -> RetrievalEvaluation:
        """Find captions for pictures and pictures for captions: recall at 1, 5, 10, median rank.

        Args:
            data: pictures with captions, as `unmask.images.sources.read_images` reads them.
            columns: columns and rows of tables.
            seed: of the bootstrap intervals.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the model does not compare pictures with texts, or one has no caption.
        """
        check_joint_space(self.model.architecture)
        records = read_images(data, columns)
        return evaluate_retrieval(
            self.model, self.tokenizer, self._picture_preprocessing(), records, seed
        )

    def classify_by_names(
        self,
        pictures: Any,
        class_names: Sequence[str],
        templates: Sequence[str] = (DEFAULT_TEMPLATE,),
    ) -> list[dict[str, Any]]:
        """Label pictures with classes of which only the names are known.

        Returns {"label", "probability", "probabilities"} for each picture; see
        `unmask.evaluation.picture_vectors.class_probabilities`.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the model does not compare pictures with texts, a picture cannot be read, or
                class names or templates are none.
        """
        check_joint_space(self.model.architecture)
        vectors = self.embed_pictures(pictures, pooling="projection")
        found = class_probabilities(self.model, self.tokenizer, vectors, class_names, templates)
        return [
            {
                "label": class_names[int(row.argmax())],
                "probability": float(row.max()),
                "probabilities": dict(zip(class_names, map(float, row), strict=True)),
            }
            for row in found
        ]

    def evaluate_by_names(
        self,
        data: str | Path | Sequence[str | Path],
        columns: ImageColumns | None = None,
        *,
        templates: Sequence[str] = (DEFAULT_TEMPLATE,),
    ) -> dict[str, float]:
        """Label the pictures of a data set by the names of its labels, and count the right ones.

        Returns "accuracy", and "top_5_accuracy" of more than five labels.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the model does not compare pictures with texts, or one has no label.
        """
        check_joint_space(self.model.architecture)
        labels: list[str] = []

        def with_labels() -> Iterable[ImageRecord]:
            for record in read_images(data, columns):
                if record.label is None:
                    raise ValueError(f"{record.location}: has no label to be compared with")
                labels.append(record.label)
                yield record

        vectors = embed_pictures(
            self.model, self._picture_preprocessing(), with_labels(), pooling="projection"
        )
        names = sorted(set(labels))
        found = class_probabilities(self.model, self.tokenizer, vectors, names, templates)
        return zero_shot_accuracy(found, np.array([names.index(label) for label in labels]))

    def _picture_preprocessing(self) -> ImagePreprocessing:
        if self.loaded_model.preprocessing is None:
            raise ValueError(f"{self.preset.name} reads no pictures")
        return self.loaded_model.preprocessing
