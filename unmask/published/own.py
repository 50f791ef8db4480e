"""Networks that the format of their family has no words for: written in ours."""

from dataclasses import fields as fields_of
from dataclasses import replace

import torch

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
    try:
        again = card.fields.read(card.fields.write(card.architecture))
        same = _trained(again) == _trained(card.architecture)
        with torch.device("meta"):
            weights = card.build({}).kept()
        same = same and bool(card.names.to_theirs(weights))
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError):
        same = False  # a table of names met a part that it does not expect
    return card if same else in_own_words(card)


def _trained(a: AnyArchitecture) -> AnyArchitecture:
    """Return an architecture without what matters in training alone."""
    if isinstance(a, EncoderDecoderArchitecture):
        halves = (replace(half, **_plain(half)) for half in (a.encoder, a.decoder))
        return replace(a, encoder=next(halves), decoder=next(halves))
    return replace(a, **_plain(a)) if isinstance(a, Architecture) else a


def _plain(a: Architecture) -> dict[str, object]:
    return {f.name: f.default for f in fields_of(a) if f.name in IN_TRAINING}
