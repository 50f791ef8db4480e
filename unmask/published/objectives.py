"""What a model can be asked in pretraining, by name: `mlm`, `clm`, `rtd:generator_size=0.25`.

A name stands for an objective and the heads that answer it; options follow a colon, and what goes
around another objective, or beside it, follows a plus: `mlm:rate=0.3+nsp`. How an objective is
fitted to a network is in `unmask.published.fit`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from unmask.config import from_dict, to_dict, unknown
from unmask.heads.boundary import Boundary
from unmask.heads.corrected import Corrected
from unmask.heads.generator import Generator
from unmask.heads.model import HeadSpec
from unmask.heads.replaced import Replaced
from unmask.hiding import objectives as values
from unmask.hiding.beside import Apart, BesideCrop, Pair
from unmask.hiding.choose import (
    Falling,
    NGrams,
    Spans,
    Tail,
    TokenRuns,
    Tokenwise,
    Words,
)
from unmask.hiding.conceal import Dropped, InPlace, PlaceBefore, Sentinels
from unmask.hiding.denoise import Denoise
from unmask.hiding.hide import Hide
from unmask.hiding.in_part import OneWay, SourceTarget
from unmask.hiding.mixture import Static
from unmask.hiding.noise import (
    DocumentRotation,
    SentencePermutation,
    TextInfilling,
    TokenDeletion,
    TokenMasking,
    TokenPermutation,
)
from unmask.hiding.objectives import Objective
from unmask.hiding.questions import Neighbors, NextSentence, SentenceOrder
from unmask.hiding.spelled import FromBothSides, Spelled
from unmask.vectors.learning import METHODS

LANGUAGE = "language"
"""The head that names tokens: which one, the card says."""
HEADS: Mapping[str, HeadSpec] = {
    "generator": Generator(),
    "replaced": Replaced(),
    "corrected": Corrected(),
    "boundary": Boundary(),
}
"""Heads for the tokens of a text that an objective may have beside that, or in its place."""

_PLACES = {"mask": "conceal.mask", "random": "conceal.random"}
_HIDDEN = {"rate": "choose.rate", **_PLACES}
_GENERATED = {
    "rate": "choose.rate",
    "mask": "conceal.mask",
    "generator_size": "generator/size",
    "generator_layers": "generator/n_layers",
}


@dataclass(frozen=True, kw_only=True)
class Preset:
    """An objective by name, with what can be said of it after a colon."""

    about: str
    """What is hidden or asked, in a line, and where it was published."""
    objective: Objective
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of options -> where they stand: `choose.rate` of the objective, `generator/size` of a
    head."""
    heads: tuple[str, ...] = (LANGUAGE,)
    """That answer for the tokens of the text."""
    around: bool = False
    """It may follow a plus: what stands before that is its own `objective`."""
    beside: bool = False
    """It may follow a plus: its heads are asked the same, beside those that are asked already."""


def _noise(about: str, noise: Any, **options: str) -> Preset:
    paths = {option: f"noises.0.{path}" for option, path in options.items()}
    return Preset(about=about, objective=Denoise((noise,)), options=paths)


