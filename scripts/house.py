"""Print the house in figures: code lines, files, what a module reaches, tests, documents.

`make house` prints today's figures; `python scripts/house.py COMMIT` prints those of a commit
beside them. `tests/architecture/test_ceilings.py` holds them as ceilings that only go down.

A code line has a token that is neither comment nor docstring. A module reaches what it imports,
directly or not; imports for type checkers and imports within functions do not count.
"""

import ast
import io
import re
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
STARTS = {
    "a preset": "unmask.zoo.encoders.bert_family.bert",
    "the trainer": "unmask.training.loop",
    "prepare": "unmask.jobs.corpus.prepare",
    "pretrain": "unmask.jobs.pretrain.pretrain",
    "finetune": "unmask.finetuning.run",
}
DIALECT = {  # says nothing to a reader of the papers
    "anew", "asked", "begun", "beside", "card", "found", "given", "kin", "least", "most", "opened",
    "ours", "own", "said", "some", "theirs", "told", "wide",
}  # fmt: skip
_NO_CODE = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER", "ENCODING"}


def code_lines(source: str) -> int:
    """Count the lines of a file that have code."""
    strings = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr))
    documented = {
        line
        for node in strings
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    spans = (
        range(t.start[0], t.end[0] + 1) for t in tokens if tokenize.tok_name[t.type] not in _NO_CODE
    )
    return len({line for span in spans for line in span} - documented)


def _imported(body: list[ast.stmt]) -> Iterator[str]:
    """Yield what statements of a module import, and each name that may be a module."""
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _imported(node.orelse)
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ClassDef):
            yield from _imported([*node.body, *getattr(node, "orelse", ())])
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _reached(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    remaining = [start]
    while remaining:
        module = remaining.pop()
        if module not in reached:
            reached.add(module)
            remaining += graph[module]
    return reached


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = function.body[ast.get_docstring(function, clean=False) is not None :]
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def _of_syntax(trees: Mapping[str, ast.Module]) -> dict[str, int]:
    """Return the figures of functions, fields and names."""
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    used = Counter(node.id for node in names)
    used.update(node.attr for node in nodes if isinstance(node, ast.Attribute))
    stored = Counter(node.id for node in names if isinstance(node.ctx, ast.Store))
    stored.update(a.arg for f in functions for a in (*f.args.args, *f.args.kwonlyargs))
    fields = (
        isinstance(line, ast.AnnAssign)
        for node in nodes
        if isinstance(node, ast.ClassDef)
        and any("dataclass" in ast.unparse(d) for d in node.decorator_list)
        for line in node.body
    )
    return {
        "private helpers used once": sum(
            re.match("_[^_]", f.name) is not None and used[f.name] <= 1 for f in functions
        ),
        "functions of one line": sum(_body_lines(f) == 1 for f in functions),
        "dataclass fields": sum(fields),
        "names of the dialect": sum(stored[word] for word in DIALECT),
    }


def measure(root: Path = ROOT) -> dict[str, int]:
    """Return the figures of a source folder by name."""
    paths = {
        ".".join(p.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): p
        for p in sorted((root / "unmask").rglob("*.py"))
    }
    sources = {module: path.read_text(encoding="utf-8") for module, path in paths.items()}
    trees = {module: ast.parse(source) for module, source in sources.items()}
    sizes = {module: code_lines(source) for module, source in sources.items()}
    graph = {module: {*_imported(tree.body)} & trees.keys() for module, tree in trees.items()}
    figures = {"code lines": sum(sizes.values()), "files": len(paths)}
    figures["folders"] = len({path.parent for path in paths.values()})
    for label, start in STARTS.items():
        if start in graph:
            figures[f"reached from {label}"] = sum(sizes[m] for m in _reached(start, graph))
    tests = [path.read_text(encoding="utf-8") for path in (root / "tests").rglob("*.py")]
    pages = [p for p in (root / "unmask").rglob("*") if p.suffix in (".js", ".css", ".html")]
    texts = [p.read_text() for p in (*root.glob("*.md"), *(root / "docs").rglob("*.md"))]
    return figures | _of_syntax(trees) | {
        "code lines of tests": sum(map(code_lines, tests)),
        "lines of js, css, html": sum(
            p.read_text().count("\n") for p in pages if "vendor" not in p.parts
        ),
        "words of docs": sum(len(re.findall(r"\w+", text)) for text in texts),
    }  # fmt: skip


def main() -> None:
    """Print the figures, beside those of a commit where one is named."""
    figures, before = measure(), dict[str, int]()
    if sys.argv[1:]:
        archive = subprocess.check_output(["git", "archive", sys.argv[1]], cwd=ROOT)
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(fileobj=io.BytesIO(archive)) as files:
                files.extractall(folder, filter="data")
            before = measure(Path(folder))
    for name, value in figures.items():
        was = f"   (was {before[name]:,})" if before.get(name, value) != value else ""
        print(f"{name:30} {value:>9,}{was}")


if __name__ == "__main__":
    main()
