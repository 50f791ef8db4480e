"""Names of pretraining objectives: `mlm`, `clm`, `rtd:generator_size=0.25`.

A name stands for an objective and its heads. Options follow a colon. An objective that wraps
another one, or adds heads to it, follows a plus: `mlm:rate=0.3+nsp`. Objectives are adapted to a
network in `unmask.zoo.objectives.adapt_preset`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from unmask.config import from_dict, to_dict, unknown_key_message
from unmask.heads.pretraining.corrective_lm import CorrectiveLM
from unmask.heads.pretraining.generator import Generator
from unmask.heads.pretraining.replaced_token_detection import ReplacedTokenDetection
from unmask.heads.pretraining.span_boundary import SpanBoundaryObjective
from unmask.heads.spec import HeadSpec
from unmask.objectives import published as values
from unmask.objectives.corrupt import MaskedNextToken, MaskInPlace
from unmask.objectives.denoising.denoise import DenoisingObjective
from unmask.objectives.denoising.noise import (
    DocumentRotation,
    SentencePermutation,
    TextInfilling,
    TokenDeletion,
    TokenMaskingNoise,
    TokenPermutation,
)
from unmask.objectives.denoising.replace_spans import DropTokens, ReplaceSpans
from unmask.objectives.inputs.characters import BidirectionalWordLM, SubwordMasking
from unmask.objectives.mixtures import StaticMasking
from unmask.objectives.objective import Objective
from unmask.objectives.published import ObjectiveSpec
from unmask.objectives.select import (
    NGramMasking,
    RandomSpanMasking,
    ScheduledRate,
    SuffixMasking,
    TokenMasking,
    TokenSpanMasking,
    WholeWordMasking,
)
from unmask.objectives.sentence_pairs.pairs import (
    CropContrastiveObjective,
    SentencePairObjective,
    SplitTextObjective,
)
from unmask.objectives.sentence_pairs.tasks import (
    NextSentencePrediction,
    NextTextDiscrimination,
    SentenceOrderPrediction,
)
from unmask.objectives.sentence_pairs.translation import TranslationLM
from unmask.objectives.unified_lm.visibility import Seq2SeqLM, UnidirectionalLM
from unmask.word_vectors.train.trainer import WORD_VECTOR_METHODS

LANGUAGE_HEAD = "language"
"""The language head, defined by the preset."""
TOKEN_HEADS: Mapping[str, HeadSpec] = {
    "generator": Generator(),
    "replaced": ReplacedTokenDetection(),
    "corrected": CorrectiveLM(),
    "boundary": SpanBoundaryObjective(),
}
"""Token heads of objectives besides the language head, or in its place."""

_CORRUPTION_OPTIONS = {
    "mask": "corrupt.mask_probability",
    "random": "corrupt.random_token_probability",
}
_MASKING_OPTIONS = {"rate": "select.rate", **_CORRUPTION_OPTIONS}
_GENERATOR_OPTIONS = {
    "rate": "select.rate",
    "mask": "corrupt.mask_probability",
    "generator_size": "generator/width_factor",
    "generator_layers": "generator/n_layers",
}


@dataclass(frozen=True, kw_only=True)
class ObjectivePreset:
    """A named objective and its options."""

    description: str
    """Prediction task in one line, and the paper."""
    objective: ObjectiveSpec
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of options -> paths: `select.rate` of the objective, `generator/width_factor` of a
    head."""
    heads: tuple[str, ...] = (LANGUAGE_HEAD,)
    """Heads that predict tokens of the text."""
    wraps_objective: bool = False
    """Whether it may follow a plus and wraps the preceding objective."""
    adds_heads: bool = False
    """Whether it may follow a plus and adds its heads to those of the preceding objective."""


def _noise_preset(about: str, noise: Any, **options: str) -> ObjectivePreset:
    paths = {option: f"noises.0.{path}" for option, path in options.items()}
    return ObjectivePreset(description=about, objective=DenoisingObjective((noise,)), options=paths)


