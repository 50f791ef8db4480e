"""Preferences as a model reads them: examples whose targets are the tokens of one response."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int

from unmask.batch import IGNORE_INDEX, Example
from unmask.batching.collate import example_length
from unmask.conversations.messages import Message, fit_turns
from unmask.finetuning.formulations.conversations.instructions import (
    InstructionFormulation,
    left_out_phrases,
)
from unmask.heads.classification.choice_groups import ChoiceGroup
from unmask.preferences.data.rows import PreferenceRow
from unmask.preferences.pair_training import Desirability
from unmask.tasks.task import TaskExample


def encode_pairs(
    formulation: InstructionFormulation, rows: Sequence[PreferenceRow]
) -> tuple[list[Example], list[str]]:
    """Return two examples for each pair that fits, the better one first; and what was left out.

    A pair of equal responses is left out, too: of these none is better.
    """
    found: list[Example] = []
    counts = _Counts()
    for row in rows:
        pair = counts.add(row, formulation, row.responses)
        if pair and np.array_equal(pair[0].inputs, pair[1].inputs):
            counts.n_same += 1
            continue
        group = ChoiceGroup(len(found) // 2)
        found += [example.with_feature(group) for example in pair]
    return found, counts.phrases(formulation)


def encode_labeled(
    formulation: InstructionFormulation, rows: Sequence[PreferenceRow]
) -> tuple[list[Example], list[str]]:
    """Return two examples for each response that fits: its own, and a mismatched one.

    The latter has the response of the next row with another prompt. A file with one prompt alone
    has none: then the response is its own mismatch, and the divergence that of all responses.
    """
    found: list[Example] = []
    answered = [row for row in rows if all(map(str.strip, row.responses))]
    counts = _Counts(n_empty=len(rows) - len(answered))
    for row, other in zip(answered, _next_prompts(answered), strict=True):
        pair = counts.add(row, formulation, (*row.responses, *other.responses))
        group = ChoiceGroup(len(found) // 2)
        label = Desirability(int(bool(row.is_desirable)))
        found += [example.with_feature(group).with_feature(label) for example in pair]
    return found, counts.phrases(formulation)


def _next_prompts(rows: Sequence[PreferenceRow]) -> list[PreferenceRow]:
    """Return for each row the next one with another prompt, after the last row the first ones."""
    found = list(rows)
    for i in reversed(range(2 * len(rows))):
        here, after = i % len(rows), (i + 1) % len(rows)
        is_other = rows[after].prompt != rows[here].prompt
        found[here] = rows[after] if is_other else found[after]
    return found


def encode_prompts(
    formulation: InstructionFormulation, rows: Sequence[PreferenceRow]
) -> tuple[list[PreferenceRow], list[Example], list[str]]:
    """Return the prompts that fit with a response of the greatest length, and their examples.

    What is too long loses its earliest turns.
    """
    kept: list[PreferenceRow] = []
    found: list[Example] = []
    is_decoder = not formulation.is_encoder_decoder
    reserved = formulation.max_response_length if is_decoder else 0
    room = formulation.task.max_length - reserved
    for row in rows:
        fitting = fit_turns(
            row.prompt,
            lambda turns, row=row: (turns, formulation.encode_prompt(turns, row.location)),
            lambda encoded: 0 < example_length(encoded[1]) <= room,
        )
        if fitting is not None:
            turns, example = fitting[0]
            kept.append(replace(row, prompt=turns))
            found.append(example)
    n_long = len(rows) - len(kept)
    what = f"whose prompts are empty or longer than {room} tokens"
    return kept, found, [f"{n_long:,} {what}"] * bool(n_long)


def with_response(prompt: Example, response: Sequence[int], end_id: int | None) -> Example:
    """Return an example of a prompt with a response, whose tokens are its targets.

    Args:
        prompt: the prompt, without targets.
        response: tokens of the response.
        end_id: the token that ends it, a target, too. None: it was cut.
    """
    ids = np.array([*response, *(() if end_id is None else (end_id,))], np.int64)
    inputs = np.concatenate((prompt.inputs, ids[:-1]))
    targets = np.full(len(inputs), IGNORE_INDEX)
    targets[len(prompt.inputs) - 1 :] = ids
    return replace(prompt, inputs=inputs, targets=targets, rank=np.arange(len(inputs)))


class _Counts:
    """Counts what is left out."""

    def __init__(self, n_empty: int = 0) -> None:
        self.n_empty, self.n_long, self.n_same = n_empty, 0, 0
        self.n_unasked = self.n_joined = 0

    def add(
        self,
        row: PreferenceRow,
        formulation: InstructionFormulation,
        responses: Sequence[str],
    ) -> list[Example]:
        """Encode responses to the prompt of a row; count it where they are empty or too long."""
        if not all(response.strip() for response in responses):
            self.n_empty += 1
            return []
        if not example_length(formulation.encode_prompt(row.prompt, row.location)):
            self.n_unasked += 1  # the first token of a response would have no loss
            return []
        found = _encode_fitting(formulation, row, responses)
        self.n_long += not found
        if not all((example.targets != IGNORE_INDEX).any() for example in found):
            self.n_joined += 1
            return []
        return found

    def phrases(self, formulation: InstructionFormulation) -> list[str]:
        """Return a phrase for each reason."""
        others = (
            (self.n_same, "whose responses are equal"),
            (self.n_unasked, "without a prompt"),
            (self.n_joined, "whose responses have no token of their own after the prompt"),
        )
        return [
            *left_out_phrases(self.n_empty, self.n_long, formulation.task.max_length),
            *(f"{n:,} {what}" for n, what in others if n),
        ]


def _encode_fitting(
    formulation: InstructionFormulation, row: PreferenceRow, responses: Sequence[str]
) -> list[Example]:
    """Encode responses after one prompt, without its earliest turns where these are too long."""
    most = formulation.task.max_length
    fitting = fit_turns(
        row.prompt,
        lambda turns: [_encode_response(formulation, turns, x, row.location) for x in responses],
        lambda found: max(map(example_length, found)) <= most,
    )
    return [] if fitting is None else fitting[0]


def _encode_response(
    formulation: InstructionFormulation,
    prompt: tuple[Message, ...],
    response: str,
    location: str,
) -> Example:
    turns = (*prompt, Message("assistant", response))
    item = TaskExample(texts=(), label=response, turns=turns, location=location)
    return _only_last_response(formulation.encode_turns(item, turns))


def _only_last_response(example: Example) -> Example:
    """Leave out the targets of earlier responses, which all responses to a prompt share."""
    if not (example.targets != IGNORE_INDEX).any():
        return example
    begin = last_response_start(example.targets)
    targets = np.where(np.arange(len(example.targets)) < begin, IGNORE_INDEX, example.targets)
    return replace(example, targets=targets)


def last_response_start(targets: Int[np.ndarray, "t"]) -> int:
    """Return the column of the first target of the last response; there is one."""
    is_target = np.concatenate(([False], targets != IGNORE_INDEX))
    return int(np.flatnonzero(is_target[1:] & ~is_target[:-1])[-1])
