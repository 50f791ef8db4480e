"""What text from elsewhere may do on each way out: nothing."""

import ast
import html
import io
import json
import logging
import re
import time
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask import output
from unmask.cli.errors import show_warnings
from unmask.output import ProgressLine
from unmask.reports.markup import escape_html, tag

ROOT = Path(__file__).parents[1] / "unmask"
HOSTILE = (
    "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b2J", "back\x08\x08", "over\rwritten", "a\nb",
    "\u202eevil\u202c", "\u2066x\u2069", "\u200e\u200f\u061c", "[red]x[/red]", ":smile:", "\0",
    "\ud800", "\u2028x\u2029", "\U000e0041", "\ufeff", "\u00ad",
)  # fmt: skip


class Screen(io.StringIO):
    """A terminal that keeps what it is sent."""

    def isatty(self) -> bool:
        return True


@given(st.text() | st.sampled_from(HOSTILE))
def test_safe_line_neutralizes_control_characters_and_stays_one_line(text: str) -> None:
    shown = output.safe_line(text)
    assert not any(map(output.is_invisible, shown))
    assert len(shown.splitlines()) <= 1
    assert output.safe_line(shown) == shown
    shown = output.safe_lines(text)
    assert not any(output.is_invisible(c) for c in shown if c not in "\n\t")
    assert (shown.count("\n"), shown.count("\t")) == (text.count("\n"), text.count("\t"))


@pytest.mark.parametrize(
    "text",
    [
        "می\u200cخواهم",
        "क्\u200dष",
        "👩\u200d👧",
        "a\u00a0b",
        "中\u3000文",
        "שלום",
        "e\u0301",
        "\u06dd١",
    ],
)
def test_printable_text_is_unchanged(text: str) -> None:
    assert output.safe_line(text) == text


@given(st.text() | st.sampled_from(HOSTILE))
def test_json_escapes_invisible_characters(text: str) -> None:
    written = output.to_safe_json({"text": text})
    assert json.loads(written) == {"text": text}
    assert not any(map(output.is_invisible, written))


@given(st.text() | st.sampled_from(HOSTILE))
def test_python_literal_escapes_invisible_characters(text: str) -> None:
    written = output.python_literal(text)
    assert ast.literal_eval(written) == text
    assert not any(map(output.is_invisible, written))


@given(st.lists(st.text(), min_size=2, max_size=4))
def test_table_cells_stay_separate(cells: list[str]) -> None:
    row = "\t".join(map(output.escape_tsv, cells))
    assert row.count("\t") == len(cells) - 1
    assert not set(row) & {"\n", "\r"}
    undone = [cell.replace("\\\\", "\0").replace("\\t", "\t") for cell in row.split("\t")]
    undone = [cell.replace("\\n", "\n").replace("\\r", "\r") for cell in undone]
    assert [c.replace("\0", "\\") for c in undone] == [c.replace("\0", "\\") for c in cells]


MARKUP = (
    "<script>alert(1)</script>", "# heading", "\n# heading", "\n\n---\nkey: value\n---\n",
    "- item", "1. item", "> quote", "    code", "```\ncode", "`code`", "``code``", "*a*", "_a_",
    "__a__", "~~a~~", "[a](http://b.c)", "![a](b)", "<http://b.c>", "http://b.c", "www.b.c",
    "a@b.c", "a | b", "&lt;", "&#60;", "$x$", "a\\", "\\<b>", "=== ", "+ item", "* item", "<!-- ",
    "[^1]", ":smile:", ":+1:", "a  \nb", "-", "---", "-\titem", "2)", "+", "-1 a", "25.0",
)  # fmt: skip


def rendered(text: str) -> str:
    """Return CommonMark's text of Markdown whose markup was escaped; remaining markup fails."""
    shown, rest = "", text
    while rest:
        if rest[0] == "\\" and len(rest) > 1 and not (rest[1].isalnum() or rest[1].isspace()):
            shown, rest = shown + rest[1], rest[2:]
            continue
        assert rest[0] not in "`*[]<|~$", rest
        shown, rest = shown + rest[0], rest[1:]
    return shown


@pytest.mark.parametrize("text", MARKUP)
def test_markdown_is_escaped(text: str) -> None:
    written = output.escape_markdown(text)
    assert rendered(written) == output.safe_line(text).lstrip(" ")
    assert not re.match(r"[#>=* ]|[+-](?!\d)|\d+[.)](?!\d)", written)
    assert not re.search(r"(?<!\\)(://|&[l#])|www\.", written)
    assert "\n" not in written


@given(st.text() | st.sampled_from(MARKUP))
def test_escaped_markdown_renders_as_the_text(text: str) -> None:
    assert rendered(output.escape_markdown(text)) == output.safe_line(text).lstrip(" ")


def test_markdown_parser_renders_the_text() -> None:
    markdown_it = pytest.importorskip("markdown_it", reason="needs markdown-it-py")
    reader = markdown_it.MarkdownIt("gfm-like", {"linkify": False})
    for text in (*MARKUP, *HOSTILE):
        for start, name in (("", "p"), ("- ", "li"), ("# ", "h1")):
            made = reader.render(f"{start}{output.escape_markdown(text)} end\n")
            found = made.replace("<p>", "").replace("</p>", "").replace("<ul>", "")
            assert html.escape(output.safe_line(text).strip(), quote=False) in found.replace(
                "&quot;", '"'
            ), text
            assert made.count("<") <= 4, (text, made, name)


