"""Rewards of responses: by a reward model, or by a classifier of texts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol, cast, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float

from unmask.adapters.folder import open_model_or_adapter
from unmask.checkpoints.huggingface.read import resolve_model_folder
from unmask.conversations.messages import Message
from unmask.finetuning.formulations.build import formulate
from unmask.finetuning.formulations.conversations.instructions import with_chat_template
from unmask.finetuning.formulations.conversations.rewards import RewardFormulation
from unmask.finetuning.formulations.formulation import TaskFormulation, log_odds
from unmask.finetuning.results.predict import infer_task, predict_scores, read_task
from unmask.heads.model import Model
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.task import Task, TaskColumns, TaskExample

Reads = Literal["response", "all"]


@runtime_checkable
class Reward(Protocol):
    """A number for each response to a prompt: the greater, the better."""

    def __call__(
        self, prompts: Sequence[tuple[Message, ...]], responses: Sequence[str]
    ) -> Float[np.ndarray, "n"]:
        """Compute the rewards of responses, each after its prompt."""
        ...


@dataclass(frozen=True, kw_only=True)
class RewardFunction:
    """The reward of a model: a reward model, or a classifier of texts."""

    name: str
    model: Model
    formulation: TaskFormulation
    label_index: int | None
    """Of a classifier: the label whose log-odds are the reward. None: it is a reward model."""
    special_tokens: tuple[str, ...] = ()
    """Of the reward's tokenizer; they are left out of responses."""
    reads: Reads = "response"
    """What a classifier reads: the response, or all turns joined as they are."""

    def __call__(
        self, prompts: Sequence[tuple[Message, ...]], responses: Sequence[str]
    ) -> Float[np.ndarray, "n"]:
        """Compute the rewards of responses, each after its prompt.

        Of a response that is too long for a reward model, as much is read as fits.

        Raises:
            ValueError: a reward is not finite, or a prompt is not one of `check_prompts`.
        """
        if not responses:
            return np.zeros(0)
        items = [self._item(*both) for both in zip(prompts, responses, strict=True)]
        inputs = self.formulation.build_inputs(items)
        found = predict_scores(self.formulation, self.model, inputs).scores
        if self.label_index is None:
            rewards = np.array([float(scores.reshape(-1)[0]) for scores in found])
        else:
            scores = torch.from_numpy(np.concatenate(found)).double()
            rewards = log_odds(scores, self.label_index).numpy()
        if not np.isfinite(rewards).all():
            i = int(np.flatnonzero(~np.isfinite(rewards))[0])
            raise ValueError(f"{self.name}: the reward of {responses[i]!r} is {rewards[i]}")
        return rewards

    def check_prompts(
        self, prompts: Sequence[tuple[Message, ...]], places: Sequence[str], n_tokens: int
    ) -> None:
        """Check that each prompt can be rated with a response of some tokens, and the first one is.

        Args:
            prompts: the prompts.
            places: file and line of each.
            n_tokens: tokens of a response.

        Raises:
            ValueError: one cannot, or its reward is not finite.
        """
        if self.label_index is None:  # else it reads the beginning of a long text
            self._check_lengths(prompts, places, n_tokens)
        self(prompts[:1], ["a"] * len(prompts[:1]))

    def _check_lengths(
        self, prompts: Sequence[tuple[Message, ...]], places: Sequence[str], n_tokens: int
    ) -> None:
        own = cast("RewardFormulation", self.formulation)
        most = own.task.max_length
        shorter = replace(own, task=replace(own.task, max_length=most - n_tokens))
        for prompt, place in zip(prompts, places, strict=True):
            if not shorter.fitting_items([self._parse(prompt, "a", place)])[0]:
                raise ValueError(
                    f"{place}: {self.name} reads at most {most} tokens, which this prompt and a "
                    f"response of {n_tokens} exceed; give a smaller max_length or "
                    "max_response_length"
                )

    def _item(self, prompt: tuple[Message, ...], response: str) -> TaskExample:
        """Return a prompt and as much of a response as fits."""
        response = self._without_special_tokens(response)
        item = self._parse(prompt, response, "response")
        if self.label_index is None:
            own = cast("RewardFormulation", self.formulation)
            while response.strip() and not own.fitting_items([item])[0]:
                response = response[: len(response) * 3 // 4]
                item = self._parse(prompt, response, "response")
        return item

    def _parse(self, prompt: tuple[Message, ...], response: str, location: str) -> TaskExample:
        task = self.formulation.task
        parse = TASK_KINDS[task.task_kind].reader.parse_input
        return parse(task, self._input(prompt, response), location)

    def _without_special_tokens(self, response: str) -> str:
        """Leave out special tokens, also those that others leave: none poses as another turn."""
        before = None
        while before != response:
            before = response
            for token in self.special_tokens:
                response = response.replace(token, "")
        return response

    def _input(self, turns: tuple[Message, ...], response: str) -> object:
        if self.label_index is not None:
            before = "".join(turn.content for turn in turns) if self.reads == "all" else ""
            return before + response
        return [*(turn.to_dict() for turn in turns), Message("assistant", response).to_dict()]


def open_reward(
    source: str, option: str, device: torch.device, *, reads: Reads = "response"
) -> RewardFunction:
    """Open a reward model, or a classifier as FOLDER:LABEL.

    Args:
        source: a folder, `hf:owner/name` or a bundled model; a label after a colon.
        option: name of the option, for messages.
        device: where it computes.
        reads: what a classifier reads.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: the model gives no reward, or has no such label.
    """
    name, label = _split_label(source)
    if not name:
        raise ValueError(f"{option} must be MODEL or MODEL:LABEL, got {source!r}")
    folder = resolve_model_folder(name)
    loaded = open_model_or_adapter(folder)
    if loaded.tokenizer is None:
        raise ValueError(f"{option}: {name} has no tokenizer, which reading text needs")
    task = read_task(folder) or infer_task(loaded)
    if task.task_kind == "regress" and not task.labels:  # a reward model of another library
        columns = TaskColumns(texts=("chosen", "rejected"), label="label")
        task = Task(task_kind="prefer", columns=columns, max_length=task.max_length)
        task = with_chat_template(task, loaded.chat_template, loaded.tokenizer)
    if task.task_kind == "prefer":
        if label is not None:
            raise ValueError(f"{option}: {name} is a reward model, which has no label {label!r}")
    elif task.task_kind != "classify":
        raise ValueError(
            f"{option}: {name} was fine-tuned to {task.task_kind}; a reward is given by a reward "
            "model (--task prefer), or by a classifier of texts as FOLDER:LABEL"
        )
    elif label is None or label not in task.labels:
        got = "no label" if label is None else repr(label)
        raise ValueError(
            f"{option}: which label of {name} is the reward? Give {name}:LABEL, one of "
            f"{', '.join(task.labels)}; got {got}"
        )
    if not task.columns.texts:
        task = replace(task, columns=replace(task.columns, texts=("text",)))
    return RewardFunction(
        name=source,
        model=loaded.model.to(device).eval().requires_grad_(False),
        formulation=formulate(task, loaded.preset, loaded.tokenizer),
        special_tokens=tuple(loaded.tokenizer.pieces(sorted(loaded.tokenizer.special_ids.all_ids))),
        label_index=None if label is None else task.labels.index(label),
        reads=reads,
    )


def _split_label(source: str) -> tuple[str, str | None]:
    """Split FOLDER:LABEL; the name of a folder that is there may have a colon itself."""
    if Path(source).is_dir() or ":" not in source.removeprefix("hf:"):
        return source, None
    name, _, label = source.rpartition(":")
    return name, label
