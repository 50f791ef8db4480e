"""The limits of the house: sizes of files, functions and signatures; unique class names.

What is over a limit today is listed here. The lists only get shorter: what is new keeps the limits,
and what has come within them is taken off its list.
"""

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1] / "unmask"
FILE_LINES, FUNCTION_LINES, PARAMETERS = 800, 60, 7

LONG_FILES: set[str] = set()
LONG_FUNCTIONS: set[str] = set()
MANY_PARAMETERS = {
    "inference/pipeline.py:Pipeline.evaluate",
    "word_vectors/train/kernels/cooccurrence.py:count_pairs",
    "word_vectors/train/kernels/cooccurrence.py:glove",
    "word_vectors/train/kernels/cooccurrence.py:read_blocks",
    "word_vectors/train/kernels/word2vec.py:_output_targets",
    "word_vectors/train/kernels/word2vec.py:_sum_context",
    "word_vectors/train/kernels/word2vec.py:_update",
    "word_vectors/train/kernels/word2vec.py:cbow",
    "word_vectors/train/kernels/word2vec.py:skipgram",
    "word_vectors/train/kernels/words.py:_ngrams_of",
    "word_vectors/train/kernels/words.py:subsample",
}  # fmt: skip
REPEATED_CLASS_NAMES: set[str] = set()


@functools.cache
def files() -> dict[str, ast.Module]:
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(ROOT.rglob("*.py"))
    }


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Give every function and method with its place; not those inside of functions."""

    def visit(body: list[ast.stmt], position: str) -> Iterator[tuple[str, ast.FunctionDef]]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from visit(node.body, f"{position}{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                yield position + node.name, node

    for name, tree in files().items():
        yield from visit(tree.body, f"{name}:")


def lines_of_code(function: ast.FunctionDef) -> int:
    """Count a function's lines, its docstring apart."""
    first = function.body[0]
    documented = ast.get_docstring(function, clean=False) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def parameters(function: ast.FunctionDef) -> int:
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return sum(one.arg not in ("self", "cls") for one in every)


def test_files_are_short() -> None:
    long = {f for f in files() if len((ROOT / f).read_text().splitlines()) > FILE_LINES}
    assert long == LONG_FILES


def test_functions_fit_on_a_screen() -> None:
    assert {n for n, f in functions() if lines_of_code(f) > FUNCTION_LINES} == LONG_FUNCTIONS


def test_functions_take_few_parameters() -> None:
    assert {n for n, f in functions() if parameters(f) > PARAMETERS} == MANY_PARAMETERS


def test_public_class_names_are_unique() -> None:
    positions = defaultdict(list)
    for name, tree in files().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                positions[node.name].append(name)
    assert {c for c, where in positions.items() if len(where) > 1} == REPEATED_CLASS_NAMES


SHARED_TYPES = {"batch.py": ("Example", "Batch")}
SHARED_FIELDS = 12


def test_shared_types_have_few_fields() -> None:
    """Those of `Featured`, which both have, are one."""
    for name, classes in SHARED_TYPES.items():
        for node in files()[name].body:
            if isinstance(node, ast.ClassDef) and node.name in classes:
                own = sum(isinstance(line, ast.AnnAssign) for line in node.body)
                assert own + 1 <= SHARED_FIELDS, f"{node.name} has {own + 1} fields"


def test_collation_knows_no_feature_by_name() -> None:
    features = {
        node.name
        for tree in files().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "Feature" for base in node.bases)
    }
    assert len(features) > 10
    for name in ("batch.py", "batching/collate.py"):
        used = {node.id for node in ast.walk(files()[name]) if isinstance(node, ast.Name)}
        used |= {
            a.name
            for n in ast.walk(files()[name])
            if isinstance(n, ast.ImportFrom)
            for a in n.names
        }
        assert not used & features
