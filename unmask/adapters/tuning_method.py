"""TuningMethod: what is tuned of a model, as a value, and what others ask of it."""

from typing import ClassVar

from unmask.heads.model import Model


class TuningMethod:
    """What is tuned of a model: a part that is added, or some of its own weights.

    The answers here are those of most methods; one that differs has its own.
    """

    trains_embeddings: ClassVar[bool] = False
    """Whether the token embeddings are tuned, at some time."""
    trains_head_alone: ClassVar[bool] = False
    """Whether the model below the head gives features, and is not changed."""
    unfreezes_gradually: ClassVar[bool] = False
    """Whether layers are tuned from the top on, one after the other."""
    is_small_part: ClassVar[bool] = False
    """Whether what is tuned is a small part of the model's own weights."""

    @property
    def layer_decay(self) -> float | None:
        """The learning rate of a layer, in that of the layer above it. None: as many layers say."""
        return 1.0

    @property
    def head_factor(self) -> float:
        """The learning rate of a head of labels, in that of what is below it."""
        return 1.0

    def trainable(self, model: Model) -> frozenset[str]:
        """Name the parameters of the backbone that are tuned.

        Raises:
            ValueError: the model has not what the method tunes.
        """
        return frozenset(name for name, _ in model.named_parameters())

    def unfreeze(self, model: Model, step: int, total_steps: int) -> None:
        """Let what is tuned at a step have gradients; a function of the step alone."""
