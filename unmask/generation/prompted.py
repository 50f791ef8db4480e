"""Prompts in words -> what a model reads, and what it says after them, in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Int

from unmask.adapters.prefix import decoder, reader, room
from unmask.generation.decode import generate
from unmask.generation.settings import Decoding
from unmask.generation.wording import Wording
from unmask.heads.model import Model
from unmask.model.transformer import EncoderDecoder
from unmask.tokens.beginning import LONG
from unmask.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Asked:
    """Prompts as they are read."""

    read: list[list[int]]
    begun: list[list[int]]
    """What answers begin with, where it is not read with the prompt."""
    wordings: list[Wording]
    """How what is said after each becomes text."""
    cut: list[int]
    """Tokens of each prompt that did not fit, its first ones."""


@dataclass(frozen=True)
class Written:
    """What a model wrote."""

    text: str
    """The new text alone, `begin` apart."""
    cut: int = 0
    """Tokens of the prompt that did not fit, its first ones."""


def ask(
    model: Model,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    *,
    begin: str = "",
    stop: tuple[str, ...] = (),
    most: int | None = None,
    fits: bool = False,
) -> Asked:
    """Turn prompts into what is read: a decoder goes on from it, others answer (`Model.answers`).

    Special tokens typed in a prompt (<extra_id_0>) are what they name.

    Args:
        model: one that generates.
        tokenizer: the model's own.
        prompts: may be empty.
        begin: what each answer begins with.
        stop: where the text of an answer ends.
        most: of a prompt that has more tokens, special ones included, the beginning is left out;
            None: of none.
        fits: a prompt that has more tokens than the model has positions is refused; of a long one
            no more is read than tells that.

    Raises:
        ValueError: a prompt is too long, `begin` has characters that the tokenizer does not know,
            or it is not said in which language the prompts are; or texts are read from their end.
    """
    tokenizer.check_forward("going on from a prompt")
    special, begun, answers = tokenizer.reader.special, known(tokenizer, begin), model.answers
    if tokenizer.special.untold:
        raise ValueError(
            "this model reads texts of one language and answers in one: name them (`told`; "
            f"--source-language, --target-language), two of "
            f"{', '.join(dict(tokenizer.special.languages))}"
        )
    after = special.after if answers else ()
    texts = prompts if answers else [prompt + begin for prompt in prompts]
    full = _read(model, tokenizer, texts, fits=fits)
    fixed = len(special.before) + len(after)
    gone = [0 if most is None else max(0, fixed + len(ids) - most) for ids in full]
    read = [[*special.before, *ids[n:].tolist(), *after] for ids, n in zip(full, gone, strict=True)]
    first = begun if answers else []
    decode = [partial(_after, tokenizer, [] if answers else ids, first) for ids in read]
    return Asked(read, [first for _ in read], [Wording(one, stop) for one in decode], gone)


def _read(
    model: Model, tokenizer: Tokenizer, texts: Sequence[str], *, fits: bool
) -> list[Int[np.ndarray, "_"]]:
    apart = isinstance(model.backbone, EncoderDecoder)
    most = room(model, reader(model) if apart else decoder(model)) if fits else None
    more = None if most is None else most + 1
    found = tokenizer.reader.first_batch(texts, more, special=True)
    for i, (ids, text) in enumerate(zip(found, texts, strict=True), 1):
        if most is not None and len(text) > LONG and len(ids) > most:
            raise ValueError(
                f"prompt {i} has more than {most} tokens, but the model only {most} positions for "
                "it"
            )
    return found


def known(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the tokens of a text that is to be said.

    Raises:
        ValueError: one of its characters has none.
    """
    ids = tokenizer.encode(text, special=True).ids.tolist()
    if tokenizer.special.unknown in ids:
        raise ValueError(f"{text!r} has what the tokenizer does not know")
    return ids


def write(
    model: Model,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    how: Decoding = Decoding(),
    *,
    length: int | None = None,
) -> list[Written]:
    """Continue each prompt, or answer it; the beginning of one that does not fit is left out.

    Args:
        model: one that generates.
        tokenizer: the model's own.
        prompts: may be empty.
        how: the text is said.
        length: tokens of a prompt and what follows it, at most; None: the model's positions.

    Raises:
        ValueError: the model does not generate, or there is no room for a prompt.
    """
    special, apart = tokenizer.reader.special, isinstance(model.backbone, EncoderDecoder)
    positions = room(model, reader(model) if apart else decoder(model))
    most = min((n for n in (positions, length) if n is not None), default=None)
    new_tokens = 0 if apart else how.new_tokens
    fixed = len(special.before) + len(special.after) * model.answers + new_tokens
    if most is not None and most <= fixed:
        raise ValueError(f"{how.new_tokens} new tokens leave no room for prompts in {most}")
    most = None if most is None else most - new_tokens
    asked = ask(model, tokenizer, prompts, stop=how.stop, most=most)
    new = generate(
        model, asked.read, tokenizer.special, how, begun=asked.begun, guides=asked.wordings
    )
    return [
        Written(wording.text(ids), cut)
        for wording, ids, cut in zip(asked.wordings, new, asked.cut, strict=True)
    ]


def _after(tokenizer: Tokenizer, old: list[int], begun: list[int], new: Sequence[int]) -> str:
    """Decode what is new with what stands before it, where spaces depend on that."""
    before = tokenizer.decode([*old, *begun])
    whole = tokenizer.decode([*old, *begun, *new])
    return whole[len(before) :] if whole.startswith(before) else tokenizer.decode(new)
