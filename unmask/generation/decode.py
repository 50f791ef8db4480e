"""Text, token by token: greedy, sampled or searched for, with a cache of what was read."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.adapters.prefix import decoder_stack, encoder_stack, max_text_length
from unmask.batching.collate import group_by_length
from unmask.generation.beam_search import ScoredSequence, beam_search
from unmask.generation.decoding_batch import DecodingBatch
from unmask.generation.settings import BeamSearch, BestOfN, GenerationConfig, Greedy, Sampling
from unmask.generation.speculative import DraftModel, speculative_decode
from unmask.generation.state import (
    NO_TOKEN,
    GenerationConstraint,
    GenerationState,
    process_logits,
    select_tokens,
)
from unmask.generation.text_batches import evaluation_mode
from unmask.heads.model import Model
from unmask.model.backbones.transformer import EncoderDecoder
from unmask.tokenizers.spec import SpecialTokenIds

ItemT = TypeVar("ItemT")

_log = logging.getLogger(__name__)

MAX_CACHED_TOKENS = 8192
"""Tokens, read and new ones, whose keys and values are held at the same time."""


def generate(
    model: Model,
    prompts: Sequence[Sequence[int]],
    special_ids: SpecialTokenIds,
    generation_config: GenerationConfig = GenerationConfig(),
    *,
    output_prefixes: Sequence[Sequence[int]] | None = None,
    constraints: Sequence[GenerationConstraint] | None = None,
    draft: DraftModel | None = None,
) -> list[list[int]]:
    """Continue each prompt (a decoder) or answer it (`Model.answers`); return the new tokens.

    A text ends before the model's end token, which is left out, with the last of `how.new_tokens`,
    where its guide says so, where nothing may follow, or where the positions end: n positions are
    read, so prompt and new tokens are at most n + 1; learned tokens before the prompt
    (`unmask.adapters.prefix`) have theirs, too. What a prompt becomes does not depend on the
    others, unless rounding, which differs with the shape of a batch, decides between two tokens;
    one that is given several times is drawn several times. An empty prompt is the start token. Ids
    beyond the vocabulary, which a table of round size has, are never said.

    Args:
        model: a decoder or an encoder-decoder.
        prompts: their tokens, special ones included.
        special_ids: of the vocabulary.
        generation_config: `stop` is the business of guides, since it is text.
        output_prefixes: for each prompt the tokens with which its answer begins. They are not returned, and
            do not count as new.
        constraints: for each prompt what ends or restrains its text.
        draft: a smaller model that guesses what will be said (`unmask.generation.speculative`).

    Raises:
        ValueError: the model does not generate, or a prompt is longer than its positions.
    """
    if isinstance(generation_config.strategy, BeamSearch | BestOfN):
        found = generate_candidates(model, prompts, special_ids, generation_config, output_prefixes=output_prefixes, constraints=constraints, draft=draft)
        return [list(best[0].token_ids) for best in found]
    said: list[list[int]] = [[] for _ in prompts]
    with evaluation_mode(model):
        some = initial_states(model, prompts, special_ids, generation_config, output_prefixes=output_prefixes, constraints=constraints)
        for i, token in stream_tokens(model, some, special_ids, generation_config, draft=draft):
            said[i].append(token)
    return said


def generate_candidates(
    model: Model,
    prompts: Sequence[Sequence[int]],
    special_ids: SpecialTokenIds,
    generation_config: GenerationConfig,
    *,
    output_prefixes: Sequence[Sequence[int]] | None = None,
    constraints: Sequence[GenerationConstraint] | None = None,
    draft: DraftModel | None = None,
) -> list[list[ScoredSequence]]:
    """Search for the best texts after each prompt, or draw some, as many as shall be returned.

    Args and errors are those of `generate`.

    Raises:
        ValueError: there are neither beams nor samples, more beams than tokens, or a draft, which
            is not for them.
    """
    if not isinstance(generation_config.strategy, BeamSearch | BestOfN):
        raise ValueError("only beams or samples give several texts of a prompt: give one of them")
    if draft is not None:
        raise ValueError(
            f"a draft guesses one token after another: give {candidates_noun(generation_config.strategy)} or a draft, not both"
        )
    if isinstance(generation_config.strategy, BestOfN):
        return _best_of_n(model, prompts, special_ids, generation_config, generation_config.strategy, output_prefixes, constraints)
    if generation_config.strategy.beams > special_ids.vocab_size:
        raise ValueError(f"{generation_config.strategy.beams} beams are more than the {special_ids.vocab_size} tokens there are")
    asked = initial_states(model, prompts, special_ids, generation_config, output_prefixes=output_prefixes, constraints=constraints)
    found: list[list[ScoredSequence]] = [[] for _ in asked]
    sizes = [len(text.prompt_ids) + text.max_new_tokens for text in asked]
    with evaluation_mode(model):
        for group in group_by_length(sizes, MAX_CACHED_TOKENS, row_counts=[generation_config.strategy.beams] * len(sizes)):
            best = beam_search(model, [asked[i] for i in group], generation_config, generation_config.strategy, special_ids)
            for i, one in zip(group, best, strict=True):
                found[i] = one
    _warn_of_truncation([len(best[0].token_ids) for best in found], asked, generation_config)
    return found


def candidates_noun(strategy: BeamSearch | BestOfN) -> str:
    """Name what one text is chosen of."""
    return "beams" if isinstance(strategy, BeamSearch) else "samples"


def _best_of_n(
    model: Model,
    prompts: Sequence[Sequence[int]],
    special_ids: SpecialTokenIds,
    generation_config: GenerationConfig,
    strategy: BestOfN,
    output_prefixes: Sequence[Sequence[int]] | None,
    constraints: Sequence[GenerationConstraint] | None,
) -> list[list[ScoredSequence]]:
    """Draw several texts of each prompt, and rank those that differ by their log-probability."""
    n = strategy.samples
    asked = initial_states(
        model,
        _repeat_each(prompts, n),
        special_ids,
        generation_config,
        output_prefixes=None if output_prefixes is None else _repeat_each(output_prefixes, n),
        constraints=None if constraints is None else _repeat_each(constraints, n),
    )
    with evaluation_mode(model):
        for _ in _stream_tokens(model, asked, special_ids, generation_config, strategy.sampling, track_log_probability=True):
            pass
    found: list[list[ScoredSequence]] = []
    for i in range(0, len(asked), n):
        some = {tuple(text.generated_ids): ScoredSequence(tuple(text.generated_ids), text.log_probability) for text in asked[i : i + n]}
        found.append(sorted(some.values(), key=lambda one: -one.score)[: strategy.n_best])
    return found


def _repeat_each(items: Sequence[ItemT], repetitions: int) -> list[ItemT]:
    return [one for one in items for _ in range(repetitions)]


def stream_tokens(
    model: Model,
    states: Sequence[GenerationState],
    special_ids: SpecialTokenIds,
    generation_config: GenerationConfig,
    *,
    draft: DraftModel | None = None,
) -> Iterator[tuple[int, int]]:
    """Say each text, by a model that is at rest; give which one it is, and the token, at once.

    Raises:
        ValueError: `generation_config` is to choose one of several texts, which is known when they have ended.
    """
    if isinstance(generation_config.strategy, BeamSearch | BestOfN):
        raise ValueError(f"{candidates_noun(generation_config.strategy)} end before a text is known: no stream")
    if draft is not None:
        draft.check_compatible(model)
    yield from _stream_tokens(model, states, special_ids, generation_config, generation_config.strategy, draft=draft)


def _stream_tokens(
    model: Model,
    states: Sequence[GenerationState],
    special_ids: SpecialTokenIds,
    generation_config: GenerationConfig,
    strategy: Greedy | Sampling,
    *,
    draft: DraftModel | None = None,
    track_log_probability: bool = False,
) -> Iterator[tuple[int, int]]:
    """Say each text, as `spoken` does, also one of several; `track_log_probability`: with how likely it is."""
    waiting = list(range(len(states)))
    while waiting:
        prompts = {i: states[i].current_prompt() for i in waiting}
        if draft is not None:
            for i in waiting:
                for token in speculative_decode(model, draft, states[i], prompts[i], special_ids, generation_config, strategy):
                    yield i, token
        else:
            sizes = [len(prompts[i].input_ids) + states[i].max_new_tokens - len(states[i].generated_ids) for i in waiting]
            for group in group_by_length(sizes, MAX_CACHED_TOKENS):
                rows = {waiting[g]: states[waiting[g]] for g in group}
                read = DecodingBatch(model, [prompts[i] for i in rows], special_ids)
                yield from _decode_batch(read, rows, special_ids, generation_config, strategy, track_log_probability)
        waiting = [i for i in waiting if not states[i].is_finished]
    _warn_of_truncation([len(text.generated_ids) for text in states], states, generation_config)


def _decode_batch(
    decoding_batch: DecodingBatch,
    states: Mapping[int, GenerationState],
    special_ids: SpecialTokenIds,
    generation_config: GenerationConfig,
    strategy: Greedy | Sampling,
    track_log_probability: bool,
) -> Iterator[tuple[int, int]]:
    """Read what stands before, then token by token what is said; texts that halt are dropped."""
    going = list(states.items())
    while True:
        here = [(text, text.generated_ids) for _, text in going]
        scores = process_logits(decoding_batch.next_token_logits()[:, 0], here, generation_config, special_ids)
        picked = select_tokens(scores, strategy, [text.generator for _, text in going])
        if track_log_probability:
            _add_log_probabilities([text for _, text in going], scores, picked)
        for (i, text), token in zip(going, picked.tolist(), strict=True):
            if text.append_token(token, special_ids.end):
                yield i, token
        on = [row for row, (_, text) in enumerate(going) if not text.is_paused]
        if not on:
            return
        if len(on) < len(going):
            kept = torch.tensor(on, device=picked.device)
            decoding_batch.select_rows(kept)
            picked, going = picked[kept], [going[row] for row in on]
        decoding_batch.append_tokens(picked[:, None])


def _add_log_probabilities(states: Sequence[GenerationState], logits: Float[Tensor, "b v"], token_ids: Int[Tensor, "b"]) -> None:
    """Add to each text how likely the model holds what was picked, if anything was."""
    logs = logits.log_softmax(-1).gather(-1, token_ids.clamp(min=0)[:, None])[:, 0].tolist()
    for text, token, log in zip(states, token_ids.tolist(), logs, strict=True):
        text.log_probability += 0.0 if token == NO_TOKEN else log


def initial_states(
    model: Model,
    prompts: Sequence[Sequence[int]],
    special_ids: SpecialTokenIds,
    generation_config: GenerationConfig,
    *,
    output_prefixes: Sequence[Sequence[int]] | None = None,
    constraints: Sequence[GenerationConstraint] | None = None,
) -> list[GenerationState]:
    """Make of each prompt a text of which nothing was said; args and errors as in `generate`."""
    if not model.can_generate:
        raise ValueError("this model reads in both directions and does not generate; use `fill`")
    encoder = isinstance(model.backbone, EncoderDecoder)
    given = [list(prompt) or [special_ids.start] for prompt in prompts]
    said = [list(ids) for ids in output_prefixes] if output_prefixes is not None else [[] for _ in given]
    if encoder:
        _check_lengths(given, max_text_length(model, encoder_stack(model)), "")
    answer = (special_ids.start, *special_ids.decoder_prefix)
    before = [list(answer)] * len(given) if encoder else given
    read = [[*ids, *more] for ids, more in zip(before, said, strict=True)]
    length = max_text_length(model, decoder_stack(model))
    if length is not None and model.appended_mask_generation is not None:
        length -= 1  # where the mask stands
    sources = model.is_sequence_to_sequence and not encoder
    if not generation_config.window:
        _check_lengths(read, length, ": `window` reads the last of it" if not sources else "")
    elif sources and length is not None:
        _check_lengths(given, length - 1, "")  # what is said has to be read beside it
    dice = _make_generators([[*ids, *more] for ids, more in zip(given, said, strict=True)], generation_config.seed)
    head = answer if encoder else special_ids.prefix
    wholes = [len(ids) * sources for ids in given]
    return [
        GenerationState(
            prompt_ids=ids,
            source_ids=source if encoder else None,
            n_source_tokens=whole,
            n_forced_tokens=len(special_ids.decoder_prefix) if encoder else 0,
            max_new_tokens=generation_config.max_new_tokens
            if length is None or generation_config.window
            else min(generation_config.max_new_tokens, length + 1 - len(ids)),
            max_length=length,
            n_prefix_tokens=whole or (len(head) if tuple(ids[: len(head)]) == head else 0),
            generator=one,
            constraint=guide,
        )
        for source, ids, whole, one, guide in zip(
            given, read, wholes, dice, constraints or [None] * len(given), strict=True
        )
    ]


def _warn_of_truncation(lengths: Sequence[int], states: Sequence[GenerationState], generation_config: GenerationConfig) -> None:
    """Tell of texts that have as many tokens as there was room for, and were to have more."""
    full = [text for n, text in zip(lengths, states, strict=True) if n == text.max_new_tokens < generation_config.max_new_tokens]
    if full:
        _log.warning(
            "%s ended after %d new tokens, at the model's last position, before the %d that were "
            "asked for%s",
            "a text" if len(full) == 1 else f"{len(full):,} texts",
            min(text.max_new_tokens for text in full),
            generation_config.max_new_tokens,
            "" if isinstance(generation_config.strategy, BeamSearch) else "; `window` reads the last of it, and goes on",
        )


def _check_lengths(prompts: Sequence[Sequence[int]], max_length: int | None, hint: str) -> None:
    for i, prompt in enumerate(prompts, 1):
        if max_length is not None and len(prompt) > max_length:
            raise ValueError(
                f"prompt {i} has {len(prompt)} tokens, but the model only {max_length} positions for it"
                f"{hint}"
            )


def _make_generators(prompts: Sequence[Sequence[int]], seed: int) -> list[np.random.Generator]:
    """Give each prompt a generator of its own, whatever stands beside it."""
    seen: Counter[tuple[int, ...]] = Counter()
    found: list[np.random.Generator] = []
    for prompt in map(tuple, prompts):
        found.append(np.random.default_rng([seed, seen[prompt], *prompt]))
        seen[prompt] += 1
    return found
