"""Models that are in the package: no download, opened by name wherever a folder is."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

_HERE = Path(str(files("unmask.box")))
BOX: Mapping[str, Path] = {name: _HERE / name for name in ("unmask-mini-en",)}
"""Folders in the Hugging Face layout, by name. The README.md in each is the model's card."""
