"""What the README and docs/models.md say of the catalogue and the tree is true."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from unmask.zoo.catalogue import MODELS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def models_page() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "models_page", ROOT / "scripts" / "models_page.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_models_is_that_of_the_catalogue(models_page: ModuleType) -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert page == models_page.page()
    assert all(f"`{name}`" in page for name in MODELS)


def test_numbers_of_presets_and_families_are_the_catalogues() -> None:
    families = {preset.family for preset in MODELS.values()}
    assert f"{len(MODELS)} presets of {len(families)} families" in README.replace("\n", " ")


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_the_tree_names_every_folder_and_no_other() -> None:
    tree = README.split("```\nunmask/\n")[1].split("\n```")[0]
    named = set(re.findall(r"^  (\w+)/ ", tree, re.MULTILINE))
    there = {p.parent.name for p in (ROOT / "unmask").glob("*/*.py")}
    assert named == there
