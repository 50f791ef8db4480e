"""The auxiliary language modeling loss of Radford et al. 2018, section 3.2, equation 5.

L3 = L2 + weight L1: the decoder also predicts the next token of its input, which the paper found to
help with larger data sets (section 5).
Deviates: each loss is a mean over its targets, labels or tokens; the equation has sums.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from unmask.batch import IGNORE_INDEX, Example
from unmask.finetuning.formulations.formulation import LANGUAGE_HEAD, language_modeling_head
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.model import Model
from unmask.heads.spec import HeadSpec
from unmask.zoo.preset import Published


def with_language_head(
    head_specs: Mapping[str, HeadSpec], preset: Published, lm_loss_weight: float | None
) -> dict[str, HeadSpec]:
    """Add a language head to the heads of a task, unless its weight is 0.

    Args:
        head_specs: heads of the task.
        preset: preset of the model.
        lm_loss_weight: weight of the loss. None: that of the preset's paper, if the task classifies
            whole texts.

    Raises:
        ValueError: the model is not a decoder, or already has a language head for the task.
    """
    if lm_loss_weight is None:
        labelled = any(spec.labels_texts for spec in head_specs.values())
        lm_loss_weight = preset.finetuning.lm_loss_weight if labelled else 0.0
    if not lm_loss_weight:
        return dict(head_specs)
    if not preset.architecture.is_decoder_only or LANGUAGE_HEAD in head_specs:
        raise ValueError(
            "lm_loss_weight is the weight of a language model's loss beside that of a decoder's "
            f"head; {preset.name} has none such in this task (heads: {', '.join(head_specs)})"
        )
    return {
        **head_specs,
        LANGUAGE_HEAD: replace(language_modeling_head(preset), weight=lm_loss_weight),
    }


def lm_loss_weight_of(head_specs: Mapping[str, HeadSpec]) -> float:
    """Return the weight of the auxiliary language modeling loss; 0: there is none."""
    _, *beside = head_specs.values()
    return sum((spec.weight for spec in beside if isinstance(spec, LanguageModeling)), 0.0)


def with_next_token_targets(example: Example) -> Example:
    """Set next-token targets for all tokens but the last of the text, or of each of its parts."""
    targets = np.append(example.inputs[1:], IGNORE_INDEX)
    if example.part_ids is not None:
        targets[np.flatnonzero(np.diff(example.part_ids))] = IGNORE_INDEX
    return replace(example, targets=targets)


def remove_language_head(model: Model) -> None:
    """Remove the auxiliary language head."""
    del model.heads[LANGUAGE_HEAD]
    del model.head_specs[LANGUAGE_HEAD]
