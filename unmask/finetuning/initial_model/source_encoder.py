"""A new source encoder, with its own vocabulary, before a pretrained encoder-decoder.

Lewis et al. 2020, arXiv:1910.13461, section 3.4.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from unmask.finetuning.initial_model.load import InitialModel
from unmask.finetuning.methods.method import SourceEncoder
from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.tasks.task import TaskExample
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import TokenizerSpec
from unmask.zoo.native_format import with_expressible_format

_SOURCE_ENCODER_PREFIX = "backbone.encoder.source."


def add_source_encoder(
    initial_model: InitialModel, method: SourceEncoder, items: Sequence[TaskExample]
) -> InitialModel:
    """Put a new encoder before that of a model, with a tokenizer learned from the sources.

    Args:
        initial_model: the model, with weights.
        method: sizes of the encoder and its vocabulary.
        items: items whose texts are sources.

    Raises:
        ValueError: the model is not an encoder-decoder, is not pretrained, or has a source encoder.
    """
    card, a = initial_model.preset, initial_model.preset.architecture
    if not isinstance(a, EncoderDecoderArchitecture):
        raise ValueError(
            "source_encoder puts a new encoder before that of an encoder-decoder, and "
            f"{card.name} is none"
        )
    if a.source_encoder is not None:
        raise ValueError(f"{card.name} has an encoder of sources already: tune it in full")
    if not initial_model.is_pretrained:
        raise ValueError(
            "source_encoder puts a new encoder before a model that was trained, and "
            f"{card.name} has no weights; pretrain it first"
        )
    reader = _train_source_tokenizer(initial_model, method.vocab_size, items)
    new = replace(a.encoder, n_layers=method.n_layers, vocab_size=reader.vocab_size)
    return replace(
        initial_model,
        preset=with_expressible_format(replace(card, architecture=replace(a, source_encoder=new))),
        tokenizer=initial_model.tokenizer.with_source_tokenizer(reader),
    )


def _train_source_tokenizer(
    initial_model: InitialModel, vocab_size: int, items: Sequence[TaskExample]
) -> Tokenizer:
    """Train a tokenizer of the model's kind, without language tokens."""
    vocabulary = initial_model.preset.tokenizer.vocabulary
    if hasattr(vocabulary, "vocab_size"):
        vocabulary = replace(cast("Any", vocabulary), vocab_size=vocab_size)
    special_tokens = replace(initial_model.tokenizer.special_tokens, languages=())
    return train_tokenizer(
        TokenizerSpec(vocabulary, special_tokens), (text for item in items for text in item.texts)
    )


def newly_initialized_names(initial_model: InitialModel) -> tuple[str, ...]:
    """Name the newly initialized weights; those of a new source encoder are summarized."""
    fresh = initial_model.newly_initialized()
    new = sum(name.startswith(_SOURCE_ENCODER_PREFIX) for name in fresh)
    reader = initial_model.tokenizer.input_tokenizer
    summary = (
        (f"the encoder of sources ({new} tensors, {reader.vocab_size:,} tokens)",) if new else ()
    )
    return (*summary, *(name for name in fresh if not name.startswith(_SOURCE_ENCODER_PREFIX)))
