"""What a model sees of a text and what it is asked, for people: `unmask hide MODEL "text"`.

Data first (`explain`: cells with roles, and the answers asked of them), then layout in columns that
says everything without color too (`Explanation.lines`), then color (`render`).
"""

import string
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import numpy as np

from unmask.batch import IGNORE, Example
from unmask.channels import line as on_a_line
from unmask.channels import plain_json
from unmask.hiding.hide import AnyObjective
from unmask.hiding.questions import OF_SENTENCES
from unmask.tokens.vocabulary import Beside, Special, Subwords

if TYPE_CHECKING:
    from rich.text import Text

Role = Literal["shown", "masked", "replaced", "kept", "unseen", "sentinel", "special"]
"""Of a token that the model reads: of those that are asked in their own place, `masked` hides the
answer, `replaced` is a wrong one and `kept` the right one; `unseen` is the right one, which what
asks does not see."""

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
class Pieces(Protocol):
    """What is needed of a tokenizer."""

    @property
    def special(self) -> Special:
        """What is special among its ids."""
        ...

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Say what a person should see for each id."""
        ...


@runtime_checkable
class Telling(Protocol):
    """An objective that says itself who sees whom: its examples have no order of reading."""

    @property
    def sees(self) -> str:
        """Say who sees whom."""
        ...


@dataclass(frozen=True)
class Cell:
    """A token that the model reads."""

    piece: str
    role: Role
    asked: str | None = None
    """The answer wanted here; None: nothing is asked."""
    segment: int | None = None
    """Of two texts, or the parts of one, the one that it belongs to, from 0."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """An example for a person's eyes."""

    source: tuple[Cell, ...] | None
    """What the encoder reads, if there is one."""
    inputs: tuple[Cell, ...]
    """What the decoder reads, or the only stack there is."""
    asks: tuple[str, ...]
    sees: str
    """Who sees whom."""
    label: str | None
    """The answer wanted of the whole text."""

    def to_json(self) -> str:
        """Write all of it as a line of JSON."""
        return plain_json(asdict(self))

    def lines(self, width: int = 80) -> Iterator[list[tuple[str, str]]]:
        """Lay it out for a terminal: lines of (text, style); answers stand under the tokens."""
        if self.source is not None:
            yield [("the encoder reads", "label")]
            yield from _block(self.source, width)
        who = "the model" if self.source is None else "the decoder"
        yield [(f"{who} reads", "label"), (", and is asked for what stands below", "shown")]
        yield from _block(self.inputs, width)
        if self.label is not None:
            yield from _note("of the whole", self.label, width)
        yield from _note("who sees whom", self.sees, width)
        yield [(f"{'asked':{_MARGIN}}", "label"), *_summary(self.inputs)]
        roles = [role for role in _MEANINGS if any(cell.role == role for cell in self.inputs)]
        if roles:
            meanings = "; ".join(f"{role}: {_MEANINGS[role]}" for role in roles)
            yield from _note("", meanings, width)

    def plain(self, width: int = 80) -> str:
        """Lay it out without color."""
        lines = ("".join(text for text, _ in line).rstrip() for line in self.lines(width))
        return "\n".join(lines)

    def render(self, width: int = 80) -> "Text":
        """Lay it out in color, for a console of rich's."""
        from rich.text import Text

        lines = (Text.assemble(*((t, STYLES[s]) for t, s in line)) for line in self.lines(width))
        return Text("\n", no_wrap=True, overflow="ignore").join(lines)


