"""Generation, token by token: greedy, sampling, best-of-n and beam search, with a cache."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.adapters.prefix import max_text_length
from unmask.batching.collate import group_by_length
from unmask.generation.beam_search import ScoredSequence, beam_search
from unmask.generation.decoding.batch import DecodingBatch, FeaturedPrompt
from unmask.generation.decoding.fused_step import fused_step
from unmask.generation.settings import BeamSearch, BestOfN, GenerationConfig, Greedy, Sampling
from unmask.generation.speculative import DraftModel, speculative_decode
from unmask.generation.state import (
    NO_TOKEN,
    GenerationConstraint,
    GenerationState,
    StepObserver,
    process_logits,
    select_tokens,
)
from unmask.generation.text_batches import evaluation_mode
from unmask.heads.model import Model
from unmask.tokenizers.spec import SpecialTokenIds

ItemT = TypeVar("ItemT")

_log = logging.getLogger(__name__)

MAX_CACHED_TOKENS = 8192
"""Tokens, of prompts and new ones, whose keys and values are held at the same time."""


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

    A text ends before the model's end token, which is left out, after `max_new_tokens`, where its
    constraint says so, where nothing may follow, or where the positions end: n positions are read,
    so prompt and new tokens are at most n + 1; virtual tokens before the prompt
    (`unmask.adapters.prefix`) have positions, too. The output of a prompt does not depend on the
    others, unless rounding, which differs with the shape of a batch, decides between two tokens;
    one that is given several times is sampled several times. An empty prompt is the start token.
    Ids beyond the vocabulary, which a table of round size has, are never generated.

    Args:
        model: a decoder or an encoder-decoder.
        prompts: their tokens, special ones included.
        special_ids: of the vocabulary.
        generation_config: `stop` is left to the constraints, since it is text.
        output_prefixes: for each prompt the tokens with which its answer begins. They are not
            returned, and do not count as new.
        constraints: for each prompt what ends or constrains its text.
        draft: a smaller model that proposes tokens (`unmask.generation.speculative`).

    Raises:
        ValueError: the model does not generate, or a prompt is longer than its positions.
    """
    if generation_config.chooses_text:
        found = generate_candidates(
            model,
            prompts,
            special_ids,
            generation_config,
            output_prefixes=output_prefixes,
            constraints=constraints,
            draft=draft,
        )
        return [list(best[0].token_ids) for best in found]
    generated_ids: list[list[int]] = [[] for _ in prompts]
    with evaluation_mode(model):
        states = initial_states(
            model,
            prompts,
            special_ids,
            generation_config,
            output_prefixes=output_prefixes,
            constraints=constraints,
        )
        for i, token in stream_tokens(model, states, special_ids, generation_config, draft=draft):
            generated_ids[i].append(token)
    return generated_ids


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
    """Search for the best texts after each prompt, or sample some; return the `n_best` of each.

    Args and errors are those of `generate`.

    Raises:
        ValueError: there are neither beams nor samples, more beams than tokens, or a draft, which
            they do not use.
    """
    if not isinstance(generation_config.strategy, BeamSearch | BestOfN):
        raise ValueError("only beams or samples give several texts of a prompt: give one of them")
    if draft is not None:
        raise ValueError(
            "a draft guesses one token after another: give "
            f"{candidates_noun(generation_config.strategy)} or a draft, not both"
        )
    if isinstance(generation_config.strategy, BestOfN):
        return _best_of_n(
            model,
            prompts,
            special_ids,
            generation_config,
            generation_config.strategy,
            output_prefixes,
            constraints,
        )
    strategy = generation_config.strategy
    if strategy.beams > special_ids.vocab_size:
        raise ValueError(
            f"{strategy.beams} beams are more than the {special_ids.vocab_size} tokens there are"
        )
    states = initial_states(
        model,
        prompts,
        special_ids,
        generation_config,
        output_prefixes=output_prefixes,
        constraints=constraints,
    )
    found: list[list[ScoredSequence]] = [[] for _ in states]
    sizes = [len(state.prompt_ids) + state.max_new_tokens for state in states]
    row_counts = [strategy.beams] * len(sizes)
    with evaluation_mode(model):
        step = fused_step(model, generation_config.max_new_tokens, generation_config.precision)
        for group in group_by_length(sizes, MAX_CACHED_TOKENS, row_counts=row_counts):
            some = [states[i] for i in group]
            best = beam_search(model, some, generation_config, strategy, special_ids, step)
            for i, one in zip(group, best, strict=True):
                found[i] = one
    _warn_of_truncation([len(best[0].token_ids) for best in found], states, generation_config)
    return found


def streamed_strategy(generation_config: GenerationConfig) -> Greedy | Sampling:
    """Return a strategy that selects one token after another.

    Raises:
        ValueError: it chooses one of several texts, when they have ended.
    """
    strategy = generation_config.strategy
    if isinstance(strategy, BeamSearch | BestOfN):
        raise ValueError(f"{candidates_noun(strategy)} end before a text is known: no stream")
    return strategy


