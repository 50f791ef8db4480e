"""What docstrings and documents name is there: parameters, and what stands in the package."""

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "unmask").rglob("*.py"))
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(p for p in sorted((ROOT / "docs").rglob("*.md")) if p.name != "log.md"),
]
"""Except pages about the past: the log, and the page of earlier names."""
_NAMED = re.compile(r"`(unmask(?:\.[A-Za-z_]\w*)+)(?:\(\))?`")
_FILES_OF_A_RUN = {"unmask.json"}
_KEYS = {"unmask.frame", "unmask.special_tokens"}


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            yield node


def listed_arguments(docstring: str) -> list[str]:
    """Return the names in the section `Args:` of a docstring."""
    section = re.search(r"^Args:\n((?:    .*\n?|\n)*)", docstring, re.MULTILINE)
    return re.findall(r"^    \*{0,2}(\w+):", section.group(1), re.MULTILINE) if section else []


def parameters(function: ast.FunctionDef) -> set[str]:
    a = function.args
    every = [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]
    return {one.arg for one in every if one is not None}


def unresolved(name: str) -> bool:
    """Say whether nothing has a dotted name: no module, attribute or field."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        except ImportError:  # of an extra that is not installed
            return False
        for part in parts[n:]:
            if is_dataclass(found) and part in {field.name for field in fields(found)}:
                return False
            if not hasattr(found, part):
                return True
            found = getattr(found, part)
        return False
    return True


def test_documented_arguments_are_parameters() -> None:
    strange = [
        f"{path.relative_to(ROOT)}: {function.name}: {name}"
        for path in FILES
        for function in functions(path)
        for name in listed_arguments(ast.get_docstring(function) or "")
        if name not in parameters(function)
    ]
    assert strange == []


def test_unknown_documented_argument_is_detected() -> None:
    (function,) = ast.parse("def f(a): 'F.\\n\\nArgs:\\n    b: no.'").body
    assert isinstance(function, ast.FunctionDef)
    assert listed_arguments(ast.get_docstring(function) or "") == ["b"]
    assert parameters(function) == {"a"}


def test_dotted_names_of_the_package_resolve() -> None:
    assert unresolved("unmask.batch.Nothing")
    assert not unresolved("unmask.batch.Batch.targets")
    stale = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in (*FILES, *DOCUMENTS)
        for name in _NAMED.findall(path.read_text(encoding="utf-8"))
        if name not in _FILES_OF_A_RUN | _KEYS and unresolved(name)
    ]
    assert stale == []
