"""A new encoder of sources, with a vocabulary of their own, before a pretrained encoder-decoder.

Lewis et al. 2020, arXiv:1910.13461, section 3.4.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from unmask.finetuning.begin import Beginning
from unmask.finetuning.methods import SourceEncoder
from unmask.model.architecture import EncoderDecoderArchitecture
from unmask.published.own import worded
from unmask.tasks.task import Item
from unmask.tokens.tokenizer import Tokenizer, learn
from unmask.tokens.vocabulary import TokenizerSpec

_NEW = "backbone.encoder.source."


def with_source(begun: Beginning, method: SourceEncoder, items: Sequence[Item]) -> Beginning:
    """Put a new encoder before that of a model, with a tokenizer learned from the sources.

    Args:
        begun: the model, with weights.
        method: how large the encoder and its vocabulary are.
        items: whose texts are sources.

    Raises:
        ValueError: the model is no encoder-decoder, was not trained, or reads sources so already.
    """
    card, a = begun.card, begun.card.architecture
    if not isinstance(a, EncoderDecoderArchitecture):
        raise ValueError(
            f"source puts a new encoder before that of an encoder-decoder, and {card.name} is none"
        )
    if a.source is not None:
        raise ValueError(f"{card.name} has an encoder of sources already: tune it in full")
    if not begun.trained:
        raise ValueError(
            f"source puts a new encoder before a model that was trained, and {card.name} has no "
            "weights; pretrain it first"
        )
    reader = _learned(begun, method.vocabulary, items)
    new = replace(a.encoder, n_layers=method.layers, vocab_size=reader.size)
    return replace(
        begun,
        card=worded(replace(card, architecture=replace(a, source=new))),
        tokenizer=begun.tokenizer.reading(reader),
    )


def _learned(begun: Beginning, size: int, items: Sequence[Item]) -> Tokenizer:
    """Learn a vocabulary of the model's kind; which language a source is in, it need not say."""
    vocabulary = begun.card.tokenizer.vocabulary
    if hasattr(vocabulary, "size"):
        vocabulary = replace(cast("Any", vocabulary), size=size)
    frame = replace(begun.tokenizer.frame, languages=())
    return learn(TokenizerSpec(vocabulary, frame), (text for item in items for text in item.texts))


def drawn(begun: Beginning) -> tuple[str, ...]:
    """Name the weights that are drawn, those of a new encoder of sources together."""
    fresh = begun.fresh()
    new = sum(name.startswith(_NEW) for name in fresh)
    reader = begun.tokenizer.reader
    said = (f"the encoder of sources ({new} tensors, {reader.size:,} tokens)",) if new else ()
    return (*said, *(name for name in fresh if not name.startswith(_NEW)))
