"""Explanation of an objective on a text: inputs, targets, visibility (`unmask hide MODEL TEXT`).

`explain_example` computes tokens with roles and targets, `ObjectiveExplanation.styled_lines` a
layout in columns that is complete without color, and `to_rich` the colors.
"""

import string
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int

from unmask.batch import IGNORE_INDEX, Example
from unmask.objectives.described import DescribedInputs, DescribedLoss
from unmask.objectives.features import (
    PredictionOrder,
    RandomTokens,
    Recurrence,
    ShiftedTargets,
    SubwordTargets,
    TwoStream,
    WeightedTargets,
)
from unmask.objectives.objective import AnyObjective
from unmask.objectives.reach import Reach, describe_reaches, reached
from unmask.objectives.sentence_pairs.tasks import ADJACENT_SENTENCE_TERMS
from unmask.output import safe_line as on_a_line
from unmask.output import to_safe_json
from unmask.tokenizers.spec import (
    OutputVocabulary,
    SpecialTokenIds,
    SubwordVocabulary,
    TextLanguages,
)

if TYPE_CHECKING:
    from rich.text import Text

TokenRole = Literal["shown", "masked", "replaced", "kept", "unseen", "sentinel", "special"]
"""Role of an input token. At target positions: `masked`, `replaced` by a random token, `kept`
unchanged, or `unseen`, the target itself, which its query does not attend to."""

STYLES = {
    # The terminal's own colors: none that is pale on white or dark on black.
    "shown": "",
    "masked": "bold magenta",
    "replaced": "bold red",
    "kept": "bold green",
    "unseen": "bold magenta",
    "sentinel": "bold magenta",
    "special": "dim",
    "answer": "italic",
    "label": "bold",
}


