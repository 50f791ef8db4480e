"""The path of the data is the order of the imports; nothing heavy is imported before its use."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "unmask"
STAGES = (
    "batch", "files", "machine_memory", "config", "output", "options", "saved_format", "bundled",
    "text", "images", "tokenizers", "conversations", "shards",
    "objectives", "batching", "model", "heads", "word_vectors", "zoo", "checkpoints", "adapters",
    "compression", "training", "planning", "generation", "tasks", "finetuning",
    "preferences", "evaluation", "analysis", "inference", "reports", "jobs", "studies", "web",
    "cli",
)  # fmt: skip
FILES = sorted(ROOT.rglob("*.py"))


def stage(module: str) -> int:
    return STAGES.index(module.split(".")[1])


def imported(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module]
    names += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    return [n for n in names if n.startswith("unmask.")]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_import_only_from_earlier_rooms(path: Path) -> None:
    if path == ROOT / "__init__.py":
        return
    own = ".".join(("unmask", *path.relative_to(ROOT).with_suffix("").parts))
    for name in imported(path):
        assert stage(name) <= stage(own), f"{own} imports {name}, which comes after it"


def test_readme_lists_the_rooms_in_the_order_of_imports() -> None:
    tree = (ROOT.parent / "README.md").read_text(encoding="utf-8").partition("unmask/\n")[2]
    lines = [line.split("    ")[0] for line in tree.partition("```")[0].splitlines()]
    listed = [STAGES.index(re.split(r"[./]", name)[0]) for line in lines for name in line.split()]
    assert {STAGES[i] for i in listed} == {*STAGES}
    assert listed[6:] == sorted(listed[6:])  # those before are single files, which any room reads


def test_imports_have_no_cycle() -> None:
    edges = {
        ".".join(("unmask", *p.relative_to(ROOT).with_suffix("").parts)): imported(p) for p in FILES
    }
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, f"a circle: {' -> '.join((*way[way.index(name) :], name))}"
        if name not in done:
            for other in edges.get(name, ()):
                visit(other, (*way, name))
            done.add(name)

    for name in edges:
        if name != "unmask.__init__":
            visit(name, ())


@pytest.mark.parametrize(
    "module",
    [
        "unmask",
        "unmask.cli.main",
        "unmask.images.sources",
        "unmask.images.store",
        "unmask.objectives.published",
        "unmask.tokenizers.spec",
        "unmask.training.config",
        "unmask.web.commands.recipe",
    ],
)
def test_torch_is_imported_only_when_used(module: str) -> None:
    code = (
        f"import sys, {module}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_has_a_docstring() -> None:
    lacking = []
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith(
                "_"
            )
            if public and ast.get_docstring(node) is None:
                lacking.append(f"{path.name}:{node.name}")
    assert lacking == []


def test_test_file_names_are_unique() -> None:
    """Pytest imports them by name alone, and refuses the second."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


_LOCAL_IMPORT = re.compile(r"^[ ]+from (\S+) import ([\w, ]+)$", re.M)


def test_names_that_functions_of_scripts_import_exist() -> None:
    """No import within a function is run when tests are collected: each name must be written in its
    module, so that a renaming cannot forget one."""
    tests = Path(__file__).parent
    folders = (tests, *(tests.parent / name for name in ("benchmarks", "examples")))
    scripts = [p for folder in folders for p in folder.rglob("*.py")]
    modules = {p.stem: p for p in scripts} | {
        ".".join(("unmask", *p.relative_to(ROOT).with_suffix("").parts)): p for p in FILES
    }
    read = cache(Path.read_text)
    found = [
        (path, module, name.split()[0])
        for path in scripts
        for module, names in _LOCAL_IMPORT.findall(read(path))
        if module in modules
        for name in names.split(",")
    ]
    assert len(found) > 50
    missing = [
        f"{path.relative_to(tests.parent)}: {module}.{name}"
        for path, module, name in found
        if not re.search(rf"\b{name}\b", read(modules[module]))
    ]
    assert not missing