OBJECTIVE_PRESETS: Mapping[str, ObjectivePreset] = {
    # Corrupted in place.
    "mlm": ObjectivePreset(
        description="masked language modeling (BERT)",
        objective=values.MASKED_LM,
        options=_MASKING_OPTIONS,
    ),
    "whole-word": ObjectivePreset(
        description="masked language modeling of whole words (BERT, 2019)",
        objective=Objective(WholeWordMasking(rate=0.15), MaskInPlace()),
        options=_MASKING_OPTIONS,
    ),
    "ngram": ObjectivePreset(
        description="masked n-grams of up to three words (ALBERT)",
        objective=Objective(NGramMasking(rate=0.15), MaskInPlace()),
        options={**_MASKING_OPTIONS, "longest": "select.max_ngram"},
    ),
    "spans": ObjectivePreset(
        description="masked spans of words (SpanBERT)",
        objective=values.SPANBERT,
        options={
            **_MASKING_OPTIONS,
            "p": "select.geometric_p",
            "longest": "select.max_span_length",
        },
    ),
    "token-spans": ObjectivePreset(
        description="masked spans of one to three tokens (UniLM)",
        objective=Objective(
            TokenSpanMasking(rate=0.15, length_weights=(0.8, 0.1, 0.1)), MaskInPlace()
        ),
        options=_MASKING_OPTIONS,
    ),
    "scheduled-rate": ObjectivePreset(
        description="masked language modeling with a decaying masking rate (GPT-BERT, section 3)",
        objective=Objective(ScheduledRate(0.3, TokenMasking(0.15)), MaskInPlace()),
        options={
            "first": "select.initial_rate",
            "rate": "select.final_selection.rate",
            **_CORRUPTION_OPTIONS,
        },
    ),
    "masked-diffusion": ObjectivePreset(
        description="masked tokens at a rate drawn for each text, loss divided by it (MDLM, LLaDA)",
        objective=values.MASKED_DIFFUSION,
        options={"least": "corrupt.min_rate"},
    ),
    "mntp": ObjectivePreset(
        description="masked tokens, each predicted at the position before it (GPT-BERT)",
        objective=Objective(TokenMasking(0.15), MaskedNextToken()),
        options=_MASKING_OPTIONS,
    ),
    "rtd": ObjectivePreset(
        description="replaced token detection, with a smaller generator (ELECTRA)",
        objective=values.ELECTRA,
        heads=("generator", "replaced"),
        options={**_GENERATOR_OPTIONS, "weight": "replaced/weight"},
    ),
    "corrective": ObjectivePreset(
        description="detection and correction of replaced tokens (COCO-LM)",
        objective=values.COCO_LM.objective,
        heads=("generator", "corrected"),
        options={**_GENERATOR_OPTIONS, "copy_weight": "corrected/copy_weight"},
    ),
    # Causal or partially ordered attention.
    "clm": ObjectivePreset(
        description="causal language modeling (GPT)", objective=values.CAUSAL_LM
    ),
    "plm": ObjectivePreset(
        description="permutation language modeling (XLNet)",
        objective=values.XLNET.objective,
        options={"context": "select.context_factor", "longest": "select.max_span_length"},
    ),
    "unidirectional": ObjectivePreset(
        description="masked tokens, with attention in one direction (UniLM)",
        objective=UnidirectionalLM(values.MASKED_LM),
        options={"direction": "direction"},
        wraps_objective=True,
    ),
    "seq2seq-lm": ObjectivePreset(
        description="masked tokens of a source, and of a target with causal attention (UniLM)",
        objective=Seq2SeqLM(values.MASKED_LM),
        wraps_objective=True,
    ),
    "unilm": ObjectivePreset(
        description="masked tokens, under a mixture of four attention masks (UniLM)",
        objective=values.UNILM,
    ),
    "gpt-bert": ObjectivePreset(
        description="`mntp`, and causal language modeling in one text of sixteen (GPT-BERT)",
        objective=values.GPT_BERT,
    ),
    # Source and target: encoder-decoder, or one after the other in a single stack.
    "prefix-lm": ObjectivePreset(
        description="continuation of a prefix with bidirectional attention (T5, section 3.2.1)",
        objective=Objective(SuffixMasking(), DropTokens()),
        options={"rate": "select.rate"},
    ),
    "span-corruption": ObjectivePreset(
        description="spans that are replaced by sentinels (T5)",
        objective=values.T5,
        options={"rate": "select.rate", "mean": "select.mean_span_length"},
    ),
    "token-corruption": ObjectivePreset(
        description="tokens that are replaced by sentinels, adjacent ones by one "
        "(T5, section 3.3.2)",
        objective=Objective(TokenMasking(0.15), ReplaceSpans()),
        options={"rate": "select.rate"},
    ),
    "dropped": ObjectivePreset(
        description="deleted tokens (T5, section 3.3.2)",
        objective=Objective(TokenMasking(0.15), DropTokens()),
        options={"rate": "select.rate"},
    ),
    "dropped-spans": ObjectivePreset(
        description="deleted spans (T5, table 3, with spans)",
        objective=Objective(RandomSpanMasking(), DropTokens()),
        options={"rate": "select.rate", "mean": "select.mean_span_length"},
    ),
    "mass": ObjectivePreset(
        description="a masked fragment, half of the text (MASS)",
        objective=values.MASS,
        options={"rate": "select.rate", **_CORRUPTION_OPTIONS},
    ),
    "token-masking": _noise_preset(
        "the text, from one with masked tokens (T5, BERT-style)",
        TokenMaskingNoise(TokenMasking(0.15), random_token_probability=0.1),
        rate="select.rate",
        random="random_token_probability",
    ),
    "infilling": _noise_preset(
        "the text, from one with a mask for each span (BART)",
        TextInfilling(rate=0.3, mean_span_length=3.0),
        rate="rate",
        mean="mean_span_length",
        random="random_token_probability",
        of="unit",
    ),
    "deletion": _noise_preset(
        "the text, from one with deleted tokens (BART)", TokenDeletion(), rate="select.rate"
    ),
    "permutation": _noise_preset(
        "the text, from shuffled sentences (BART)", SentencePermutation(), share="fraction"
    ),
    "rotation": _noise_preset(
        "the text, from a rotation of it (BART)", DocumentRotation(), share="probability"
    ),
    "deshuffling": _noise_preset("the text, from shuffled tokens (T5)", TokenPermutation()),
    "bart": ObjectivePreset(
        description="the text, from shuffled sentences with a mask for each span (BART)",
        objective=values.BART,
    ),
    "ul2": ObjectivePreset(
        description="mixture of seven denoisers with mode tokens (UL2)", objective=values.UL2
    ),
    # Combined with another objective.
    "static": ObjectivePreset(
        description="static masking: a few corruptions of each text, reused (RoBERTa, section 4.1)",
        objective=StaticMasking(values.MASKED_LM),
        options={"times": "n_variants"},
        wraps_objective=True,
    ),
    "nsp": ObjectivePreset(
        description="next-sentence prediction (BERT)",
        objective=SentencePairObjective(values.MASKED_LM, NextSentencePrediction()),
        options={
            "elsewhere": "sentence_task.random_probability",
            "short": "sentence_task.short_probability",
            "single": "sentence_task.single_sentences",
        },
        wraps_objective=True,
    ),
    "sop": ObjectivePreset(
        description="sentence-order prediction (ALBERT)",
        objective=SentencePairObjective(values.MASKED_LM, SentenceOrderPrediction()),
        options={
            "swapped": "sentence_task.swap_probability",
            "short": "sentence_task.short_probability",
        },
        wraps_objective=True,
    ),
    "tlm": ObjectivePreset(
        description="masked tokens of translation pairs, in both languages (XLM)",
        objective=TranslationLM(values.MASKED_LM),
        wraps_objective=True,
    ),
    "neighbor": ObjectivePreset(
        description="contrastive: which of many texts follows? (DeCLUTR, quick-thoughts)",
        objective=SplitTextObjective(values.MASKED_LM, NextTextDiscrimination()),
        options={"shortest": "sentence_task.min_tokens"},
        wraps_objective=True,
    ),
    "contrastive": ObjectivePreset(
        description="contrastive: which of many texts is a crop of this one? (COCO-LM)",
        objective=CropContrastiveObjective(values.MASKED_LM),
        options={"keep": "crop_fraction"},
        wraps_objective=True,
    ),
    "sbo": ObjectivePreset(
        description="span boundary objective: a span's tokens from its boundaries (SpanBERT)",
        objective=values.SPANBERT,
        heads=(LANGUAGE_HEAD, "boundary"),
        options={
            **_MASKING_OPTIONS,
            "longest": "boundary/max_span_length",
            "weight": "boundary/weight",
        },
        adds_heads=True,
    ),
    # Sentences and characters.
    "skip-thoughts": ObjectivePreset(
        description="the words of the previous and the next sentence (skip-thoughts)",
        objective=values.SKIP_THOUGHTS,
        options={"shortest": "min_mean_tokens"},
        heads=(),
    ),
    "quick-thoughts": ObjectivePreset(
        description="contrastive: the previous and the next sentence (quick-thoughts)",
        objective=values.QUICK_THOUGHTS,
        options={"shortest": "min_mean_tokens"},
        heads=(),
    ),
    "characters": ObjectivePreset(
        description="characters of masked words, in a random order (CANINE-C)",
        objective=values.CANINE_C,
        options={"rate": "select.rate", "mask": "corrupt.mask_probability"},
        heads=(),
    ),
    "subwords": ObjectivePreset(
        description="masked subwords of a character sequence (CANINE-S)",
        objective=SubwordMasking(values.MASKED_LM),
        heads=(),
    ),
    "bidirectional-lm": ObjectivePreset(
        description="each word, from the words before it and from those after it (ELMo)",
        objective=BidirectionalWordLM(),
        heads=(),
    ),
}
"""Objectives by name, in the order of docs/objectives.md."""


