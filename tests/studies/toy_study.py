"""A text, a suite of one toy task and its file, in a folder."""

from pathlib import Path

from toy_text import corpus

TASKS = """
name = "toys"
[[benchmarks]]
name = "Good or bad"
task = "classify"
files = [{train = "train.tsv", dev = "train.tsv", text = ["text"], label = "label"}]
"""


def write_tasks(folder: Path) -> None:
    """Write text.txt, train.tsv and the suite toys.toml."""
    (folder / "text.txt").write_text(corpus(60).replace("\n", "\n\n"), encoding="utf-8")
    lines = [f"{text}\t{'bad' if i % 2 else 'good'}" for i, text in enumerate(["a b", "c d"] * 10)]
    (folder / "train.tsv").write_text("text\tlabel\n" + "\n".join(lines), encoding="utf-8")
    (folder / "toys.toml").write_text(TASKS, encoding="utf-8")
