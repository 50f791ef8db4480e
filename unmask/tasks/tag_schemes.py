"""Entities <-> tags of words: BIO, BIOES and the other schemes, repaired and translated.

How tags that break their scheme are read is said once, as `conlleval` does, by
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
characters), BMEWO. Tags without types ("B", "I", "O") are of one type, ""."""
Entity = tuple[int, int, str]
"""First word, one past the last, type."""

_ENTITY_LIKE_LABEL = re.compile(r"[A-Za-z][-_]\w.*|.*\w[-_][BIESLUMW]")


def infer_scheme(
    labels: Sequence[str], sentences: Iterable[Sequence[str]] = ()
) -> TagScheme | None:
    """Find the scheme of some labels; None if these do not mark entities.

    Labels with B and I alone may be either scheme's: it is BIO, unless in the sentences some entity
    begins with I and each B follows an entity of its own type. Labels with I alone are IOB1's.

    Args:
        labels: all that there are.
        sentences: tags of the words of sentences.
    """
    if not has_entity_labels(labels):
        return None
    parts = {label[0] for label in labels if label != "O"}
    if not parts <= set("BI"):
        named: tuple[TagScheme, ...] = ("BIOES", "BILOU", "BMES", "BMEWO")
        return next(scheme for scheme in named if parts <= set(SCHEME_PREFIXES[scheme]))
    if "B" not in parts:
        return "IOB1"
    begins = [
        (tags[i][0], i > 0 and tags[i - 1].partition("-")[2] == kind)
        for tags in sentences
        for i, _, kind in extract_entities(tags)
    ]
    bare = any(part == "I" for part, _ in begins)
    return "IOB1" if bare and all(follows for part, follows in begins if part == "B") else "BIO"


def unrecognized_entity_label(labels: Sequence[str]) -> str | None:
    """Return a label for which labels mark no entities although they look it; None: they do not.

    They look it where at least half, "O" aside, are a letter and a type, in either order.
    """
    others = [label for label in labels if label != "O"]
    looks = [label for label in others if _ENTITY_LIKE_LABEL.fullmatch(label)]
    if not others or 2 * len(looks) < len(others) or has_entity_labels(labels):
        return None
    letters = {label.partition("-")[0] for label in labels}
    known = max(SCHEME_PREFIXES.values(), key=lambda scheme: len(letters & set(scheme)))
    odd = (label for label in others if label[:1] not in known or label[1:2] != "-")
    return next(odd, others[0])


def entities_to_tags(entities: Iterable[Entity], n_words: int, scheme: TagScheme) -> list[str]:
    """Write the entities of a sentence as tags.

    Raises:
        ValueError: entities overlap, are empty, or end after the sentence.
    """
    tags = ["O"] * n_words
    end, before = 0, None
    for start, stop, kind in sorted(entities):
        if not end <= start < stop <= n_words:
            raise ValueError(
                f"entities must hold words of a sentence of {n_words} and not overlap, got "
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
    begin, within, *others = SCHEME_PREFIXES[scheme]
    if others:
        last, alone = others
        return [alone] if n_words == 1 else [begin, *[within] * (n_words - 2), last]
    return [begin if scheme == "BIO" or follows_same_type else within, *[within] * (n_words - 1)]


def repair_tags(tags: Sequence[str], scheme: TagScheme) -> list[str]:
    """Write tags as their scheme demands; the entities are those that `conlleval` reads in them.

    So an I after O or after another type becomes B, and of BIOES an entity has the E that it
    lacks. Tags of another scheme are translated.

    Raises:
        ValueError: a tag is neither "O" nor a scheme's letter, with a type or without.
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
    """List the types of entities that labels mark, in their order."""
    return tuple(dict.fromkeys(label.partition("-")[2] for label in labels if label != "O"))


def scheme_labels(types: Iterable[str], scheme: TagScheme) -> tuple[str, ...]:
    """List all labels of a scheme, "O" first: what `repair_tags` writes is among them."""
    return ("O", *(_make_tag(part, kind) for kind in types for part in SCHEME_PREFIXES[scheme]))


def is_allowed_transition(previous_tag: str | None, tag: str | None, scheme: TagScheme) -> bool:
    """Return whether a tag may follow another; None: the edge of the sentence."""
    left, _, kind_left = (previous_tag or "O").partition("-")
    right, _, kind_right = (tag or "O").partition("-")
    left, right = PREFIX_EQUIVALENTS.get(left, left), PREFIX_EQUIVALENTS.get(right, right)
    same = kind_left == kind_right
    if scheme == "BIO":
        return right != "I" or (left != "O" and same)
    if scheme == "IOB1":
        return right != "B" or (left != "O" and same)
    if left in ("B", "I"):
        return right in ("I", "E") and same
    return right not in ("I", "E")


def forbidden_transitions(labels: Sequence[str], scheme: TagScheme) -> tuple[tuple[int, int], ...]:
    """List the pairs of labels, by number, of which the second may not follow the first.

    `BOUNDARY` stands for where a sentence begins (first of a pair) or ends (second). This is what
    `heads.crf.CRF` takes.
    """
    places = [(BOUNDARY, None), *enumerate(labels)]
    return tuple(
        (i, j) for i, a in places for j, b in places if not is_allowed_transition(a, b, scheme)
    )
