"""Models that are in the package: no download, opened by name wherever a folder is."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

_FOLDER = Path(str(files("unmask.bundled.models")))
BUNDLED_MODELS: Mapping[str, Path] = {name: _FOLDER / name for name in ("unmask-mini-en",)}
"""Folders in the Hugging Face layout, by name. The README.md in each is the model's card."""
