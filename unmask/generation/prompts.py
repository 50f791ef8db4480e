"""Text prompts -> tokens, and generated tokens -> text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from jaxtyping import Int

from unmask.adapters.prefix import max_text_length
from unmask.conversations.chat import encode_chat
from unmask.conversations.encode import end_of_response
from unmask.conversations.messages import Message
from unmask.conversations.template import ChatTemplate
from unmask.generation.decode import generate
from unmask.generation.settings import GenerationConfig
from unmask.generation.streaming import ResponseStreamer, TextStreamer, count_settled_tokens
from unmask.generation.text_batches import max_read_length
from unmask.heads.model import Model
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.tokenizers.splitting.long_texts import LONG_TEXT_CHARACTERS


@dataclass(frozen=True)
class EncodedPrompts:
    """Prompts as token ids."""

    input_ids: Sequence[Sequence[int]]
    output_prefixes: list[list[int]]
    """What answers begin with, where it is not read with the prompt."""
    streamers: list[TextStreamer]
    """How the new tokens of each become text."""
    n_truncated_tokens: list[int]
    """Tokens of each prompt that did not fit, its first ones."""


@dataclass(frozen=True)
class GenerationOutput:
    """Text that a model generated."""

    text: str
    """The new text alone, without an output prefix."""
    n_truncated_tokens: int = 0
    """Tokens of the prompt that did not fit, its first ones."""


def encode_prompts(
    model: Model,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    *,
    output_prefix: str = "",
    stop: tuple[str, ...] = (),
    max_prompt_tokens: int | None = None,
    check_positions: bool = False,
) -> EncodedPrompts:
    """Encode prompts: a decoder continues them, others answer (`Model.is_sequence_to_sequence`).

    Special tokens typed in a prompt (<extra_id_0>) are what they name.

    Args:
        model: one that generates.
        tokenizer: the model's own.
        prompts: may be empty.
        output_prefix: text with which each answer begins.
        stop: strings before which an answer ends.
        max_prompt_tokens: of a prompt that has more tokens, special ones included, the beginning
            is left out; None: of none.
        check_positions: refuse a prompt that has more tokens than the model has positions; of a
            long one no more is encoded than shows that.

    Raises:
        ValueError: a prompt is too long, `output_prefix` has characters that the tokenizer does not
            know, the languages of prompts and answers are not given, or texts are read from their
            end.
    """
    special, seq2seq = tokenizer.input_tokenizer.special_ids, model.is_sequence_to_sequence
    _check_tokenizer(tokenizer)
    prefix_ids = encode_known_text(tokenizer, output_prefix)
    suffix = special.suffix if seq2seq else ()
    texts = prompts if seq2seq else [prompt + output_prefix for prompt in prompts]
    encoded = _encode_texts(model, tokenizer, texts, check_positions=check_positions)
    fixed = len(special.prefix) + len(suffix)
    truncated = [
        0 if max_prompt_tokens is None else max(0, fixed + len(ids) - max_prompt_tokens)
        for ids in encoded
    ]
    input_ids = [
        [*special.prefix, *ids[n:].tolist(), *suffix]
        for ids, n in zip(encoded, truncated, strict=True)
    ]
    prefix_ids = prefix_ids if seq2seq else []
    decode = [
        partial(decode_continuation, tokenizer, [] if seq2seq else ids, prefix_ids)
        for ids in input_ids
    ]
    return EncodedPrompts(
        input_ids,
        [prefix_ids for _ in input_ids],
        [TextStreamer(one, stop, partial(count_settled_tokens, tokenizer)) for one in decode],
        truncated,
    )


def _check_tokenizer(tokenizer: Tokenizer) -> None:
    """Check that it reads forward, and that its languages are given where it has some."""
    tokenizer.check_reads_forward("going on from a prompt")
    if tokenizer.special_ids.needs_languages:
        raise ValueError(
            "this model reads texts of one language and answers in one: name them "
            "(`with_languages`; --source-language, --target-language), two of "
            f"{', '.join(dict(tokenizer.special_ids.languages))}"
        )


@dataclass(frozen=True, kw_only=True)
class EncodedChat:
    """A conversation as a prompt."""

    prompts: EncodedPrompts
    """The only one."""
    turns: tuple[Message, ...]
    """Those that fit."""
    special_ids: SpecialTokenIds
    """Of the vocabulary, with the end of a response."""
    n_free: int | None
    """Tokens for which there are positions after the prompt. None: any number."""


def encode_chat_prompt(
    model: Model,
    tokenizer: Tokenizer,
    template: ChatTemplate,
    turns: tuple[Message, ...],
    generation_config: GenerationConfig,
    special_ids: SpecialTokenIds,
) -> EncodedChat:
    """Encode a conversation as its chat template writes it, up to the next response.

    A decoder reads exactly what the template writes; an encoder ends that as any text. A response
    ends as the template ends one, and with each of the ends in `special_ids`.

    Raises:
        ValueError: as `unmask.conversations.chat.encode_chat`.
    """
    _check_tokenizer(tokenizer)
    has_encoder, backbone = model.architecture.is_encoder_decoder, model.backbone
    suffix = tokenizer.input_tokenizer.special_ids.suffix if has_encoder else ()
    positions = max_text_length(
        model, backbone.encoder_stack if has_encoder else backbone.decoder_stack
    )
    found = encode_chat(
        tokenizer.input_tokenizer,
        template,
        turns,
        max_tokens=None if positions is None else positions - len(suffix),
        max_new_tokens=0 if has_encoder else generation_config.max_new_tokens,
    )
    input_ids = [*found.ids.tolist(), *suffix]
    end = end_of_response(tokenizer, template)
    streamer = ResponseStreamer(
        partial(decode_continuation, tokenizer, [] if has_encoder else input_ids, []),
        generation_config.stop,
        partial(count_settled_tokens, tokenizer),
    )
    return EncodedChat(
        prompts=EncodedPrompts([input_ids], [[]], [streamer], [0]),
        turns=found.turns,
        special_ids=replace(
            special_ids, end=end, further_ends=tuple(i for i in special_ids.ends if i != end)
        ),
        n_free=None if has_encoder or positions is None else positions + 1 - len(input_ids),
    )


def _encode_texts(
    model: Model, tokenizer: Tokenizer, texts: Sequence[str], *, check_positions: bool
) -> list[Int[np.ndarray, "_"]]:
    stack = model.backbone.encoder_stack
    max_length = max_read_length(model, stack) if check_positions else None
    limit = None if max_length is None else max_length + 1
    found = tokenizer.input_tokenizer.encode_prefix_batch(texts, limit, special=True)
    for i, (ids, text) in enumerate(zip(found, texts, strict=True), 1):
        if max_length is not None and len(text) > LONG_TEXT_CHARACTERS and len(ids) > max_length:
            raise ValueError(
                f"prompt {i} has more than {max_length} tokens, but the model only {max_length} "
                "positions for it"
            )
    return found


def encode_known_text(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the tokens of a text to be generated.

    Raises:
        ValueError: one of its characters has none.
    """
    ids = tokenizer.encode(text, allow_special=True).ids.tolist()
    if tokenizer.special_ids.unknown in ids:
        raise ValueError(f"{text!r} has what the tokenizer does not know")
    return ids


