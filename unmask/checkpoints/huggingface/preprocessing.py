"""The preprocessing of pictures beside a model's weights: preprocessor_config.json."""

from pathlib import Path
from typing import cast

from unmask.images.decode import Channels
from unmask.images.preprocessing import ImagePreprocessing
from unmask.images.preprocessor_config import (
    CONFIG_FILE,
    read_preprocessor_config,
    write_preprocessor_config,
)
from unmask.images.reading import default_preprocessing
from unmask.model.backbones.vision_transformer import VisionArchitecture
from unmask.zoo.preset import Published


def preset_preprocessing(preset: Published) -> ImagePreprocessing | None:
    """Return the preprocessing of a new model; None: it reads no pictures."""
    stack = preset.architecture.picture_stack
    if stack is None:
        return None
    a = cast(VisionArchitecture, stack)
    return default_preprocessing(a.image_size, cast(Channels, a.n_channels))


def load_preprocessing(folder: Path, preset: Published) -> ImagePreprocessing | None:
    """Read the preprocessing of a folder; that of a new model where it has none.

    Raises:
        ValueError: the file is damaged, or a key of it is not supported.
    """
    if not preset.reads_pictures or not (folder / CONFIG_FILE).is_file():
        return preset_preprocessing(preset)
    return read_preprocessor_config(folder / CONFIG_FILE)


def save_preprocessing(preprocessing: ImagePreprocessing | None, folder: Path) -> None:
    """Write the preprocessing of a model that reads pictures."""
    if preprocessing is not None:
        write_preprocessor_config(preprocessing, folder / CONFIG_FILE)
