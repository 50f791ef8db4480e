"""Metrics of token classification: token accuracy, and entity scores as CoNLL's `conlleval`.

Every metric is a number, whatever the predictions: where a definition divides by zero the docstring
says what is there instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TagSequences = Sequence[Sequence[str]]
"""The tag of each word of each sentence."""


def token_accuracy(labels: TagSequences, predictions: TagSequences) -> float:
    """Compute the share of words whose tag is right; 0 of nothing."""
    n = sum(len(tags) for tags in labels)
    right = sum(
        a == b for t, s in zip(labels, predictions, strict=True) for a, b in zip(t, s, strict=True)
    )
    return right / n if n else 0.0


@dataclass(frozen=True)
class EntityScores:
    """How many of the predicted entities are right, and of the true ones found; 0 of nothing."""

    precision: float
    recall: float
    f1: float


def entity_scores(labels: TagSequences, predictions: TagSequences) -> EntityScores:
    """Score entities as CoNLL's `conlleval` does: right are those whose borders and type are."""
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


def extract_entities(tags: Sequence[str]) -> list[tuple[int, int, str]]:
    """List the entities of a sentence: first word, one past the last, type.

    A tag is "O" or a part (B, I, E or S, or what other schemes call these), a hyphen and a type;
    without a type that is "". As in `conlleval` (Tjong Kim Sang and De Meulder 2003,
    aclanthology.org/W03-0419, section 2.4) any sequence has a reading: an I without a beginning
    begins an entity, and so does one whose type is not that of the word before. So all of
    `SCHEME_PREFIXES` are read right.
    """
    found: list[tuple[int, int, str]] = []
    begin, before, kind = 0, "O", ""
    for i, tag in enumerate([*tags, "O"]):
        part, _, now = tag.partition("-")
        part = PREFIX_EQUIVALENTS.get(part, part)
        inside = before != "O"
        ends = inside and (part in "OBS" or before in "ES" or now != kind)
        if ends:
            found.append((begin, i, kind))
        if part != "O" and (ends or not inside):
            begin = i
        before, kind = part, now
    return found


SCHEME_PREFIXES: Mapping[str, str] = {
    "BIO": "BI", "IOB1": "BI", "BIOES": "BIES", "BILOU": "BILU", "BMES": "BMES", "BMEWO": "BMEW",
}  # fmt: skip
"""How each scheme calls the first word of an entity, those within, the last, and one that is alone;
a scheme with two letters has no names of their own for the latter two."""

PREFIX_EQUIVALENTS: Mapping[str, str] = {"L": "E", "U": "S", "M": "I", "W": "S"}
"""BIOES's letters for those that other schemes have in their place."""


def has_entity_labels(labels: Sequence[str]) -> bool:
    """Return whether tags mark entities: all are "O" or, of one scheme, a part with a type.

    Not so if all are "O". Parts without any type (B, I, O) mark entities of one kind, as seqeval
    reads them.
    """
    found = [label.partition("-") for label in labels if label != "O"]
    letters = {part for part, _, _ in found}
    if not any(letters <= set(scheme) for scheme in SCHEME_PREFIXES.values()):
        return False
    if any(hyphen for _, hyphen, _ in found):
        return all(kind for _, _, kind in found)
    return ("B" in letters and len(letters) > 1) or (bool(letters) and "O" in labels)


def tagging_metrics(
    labels: TagSequences, predictions: TagSequences, tag_set: Sequence[str]
) -> dict[str, float]:
    """Compute all metrics of a tagging; those of entities only where the tag set marks some."""
    scores = {"token_accuracy": token_accuracy(labels, predictions)}
    if has_entity_labels(tag_set):
        found = entity_scores(labels, predictions)
        scores |= {
            "entity_f1": found.f1,
            "entity_precision": found.precision,
            "entity_recall": found.recall,
        }
    return scores