def generate_texts(
    model: Model,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    generation_config: GenerationConfig = GenerationConfig(),
    *,
    max_length: int | None = None,
    special_ids: SpecialTokenIds | None = None,
) -> list[GenerationOutput]:
    """Continue each prompt, or answer it; the beginning of one that does not fit is left out.

    Args:
        model: one that generates.
        tokenizer: the model's own.
        prompts: may be empty.
        generation_config: how text is generated.
        max_length: tokens of a prompt and its output, at most; None: the model's positions.
        special_ids: those with which texts begin and end; None: the tokenizer's.

    Raises:
        ValueError: the model does not generate, or there is no room for a prompt.
    """
    special = tokenizer.input_tokenizer.special_ids
    has_encoder = model.architecture.is_encoder_decoder
    positions = max_text_length(model, model.backbone.encoder_stack)
    limit = min((n for n in (positions, max_length) if n is not None), default=None)
    new_tokens = 0 if has_encoder else generation_config.max_new_tokens
    fixed = len(special.prefix) + len(special.suffix) * model.is_sequence_to_sequence + new_tokens
    if limit is not None and limit <= fixed:
        raise ValueError(
            f"{generation_config.max_new_tokens} new tokens leave no room for prompts in {limit}"
        )
    limit = None if limit is None else limit - new_tokens
    encoded = encode_prompts(
        model, tokenizer, prompts, stop=generation_config.stop, max_prompt_tokens=limit
    )
    generated_ids = generate(
        model,
        encoded.input_ids,
        tokenizer.special_ids if special_ids is None else special_ids,
        generation_config,
        output_prefixes=encoded.output_prefixes,
        constraints=encoded.streamers,
    )
    return [
        GenerationOutput(streamer.final_text(ids), n_truncated)
        for streamer, ids, n_truncated in zip(
            encoded.streamers, generated_ids, encoded.n_truncated_tokens, strict=True
        )
    ]


def decode_continuation(
    tokenizer: Tokenizer, prompt_ids: list[int], output_prefix: list[int], new_ids: Sequence[int]
) -> str:
    """Decode new tokens together with those before them, since spaces depend on these."""
    before = tokenizer.decode([*prompt_ids, *output_prefix])
    whole = tokenizer.decode([*prompt_ids, *output_prefix, *new_ids])
    return whole[len(before) :] if whole.startswith(before) else tokenizer.decode(new_ids)
