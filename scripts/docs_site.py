"""Pages of the documentation site that are made, not written, and links that hold within it.

Home is the README; the API reference has a page a room of the package; what a page links to in the
repository outside `docs/` becomes a page, too. `mkdocs.yml` names this file as a hook; `make docs`
builds the site.
"""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "unmask"
DOCS = ROOT / "docs"
DECISIONS = "decisions/index.md"
REPOSITORY = "repository"
"""The folder of the site with pages from outside `docs/`."""

_LINK = re.compile(r"(!?)\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")
"""A link to a file: picture mark, text, target, anchor."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the made pages into the navigation."""
    nav: list[dict[str, Any]] = config.nav or []
    for entry in nav:
        if "API" in entry:
            pages = [{room.name: f"reference/{room.name}.md"} for room in rooms()]
            entry["API"] = ["reference/index.md", {"unmask": "reference/unmask.md"}, *pages]
        if "Decisions" in entry:
            pages = [f"decisions/{path.name}" for path in decisions()]
            entry["Decisions"] = [DECISIONS, *pages]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the made pages."""
    made = {"index.md": (ROOT / "README.md").read_text(encoding="utf-8"), DECISIONS: _decisions()}
    made["reference/index.md"] = _reference_index()
    made["reference/unmask.md"] = _reference_page("unmask", [PACKAGE])
    for room in rooms():
        modules = sorted(path for path in room.rglob("*.py") if path.name != "__init__.py")
        made[f"reference/{room.name}.md"] = _reference_page(f"unmask.{room.name}", modules)
    for path in _linked_from_outside():
        made[_page_of(path)] = path.read_text(encoding="utf-8")
    for name, text in made.items():
        file = File.generated(config, name, content=text)
        if name.startswith(REPOSITORY):
            file.inclusion = file.inclusion.NOT_IN_NAV
        files.append(file)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave `docs/` to the page that was made of the file."""
    name = page.file.src_uri
    if name.startswith("reference/") or name == DECISIONS:
        return markdown
    source = _source_of(name)

    def pointed(match: re.Match[str]) -> str:
        mark, text, target, anchor = match.groups()
        path = _resolve(source, target)
        if path is None or (path.is_file() and {path, source} <= set(DOCS.rglob("*"))):
            return match[0]
        if path.is_file() and (path.suffix == ".md" or path.is_relative_to(DOCS)):
            to = _page_of(path)
        elif path == DOCS / "decisions":
            to = DECISIONS
        else:  # code and data: named, not shown
            return text if "`" in text else f"{text} (`{path.relative_to(ROOT)}`)"
        return f"{mark}[{text}]({os.path.relpath(to, os.path.dirname(name) or '.')}{anchor or ''})"

    return _LINK.sub(pointed, markdown)


def rooms() -> list[Path]:
    """Return the folders of the package."""
    return sorted(path.parent for path in PACKAGE.glob("*/__init__.py"))


def decisions() -> list[Path]:
    """Return the records of decisions."""
    return sorted(path for path in (DOCS / "decisions").glob("*.md") if path.name != "index.md")


def _linked_from_outside() -> Iterator[Path]:
    """Yield the Markdown files outside `docs/` to which a page leads, each once."""
    waiting = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    seen = set(waiting)
    for source in waiting:
        for match in _LINK.finditer(source.read_text(encoding="utf-8")):
            path = _resolve(source, match[3])
            if path is None or path in seen or not path.is_file() or path.suffix != ".md":
                continue
            seen.add(path)
            waiting.append(path)
            if not path.is_relative_to(DOCS):
                yield path


def _resolve(source: Path, target: str) -> Path | None:
    """Find what a link of a file names; None: nothing in the repository."""
    path = Path(os.path.normpath(source.parent / target))
    return path if path.is_relative_to(ROOT) and path.exists() else None


def _page_of(path: Path) -> str:
    """Return the page of the site that shows a file."""
    if path == ROOT / "README.md":
        return "index.md"
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    parts = path.relative_to(ROOT).parts
    return "/".join([REPOSITORY, *parts[:-1], parts[-1].replace("README", "readme")])


def _source_of(name: str) -> Path:
    """Return the file that a page of the site shows."""
    if name == "index.md":
        return ROOT / "README.md"
    if name.startswith(f"{REPOSITORY}/"):
        return ROOT / name.removeprefix(f"{REPOSITORY}/").replace("readme.md", "README.md")
    return DOCS / name


def _decisions() -> str:
    lines = ["# Decisions", "", "Why is Unmask built as it is? One page for each decision.", ""]
    for path in decisions():
        title = path.read_text(encoding="utf-8").split("\n")[0].removeprefix("#").strip()
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(lines) + "\n"


def _reference_index() -> str:
    lines = [
        "# API reference",
        "",
        "One page for each package. Most users need only `import unmask`.",
    ]
    lines += ["", "| package | contents |", "| --- | --- |"]
    lines.append("| [unmask](unmask.md) | the public functions and classes |")
    for room in rooms():
        summary = _summary(room / "__init__.py")
        lines.append(f"| [unmask.{room.name}]({room.name}.md) | {summary} |")
    return "\n".join(lines) + "\n"


def _reference_page(title: str, modules: list[Path]) -> str:
    lines = [f"# {title}", ""]
    for module in modules:
        parts = module.relative_to(ROOT).with_suffix("").parts
        lines += [f"::: {'.'.join(parts)}", ""]
    return "\n".join(lines)


def _summary(path: Path) -> str:
    found: Any = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    return str(found or "").split("\n\n")[0].replace("\n", " ")
