"""A card that is asked something else than its own objective: what it then needs, and has not.

An objective brings the heads that answer it, what tokens see of a text, and the special tokens that
it puts there; each is changed only where the card's own does not do. What cannot be is refused with
its reason, the same for `unmask hide` and `unmask pretrain`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from unmask.config import from_dict, to_dict
from unmask.heads.beside import SentencesSaid
from unmask.heads.boundary import Boundary
from unmask.heads.characters import CharactersInTurn
from unmask.heads.labels import Labels
from unmask.heads.language import AfterSource, ByMask, ByNext, Language
from unmask.heads.model import HeadSpec, asked_by
from unmask.heads.neighbors import OF_PARTS
from unmask.heads.subwords import HiddenSubwords
from unmask.hiding.choose import Tail
from unmask.hiding.hide import Hide
from unmask.hiding.needs import Needs, needs
from unmask.hiding.objectives import Objective
from unmask.hiding.one_stack import InOneStack
from unmask.hiding.questions import NextSentence, SentenceOrder
from unmask.model.architecture import Architecture, EncoderDecoderArchitecture, Sees
from unmask.model.decoder import TwoStreams
from unmask.published.card import Published
from unmask.published.objectives import HEADS, LANGUAGE, Named, is_name, read_objective
from unmask.published.own import in_own_words, worded
from unmask.tokens.vocabulary import CodePoints, CodePointsWithSubwords, Frame
from unmask.vectors.learning import METHODS, Method

NAMING = ("masked", "next_token", "permuted", "denoised")
"""What a head that names tokens is asked."""
_SENTINELS = 100
_MODES = ("[NLU]", "[S2S]", "[NLG]")
_SUBWORDS = 8_192
"""Of a vocabulary that stands beside characters where the card has none."""


def fit(card: Published, asked: Objective | Method | str) -> Published:
    """Return a card that is asked an objective, by name or as a value.

    Raises:
        ValueError: there is no such name, or the network cannot be asked so: the reason is told.
    """
    said = asked if isinstance(asked, str) else type(asked).__name__
    named = read_objective(asked) if isinstance(asked, str) else None
    objective = asked if named is None else named.objective
    if isinstance(card.objective, METHODS) or isinstance(objective, METHODS):
        return _of_words(card, objective, said)
    assert not isinstance(objective, str)
    if named is None and _does(card, objective):
        return replace(card, objective=objective)
    try:
        made = _fitted(card, objective, named)
        with torch.device("meta"):
            made.build()
    except ValueError as error:
        raise ValueError(f"objective: {card.name} cannot be asked {said}: {error}") from None
    return made


def objective_of(card: Published, asked: Objective | Method | str) -> Objective | Method:
    """Return the objective, as it is asked of a card."""
    return fit(card, asked).objective if is_name(asked) else _value_of(asked)


def _value_of(asked: Objective | Method | str) -> Objective | Method:
    if isinstance(asked, str):
        raise ValueError(f"objective {asked!r} is no name")
    return asked


def _of_words(card: Published, objective: Objective | Method | str, said: str) -> Published:
    """Return a card of word vectors with another method."""
    if not isinstance(card.objective, METHODS):
        raise ValueError(
            f"objective: {card.name} cannot be asked {said}: that is how word vectors are learned"
        )
    if not isinstance(objective, METHODS):
        raise ValueError(
            f"objective: {card.name} cannot be asked {said}: it is a table of word vectors, "
            f"learned by {type(card.objective).__name__}, and no network that reads a text"
        )
    return replace(card, objective=objective)


def _does(card: Published, objective: Objective) -> bool:
    """Say whether a card has what an objective needs, as it is."""
    own = card.objective
    if objective == own:
        return True
    assert not isinstance(own, METHODS)
    mine, wanted = needs(own), needs(objective)
    terms = {asked_by(name, spec) for name, spec in offered(card).items()}
    alike = wanted.source == mine.source and (
        wanted.source or (wanted.sees, wanted.in_own_place) == (mine.sees, mine.in_own_place)
    )
    tokens = _frame(card.tokenizer.frame, wanted, boundary=False) == card.tokenizer.frame
    return set(objective.asks) <= terms and alike and tokens and _segments(card, wanted) is None


def _fitted(card: Published, objective: Objective, named: Named | None) -> Published:
    objective, architecture = _stacks(card, objective)
    wanted = needs(objective)
    way = _Way.of(objective, wanted)
    if isinstance(architecture, Architecture):
        architecture = way.reading(architecture)
        if 0 < architecture.n_segments < wanted.segments and wanted.segments > 2:
            architecture = replace(architecture, n_segments=wanted.segments)
    heads = _heads(replace(card, architecture=architecture), objective, named, way)
    boundary = any(isinstance(spec, Boundary) for spec in heads.values())
    vocabulary = card.tokenizer.vocabulary
    if "subwords" in objective.asks and isinstance(vocabulary, CodePoints):
        vocabulary = CodePointsWithSubwords(_SUBWORDS)
    frame = _frame(card.tokenizer.frame, wanted, boundary=boundary)
    made = replace(
        card,
        architecture=architecture,
        heads=heads,
        objective=objective,
        tokenizer=replace(card.tokenizer, vocabulary=vocabulary, frame=frame),
    )
    if type(architecture) is not type(card.architecture):
        return in_own_words(made)
    return worded(made) if _has_names(made) else in_own_words(made)


def _has_names(card: Published) -> bool:
    """Say whether the family's format has names for what the language head holds."""
    if (LANGUAGE,) not in card.fields.classes or LANGUAGE not in card.heads:
        return True
    with torch.device("meta"):
        weights = card.build({LANGUAGE: card.heads[LANGUAGE]}).kept()
    try:
        card.names.to_theirs(weights)
    except KeyError:
        return False
    return True


