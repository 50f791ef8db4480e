"""What a page calls tasks, metrics and ways of tuning."""

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import PurePath
from typing import Any

from unmask.serving.record import Record, number
from unmask.serving.words import expression, readable

SHARES = ("accuracy", "f1", "exact_match", "precision", "recall")  # metrics read as percent
NAMES = {
    "bleu": "BLEU", "chrf": "chrF", "rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L",
    "answer_f1": "F1 of words", "matthews": "Matthews correlation",
    "pearson": "Pearson correlation", "spearman": "Spearman correlation",
}  # fmt: skip
EVERYTHING = "everything"


@dataclass(frozen=True, kw_only=True)
class Words:
    """How a kind of task is spoken of."""

    does: str  # "fine-tuned to ..."
    usual: str = "most frequent label"  # what is always answered by chance
    asked: str = "texts"  # what is right or wrong
    decided: str = "texts"  # what probabilities are of
    wrong: str = "Wrong"
    order: str = "Those it was surest of come first."


KINDS: Mapping[str, Words] = {
    "classify": Words(does="label texts"),
    "pairs": Words(does="label pairs of texts", asked="pairs", decided="pairs"),
    "cloze": Words(does="label texts by the word in a blank"),
    "multilabel": Words(
        does="give texts several labels", usual="most frequent labels",
        decided="decisions whether a label holds",
    ),
    "regress": Words(
        does="score texts", usual="mean", wrong="Off", order="Those farthest off come first."
    ),
    "tag": Words(does="label words", asked="words", decided="words"),
    "answer": Words(does="answer questions", usual="most frequent answer", asked="questions"),
    "choose": Words(
        does="choose among options", usual="most frequent place", asked="rows", decided="rows"
    ),
    "generate": Words(
        does="write texts", usual="most frequent text",
        order="Those whose targets it found least likely come first.",
    ),
}  # fmt: skip
_ANY = Words(does="", usual="most frequent answer", asked="rows", decided="rows")


def words(record: Record) -> Words:
    """Say how the task of a run is spoken of."""
    return KINDS.get(record.does, _ANY)


def task_name(record: Record) -> str:
    """Return the name that a task was given; empty if that is only its kind."""
    if not record.finetuned:
        return "" if record.results is None else record.results.task
    name = str(record.part("recipe").get("name", ""))
    return "" if name == record.does else name


def data(record: Record) -> str:
    """Say what a run was fine-tuned and scored on: rows and names of files."""
    said: list[str] = []
    for split in ("train", "dev", "test"):
        part = record.part("data").get(split)
        rows = number(part.get("rows")) if isinstance(part, Mapping) else None
        path = record.part("recipe").get(split)
        if rows:
            source = f"of {PurePath(str(path)).name}" if path else "set aside"
            lead = f"{split}: {rows:,.0f}" if said else f"{rows:,.0f} rows"
            said.append(f"{lead} {source}")
    return "; ".join(said)


def is_share(metric: str) -> bool:
    """Say whether a metric is read as percent."""
    return any(share in metric.lower().replace(" ", "_") for share in SHARES)


def metric_name(metric: str) -> str:
    """Write the name of a metric as a text does."""
    return NAMES.get(metric) or re.sub(r"\bf1\b", "F1", readable(metric))


def first_large(text: str) -> str:
    """Begin a text with a capital, and leave the rest as it is."""
    return text[:1].upper() + text[1:]


def tuned_by(method: Any) -> str:
    """Say what is tuned: a method's name, and what is not as usual about it."""
    from unmask.finetuning.methods import METHODS  # needs torch, which other reports do not

    kind = str(method.get("kind", "")) if isinstance(method, Mapping) else ""
    known = {cls.__name__: cls for cls in METHODS.values()}.get(kind)
    if known is None:
        return expression(method)
    usual = {f.name: expression(f.default) for f in fields(known) if f.default is not MISSING}
    odd = {k: v for k, v in method.items() if k == "kind" or expression(v) != usual.get(k)}
    return EVERYTHING if odd == {"kind": "Full"} else expression(odd).removesuffix("()")