def explain(example: Example, tokenizer: Pieces, objective: AnyObjective) -> Explanation:
    """Say what a model sees of an example and what it is asked."""
    special = tokenizer.special
    roles = _roles(example.inputs, special)
    told = objective.sees if isinstance(objective, Telling) else None
    if told is None and (not example.ahead or example.rank is None):
        roles = _hidden_roles(example, roles, special)
    two = example.segments if example.part is None else example.part
    segments = None if two is None else (two - two.min()).tolist()
    source = None
    if example.source is not None:
        kinds = _roles(example.source, special)
        for i in np.flatnonzero(example.source == special.mask).tolist():
            kinds[i] = "masked"
        pairs = zip(_shown(example.source, tokenizer), kinds, strict=True)
        source = tuple(Cell(piece, role) for piece, role in pairs)
    answers = tokenizer if example.asked_at is None else _beside(special)
    asked = iter(_shown(example.targets[example.targets != IGNORE], answers))
    inputs = tuple(
        Cell(
            piece,
            role,
            next(asked) if target != IGNORE else None,
            None if segments is None else segments[i],
        )
        for i, (piece, role, target) in enumerate(
            zip(_shown(example.inputs, tokenizer), roles, example.targets.tolist(), strict=True)
        )
    )
    return Explanation(
        source=source,
        inputs=inputs,
        asks=objective.asks,
        sees=_sees(example) if told is None else told,
        label=_label(example, objective),
    )


def _roles(ids: np.ndarray, special: Special) -> list[Role]:
    sentinels = frozenset(special.sentinels)
    return [
        "sentinel" if i in sentinels else "special" if i in special.ids else "shown"
        for i in ids.tolist()
    ]


def _hidden_roles(example: Example, roles: list[Role], special: Special) -> list[Role]:
    """Tell the tokens that are asked in their own place, or together, by what stands there."""

    def role(read: np.ndarray, answer: np.ndarray) -> Role:
        if (read == special.blank).all():
            return "masked"
        return "kept" if np.array_equal(read, answer) else "replaced"

    told = roles.copy()
    for place in np.flatnonzero(example.targets != IGNORE).tolist():
        if example.asked_at is None:
            where = np.array([place + example.ahead])
            answer = None if example.blind else example.targets[[place]]
        else:
            where = np.flatnonzero(example.asked_at == place)
            answer = None if example.blind else _spelled(int(example.targets[place]), special)
        for i in where.tolist():
            told[i] = "unseen" if answer is None else role(example.inputs[where], answer)
    return told


def _beside(special: Special) -> Beside:
    assert special.subwords is not None  # an example that asks for them was made with them
    return special.subwords


def _spelled(subword: int, special: Special) -> np.ndarray:
    known = _beside(special)
    assert isinstance(known, Subwords)
    return known.spell(subword)


def _shown(ids: np.ndarray, tokenizer: Pieces) -> list[str]:
    return [visible(piece) for piece in tokenizer.pieces(ids.tolist())]


def visible(piece: str) -> str:
    """Write a piece so that it takes its place on a terminal and does nothing else to it."""
    return "".join(_visible(c) for c in piece) or "∅"


def _visible(character: str) -> str:
    return _SIGNS.get(character) or on_a_line(character)


_SIGNS = {" ": "▁", "\n": "⏎"}
"""▁ is SentencePiece's sign of a space."""


def columns(text: str) -> int:
    """Count the columns that a text takes on a terminal."""
    return sum(_columns(c) for c in text)


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _block(cells: Sequence[Cell], width: int) -> Iterator[list[tuple[str, str]]]:
    """Lay cells out in columns, the answers under them, as many rows as it takes."""
    for row in _rows(cells, width - 2):
        name = "  " if row[0].segment is None else _LETTERS[row[0].segment % len(_LETTERS)] + " "
        above: list[tuple[str, str]] = [(name, "label")]
        below: list[tuple[str, str]] = [("  ", "shown")]
        for cell in row:
            answer = cell.asked or ""
            space = _wide(cell) - columns(cell.piece)
            above += [(cell.piece, cell.role), (" " * (space + 1), "shown")]
            style = "answer" if cell.role in ("shown", "special", "sentinel") else cell.role
            below += [(answer, style), (" " * (_wide(cell) - columns(answer) + 1), "shown")]
        yield above
        if any(cell.asked is not None for cell in row):
            yield below
        yield []


