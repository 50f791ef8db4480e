"""Networks that the format of their family has no words for: written in ours."""

from collections.abc import Mapping
from dataclasses import fields as fields_of
from dataclasses import replace

import torch

from unmask.heads.language import Language
from unmask.model.architecture import Architecture, EncoderDecoderArchitecture
from unmask.model.names import OWN_NAMES, AnyArchitecture, own_fields
from unmask.published.card import Published

OWN = "unmask-"
"""What such a folder's `model_type` begins with; the family's follows."""
FAMILY = "family"
"""Our name of it: several families share a `model_type`, and tell theirs by words of its own."""
IN_TRAINING = frozenset(
    {
        "initialize", "dropout", "attention_dropout", "feed_forward_dropout", "final_dropout",
        "layer_dropout",
    }
)  # fmt: skip
"""What a trained network does not depend on: a format need not have words for it."""


def in_own_words(card: Published) -> Published:
    """Return the card of a network that is written in our words: transformers does not open it."""
    own = own_fields(OWN + card.fields.model_type, type(card.architecture))
    fields = replace(own, write=lambda a: own.write(a) | {FAMILY: card.family})
    return replace(card, fields=fields, names=OWN_NAMES)


def worded(card: Published) -> Published:
    """Return a card whose format can say its architecture: the family's where it can, or ours."""
    return card if _is_said(card) else in_own_words(card)


def unsaid(card: Published, family: Published) -> list[str]:
    """Name the keys of a network that a family's format has no words for.

    Those that are read back as something else; where nothing can be written, those that keep it
    from being so, each by itself. Where only several together do, none is named.
    """
    said = replace(card, fields=family.fields, names=family.names)
    mine, base = _stacks(card.architecture), _stacks(family.architecture)
    if mine.keys() != base.keys():
        return []
    try:
        again = _stacks(_trained(family.fields.read(family.fields.write(card.architecture))))
        found = _different(_stacks(_trained(card.architecture)), again)
    except _UNEXPECTED:
        found = []
    return found or [k for k in _different(mine, base) if _is_said_with(said, k, base)]


_UNEXPECTED = (ValueError, KeyError, TypeError, AttributeError, AssertionError)
"""What is raised where a table of names, or of keys, meets a part that it does not expect."""


def _is_said(card: Published) -> bool:
    """Say whether a card's format can say its architecture."""
    try:
        again = card.fields.read(card.fields.write(card.architecture))
        with torch.device("meta"):
            weights = card.build({}).kept()
        named = bool(card.names.to_theirs(weights))
    except _UNEXPECTED:
        return False
    said = card.fields.language(card.fields.write(card.architecture))
    spec = card.heads.get("language")
    if isinstance(spec, Language) and said.get("transform", spec.transform) != spec.transform:
        return False  # one key says the activation of the network and of the head
    return named and _trained(again) == _trained(card.architecture)


def _is_said_with(card: Published, key: str, base: Mapping[str, Architecture]) -> bool:
    """Say whether the format could say the architecture if one key were as in `base`."""
    side, _, name = key.rpartition(".")
    value = getattr(base[side], name)
    try:
        stacks = _stacks(card.architecture)
        stack = replace(stacks[side], **{name: value})
        a = replace(card.architecture, **{side: stack}) if side else stack
        return _is_said(replace(card, architecture=a))
    except ValueError:  # two keys that do not go together
        return False


def _stacks(a: AnyArchitecture) -> dict[str, Architecture]:
    """Return the stacks by what their keys begin with; none: it is of another kind."""
    if isinstance(a, EncoderDecoderArchitecture):
        return {"encoder": a.encoder, "decoder": a.decoder}
    return {"": a} if isinstance(a, Architecture) else {}


def _different(a: Mapping[str, Architecture], b: Mapping[str, Architecture]) -> list[str]:
    """Name the keys in which stacks differ."""
    names = [f.name for f in fields_of(Architecture)]
    return [
        f"{side}.{name}".lstrip(".")
        for side in a
        for name in names
        if getattr(a[side], name) != getattr(b[side], name)
    ]


def _trained(a: AnyArchitecture) -> AnyArchitecture:
    """Return an architecture without what matters in training alone."""
    if isinstance(a, EncoderDecoderArchitecture):
        halves = (replace(half, **_plain(half)) for half in (a.encoder, a.decoder))
        return replace(a, encoder=next(halves), decoder=next(halves))
    return replace(a, **_plain(a)) if isinstance(a, Architecture) else a


def _plain(a: Architecture) -> dict[str, object]:
    return {f.name: f.default for f in fields_of(a) if f.name in IN_TRAINING}