# The network


def _stacks(
    card: Published, objective: Objective
) -> tuple[Objective, Architecture | EncoderDecoderArchitecture]:
    """Fit source and target to the stacks that there are: one after the other where it is one.

    Where nothing is a source, the encoder is asked alone.
    """
    a, source = card.architecture, needs(objective).source
    if source and isinstance(a, EncoderDecoderArchitecture):
        return objective, a
    if isinstance(a, EncoderDecoderArchitecture):
        return objective, a.encoder
    if source:
        return _in_one_stack(card, a, objective), a
    return objective, a


def _in_one_stack(card: Published, a: Architecture, objective: Objective) -> Objective:
    """Lay a source and its target in one stack.

    A source is seen as a whole by a network that sees texts so, and a prefix always; otherwise it
    is read forward.
    """
    plain = {"kind": "InOneStack", "objective": to_dict(objective)}
    prefix = isinstance(objective, Hide) and isinstance(objective.choose, Tail)
    whole = prefix or not a.causal
    if isinstance(card.objective, InOneStack):
        whole = prefix or card.objective.whole
    if whole and not prefix:
        try:
            a.reading("in_part", writes=True)
        except ValueError:
            whole = False
    return from_dict(InOneStack, plain | {"whole": whole})


@dataclass(frozen=True)
class _Way:
    """How a network reads what it is asked, and says text."""

    sees: Sees | None
    """None: as it does."""
    writes: bool
    forward: ByMask | ByNext | AfterSource | None

    @classmethod
    def of(cls, objective: Objective, wanted: Needs) -> "_Way":
        """Return how examples of an objective are read."""
        if isinstance(objective, InOneStack):
            sees: Sees = "in_part" if objective.whole else "forward"
            return cls(sees, writes=True, forward=AfterSource(objective.whole))
        if wanted.source or not set(NAMING) & set(objective.asks):
            return cls(None, writes=False, forward=None)
        ways = wanted.sees
        if "next_token" in objective.asks:
            if ways <= {"forward"}:
                return cls("forward", writes=True, forward=None)
            if "both_ways" not in ways:
                return cls("in_part", writes=True, forward=None)
            return cls("both_ways" if len(ways) == 1 else "in_part", False, ByNext())
        by_mask = None if wanted.in_own_place is None else ByMask(wanted.in_own_place)
        return cls("both_ways" if ways <= {"both_ways"} else "in_part", False, by_mask)

    def reading(self, a: Architecture) -> Architecture:
        """Return a network that reads so.

        Raises:
            ValueError: it cannot.
        """
        return a if self.sees is None else a.reading(self.sees, writes=self.writes)


def _segments(card: Published, wanted: Needs) -> int | None:
    """Return how many segments are needed where the network tells apart fewer."""
    a = card.architecture
    if not isinstance(a, Architecture) or not 0 < a.n_segments < wanted.segments:
        return None
    return wanted.segments if wanted.segments > 2 else None


# The heads


