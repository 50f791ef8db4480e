"""AlignOptions: the options of `align`, in Python and on the command line."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from unmask.options import JobOptions, flag

if TYPE_CHECKING:
    from unmask.output import OutputStream
    from unmask.word_vectors.keyed_vectors import KeyedVectors

MapName = Literal["procrustes", "least-squares"]
NormalizationName = Literal["unit-center-unit", "unit", "none"]
SelfLearningName = Literal["none", "nearest", "csls", "stochastic"]


@dataclass(frozen=True)
class AlignOptions(JobOptions):
    """The spaces to align, the seed dictionary, the method and the test dictionary."""

    source: str | Path | KeyedVectors = field(metadata=flag(metavar="SOURCE", is_argument=True))
    """Source word vectors; with `semantic_shift`, the older ones."""
    target: str | Path | KeyedVectors = field(metadata=flag(metavar="TARGET", is_argument=True))
    """Target word vectors."""
    _: KW_ONLY
    dictionary: str | Path | None = field(default=None, metadata=flag(metavar="FILE"))
    """Seed dictionary: one pair of words per line."""
    seed_pairs: int | None = field(default=None, metadata=flag(shown_default="all"))
    """Number of seed pairs, the first of the dictionary; without `test` the others are the test
    set."""
    numerals: bool = False
    """Use numerals in both vocabularies as the seed dictionary."""
    identical: bool = False
    """Use all identical words as the seed dictionary; implied by `semantic_shift`."""
    anchors: str | Path | None = field(default=None, metadata=flag(metavar="FILE"))
    """File with the identical words to use as the seed dictionary, one per line."""
    lowercase: bool = False
    """Convert dictionaries to lower case."""
    test: str | Path | None = field(default=None, metadata=flag(metavar="FILE"))
    """Test dictionary: one pair of words per line; a word may have several translations."""
    map: MapName = "procrustes"
    """Linear map: procrustes (orthogonal) or least-squares (unconstrained)."""
    normalize: NormalizationName = "unit-center-unit"
    """Normalization of the vectors. unit-center-unit: unit length, mean centering, unit length
    again."""
    self_learning: SelfLearningName | None = field(
        default=None,
        metadata=flag(shown_default="csls with numerals or fewer pairs than dimensions, else none"),
    )
    """Induction of further dictionary pairs by the map itself: nearest neighbors (Artetxe et al.
    2017), CSLS in both directions, or stochastic (Artetxe et al. 2018)."""
    refine: int = 0
    """Number of Procrustes refinement iterations on mutual CSLS nearest neighbors."""
    vocabulary_cutoff: int | None = field(
        default=None, metadata=flag(shown_default="20000, 15000 and 10000")
    )
    """Number of most frequent words used in self-learning, refinement and `semantic_shift`."""
    csls_k: int = field(default=10, metadata=flag(metavar="K"))
    """Number k of neighbors in CSLS."""
    semantic_shift: int | None = None
    """Number of words with the largest semantic shift to list."""
    min_count: int | None = None
    """Minimum corpus frequency of listed words, where the files contain counts."""
    limit: int | None = field(default=None, metadata=flag(shown_default="all"))
    """Number of word vectors to read from the start of each file."""
    seed: int = 0
    """Random seed of stochastic self-learning."""
    out: str | Path | None = field(default=None, metadata=flag(metavar="FOLDER"))
    """Output folder for the aligned vectors, a new one."""
    terminal: OutputStream | None = None
    """Stream for progress; None: it is not shown."""
