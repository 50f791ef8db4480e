"""The bundled text and task: free, small, and read by `unmask demo` and `unmask hide`.

ATTRIBUTION says where from.
"""

from importlib.resources import files
from pathlib import Path
from typing import Literal

BUNDLED_FILES = {
    "novels": "novels.txt.xz",
    "train": "spoken/train.tsv",
    "dev": "spoken/dev.tsv",
    "test": "spoken/test.tsv",
}


def bundled_path(name: Literal["novels", "train", "dev", "test"]) -> str:
    """Return the path of a bundled file.

    The novels to pretrain on, or a split of the labelled sentences.
    """
    return str(Path(str(files("unmask.bundled.demo"))) / BUNDLED_FILES[name])


def demo_recipe_path() -> str:
    """Return the path of the demo's recipe."""
    return str(Path(str(files("unmask.bundled.demo"))) / "recipe.toml")