@runtime_checkable
class PieceTokenizer(Protocol):
    """What is needed of a tokenizer."""

    @property
    def special_ids(self) -> SpecialTokenIds:
        """The special tokens of its vocabulary."""
        ...

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return a readable text for each id."""
        ...


@runtime_checkable
class DescribesVisibility(Protocol):
    """An objective that says itself who sees whom: its examples have no order of reading."""

    @property
    def visibility_description(self) -> str:
        """Describe the visibility."""
        ...


@runtime_checkable
class DescribesWords(Protocol):
    """An objective of word vectors that says more of the words that it reads."""

    def describe_words(self, words: Sequence[str]) -> str | None:
        """Say what is read of the words; None: their vectors alone."""
        ...


@runtime_checkable
class DescribesExamples(Protocol):
    """What is needed of a head: see `unmask.heads.spec.HeadSpec`."""

    @property
    def reader(self) -> str | None:
        """What reads the inputs first, if it is not the model."""
        ...

    def describe_losses(self, example: Example) -> tuple[DescribedLoss, ...]:
        """Return the losses of an example."""
        ...

    def describe_inputs(
        self, example: Example, drawn: Int[np.ndarray, "t"], source: str
    ) -> tuple[DescribedInputs, ...]:
        """Return further inputs that are read, and what is asked of them."""
        ...


@dataclass(frozen=True, kw_only=True)
class AboutModel:
    """What decides, besides an objective, what a model sees and is asked."""

    facts: tuple[tuple[str, str], ...] = ()
    """Names and sentences that come first: the model, its task, its tokenizer."""
    heads: Sequence[DescribesExamples] = ()
    """The heads that the objective trains."""
    reaches: tuple[Reach, ...] = ()
    """Those of the only stack, or the decoder."""
    source_reaches: tuple[Reach, ...] = ()
    """Those of the encoder."""
    drawn: Int[np.ndarray, "t"] | None = None
    """The inputs with masked tokens drawn. None: no part of the model draws any."""
    drawn_from: str = ""
    """By what they were drawn."""
    also: tuple[str, ...] = ()
    """What it sees besides: a picture, the text before in training."""
    remark: str | None = None
    """What else must be known, at the end."""

    def visible(self, example: Example, n_tokens: int) -> Bool[np.ndarray, "t t"]:
        """Return which of the first `n_tokens` tokens the output at each of them depends on."""
        visible = example.visible()[:n_tokens, :n_tokens]
        return reached(visible, self.reaches) if self.reaches else visible


@dataclass(frozen=True)
class ExplainedToken:
    """A token that the model reads."""

    piece: str
    role: TokenRole
    target: str | None = None
    """The target at this position. None: there is none."""
    segment: int | None = None
    """Of two texts, or the parts of one, the one that it belongs to, from 0."""
    language: str | None = None
    """Its language, where the model is told it by an embedding."""
    turn: int | None = None
    """Of targets that are predicted one after the other, its number, from 1."""

    @property
    def answer(self) -> str:
        """The target as it is shown, after its turn."""
        return (self.target or "") if self.turn is None else f"{self.turn}:{self.target}"


@dataclass(frozen=True, kw_only=True)
class FurtherInputs:
    """What a part of the model reads after, or beside, the inputs."""

    title: str
    tokens: tuple[ExplainedToken, ...]


@dataclass(frozen=True, kw_only=True)
class ObjectiveExplanation:
    """An example for a person's eyes."""

    source: tuple[ExplainedToken, ...] | None
    """What the encoder reads, if there is one."""
    inputs: tuple[ExplainedToken, ...]
    """What the decoder reads, or the only stack there is."""
    loss_terms: tuple[str, ...]
    visibility: str
    """Who sees whom."""
    label: str | None
    """The answer wanted of the whole text."""
    weighting: str | None = None
    """How losses of targets are weighted; None: all alike."""
    has_ranks: bool = True
    """Whether who sees whom is what the ranks of tokens, and the network's layers, say."""
    facts: tuple[tuple[str, str], ...] = ()
    """Names and sentences that come first: the model, its task, its tokenizer."""
    reader: str | None = None
    """What reads the inputs. None: the model, or its decoder."""
    further: tuple[FurtherInputs, ...] = ()
    """What is read besides, and what is asked of it."""
    terms: tuple[DescribedLoss, ...] = ()
    """The losses, with the numbers of predictions."""
    words: str | None = None
    """What is read of the words, besides their vectors."""
    remark: str | None = None
    """What else must be known."""

    def to_json(self) -> str:
        """Write all of it as a line of JSON."""

        def of_tokens(tokens: tuple[ExplainedToken, ...]) -> list[dict[str, object]]:
            return [_token_record(t) for t in tokens]

        return to_safe_json(
            {
                "source": None if self.source is None else of_tokens(self.source),
                "inputs": of_tokens(self.inputs),
                "asks": self.loss_terms,
                "sees": self.visibility,
                "label": self.label,
                "weighting": self.weighting,
                "facts": dict(self.facts),
                "losses": [asdict(term) for term in self.terms],
                "reader": self.reader,
                "further": [
                    {"title": part.title, "inputs": of_tokens(part.tokens)} for part in self.further
                ],
                "words": self.words,
                "note": self.remark,
            }
        )

    def styled_lines(self, width: int = 80) -> Iterator[list[tuple[str, str]]]:
        """Lay out lines of (text, style) for a terminal, with targets below the tokens."""
        for name, text in self.facts:
            yield from _wrapped_note(name, text, width)
        if self.facts:
            yield []
        if self.source is not None:
            yield [("inputs of the encoder", "label")]
            yield from _layout_block(self.source, width)
        who = self.reader or ("the model" if self.source is None else "the decoder")
        below = ", targets below" if any(cell.target for cell in self.inputs) else ""
        yield [(f"inputs of {who}", "label"), (below, "shown")]
        yield from _layout_block(self.inputs, width)
        for part in self.further:
            for line in textwrap.wrap(f"{part.title}, targets below", max(width, 20)):
                yield [(line, "label")]
            yield from _layout_block(part.tokens, width)
        yield from self._notes(width)

    def _notes(self, width: int) -> Iterator[list[tuple[str, str]]]:
        """Lay out what is said below the tokens."""
        sentences = (("words", self.words), ("text label", self.label), ("sees", self.visibility))
        for name, text in sentences:
            if text is not None:
                yield from _wrapped_note(name, text, width)
        if not self.further or any(cell.target is not None for cell in self.inputs):
            yield [(f"{'targets':{_MARGIN}}", "label"), *_role_counts(self.inputs)]
        cells = [*(self.source or ()), *self.inputs, *(c for x in self.further for c in x.tokens)]
        shown = {cell.role for cell in cells}
        meanings = [f"{role}: {text}" for role, text in _ROLE_MEANINGS.items() if role in shown]
        if any(cell.turn is not None for cell in self.inputs):
            meanings.append("the number before a target is its turn")
        if meanings:
            yield from _wrapped_note("", "; ".join(meanings), width)
        losses = [*map(_describe_term, self.terms), *filter(None, [self.weighting])]
        for i, text in enumerate(losses):
            yield from _wrapped_note("" if i else "loss", text, width)
        if self.remark is not None:
            yield from _wrapped_note("note", self.remark, width)

    def to_text(self, width: int = 80) -> str:
        """Lay it out without color."""
        lines = ("".join(text for text, _ in line).rstrip() for line in self.styled_lines(width))
        return "\n".join(lines)

    def to_html(self, model: str) -> str:
        """Raise: pages are of pictures.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"page shows pictures, and {model} reads texts; leave --page out")

    def to_rich(self, width: int = 80) -> "Text":
        """Lay it out in color, for a console of rich's."""
        from rich.text import Text

        lines = (
            Text.assemble(*((t, STYLES[s]) for t, s in line)) for line in self.styled_lines(width)
        )
        return Text("\n", no_wrap=True, overflow="ignore").join(lines)


