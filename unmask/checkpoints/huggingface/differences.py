"""What transformers cannot open of a model, or computes otherwise."""

from collections.abc import Mapping

from unmask.heads.classification.sequence_classification import (
    SequenceClassification,
    TokenClassification,
)
from unmask.heads.language.language_modeling import (
    AppendedMaskGeneration,
    LanguageModeling,
)
from unmask.heads.pretraining.autoregressive_characters import AutoregressiveCharacters
from unmask.heads.question_answering import QuestionAnswering
from unmask.heads.spec import HeadSpec
from unmask.heads.tagging.bilstm_crf import BiLSTMCRF
from unmask.zoo.catalogue import MODELS
from unmask.zoo.native_format import NATIVE_PREFIX as OWN_WORDS
from unmask.zoo.native_format import inexpressible_keys
from unmask.zoo.preset import (
    Published,
    question_answering_head,
    token_classification_head,
)
from unmask.zoo.unsupported_classes import unsupported_reason


def heads_without_transformers_class(
    preset: Published, head_specs: Mapping[str, HeadSpec]
) -> dict[str, str]:
    """Describe the heads that no class of transformers has, by name.

    The class is the one that has the most of the others.
    """
    own = {
        n: said
        for n, s in head_specs.items()
        if (said := _head_without_class(preset, s)) is not None
    }
    left = [n for n, s in head_specs.items() if n not in own and s.is_kept_after_pretraining]
    classes = preset.config_mapping.class_names_of(preset.architecture)
    class_of = max((k for k in classes if set(k) <= set(left)), key=len)
    return own | {n: type(head_specs[n]).__name__ for n in left if n not in class_of}


def transformers_difference(preset: Published, head_specs: Mapping[str, HeadSpec]) -> str | None:
    """Say what transformers does otherwise than a model that it opens; None: all is equal."""
    there = preset.config_mapping.in_transformers
    return preset.config_mapping.difference(preset.architecture, head_specs) if there else None


def opening_note(preset: Published, head_specs: Mapping[str, HeadSpec]) -> str | None:
    """Say what opens a model of which transformers lacks something; None: it opens all of it."""
    if not preset.config_mapping.in_transformers:
        return (
            f"{_native_format_note(preset)}transformers has no class of this network: "
            "`unmask.load` opens it"
        )
    other = transformers_difference(preset, head_specs)
    own = heads_without_transformers_class(preset, head_specs)
    said = [
        line for line in (_missing_head_note(preset, head_specs, own), other) if line is not None
    ]
    return "; ".join(said) or None


def _missing_head_note(
    preset: Published, head_specs: Mapping[str, HeadSpec], native_heads: Mapping[str, str]
) -> str | None:
    """Return the head that transformers does not open, and if it has such a class, the reason."""
    if not native_heads:
        return next(
            (said for spec in head_specs.values() if (said := _head_difference(spec))), None
        )
    which, rest = (
        ("its", "model below the head") if len(native_heads) == len(head_specs) else ("a", "rest")
    )
    name, head = next(iter(native_heads.items()))
    why = unsupported_reason(name, preset.config_mapping.class_names[()])
    return (
        f"{which} head is {head}, which transformers does not have"
        f"{'' if why is None else f' ({why})'}: that opens the {rest}, `unmask.load` opens both"
    )


def _native_format_note(preset: Published) -> str:
    """Return the settings that the family's format cannot express; none if the format is native."""
    if not preset.config_mapping.model_type.startswith(OWN_WORDS):
        return ""
    keys = inexpressible_keys(
        preset, next(one for one in MODELS.values() if one.family == preset.family)
    )
    said = ", ".join(f"architecture.{key}" for key in keys) or "this architecture"
    return f"the format of {preset.family} cannot say {said}, so it is in our words: "


def _head_difference(spec: HeadSpec) -> str | None:
    """Say what the other library does otherwise with a head that it has."""
    forward = spec.generation if isinstance(spec, LanguageModeling) else None
    if isinstance(forward, AppendedMaskGeneration) and forward.answers_source:
        return "transformers fills masks with it and does not write; `unmask.load` does both"
    if forward is not None and forward.shifted_targets:
        return (
            "each place names the token after its own, which transformers takes for its own; "
            "`unmask.load` fills masks as they were learned"
        )
    if forward is not None and forward.bidirectional_prompt:
        return (
            "it sees a prompt as a whole, which transformers reads forward; `unmask.load` does as "
            "it was learned"
        )
    return None


def _head_without_class(preset: Published, spec: HeadSpec) -> str | None:
    if isinstance(spec, BiLSTMCRF | AutoregressiveCharacters):
        return type(spec).__name__
    if isinstance(spec, TokenClassification | QuestionAnswering):
        usual = (
            token_classification_head(preset)
            if isinstance(spec, TokenClassification)
            else question_answering_head(preset)
        )
        return (
            None
            if spec.transform == usual.transform
            else f"{type(spec).__name__}(transform={spec.transform})"
        )
    if not isinstance(spec, SequenceClassification) or preset.classification_head is None:
        return None
    pools = (
        {} if preset.config_mapping.pooling_key is None else preset.config_mapping.pooling_key[1]
    )
    pool = {} if spec.pooling in pools.values() else {"pooling": spec.pooling}
    read = {**pool, "pooled_layers": spec.pooled_layers}
    other = [f"{n}={x!r}" for n, x in read.items() if x != getattr(preset.classification_head, n)]
    return f"{type(spec).__name__}({', '.join(other)})" if other else None
