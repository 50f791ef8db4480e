"""TuningMethod: the specification of which parameters are tuned."""

from typing import ClassVar

from unmask.heads.model import Model


class TuningMethod:
    """What is tuned of a model: an added module, or some of its weights.

    Defaults are those of most methods; others override them.
    """

    trains_embeddings: ClassVar[bool] = False
    """Whether the token embeddings are tuned at some step."""
    trains_head_alone: ClassVar[bool] = False
    """Whether the backbone is frozen and only provides features."""
    unfreezes_gradually: ClassVar[bool] = False
    """Whether layers are unfrozen one by one, from the top."""
    mixes_layers: ClassVar[bool] = False
    """Whether the backbone is frozen and a mean of its layers is tuned."""
    is_small_part: ClassVar[bool] = False
    """Whether only a small part of the model's weights is tuned."""

    keeps_first_token: ClassVar[bool] = False
    """Whether too little is tuned to make the first token, if untrained, a vector of the text."""

    @property
    def layer_decay(self) -> float | None:
        """Layerwise learning-rate decay. None: derived from the number of layers."""
        return 1.0

    @property
    def head_factor(self) -> float:
        """Ratio of the classification head's learning rate to the backbone's."""
        return 1.0

    def trainable(self, model: Model) -> frozenset[str]:
        """Return the names of the tuned backbone parameters.

        Raises:
            ValueError: the model lacks the parameters to tune.
        """
        return frozenset(name for name, _ in model.named_parameters())

    def unfreeze(self, model: Model, step: int, total_steps: int) -> None:
        """Enable gradients of the parameters tuned at a step, a function of the step only."""
