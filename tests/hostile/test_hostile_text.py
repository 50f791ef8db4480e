"""Words, labels and names that try to act: every command is run on them, every channel looked at.

A terminal must get no character that acts; Markdown, HTML and SVG are read by their parsers, which
must find no element, link or heading that came from the data.
"""

import html.parser
import io
import json
import re
import sys
import xml.etree.ElementTree as xml
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from markdown_it import MarkdownIt
from safetensors.numpy import load_file, save_file
from toy_text import corpus

from unmask.cli import main as cli
from unmask.output import is_invisible

ACTS = "\x1b[31m\x9b2J\u202e\r"
TAGS = "<img/src=x>|[evil](javascript:x)[red]`**_"
WORD = f"w{ACTS.strip()}{TAGS}"  # no white space
LABEL = f"pos{ACTS}\n# pwned\n{TAGS}"
SMALL = """
model = "{model}"
vocab_size = {size}
sequence_length = 32
batch_tokens = 64
dev_fraction = 0.1
[architecture]
d_model = 16
d_ff = 32
n_layers = 1
n_heads = 2
"""


class Kept(io.TextIOWrapper):
    """A stream that keeps what it is sent; a terminal, or a file."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def text(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode()


Run = Callable[..., str]


@pytest.fixture(scope="module")
def unmask() -> Run:
    """Run a command on a terminal; return what was shown, in which nothing may act."""

    def run(*words: object, status: int = 0) -> str:
        was = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = out, err = Kept(terminal=True), Kept(terminal=False)
        try:
            got = cli.run([str(word) for word in words])
        finally:
            sys.stdout, sys.stderr = was
        out, err = out.text(), err.text()
        assert got == status, (words, out, err)
        acting = {c for c in out + err if c not in "\n\t" and is_invisible(c)}
        assert not acting, (words, acting, out, err)
        if status == 2:
            assert len(err.splitlines()) == 1, err
        return out + err

    return run


def row(*cells: str) -> str:
    return ",".join(f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in cells) + "\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory, unmask: Run) -> Path:
    """Small models, and hostile data of each kind."""
    patch = pytest.MonkeyPatch()
    patch.setenv("TERM", "dumb")
    home = tmp_path_factory.mktemp("home") / f"ho{ACTS}<b>me"
    home.mkdir()
    (home / f"te{TAGS.replace('/', '')}xt.txt").write_text(
        corpus() + f"the {WORD} saw {WORD}. " * 9
    )
    for model, name, size in (("bert-tiny", "bert", 400), ("gpt2-mini", "gpt", 400)):
        (home / f"{name}.toml").write_text(SMALL.format(model=model, size=size))
    lines = [row(f"te\x1bxt{TAGS}", f"la\nbel{TAGS}")]
    lines += [row(f"the {LABEL} king", LABEL), row("the sea", f"neg{ACTS}{TAGS}")] * 8
    (home / "rows.csv").write_text("".join(lines), newline="")
    tagged = f"the\tO\n{WORD}\tB-{WORD}\nsaw\tO\n\nher\tO\nbrother\tB-{WORD}\n\n" * 6
    (home / "train.conll").write_text(tagged, newline="")
    words = [WORD, f"\x1b[2J{WORD}", "king", "queen", f"{WORD}\u2066", "sea", "gate", "\x07bell"]
    draw = np.random.default_rng(0)
    for name in ("a.vec", "b.vec"):
        rows = [f"{w} {' '.join(f'{x:.3f}' for x in draw.normal(size=4))}" for w in words]
        (home / name).write_text(f"{len(rows)} 4\n" + "\n".join(rows) + "\n", newline="")
    (home / "pairs.txt").write_text(f"{WORD} king 3.0\nking queen 2.0\nsea gate 1.0\n", newline="")
    (home / "words.txt").write_text(f"{WORD}\nking\nqueen\nnone{ACTS.strip()}\n", newline="")
    yield home
    patch.undo()


@pytest.fixture(scope="module")
def models(home: Path, unmask: Run) -> Path:
    """Runs of pretraining and of fine-tuning on them."""
    (text,) = home.glob("te*.txt")
    for name in ("bert", "gpt"):
        unmask("pretrain", home / f"{name}.toml", text, "--out", home / name, "--steps", 2)
    tune = ("--epochs", 1, "--batch-size", 4)
    names = ("--text", f"te\x1bxt{TAGS}", "--label", f"la\nbel{TAGS}")
    unmask(
        "finetune", home / "bert", "--task", "classify", "--train", home / "rows.csv",
        *names, "--out", home / "labels", *tune,
    )  # fmt: skip
    unmask(
        "finetune", home / "bert", "--task", "classify", "--train", home / "rows.csv",
        *names, "--out", home / "part", "--tune", "lora", *tune,
    )  # fmt: skip
    unmask(
        "finetune", home / "gpt", "--task", "tag", "--train", home / "train.conll",
        "--out", home / "tags", *tune,
    )  # fmt: skip
    return home


class Elements(html.parser.HTMLParser):
    """Names of elements, and where links go."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]