def explain_example(
    example: Example,
    tokenizer: PieceTokenizer,
    objective: AnyObjective,
    about: AboutModel | None = None,
) -> ObjectiveExplanation:
    """Explain the inputs, targets and visibility of an example, for a model or for any."""
    about = about or AboutModel()
    description = (
        objective.visibility_description if isinstance(objective, DescribesVisibility) else None
    )
    terms = tuple(t for head in about.heads for t in head.describe_losses(example) if t.n != 0)
    drawn = example.inputs if about.drawn is None else about.drawn
    further = tuple(
        FurtherInputs(title=part.title, tokens=_explain_further(part, tokenizer))
        for head in about.heads
        for part in head.describe_inputs(example, drawn, about.drawn_from)
        if len(part.ids)
    )
    words = None
    if isinstance(objective, DescribesWords):
        words = objective.describe_words(tokenizer.pieces(dict.fromkeys(example.inputs.tolist())))
    return ObjectiveExplanation(
        source=_explain_source(example, tokenizer),
        inputs=_explain_inputs(example, tokenizer, objective),
        loss_terms=objective.loss_terms,
        visibility=description or _describe_visibility(example, objective, about),
        label=_describe_label(example, objective),
        weighting=_describe_weighting(example),
        has_ranks=description is None and not (example.rank is None and example.has(TwoStream)),
        facts=about.facts,
        reader=next((head.reader for head in about.heads if head.reader), None),
        further=further,
        terms=terms,
        words=words,
        remark=about.remark,
    )


def _explain_inputs(
    example: Example, tokenizer: PieceTokenizer, objective: AnyObjective
) -> tuple[ExplainedToken, ...]:
    """Explain what the decoder reads, or the only stack."""
    special = tokenizer.special_ids
    roles = _token_roles(example.inputs, special)
    is_target = example.targets != IGNORE_INDEX
    if _is_about_adjacent_sentences(objective):  # the decoders are asked
        is_target = np.zeros_like(is_target)
    elif not isinstance(objective, DescribesVisibility) and (
        not example.has(ShiftedTargets) or example.rank is None
    ):
        roles = _target_roles(example, roles, special)
    two = example.segments if example.part_ids is None else example.part_ids
    segments = [None] * len(is_target) if two is None else (two - two.min()).tolist()
    languages, turns = _languages(example, special), _turns(example)
    subwords = example.has(SubwordTargets)
    answers = _require_output_vocabulary(special) if subwords else tokenizer
    targets = iter(_visible_pieces(example.targets[is_target], answers))
    return tuple(
        ExplainedToken(
            piece,
            role,
            next(targets) if is_target[i] else None,
            segments[i],
            languages[i],
            turns[i] if is_target[i] else None,
        )
        for i, (piece, role) in enumerate(
            zip(_visible_pieces(example.inputs, tokenizer), roles, strict=True)
        )
    )


def _turns(example: Example) -> list[int] | list[None]:
    """Return the turns of targets that are predicted one after the other, in a drawn order."""
    order = example.feature(PredictionOrder)
    key = None if order is None else order.order
    if key is None and example.rank is not None and example.has(TwoStream):
        key = example.rank
    if key is None:
        return [None] * len(example.inputs)
    at = example.targets != IGNORE_INDEX
    turn = np.zeros(len(key), np.int64)
    turn[at] = 1 + key[at].argsort().argsort()
    return turn.tolist()