def candidates_noun(strategy: BeamSearch | BestOfN) -> str:
    """Name the candidates that one text is chosen from."""
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
    """Sample several texts of each prompt, and rank those that differ by log-probability."""
    n = strategy.samples
    states = initial_states(
        model,
        _repeat_each(prompts, n),
        special_ids,
        generation_config,
        output_prefixes=None if output_prefixes is None else _repeat_each(output_prefixes, n),
        constraints=None if constraints is None else _repeat_each(constraints, n),
    )
    with evaluation_mode(model):
        for _ in _stream_tokens(
            model,
            states,
            special_ids,
            generation_config,
            strategy.sampling,
            observer=_add_log_probabilities,
        ):
            pass
    found: list[list[ScoredSequence]] = []
    for i in range(0, len(states), n):
        some = {
            tuple(state.generated_ids): ScoredSequence(
                tuple(state.generated_ids), state.log_probability
            )
            for state in states[i : i + n]
        }
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
    observer: StepObserver | None = None,
) -> Iterator[tuple[int, int]]:
    """Generate each text, by a model in evaluation mode; yield its index and each token at once.

    `observer` sees what each token was selected from, before it is yielded.

    Raises:
        ValueError: `generation_config` chooses one of several texts, which is known when they have
            ended; or there is an observer and a draft, whose tokens are not selected one by one.
    """
    strategy = streamed_strategy(generation_config)
    if draft is not None:
        if observer is not None:
            raise ValueError("a draft guesses several tokens at once: observe, or give a draft")
        if generation_config.precision != "float32":
            raise ValueError(
                "a draft is verified in float32: give a draft or a precision, not both"
            )
        draft.check_compatible(model)
    yield from _stream_tokens(
        model, states, special_ids, generation_config, strategy, draft=draft, observer=observer
    )


def _stream_tokens(
    model: Model,
    states: Sequence[GenerationState],
    special_ids: SpecialTokenIds,
    generation_config: GenerationConfig,
    strategy: Greedy | Sampling,
    *,
    draft: DraftModel | None = None,
    observer: StepObserver | None = None,
) -> Iterator[tuple[int, int]]:
    """Generate each text as `stream_tokens` does, one of several too."""
    waiting = list(range(len(states)))
    step = None
    if draft is None:
        step = fused_step(model, generation_config.max_new_tokens, generation_config.precision)
    while waiting:
        prompts = {i: states[i].current_prompt() for i in waiting}
        if draft is not None:
            for i in waiting:
                for token in speculative_decode(
                    model, draft, states[i], prompts[i], special_ids, generation_config, strategy
                ):
                    yield i, token
        else:
            sizes = [
                len(prompts[i].input_ids) + states[i].max_new_tokens - len(states[i].generated_ids)
                for i in waiting
            ]
            for group in group_by_length(sizes, MAX_CACHED_TOKENS):
                rows = {waiting[g]: states[waiting[g]] for g in group}
                read = DecodingBatch(model, [prompts[i] for i in rows], special_ids, step=step)
                yield from _decode_batch(
                    read, rows, special_ids, generation_config, strategy, observer
                )
        waiting = [i for i in waiting if not states[i].is_finished]
    _warn_of_truncation([len(text.generated_ids) for text in states], states, generation_config)


def _decode_batch(
    decoding_batch: DecodingBatch,
    states: Mapping[int, GenerationState],
    special_ids: SpecialTokenIds,
    generation_config: GenerationConfig,
    strategy: Greedy | Sampling,
    observer: StepObserver | None,
) -> Iterator[tuple[int, int]]:
    """Read the prompts, then generate token by token; texts that pause are dropped."""
    active = list(states.items())
    while True:
        generated = [(state, state.generated_ids) for _, state in active]
        logits = process_logits(
            decoding_batch.next_token_logits()[:, 0], generated, generation_config, special_ids
        )
        tokens = select_tokens(logits, strategy, [state.generator for _, state in active])
        if observer is not None:
            observer([state for _, state in active], logits, tokens)
        for (i, state), token in zip(active, tokens.tolist(), strict=True):
            if state.append_token(token, special_ids):
                yield i, token
        rows = [row for row, (_, state) in enumerate(active) if not state.is_paused]
        if not rows:
            return
        if len(rows) < len(active):
            selected = torch.tensor(rows, device=tokens.device)
            decoding_batch.select_rows(selected)
            tokens, active = tokens[selected], [active[row] for row in rows]
        decoding_batch.append_tokens(tokens[:, None])


def _add_log_probabilities(
    states: Sequence[GenerationState], logits: Float[Tensor, "b v"], token_ids: Int[Tensor, "b"]
) -> None:
    """Add to each text the log-probability of its selected token, if there is one."""
    logs = logits.log_softmax(-1).gather(-1, token_ids.clamp(min=0)[:, None])[:, 0].tolist()
    for state, token, log in zip(states, token_ids.tolist(), logs, strict=True):
        state.log_probability += 0.0 if token == NO_TOKEN else log


