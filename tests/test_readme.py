"""README, docs/models.md and docs/objectives.md agree with the catalogue and the tree."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from unmask.zoo.catalogue import MODELS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


OBJECTIVES_PAGE = (ROOT / "docs" / "objectives.md").read_text(encoding="utf-8")


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def models_page() -> ModuleType:
    return _script("models_page")


@pytest.fixture(scope="module")
def objective_table() -> ModuleType:
    return _script("objective_table")


def test_models_page_equals_the_catalogue(models_page: ModuleType) -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert page == models_page.page()
    assert all(f"`{name}`" in page for name in MODELS)


def test_objectives_page_has_all_names_and_options(objective_table: ModuleType) -> None:
    assert OBJECTIVES_PAGE.startswith(objective_table.introduction() + "| preset | mlm | clm |")


def test_objectives_page_gives_the_reasons_of_the_code(objective_table: ModuleType) -> None:
    rows = re.findall(r"^\| (.+) \| (\S+): (\S+?)(?:,| and| \|)", OBJECTIVES_PAGE, re.MULTILINE)
    assert len(rows) > 15
    for reason, preset, objective in rows:
        no = objective_table.unsupported(MODELS[preset], objective)
        assert no is not None, f"{preset}: {objective}"
        assert no["reason"] == reason


@pytest.mark.slow
def test_objectives_page_is_generated_by_the_code(objective_table: ModuleType) -> None:
    assert objective_table.refreshed(OBJECTIVES_PAGE) == OBJECTIVES_PAGE


def test_counts_of_presets_and_families_equal_the_catalogue() -> None:
    families = {preset.family for preset in MODELS.values()}
    assert f"{len(MODELS)} presets of {len(families)} families" in README.replace("\n", " ")


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_tree_lists_exactly_the_folders() -> None:
    tree = README.split("```\nunmask/\n")[1].split("\n```")[0]
    named = set(re.findall(r"^  (\w+)/ ", tree, re.MULTILINE))
    there = {p.parent.name for p in (ROOT / "unmask").glob("*/*.py")}
    assert named == there


def test_each_preset_of_the_table_has_a_tiny_network(objective_table: ModuleType) -> None:
    for preset in objective_table.cards():
        assert objective_table.tiny(preset.architecture), preset.name
