"""How a task is put in text: a source made of columns, and what its answers are read as.

`TEXT_TEMPLATES` are those of Raffel et al. 2020, arXiv:1910.10683, appendix D. The names of labels
and the metrics are those of the released code (`t5/data/glue_utils.py`), as is the order of the
columns.
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
from unmask.tasks.readers import columns
from unmask.text.records import format_names

_COLUMN_PATTERN = re.compile(r"\{([^{}]+)\}")

KeptEnd = Literal["start", "end"]


@dataclass(frozen=True, kw_only=True)
class TextTemplate:
    """How a task is put in text, and read again."""

    source: str | None = None
    """What is read: "sst2 sentence: {sentence}", with the names of columns; of one that holds a
    list also one of its members: "{answers[0]}". None: the column, several with their names."""
    target: str | None = None
    """The column of what is said. None: found by its customary names."""
    labels: tuple[str, ...] = ()
    """All answers that there are, in their order, if these are labels; a file may number them from
    0. An answer that is none of them is wrong (section 2.4)."""
    number_step: float | None = None
    """Answers are numbers, learned as the nearest of those so far apart: 0.2 makes 2.57 "2.6"
    (section 2.4). What is said and is no number is wrong."""
    number_range: tuple[float, float] | None = None
    """The least and the greatest number; any other is wrong too. None: any."""
    metric: str | None = None
    """By which the task is judged. None: accuracy of labels, Pearson's correlation of numbers, the
    F1 of words of other texts."""
    truncation_keeps: KeptEnd | None = None
    """What stays of a text that is too long. "end": of lines the last ones, of a dialog the newest
    turns. None: "end" where a column is a list of turns, otherwise "start"."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        if self.source is not None and (
            "{" in (rest := _COLUMN_PATTERN.sub("", self.source)) or "}" in rest
        ):
            raise ValueError(f"source has a brace that is not around a column: {self.source!r}")
        if self.source is not None and not self.columns:
            raise ValueError(f"source names no column, as in {{sentence}}: {self.source!r}")
        if self.target == "":
            raise ValueError("target must be the name of a column, got ''")
        if self.labels and (len(set(self.labels)) < max(len(self.labels), 2)):
            raise ValueError(
                f"labels must be two or more that differ, got {format_names(self.labels)}"
            )
        if self.number_step is not None and not 0 < self.number_step < math.inf:
            raise ValueError(f"number_step must be above 0, got {self.number_step}")
        if self.labels and self.number_step is not None:
            raise ValueError("answers are labels or numbers: give labels or number_step")
        if self.number_range is not None and (
            self.number_step is None or not self.number_range[0] < self.number_range[1]
        ):
            raise ValueError(
                "number_range must be the least and the greatest of numbers, which have a "
                f"number_step, got {list(self.number_range)}"
            )
        if self.metric is not None and self.metric not in self.metric_names:
            raise ValueError(
                f"metric must be one of {', '.join(self.metric_names)} here, got {self.metric!r}"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the source names, each once."""
        return tuple(dict.fromkeys(_COLUMN_PATTERN.findall(self.source or "")))

    @property
    def has_fixed_answers(self) -> bool:
        """Answers are labels or numbers."""
        return bool(self.labels) or self.number_step is not None

    @property
    def label_column_names(self) -> Sequence[str]:
        """Customary names of the column of labels or numbers; of other targets none."""
        return (
            columns.LABEL_COLUMNS
            if self.labels
            else columns.NUMBER_COLUMNS
            if self.number_step
            else ()
        )

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Metrics that fit, the customary one first."""
        if self.number_step is not None:
            return ("pearson", "spearman")
        if self.labels:
            f1 = ("f1",) if len(self.labels) == 2 else ()
            return ("accuracy", "macro_f1", *f1, "matthews")
        return ("answer_f1", "exact_match", *TEXT_LIBRARIES)

    def render(self, texts: Sequence[str]) -> str:
        """Put texts in the places of their columns; there must be a source."""
        by_name = dict(zip(self.columns, texts, strict=True))
        return _COLUMN_PATTERN.sub(lambda found: by_name[found[1]], self.source or "")

    def format_target(self, value: object, column: str, where: str) -> tuple[str, ...]:
        """Read a label or number: what is learned, and, of a number, what it was.

        Raises:
            ValueError: it is none of those that there are, with file and line.
        """
        if self.number_step is None:
            return (columns.parse_label(value, column, where),)
        number = columns.parse_number(value, column, where)
        if (
            self.number_range is not None
            and not self.number_range[0] <= number <= self.number_range[1]
        ):
            low, high = self.number_range
            raise ValueError(f"{where}: {column!r} must be from {low:g} to {high:g}, got {number}")
        return tuple(dict.fromkeys((round_to_step(number, self.number_step), repr(number))))

    def parse_prediction(self, prediction: str) -> str | float | None:
        """Read an answer as a label or number; None if it is none, which is wrong."""
        prediction = prediction.strip()
        if self.labels:
            return prediction if prediction in self.labels else None
        try:
            number = float(prediction)
        except ValueError:
            return None
        low, high = self.number_range or (-columns.MAX_NUMBER, columns.MAX_NUMBER)
        return number if low <= number <= high else None

    def compute_metrics(
        self, labels: Sequence[Sequence[str]], predictions: Sequence[str]
    ) -> dict[str, float]:
        """Compute the metrics of labels or numbers, a wrong answer being what hurts.

        Of two labels, what is neither counts as the other one (`f1_score_with_invalid` of the
        released code); of more as a class of its own. What is no number counts as one below the
        least by a fifth of their range: of 0 to 5 as -1, as in the released code.
        """
        if self.labels:
            return self._classification_metrics([one[0] for one in labels], predictions)
        numbers = np.array([float(one[-1]) for one in labels])
        low, high = self.number_range or (numbers.min(initial=np.inf), numbers.max(initial=-np.inf))
        found = [self.parse_prediction(text) for text in predictions]
        wrong = low - (high - low) / 5
        read = np.array([wrong if one is None else one for one in found], np.float64)
        return {
            "pearson": pearson(numbers, read),
            "spearman": spearman(numbers, read),
            "no_number": found.count(None) / max(len(found), 1),
        }

    def _classification_metrics(
        self, labels: Sequence[str], predictions: Sequence[str]
    ) -> dict[str, float]:
        place = {label: i for i, label in enumerate(self.labels)}
        right = np.array([place[label] for label in labels], np.int64)
        read = [self.parse_prediction(text) for text in predictions]
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


def round_to_step(number: float, step: float) -> str:
    """Write the nearest multiple of a step, ties to the even one, with no more digits than it has.

    The number counts as it is written: 2.5 is between 2.4 and 2.6.
    """
    exact, power = Fraction(repr(step)), Decimal(repr(step)).normalize().as_tuple().exponent
    digits = max(-int(power), 0)
    return f"{float(round(Fraction(repr(float(number))) / exact) * exact):.{digits}f}"


def resolve_template(template: "str | TextTemplate | None", where: str) -> TextTemplate:
    """Return a template by its name in `TEXT_TEMPLATES`, or the one given; None: an empty one.

    Raises:
        ValueError: there is none of this name.
    """
    if isinstance(template, str):
        if template not in TEXT_TEMPLATES:
            raise ValueError(
                f"{where} must be one of {', '.join(TEXT_TEMPLATES)}, or a table, got {template!r}"
            )
        return TEXT_TEMPLATES[template]
    return template or TextTemplate()


def parse_template(template: Any, where: str) -> TextTemplate:
    """Read a form from plain data: its name, a table or nothing.

    Raises:
        ValueError: it is none of these, or a key of the table is not what it should be.
    """
    return resolve_template(
        template
        if template is None or isinstance(template, str)
        else from_dict(TextTemplate, template, where),
        where,
    )


_ENTAILMENT_LABELS = ("entailment", "not_entailment")
_STSB_TEMPLATE = TextTemplate(
    source="stsb sentence1: {sentence1} sentence2: {sentence2}",
    number_step=0.2,
    number_range=(0.0, 5.0),
    metric="pearson",
)
_PARAPHRASE_TEMPLATE = TextTemplate(
    source="mrpc sentence1: {sentence1} sentence2: {sentence2}",
    labels=("not_equivalent", "equivalent"),
    metric="f1",
)
TEXT_TEMPLATES: Mapping[str, TextTemplate] = {
    "cola": TextTemplate(
        source="cola sentence: {sentence}",
        labels=("unacceptable", "acceptable"),
        metric="matthews",
    ),
    "sst2": TextTemplate(source="sst2 sentence: {sentence}", labels=("negative", "positive")),
    "mrpc": _PARAPHRASE_TEMPLATE,
    "qqp": replace(
        _PARAPHRASE_TEMPLATE,
        source="qqp question1: {question1} question2: {question2}",
        labels=("not_duplicate", "duplicate"),
    ),
    "stsb": _STSB_TEMPLATE,
    "mnli": TextTemplate(
        source="mnli hypothesis: {hypothesis} premise: {premise}",
        labels=("entailment", "neutral", "contradiction"),
    ),
    "qnli": TextTemplate(
        source="qnli question: {question} sentence: {sentence}", labels=_ENTAILMENT_LABELS
    ),
    "rte": TextTemplate(
        source="rte sentence1: {sentence1} sentence2: {sentence2}", labels=_ENTAILMENT_LABELS
    ),
    "cb": TextTemplate(
        source="cb hypothesis: {hypothesis} premise: {premise}",
        labels=("entailment", "contradiction", "neutral"),
        metric="macro_f1",
    ),
    "boolq": TextTemplate(
        source="boolq passage: {passage} question: {question}",
        labels=("False", "True"),
    ),
    "squad": TextTemplate(source="question: {question} context: {context}"),
    "summarize": TextTemplate(source="summarize: {document}", metric="rougeL"),
    "en_de": TextTemplate(source="translate English to German: {source}", metric="bleu"),
    "de_en": TextTemplate(source="translate German to English: {source}", metric="bleu"),
    "en_fr": TextTemplate(source="translate English to French: {source}", metric="bleu"),
    "en_ro": TextTemplate(source="translate English to Romanian: {source}", metric="bleu"),
}
"""The paper's own, by the names that its sources begin with. STS-B's scores begin at 0, whatever
section 2.4 says. What is not here: tasks that read marks within a text (WSC, WiC, ReCoRD), or whose
targets could not be checked (COPA, MultiRC). German to English is not among its tasks."""
