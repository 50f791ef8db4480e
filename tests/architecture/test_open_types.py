"""Backbones and heads are open: each is implemented side by side, and nobody lists them all."""

import ast
import functools
from pathlib import Path

from unmask.heads.spec import HeadSpec

ROOT = Path(__file__).parents[2] / "unmask"


@functools.cache
def files() -> dict[str, ast.Module]:
    """Read the files of the package, by name."""
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(ROOT.rglob("*.py"))
    }


MAX_UNION, MAX_ISINSTANCE = 4, 317
"""Own classes of networks or heads in one union; questions which own class a value has."""


@functools.cache
def classes() -> dict[str, ast.ClassDef]:
    """Find the classes of the package, by name."""
    return {
        node.name: node
        for tree in files().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }


def subclasses(base: str) -> set[str]:
    """Give the classes that are derived from one, at any distance, and itself."""
    found = {base}
    while True:
        more = {
            name
            for name, node in classes().items()
            if any(isinstance(b, ast.Name) and b.id in found for b in node.bases)
        }
        if more <= found:
            return found
        found |= more


def names_in_union(node: ast.expr) -> list[str]:
    """Give the classes that a union or a tuple names, written in any way."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*names_in_union(node.left), *names_in_union(node.right)]
    if isinstance(node, ast.Tuple):
        return [name for one in node.elts for name in names_in_union(one)]
    if isinstance(node, ast.Subscript):
        return names_in_union(node.slice)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return names_in_union(ast.parse(node.value, mode="eval").body)
        except SyntaxError:
            return []
    if isinstance(node, ast.Attribute):
        outside = isinstance(node.value, ast.Name) and node.value.id in ("ast", "nn", "torch")
        return [] if outside else [node.attr]
    return [node.id] if isinstance(node, ast.Name) else []


def test_no_union_lists_all_backbones_or_heads() -> None:
    ours = subclasses("HeadSpec") | subclasses("StackArchitecture") | {"EncoderDecoderArchitecture"}
    ours |= {"Transformer", "EncoderDecoder", "Recurrent", "Convolutional", "Canine", "Elmo"}
    ours |= {name for name in classes() if name.endswith("Head")}
    assert len(ours) > 30
    large = {
        f"{file}:{node.lineno}"
        for file, tree in files().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp | ast.Tuple)
        and len(ours.intersection(names_in_union(node))) > MAX_UNION
    }
    assert large == set()


def test_kind_modules_lists_every_head_at_its_definition() -> None:
    defined = {
        name: f"unmask.{file.removesuffix('.py').replace('/', '.')}"
        for name in subclasses("HeadSpec") - {"HeadSpec"}
        for file, tree in files().items()
        if classes()[name] in tree.body
    }
    assert HeadSpec.kind_modules() == defined


def test_isinstance_of_own_types_is_rare() -> None:
    calls = [
        f"{file}:{node.lineno}"
        for file, tree in files().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and classes().keys() & set(names_in_union(node.args[1]))
    ]
    assert len(calls) <= MAX_ISINSTANCE