@dataclass(frozen=True, kw_only=True)
class NamedObjective:
    """An objective with its heads, as parsed from a name."""

    objective: ObjectiveSpec
    heads: tuple[str, ...]
    """All heads that predict tokens of the text."""
    head_options: Mapping[str, Mapping[str, Any]]
    """Options of heads: {"generator": {"width_factor": 0.25}}."""


def is_objective_name(value: object) -> bool:
    """Return whether a value is the name of an objective; otherwise it is a table or a kind."""
    return isinstance(value, str) and value[:1].islower()


def parse_objective(text: str) -> NamedObjective:
    """Parse `NAME[:option=value,...][+NAME...]`.

    Raises:
        ValueError: a name or option is unknown, a value is invalid, or names cannot be combined.
    """
    parts = [_parse_part(text, part.strip()) for part in text.split("+")]
    found = parts[0][1]
    for name, part in parts[1:]:
        found = _combine(text, found, name, part)
    return found


def describe_objective(objective: Any, heads: Collection[str]) -> str:
    """Name an objective as `parse_objective` takes it, with what each name stands for.

    Options that differ from those of a name are written, heads' own apart. An objective that no
    name stands for is called by its type.

    Args:
        objective: a value of it.
        heads: names of the heads that it trains.
    """
    detecting = {*heads} & TOKEN_HEADS.keys() - {"boundary"}
    matches = list[tuple[str, ObjectivePreset]]()
    for part in _layers_of(objective):
        for name, preset in OBJECTIVE_PRESETS.items():
            detects = bool(detecting) and detecting == {*preset.heads}
            is_same = not preset.adds_heads and _shape(part) == _shape(preset.objective)
            if (detects and not preset.wraps_objective and not matches) or (
                is_same and (matches or not detecting)
            ):
                matches = [*matches] if preset.wraps_objective else []
                matches.append((name + _changed_options(preset, part), preset))
                break
    if "boundary" in heads:
        matches.append(("sbo", OBJECTIVE_PRESETS["sbo"]))
    if not matches:
        about = (type(objective).__doc__ or "").partition("\n\n")[0].rstrip(".")
        return f"{type(objective).__name__}: {' '.join(about.split())}"
    names, presets = zip(*matches, strict=True)
    return f"{'+'.join(names)}: {'; '.join(preset.description for preset in presets)}"