def _explain_source(
    example: Example, tokenizer: PieceTokenizer
) -> tuple[ExplainedToken, ...] | None:
    """Explain what the encoder reads, if there is one."""
    if example.source is None:
        return None
    special = tokenizer.special_ids
    roles = _token_roles(example.source, special)
    for i in np.flatnonzero(example.source == special.mask).tolist():
        roles[i] = "masked"
    if (random := example.feature(RandomTokens)) is not None:
        for i in random.columns.tolist():
            roles[i] = "replaced"
    if (places := example.position_ids) is not None:  # the source says what the decoder is asked
        for i, target in zip(places.tolist(), example.targets.tolist(), strict=True):
            if i < len(roles) and roles[i] == "shown":
                roles[i] = "kept" if example.source[i] == target else "replaced"
    pairs = zip(_visible_pieces(example.source, tokenizer), roles, strict=True)
    return tuple(ExplainedToken(piece, role) for piece, role in pairs)


def _explain_further(
    part: DescribedInputs, tokenizer: PieceTokenizer
) -> tuple[ExplainedToken, ...]:
    """Explain further inputs: tokens, and places in a span."""
    ids = part.ids
    pieces = iter(_visible_pieces(ids[ids >= 0], tokenizer))
    shown = [next(pieces) if i >= 0 else f"place {-i}" for i in ids.tolist()]
    roles = _token_roles(ids, tokenizer.special_ids)
    if part.replaced is not None:
        for i in np.flatnonzero(part.replaced).tolist():
            roles[i] = "replaced"
    answers = [
        _visible_pieces(np.array([x]), tokenizer)[0] if isinstance(x, int) else x
        for x in part.answers
    ]
    segments = [None] * len(ids) if part.segments is None else part.segments
    return tuple(map(ExplainedToken, shown, roles, answers, segments))


def _describe_term(term: DescribedLoss) -> str:
    weight = "" if term.weight == 1 else f"{term.weight:g} times the "
    count = "" if term.n is None else f", {term.n} prediction{'s' * (term.n != 1)}"
    return f"{term.term}: {weight}{term.loss}{count}"


def _token_record(token: ExplainedToken) -> dict[str, object]:
    record: dict[str, object] = {
        "piece": token.piece,
        "role": token.role,
        "asked": token.target,
        "segment": token.segment,
    }
    if token.turn is not None:
        record["turn"] = token.turn
    return record if token.language is None else record | {"language": token.language}


def _languages(example: Example, special_ids: SpecialTokenIds) -> list[str | None]:
    """Return the name of each token's language, where the model is told it by an embedding."""
    given = example.feature(TextLanguages)
    if given is None:
        return [None] * len(example.inputs)
    names = {i: name for name, i in special_ids.languages}
    return [names.get(i) for i in given.language.tolist()]


def _describe_weighting(example: Example) -> str | None:
    weighted = example.feature(WeightedTargets)
    if weighted is None:
        return None
    factors = sorted({f"{x:.3g}" for x in weighted.weight[example.targets != IGNORE_INDEX]})
    times = f"that of each target times {' or '.join(factors)}, " if factors else ""
    return f"{times}divided by all {weighted.n_tokens} tokens that may be targets"


def _token_roles(ids: np.ndarray, special_ids: SpecialTokenIds) -> list[TokenRole]:
    sentinels = frozenset(special_ids.sentinels)
    return [
        "sentinel" if i in sentinels else "special" if i in special_ids.all_ids else "shown"
        for i in ids.tolist()
    ]


def _target_roles(
    example: Example, roles: list[TokenRole], special_ids: SpecialTokenIds
) -> list[TokenRole]:
    """Return the roles of the tokens at target positions by comparing input and target."""

    def role(read: np.ndarray, answer: np.ndarray) -> TokenRole:
        if (read == special_ids.mask_or_sentinel).all():
            return "masked"
        return "kept" if np.array_equal(read, answer) else "replaced"

    target_roles = roles.copy()
    subwords, two_stream = example.feature(SubwordTargets), example.has(TwoStream)
    if two_stream and example.rank is None:  # two directions, of which each has read the other side
        return target_roles
    for place in np.flatnonzero(example.targets != IGNORE_INDEX).tolist():
        if subwords is None:
            where = np.array([place + example.has(ShiftedTargets)])
            answer = None if two_stream else example.targets[[place]]
        else:
            where = np.flatnonzero(subwords.position_of == place)
            answer = _spell_subword(int(example.targets[place]), special_ids)
        for i in where.tolist():
            target_roles[i] = "unseen" if answer is None else role(example.inputs[where], answer)
    return target_roles


