"""Batches of texts for inference: with special tokens, grouped by length."""

import logging
import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.adapters.prefix import max_text_length
from unmask.batch import Batch, Example, Visibility
from unmask.batching.collate import group_by_length, pad_examples
from unmask.heads.model import Model
from unmask.model.architecture import Backbone
from unmask.model.backbones.transformer import Architecture
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.tokenizers.unknown_tokens import warn_unknown_texts

_log = logging.getLogger(__name__)
MAX_SCORES = 2**29
"""Of the heads of a layer for one text, heads x tokens^2."""


@dataclass(frozen=True, kw_only=True)
class TextBatch:
    """Texts that go through the model together."""

    text_indices: tuple[int, ...]
    """Which ones: row r of the batch is text `texts[r]`."""
    lengths: tuple[int, ...]
    """Their tokens, special ones included, padding apart."""
    batch: Batch
    """`last_token_positions` are those of the last token of each text."""


_DAMAGE_EXPLANATION = (
    "its weights, or a number of its configuration such as the epsilon of its norms, are not those "
    "of a trained model"
)


@contextmanager
def evaluation_mode(model: nn.Module) -> Generator[None]:
    """Switch dropout and gradients off; leave the model in its former mode."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def check_logits(logits: Float[Tensor, "... v"]) -> None:
    """Check that the highest logit of each position is finite.

    Raises:
        FloatingPointError: one is not: nothing can be predicted from it.
    """
    if logits.numel() and not bool(logits.amax(-1).isfinite().all()):
        raise FloatingPointError(f"the model's logits are not finite: {_DAMAGE_EXPLANATION}")


def check_vectors(vectors: Float[Tensor, "..."]) -> None:
    """Check that all numbers are finite.

    Raises:
        FloatingPointError: one is not.
    """
    if not bool(vectors.isfinite().all()):
        raise FloatingPointError(f"the model's vectors are not finite: {_DAMAGE_EXPLANATION}")


CUT_TEXTS = "%d texts are longer than the model's %d tokens and were cut"


def with_special_tokens(
    tokenizer: Tokenizer, texts: Sequence[str], max_length: int | None
) -> list[Int[np.ndarray, "_"]]:
    """Put special tokens around each text; of one that is longer than `max_length`, its end is cut.

    Where there is nothing to read at all, the start token is read.

    Raises:
        ValueError: the special tokens alone are more than `max_length`.
    """
    special = tokenizer.special_ids
    n_special = len(special.prefix) + len(special.suffix)
    if max_length is not None and n_special > max_length:
        raise ValueError(
            f"{n_special} special tokens do not fit the model's {max_length} positions"
        )
    limit = None if max_length is None else max_length - n_special
    encoded = tokenizer.encode_prefix_batch(texts, None if limit is None else limit + 1)
    if limit is not None and (n_cut := sum(len(ids) > limit for ids in encoded)):
        _log.warning(CUT_TEXTS, n_cut, max_length, extra={"is_count": True})
    warn_unknown_texts(encoded, special)
    return [
        np.array(
            [*special.prefix, *ids[:limit].tolist(), *special.suffix] or [special.start],
            np.int64,
        )
        for ids in encoded
    ]


def pad_texts(texts: Sequence[Int[np.ndarray, "_"]], special_ids: SpecialTokenIds) -> Batch:
    """Lay each text in a row of its own, without targets."""
    batch = pad_examples([Example(inputs=ids, targets=ids) for ids in texts], special_ids)
    return replace(batch, targets=None, target_positions=None)


def max_read_length(model: Model, stack: Backbone) -> int | None:
    """Return how many tokens of a text are read at once: as many as positions, if those end.

    Otherwise as many as have 2^29 scores of attention in a layer, 2 GB, since relative positions
    need them all, three times with bias and softmax: 11,585 tokens with four heads, 6,689 with
    twelve. None: of recurrent networks.
    """
    most = max_text_length(model, stack)
    if most is None and isinstance(stack.a, Architecture):
        return math.isqrt(MAX_SCORES // stack.a.n_heads)
    return most


def text_batches(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    batch_tokens: int,
    *,
    decoder_reads_text: bool = False,
    max_length: int | None = None,
) -> Iterator[TextBatch]:
    """Encode texts with special tokens, cut to the model's positions, and batch them by length.

    They are cut to `max_length` tokens, if that is less.

    An encoder-decoder reads them as its source; its decoder has read the start token, or, with
    `decoder_reads_text`, the text, each token one position later (Lewis et al. 2020, section 3.1).
    """
    special = tokenizer.special_ids
    positions = max_read_length(model, model.backbone.encoder_stack)
    limit = min((n for n in (positions, max_length) if n is not None), default=None)
    inputs = with_special_tokens(tokenizer.input_tokenizer, texts, limit)
    for rows in group_by_length([len(ids) for ids in inputs], batch_tokens):
        lengths = [len(inputs[i]) for i in rows]
        batch = batch_of_texts(
            model, special, [inputs[i] for i in rows], decoder_reads_text=decoder_reads_text
        )
        yield TextBatch(text_indices=tuple(rows), lengths=tuple(lengths), batch=batch)


def batch_of_texts(
    model: Model,
    special_ids: SpecialTokenIds,
    inputs: Sequence[Int[np.ndarray, "_"]],
    *,
    decoder_reads_text: bool = False,
) -> Batch:
    """Return texts with their special tokens as a batch, as a model reads them; see `text_batches`.

    `last_token_positions` are those of the last token of each text.
    """
    batch = pad_texts(inputs, special_ids)
    if model.architecture.is_encoder_decoder:
        start = torch.full((len(inputs), 1), special_ids.start)
        batch = Batch(
            inputs=torch.cat((start, batch.inputs[:, :-1]), 1) if decoder_reads_text else start,
            visibility=Visibility(causal=True),
            source=batch.inputs,
            source_visibility=batch.visibility,
        )
    elif model.decoder_architecture.causal:
        batch = replace(batch, visibility=replace(batch.visibility, causal=True))
    batch = replace(batch, last_token_positions=torch.tensor([len(ids) for ids in inputs]) - 1)
    return model.pad_for_network(batch).to(model.device)
