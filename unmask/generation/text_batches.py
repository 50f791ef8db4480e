"""Texts as a model reads them: framed, in groups of like length, the model at rest."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.adapters.prefix import encoder_stack, max_text_length
from unmask.batch import Batch, Example, Visibility
from unmask.batching.collate import group_by_length, pad_examples
from unmask.heads.model import Model
from unmask.model.backbones.transformer import EncoderDecoder
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds


@dataclass(frozen=True, kw_only=True)
class TextBatch:
    """Some texts that go through the model together."""

    text_indices: tuple[int, ...]
    """Which ones: row r of the batch is text `texts[r]`."""
    lengths: tuple[int, ...]
    """Their tokens, special ones included, padding apart."""
    batch: Batch
    """`last` is the last token of each text."""


_DAMAGE_EXPLANATION = (
    "its weights, or a number of its configuration such as the epsilon of its norms, are not those "
    "of a trained model"
)


@contextmanager
def evaluation_mode(model: nn.Module) -> Generator[None]:
    """Switch dropout and gradients off, and leave the model in the mode in which it was."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def check_logits(logits: Float[Tensor, "... v"]) -> None:
    """Check that some score of each place is a number, and none is not a number.

    Raises:
        FloatingPointError: one is not: no answer can be made of it.
    """
    if logits.numel() and not bool(logits.amax(-1).isfinite().all()):
        raise FloatingPointError(f"the model's scores are not finite: {_DAMAGE_EXPLANATION}")


def check_vectors(vectors: Float[Tensor, "..."]) -> None:
    """Check that all numbers are finite.

    Raises:
        FloatingPointError: one is not.
    """
    if not bool(vectors.isfinite().all()):
        raise FloatingPointError(f"the model's vectors are not finite: {_DAMAGE_EXPLANATION}")


def with_special_tokens(
    tokenizer: Tokenizer, texts: Sequence[str], max_length: int | None
) -> list[Int[np.ndarray, "_"]]:
    """Put special tokens around each text; of one that is longer than `max_length`, its end is cut.

    Where there is nothing to read at all, the start token is read.

    Raises:
        ValueError: the special tokens alone are more than `max_length`.
    """
    special = tokenizer.special_ids
    around = len(special.prefix) + len(special.suffix)
    if max_length is not None and around > max_length:
        raise ValueError(f"{around} special tokens do not fit the model's {max_length} positions")
    room = None if max_length is None else max_length - around
    found = tokenizer.first_batch(texts, room)
    return [
        np.array(
            [*special.prefix, *ids[:room].tolist(), *special.suffix] or [special.start],
            np.int64,
        )
        for ids in found
    ]


def pad_texts(texts: Sequence[Int[np.ndarray, "_"]], special_ids: SpecialTokenIds) -> Batch:
    """Lay each text in a row of its own; nothing is asked."""
    batch = pad_examples([Example(inputs=ids, targets=ids) for ids in texts], special_ids)
    return replace(batch, targets=None, target_positions=None)


def text_batches(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    batch_tokens: int,
    *,
    decoder_reads_text: bool = False,
) -> Iterator[TextBatch]:
    """Frame texts, cut to the model's positions, and put those of like length together.

    An encoder-decoder reads them as its source; its decoder has read the start token, or reads the
    text `decoder_reads_text`: each token one place later (Lewis et al. 2020, section 3.1).
    """
    special = tokenizer.special_ids
    read = with_special_tokens(tokenizer.input_tokenizer, texts, max_text_length(model, encoder_stack(model)))
    for rows in group_by_length([len(ids) for ids in read], batch_tokens):
        lengths = [len(read[i]) for i in rows]
        batch = pad_texts([read[i] for i in rows], special)
        if isinstance(model.backbone, EncoderDecoder):
            start = torch.full((len(rows), 1), special.start)
            batch = Batch(
                inputs=torch.cat((start, batch.inputs[:, :-1]), 1) if decoder_reads_text else start,
                visibility=Visibility(causal=True),
                source=batch.inputs,
                source_visibility=batch.visibility,
            )
        elif model.decoder_architecture.causal:
            batch = replace(batch, visibility=replace(batch.visibility, causal=True))
        batch = replace(batch, last_token_positions=torch.tensor(lengths) - 1)
        batch = model.pad_for_network(batch).to(model.device)
        yield TextBatch(text_indices=tuple(rows), lengths=tuple(lengths), batch=batch)
