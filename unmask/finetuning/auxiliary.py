"""A language model's loss beside the task's own: Radford et al. 2018, section 3.2, equation 5.

L3 = L2 + weight L1: the decoder also says the next token of what it reads, which the paper found to
help with larger data sets (section 5). Deviates: each loss is a mean over what it asks, labels or
tokens; the equation has sums.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from unmask.batch import IGNORE, Example
from unmask.finetuning.ask import LANGUAGE
from unmask.finetuning.kinds.kind import language_spec
from unmask.heads.labels import Labels
from unmask.heads.language import Language
from unmask.heads.model import HeadSpec, Model
from unmask.model.architecture import Architecture
from unmask.published.card import Published


def with_language(
    heads: Mapping[str, HeadSpec], card: Published, weight: float | None
) -> dict[str, HeadSpec]:
    """Add a head that names tokens to those of a task; of weight 0 none.

    Args:
        heads: of the task.
        card: of the model.
        weight: None: what the card's paper has, where the task's head labels whole texts.

    Raises:
        ValueError: the model is no decoder, or says its answers in words anyway.
    """
    if weight is None:
        labelled = any(isinstance(spec, Labels) for spec in heads.values())
        weight = card.finetuning.auxiliary if labelled else 0.0
    if not weight:
        return dict(heads)
    a = card.architecture
    if not isinstance(a, Architecture) or not a.causal or LANGUAGE in heads:
        raise ValueError(
            f"auxiliary is the weight of a language model's loss beside that of a decoder's head; "
            f"{card.name} has none such in this task (heads: {', '.join(heads)})"
        )
    return {**heads, LANGUAGE: replace(language_spec(card), weight=weight)}


def weight_of(heads: Mapping[str, HeadSpec]) -> float:
    """Return the weight of the language model's loss beside the task's; 0: there is none."""
    _, *beside = heads.values()
    return sum((spec.weight for spec in beside if isinstance(spec, Language)), 0.0)


def with_next(example: Example) -> Example:
    """Ask for the token after each but the last; of a text in two parts, but the last of each."""
    targets = np.append(example.inputs[1:], IGNORE)
    if example.part is not None:
        targets[np.flatnonzero(np.diff(example.part))] = IGNORE
    return replace(example, targets=targets)


def without_language(model: Model) -> None:
    """Remove the head that named tokens beside another."""
    del model.heads[LANGUAGE]
    del model.specs[LANGUAGE]