def _require_output_vocabulary(special_ids: SpecialTokenIds) -> OutputVocabulary:
    assert (
        special_ids.output_vocabulary is not None
    )  # examples with such targets were made with these words
    return special_ids.output_vocabulary


def _spell_subword(subword: int, special_ids: SpecialTokenIds) -> np.ndarray:
    known = _require_output_vocabulary(special_ids)
    assert isinstance(known, SubwordVocabulary)
    return known.spell(subword)


def _visible_pieces(ids: np.ndarray, tokenizer: PieceTokenizer) -> list[str]:
    return [visible_piece(piece) for piece in tokenizer.pieces(ids.tolist())]


def visible_piece(piece: str) -> str:
    """Write a piece so that it takes its place on a terminal and does nothing else to it."""
    return "".join(_visible_character(c) for c in piece) or "∅"


def _visible_character(character: str) -> str:
    return _VISIBLE_SIGNS.get(character) or on_a_line(character)


_VISIBLE_SIGNS = {" ": "▁", "\n": "⏎"}
"""▁ is SentencePiece's sign of a space."""


def display_width(string: str) -> int:
    """Count the columns that a text takes on a terminal."""
    return sum(_character_width(c) for c in string)


def _character_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _layout_block(cells: Sequence[ExplainedToken], width: int) -> Iterator[list[tuple[str, str]]]:
    """Lay cells out in columns, the answers under them, as many rows as it takes."""
    widest = max((len(cell.language) + 1 for cell in cells if cell.language), default=0)
    for row in _split_into_rows(cells, width - 2 - widest):
        language = row[0].language
        name = (
            "  "
            if row[0].segment is None
            else _SEGMENT_LETTERS[row[0].segment % len(_SEGMENT_LETTERS)] + " "
        ) + ("" if language is None else f"{language} ")
        above: list[tuple[str, str]] = [(name, "label")]
        below: list[tuple[str, str]] = [(" " * len(name), "shown")]
        for cell in row:
            answer = cell.answer
            space = _cell_width(cell) - display_width(cell.piece)
            above += [(cell.piece, cell.role), (" " * (space + 1), "shown")]
            style = "answer" if cell.role in ("shown", "special", "sentinel") else cell.role
            below += [
                (answer, style),
                (" " * (_cell_width(cell) - display_width(answer) + 1), "shown"),
            ]
        yield above
        if any(cell.target is not None for cell in row):
            yield below
        yield []


def _cell_width(cell: ExplainedToken) -> int:
    return max(display_width(cell.piece), display_width(cell.answer))


def _split_into_rows(cells: Sequence[ExplainedToken], width: int) -> Iterator[list[ExplainedToken]]:
    row: list[ExplainedToken] = []
    taken = 0
    for cell in cells:
        changes = row and (cell.segment, cell.language) != (row[-1].segment, row[-1].language)
        if row and (taken + _cell_width(cell) > width or changes):
            yield row
            row, taken = [], 0
        row.append(cell)
        taken += _cell_width(cell) + 1
    if row:
        yield row


def _role_counts(cells: Sequence[ExplainedToken]) -> list[tuple[str, str]]:
    n = sum(cell.target is not None for cell in cells)
    out: list[tuple[str, str]] = [(f"{n} of {len(cells)} tokens", "shown")]
    for role in _ROLE_MEANINGS:
        count = sum(cell.role == role for cell in cells)
        if count:
            out += [(", ", "shown"), (f"{count} {role}", role)]
    return out


def _wrapped_note(name: str, text: str, width: int) -> Iterator[list[tuple[str, str]]]:
    for line in textwrap.wrap(text, max(width - _MARGIN, 20)):
        yield [(f"{name:{_MARGIN}}", "label"), (line, "shown")]
        name = ""


_SEGMENT_LETTERS = string.ascii_uppercase
_MARGIN = 15
_ROLE_MEANINGS = {
    "masked": "replaced by the mask token",
    "replaced": "replaced by another token",
    "kept": "left as it is",
    "unseen": "the query knows its position alone",
}


def _describe_visibility(example: Example, objective: AnyObjective, about: AboutModel) -> str:
    """Say who sees whom, by the ranks of tokens and the layers of the network."""
    text = _describe_stack(example, objective, about.reaches)
    if example.source is not None:
        source = describe_reaches(about.source_reaches, causal=False)
        encoder = source or "every token attends to every token"
        places = "" if example.position_ids is None else "; its positions are those in the text"
        text = f"encoder: {encoder}; decoder: {text}, and to all of the encoder{places}"
    if _is_about_adjacent_sentences(objective):
        text += _describe_decoders(objective)
    return "; ".join((text, *about.also))


