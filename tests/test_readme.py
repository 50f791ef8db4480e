"""What the README says of the catalogue and the tree is true."""

import re
from pathlib import Path

import pytest

from unmask.published.catalogue import MODELS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
HIDDEN = {
    ("masked", "next_sentence"): "words, and the next sentence",
    ("next_token",): "the future",
    ("spans",): "spans",
}


def row(name: str) -> str:
    card = MODELS[name]
    paper = card.paper
    where = f"https://arxiv.org/abs/{paper.arxiv}" if paper.arxiv else paper.url
    cite = f"[{paper.authors.split(',')[0]} {paper.year}]({where})"
    what = HIDDEN[card.objective.asks]
    if "whole-word" in name:
        what = what.replace("words", "whole words")
    return f"| `{name}` | {card.parameters:,} | {cite} | {what} |"


@pytest.mark.parametrize("name", MODELS)
def test_the_table_of_models_has_every_card(name: str) -> None:
    assert row(name) in README


def test_the_tree_names_every_folder_and_no_other() -> None:
    tree = README.split("```\nunmask/\n")[1].split("\n```")[0]
    named = set(re.findall(r"^  (\w+)/ ", tree, re.MULTILINE))
    there = {p.parent.name for p in (ROOT / "unmask").glob("*/*.py")}
    assert named == there
