"""Rewards: a number for each response, learned from which of several is better."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch.nn import functional as F

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.conversations.encode import encode_conversation, plain_template, template_tokens
from unmask.conversations.messages import Conversation, Message, fit_turns
from unmask.conversations.template import ChatTemplate
from unmask.finetuning.formulations.conversations.instructions import left_out_phrases
from unmask.finetuning.formulations.conversations.reward_metrics import reward_metrics
from unmask.finetuning.formulations.formulation import (
    LABEL_HEAD,
    PredictionRecord,
    TaskInput,
    is_encoder_decoder,
)
from unmask.finetuning.formulations.multiple_choice_head import concatenate_scores
from unmask.finetuning.formulations.pooling import classification_head
from unmask.heads.classification.choice_groups import ChoiceGroup, RewardMargin
from unmask.heads.classification.label_losses import CORRECT, PairwiseRanking
from unmask.heads.model import Model
from unmask.heads.spec import HeadSpec
from unmask.tasks.kinds.instruct import read_template_option
from unmask.tasks.kinds.prefer import parse_preference_options
from unmask.tasks.task import Task, TaskExample
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.preset import Published


@dataclass(frozen=True, kw_only=True)
class RewardFormulation:
    """A prompt with a response as a chat template writes them, and a linear head on it.

    Of a decoder the head reads the last token that is no padding token, as transformers' classes
    do: the end of the response, or the token before it where texts are padded with their end. An
    encoder reads the same between its special tokens, and pools as for labels.

    All responses to a prompt are in one batch. What is too long loses its earliest turns, in all of
    its responses; where that does not suffice, the comparison has no input.
    """

    task: Task
    tokenizer: Tokenizer
    template: ChatTemplate
    is_causal: bool
    margin: float = 0.0
    """Of comparisons that have none of their own."""

    @property
    def special_ids(self) -> SpecialTokenIds:
        """The vocabulary's special tokens."""
        return self.tokenizer.special_ids

    def fitting_items(self, items: Sequence[TaskExample]) -> tuple[list[TaskExample], list[str]]:
        """Return the comparisons that fit, and a phrase that counts the others."""
        answered = [item for item in items if all(map(str.strip, item.choices))]
        kept = [item for item in answered if self._fitting(item) is not None]
        return kept, left_out_phrases(
            len(items) - len(answered), len(answered) - len(kept), self.task.max_length
        )

    def build_inputs(self, items: Sequence[TaskExample]) -> list[TaskInput]:
        """Build an input for each response.

        Raises:
            ValueError: a comparison does not fit.
        """
        inputs: list[TaskInput] = []
        for i, item in enumerate(items):
            found = self._fitting(item)
            if found is None:
                raise ValueError(
                    f"{item.location}: its last turns do not fit {self.task.max_length} tokens"
                )
            responses, is_shortened = found
            for rank, ids in enumerate(responses):
                label = None if item.label is None else CORRECT - rank
                example = Example(
                    inputs=ids, targets=np.full(len(ids), IGNORE_INDEX), label=label,
                    rank=np.arange(len(ids)) if self.is_causal else None,
                )  # fmt: skip
                example = example.with_feature(ChoiceGroup(i))
                value = self.margin if item.margin is None else item.margin
                example = example.with_feature(RewardMargin(value))
                inputs.append(TaskInput(item_index=i, example=example, truncated=is_shortened))
        return inputs

    def _fitting(self, item: TaskExample) -> tuple[list[Int[np.ndarray, "_"]], bool] | None:
        """Return the tokens of each response with its prompt, and whether turns were left out."""
        found = fit_turns(
            item.turns,
            lambda prompt: [self._ids(item, prompt, response) for response in item.choices],
            lambda responses: max(map(len, responses)) <= self.task.max_length,
        )
        return None if found is None else (found[0], found[1] > 0)

    def _ids(
        self, item: TaskExample, prompt: tuple[Message, ...], response: str
    ) -> Int[np.ndarray, "_"]:
        turns = (*prompt, Message("assistant", response))
        conversation = Conversation(messages=turns, location=item.location)
        ids = encode_conversation(self.tokenizer, self.template, conversation).ids.tolist()
        special = self.special_ids
        if not self.is_causal:
            first = ids[: len(special.prefix)] == list(special.prefix)
            last = ids[len(ids) - len(special.suffix) :] == list(special.suffix)
            ids = [*(() if first else special.prefix), *ids, *(() if last else special.suffix)]
        elif special.pad == special.end:
            while len(ids) > 1 and ids[-1] == special.pad:
                ids.pop()
        return np.array(ids, np.int64)

    def compute_scores(
        self, model: Model, batch: Batch, task_inputs: Sequence[TaskInput]
    ) -> list[Float[np.ndarray, "1"]]:
        """Compute the reward of each response."""
        logits = model(replace(batch, labels=None), return_logits=True).logits[LABEL_HEAD]
        return list(logits.double().cpu().numpy())

    def merge_scores(
        self, task_inputs: Sequence[TaskInput], input_scores: Sequence[np.ndarray]
    ) -> Float[np.ndarray, "1 responses"]:
        """Return the rewards of the responses of an item."""
        return concatenate_scores(task_inputs, input_scores)[None]

    def prediction(self, item: TaskExample, scores: Float[np.ndarray, "1 responses"]) -> int:
        """Return the index of the best response; of equal ones none, -1."""
        best = np.flatnonzero(scores[0] == scores[0].max())
        return int(best[0]) if len(best) == 1 else -1

    def prediction_record(
        self, item: TaskExample, scores: Float[np.ndarray, "1 responses"]
    ) -> PredictionRecord:
        """Return {"reward"} of a response, or {"index", "rewards", "probabilities"} of several."""
        rewards = scores[0].tolist()
        if len(rewards) == 1:
            return {"reward": rewards[0]}
        shares = torch.from_numpy(scores[0]).softmax(0).tolist()
        best = self.prediction(item, scores)
        return {"index": best, "rewards": rewards, "probabilities": shares}

    def score_metrics(
        self, items: Sequence[TaskExample], scores: Sequence[Float[np.ndarray, "1 responses"]]
    ) -> dict[str, float]:
        """Compute what rewards say beside accuracy and loss; see `reward_metrics`."""
        lengths = [
            np.array([len(ids) for ids in self.tokenizer.encode_ids_batch(item.choices)])
            for item in items
        ]
        return reward_metrics([own[0] for own in scores], lengths)

    def loss(
        self, item: TaskExample, scores: Float[np.ndarray, "1 responses"]
    ) -> tuple[float, int]:
        """Return the mean Bradley-Terry loss of all pairs, in nats."""
        rewards = torch.from_numpy(scores[0])
        if len(rewards) < 2:
            return 0.0, 0
        better, worse = torch.triu_indices(len(rewards), len(rewards), 1)
        return float(-F.logsigmoid(rewards[better] - rewards[worse]).mean()), 1


def reward_heads(task: Task, preset: Published) -> dict[str, HeadSpec]:
    """Return a classification head with one label, whose loss compares responses.

    Raises:
        ValueError: the model has no such head.
    """
    if is_encoder_decoder(preset):
        raise ValueError(f"{preset.name}: rewards are learned by a decoder or an encoder")
    options = parse_preference_options(task.options)
    head = classification_head(task, preset, options)
    return {LABEL_HEAD: replace(head, n_labels=1, loss=PairwiseRanking(options.margin))}


def formulate_rewards(task: Task, preset: Published, tokenizer: Tokenizer) -> RewardFormulation:
    """Formulate the comparison of responses.

    Raises:
        ValueError: the tokenizer has no token that ends a text, or the template is invalid.
    """
    options = parse_preference_options(task.options)
    template = plain_template(tokenizer)
    if options.chat_template is not None:
        names = options.template_tokens or template_tokens(tokenizer)
        template = ChatTemplate(read_template_option(options.chat_template), names)
    return RewardFormulation(
        task=task,
        tokenizer=tokenizer,
        template=template,
        is_causal=preset.architecture.decoder_stack.causal,
        margin=options.margin,
    )
