"""Explanation of an objective on a text: inputs, targets, visibility (`unmask hide MODEL TEXT`).

`explain_example` computes tokens with roles and targets, `ObjectiveExplanation.styled_lines` a
layout in columns that is complete without color, and `to_rich` the colors.
"""

import string
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import numpy as np

from unmask.batch import IGNORE_INDEX, Example
from unmask.objectives.features import (
    Recurrence,
    ShiftedTargets,
    SubwordTargets,
    TwoStream,
    WeightedTargets,
)
from unmask.objectives.objective import AnyObjective
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
    """Whether who sees whom is what the ranks of tokens say."""

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
            }
        )

    def styled_lines(self, width: int = 80) -> Iterator[list[tuple[str, str]]]:
        """Lay out lines of (text, style) for a terminal, with targets below the tokens."""
        if self.source is not None:
            yield [("inputs of the encoder", "label")]
            yield from _layout_block(self.source, width)
        who = "the model" if self.source is None else "the decoder"
        yield [(f"inputs of {who}", "label"), (", targets below", "shown")]
        yield from _layout_block(self.inputs, width)
        if self.label is not None:
            yield from _wrapped_note("text label", self.label, width)
        yield from _wrapped_note("attention", self.visibility, width)
        yield [(f"{'targets':{_MARGIN}}", "label"), *_role_counts(self.inputs)]
        roles = [role for role in _ROLE_MEANINGS if any(cell.role == role for cell in self.inputs)]
        if roles:
            meanings = "; ".join(f"{role}: {_ROLE_MEANINGS[role]}" for role in roles)
            yield from _wrapped_note("", meanings, width)
        if self.weighting is not None:
            yield from _wrapped_note("loss", self.weighting, width)

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
    example: Example, tokenizer: PieceTokenizer, objective: AnyObjective
) -> ObjectiveExplanation:
    """Explain the inputs, targets and visibility of an example."""
    special = tokenizer.special_ids
    roles = _token_roles(example.inputs, special)
    description = (
        objective.visibility_description if isinstance(objective, DescribesVisibility) else None
    )
    if description is None and (not example.has(ShiftedTargets) or example.rank is None):
        roles = _target_roles(example, roles, special)
    two = example.segments if example.part_ids is None else example.part_ids
    segments = None if two is None else (two - two.min()).tolist()
    source = None
    if example.source is not None:
        kinds = _token_roles(example.source, special)
        for i in np.flatnonzero(example.source == special.mask).tolist():
            kinds[i] = "masked"
        pairs = zip(_visible_pieces(example.source, tokenizer), kinds, strict=True)
        source = tuple(ExplainedToken(piece, role) for piece, role in pairs)
    languages = _languages(example, special)
    subwords = example.has(SubwordTargets)
    answers = _require_output_vocabulary(special) if subwords else tokenizer
    targets = iter(_visible_pieces(example.targets[example.targets != IGNORE_INDEX], answers))
    inputs = tuple(
        ExplainedToken(
            piece,
            role,
            next(targets) if target != IGNORE_INDEX else None,
            None if segments is None else segments[i],
            languages[i],
        )
        for i, (piece, role, target) in enumerate(
            zip(
                _visible_pieces(example.inputs, tokenizer),
                roles,
                example.targets.tolist(),
                strict=True,
            )
        )
    )
    return ObjectiveExplanation(
        source=source,
        inputs=inputs,
        loss_terms=objective.loss_terms,
        visibility=_describe_visibility(example) if description is None else description,
        label=_describe_label(example, objective),
        weighting=_describe_weighting(example),
        has_ranks=description is None and not (example.rank is None and example.has(TwoStream)),
    )


def _token_record(token: ExplainedToken) -> dict[str, object]:
    record: dict[str, object] = {
        "piece": token.piece,
        "role": token.role,
        "asked": token.target,
        "segment": token.segment,
    }
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
    for place in np.flatnonzero(example.targets != IGNORE_INDEX).tolist():
        if subwords is None:
            where = np.array([place + example.has(ShiftedTargets)])
            answer = None if two_stream else example.targets[[place]]
        else:
            where = np.flatnonzero(subwords.position_of == place)
            answer = (
                None if two_stream else _spell_subword(int(example.targets[place]), special_ids)
            )
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
            answer = cell.target or ""
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
    return max(display_width(cell.piece), display_width(cell.target or ""))


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


def _describe_visibility(example: Example) -> str:
    rank = example.rank
    if rank is None and example.has(TwoStream):
        return "each word is predicted from those before it, and once more from those after it"
    before = "each token attends to those before it"
    after = "each token attends to those after it"
    if rank is None:
        parts = example.part_ids is not None and example.part_ids.any()
        ahead = (
            "; a masked token is predicted at the position before it"
            if example.has(ShiftedTargets)
            else ""
        )
        places = example.position_ids
        anew = "" if places is None or (np.diff(places) == 1).all() else "; positions start anew"
        return f"every token attends to every token{' of its own part' if parts else ahead + anew}"
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
        decoder_visibility = before
    elif (np.diff(rank) == -1).all():
        decoder_visibility = after
    elif (rank[:n] == rank[0]).all() and (np.diff(rank[n - 1 :]) == 1).all():
        decoder_visibility = (
            f"the first {n} tokens attend to each other, each later one to those before it"
        )
    else:
        decoder_visibility = "each token attends to those of its own rank and of lower ones"
    if example.source is None:
        return decoder_visibility
    places = "" if example.position_ids is None else "; its positions are those in the text"
    return (
        f"encoder: every token attends to every token; decoder: {decoder_visibility}, and to all "
        f"of the encoder{places}"
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
