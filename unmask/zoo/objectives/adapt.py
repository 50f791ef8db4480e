"""A card that is asked something else than its own objective: what it then needs, and has not.

An objective brings the heads that answer it, what tokens see of a text, and the special tokens that
it puts there; each is changed only where the card's own does not do. What cannot be is refused with
its reason, the same for `unmask hide` and `unmask pretrain`.
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
"""What a head that names tokens is asked."""
_N_SENTINELS = 100
_MODE_TOKENS = ("[NLU]", "[S2S]", "[NLG]")
_SUBWORD_VOCAB_SIZE = 8_192
"""Of a vocabulary that is beside characters where the preset has none."""


def adapt_to_objective(
    preset: Published, asked: ObjectiveSpec | WordVectorMethod | str
) -> Published:
    """Return a preset with another objective, by name or as a value.

    Raises:
        ValueError: there is no such name, or the network does not support it, with the reason.
    """
    said = asked if isinstance(asked, str) else type(asked).__name__
    named = parse_objective(asked) if isinstance(asked, str) else None
    objective = asked if named is None else named.objective
    if isinstance(preset.objective, WORD_VECTOR_METHODS) or isinstance(
        objective, WORD_VECTOR_METHODS
    ):
        return _with_word_vector_method(preset, objective, said)
    assert not isinstance(objective, str)
    if named is None and _supports_objective(preset, objective):
        return replace(preset, objective=objective)
    try:
        made = _adapted(preset, objective, named)
        made.build_without_memory()
    except ValueError as error:
        raise ValueError(f"objective: {preset.name} does not support {said}: {error}") from None
    return made


def resolve_objective(
    preset: Published, asked: ObjectiveSpec | WordVectorMethod | str
) -> ObjectiveSpec | WordVectorMethod:
    """Return the objective as adapted to a preset."""
    return (
        adapt_to_objective(preset, asked).objective
        if is_objective_name(asked)
        else _require_value(asked)
    )


def _require_value(
    asked: ObjectiveSpec | WordVectorMethod | str,
) -> ObjectiveSpec | WordVectorMethod:
    if isinstance(asked, str):
        raise ValueError(f"objective {asked!r} is no name")
    return asked


def _with_word_vector_method(
    preset: Published, objective: ObjectiveSpec | WordVectorMethod | str, said: str
) -> Published:
    """Return a preset of word vectors with another method."""
    if not isinstance(preset.objective, WORD_VECTOR_METHODS):
        raise ValueError(
            f"objective: {preset.name} does not support {said}, a method for word vectors"
        )
    if not isinstance(objective, WORD_VECTOR_METHODS):
        raise ValueError(
            f"objective: {preset.name} does not support {said}: it is a table of word vectors, "
            f"learned by {type(preset.objective).__name__}, and no network that reads a text"
        )
    return replace(preset, objective=objective)


def _supports_objective(preset: Published, objective: ObjectiveSpec) -> bool:
    """Return whether a preset has what an objective needs, as it is."""
    own = preset.objective
    if objective == own:
        return True
    assert not isinstance(own, WORD_VECTOR_METHODS)
    mine, wanted = requirements_of(own), requirements_of(objective)
    terms = {spec.objective_term for spec in available_heads(preset).values()}
    alike = wanted.seq2seq == mine.seq2seq and (
        wanted.seq2seq
        or (wanted.attention_patterns, wanted.forward_mask_segment)
        == (mine.attention_patterns, mine.forward_mask_segment)
    )
    tokens = (
        _add_special_tokens(preset.tokenizer.special_tokens, wanted, boundary=False)
        == preset.tokenizer.special_tokens
    )
    return (
        set(objective.loss_terms) <= terms
        and alike
        and tokens
        and _segments_needed(preset, wanted) is None
    )


def _adapted(
    preset: Published, objective: ObjectiveSpec, named: NamedObjective | None
) -> Published:
    objective, architecture = _adapt_stacks(preset, objective)
    wanted = requirements_of(objective)
    way = _ReadingMode.for_objective(objective, wanted)
    if not architecture.is_encoder_decoder:
        architecture = way.adapted(architecture.decoder_stack)
        if wanted.n_segments > 2:
            architecture = architecture.with_segments(wanted.n_segments)
    heads = _heads_for_objective(replace(preset, architecture=architecture), objective, named, way)
    boundary = any(isinstance(spec, SpanBoundaryObjective) for spec in heads.values())
    vocabulary = preset.tokenizer.vocabulary
    if "subwords" in objective.loss_terms and isinstance(vocabulary, CodePoints):
        vocabulary = CodePointsWithSubwords(_SUBWORD_VOCAB_SIZE)
    frame = _add_special_tokens(preset.tokenizer.special_tokens, wanted, boundary=boundary)
    made = replace(
        preset,
        architecture=architecture,
        heads=heads,
        objective=objective,
        tokenizer=replace(preset.tokenizer, vocabulary=vocabulary, special_tokens=frame),
    )
    if type(architecture) is not type(preset.architecture):
        return with_native_format(made)
    return with_expressible_format(made) if _has_weight_names(made) else with_native_format(made)


def _has_weight_names(preset: Published) -> bool:
    """Return whether the family's format has names for what the language head holds."""
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
    """Fit source and target to the stacks that there are: one after the other where it is one.

    Where nothing is a source, the encoder is asked alone.
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
    """Lay a source and its target in one stack.

    A source is seen as a whole by a network that sees texts so, and a prefix always; otherwise it
    is read forward.
    """
    plain = {"kind": "SingleStackSeq2Seq", "objective": to_dict(objective)}
    prefix = isinstance(objective, Objective) and isinstance(objective.select, SuffixMasking)
    whole = prefix or not a.causal
    if isinstance(preset.objective, SingleStackSeq2Seq):
        whole = prefix or preset.objective.bidirectional_source
    if whole and not prefix:
        try:
            a.with_attention_pattern("prefix", generates=True)
        except ValueError:
            whole = False
    return from_dict(SingleStackSeq2Seq, plain | {"bidirectional_source": whole})


@dataclass(frozen=True)
class _ReadingMode:
    """How a network reads what it is asked, and says text."""

    pattern: AttentionPattern | None
    """None: as it does."""
    generates: bool
    generation: AppendedMaskGeneration | ShiftedTargetGeneration | SourcePrefixGeneration | None

    @classmethod
    def for_objective(
        cls, objective: ObjectiveSpec, wanted: ObjectiveRequirements
    ) -> "_ReadingMode":
        """Return how examples of an objective are read."""
        if isinstance(objective, SingleStackSeq2Seq):
            sees: AttentionPattern = "prefix" if objective.bidirectional_source else "forward"
            return cls(
                sees,
                generates=True,
                generation=SourcePrefixGeneration(objective.bidirectional_source),
            )
        if wanted.seq2seq or not set(TOKEN_TERMS) & set(objective.loss_terms):
            return cls(None, generates=False, generation=None)
        ways = wanted.attention_patterns
        if "next_token" in objective.loss_terms:
            if ways <= {"forward"}:
                return cls("forward", generates=True, generation=None)
            if "bidirectional" not in ways:
                return cls("prefix", generates=True, generation=None)
            return cls(
                "bidirectional" if len(ways) == 1 else "prefix", False, ShiftedTargetGeneration()
            )
        by_mask = (
            None
            if wanted.forward_mask_segment is None
            else AppendedMaskGeneration(wanted.forward_mask_segment)
        )
        return cls("bidirectional" if ways <= {"bidirectional"} else "prefix", False, by_mask)

    def adapted(self, a: StackArchitecture) -> StackArchitecture:
        """Return a network that reads so.

        Raises:
            ValueError: it cannot.
        """
        return (
            a
            if self.pattern is None
            else a.with_attention_pattern(self.pattern, generates=self.generates)
        )


def _segments_needed(preset: Published, wanted: ObjectiveRequirements) -> int | None:
    """Return how many segments are needed where the network tells apart fewer."""
    a = preset.architecture.decoder_stack
    if wanted.n_segments <= 2 or preset.architecture.is_encoder_decoder:
        return None
    return wanted.n_segments if a.with_segments(wanted.n_segments) != a else None


# The heads


def _universal_heads(preset: Published) -> dict[str, HeadSpec]:
    """Return the heads that any model can be asked by."""
    more: dict[str, HeadSpec] = {**PAIR_HEADS}
    labels = (
        SequenceClassification(pooling="mean")
        if preset.classification_head is None
        else preset.classification_head
    )  # T5's are said in words
    return more | {
        question.loss_term: replace(labels, term=question.loss_term, n_labels=2)
        for question in (NextSentencePrediction, SentenceOrderPrediction)
    }


def available_heads(preset: Published) -> dict[str, HeadSpec]:
    """Return the heads that a preset can have: its own, and those that any model can have."""
    return {**_universal_heads(preset), **preset.heads}


def _heads_for_objective(
    preset: Published, objective: ObjectiveSpec, named: NamedObjective | None, way: _ReadingMode
) -> dict[str, HeadSpec]:
    """Return the heads that answer an objective: of the preset where it has them."""
    known = available_heads(preset)
    if named is None:
        own = {n: s for n, s in known.items() if s.objective_term in objective.loss_terms}
        answered = (
            {s.objective_term for s in own.values()} if way.generation is None else set[str]()
        )
        tokens: tuple[str, ...] = (LANGUAGE_HEAD,)
        if answered & set(TOKEN_TERMS):
            tokens = tuple(n for n, s in own.items() if s.objective_term in TOKEN_TERMS)
    else:
        tokens = named.heads
    found: dict[str, HeadSpec] = {}
    for term in objective.loss_terms:
        if term in TOKEN_TERMS:
            said = {} if named is None else named.head_options
            for name in tokens:
                found[name] = _token_head(preset, name, term, way, said.get(name, {}))
        else:
            name, spec = _head_for_term(preset, known, term)
            found[name] = spec
    return found


def _token_head(
    preset: Published, name: str, term: str, way: _ReadingMode, said: Mapping[str, Any]
) -> HeadSpec:
    """Return a head that is asked for tokens."""
    if name != LANGUAGE_HEAD:
        spec = preset.heads.get(name) or TOKEN_HEADS[name]
        return from_dict(type(spec), to_dict(spec) | dict(said), name) if said else spec
    spec = preset.heads.get(LANGUAGE_HEAD)
    if (
        isinstance(spec, LanguageModeling)
        and spec.term == term
        and way.generation in (None, spec.generation)
    ):
        return spec
    some = (
        s
        for s in (*preset.heads.values(), *preset.extra_heads.values())
        if isinstance(s, LanguageModeling)
    )
    base = next(some, LanguageModeling(bias=True))
    decoder = base.query_stream if term == "masked" else None
    if isinstance(decoder, TwoStreamAttention) or term == "permuted":
        decoder = TwoStreamAttention() if term == "permuted" else None
    return replace(base, term=term, query_stream=decoder, generation=way.generation)


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
    made: dict[str, tuple[str, HeadSpec]] = {
        "sentences_said": ("beside", SkipThoughts()),
        "characters": ("characters", AutoregressiveCharacters()),
    }
    if term == "subwords" and isinstance(preset.tokenizer.vocabulary, CodePoints):
        made[term] = "subwords", SubwordPrediction(output_vocab_size=_SUBWORD_VOCAB_SIZE)
    if term in made:
        return made[term]
    why = {
        "subwords": "subwords are predicted by networks that read characters (CANINE)",
        "both_sides": "it needs two directions over words made of characters (ELMo)",
    }
    if term in why:
        raise ValueError(why[term])
    terms = sorted(spec.objective_term for spec in available.values())
    raise ValueError(f"it has no head for {term} (it has {', '.join(terms)})")


# The special tokens


def _add_special_tokens(
    frame: SpecialTokens, wanted: ObjectiveRequirements, *, boundary: bool
) -> SpecialTokens:
    """Add the special tokens that an objective puts into texts."""
    square = frame.pad.startswith("[") or frame.start.startswith("[")
    end = frame.end or ("[SEP]" if square else "</s>")
    if wanted.mask and frame.mask is None and not (wanted.seq2seq and frame.n_sentinels):
        frame = replace(frame, mask="[MASK]" if square else "<mask>")
    if wanted.sentinels and not frame.n_sentinels:
        frame = replace(frame, n_sentinels=_N_SENTINELS)
    if wanted.mode_tokens and not frame.modes:
        frame = replace(frame, modes=_MODE_TOKENS)
    if wanted.separator and not frame.separator:
        frame = replace(frame, separator=(end,), end=end)
    if boundary and not (frame.prefix and frame.suffix):
        frame = replace(
            frame, prefix=frame.prefix or (frame.start,), suffix=frame.suffix or (end,), end=end
        )
    return frame