def _layers_of(objective: Any) -> list[Any]:
    """Return the innermost objective first, then those that wrap it."""
    inner = getattr(objective, "objective", None)
    return [objective] if inner is None else [*_layers_of(inner), objective]


def _shape(value: Any) -> Any:
    """Return the types that an objective is made of, those of an inner objective apart."""
    if isinstance(value, tuple):
        return tuple(map(_shape, value))
    if not is_dataclass(value):
        return value if isinstance(value, bool) else None
    parts = (getattr(value, f.name) for f in fields(value) if f.name != "objective")
    return type(value), *(shape for shape in map(_shape, parts) if shape is not None)


def _changed_options(preset: ObjectivePreset, objective: Any) -> str:
    """Write the options of an objective that differ from those of its name."""
    usual, changed_values = to_dict(preset.objective), to_dict(objective)
    changed = list[str]()
    for option, path in preset.options.items():
        try:
            before, now = (_get_option(plain, path) for plain in (usual, changed_values))
        except (KeyError, IndexError):  # of a head, or of another way to select
            continue
        if now != before:
            changed.append(f"{option}={now:g}" if isinstance(now, float) else f"{option}={now}")
    return f":{','.join(changed)}" if changed else ""


def _get_option(plain: Any, path: str) -> Any:
    """Return the value at a path in plain data."""
    for key in path.split("."):
        plain = plain[int(key) if key.isdecimal() else key]
    return plain


