"""What the README says of the catalogue and the tree is true."""

import re
from pathlib import Path

import pytest

from unmask.objectives import published
from unmask.objectives.corrupt import ReplaceSpans
from unmask.objectives.denoising.denoise import DenoisingObjective
from unmask.objectives.denoising.single_stack import SingleStackSeq2Seq
from unmask.objectives.objective import AnyObjective, Objective
from unmask.objectives.published import components_of
from unmask.word_vectors.train.glove import GloVe
from unmask.word_vectors.train.lsa import LSA
from unmask.word_vectors.train.svd import SVD
from unmask.word_vectors.train.trainer import WORD_VECTOR_METHODS
from unmask.word_vectors.train.word2vec import CBOW, SkipGram
from unmask.zoo.catalogue import MODELS
from unmask.zoo.preset import Paper, Published

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
HIDDEN = {
    ("masked", "next_sentence"): "words, and the next sentence",
    ("masked", "sentence_order"): "runs of words, and the order of two parts",
    ("masked",): "words",
    ("characters",): "characters of words, in turn",
    ("subwords",): "subwords of what is read in characters",
    ("next_token",): "the future",
    ("both_sides",): "words, from one that reads forward and one that reads backward",
    ("permuted",): "words, in a random order",
    ("sentences_said",): "the sentences before and after each, word by word",
    ("sentences_found",): "which of many sentences stand before and after each",
}
DENOISED = {
    published.MASS: "half of the text, in one run",
    published.T5_OBJECTIVES["prefix_language_model"]: "the end, of which the beginning is read",
    published.UL2: "spans, short and long, few and many, and the end; the model is told which",
}
MIXED = {
    ("both_ways", "source_target", "forward", "backward"): (
        "words, read in both directions, in one, and from source to target"
    ),
    ("masked", "forward"): "words, one place before them, and the future",
}
BESIDES = {
    "replaced": "words; which of those that a generator puts there are wrong",
    "corrected": "words; what stood where a generator put others, and whose part a crop is",
    "boundary": "spans of words, also from their two ends",
}
OF_VECTORS = {
    SkipGram: "the neighbors of a word",
    CBOW: "a word, told by its neighbors",
    GloVe: "how often two words stand together",
    SVD: "how much more often than by chance two words stand together",
    LSA: "which documents a word is in",
}
_PAIRS = "nothing: it learns to say one text for another"
OF_PAIRS = {"transformer": _PAIRS, "evolved-transformer": _PAIRS}


def denoised(objective: AnyObjective) -> str | None:
    """What an encoder does not see, where a decoder says it."""
    if isinstance(objective, SingleStackSeq2Seq):
        return denoised(objective.objective)
    if isinstance(objective, Objective) and isinstance(objective.corrupt, ReplaceSpans):
        return "spans"
    if isinstance(objective, DenoisingObjective) and not objective.noises:
        return "nothing: all of the text is asked, once it is read"
    if isinstance(objective, DenoisingObjective):
        return "spans, and the order of sentences; all of the text is asked"
    return DENOISED.get(objective)


def hidden(card: Published) -> str:
    if isinstance(card.objective, WORD_VECTOR_METHODS):
        return OF_VECTORS[type(card.objective)]
    if card.family in OF_PAIRS:
        return OF_PAIRS[card.family]
    what = next((said for head, said in BESIDES.items() if head in card.heads), None)
    what = denoised(card.objective) if what is None else what
    mixed = tuple(components_of(card.objective))
    what = (MIXED[mixed] if mixed else HIDDEN[card.objective.loss_terms]) if what is None else what
    return what.replace("words", "whole words") if "whole-word" in card.name else what


def millions(n: int) -> str:
    return f"{n / 1e9:.1f} G" if n >= 1e9 else f"{n / 1e6:.1f} M" if n < 1e7 else f"{n / 1e6:.0f} M"


def rows() -> list[str]:
    """One row for the cards of a paper that hide alike."""
    groups: dict[tuple[Paper, str], list[Published]] = {}
    for card in MODELS.values():
        groups.setdefault((card.paper, hidden(card)), []).append(card)
    made = list[str]()
    for (paper, what), cards in groups.items():
        where = f"https://arxiv.org/abs/{paper.arxiv}" if paper.arxiv else paper.url
        cite = f"[{paper.authors.split(',')[0]} {paper.year}]({where})"
        names = ", ".join(f"`{card.name}` {millions(card.n_parameters)}" for card in cards)
        made.append(f"| {names} | {cite} | {what} |")
    return made


@pytest.mark.parametrize("row", rows())
def test_the_table_of_models_has_every_card(row: str) -> None:
    assert row in README


def test_the_tree_names_every_folder_and_no_other() -> None:
    tree = README.split("```\nunmask/\n")[1].split("\n```")[0]
    named = set(re.findall(r"^  (\w+)/ ", tree, re.MULTILINE))
    there = {p.parent.name for p in (ROOT / "unmask").glob("*/*.py")}
    assert named == there