def _describe_stack(example: Example, objective: AnyObjective, reaches: Sequence[Reach]) -> str:
    """Say who sees whom in the only stack, or in the decoder."""
    rank = example.rank
    is_recurrent = bool(reaches) and all(reach.by == "state" for reach in reaches)
    if rank is None and example.has(TwoStream):
        how = "recurrent, without attention: " if is_recurrent else ""
        return (
            f"{how}each word is predicted from those before it, and once more from those after it"
        )
    causal = rank is not None and bool((np.diff(rank) == 1).all())
    limits = describe_reaches(reaches, causal=causal)
    parts = example.part_ids is not None and example.part_ids.any()
    unit = "sentence" if _is_about_adjacent_sentences(objective) else "part"
    in_unit = f" of its own {unit}" if parts else ""
    ahead = (
        "; a masked token is predicted at the position before it"
        if rank is None and example.has(ShiftedTargets) and not parts
        else ""
    )
    if limits is not None and reaches[0].by != "attention":
        how = "recurrent, without attention" if is_recurrent else "without attention"
        limits = f"{how}: {limits}"
    if limits is not None and (rank is None or causal):
        return f"{limits}{f', in its own {unit}' if parts else ''}{ahead}"
    base = _describe_ranks(example) if rank is not None else None
    if base is None:
        places = example.position_ids
        anew = "" if places is None or (np.diff(places) == 1).all() else "; positions start anew"
        return f"every token attends to every token{in_unit or ahead + anew}"
    return base if limits is None else f"{base}; of these, {limits}"


def _describe_ranks(example: Example) -> str:
    """Say who sees whom by the ranks of tokens."""
    rank = example.rank
    assert rank is not None
    if example.has(TwoStream):
        recurrence = example.feature(Recurrence)
        order = (
            "visible tokens attend to each other; a hidden one is predicted from these and from "
            "those before it in a drawn order"
        )
        if recurrence is None:
            return order
        return (
            f"the first {recurrence.reuse_len} tokens are read first, and attend to none of the "
            f"others; {order}"
        )
    n = int((rank == rank.min()).sum())
    if (np.diff(rank) == 1).all():
        return "each token attends to itself and those before it"
    if (np.diff(rank) == -1).all():
        return "each token attends to itself and those after it"
    if (rank[:n] == rank[0]).all() and (np.diff(rank[n - 1 :]) == 1).all():
        return f"the first {n} tokens attend to each other, each later one also to those before it"
    return "each token attends to those of its own rank and of lower ones"


def _describe_decoders(objective: AnyObjective) -> str:
    """Say what predicts the neighbors of a sentence."""
    if ADJACENT_SENTENCE_TERMS[0] not in objective.loss_terms:
        return ""
    return (
        "; the vector of a sentence goes to two decoders, which predict each word of the sentence "
        "before and of the one after from this vector and from the words before it"
    )


def _is_about_adjacent_sentences(objective: AnyObjective) -> bool:
    return not {*objective.loss_terms}.isdisjoint(ADJACENT_SENTENCE_TERMS)


def _describe_adjacent_sentences(example: Example, objective: AnyObjective) -> str:
    if example.part_ids is None or not example.part_ids.any():
        return "none: there is but one sentence"
    if ADJACENT_SENTENCE_TERMS[0] in objective.loss_terms:
        return "each sentence predicts the one before it and the one after it, word by word"
    return "each sentence finds its neighbors among all other sentences of the batch"


def _describe_label(example: Example, objective: AnyObjective) -> str | None:
    label = example.label
    if _is_about_adjacent_sentences(objective):
        return _describe_adjacent_sentences(example, objective)
    if example.part_ids is not None:
        what = "a crop of A" if "crop" in objective.loss_terms else "what followed A"
        among = f"B is {what}, to be found among those of other texts"
        return among if example.part_ids.any() else "none: the text is too short for two parts"
    if label is None or isinstance(label, np.ndarray):
        return None
    if label == IGNORE_INDEX:
        return "none: there is but one text"
    if "sentence_order" in objective.loss_terms:
        return f"{label}: A and B " + ("are swapped" if label else "are in order")
    return f"{label}: B " + ("is from another text" if label else "follows A")
