"""Texts as a model reads them: framed, in groups of like length, the model at rest."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.adapters.prefix import reader, room
from unmask.batch import Batch, Example, Visibility
from unmask.heads.model import Model
from unmask.hiding.collate import by_size, pad
from unmask.model.transformer import EncoderDecoder
from unmask.tokens.tokenizer import Tokenizer
from unmask.tokens.vocabulary import Special


@dataclass(frozen=True, kw_only=True)
class Group:
    """Some texts that go through the model together."""

    texts: tuple[int, ...]
    """Which ones: row r of the batch is text `texts[r]`."""
    lengths: tuple[int, ...]
    """Their tokens, special ones included, padding apart."""
    batch: Batch
    """`last` is the last token of each text."""


_DAMAGED = (
    "its weights, or a number of its configuration such as the epsilon of its norms, are not those "
    "of a trained model"
)


@contextmanager
def at_rest(model: nn.Module) -> Generator[None]:
    """Switch dropout and gradients off, and leave the model in the mode in which it was."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def check_scores(scores: Float[Tensor, "... v"]) -> None:
    """Check that some score of each place is a number, and none is not a number.

    Raises:
        FloatingPointError: one is not: no answer can be made of it.
    """
    if scores.numel() and not bool(scores.amax(-1).isfinite().all()):
        raise FloatingPointError(f"the model's scores are not finite: {_DAMAGED}")


def check_vectors(vectors: Float[Tensor, "..."]) -> None:
    """Check that all numbers are finite.

    Raises:
        FloatingPointError: one is not.
    """
    if not bool(vectors.isfinite().all()):
        raise FloatingPointError(f"the model's vectors are not finite: {_DAMAGED}")


def framed(
    tokenizer: Tokenizer, texts: Sequence[str], most: int | None
) -> list[Int[np.ndarray, "_"]]:
    """Put special tokens around each text; of one that is longer than `most`, its end is cut.

    Where there is nothing to read at all, the start token is read.

    Raises:
        ValueError: the special tokens alone are more than `most`.
    """
    special = tokenizer.special
    around = len(special.before) + len(special.after)
    if most is not None and around > most:
        raise ValueError(f"{around} special tokens do not fit the model's {most} positions")
    room = None if most is None else most - around
    found = tokenizer.first_batch(texts, room)
    return [
        np.array(
            [*special.before, *ids[:room].tolist(), *special.after] or [special.start],
            np.int64,
        )
        for ids in found
    ]


def padded(texts: Sequence[Int[np.ndarray, "_"]], special: Special) -> Batch:
    """Lay each text in a row of its own; nothing is asked."""
    batch = pad([Example(inputs=ids, targets=ids) for ids in texts], special)
    return replace(batch, targets=None, asked=None)


def groups(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    batch_tokens: int,
    *,
    twice: bool = False,
) -> Iterator[Group]:
    """Frame texts, cut to the model's positions, and put those of like length together.

    An encoder-decoder reads them as its source; its decoder has read the start token, or reads the
    text `twice`: each token one place later (Lewis et al. 2020, section 3.1).
    """
    special = tokenizer.special
    read = framed(tokenizer.reader, texts, room(model, reader(model)))
    for rows in by_size([len(ids) for ids in read], batch_tokens):
        lengths = [len(read[i]) for i in rows]
        batch = padded([read[i] for i in rows], special)
        if isinstance(model.backbone, EncoderDecoder):
            start = torch.full((len(rows), 1), special.start)
            batch = Batch(
                inputs=torch.cat((start, batch.inputs[:, :-1]), 1) if twice else start,
                visibility=Visibility(causal=True),
                source=batch.inputs,
                source_visibility=batch.visibility,
            )
        elif model.stack.causal:
            batch = replace(batch, visibility=replace(batch.visibility, causal=True))
        batch = replace(batch, last=torch.tensor(lengths) - 1)
        batch = model.roomy(batch).to(model.device)
        yield Group(texts=tuple(rows), lengths=tuple(lengths), batch=batch)