def _wide(cell: Cell) -> int:
    return max(columns(cell.piece), columns(cell.asked or ""))


def _rows(cells: Sequence[Cell], width: int) -> Iterator[list[Cell]]:
    row: list[Cell] = []
    taken = 0
    for cell in cells:
        if row and (taken + _wide(cell) > width or cell.segment != row[-1].segment):
            yield row
            row, taken = [], 0
        row.append(cell)
        taken += _wide(cell) + 1
    if row:
        yield row


def _summary(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    n = sum(cell.asked is not None for cell in cells)
    out: list[tuple[str, str]] = [(f"{n} of {len(cells)} places", "shown")]
    for role in _MEANINGS:
        count = sum(cell.role == role for cell in cells)
        if count:
            out += [(", ", "shown"), (f"{count} {role}", role)]
    return out


def _note(name: str, text: str, width: int) -> Iterator[list[tuple[str, str]]]:
    for line in textwrap.wrap(text, max(width - _MARGIN, 20)):
        yield [(f"{name:{_MARGIN}}", "label"), (line, "shown")]
        name = ""


_LETTERS = string.ascii_uppercase
_MARGIN = 15
_MEANINGS = {
    "masked": "a mask stands there",
    "replaced": "another token does",
    "kept": "the answer itself does",
    "unseen": "what asks knows the place alone",
}


def _sees(example: Example) -> str:
    rank = example.rank
    if rank is None and example.blind:
        return "each word is told from those before it, and once more from those after it"
    before = "each token sees those before it"
    after = "each token sees those after it"
    if rank is None:
        parts = example.part is not None and example.part.any()
        ahead = "; what is hidden is asked for in the place before it" if example.ahead else ""
        return "every token sees every token" + (" of its own part" if parts else ahead)
    if example.blind:
        order = (
            "shown tokens see each other; a hidden one is told from these and from the hidden ones "
            "before it in an order"
        )
        kept = f"the first {example.kept} tokens are read first, and see none of the others; "
        return kept + order if example.kept else order
    n = int((rank == rank.min()).sum())
    if (np.diff(rank) == 1).all():
        said = before
    elif (np.diff(rank) == -1).all():
        said = after
    elif (rank[:n] == rank[0]).all() and (np.diff(rank[n - 1 :]) == 1).all():
        said = f"the first {n} tokens see each other, each later one those before it"
    else:
        said = "each token sees those of its own rank and of lower ones"
    if example.source is None:
        return said
    places = "" if example.place is None else "; it is told where in the text it stands"
    return (
        f"encoder: every token sees every token; decoder: {said}, and all of the encoder's{places}"
    )


def _of_sentences(objective: AnyObjective) -> bool:
    return not {*objective.asks}.isdisjoint(OF_SENTENCES)


def _of_sentence(example: Example, objective: AnyObjective) -> str:
    if example.part is None or not example.part.any():
        return "nothing, for there is but one sentence"
    if OF_SENTENCES[0] in objective.asks:
        return "each sentence is asked for the one before it and the one after it, word by word"
    return "each sentence is to find those beside it among all other sentences of the batch"


def _label(example: Example, objective: AnyObjective) -> str | None:
    label = example.label
    if _of_sentences(objective):
        return _of_sentence(example, objective)
    if example.part is not None:
        what = "a part of A" if "crop" in objective.asks else "what followed A"
        among = f"B is {what}, to be told from those of other texts"
        return among if example.part.any() else "nothing, for the text is too short for two parts"
    if label is None or isinstance(label, np.ndarray):
        return None
    if label == IGNORE:
        return "nothing, for there is but one text"
    if "sentence_order" in objective.asks:
        return f"{label}: A and B " + ("are swapped" if label else "stand in their order")
    return f"{label}: B " + ("comes from elsewhere" if label else "is what follows A")
