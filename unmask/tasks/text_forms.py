"""How a task is put in text: a source made of columns, and what its answers are read as.

`FORMS` are those of Raffel et al. 2020, arXiv:1910.10683, appendix D. The names of labels and the
metrics are those of the released code (`t5/data/glue_utils.py`), as is the order of the columns.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from unmask.config import from_dict
from unmask.tasks.metrics.classification import classification_metrics
from unmask.tasks.metrics.regression import pearson, spearman
from unmask.tasks.readers import column_values
from unmask.text.records import listed

_COLUMN = re.compile(r"\{([^{}]+)\}")

End = Literal["start", "end"]


@dataclass(frozen=True, kw_only=True)
class Form:
    """How a task is put in text, and read again."""

    source: str | None = None
    """What is read: "sst2 sentence: {sentence}", with the names of columns; of one that holds a
    list also one of its members: "{answers[0]}". None: the column, several with their names."""
    target: str | None = None
    """The column of what is said. None: found by its customary names."""
    labels: tuple[str, ...] = ()
    """All answers that there are, in their order, if these are labels; a file may number them from
    0. An answer that is none of them is wrong (section 2.4)."""
    step: float | None = None
    """Answers are numbers, learned as the nearest of those so far apart: 0.2 makes 2.57 "2.6"
    (section 2.4). What is said and is no number is wrong."""
    between: tuple[float, float] | None = None
    """The least and the greatest number; any other is wrong too. None: any."""
    metric: str | None = None
    """By which the task is judged. None: accuracy of labels, Pearson's correlation of numbers, the
    F1 of words of other texts."""
    keep: End | None = None
    """What stays of a text that is too long. "end": of lines the last ones, of a dialog the newest
    turns. None: "end" where a column is a list of turns, otherwise "start"."""

    def __post_init__(self) -> None:
        """Check what the types do not say."""
        if self.source is not None and (
            "{" in (rest := _COLUMN.sub("", self.source)) or "}" in rest
        ):
            raise ValueError(f"source has a brace that is not around a column: {self.source!r}")
        if self.source is not None and not self.columns:
            raise ValueError(f"source names no column, as in {{sentence}}: {self.source!r}")
        if self.target == "":
            raise ValueError("target must be the name of a column, got ''")
        if self.labels and (len(set(self.labels)) < max(len(self.labels), 2)):
            raise ValueError(f"labels must be two or more that differ, got {listed(self.labels)}")
        if self.step is not None and not 0 < self.step < math.inf:
            raise ValueError(f"step must be above 0, got {self.step}")
        if self.labels and self.step is not None:
            raise ValueError("answers are labels or numbers: give labels or step")
        if self.between is not None and (
            self.step is None or not self.between[0] < self.between[1]
        ):
            raise ValueError(
                "between must be the least and the greatest of numbers, which have a step, got "
                f"{list(self.between)}"
            )
        if self.metric is not None and self.metric not in self.metrics:
            raise ValueError(
                f"metric must be one of {', '.join(self.metrics)} here, got {self.metric!r}"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the source names, each once."""
        return tuple(dict.fromkeys(_COLUMN.findall(self.source or "")))

    @property
    def closed(self) -> bool:
        """Answers are labels or numbers."""
        return bool(self.labels) or self.step is not None

    @property
    def customary(self) -> Sequence[str]:
        """Customary names of the column of labels or numbers; of other targets none."""
        return column_values.CLASSES if self.labels else column_values.NUMBERS if self.step else ()

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that fit, the customary one first."""
        if self.step is not None:
            return ("pearson", "spearman")
        if self.labels:
            f1 = ("f1",) if len(self.labels) == 2 else ()
            return ("accuracy", "macro_f1", *f1, "matthews")
        return ("answer_f1", "exact_match", *TEXT_LIBRARIES)

    def rendered(self, texts: Sequence[str]) -> str:
        """Put texts in the places of their columns; there must be a source."""
        by_name = dict(zip(self.columns, texts, strict=True))
        return _COLUMN.sub(lambda found: by_name[found[1]], self.source or "")

    def target_of(self, value: object, column: str, where: str) -> tuple[str, ...]:
        """Read a label or number: what is learned, and, of a number, what it was.

        Raises:
            ValueError: it is none of those that there are, with file and line.
        """
        if self.step is None:
            return (column_values.label(value, column, where),)
        number = column_values.number(value, column, where)
        if self.between is not None and not self.between[0] <= number <= self.between[1]:
            low, high = self.between
            raise ValueError(f"{where}: {column!r} must be from {low:g} to {high:g}, got {number}")
        return tuple(dict.fromkeys((rounded(number, self.step), repr(number))))

    def read(self, said: str) -> str | float | None:
        """Read an answer as a label or number; None if it is none, which is wrong."""
        said = said.strip()
        if self.labels:
            return said if said in self.labels else None
        try:
            number = float(said)
        except ValueError:
            return None
        low, high = self.between or (-column_values.LARGEST, column_values.LARGEST)
        return number if low <= number <= high else None

    def compute_metrics(
        self, truth: Sequence[Sequence[str]], said: Sequence[str]
    ) -> dict[str, float]:
        """Compute the figures of labels or numbers, a wrong answer being what hurts.

        Of two labels, what is neither counts as the other one (`f1_score_with_invalid` of the
        released code); of more as a class of its own. What is no number counts as one below the
        least by a fifth of their range: of 0 to 5 as -1, as in the released code.
        """
        if self.labels:
            return self._of_labels([one[0] for one in truth], said)
        numbers = np.array([float(one[-1]) for one in truth])
        low, high = self.between or (numbers.min(initial=np.inf), numbers.max(initial=-np.inf))
        found = [self.read(text) for text in said]
        wrong = low - (high - low) / 5
        read = np.array([wrong if one is None else one for one in found], np.float64)
        return {
            "pearson": pearson(numbers, read),
            "spearman": spearman(numbers, read),
            "no_number": found.count(None) / max(len(found), 1),
        }

    def _of_labels(self, truth: Sequence[str], said: Sequence[str]) -> dict[str, float]:
        place = {label: i for i, label in enumerate(self.labels)}
        right = np.array([place[label] for label in truth], np.int64)
        read = [self.read(text) for text in said]
        none = np.array([one is None for one in read], bool)
        told = np.array([place.get(str(one), -1) for one in read], np.int64)
        if len(self.labels) == 2:
            told = np.where(none, 1 - right, told)
        return classification_metrics(right, told, len(self.labels)) | {
            "no_label": float(none.mean()) if len(none) else 0.0
        }


TEXT_LIBRARIES: Mapping[str, str] = {
    "rougeL": "rouge_score", "rouge1": "rouge_score", "rouge2": "rouge_score",
    "bleu": "sacrebleu", "chrf": "sacrebleu",
}  # fmt: skip
"""Metrics of texts that a library computes, and which; others need none."""


def rounded(number: float, step: float) -> str:
    """Write the nearest multiple of a step, ties to the even one, with no more digits than it has.

    The number counts as it is written: 2.5 is between 2.4 and 2.6.
    """
    exact, power = Fraction(repr(step)), Decimal(repr(step)).normalize().as_tuple().exponent
    digits = max(-int(power), 0)
    return f"{float(round(Fraction(repr(float(number))) / exact) * exact):.{digits}f}"


def form_of(said: "str | Form | None", where: str) -> Form:
    """Return a form by its name in `FORMS`; one that is given is itself, none an empty one.

    Raises:
        ValueError: there is none of this name.
    """
    if isinstance(said, str):
        if said not in FORMS:
            raise ValueError(f"{where} must be one of {', '.join(FORMS)}, or a table, got {said!r}")
        return FORMS[said]
    return said or Form()


def plain_form(said: Any, where: str) -> Form:
    """Read a form from plain data: its name, a table or nothing.

    Raises:
        ValueError: it is none of these, or a key of the table is not what it should be.
    """
    return form_of(
        said if said is None or isinstance(said, str) else from_dict(Form, said, where), where
    )


_ENTAILED = ("entailment", "not_entailment")
_STSB = Form(
    source="stsb sentence1: {sentence1} sentence2: {sentence2}", step=0.2, between=(0.0, 5.0),
    metric="pearson",
)  # fmt: skip
_PARAPHRASE = Form(
    source="mrpc sentence1: {sentence1} sentence2: {sentence2}",
    labels=("not_equivalent", "equivalent"),
    metric="f1",
)
FORMS: Mapping[str, Form] = {
    "cola": Form(
        source="cola sentence: {sentence}", labels=("unacceptable", "acceptable"),
        metric="matthews",
    ),
    "sst2": Form(source="sst2 sentence: {sentence}", labels=("negative", "positive")),
    "mrpc": _PARAPHRASE,
    "qqp": replace(
        _PARAPHRASE, source="qqp question1: {question1} question2: {question2}",
        labels=("not_duplicate", "duplicate"),
    ),
    "stsb": _STSB,
    "mnli": Form(
        source="mnli hypothesis: {hypothesis} premise: {premise}",
        labels=("entailment", "neutral", "contradiction"),
    ),
    "qnli": Form(source="qnli question: {question} sentence: {sentence}", labels=_ENTAILED),
    "rte": Form(source="rte sentence1: {sentence1} sentence2: {sentence2}", labels=_ENTAILED),
    "cb": Form(
        source="cb hypothesis: {hypothesis} premise: {premise}",
        labels=("entailment", "contradiction", "neutral"), metric="macro_f1",
    ),
    "boolq": Form(
        source="boolq passage: {passage} question: {question}", labels=("False", "True"),
    ),
    "squad": Form(source="question: {question} context: {context}"),
    "summarize": Form(source="summarize: {document}", metric="rougeL"),
    "en_de": Form(source="translate English to German: {source}", metric="bleu"),
    "de_en": Form(source="translate German to English: {source}", metric="bleu"),
    "en_fr": Form(source="translate English to French: {source}", metric="bleu"),
    "en_ro": Form(source="translate English to Romanian: {source}", metric="bleu"),
}  # fmt: skip
"""The paper's own, by the names that its sources begin with. STS-B's scores begin at 0, whatever
section 2.4 says. What is not here: tasks that read marks within a text (WSC, WiC, ReCoRD), or whose
targets could not be checked (COPA, MultiRC). German to English is not among its tasks."""
