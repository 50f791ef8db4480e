"""Rank given texts: by the likelihood of each, or by constrained beam search."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from unmask.adapters.prefix import max_text_length
from unmask.generation.decode import generate_candidates, initial_states
from unmask.generation.decoding.batch import DecodingBatch
from unmask.generation.settings import generation_config
from unmask.generation.state import GenerationState
from unmask.generation.text_batches import evaluation_mode
from unmask.heads.model import Model
from unmask.tokenizers.spec import SpecialTokenIds

CHOICES_PER_BATCH = 64
"""Choices that are read together."""


@dataclass(frozen=True)
class RankedChoice:
    """One of the choices."""

    choice_index: int
    """Which one, counted from 0."""
    log_probability: float
    """Its log-probability after the prompt, the sum over its tokens."""


def rank_choices(
    model: Model,
    prompts: Sequence[Sequence[int]],
    choices: Sequence[Sequence[Sequence[int]]],
    special_ids: SpecialTokenIds,
    *,
    beams: int | None = None,
) -> list[list[RankedChoice]]:
    """Rank the choices of each prompt by their likelihood after it, the likeliest first.

    The end token is scored as the last token of each choice in sequence-to-sequence models
    (`Model.is_sequence_to_sequence`), and if a choice is a prefix of another.

    Args:
        model: a decoder or an encoder-decoder.
        prompts: token ids, special tokens included.
        choices: for each prompt, the tokens of its choices.
        special_ids: the vocabulary's special tokens.
        beams: None: all choices are scored. Otherwise the width of a beam search restricted to the
            choices; 1 is greedy. It is faster with many choices, returns at most that many, and may
            miss the likeliest.

    Raises:
        ValueError: the model does not generate; a prompt and its choices are longer than its
            positions; a choice is empty, repeated, or a prefix of another in a model without an end
            token.
    """
    config = generation_config(
        max_new_tokens=max((len(c) for some in choices for c in some), default=0) + 1
    )
    ended = [_with_end_tokens(some, special_ids, model.is_sequence_to_sequence) for some in choices]
    states = initial_states(model, prompts, special_ids, config)
    length = max_text_length(model, model.backbone.decoder_stack)
    for i, (state, some) in enumerate(zip(states, ended, strict=True), 1):
        longest = max(map(len, some))
        if length is not None and len(state.prompt_ids) + longest - 1 > length:
            raise ValueError(
                f"prompt {i} has {len(state.prompt_ids)} tokens and its longest choice {longest}, "
                f"but the model has only {length} positions"
            )
    if beams is None:
        with evaluation_mode(model):
            return [
                _score_choices(model, *one, special_ids) for one in zip(states, ended, strict=True)
            ]
    constraints = [ChoiceConstraint(some) for some in ended]
    config = generation_config(
        beams=beams,
        n_best=beams,
        length_penalty=0.0,
        early_stopping=True,
        max_new_tokens=config.max_new_tokens,
    )
    found = generate_candidates(model, prompts, special_ids, config, constraints=constraints)
    return [
        [RankedChoice([tuple(c) for c in some].index(one.token_ids), one.score) for one in best]
        for best, some in zip(found, choices, strict=True)
    ]


class ChoiceConstraint:
    """A constraint that allows only tokens that lead to one of some texts."""

    def __init__(self, choices: Sequence[Sequence[int]]) -> None:
        self._next_tokens: dict[tuple[int, ...], dict[int, None]] = {}
        for choice in choices:
            for n, token in enumerate(choice):
                self._next_tokens.setdefault(tuple(choice[:n]), {})[token] = None

    def is_finished(self, generated_ids: Sequence[int]) -> bool:
        """Return whether no choice continues after this prefix."""
        return not self.allowed_tokens(generated_ids)

    def allowed_tokens(self, generated_ids: Sequence[int]) -> Sequence[int]:
        """List the next tokens of choices that begin so."""
        return list(self._next_tokens.get(tuple(generated_ids), ()))


def _with_end_tokens(
    choices: Sequence[Sequence[int]], special_ids: SpecialTokenIds, always_end: bool
) -> list[tuple[int, ...]]:
    """Check choices, and add the end token where it distinguishes one from another."""
    known = [tuple(choice) for choice in choices]
    if not known:
        raise ValueError("there is no choice")
    if () in known:
        raise ValueError(f"choice {known.index(()) + 1} has no token")
    for i, one in enumerate(known):
        if one in known[:i]:
            raise ValueError(f"choices {known.index(one) + 1} and {i + 1} are the same tokens")
    begin = {one[:n] for one in known for n in range(1, len(one))}
    if not always_end and begin.isdisjoint(known):
        return known
    if special_ids.end is None:
        raise ValueError(
            "a choice begins with another one, and there is no end token to distinguish them"
        )
    return [(*one, special_ids.end) for one in known]


def _score_choices(
    model: Model,
    state: GenerationState,
    choices: Sequence[tuple[int, ...]],
    special_ids: SpecialTokenIds,
) -> list[RankedChoice]:
    """Read the prompt once and every choice after it."""
    found: list[RankedChoice] = []
    for start in range(0, len(choices), CHOICES_PER_BATCH):
        some = choices[start : start + CHOICES_PER_BATCH]
        rows = DecodingBatch(model, [state.current_prompt()], special_ids)
        logs = rows.next_token_logits().log_softmax(-1)  # [1 1 v]
        width = max(map(len, some))
        ids = torch.tensor([[*c, *[special_ids.pad] * (width - len(c))] for c in some])
        ids = ids.to(logs.device)  # [c width]
        logs = logs.expand(len(some), -1, -1)
        if width > 1:
            rows.select_rows(torch.zeros(len(some), dtype=torch.long, device=logs.device))
            rows.append_tokens(ids[:, :-1])
            logs = torch.cat((logs, rows.next_token_logits(width - 1).log_softmax(-1)), 1)
        each = logs.gather(-1, ids[..., None])[..., 0].tolist()
        found += [
            RankedChoice(start + i, sum(row[: len(c)]))
            for i, (row, c) in enumerate(zip(each, some, strict=True))
        ]
    return sorted(found, key=lambda one: -one.log_probability)
