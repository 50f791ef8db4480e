"""Text in, answer out, from an ONNX folder."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
from jaxtyping import Float

from unmask.finetuning.formulations.formulation import LANGUAGE_HEAD, PredictionRecord
from unmask.inference.pipeline import Pipeline
from unmask.tasks.task import Task


class OnnxPipeline(Pipeline):
    """A graph with its tokenizer: labels, fills, embeds and generates as the model it was made of.

    What needs the weights themselves is refused: they are in the model's own folder.
    """

    @property
    def has_weights(self) -> bool:
        """False: the graph has outputs alone."""
        return False

    def to(
        self, device: str, *, dtype: Literal["float32", "bfloat16"] = "float32"
    ) -> "OnnxPipeline":
        """Return the pipeline as it is.

        Raises:
            ValueError: the device is not the CPU, or the type not that of the graph.
        """
        if device not in ("auto", "cpu"):
            raise ValueError(f"device must be auto or cpu for an ONNX folder, got {device}")
        if dtype != "float32":
            raise ValueError(f"dtype must be float32 for an ONNX folder, got {dtype}")
        return self

    def predict(
        self, texts: str | Iterable[Any], *, task: Task | None = None
    ) -> list[PredictionRecord]:
        """Label texts as `Pipeline.predict` does, with the head of the graph.

        Raises:
            ValueError: the graph has no such head, or a text is not what its task takes.
        """
        self._check_labels()
        return super().predict(texts, task=task)

    def score(self, path: str | Path, **options: Any) -> dict[str, float]:
        """Compute all metrics as `Pipeline.score` does, with the head of the graph.

        Raises:
            ValueError: the graph has no such head; otherwise as there.
        """
        self._check_labels()
        return super().score(path, **options)

    def logits(self, texts: str | Sequence[str]) -> "list[Float[np.ndarray, '...']]":
        """Return the logits of labels as `Pipeline.logits` does.

        Raises:
            ValueError: the graph has no head of labels.
        """
        self._check_labels()
        return super().logits(texts)

    def likelihood(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: the graph has no logits of given tokens."""
        self._refuse("likelihood")

    def evaluate(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: the graph has no losses."""
        self._refuse("evaluation of a pretraining objective")

    def save(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: the graph is not the weights."""
        self._refuse("conversion")

    def _check_labels(self) -> None:
        answers_in_words = self.model.architecture.is_encoder_decoder
        labels = self.model.head_specs.keys() - {LANGUAGE_HEAD}
        if self.task is not None and not labels and not answers_in_words:
            self._refuse(f"a model that was fine-tuned to {self.task.task_kind} in words")

    def _refuse(self, what: str) -> NoReturn:
        source = self.loaded_model.source or self.preset.name
        raise ValueError(
            f"{source}: an ONNX folder does not support {what}; use the folder that it was made of"
        )
