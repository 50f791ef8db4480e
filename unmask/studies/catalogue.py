"""STUDIES: the explicit table of published comparisons, in small."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from unmask.config import unknown
from unmask.hiding.choose import Everything, Tokenwise
from unmask.hiding.conceal import Dropped
from unmask.hiding.denoise import Denoise
from unmask.hiding.hide import Hide
from unmask.hiding.noise import (
    DocumentRotation,
    SentencePermutation,
    TextInfilling,
    TokenDeletion,
    TokenMasking,
)
from unmask.hiding.objectives import T5, T5_OBJECTIVES, T5_RATES, T5_SPANS, Objective
from unmask.hiding.one_stack import InOneStack
from unmask.studies.study import Cell, Study, read_study

ROWS = 16
"""Of a step: many small steps teach more on a core or two than few."""
LAYERS = 2


def _tiny(*stacks: str, layers: int = LAYERS) -> tuple[str, ...]:
    """Make every stack 128 wide."""
    sizes = {"d_model": 128, "n_layers": layers, "n_heads": 2, "d_ff": 512}
    return tuple(
        f"architecture.{stack}{key}={value}" for stack in stacks for key, value in sizes.items()
    )


def _rows(length: int) -> tuple[str, ...]:
    return (f"length={length}", f"batch_tokens={ROWS * length}")


TWO_STACKS = ("encoder.", "decoder.")
TEXT = 128
"""Tokens of a row, of two stacks on the side that has more."""
TINY = (*_tiny(*TWO_STACKS), *_rows(TEXT))


def _unread(model: str) -> Cell:
    """Return the network that all are compared with: tuned, and not pretrained."""
    return Cell(name="no-pretraining", model=model, reads=0.0)


BART_NOISES = Study(
    name="bart-noises",
    asks="What should a text be read through, if it is to be said as it was?",
    paper="Lewis et al. 2020, arXiv:1910.13461, table 1",
    cells=(
        _unread("bart-mini"),
        *(
            Cell(name=name, model="bart-mini", objective=Denoise(noises))
            for name, noises in {
                "masking": (TokenMasking(Tokenwise(0.15)),),
                "deletion": (TokenDeletion(Tokenwise(0.15)),),
                "infilling": (TextInfilling(rate=0.3, mean=3.0),),
                "rotation": (DocumentRotation(),),
                "shuffling": (SentencePermutation(),),
                "infilling+shuffling": (SentencePermutation(), TextInfilling(rate=0.3, mean=3.0)),
            }.items()
        ),
    ),
    changes=TINY,
    tasks="text-to-text",
    tokens=8_000_000,
)


def _objectives(name: str, table: int, asks: str, each: Mapping[str, Objective]) -> Study:
    return Study(
        name=name,
        asks=asks,
        paper=f"Raffel et al. 2020, arXiv:1910.10683, table {table}",
        cells=(
            _unread("t5-mini"),
            *(Cell(name=n, model="t5-mini", objective=o) for n, o in each.items()),
        ),
        changes=TINY,
        tasks="text-to-text",
        tokens=8_000_000,
    )


T5_STUDIES = (
    _objectives(
        "t5-objectives", 3, "What should an encoder be shown of a text, and a decoder be asked?",
        T5_OBJECTIVES,
    ),
    _objectives(
        "t5-rates", 6, "How much of a text should be hidden?",
        {f"rate-{rate:g}": objective for rate, objective in T5_RATES.items()},
    ),
    _objectives(
        "t5-spans", 7, "How long should hidden spans be?",
        {f"span-{mean:g}": objective for mean, objective in T5_SPANS.items()},
    ),
)  # fmt: skip


_WRITE_ALL = Hide(Everything(), Dropped())
_WRITE_REST = cast("Hide", T5_OBJECTIVES["prefix_language_model"])


def _compared(kind: str) -> tuple[Cell, Cell]:
    """Return an architecture of T5's table 2 under both of its objectives.

    The stack of L layers is the unit: two of L, the same with shared layers, two of L / 2, and
    language models of L layers, which cost as much as two stacks (section 3.2.2).
    """
    one = {"lm": False, "prefix-lm": True}.get(kind)
    name = "enc-dec" if kind == "" else kind
    model = f"t5-{kind}-mini".replace("--", "-")
    if one is None:
        sizes = _tiny(*TWO_STACKS, layers=LAYERS // 2 if kind == "half" else LAYERS)
        rows = dict.fromkeys(("denoising", "language"), TEXT)
        objectives: tuple[Hide, Hide] = T5, _WRITE_REST
    else:
        # As much text as two stacks read in 128: 141 tokens hidden in spans, else 127 and two ends.
        sizes, rows = _tiny(""), {"denoising": 157, "language": 129}
        objectives = T5, _WRITE_REST if one else _WRITE_ALL
    denoising, language = (
        Cell(
            name=f"{name}+{what}",
            model=model,
            objective=objective if one is None else InOneStack(objective, whole=one),
            changes=(*sizes, *_rows(length)),
            reads=length / TEXT,
        )
        for (what, length), objective in zip(rows.items(), objectives, strict=True)
    )
    return denoising, language


T5_ARCHITECTURES = Study(
    name="t5-architectures",
    asks="One stack or two, for as many parameters or as much computing?",
    paper="Raffel et al. 2020, arXiv:1910.10683, table 2",
    cells=tuple(
        cell for kind in ("", "shared", "half", "lm", "prefix-lm") for cell in _compared(kind)
    ),
    tasks="as-text",
    tokens=8_000_000,
)
"""What a standard language model is asked of a text: all of it, from its beginning on; others, the
rest after a point (section 3.2.3)."""


SUMMARIES = Study(
    name="summaries",
    asks="What does pretraining give where a summary is to be written?",
    paper="Raffel et al. 2020, arXiv:1910.10683, table 1",
    cells=(
        *(
            Cell(name=f"{family}{name}", model=f"{family}-mini", reads=reads)
            for family in ("bart", "t5")
            for name, reads in (("-random", 0.0), ("", 1.0))
        ),
        Cell(name="t5-mass-style", model="t5-mini", objective=T5_OBJECTIVES["mass_style"]),
    ),
    changes=_rows(TEXT),
    tasks="summaries",
    tokens=8_000_000,
)
"""The minis as their cards have them, but for steps of fewer rows; T5 also with an objective of its
table 3 whose decoder says the whole text, as BART's does."""


