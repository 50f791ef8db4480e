"""Prompts in words -> what a model reads, and what it says after them, in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Int

from unmask.adapters.prefix import decoder_stack, encoder_stack, max_text_length
from unmask.generation.decode import generate
from unmask.generation.settings import GenerationConfig
from unmask.generation.streaming import TextStreamer
from unmask.heads.model import Model
from unmask.model.backbones.transformer import EncoderDecoder
from unmask.tokenizers.beginning import LONG
from unmask.tokenizers.encode import Tokenizer


@dataclass(frozen=True)
class EncodedPrompts:
    """Prompts as they are read."""

    input_ids: list[list[int]]
    output_prefixes: list[list[int]]
    """What answers begin with, where it is not read with the prompt."""
    streamers: list[TextStreamer]
    """How what is said after each becomes text."""
    n_truncated_tokens: list[int]
    """Tokens of each prompt that did not fit, its first ones."""


@dataclass(frozen=True)
class GenerationOutput:
    """What a model wrote."""

    text: str
    """The new text alone, `begin` apart."""
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
    """Turn prompts into what is read: a decoder goes on from it, others answer (`Model.answers`).

    Special tokens typed in a prompt (<extra_id_0>) are what they name.

    Args:
        model: one that generates.
        tokenizer: the model's own.
        prompts: may be empty.
        output_prefix: what each answer begins with.
        stop: where the text of an answer ends.
        max_prompt_tokens: of a prompt that has more tokens, special ones included, the beginning is left out;
            None: of none.
        check_positions: a prompt that has more tokens than the model has positions is refused; of a long one
            no more is read than tells that.

    Raises:
        ValueError: a prompt is too long, `output_prefix` has characters that the tokenizer does not know,
            or it is not said in which language the prompts are; or texts are read from their end.
    """
    tokenizer.check_reads_forward("going on from a prompt")
    special, begun, answers = tokenizer.input_tokenizer.special_ids, encode_known_text(tokenizer, output_prefix), model.is_sequence_to_sequence
    if tokenizer.special_ids.needs_languages:
        raise ValueError(
            "this model reads texts of one language and answers in one: name them (`told`; "
            f"--source-language, --target-language), two of "
            f"{', '.join(dict(tokenizer.special_ids.languages))}"
        )
    after = special.suffix if answers else ()
    texts = prompts if answers else [prompt + output_prefix for prompt in prompts]
    full = [ids.tolist() for ids in _encode_texts(model, tokenizer, texts, check_positions=check_positions)]
    fixed = len(special.prefix) + len(after)
    gone = [0 if max_prompt_tokens is None else max(0, fixed + len(ids) - max_prompt_tokens) for ids in full]
    read = [[*special.prefix, *ids[n:], *after] for ids, n in zip(full, gone, strict=True)]
    first = begun if answers else []
    decode = [partial(_decode_continuation, tokenizer, [] if answers else ids, first) for ids in read]
    return EncodedPrompts(read, [first for _ in read], [TextStreamer(one, stop) for one in decode], gone)


def _encode_texts(
    model: Model, tokenizer: Tokenizer, texts: Sequence[str], *, check_positions: bool
) -> list[Int[np.ndarray, "_"]]:
    apart = isinstance(model.backbone, EncoderDecoder)
    most = max_text_length(model, encoder_stack(model) if apart else decoder_stack(model)) if check_positions else None
    more = None if most is None else most + 1
    found = tokenizer.input_tokenizer.first_batch(texts, more, special=True)
    for i, (ids, text) in enumerate(zip(found, texts, strict=True), 1):
        if most is not None and len(text) > LONG and len(ids) > most:
            raise ValueError(
                f"prompt {i} has more than {most} tokens, but the model only {most} positions for "
                "it"
            )
    return found


def encode_known_text(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the tokens of a text that is to be said.

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
) -> list[GenerationOutput]:
    """Continue each prompt, or answer it; the beginning of one that does not fit is left out.

    Args:
        model: one that generates.
        tokenizer: the model's own.
        prompts: may be empty.
        generation_config: the text is said.
        max_length: tokens of a prompt and what follows it, at most; None: the model's positions.

    Raises:
        ValueError: the model does not generate, or there is no room for a prompt.
    """
    special, apart = tokenizer.input_tokenizer.special_ids, isinstance(model.backbone, EncoderDecoder)
    positions = max_text_length(model, encoder_stack(model) if apart else decoder_stack(model))
    most = min((n for n in (positions, max_length) if n is not None), default=None)
    new_tokens = 0 if apart else generation_config.max_new_tokens
    fixed = len(special.prefix) + len(special.suffix) * model.is_sequence_to_sequence + new_tokens
    if most is not None and most <= fixed:
        raise ValueError(f"{generation_config.max_new_tokens} new tokens leave no room for prompts in {most}")
    most = None if most is None else most - new_tokens
    asked = encode_prompts(model, tokenizer, prompts, stop=generation_config.stop, max_prompt_tokens=most)
    new = generate(
        model, asked.input_ids, tokenizer.special_ids, generation_config, output_prefixes=asked.output_prefixes, constraints=asked.streamers
    )
    return [
        GenerationOutput(wording.final_text(ids), cut)
        for wording, ids, cut in zip(asked.streamers, new, asked.n_truncated_tokens, strict=True)
    ]


def _decode_continuation(tokenizer: Tokenizer, prompt_ids: list[int], output_prefix: list[int], new_ids: Sequence[int]) -> str:
    """Decode what is new with what stands before it, where spaces depend on that."""
    before = tokenizer.decode([*prompt_ids, *output_prefix])
    whole = tokenizer.decode([*prompt_ids, *output_prefix, *new_ids])
    return whole[len(before) :] if whole.startswith(before) else tokenizer.decode(new_ids)