def initial_states(
    model: Model,
    prompts: Sequence[Sequence[int]],
    special_ids: SpecialTokenIds,
    generation_config: GenerationConfig,
    *,
    output_prefixes: Sequence[Sequence[int]] | None = None,
    constraints: Sequence[GenerationConstraint] | None = None,
) -> list[GenerationState]:
    """Make the state of each prompt before generation; args and errors as in `generate`."""
    if not model.can_generate:
        raise ValueError("this model reads in both directions and does not generate; use `fill`")
    encoder = model.architecture.is_encoder_decoder
    given = [list(prompt) or [special_ids.start] for prompt in prompts]
    prefixes: list[list[int]] = [[] for _ in given]
    if output_prefixes is not None:
        prefixes = [list(ids) for ids in output_prefixes]
    if encoder:
        _check_lengths(given, max_text_length(model, model.backbone.encoder_stack), "")
    decoder_prefix = (special_ids.start, *special_ids.decoder_prefix)
    before = [list(decoder_prefix)] * len(given) if encoder else given
    prompt_ids = [[*ids, *more] for ids, more in zip(before, prefixes, strict=True)]
    length = max_text_length(model, model.backbone.decoder_stack)
    if length is not None and model.appended_mask_generation is not None:
        length -= 1  # position of the mask
    has_source = model.is_sequence_to_sequence and not encoder
    if not generation_config.window:
        _check_lengths(prompt_ids, length, "" if has_source else ": `window` reads the last of it")
    elif has_source and length is not None:
        _check_lengths(given, length - 1, "")  # new tokens have to be read beside it
    beside = [p if isinstance(p, FeaturedPrompt) else None for p in prompts]
    seeded_by = [
        [*ids, *more, *(() if extra is None else (extra.fingerprint,))]
        for ids, more, extra in zip(given, prefixes, beside, strict=True)
    ]
    generators = _make_generators(seeded_by, generation_config.seed)
    head = decoder_prefix if encoder else special_ids.prefix
    n_new_tokens = [_max_new_tokens(generation_config, ids) for ids in prompt_ids]
    source_lengths = [len(ids) * has_source for ids in given]
    all_constraints = constraints or [None] * len(given)
    return [
        GenerationState(
            prompt_ids=ids,
            source_ids=source if encoder else None,
            features=() if extra is None else extra.features,
            n_source_tokens=n_source,
            n_forced_tokens=len(special_ids.decoder_prefix) if encoder else 0,
            max_new_tokens=n_new
            if length is None or generation_config.window
            else min(n_new, length + 1 - len(ids)),
            max_length=length,
            n_prefix_tokens=n_source or (len(head) if tuple(ids[: len(head)]) == head else 0),
            generator=generator,
            constraint=constraint,
        )
        for source, ids, n_new, n_source, generator, constraint, extra in zip(
            given, prompt_ids, n_new_tokens, source_lengths, generators, all_constraints, beside,
            strict=True,
        )
    ]  # fmt: skip


def _max_new_tokens(generation_config: GenerationConfig, prompt: Sequence[int]) -> int:
    """Return the maximum number of new tokens after a prompt, whatever the positions are.

    Raises:
        ValueError: the prompt leaves none.
    """
    if generation_config.max_length is None:
        return generation_config.max_new_tokens
    left = generation_config.max_length - len(prompt)
    if left < 1:
        raise ValueError(
            f"a prompt has {len(prompt)} tokens, but max_length, which counts them, is "
            f"{generation_config.max_length}: give max_new_tokens"
        )
    return min(generation_config.max_new_tokens, left)


def _warn_of_truncation(
    lengths: Sequence[int], states: Sequence[GenerationState], generation_config: GenerationConfig
) -> None:
    """Warn of texts that filled the model's positions before `max_new_tokens`."""
    full = [
        state
        for n, state in zip(lengths, states, strict=True)
        if n == state.max_new_tokens < _max_new_tokens(generation_config, state.prompt_ids)
    ]
    if full:
        _log.warning(
            "%s ended after %d new tokens, at the model's last position, before the %d that were "
            "asked for%s",
            "a text" if len(full) == 1 else f"{len(full):,} texts",
            min(state.max_new_tokens for state in full),
            generation_config.max_new_tokens,
            ""
            if isinstance(generation_config.strategy, BeamSearch)
            else "; `window` reads the last of it, and goes on",
        )


def _check_lengths(prompts: Sequence[Sequence[int]], max_length: int | None, hint: str) -> None:
    for i, prompt in enumerate(prompts, 1):
        if max_length is not None and len(prompt) > max_length:
            raise ValueError(
                f"prompt {i} has {len(prompt)} tokens, but the model only {max_length} positions "
                f"for it{hint}"
            )


def _make_generators(prompts: Sequence[Sequence[int]], seed: int) -> list[np.random.Generator]:
    """Return a random generator for each prompt, independent of the other prompts."""
    seen: Counter[tuple[int, ...]] = Counter()
    found: list[np.random.Generator] = []
    for prompt in map(tuple, prompts):
        found.append(np.random.default_rng([seed, seen[prompt], *prompt]))
        seen[prompt] += 1
    return found