def check_page(text: str) -> None:
    """Check HTML, made of Markdown or ours."""
    found = Elements(text)
    assert not {"img", "b>me"} & set(found.names), text
    assert not any(link.startswith("javascript") for link in found.links), text
    acting = [c for c in text if is_invisible(c) and c not in "\n\t\u202f"]
    assert not acting, acting


def check_markdown(text: str) -> None:
    start = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    if start:
        front = yaml.safe_load(start[1])
        assert set(front) == {"library_name", "tags", "pipeline_tag"}
        assert front["tags"] == ["unmask"]
        text = text[start.end() :]
    reader = MarkdownIt("gfm-like", {"linkify": False})
    made = reader.render(text.replace("![Scores of each cell", "[Scores of each cell"))
    check_page(made)
    assert made.count("<h1>") == 1
    assert "pwned</h1>" not in made
    assert made.count("<pre>") <= 2


def check_files(folder: Path) -> None:
    """Check all pages in a folder."""
    seen = 0
    for path in folder.rglob("*"):
        if path.suffix in (".md", ".html", ".svg"):
            seen += 1
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".md":
                check_markdown(text)
            elif path.suffix == ".html":
                check_page(text)
            else:
                names = {one.tag.rpartition("}")[2] for one in xml.fromstring(text).iter()}
                assert names <= {"svg", "title", "rect", "path", "circle", "text", "g"}
    assert seen


@pytest.mark.thorough
def test_text_of_runs_cannot_control_the_terminal(models: Path, unmask: Run) -> None:
    for name in ("bert", "gpt", "labels", "part", "tags"):
        unmask("report", models / name)
        unmask("show", models / name)
        check_files(models / name)
    assert "pwned" in (models / "labels" / "README.md").read_text(encoding="utf-8")


def test_answers_of_models_cannot_control_the_terminal(models: Path, unmask: Run) -> None:
    text = f"the [MASK] {WORD} [MASK] {ACTS}"
    unmask("hide", models / "bert", text)
    unmask("hide", models / "bert", text, "--json")
    unmask("fill", models / "bert", text)
    unmask("fill", models / "bert", text, "--json")
    for name in ("labels", "part"):
        unmask("predict", models / name, text)
        unmask("evaluate", models / name, "--data", models / "rows.csv")
        unmask("predict", models / name, "--input", models / "rows.csv")
    unmask("predict", models / "tags", text)
    unmask("evaluate", models / "tags", "--data", models / "train.conll")
    unmask("embed", models / "bert", text)
    for how in ((), ("--json",), ("--n-best", 2, "--beams", 2)):
        unmask("generate", models / "gpt", "--prompt", text, "--max-new-tokens", 4, *how)
    unmask("generate", models / "gpt", "--prompt", text, "--choice", ACTS, "--choice", "b")
    (file,) = models.glob("te*.txt")
    unmask("evaluate", models / "bert", file)
    unmask("prepare", file, "--out", models / "prepared", "--tokenizer", models / "bert")
    unmask("neighbors", models / "bert", "--sentences", file, f"the {WORD}")
    unmask("convert", models / "labels", models / "converted")
    check_files(models / "converted")


