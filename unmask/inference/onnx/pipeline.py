"""Text in, answer out, from an ONNX folder."""

from typing import Any, Literal, NoReturn

from unmask.inference.pipeline import Pipeline


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

    def likelihood(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: the graph has no logits of given tokens."""
        self._refuse("likelihood")

    def evaluate(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: the graph has no losses."""
        self._refuse("evaluation of a pretraining objective")

    def save(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: the graph is not the weights."""
        self._refuse("conversion")

    def _refuse(self, what: str) -> NoReturn:
        source = self.loaded_model.source or self.preset.name
        raise ValueError(
            f"{source}: an ONNX folder does not support {what}; use the folder that it was made of"
        )
