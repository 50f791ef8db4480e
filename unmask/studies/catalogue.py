"""STUDIES: the explicit table of published comparisons, in small."""

from collections.abc import Mapping
from pathlib import Path

from unmask.config import unknown
from unmask.studies.study import Cell, Study, read_study

TINY = (
    "architecture.encoder.d_model=128",
    "architecture.encoder.n_layers=2",
    "architecture.encoder.n_heads=2",
    "architecture.encoder.d_ff=512",
    "architecture.decoder.d_model=128",
    "architecture.decoder.n_layers=2",
    "architecture.decoder.n_heads=2",
    "architecture.decoder.d_ff=512",
    "batch_tokens=2048",
)
"""Two layers, 128 wide, on either side; many small steps teach more on a core or two than few."""


def _noises(*each: str) -> tuple[str, ...]:
    return (f"objective.noises=[{', '.join(each)}]",)


_MASKS = '{kind="TokenMasking",choose={kind="Tokenwise",rate=0.15}}'
_DELETION = '{kind="TokenDeletion",choose={kind="Tokenwise",rate=0.15}}'
_INFILLING = '{kind="TextInfilling",rate=0.3,mean=3.0}'
_ROTATION = '{kind="DocumentRotation"}'
_SHUFFLING = '{kind="SentencePermutation"}'

BART_NOISES = Study(
    name="bart-noises",
    asks="What should a text be read through, if it is to be said as it was?",
    paper="Lewis et al. 2020, arXiv:1910.13461, table 1",
    cells=tuple(
        Cell(name=name, model="bart-mini", changes=_noises(*each))
        for name, each in {
            "masking": (_MASKS,),
            "deletion": (_DELETION,),
            "infilling": (_INFILLING,),
            "rotation": (_ROTATION,),
            "shuffling": (_SHUFFLING,),
            "infilling+shuffling": (_SHUFFLING, _INFILLING),
        }.items()
    ),
    changes=TINY,
    tasks="text-to-text",
    tokens=8_000_000,
)

STUDIES: Mapping[str, Study] = {study.name: study for study in (BART_NOISES,)}


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