ELMO_TAGS = Study(
    name="elmo-tags",
    asks="What do vectors in context give a tagger?",
    paper="Peters et al. 2018, arXiv:1802.05365, table 1",
    cells=(
        Cell(
            name="random-words", model="word2vec-skipgram-mini", reads=0.0,
            changes=("objective.epochs=1",),  # of these, only which words there are is taken
        ),
        Cell(name="words", model="word2vec-skipgram-mini"),
        Cell(name="random-elmo", model="elmo-mini", reads=0.0, tune="mix"),
        Cell(name="elmo", model="elmo-mini", tune="mix"),
    ),
    tasks="tagger",
    tokens=24_000_000,
    epochs=10.0,
)  # fmt: skip
"""An LSTM in both directions and a CRF read vectors of words, which are tuned with them, or a
learned mean of ELMo's layers, which are not. Its tokens are bytes, five or six of a word."""


def _stages(name: str, tasks: str, text: tuple[str, ...], reads: float) -> Study:
    """Leave out one stage of ULMFiT after the other, on a task of which few labels are known.

    Each layer has 1 / 2.6 of the rate of the layer above (section 3.2), also where it is tuned: in
    all five groups, as in the released code, where `gradual` alone would spread what is of four.
    """
    gradual, slower, whole = "gradual", "decay=0.3846", "all-stages"
    tuned = {"not-gradual": f"{gradual}:over=0,{slower}", "one-rate": f"{gradual}:decay=1"}
    return Study(
        name=name,
        asks="What does each of ULMFiT's stages give, where few labels are known?",
        paper="Howard and Ruder 2018, arXiv:1801.06146, figure 3 and tables 4 to 7",
        cells=(
            _unread("ulmfit-mini"),
            Cell(name="no-domain", model="ulmfit-mini", tune=f"{gradual}:{slower}"),
            Cell(
                name=whole, model="ulmfit-mini", begins="no-domain", text=text, reads=reads,
                changes=("schedule=SlantedTriangle", f"layer_{slower}"),
                tune=f"{gradual}:{slower}",
            ),
            *(
                Cell(name=n, model="ulmfit-mini", begins=whole, reads=0.0, tune=tune)
                for n, tune in (tuned | {"plain": "full"}).items()
            ),
        ),
        changes=(
            "architecture.d_model=128", "architecture.d_ff=256", *_rows(TEXT),
        ),
        tasks=tasks,
        tokens=8_000_000,
        rows=None,
        epochs=None,
    )  # fmt: skip


ULMFIT_STUDIES = (
    _stages("ulmfit-stages", "imdb-few", ("imdb/unsup.jsonl", "imdb/train.jsonl"), 1.0),
    _stages("ulmfit-stages-trec", "trec-few", ("classification/TREC/train.tsv",), 0.1),
)
"""All text of the task is known without its labels, as in the paper's semi-supervised setting."""

STUDIES: Mapping[str, Study] = {
    study.name: study
    for study in (BART_NOISES, *T5_STUDIES, T5_ARCHITECTURES, SUMMARIES, ELMO_TAGS, *ULMFIT_STUDIES)
}


def find_study(name: str) -> Study:
    """Return a study by name, or read the TOML file that the name is.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: there is no such study, or its file is not what it should be.
    """
    if name in STUDIES:
        return STUDIES[name]
    if name.endswith(".toml"):
        return read_study(Path(name))
    said = unknown(name, STUDIES).replace("unknown key", "unknown study", 1)
    raise ValueError(f"{said}; or name a TOML file")
