"""Metrics of token classification: token accuracy, and entity scores as CoNLL's `conlleval`.

Every metric is finite: where a definition divides by zero the docstring gives the value.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_COUNTED = ("found", "missed", "invented")
TagSequences = Sequence[Sequence[str]]
"""The tag of each word of each sentence."""


def token_accuracy(labels: TagSequences, predictions: TagSequences) -> float:
    """Compute the share of words with the correct tag; 0 without words."""
    n = sum(len(tags) for tags in labels)
    n_correct = sum(
        a == b for t, s in zip(labels, predictions, strict=True) for a, b in zip(t, s, strict=True)
    )
    return n_correct / n if n else 0.0


@dataclass(frozen=True)
class EntityScores:
    """Precision, recall and F1 of entities; 0 without entities."""

    precision: float
    recall: float
    f1: float


def entity_scores(labels: TagSequences, predictions: TagSequences) -> EntityScores:
    """Score entities as CoNLL's `conlleval` does: boundaries and type must match."""
    correct = n_labels = n_predictions = 0
    for t, s in zip(labels, predictions, strict=True):
        true, predicted = set(extract_entities(t)), set(extract_entities(s))
        correct += len(true & predicted)
        n_labels += len(true)
        n_predictions += len(predicted)
    return EntityScores(
        precision=correct / n_predictions if n_predictions else 0.0,
        recall=correct / n_labels if n_labels else 0.0,
        f1=2 * correct / (n_labels + n_predictions) if n_labels + n_predictions else 0.0,
    )


def entity_counts(pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> list[dict[str, Any]]:
    """Count the entities of each type that were found, missed and invented.

    Args:
        pairs: the true and the predicted tags of each sentence.
    """
    counts: dict[str, Counter[str]] = {}
    for truth, predicted in pairs:
        true, said = set(extract_entities(truth)), set(extract_entities(predicted))
        for name, some in (
            ("found", true & said),
            ("missed", true - said),
            ("invented", said - true),
        ):
            for _, _, kind in some:
                counts.setdefault(kind, Counter())[name] += 1
    return [
        {"label": kind or "entity", **{name: counts[kind][name] for name in _COUNTED}}
        for kind in sorted(counts)
    ]


def extract_entities(tags: Sequence[str]) -> list[tuple[int, int, str]]:
    """List the entities of a sentence as (start, end, type).

    A tag is "O" or a prefix (B, I, E or S, or their equivalents in other schemes), a hyphen and a
    type; without a type that is "". As in `conlleval` (Tjong Kim Sang and De Meulder 2003,
    aclanthology.org/W03-0419, section 2.4) any sequence is valid: an I without a preceding B, or
    after another type, begins an entity. So all of `SCHEME_PREFIXES` are decoded correctly.
    """
    entities: list[tuple[int, int, str]] = []
    begin, before, kind = 0, "O", ""
    for i, tag in enumerate([*tags, "O"]):
        part, _, now = tag.partition("-")
        part = PREFIX_EQUIVALENTS.get(part, part)
        inside = before != "O"
        ends = inside and (part in "OBS" or before in "ES" or now != kind)
        if ends:
            entities.append((begin, i, kind))
        if part != "O" and (ends or not inside):
            begin = i
        before, kind = part, now
    return entities


SCHEME_PREFIXES: Mapping[str, str] = {
    "BIO": "BI", "IOB1": "BI", "BIOES": "BIES", "BILOU": "BILU", "BMES": "BMES", "BMEWO": "BMEW",
}  # fmt: skip
"""Prefixes of each scheme for the first word of an entity, inner ones, the last, and a single word;
schemes with two letters do not mark the latter two."""

PREFIX_EQUIVALENTS: Mapping[str, str] = {"L": "E", "U": "S", "M": "I", "W": "S"}
"""BIOES equivalents of the prefixes of other schemes."""


def has_entity_labels(labels: Sequence[str]) -> bool:
    """Return whether tags mark entities: all are "O" or a prefix of one scheme with a type.

    False if all are "O". Prefixes without a type (B, I, O) mark entities of one kind, as in
    seqeval.
    """
    parts = [label.partition("-") for label in labels if label != "O"]
    letters = {part for part, _, _ in parts}
    if not any(letters <= set(scheme) for scheme in SCHEME_PREFIXES.values()):
        return False
    if any(hyphen for _, hyphen, _ in parts):
        return all(kind for _, _, kind in parts)
    return ("B" in letters and len(letters) > 1) or (bool(letters) and "O" in labels)


def tagging_metrics(
    labels: TagSequences, predictions: TagSequences, tag_set: Sequence[str]
) -> dict[str, float]:
    """Compute all tagging metrics; entity scores only if the tag set marks entities."""
    scores = {"token_accuracy": token_accuracy(labels, predictions)}
    if has_entity_labels(tag_set):
        entities = entity_scores(labels, predictions)
        scores |= {
            "entity_f1": entities.f1,
            "entity_precision": entities.precision,
            "entity_recall": entities.recall,
        }
    return scores
