"""Prompts in words -> what a model writes after them, in words."""

from collections.abc import Sequence
from dataclasses import dataclass

from unmask.adapters.prefix import decoder, reader, room
from unmask.generation.decode import Decoding, generate
from unmask.heads.model import Model
from unmask.model.transformer import EncoderDecoder
from unmask.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Written:
    """What a model wrote."""

    text: str
    """The new text alone."""
    cut: int = 0
    """Tokens of the prompt that did not fit, its first ones."""


def write(
    model: Model,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    how: Decoding = Decoding(),
    *,
    cut: bool = False,
    length: int | None = None,
) -> list[Written]:
    """Continue each prompt, or answer it (an encoder-decoder).

    Special tokens typed in a prompt (<extra_id_0>) are what they name.

    Args:
        model: one that generates.
        tokenizer: the model's own.
        prompts: may be empty.
        how: the next token is picked.
        cut: leave out the beginning of a prompt that, with `how.new_tokens`, is longer than the
            model's positions, or than `length`.
        length: tokens, see `cut`.

    Raises:
        ValueError: the model does not generate, or a prompt does not fit.
    """
    special = tokenizer.special
    answers = isinstance(model.backbone, EncoderDecoder)
    after = special.after if answers else ()
    read = [one.tolist() for one in tokenizer.ids_batch(prompts, special=True)]
    kept = [len(one) for one in read]
    if cut:
        positions = room(model, reader(model) if answers else decoder(model))
        most = min((n for n in (positions, length) if n is not None), default=None)
        fixed = len(special.before) + len(after) + (0 if answers else how.new_tokens)
        if most is not None and most <= fixed:
            raise ValueError(f"{how.new_tokens} new tokens leave no room for prompts in {most}")
        kept = [n if most is None else min(n, most - fixed) for n in kept]
    ids = [
        [*special.before, *one[len(one) - n :], *after] for one, n in zip(read, kept, strict=True)
    ]
    new = generate(model, ids, special, how)
    return [
        Written(_decoded(tokenizer, before, said, answers), len(one) - n)
        for before, said, one, n in zip(ids, new, read, kept, strict=True)
    ]


def _decoded(
    tokenizer: Tokenizer, before: Sequence[int], said: Sequence[int], answers: bool
) -> str:
    """Decode what is new with what stands before it, where spaces depend on that."""
    if answers:
        return tokenizer.decode(said)
    old, whole = tokenizer.decode(before), tokenizer.decode([*before, *said])
    return whole[len(old) :] if whole.startswith(old) else tokenizer.decode(said)
