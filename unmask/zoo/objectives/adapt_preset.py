"""Adaptation of a preset to another objective.

An objective needs heads, an attention pattern and special tokens; each is changed only if the
preset's does not suffice. Unsupported objectives are rejected with the reason, in `unmask hide` as
in `unmask pretrain`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from unmask.config import from_dict, to_dict
from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import (
    AppendedMaskGeneration,
    LanguageModeling,
    ShiftedTargetGeneration,
    SourcePrefixGeneration,
)
from unmask.heads.pretraining.autoregressive_characters import AutoregressiveCharacters
from unmask.heads.pretraining.contrastive import PAIR_HEADS
from unmask.heads.pretraining.sentence_reconstruction import SkipThoughts
from unmask.heads.pretraining.span_boundary import SpanBoundaryObjective
from unmask.heads.pretraining.subword_prediction import SubwordPrediction
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import AttentionPattern, BackboneArchitecture, StackArchitecture
from unmask.model.layers.attention.query_stream import TwoStreamAttention
from unmask.objectives.denoising.single_stack import SingleStackSeq2Seq
from unmask.objectives.objective import Objective
from unmask.objectives.published import ObjectiveSpec
from unmask.objectives.select import SuffixMasking
from unmask.objectives.sentence_pairs.tasks import NextSentencePrediction, SentenceOrderPrediction
from unmask.tokenizers.spec import SpecialTokens
from unmask.tokenizers.vocabulary import CodePoints, CodePointsWithSubwords
from unmask.word_vectors.train.trainer import WORD_VECTOR_METHODS, WordVectorMethod
from unmask.zoo.native_format import with_expressible_format, with_native_format
from unmask.zoo.objectives.presets import (
    LANGUAGE_HEAD,
    TOKEN_HEADS,
    NamedObjective,
    is_objective_name,
    parse_objective,
)
from unmask.zoo.objectives.requirements import ObjectiveRequirements, requirements_of
from unmask.zoo.preset import Published

TOKEN_TERMS = ("masked", "next_token", "permuted", "denoised")
"""Loss terms of token prediction."""
_N_SENTINELS = 100
_MODE_TOKENS = ("[NLU]", "[S2S]", "[NLG]")
_SUBWORD_VOCAB_SIZE = 8_192
"""Size of the subword vocabulary if a character-level preset has none."""


def adapt_to_objective(
    preset: Published, requested: ObjectiveSpec | WordVectorMethod | str
) -> Published:
    """Return a preset with another objective, by name or as a value.

    Raises:
        ValueError: the name is unknown, or the network does not support it, with the reason.
    """
    name = requested if isinstance(requested, str) else type(requested).__name__
    named = parse_objective(requested) if isinstance(requested, str) else None
    objective = requested if named is None else named.objective
    if isinstance(preset.objective, WORD_VECTOR_METHODS) or isinstance(
        objective, WORD_VECTOR_METHODS
    ):
        return _with_word_vector_method(preset, objective, name)
    assert not isinstance(objective, str)
    if named is None and _supports_objective(preset, objective):
        return replace(preset, objective=objective)
    try:
        adapted = _adapted(preset, objective, named)
        adapted.build_without_memory()
    except ValueError as error:
        raise ValueError(f"objective: {preset.name} does not support {name}: {error}") from None
    return adapted


def resolve_objective(
    preset: Published, requested: ObjectiveSpec | WordVectorMethod | str
) -> ObjectiveSpec | WordVectorMethod:
    """Return the objective as adapted to a preset."""
    return (
        adapt_to_objective(preset, requested).objective
        if is_objective_name(requested)
        else _require_value(requested)
    )


def _require_value(
    requested: ObjectiveSpec | WordVectorMethod | str,
) -> ObjectiveSpec | WordVectorMethod:
    if isinstance(requested, str):
        raise ValueError(f"objective {requested!r} is not a name")
    return requested


def _with_word_vector_method(
    preset: Published, objective: ObjectiveSpec | WordVectorMethod | str, name: str
) -> Published:
    """Return a preset of word vectors with another method."""
    if not isinstance(preset.objective, WORD_VECTOR_METHODS):
        raise ValueError(
            f"objective: {preset.name} does not support {name}, a method for word vectors"
        )
    if not isinstance(objective, WORD_VECTOR_METHODS):
        raise ValueError(
            f"objective: {preset.name} does not support {name}: it is a table of word vectors, "
            f"trained by {type(preset.objective).__name__}, not a network"
        )
    return replace(preset, objective=objective)


def _supports_objective(preset: Published, objective: ObjectiveSpec) -> bool:
    """Return whether a preset supports an objective unchanged."""
    current = preset.objective
    if objective == current:
        return True
    assert not isinstance(current, WORD_VECTOR_METHODS)
    available, required = requirements_of(current), requirements_of(objective)
    terms = {spec.objective_term for spec in available_heads(preset).values()}
    same_inputs = required.seq2seq == available.seq2seq and (
        required.seq2seq
        or (required.attention_patterns, required.forward_mask_segment)
        == (available.attention_patterns, available.forward_mask_segment)
    )
    tokens = (
        _add_special_tokens(preset.tokenizer.special_tokens, required, boundary=False)
        == preset.tokenizer.special_tokens
    )
    return (
        set(objective.loss_terms) <= terms
        and same_inputs
        and tokens
        and _segments_needed(preset, required) is None
    )


def _adapted(
    preset: Published, objective: ObjectiveSpec, named: NamedObjective | None
) -> Published:
    objective, architecture = _adapt_stacks(preset, objective)
    required = requirements_of(objective)
    mode = _ReadingMode.for_objective(objective, required)
    if not architecture.is_encoder_decoder:
        architecture = mode.adapted(architecture.decoder_stack)
        if required.n_segments > 2:
            architecture = architecture.with_segments(required.n_segments)
    heads = _heads_for_objective(replace(preset, architecture=architecture), objective, named, mode)
    boundary = any(isinstance(spec, SpanBoundaryObjective) for spec in heads.values())
    vocabulary = preset.tokenizer.vocabulary
    if "subwords" in objective.loss_terms and isinstance(vocabulary, CodePoints):
        vocabulary = CodePointsWithSubwords(_SUBWORD_VOCAB_SIZE)
    frame = _add_special_tokens(preset.tokenizer.special_tokens, required, boundary=boundary)
    result = replace(
        preset,
        architecture=architecture,
        heads=heads,
        objective=objective,
        tokenizer=replace(preset.tokenizer, vocabulary=vocabulary, special_tokens=frame),
    )
    if type(architecture) is not type(preset.architecture):
        return with_native_format(result)
    return (
        with_expressible_format(result) if _has_weight_names(result) else with_native_format(result)
    )


def _has_weight_names(preset: Published) -> bool:
    """Return whether the family's format has names for the language head's weights."""
    if (
        LANGUAGE_HEAD,
    ) not in preset.config_mapping.class_names or LANGUAGE_HEAD not in preset.heads:
        return True
    model = preset.build_without_memory({LANGUAGE_HEAD: preset.heads[LANGUAGE_HEAD]})
    weights = model.trained_weights()
    try:
        preset.weight_names.to_external(weights)
    except KeyError:
        return False
    return True


# The network


def _adapt_stacks(
    preset: Published, objective: ObjectiveSpec
) -> tuple[ObjectiveSpec, BackboneArchitecture]:
    """Adapt source and target to the stacks: concatenated in a single one.

    Without a source, only the encoder is used.
    """
    a, source = preset.architecture, requirements_of(objective).seq2seq
    if not source:
        return objective, a.encoder_stack
    if a.is_encoder_decoder:
        return objective, a
    return _to_single_stack(preset, a.decoder_stack, objective), a


def _to_single_stack(
    preset: Published, a: StackArchitecture, objective: ObjectiveSpec
) -> ObjectiveSpec:
    """Concatenate a source and its target for one stack.

    Attention over a source is bidirectional in bidirectional networks, over a prefix always;
    otherwise causal.
    """
    plain = {"kind": "SingleStackSeq2Seq", "objective": to_dict(objective)}
    prefix = isinstance(objective, Objective) and isinstance(objective.select, SuffixMasking)
    bidirectional_source = prefix or not a.causal
    if isinstance(preset.objective, SingleStackSeq2Seq):
        bidirectional_source = prefix or preset.objective.bidirectional_source
    if bidirectional_source and not prefix:
        try:
            a.with_attention_pattern("prefix", generates=True)
        except ValueError:
            bidirectional_source = False
    return from_dict(SingleStackSeq2Seq, plain | {"bidirectional_source": bidirectional_source})


@dataclass(frozen=True)
class _ReadingMode:
    """Attention pattern and generation of a network under an objective."""

    pattern: AttentionPattern | None
    """None: unchanged."""
    generates: bool
    generation: AppendedMaskGeneration | ShiftedTargetGeneration | SourcePrefixGeneration | None

    @classmethod
    def for_objective(
        cls, objective: ObjectiveSpec, required: ObjectiveRequirements
    ) -> "_ReadingMode":
        """Return the mode for the examples of an objective."""
        if isinstance(objective, SingleStackSeq2Seq):
            pattern: AttentionPattern = "prefix" if objective.bidirectional_source else "forward"
            return cls(
                pattern,
                generates=True,
                generation=SourcePrefixGeneration(objective.bidirectional_source),
            )
        if required.seq2seq or not set(TOKEN_TERMS) & set(objective.loss_terms):
            return cls(None, generates=False, generation=None)
        patterns = required.attention_patterns
        if "next_token" in objective.loss_terms:
            if patterns <= {"forward"}:
                return cls("forward", generates=True, generation=None)
            if "bidirectional" not in patterns:
                return cls("prefix", generates=True, generation=None)
            return cls(
                "bidirectional" if len(patterns) == 1 else "prefix",
                False,
                ShiftedTargetGeneration(),
            )
        generation = (
            None
            if required.forward_mask_segment is None
            else AppendedMaskGeneration(required.forward_mask_segment)
        )
        return cls(
            "bidirectional" if patterns <= {"bidirectional"} else "prefix", False, generation
        )

    def adapted(self, a: StackArchitecture) -> StackArchitecture:
        """Return the architecture in this mode.

        Raises:
            ValueError: it does not support it.
        """
        return (
            a
            if self.pattern is None
            else a.with_attention_pattern(self.pattern, generates=self.generates)
        )


def _segments_needed(preset: Published, required: ObjectiveRequirements) -> int | None:
    """Return the number of segments needed, if the network has fewer."""
    a = preset.architecture.decoder_stack
    if required.n_segments <= 2 or preset.architecture.is_encoder_decoder:
        return None
    return required.n_segments if a.with_segments(required.n_segments) != a else None


# The heads


def _universal_heads(preset: Published) -> dict[str, HeadSpec]:
    """Return the heads that any model supports."""
    heads: dict[str, HeadSpec] = {**PAIR_HEADS}
    labels = (
        SequenceClassification(pooling="mean")
        if preset.classification_head is None
        else preset.classification_head
    )  # T5 has none: it predicts labels as words
    return heads | {
        question.loss_term: replace(labels, term=question.loss_term, n_labels=2)
        for question in (NextSentencePrediction, SentenceOrderPrediction)
    }


def available_heads(preset: Published) -> dict[str, HeadSpec]:
    """Return the heads of a preset, and those that any model supports."""
    return {**_universal_heads(preset), **preset.heads}


def _heads_for_objective(
    preset: Published, objective: ObjectiveSpec, named: NamedObjective | None, mode: _ReadingMode
) -> dict[str, HeadSpec]:
    """Return the heads of an objective, those of the preset if it has them."""
    available = available_heads(preset)
    if named is None:
        matching = {n: s for n, s in available.items() if s.objective_term in objective.loss_terms}
        covered_terms = (
            {s.objective_term for s in matching.values()} if mode.generation is None else set[str]()
        )
        tokens: tuple[str, ...] = (LANGUAGE_HEAD,)
        if covered_terms & set(TOKEN_TERMS):
            tokens = tuple(n for n, s in matching.items() if s.objective_term in TOKEN_TERMS)
    else:
        tokens = named.heads
    heads: dict[str, HeadSpec] = {}
    for term in objective.loss_terms:
        if term in TOKEN_TERMS:
            options = {} if named is None else named.head_options
            for name in tokens:
                heads[name] = _token_head(preset, name, term, mode, options.get(name, {}))
        else:
            name, spec = _head_for_term(preset, available, term)
            heads[name] = spec
    return heads


def _token_head(
    preset: Published, name: str, term: str, mode: _ReadingMode, options: Mapping[str, Any]
) -> HeadSpec:
    """Return a head that predicts tokens."""
    if name != LANGUAGE_HEAD:
        spec = preset.heads.get(name) or TOKEN_HEADS[name]
        return from_dict(type(spec), to_dict(spec) | dict(options), name) if options else spec
    spec = preset.heads.get(LANGUAGE_HEAD)
    if (
        isinstance(spec, LanguageModeling)
        and spec.term == term
        and mode.generation in (None, spec.generation)
    ):
        return spec
    language_heads = (
        s
        for s in (*preset.heads.values(), *preset.extra_heads.values())
        if isinstance(s, LanguageModeling)
    )
    base = next(language_heads, LanguageModeling(bias=True))
    decoder = base.query_stream if term == "masked" else None
    if isinstance(decoder, TwoStreamAttention) or term == "permuted":
        decoder = TwoStreamAttention() if term == "permuted" else None
    return replace(base, term=term, query_stream=decoder, generation=mode.generation)


def _head_for_term(
    preset: Published, available: Mapping[str, HeadSpec], term: str
) -> tuple[str, HeadSpec]:
    """Return the head for predictions other than tokens.

    Raises:
        ValueError: only some networks have one.
    """
    for name, spec in available.items():
        if spec.objective_term == term:
            return name, spec
    general: dict[str, tuple[str, HeadSpec]] = {
        "sentences_said": ("beside", SkipThoughts()),
        "characters": ("characters", AutoregressiveCharacters()),
    }
    if term == "subwords" and isinstance(preset.tokenizer.vocabulary, CodePoints):
        general[term] = "subwords", SubwordPrediction(output_vocab_size=_SUBWORD_VOCAB_SIZE)
    if term in general:
        return general[term]
    reasons = {
        "subwords": "subwords are predicted by networks that read characters (CANINE)",
        "both_sides": "it needs two directions over words made of characters (ELMo)",
    }
    if term in reasons:
        raise ValueError(reasons[term])
    terms = sorted(spec.objective_term for spec in available.values())
    raise ValueError(f"it has no head for {term} (it has {', '.join(terms)})")


# The special tokens


def _add_special_tokens(
    special_tokens: SpecialTokens, required: ObjectiveRequirements, *, boundary: bool
) -> SpecialTokens:
    """Add the special tokens that an objective needs."""
    square = special_tokens.pad.startswith("[") or special_tokens.start.startswith("[")
    end = special_tokens.end or ("[SEP]" if square else "</s>")
    if (
        required.mask
        and special_tokens.mask is None
        and not (required.seq2seq and special_tokens.n_sentinels)
    ):
        special_tokens = replace(special_tokens, mask="[MASK]" if square else "<mask>")
    if required.sentinels and not special_tokens.n_sentinels:
        special_tokens = replace(special_tokens, n_sentinels=_N_SENTINELS)
    if required.mode_tokens and not special_tokens.modes:
        special_tokens = replace(special_tokens, modes=_MODE_TOKENS)
    if required.separator and not special_tokens.separator:
        special_tokens = replace(special_tokens, separator=(end,), end=end)
    if boundary and not (special_tokens.prefix and special_tokens.suffix):
        special_tokens = replace(
            special_tokens,
            prefix=special_tokens.prefix or (special_tokens.start,),
            suffix=special_tokens.suffix or (end,),
            end=end,
        )
    return special_tokens
