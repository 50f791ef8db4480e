"""Let a model choose among given texts: by the likelihood of each, or token by token."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from unmask.adapters.prefix import decoder, room
from unmask.generation.decode import candidates, texts
from unmask.generation.reading import at_rest
from unmask.generation.rows import Rows
from unmask.generation.settings import decoding
from unmask.generation.texts import Text
from unmask.heads.model import Model
from unmask.tokens.vocabulary import Special

AT_ONCE = 64
"""Choices that are read together."""


@dataclass(frozen=True)
class Chosen:
    """One of the choices."""

    choice: int
    """Which one, counted from 0."""
    score: float
    """Its log-probability after the prompt, the sum over its tokens."""


def choose(
    model: Model,
    prompts: Sequence[Sequence[int]],
    choices: Sequence[Sequence[Sequence[int]]],
    special: Special,
    *,
    beams: int | None = None,
) -> list[list[Chosen]]:
    """Say which of its choices is the likeliest after each prompt, the likeliest first.

    The end token counts as the last token of each choice where prompts are answered
    (`Model.answers`), and wherever a choice begins with another one.

    Args:
        model: a decoder or an encoder-decoder.
        prompts: their tokens, special ones included.
        choices: for each prompt, the tokens of its choices.
        special: of the vocabulary.
        beams: None: all choices are read. Otherwise only the tokens that lead to one are said, by a
            beam search with so many beams; 1 is greedy. That reads less where there are many
            choices, gives at most so many, and may miss the likeliest.

    Raises:
        ValueError: the model does not generate; a prompt and its choices are longer than its
            positions; a choice is empty, is given twice, or begins another one in a model without
            an end token.
    """
    how = decoding(new_tokens=max((len(c) for some in choices for c in some), default=0) + 1)
    whole = [_ended(some, special, model.answers) for some in choices]
    asked = texts(model, prompts, special, how)
    length = room(model, decoder(model))
    for i, (text, some) in enumerate(zip(asked, whole, strict=True), 1):
        longest = max(map(len, some))
        if length is not None and len(text.read) + longest - 1 > length:
            raise ValueError(
                f"prompt {i} has {len(text.read)} tokens and its longest choice {longest}, but the "
                f"model has only {length} positions"
            )
    if beams is None:
        with at_rest(model):
            return [_read(model, *one, special) for one in zip(asked, whole, strict=True)]
    guides = [Among(some) for some in whole]
    how = decoding(
        beams=beams,
        best=beams,
        length_penalty=0.0,
        early_stopping=True,
        new_tokens=how.new_tokens,
    )
    found = candidates(model, prompts, special, how, guides=guides)
    return [
        [Chosen([tuple(c) for c in some].index(one.ids), one.score) for one in best]
        for best, some in zip(found, choices, strict=True)
    ]


class Among:
    """A guide that lets only the tokens follow that lead to one of some texts."""

    def __init__(self, choices: Sequence[Sequence[int]]) -> None:
        self._after: dict[tuple[int, ...], dict[int, None]] = {}
        for choice in choices:
            for n, token in enumerate(choice):
                self._after.setdefault(tuple(choice[:n]), {})[token] = None

    def over(self, said: Sequence[int]) -> bool:
        """Say whether nothing leads on from here."""
        return not self.allowed(said)

    def allowed(self, said: Sequence[int]) -> Sequence[int]:
        """List the tokens that lead on."""
        return list(self._after.get(tuple(said), ()))


def _ended(
    choices: Sequence[Sequence[int]], special: Special, always: bool
) -> list[tuple[int, ...]]:
    """Check choices, and add the end token where it tells one from another."""
    known = [tuple(choice) for choice in choices]
    if not known:
        raise ValueError("there is no choice")
    if () in known:
        raise ValueError(f"choice {known.index(()) + 1} has no token")
    for i, one in enumerate(known):
        if one in known[:i]:
            raise ValueError(f"choices {known.index(one) + 1} and {i + 1} are the same tokens")
    begin = {one[:n] for one in known for n in range(1, len(one))}
    if not always and begin.isdisjoint(known):
        return known
    if special.end is None:
        raise ValueError("a choice begins with another one, and there is no end token to tell them")
    return [(*one, special.end) for one in known]


def _read(
    model: Model, text: Text, choices: Sequence[tuple[int, ...]], special: Special
) -> list[Chosen]:
    """Read the prompt once and every choice after it."""
    found: list[Chosen] = []
    for start in range(0, len(choices), AT_ONCE):
        some = choices[start : start + AT_ONCE]
        rows = Rows(model, [text.prompt()], special)
        logs = rows.scores().log_softmax(-1)  # [1 1 v]
        width = max(map(len, some))
        ids = torch.tensor([[*c, *[special.pad] * (width - len(c))] for c in some])
        ids = ids.to(logs.device)  # [c width]
        logs = logs.expand(len(some), -1, -1)
        if width > 1:
            rows.keep(torch.zeros(len(some), dtype=torch.long, device=logs.device))
            rows.say(ids[:, :-1])
            logs = torch.cat((logs, rows.scores(width - 1).log_softmax(-1)), 1)
        each = logs.gather(-1, ids[..., None])[..., 0].tolist()
        found += [
            Chosen(start + i, sum(row[: len(c)]))
            for i, (row, c) in enumerate(zip(each, some, strict=True))
        ]
    return sorted(found, key=lambda one: -one.score)
