"""The architectures that T5's paper compares: Raffel et al. 2020, arXiv:1910.10683, section 3.2.

All with T5's layers; the encoder-decoder itself is `t5-base` (12 layers a side) or `t5-mini` (4).
Each learns T5's spans here, and another objective by `objective` of a recipe.
"""

from dataclasses import replace

from unmask.heads.language import AfterSource, Language
from unmask.hiding.objectives import T5 as SPAN_CORRUPTION
from unmask.hiding.one_stack import InOneStack
from unmask.model.architecture import Architecture, EncoderDecoderArchitecture
from unmask.model.names import OWN_NAMES, own_fields
from unmask.model.positions import BucketBias
from unmask.published import t5
from unmask.published.card import Published
from unmask.published.gpt import LABELS

_NOTE = "Section 3.2.2, table 2. transformers has no such network; it is kept in a format of ours."
_SMALL = " Not in the paper: for two CPU cores, with the width and depth of t5-mini."


def shared(encoder: Architecture) -> EncoderDecoderArchitecture:
    """Return two stacks whose layers are the same, but for what reads the encoder.

    Each stack has its own buckets of distances, in one table: `bi_v1_shared` names variables alike,
    and `SelfAttention` of Mesh TensorFlow asks each stack whether it looks forward, too.
    """
    return replace(t5.both(encoder), shared=True)


def alone(encoder: Architecture, *, whole: bool) -> Architecture:
    """Return one stack, which reads forward, a source perhaps as a whole."""
    position = encoder.position
    assert isinstance(position, BucketBias)
    return replace(encoder, causal=True, position=replace(position, causal=not whole))


def _encoder(card: Published) -> Architecture:
    assert isinstance(card.architecture, EncoderDecoderArchitecture)
    return card.architecture.encoder


def _sharing(card: Published, name: str, parameters: int) -> Published:
    return replace(
        card,
        name=name,
        family="t5-shared",
        architecture=shared(_encoder(card)),
        parameters=parameters,
        names=OWN_NAMES,
        fields=own_fields("t5-shared", EncoderDecoderArchitecture),
        hub=None,
        note=_NOTE,
    )


def _half(card: Published, name: str, parameters: int) -> Published:
    encoder = _encoder(card)
    return replace(
        card,
        name=name,
        architecture=t5.both(replace(encoder, n_layers=encoder.n_layers // 2)),
        parameters=parameters,
        hub=None,
        note="Section 3.2.2, table 2: half as many layers a side.",
    )


def _one_stack(
    card: Published, name: str, parameters: int, *, whole: bool, length: int
) -> Published:
    """Return a language model whose rows hold as much text as those of the two stacks."""
    kind = "t5-prefix-lm" if whole else "t5-lm"
    return replace(
        card,
        name=name,
        family=kind,
        architecture=alone(_encoder(card), whole=whole),
        heads={"language": Language(term="denoised", scaled=True, forward=AfterSource(whole))},
        labels=LABELS,
        objective=InOneStack(SPAN_CORRUPTION, whole=whole),
        length=length,
        batch_tokens=card.batch_tokens // card.length * length,
        parameters=parameters,
        names=OWN_NAMES,
        fields=own_fields(kind),
        hub=None,
        note=_NOTE + " What would be read in two stacks is read in one, source first; only what is "
        "said of it is asked.",
    )


_BASE = replace(t5.T5_BASE, **t5.BASELINE)  # section 3.1.2

SHARED_BASE = _sharing(_BASE, "t5-shared-base", 137_949_312)
HALF_BASE = _half(_BASE, "t5-half-base", 123_790_080)
LM_BASE = _one_stack(_BASE, "t5-lm-base", 109_628_544, whole=False, length=626)
PREFIX_LM_BASE = _one_stack(_BASE, "t5-prefix-lm-base", 109_628_544, whole=True, length=626)


def _noted(card: Published) -> Published:
    return replace(card, note=card.note + _SMALL)


SHARED_MINI = _noted(_sharing(t5.T5_MINI, "t5-shared-mini", 6_320_512))
HALF_MINI = _noted(_half(t5.T5_MINI, "t5-half-mini", 5_796_096))
LM_MINI = _noted(_one_stack(t5.T5_MINI, "t5-lm-mini", 5_270_912, whole=False, length=157))
PREFIX_LM_MINI = _noted(
    _one_stack(t5.T5_MINI, "t5-prefix-lm-mini", 5_270_912, whole=True, length=157)
)

CARDS = (
    SHARED_MINI, SHARED_BASE, HALF_MINI, HALF_BASE, LM_MINI, LM_BASE, PREFIX_LM_MINI,
    PREFIX_LM_BASE,
)  # fmt: skip