PRESETS: Mapping[str, Preset] = {
    # Hidden where they stand.
    "mlm": Preset(
        about="masked tokens (BERT)", objective=values.MASKED, options=_HIDDEN
    ),
    "whole-word": Preset(
        about="masked whole words (BERT, 2019)",
        objective=Hide(Words(rate=0.15), InPlace()),
        options=_HIDDEN,
    ),
    "ngram": Preset(
        about="masked runs of up to three words (ALBERT)",
        objective=Hide(NGrams(rate=0.15), InPlace()),
        options={**_HIDDEN, "longest": "choose.longest"},
    ),
    "spans": Preset(
        about="masked spans of words (SpanBERT)",
        objective=values.SPANBERT,
        options={**_HIDDEN, "p": "choose.p", "longest": "choose.longest"},
    ),
    "token-spans": Preset(
        about="masked runs of one to three tokens (UniLM)",
        objective=Hide(TokenRuns(rate=0.15, shares=(0.8, 0.1, 0.1)), InPlace()),
        options=_HIDDEN,
    ),
    "scheduled-rate": Preset(
        about="masked tokens, ever fewer from the first step to the last (GPT-BERT, section 3)",
        objective=Hide(Falling(0.3, Tokenwise(0.15)), InPlace()),
        options={"first": "choose.first", "rate": "choose.last.rate", **_PLACES},
    ),
    "mntp": Preset(
        about="masked next tokens: each is asked in the place before its own (GPT-BERT)",
        objective=Hide(Tokenwise(0.15), PlaceBefore()),
        options=_HIDDEN,
    ),
    "rtd": Preset(
        about="replaced tokens, which a smaller network makes, are detected (ELECTRA)",
        objective=values.ELECTRA,
        heads=("generator", "replaced"),
        options={**_GENERATED, "weight": "replaced/weight"},
    ),
    "corrective": Preset(
        about="replaced tokens are detected and corrected (COCO-LM)",
        objective=values.COCO_LM.objective,
        heads=("generator", "corrected"),
        options={**_GENERATED, "copy_weight": "corrected/copy_weight"},
    ),
    # Read forward, or in part.
    "clm": Preset(about="the next token (GPT)", objective=values.GPT),
    "plm": Preset(
        about="tokens in a random order (XLNet)",
        objective=values.XLNET.objective,
        options={"context": "choose.context", "longest": "choose.longest"},
    ),
    "unidirectional": Preset(
        about="masked tokens of a text that is read one way (UniLM)",
        objective=OneWay(values.MASKED),
        options={"direction": "direction"},
        around=True,
    ),
    "seq2seq-lm": Preset(
        about="masked tokens of a source, and of a target that is read forward (UniLM)",
        objective=SourceTarget(values.MASKED),
        around=True,
    ),
    "unilm": Preset(about="four ways to read masked tokens (UniLM)", objective=values.UNILM),
    "gpt-bert": Preset(
        about="masked next tokens, and one text of sixteen read forward (GPT-BERT)",
        objective=values.GPT_BERT,
    ),
    # Read by an encoder, said by a decoder; in one stack, one after the other.
    "prefix-lm": Preset(
        about="the rest of a text whose beginning is read as a whole (T5, section 3.2.1)",
        objective=Hide(Tail(), Dropped()),
        options={"rate": "choose.rate"},
    ),
    "span-corruption": Preset(
        about="spans that sentinels stand for (T5)",
        objective=values.T5,
        options={"rate": "choose.rate", "mean": "choose.mean"},
    ),
    "token-corruption": Preset(
        about="tokens, those side by side together, that sentinels stand for (T5, section 3.3.2)",
        objective=Hide(Tokenwise(0.15), Sentinels()),
        options={"rate": "choose.rate"},
    ),
    "dropped": Preset(
        about="tokens that are gone (T5, section 3.3.2)",
        objective=Hide(Tokenwise(0.15), Dropped()),
        options={"rate": "choose.rate"},
    ),
    "dropped-spans": Preset(
        about="spans that are gone (T5's table 3, with spans)",
        objective=Hide(Spans(), Dropped()),
        options={"rate": "choose.rate", "mean": "choose.mean"},
    ),
    "mass": Preset(
        about="a masked fragment, half of the text (MASS)",
        objective=values.MASS,
        options={"rate": "choose.rate", **_PLACES},
    ),
    "token-masking": _noise(
        "a text with masked tokens, said as a whole (T5, BERT-style)",
        TokenMasking(Tokenwise(0.15), random=0.1),
        rate="choose.rate", random="random",
    ),
    "infilling": _noise(
        "a text with one mask for each of its spans (BART)",
        TextInfilling(rate=0.3, mean=3.0),
        rate="rate", mean="mean", random="random", of="of",
    ),
    "deletion": _noise(
        "a text without some of its tokens (BART)", TokenDeletion(), rate="choose.rate"
    ),
    "permutation": _noise(
        "a text whose sentences are shuffled (BART)", SentencePermutation(), share="share"
    ),
    "rotation": _noise(
        "a text that begins in its middle (BART)", DocumentRotation(), share="share"
    ),
    "deshuffling": _noise("a text whose tokens are shuffled (T5)", TokenPermutation()),
    "bart": Preset(
        about="shuffled sentences, then one mask for each span (BART)", objective=values.BART
    ),
    "ul2": Preset(about="seven denoisers, each with its token (UL2)", objective=values.UL2),
    # Around, or beside, another objective.
    "static": Preset(
        about="hidden in a few ways, which come again (RoBERTa, section 4.1)",
        objective=Static(values.MASKED),
        options={"times": "times"},
        around=True,
    ),
    "nsp": Preset(
        about="does the second text follow the first? (BERT)",
        objective=Pair(values.MASKED, NextSentence()),
        options={
            "elsewhere": "question.random", "short": "question.short", "single": "question.single",
        },
        around=True,
    ),
    "sop": Preset(
        about="are two texts in their order? (ALBERT)",
        objective=Pair(values.MASKED, SentenceOrder()),
        options={"swapped": "question.swapped", "short": "question.short"},
        around=True,
    ),
    "neighbor": Preset(
        about="which of many texts follows this one? (DeCLUTR, quick-thoughts)",
        objective=Apart(values.MASKED, Neighbors()),
        options={"shortest": "question.shortest"},
        around=True,
    ),
    "contrastive": Preset(
        about="which of many texts is a crop of this one? (COCO-LM)",
        objective=BesideCrop(values.MASKED),
        options={"keep": "keep"},
        around=True,
    ),
    "sbo": Preset(
        about="tokens of a span, told from its two ends, too (SpanBERT)",
        objective=values.SPANBERT,
        heads=(LANGUAGE, "boundary"),
        options={**_HIDDEN, "longest": "boundary/longest", "weight": "boundary/weight"},
        beside=True,
    ),
    # Sentences, and what characters spell.
    "skip-thoughts": Preset(
        about="the words of the sentences before and after each (skip-thoughts)",
        objective=values.SKIP_THOUGHTS,
        options={"shortest": "shortest"},
        heads=(),
    ),
    "quick-thoughts": Preset(
        about="which sentences stand before and after each (quick-thoughts)",
        objective=values.QUICK_THOUGHTS,
        options={"shortest": "shortest"},
        heads=(),
    ),
    "characters": Preset(
        about="masked words, character by character in a random order (CANINE-C)",
        objective=values.CANINE_C,
        options={"rate": "choose.rate", "mask": "conceal.mask"},
        heads=(),
    ),
    "subwords": Preset(
        about="masked subwords of a text of characters (CANINE-S)",
        objective=Spelled(values.MASKED),
        heads=(),
    ),
    "bidirectional-lm": Preset(
        about="each word, from those before it and from those after it (ELMo)",
        objective=FromBothSides(),
        heads=(),
    ),
}  # fmt: skip
"""By name; the order is that of the table in docs/objectives.md."""