@given(st.text() | st.sampled_from(MARKUP))
def test_code_span_ends_correctly(text: str) -> None:
    span = output.markdown_code(text)
    fence = len(span) - len(span.lstrip("`"))
    inner = span[fence:-fence]
    assert "`" * fence not in inner
    assert output.safe_line(text) in inner


def test_table_rows_keep_their_columns() -> None:
    rows = output.markdown_table(["a", "b|c"], [["x\ny", "<b>|"], ["\\|", "z"]])
    assert [row.replace("\\\\", "").replace("\\|", "").count("|") for row in rows] == [3, 3, 3, 3]


@given(st.text() | st.sampled_from(HOSTILE) | st.sampled_from(MARKUP))
def test_html_and_svg_contain_text_only(text: str) -> None:
    tree = xml.fromstring(tag("svg", tag("text", text, id=text)).source)
    (child,) = tree
    assert not len(child)
    assert html.unescape(escape_html(text)) == child.text or not text or "\r" in text
    assert not set(child.text or "") & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@pytest.mark.parametrize("text", HOSTILE)
def test_warning_is_one_safe_line(text: str, capsys) -> None:
    screen, file = Screen(), io.StringIO()
    output.print_line(text, screen)
    output.print_line(text, file)
    assert screen.getvalue() == file.getvalue() == output.safe_line(text) + "\n"
    shown = output.overwrite_line(text, screen)
    assert screen.getvalue().endswith("\r" + output.safe_line(text))
    assert shown == len(output.safe_line(text))
    output.print_table(text, [text], [[text], [text]], footer=[text])
    out = capsys.readouterr().out
    assert not any(output.is_invisible(c) for c in out if c != "\n")
    assert output.safe_line(text) in out
    record = logging.LogRecord("unmask", logging.WARNING, "", 1, "%s", (text,), None)
    assert output.WarningFormatter().format(record) == output.safe_line(text)


def test_piped_output_is_unaltered_and_terminal_output_is_safe(monkeypatch) -> None:
    for text in HOSTILE:
        file, screen = io.StringIO(), Screen()
        monkeypatch.setattr("sys.stdout", file)
        output.print_data(text)
        monkeypatch.setattr("sys.stdout", screen)
        output.print_data(text)
        assert file.getvalue() == text + "\n"
        assert screen.getvalue() == output.safe_lines(text) + "\n"


def test_all_output_goes_through_the_output_module() -> None:
    """No file prints, writes to a stream or opens a console of rich's by itself."""
    found: list[str] = []
    for path in sorted(ROOT.rglob("*.py")):
        if path.name == "output.py" or path == ROOT / "text" / "processes.py":
            continue  # workers write to a pipe between processes
        text = path.read_text(encoding="utf-8")
        if not re.search(r"\b(print|input|secho|echo|print_\w+|write|writelines)\(|rich", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and (result := _shows(node)):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {result}")
            if isinstance(node, ast.ImportFrom) and (node.module or "") in (
                "rich", "rich.console", "rich.table", "rich.progress", "rich.markup",
            ):  # fmt: skip
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: imports {node.module}")
    assert found == []


SHOWING = ("echo", "secho", "print_exc", "print_exception", "write", "writelines", "print")


def _shows(node: ast.Call) -> str | None:
    """Name what shows something to a person, if a call does."""
    if isinstance(node.func, ast.Name):
        return node.func.id if node.func.id in ("print", "input") else None
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in SHOWING:
        return None
    result = ast.unparse(node.func)
    owner, _, what = result.rpartition(".")
    if what in SHOWING[:4]:
        return result
    streams = ("stdout", "stderr", "terminal", "stream", "_terminal", "_stream")
    return result if owner.rpartition(".")[2] in streams else None


def test_progress_line_is_overwritten_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    terminal, file = Screen(), io.StringIO()
    lines = [ProgressLine(terminal), ProgressLine(file), ProgressLine(None)]
    for n in range(81):  # ten seconds
        now = n / 8
        for line in lines:
            line.show(lambda n=n, line=line: f"{n:,} tokens{line.rate(n)}")
    assert file.getvalue() == "80 tokens, 8 a second\n"
    shown = terminal.getvalue().split("\r")
    assert len(shown) == 41
    assert shown[-1] == "80 tokens, 8 a second"
    assert shown[1] == "2 tokens"
    lines[0].clear()
    assert terminal.getvalue().endswith("\r" + " " * len(shown[-1]) + "\r")
    lines[0].show(lambda: "done", last=True)
    lines[0].finish()
    assert terminal.getvalue().endswith("\rdone\n")


def test_warnings_are_shown_once_whatever_a_library_logs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own
    with show_warnings():
        logging.info("rouge_score says this by absl, and configures the root logger")
        logging.getLogger("unmask.tasks").warning("2 rows are odd")
    assert capsys.readouterr().err == "2 rows are odd\n"
    assert logging.getLogger().handlers == []