def _parse_part(text: str, part: str) -> tuple[str, NamedObjective]:
    name, colon, options_text = part.partition(":")
    if name not in OBJECTIVE_PRESETS:
        raise ValueError(f"objective {text!r}: {_unknown_objective(name)}")
    preset = OBJECTIVE_PRESETS[name]
    plain, of_heads = to_dict(preset.objective), dict[str, dict[str, Any]]()
    for option, value in _parse_options(text, name, options_text) if colon else ():
        if option not in preset.options:
            raise ValueError(
                f"objective {text!r}: {name}: {unknown_key_message(option, preset.options)}"
            )
        head, slash, key = preset.options[option].partition("/")
        if slash:
            of_heads.setdefault(head, {})[key] = value
        else:
            _set_option(plain, preset.options[option], value)
    try:
        objective = from_dict(type(preset.objective), plain)
        for head, changes in of_heads.items():
            from_dict(type(TOKEN_HEADS[head]), to_dict(TOKEN_HEADS[head]) | changes, head)
    except ValueError as error:
        raise ValueError(f"objective {text!r}: {error}") from None
    return name, NamedObjective(objective=objective, heads=preset.heads, head_options=of_heads)


def _set_option(plain: Any, path: str, value: Any) -> None:
    """Set the value at a path in plain data; a number in the path is an index of a list."""
    *outer, last = path.split(".")
    for key in outer:
        plain = plain[int(key) if key.isdecimal() else key]
    plain[last] = value


def _unknown_objective(name: str) -> str:
    if name in _WORD_VECTOR_OBJECTIVES:
        return f"{name} is a method for word vectors, not an objective of a network"
    return unknown_key_message(name, OBJECTIVE_PRESETS).replace("unknown key", "unknown name")


_WORD_VECTOR_OBJECTIVES = tuple(kind.__name__.lower() for kind in WORD_VECTOR_METHODS)


def _parse_options(text: str, name: str, options_text: str) -> list[tuple[str, Any]]:
    options: list[tuple[str, Any]] = []
    for assignment in options_text.split(","):
        option, equals, value = (x.strip() for x in assignment.partition("="))
        if not equals or not option or not value:
            names = ", ".join(OBJECTIVE_PRESETS[name].options) or "none"
            raise ValueError(
                f"objective {text!r}: {name} has options as option=value, got {assignment!r} "
                f"(known: {names})"
            )
        options.append((option, _parse_value(value)))
    return options


def _parse_value(text: str) -> Any:
    """Parse a number, true, false or none; anything else is a string."""
    words = {"true": True, "false": False, "none": None}
    if text in words:
        return words[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _combine(text: str, before: NamedObjective, name: str, part: NamedObjective) -> NamedObjective:
    """Wrap an objective in another one, or add the heads of another one to it."""
    preset = OBJECTIVE_PRESETS[name]
    of_heads = {**before.head_options, **part.head_options}
    if preset.adds_heads:
        heads = tuple(dict.fromkeys((*before.heads, *part.heads)))
        return replace(before, heads=heads, head_options=of_heads)
    if not preset.wraps_objective:
        can = ", ".join(
            n for n, p in OBJECTIVE_PRESETS.items() if p.wraps_objective or p.adds_heads
        )
        raise ValueError(f"objective {text!r}: only {can} may follow a plus, got {name}")
    plain = to_dict(part.objective) | {"objective": to_dict(before.objective)}
    try:
        objective = from_dict(type(part.objective), plain)
    except ValueError as error:
        raise ValueError(
            f"objective {text!r}: {name} cannot be combined with what precedes it: {error}"
        ) from None
    return NamedObjective(objective=objective, heads=before.heads, head_options=of_heads)
