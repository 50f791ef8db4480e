"""The network of pictures for a task: of another picture size, and without hidden patches."""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from torch import Tensor

from unmask.images.preprocessing import ImagePreprocessing
from unmask.model.backbones.vision_transformer import VisionArchitecture
from unmask.model.positions.grid import resize_table
from unmask.zoo.preset import Published

_POSITIONS, _MASK_TOKEN = "backbone.position.table", "backbone.tokens.mask_token"


def picture_network(
    preset: Published, weights: Mapping[str, Tensor], image_size: int | None
) -> tuple[Published, dict[str, Tensor]]:
    """Return the preset and the weights for pictures of a size; None: the model's own.

    Positions are interpolated (Dosovitskiy et al. 2021, section 3.2). The vector of hidden patches
    is left out: nothing is hidden in a task.

    Raises:
        ValueError: the size is not a multiple of the patch size.
    """
    own = replace(cast(VisionArchitecture, preset.architecture), mask_token=False)
    kept = {name: x for name, x in weights.items() if name != _MASK_TOKEN}
    a = own
    if image_size is not None:
        try:
            a = own.with_image_size(image_size, image_size)
        except ValueError as error:
            raise ValueError(f"options.image_size = {image_size}: {error}") from None
    if _POSITIONS in kept and a.position != own.position:
        table = kept[_POSITIONS].detach()
        kept[_POSITIONS] = resize_table(table, own.position, a.position.rows, a.position.columns)
    return replace(preset, architecture=a), kept


def preprocessing_of_size(
    preprocessing: ImagePreprocessing, image_size: int | None
) -> ImagePreprocessing:
    """Return a preprocessing for pictures of another size; None: the same."""
    if image_size is None or preprocessing.size == (image_size, image_size):
        return preprocessing
    return replace(preprocessing, resize=(image_size, image_size), crop=None)