def test_word_vector_text_cannot_control_the_terminal(home: Path, unmask: Run) -> None:
    a, b = home / "a.vec", home / "b.vec"
    unmask("show", a)
    unmask("neighbors", a, "king", "--top-k", 8)
    unmask("neighbors", a, "king", "--json")
    unmask("evaluate", a, "--data", home / "pairs.txt")
    unmask("picture", a, "--words", home / "words.txt", "--out", home / "words.svg")
    unmask("picture", a, "--out", home / "all.svg")
    unmask(
        "align", a, b, "--identical", "--semantic-shift", 3, "--csls-k", 2, "--out", home / "both"
    )
    unmask("convert", a, home / "c.bin")
    check_files(home)


def test_names_in_published_folder_cannot_control_the_terminal(models: Path, unmask: Run) -> None:
    """Names in config.json, in the tokenizer and of weights are a stranger's, too."""
    folder = models / f"pub{TAGS.replace('/', '')}"
    unmask("convert", models / "labels", folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["id2label"] = {"0": LABEL, "1": WORD}
    config["label2id"] = {LABEL: 0, WORD: 1}
    path.write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {LABEL: np.zeros(2, np.float32)}, folder / "model.safetensors")
    shown = unmask("predict", folder, "the king")
    assert "unused weights: " in shown
    unmask("show", folder)
    unmask("convert", folder, models / "again")
    check_files(models / "again")
    for key in ("model_type", "hidden_act", "num_hidden_layers"):
        path.write_text(json.dumps(config | {key: LABEL}))
        unmask("show", folder, status=2)
    path.write_text(json.dumps(config | {"vocab_size": -1, LABEL: LABEL}))
    unmask("show", folder, status=2)


def test_error_messages_cannot_control_the_terminal(models: Path, unmask: Run) -> None:
    """Messages about mistakes contain names of files, columns, labels and words of the data."""
    nowhere = models / f"no{ACTS}where"
    for words in (
        ("show", nowhere), ("fill", models / "bert", ACTS), ("show", f"be{ACTS}rt"),
        ("hide", nowhere, "x"), ("prepare", nowhere, "--out", nowhere),
        ("pretrain", nowhere), ("pretrain", "bert-tiny", nowhere),
        ("pretrain", models / "bert.toml", nowhere, "--set", f"{ACTS}={ACTS}"),
        ("finetune", models / "bert", "--task", "classify", "--train", models / "rows.csv"),
        ("finetune", models / "bert", "--task", LABEL, "--train", nowhere),
        ("finetune", models / "bert", "--tasks", nowhere), ("study", nowhere),
        ("evaluate", models / "labels", "--data", models / "train.conll"),
        ("evaluate", models / "bert", "--task", f"{ACTS}", "--data", models),
        ("predict", models / "bert", ACTS), ("generate", models / "bert", "--prompt", ACTS),
        ("embed", models / "bert", "x", "--pooling", ACTS), ("convert", nowhere, nowhere),
        ("neighbors", models / "a.vec", ACTS), ("picture", models / "a.vec", ACTS),
        ("align", models / "a.vec", nowhere), ("report", nowhere), (f"{ACTS}",),
        ("show", "bert-tiny", f"--{ACTS}"), ("models", "--family", ACTS),
    ):  # fmt: skip
        unmask(*words, status=2)


@pytest.mark.slow
def test_text_of_suites_cannot_control_the_terminal(models: Path, unmask: Run) -> None:
    suite = models / "suite.toml"
    text, label = json.dumps(f"te\x1bxt{TAGS}"), json.dumps(f"la\nbel{TAGS}")
    benchmarks = "".join(
        f'[[benchmarks]]\nname = {json.dumps(name)}\ntask = "classify"\nfiles = [{{train = '
        f"{json.dumps(file)}, text = [{text}], label = {label}}}]\n"
        for name, file in ((f"x{TAGS}", "rows.csv"), (f"y{ACTS}", "few.csv"))
    )
    suite.write_text(f"name = {json.dumps(LABEL)}\n{benchmarks}")
    (models / "few.csv").write_text(row(f"te\x1bxt{TAGS}", LABEL), newline="")
    unmask(
        "finetune", models / "bert", "--tasks", suite, "--data", models, "--out", models / "suite",
        "--epochs", 1,
    )  # fmt: skip
    check_files(models / "suite")
