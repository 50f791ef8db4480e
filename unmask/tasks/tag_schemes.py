"""Entities <-> tags of words: BIO, BIOES and the other schemes, repaired and translated.

Invalid tag sequences are decoded as in `conlleval`, by
`unmask.tasks.metrics.tagging.extract_entities`.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from unmask.heads.tagging.crf import BOUNDARY
from unmask.tasks.metrics.tagging import (
    PREFIX_EQUIVALENTS,
    SCHEME_PREFIXES,
    extract_entities,
    has_entity_labels,
)

TagScheme = Literal["BIO", "BIOES", "IOB1", "BILOU", "BMES", "BMEWO"]
"""BIO: an entity is B, then I's (IOB2: Tjong Kim Sang and Veenstra 1999, aclanthology.org/E99-1023,
section 2.1). IOB1: I's; B only where it follows an entity of its own type (Ramshaw and Marcus 1995,
aclanthology.org/W95-0107). BIOES: B, I's, E; alone, S. The same with other letters: BILOU (Ratinov
and Roth 2009, aclanthology.org/W09-1119), BMES (Xue 2003, aclanthology.org/O03-4002, of
characters), BMEWO. Tags without types ("B", "I", "O") have the type ""."""
Entity = tuple[int, int, str]
"""Start word, end word (exclusive), type."""

_ENTITY_LIKE_LABEL = re.compile(r"[A-Za-z][-_]\w.*|.*\w[-_][BIESLUMW]")


def infer_scheme(
    labels: Sequence[str], sentences: Iterable[Sequence[str]] = ()
) -> TagScheme | None:
    """Infer the scheme of labels; None if they do not mark entities.

    Labels with B and I only are BIO, unless in the sentences some entity begins with I and each B
    follows an entity of its own type (IOB1). Labels with I only are IOB1.

    Args:
        labels: all labels.
        sentences: tags of each sentence.
    """
    if not has_entity_labels(labels):
        return None
    parts = {label[0] for label in labels if label != "O"}
    if not parts <= set("BI"):
        schemes: tuple[TagScheme, ...] = ("BIOES", "BILOU", "BMES", "BMEWO")
        return next(scheme for scheme in schemes if parts <= set(SCHEME_PREFIXES[scheme]))
    if "B" not in parts:
        return "IOB1"
    starts_with_i = [
        (tags[i][0], i > 0 and tags[i - 1].partition("-")[2] == kind)
        for tags in sentences
        for i, _, kind in extract_entities(tags)
    ]
    bare = any(part == "I" for part, _ in starts_with_i)
    return (
        "IOB1" if bare and all(follows for part, follows in starts_with_i if part == "B") else "BIO"
    )


def unrecognized_entity_label(labels: Sequence[str]) -> str | None:
    """Return a label that keeps labels resembling entity labels from being valid ones, or None.

    Labels resemble entity labels if at least half, without "O", are a letter and a type, in either
    order.
    """
    tags = [label for label in labels if label != "O"]
    entity_like = [label for label in tags if _ENTITY_LIKE_LABEL.fullmatch(label)]
    if not tags or 2 * len(entity_like) < len(tags) or has_entity_labels(labels):
        return None
    letters = {label.partition("-")[0] for label in labels}
    scheme_letters = max(SCHEME_PREFIXES.values(), key=lambda scheme: len(letters & set(scheme)))
    unrecognized = (label for label in tags if label[:1] not in scheme_letters or label[1:2] != "-")
    return next(unrecognized, tags[0])


def entities_to_tags(entities: Iterable[Entity], n_words: int, scheme: TagScheme) -> list[str]:
    """Return the tags of the entities of a sentence.

    Raises:
        ValueError: entities overlap, are empty, or end after the sentence.
    """
    tags = ["O"] * n_words
    end, before = 0, None
    for start, stop, kind in sorted(entities):
        if not end <= start < stop <= n_words:
            raise ValueError(
                f"entities must be spans of a sentence of {n_words} words and not overlap, got "
                f"{kind!r} from {start} to {stop}, after one that ends at {end}"
            )
        follows = start == end and kind == before
        for i, part in enumerate(
            _tag_prefixes(stop - start, scheme, follows_same_type=follows), start
        ):
            tags[i] = _make_tag(part, kind)
        end, before = stop, kind
    return tags


def _make_tag(part: str, entity_type: str) -> str:
    return f"{part}-{entity_type}" if entity_type else part


def _tag_prefixes(n_words: int, scheme: TagScheme, *, follows_same_type: bool) -> list[str]:
    begin, within, *edge_prefixes = SCHEME_PREFIXES[scheme]
    if edge_prefixes:
        last, alone = edge_prefixes
        return [alone] if n_words == 1 else [begin, *[within] * (n_words - 2), last]
    return [begin if scheme == "BIO" or follows_same_type else within, *[within] * (n_words - 1)]


def repair_tags(tags: Sequence[str], scheme: TagScheme) -> list[str]:
    """Repair tags to fit their scheme; the entities are those that `conlleval` extracts.

    An I after O or another type becomes B, and in BIOES a missing E is added. Tags of another
    scheme are converted.

    Raises:
        ValueError: a tag is neither "O" nor a letter of a scheme, with or without a type.
    """
    for tag in tags:
        if not has_entity_labels(["O", tag]) and tag != "O":
            raise ValueError(
                f"a tag must be 'O' or one of {', '.join(_PREFIXES)}, with a hyphen and a type, "
                f"got {tag!r}"
            )
    return entities_to_tags(extract_entities(tags), len(tags), scheme)


_PREFIXES = tuple(dict.fromkeys("".join(SCHEME_PREFIXES.values())))


def entity_types(labels: Iterable[str]) -> tuple[str, ...]:
    """List the entity types of labels, in their order."""
    return tuple(dict.fromkeys(label.partition("-")[2] for label in labels if label != "O"))


def scheme_labels(types: Iterable[str], scheme: TagScheme) -> tuple[str, ...]:
    """List all labels of a scheme, "O" first; they include all outputs of `repair_tags`."""
    return ("O", *(_make_tag(part, kind) for kind in types for part in SCHEME_PREFIXES[scheme]))


def is_allowed_transition(previous_tag: str | None, tag: str | None, scheme: TagScheme) -> bool:
    """Return whether a tag may follow another; None: the sentence boundary."""
    left, _, kind_left = (previous_tag or "O").partition("-")
    right, _, kind_right = (tag or "O").partition("-")
    left, right = PREFIX_EQUIVALENTS.get(left, left), PREFIX_EQUIVALENTS.get(right, right)
    same_type = kind_left == kind_right
    if scheme == "BIO":
        return right != "I" or (left != "O" and same_type)
    if scheme == "IOB1":
        return right != "B" or (left != "O" and same_type)
    if left in ("B", "I"):
        return right in ("I", "E") and same_type
    return right not in ("I", "E")


def forbidden_transitions(labels: Sequence[str], scheme: TagScheme) -> tuple[tuple[int, int], ...]:
    """List the pairs of label indices of which the second may not follow the first.

    `BOUNDARY` is the start of a sentence (first of a pair) or the end (second), as in
    `heads.crf.CRF`.
    """
    indices = [(BOUNDARY, None), *enumerate(labels)]
    return tuple(
        (i, j) for i, a in indices for j, b in indices if not is_allowed_transition(a, b, scheme)
    )
