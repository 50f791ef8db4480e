"""The bundled text and task, which `unmask demo` and `unmask hide` read, and bundled pictures.

They are free and small. ATTRIBUTION and LICENSE-emoji say where from.
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


DEMO_PREFIX = "demo:"
BUNDLED_PICTURES = {"emoji": "emoji.zip"}
"""Pictures by the name that follows `DEMO_PREFIX`. 360 emoji of 32 x 32 in six groups, which are
their labels, with their names in English (`caption`), German, French and Spanish (`de`, `fr`,
`es`); `split` is train or test."""


def bundled_pictures(source: str) -> str:
    """Return the path of bundled pictures, `demo:emoji`, or what is none of them as it is.

    Raises:
        FileNotFoundError: there are no such pictures.
    """
    if not source.startswith(DEMO_PREFIX):
        return source
    name = source.removeprefix(DEMO_PREFIX)
    if name not in BUNDLED_PICTURES:
        known = ", ".join(f"{DEMO_PREFIX}{one}" for one in BUNDLED_PICTURES)
        raise FileNotFoundError(f"{source}: no such bundled pictures, only {known}")
    return str(Path(str(files("unmask.bundled.demo"))) / BUNDLED_PICTURES[name])


def bundled_texts(source: str) -> str:
    """Return the path of the bundled novels, `demo:novels`, or what is none as it is."""
    return bundled_path("novels") if source == f"{DEMO_PREFIX}novels" else source


def bundled_table(source: str) -> str:
    """Return the path of a split of the bundled task, `demo:spoken/train`, or `source` as it is.

    Raises:
        FileNotFoundError: there is no such split.
    """
    if not source.startswith(DEMO_PREFIX):
        return source
    for split in ("train", "dev", "test"):
        if source == f"{DEMO_PREFIX}spoken/{split}":
            return bundled_path(split)
    raise FileNotFoundError(f"{source}: no such bundled table, only demo:spoken/train, /dev, /test")


def demo_recipe_path() -> str:
    """Return the path of the demo's recipe."""
    return str(Path(str(files("unmask.bundled.demo"))) / "recipe.toml")