@dataclass(frozen=True, kw_only=True)
class Named:
    """What a name stands for."""

    objective: Objective
    heads: tuple[str, ...]
    """That answer for the tokens of the text, of which there are no others."""
    of_heads: Mapping[str, Mapping[str, Any]]
    """What is said of them: {"generator": {"size": 0.25}}."""


def is_name(value: object) -> bool:
    """Say whether an objective is named; otherwise it is a table, or the kind of one."""
    return isinstance(value, str) and value[:1].islower()


def read_objective(text: str) -> Named:
    """Read `NAME[:option=value,...][+NAME...]`.

    Raises:
        ValueError: no such name or option, a value that does not fit, or names that do not go
            together.
    """
    parts = [_part(text, part.strip()) for part in text.split("+")]
    found = parts[0][1]
    for name, part in parts[1:]:
        found = _together(text, found, name, part)
    return found


def _part(text: str, part: str) -> tuple[str, Named]:
    name, colon, said = part.partition(":")
    if name not in PRESETS:
        raise ValueError(f"objective {text!r}: {_unknown(name)}")
    preset = PRESETS[name]
    plain, of_heads = to_dict(preset.objective), dict[str, dict[str, Any]]()
    for option, value in _options(text, name, said) if colon else ():
        if option not in preset.options:
            raise ValueError(f"objective {text!r}: {name}: {unknown(option, preset.options)}")
        head, slash, key = preset.options[option].partition("/")
        if slash:
            of_heads.setdefault(head, {})[key] = value
        else:
            _put(plain, preset.options[option], value)
    try:
        objective = from_dict(type(preset.objective), plain)
        for head, changes in of_heads.items():
            from_dict(type(HEADS[head]), to_dict(HEADS[head]) | changes, head)
    except ValueError as error:
        raise ValueError(f"objective {text!r}: {error}") from None
    return name, Named(objective=objective, heads=preset.heads, of_heads=of_heads)


def _put(plain: Any, path: str, value: Any) -> None:
    """Set a part of plain data; a number in the path counts the items of a list."""
    *outer, last = path.split(".")
    for key in outer:
        plain = plain[int(key) if key.isdecimal() else key]
    plain[last] = value


def _unknown(name: str) -> str:
    if name in _METHODS:
        return f"{name} is how word vectors are learned, and no objective of a network"
    return unknown(name, PRESETS).replace("unknown key", "unknown name")


_METHODS = tuple(kind.__name__.lower() for kind in METHODS)


def _options(text: str, name: str, said: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for one in said.split(","):
        option, equals, value = (x.strip() for x in one.partition("="))
        if not equals or not option or not value:
            known = ", ".join(PRESETS[name].options) or "none"
            raise ValueError(
                f"objective {text!r}: {name} has options as option=value, got {one!r} "
                f"(known: {known})"
            )
        found.append((option, _value(value)))
    return found


def _value(text: str) -> Any:
    """Read a number, true, false or none; anything else is a word."""
    words = {"true": True, "false": False, "none": None}
    if text in words:
        return words[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _together(text: str, before: Named, name: str, part: Named) -> Named:
    """Put an objective around another one, or its heads beside those of that."""
    preset = PRESETS[name]
    of_heads = {**before.of_heads, **part.of_heads}
    if preset.beside:
        heads = tuple(dict.fromkeys((*before.heads, *part.heads)))
        return replace(before, heads=heads, of_heads=of_heads)
    if not preset.around:
        can = ", ".join(n for n, p in PRESETS.items() if p.around or p.beside)
        raise ValueError(f"objective {text!r}: only {can} may follow a plus, got {name}")
    plain = to_dict(part.objective) | {"objective": to_dict(before.objective)}
    try:
        objective = from_dict(type(part.objective), plain)
    except ValueError as error:
        raise ValueError(
            f"objective {text!r}: {name} cannot be around what stands before it: {error}"
        ) from None
    return Named(objective=objective, heads=before.heads, of_heads=of_heads)