def _without_card(card: Published) -> dict[str, HeadSpec]:
    """Return the heads that any model can be asked by."""
    more: dict[str, HeadSpec] = {**OF_PARTS}
    labels = Labels(pool="mean") if card.labels is None else card.labels  # T5's are said in words
    return more | {
        question.asks: replace(labels, term=question.asks, n_labels=2)
        for question in (NextSentence, SentenceOrder)
    }


def offered(card: Published) -> dict[str, HeadSpec]:
    """Return the heads by which a card can be asked: its own, and those that any model can have."""
    return {**_without_card(card), **card.heads}


def _heads(
    card: Published, objective: Objective, named: Named | None, way: _Way
) -> dict[str, HeadSpec]:
    """Return the heads that answer an objective: of the card where it has them."""
    known = offered(card)
    if named is None:
        own = {n: s for n, s in known.items() if asked_by(n, s) in objective.asks}
        answered = {asked_by(n, s) for n, s in own.items()} if way.forward is None else set[str]()
        tokens: tuple[str, ...] = (LANGUAGE,)
        if answered & set(NAMING):
            tokens = tuple(n for n, s in own.items() if asked_by(n, s) in NAMING)
    else:
        tokens = named.heads
    found: dict[str, HeadSpec] = {}
    for term in objective.asks:
        if term in NAMING:
            said = {} if named is None else named.of_heads
            for name in tokens:
                found[name] = _of_tokens(card, name, term, way, said.get(name, {}))
        else:
            name, spec = _of_term(card, known, term)
            found[name] = spec
    return found


def _of_tokens(
    card: Published, name: str, term: str, way: _Way, said: Mapping[str, Any]
) -> HeadSpec:
    """Return a head that is asked for tokens."""
    if name != LANGUAGE:
        spec = card.heads.get(name) or HEADS[name]
        return from_dict(type(spec), to_dict(spec) | dict(said), name) if said else spec
    spec = card.heads.get(LANGUAGE)
    if isinstance(spec, Language) and spec.term == term and way.forward in (None, spec.forward):
        return spec
    some = (s for s in (*card.heads.values(), *card.others.values()) if isinstance(s, Language))
    base = next(some, Language(bias=True))
    decoder = base.decoder if term == "masked" else None
    if isinstance(decoder, TwoStreams) or term == "permuted":
        decoder = TwoStreams() if term == "permuted" else None
    return replace(base, term=term, decoder=decoder, forward=way.forward)


def _of_term(card: Published, known: Mapping[str, HeadSpec], term: str) -> tuple[str, HeadSpec]:
    """Return the head for something else than tokens.

    Raises:
        ValueError: only some networks have one.
    """
    for name, spec in known.items():
        if asked_by(name, spec) == term:
            return name, spec
    made: dict[str, tuple[str, HeadSpec]] = {
        "sentences_said": ("beside", SentencesSaid()),
        "characters": ("characters", CharactersInTurn()),
    }
    if term == "subwords" and isinstance(card.tokenizer.vocabulary, CodePoints):
        made[term] = "subwords", HiddenSubwords(size=_SUBWORDS)
    if term in made:
        return made[term]
    why = {
        "subwords": "subwords are asked of networks that read characters (CANINE)",
        "both_sides": "it is asked of two readers of words that are spelled (ELMo)",
    }
    if term in why:
        raise ValueError(why[term])
    terms = sorted(asked_by(name, spec) for name, spec in known.items())
    raise ValueError(f"it has no head for {term} (it has {', '.join(terms)})")


# The special tokens


def _frame(frame: Frame, wanted: Needs, *, boundary: bool) -> Frame:
    """Add the special tokens that an objective puts into texts."""
    square = frame.pad.startswith("[") or frame.start.startswith("[")
    end = frame.end or ("[SEP]" if square else "</s>")
    if wanted.mask and frame.mask is None and not (wanted.source and frame.n_sentinels):
        frame = replace(frame, mask="[MASK]" if square else "<mask>")
    if wanted.sentinels and not frame.n_sentinels:
        frame = replace(frame, n_sentinels=_SENTINELS)
    if wanted.modes and not frame.modes:
        frame = replace(frame, modes=_MODES)
    if wanted.separator and not frame.between:
        frame = replace(frame, between=(end,), end=end)
    if boundary and not (frame.before and frame.after):
        frame = replace(
            frame, before=frame.before or (frame.start,), after=frame.after or (end,), end=end
        )
    return frame
