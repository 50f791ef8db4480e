"""Instructions: the responses of conversations are learned, and nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.conversations.encode import (
    check_no_special_tokens,
    encode_conversation,
    encode_prompt,
    end_of_response,
    plain_template,
    template_tokens,
)
from unmask.conversations.messages import Conversation, Message, fit_turns
from unmask.conversations.template import ChatTemplate
from unmask.finetuning.formulations.formulation import (
    LANGUAGE_HEAD,
    PredictionRecord,
    TaskInput,
    is_encoder_decoder,
    language_modeling_head,
)
from unmask.finetuning.formulations.text_to_text.text_to_text import GeneratedText
from unmask.generation.decode import generate
from unmask.generation.settings import GenerationConfig
from unmask.heads.model import Model
from unmask.heads.spec import HeadSpec
from unmask.tasks.all_kinds import reads_conversations
from unmask.tasks.kinds.instruct import (
    LOSS_METRIC,
    parse_instruction_options,
    read_template_option,
)
from unmask.tasks.task import Label, Task, TaskExample
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.preset import Published


@dataclass(frozen=True, kw_only=True)
class InstructionFormulation:
    """Conversations as a chat template writes them; the loss is on responses alone.

    A decoder reads a whole conversation and learns all of its responses (Ouyang et al. 2022,
    arXiv:2203.02155, section "Models"; Touvron et al. 2023, arXiv:2307.09288, section "Supervised
    Fine-Tuning"). An
    encoder-decoder reads what is before the last response, and its decoder learns that.

    A conversation that is too long loses its earliest turns, but not that of the system. One whose
    last prompt and response do not fit, or that has no response, has no input: no target is
    silently missing.
    """

    task: Task
    tokenizer: Tokenizer
    template: ChatTemplate
    end_id: int
    """The token that ends a generated response."""
    is_encoder_decoder: bool
    max_response_length: int
    max_dev_items: int
    is_packed: bool = False

    @property
    def row_length(self) -> int | None:
        """Tokens of a row of several conversations; None: each has its own."""
        return self.task.max_length if self.is_packed else None

    @property
    def special_ids(self) -> SpecialTokenIds:
        """The vocabulary's special tokens."""
        return self.tokenizer.special_ids

    def fitting_items(self, items: Sequence[TaskExample]) -> tuple[list[TaskExample], list[str]]:
        """Return the conversations with a response that fits, and what is wrong with the others."""
        answered = [item for item in items if _has_response(item)]
        fitting = [item for item in answered if self._fitting(item) is not None]
        return fitting, left_out_phrases(
            len(items) - len(answered), len(answered) - len(fitting), self.task.max_length
        )

    def build_inputs(self, items: Sequence[TaskExample]) -> list[TaskInput]:
        """Build the input of each conversation; see the class.

        Raises:
            ValueError: one does not fit, or has no response to learn (`fitting_items`).
        """
        inputs: list[TaskInput] = []
        for i, item in enumerate(items):
            found = self._fitting(item)
            if found is None:
                raise ValueError(
                    f"{item.location}: its last turns do not fit {self.task.max_length} tokens, or "
                    "it has no response"
                )
            example, is_shortened = found
            inputs.append(TaskInput(item_index=i, example=example, truncated=is_shortened))
        return inputs

    def _fitting(self, item: TaskExample) -> tuple[Example, bool] | None:
        """Return the input of a conversation, and whether turns were left out; None: none fits."""
        if not _has_response(item):
            return None
        found = fit_turns(
            item.turns,
            lambda turns: self.encode_turns(item, turns),
            lambda example: _length(example) <= self.task.max_length,
        )
        return None if found is None else (found[0], found[1] > 0)

    def encode_turns(self, item: TaskExample, turns: tuple[Message, ...]) -> Example:
        """Encode turns, with targets where the response is known."""
        if item.label is None:
            return self.encode_prompt(turns, item.location)
        if self.is_encoder_decoder:
            prompt = self.encode_prompt(turns[:-1], item.location)
            check_no_special_tokens(self.tokenizer, turns[-1:], item.location)
            (response,) = self.tokenizer.encode_ids_batch([turns[-1].content.strip()])
            targets = np.append(response, self.end_id)
            inputs = np.concatenate((prompt.inputs, targets[:-1]))
            labels = np.full(len(inputs), IGNORE_INDEX)
            labels[len(prompt.inputs) - 1 :] = targets
            return replace(prompt, inputs=inputs, targets=labels, rank=np.arange(len(inputs)))
        conversation = Conversation(messages=turns, location=item.location)
        encoded = encode_conversation(self.tokenizer, self.template, conversation, self.end_id)
        n = len(encoded.ids) - int(encoded.targets[-1] == IGNORE_INDEX)
        return Example(inputs=encoded.ids[:n], targets=encoded.targets[:n], rank=np.arange(n))

    def encode_prompt(self, turns: Sequence[Message], location: str) -> Example:
        """Encode what is read before a response is generated; it has no targets."""
        ids = encode_prompt(self.tokenizer.input_tokenizer, self.template, turns, location)
        source = None
        if self.is_encoder_decoder:
            source = np.append(ids, self.tokenizer.input_tokenizer.special_ids.suffix).astype(int)
            ids = np.array([self.special_ids.start, *self.special_ids.decoder_prefix], np.int64)
        return Example(
            inputs=ids, targets=np.full(len(ids), IGNORE_INDEX), rank=np.arange(len(ids)),
            source=source,
        )  # fmt: skip

    def compute_scores(
        self, model: Model, batch: Batch, task_inputs: Sequence[TaskInput]
    ) -> list[GeneratedText]:
        """Score responses; generate them where they are not known, or are to be compared."""
        targets = [one.example.targets for one in task_inputs]
        counts = [int((own != IGNORE_INDEX).sum()) for own in targets]
        losses = [0.0] * len(targets)
        if any(counts):
            found = model.target_losses(batch, [torch.from_numpy(own) for own in targets])
            losses = [float(total) for total in found]
        written: list[list[int]] = [[] for _ in targets]
        if not all(counts) or self.task.metric != LOSS_METRIC:
            written = self.generate(model, [self.prompt_ids(one.example) for one in task_inputs])
        return [
            GeneratedText(token_ids=np.array(ids, np.int64), target_loss=loss, n_target_tokens=n)
            for ids, loss, n in zip(written, losses, counts, strict=True)
        ]

    def generate(self, model: Model, prompts: Sequence[Int[np.ndarray, "_"]]) -> list[list[int]]:
        """Generate a response to each prompt, greedily, up to the token that ends it."""
        config = GenerationConfig(max_new_tokens=self.max_response_length)
        special = replace(self.special_ids, end=self.end_id)
        return [
            list(ids) for ids in generate(model, [p.tolist() for p in prompts], special, config)
        ]

    def prompt_ids(self, example: Example) -> Int[np.ndarray, "_"]:
        """Return the tokens before the last response."""
        if example.source is not None:
            return example.source
        is_target = example.targets != IGNORE_INDEX
        if not is_target.any():
            return example.inputs
        begins = np.flatnonzero(np.diff(np.concatenate(([0], is_target.astype(np.int8)))) == 1)
        return example.inputs[: begins[-1] + 1]

    def merge_scores(
        self, task_inputs: Sequence[TaskInput], input_scores: Sequence[GeneratedText]
    ) -> GeneratedText:
        """Return the scores of the only input of an item."""
        (only,) = input_scores
        return only

    def prediction(self, item: TaskExample, scores: GeneratedText) -> Label:
        """Return the generated response."""
        return self.tokenizer.decode(scores.token_ids).strip()

    def prediction_record(self, item: TaskExample, scores: GeneratedText) -> PredictionRecord:
        """Return {"answer"}: the generated response."""
        return {"answer": str(self.prediction(item, scores))}

    def loss(self, item: TaskExample, scores: GeneratedText) -> tuple[float, int]:
        """Return the cross-entropy of the responses in nats, and their number of tokens."""
        return scores.target_loss, scores.n_target_tokens


def _has_response(item: TaskExample) -> bool:
    """Return whether a conversation ends with a response, or is to be answered."""
    last = item.turns[-1]
    return item.label is None or (last.is_learned and bool(last.content.strip()))


def _length(example: Example) -> int:
    n_source = 0 if example.source is None else len(example.source)
    return max(len(example.inputs), n_source)


def left_out_phrases(n_empty: int, n_long: int, max_length: int) -> list[str]:
    """Count the items that have no response, and those that are too long, in words."""
    phrases = (
        (n_empty, "without a response to learn"),
        (n_long, f"whose last turns are longer than {max_length} tokens"),
    )
    return [f"{n:,} {what}" for n, what in phrases if n]


def instruction_heads(task: Task, preset: Published) -> dict[str, HeadSpec]:
    """Return the head that predicts tokens.

    Raises:
        ValueError: the model does not generate text from left to right.
    """
    spec = language_modeling_head(preset)
    if not preset.architecture.decoder_stack.causal or spec.generation is not None:
        raise ValueError(
            f"{preset.name} does not write from left to right; instructions are learned by a "
            "decoder or an encoder-decoder"
        )
    return {LANGUAGE_HEAD: replace(spec, term="next_token")}


def formulate_instructions(
    task: Task, preset: Published, tokenizer: Tokenizer
) -> InstructionFormulation:
    """Formulate the learning of responses.

    Raises:
        ValueError: the tokenizer has no token that ends a text, or the template is invalid.
    """
    options = parse_instruction_options(task.options)
    template = plain_template(tokenizer)
    if options.chat_template is not None:
        names = (
            template_tokens(tokenizer)
            if options.template_tokens is None
            else options.template_tokens
        )
        template = ChatTemplate(read_template_option(options.chat_template), names)
    end = end_of_response(tokenizer, template)
    assert end is not None  # of `plain_template`
    return InstructionFormulation(
        task=task,
        tokenizer=tokenizer,
        template=template,
        end_id=end,
        is_encoder_decoder=is_encoder_decoder(preset),
        max_response_length=options.max_response_length,
        max_dev_items=options.max_dev_items,
        is_packed=options.packing == "pack",
    )


_WRITTEN = ("chat_template", "template_tokens")
"""Options of a task of conversations in which its template is written out."""


def template_of_task(task: Task) -> ChatTemplate | None:
    """Return the chat template of a task of conversations; None: of any other."""
    source, tokens = (task.options.get(name) for name in _WRITTEN)
    return None if source is None or tokens is None else ChatTemplate(source, tokens)


def with_chat_template(task: Task, template: ChatTemplate | None, tokenizer: Tokenizer) -> Task:
    """Return a task of conversations with its chat template written out; others are unchanged.

    Args:
        task: the task.
        template: the model's own; used if the task names none.
        tokenizer: of the model.
    """
    if not reads_conversations(task):
        return task
    source, names = (task.options.get(name) for name in _WRITTEN)
    if source is not None:
        if names is None:
            names = template_tokens(tokenizer) if template is None else template.special_tokens
        found = ChatTemplate(read_template_option(source), names)
    else:
        found = plain_template(tokenizer) if template is None else template
    written = dict(zip(_WRITTEN, (found.source, dict(found.special_tokens)), strict=True))
    return replace(task, options=dict(task.options) | written)
