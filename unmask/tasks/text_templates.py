"""Text-to-text templates: sources rendered from columns, targets, and parsing of predictions.

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
from unmask.tasks.metrics.captioning.captions import CAPTION_METRICS
from unmask.tasks.metrics.classification import classification_metrics
from unmask.tasks.metrics.regression import pearson, spearman
from unmask.tasks.readers import columns
from unmask.text.formats.records import format_names

_COLUMN_PATTERN = re.compile(r"\{([^{}]+)\}")

KeptEnd = Literal["start", "end"]


@dataclass(frozen=True, kw_only=True)
class TextTemplate:
    """A text-to-text format of a task."""

    source: str | None = None
    """Template: "sst2 sentence: {sentence}", with names of columns, or members of a column of
    lists: "{answers[0]}". None: the text itself; several columns with their names."""
    target: str | None = None
    """Target column. None: found by usual names."""
    labels: tuple[str, ...] = ()
    """Labels in order, if targets are labels; a file may give their indices. Any other prediction
    is wrong (section 2.4)."""
    number_step: float | None = None
    """Rounding step, if targets are numbers: 0.2 makes 2.57 "2.6" (section 2.4). A prediction that
    is not a number is wrong."""
    number_range: tuple[float, float] | None = None
    """Minimum and maximum; numbers outside are wrong. None: any."""
    metric: str | None = None
    """Main metric. None: accuracy of labels, Pearson's correlation of numbers, word F1 of other
    texts."""
    truncation_keeps: KeptEnd | None = None
    """Part of a long text that is kept. "end": the last lines, of a dialog the newest turns. None:
    "end" if a column is a list of turns, otherwise "start"."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        if self.source is not None and (
            "{" in (remainder := _COLUMN_PATTERN.sub("", self.source)) or "}" in remainder
        ):
            raise ValueError(f"source has an unmatched brace: {self.source!r}")
        if self.source is not None and not self.columns:
            raise ValueError(f"source must have a column, as in {{sentence}}, got {self.source!r}")
        if self.target == "":
            raise ValueError("target must be the name of a column, got ''")
        if self.labels and (len(set(self.labels)) < max(len(self.labels), 2)):
            raise ValueError(
                f"labels must be two or more that differ, got {format_names(self.labels)}"
            )
        if self.number_step is not None and not 0 < self.number_step < math.inf:
            raise ValueError(f"number_step must be above 0, got {self.number_step}")
        if self.labels and self.number_step is not None:
            raise ValueError("targets are labels or numbers: give labels or number_step, not both")
        if self.number_range is not None and (
            self.number_step is None or not self.number_range[0] < self.number_range[1]
        ):
            raise ValueError(
                "number_range must be a minimum and a maximum, and needs number_step, "
                f"got {list(self.number_range)}"
            )
        if self.metric is not None and self.metric not in self.metric_names:
            raise ValueError(
                f"metric must be one of {', '.join(self.metric_names)} here, got {self.metric!r}"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The distinct columns in the source."""
        return tuple(dict.fromkeys(_COLUMN_PATTERN.findall(self.source or "")))

    @property
    def has_fixed_answers(self) -> bool:
        """Whether targets are labels or numbers."""
        return bool(self.labels) or self.number_step is not None

    @property
    def label_column_names(self) -> Sequence[str]:
        """Usual names of the column of labels or numbers; empty for other targets."""
        return (
            columns.LABEL_COLUMNS
            if self.labels
            else columns.NUMBER_COLUMNS
            if self.number_step
            else ()
        )

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Applicable metrics, the default first."""
        if self.number_step is not None:
            return ("pearson", "spearman")
        if self.labels:
            f1 = ("f1",) if len(self.labels) == 2 else ()
            return ("accuracy", "macro_f1", *f1, "matthews")
        return tuple(dict.fromkeys(("answer_f1", "exact_match", *TEXT_LIBRARIES, *CAPTION_METRICS)))

    def render(self, texts: Sequence[str]) -> str:
        """Fill the source, which must not be None, with the texts of its columns."""
        by_name = dict(zip(self.columns, texts, strict=True))
        return _COLUMN_PATTERN.sub(lambda match: by_name[match[1]], self.source or "")

    def format_target(self, value: object, column: str, location: str) -> tuple[str, ...]:
        """Return the target of a label or number, and the exact number.

        Raises:
            ValueError: it is invalid, with file and line.
        """
        if self.number_step is None:
            return (columns.parse_label(value, column, location),)
        number = columns.parse_number(value, column, location)
        if (
            self.number_range is not None
            and not self.number_range[0] <= number <= self.number_range[1]
        ):
            low, high = self.number_range
            raise ValueError(
                f"{location}: {column!r} must be from {low:g} to {high:g}, got {number}"
            )
        return tuple(dict.fromkeys((round_to_step(number, self.number_step), repr(number))))

    def parse_prediction(self, prediction: str) -> str | float | None:
        """Parse a prediction as a label or number; None if invalid, which counts as wrong."""
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
        """Compute the metrics of labels or numbers, counting invalid predictions as the worst.

        With two labels, an invalid prediction counts as the other one (`f1_score_with_invalid` of
        the released code); with more, as a class of its own. An invalid number counts as the
        minimum less a fifth of the range: -1 for 0 to 5, as in the released code.
        """
        if self.labels:
            return self._classification_metrics([value[0] for value in labels], predictions)
        numbers = np.array([float(value[-1]) for value in labels])
        low, high = self.number_range or (numbers.min(initial=np.inf), numbers.max(initial=-np.inf))
        parsed = [self.parse_prediction(text) for text in predictions]
        invalid = low - (high - low) / 5
        predicted = np.array([invalid if value is None else value for value in parsed], np.float64)
        return {
            "pearson": pearson(numbers, predicted),
            "spearman": spearman(numbers, predicted),
            "no_number": parsed.count(None) / max(len(parsed), 1),
        }

    def _classification_metrics(
        self, labels: Sequence[str], predictions: Sequence[str]
    ) -> dict[str, float]:
        index = {label: i for i, label in enumerate(self.labels)}
        targets = np.array([index[label] for label in labels], np.int64)
        parsed = [self.parse_prediction(text) for text in predictions]
        is_invalid = np.array([value is None for value in parsed], bool)
        predicted = np.array([index.get(str(value), -1) for value in parsed], np.int64)
        if len(self.labels) == 2:
            predicted = np.where(is_invalid, 1 - targets, predicted)
        return classification_metrics(targets, predicted, len(self.labels)) | {
            "no_label": float(is_invalid.mean()) if len(is_invalid) else 0.0
        }


TEXT_LIBRARIES: Mapping[str, str] = {
    "rougeL": "rouge_score", "rouge1": "rouge_score", "rouge2": "rouge_score",
    "bleu": "sacrebleu", "chrf": "sacrebleu", "meteor": "nltk",
}  # fmt: skip
"""Text metrics and the libraries that compute them; others need none."""


def round_to_step(number: float, step: float) -> str:
    """Format the nearest multiple of a step, ties to even, with the digits of the step.

    The number counts as written in decimal: 2.5 is between 2.4 and 2.6.
    """
    exact, power = Fraction(repr(step)), Decimal(repr(step)).normalize().as_tuple().exponent
    digits = max(-int(power), 0)
    return f"{float(round(Fraction(repr(float(number))) / exact) * exact):.{digits}f}"


def resolve_template(template: "str | TextTemplate | None", location: str) -> TextTemplate:
    """Return a template by name, or the one given; None: an empty one.

    Raises:
        ValueError: there is none of this name.
    """
    if isinstance(template, str):
        if template not in TEXT_TEMPLATES:
            raise ValueError(
                f"{location} must be one of {', '.join(TEXT_TEMPLATES)}, or a table, "
                f"got {template!r}"
            )
        return TEXT_TEMPLATES[template]
    return template or TextTemplate()


def parse_template(template: Any, location: str) -> TextTemplate:
    """Read a template from plain data: a name, a table or None.

    Raises:
        ValueError: it is none of these, or a key of the table is invalid.
    """
    return resolve_template(
        template
        if template is None or isinstance(template, str)
        else from_dict(TextTemplate, template, location),
        location,
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
"""Templates of the paper, by the prefix of their sources. STS-B's scores begin at 0, unlike in
section 2.4. Missing: tasks with marks within a text (WSC, WiC, ReCoRD), or with targets that could
not be verified (COPA, MultiRC). German to English is not in the paper."""
