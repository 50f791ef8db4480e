"""Text for text: a model reads a source and writes a target, token by token."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Int

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.finetuning.formulations.formulation import PredictionRecord, TaskInput
from unmask.generation.decode import generate
from unmask.generation.settings import BeamSearch, GenerationConfig, Greedy
from unmask.heads.model import Model
from unmask.tasks.task import Label, Task, TaskExample
from unmask.tasks.text_templates import TextTemplate
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds


@dataclass(frozen=True, kw_only=True)
class GeneratedText:
    """What a model wrote of a source, and how unlikely it found the first of its targets."""

    token_ids: Int[np.ndarray, "_"]
    target_loss: float = 0.0
    """The cross-entropy of the target, summed over its tokens; 0 where none is known."""
    n_target_tokens: int = 0
    """How many these are."""


@dataclass(frozen=True, kw_only=True)
class TextToTextFormulation:
    """A source that is read, and a target that is learned, then written.

    An encoder reads the source and a decoder says the target (Raffel et al. 2020, section 2.4). A
    decoder alone reads the source and something between, and continues with the target; only that
    is asked (Radford et al. 2018, section 3.3, has a token between the two). A source that is too
    long is cut: of several texts the longest, and nothing of what is around them. Of a decoder
    there is room for a target of any length that it may have, so that what it reads does not depend
    on what is true.
    """

    task: Task
    tokenizer: Tokenizer
    prefix: str
    """What is read before the source."""
    leading_ids: tuple[int, ...]
    """Tokens before all that is read."""
    trailing_ids: tuple[int, ...]
    """Tokens after the source: what ends it, or parts it from the target."""
    end_id: int
    """The token that ends a target."""
    is_encoder_decoder: bool
    """An encoder reads the source."""
    max_target_length: int
    """Tokens of a target that are learned and written, the end included."""
    max_dev_items: int
    """Dev items whose targets are written while training."""
    bidirectional_source: bool = False
    """The source is seen as a whole by a stack that then says the target."""
    strategy: Greedy | BeamSearch = Greedy()
    """How targets are written."""
    templates: Mapping[str, TextTemplate] = field(default_factory=dict[str, TextTemplate])
    """How the texts of a task are put in one, by the name of the task."""

    @property
    def special_ids(self) -> SpecialTokenIds:
        """The vocabulary's special tokens."""
        return self.tokenizer.special_ids

    @property
    def max_source_tokens(self) -> int:
        """Tokens of a source, its prefix included."""
        room = self.task.max_length - len(self.leading_ids) - len(self.trailing_ids)
        return room if self.is_encoder_decoder else room - self.max_target_length

    def build_inputs(self, items: Sequence[TaskExample]) -> list[TaskInput]:
        """Write source and target; of several targets the first."""
        reader = self.tokenizer.input_tokenizer
        whole = [i for i, item in enumerate(items) if not self._keeps_beginning(item)]
        written = [self._source_text(item, item.texts) for item in items]
        sources = reader.encode_prefix_batch(written, self.max_source_tokens + 1)
        for i in whole:
            if len(sources[i]) > self.max_source_tokens:
                (sources[i],) = reader.encode_ids_batch([written[i]])
        firsts = [item.label[0] if isinstance(item.label, tuple) else "" for item in items]
        targets = self.tokenizer.encode_prefix_batch(firsts, self.max_target_length)
        found: list[TaskInput] = []
        for i, (item, source, target) in enumerate(zip(items, sources, targets, strict=True)):
            cut = len(source) > self.max_source_tokens
            kept = self._truncate_source(item, source) if cut else source
            read = [*self.leading_ids, *kept.tolist(), *self.trailing_ids]
            target_ids = (
                None
                if item.label is None
                else [*target.tolist(), self.end_id][: self.max_target_length]
            )
            example = self._build_example(read or [reader.special_ids.start], target_ids)
            shortened = len(target) + 1 > self.max_target_length
            found.append(
                TaskInput(item_index=i, example=example, truncated=cut, target_truncated=shortened)
            )
        return found

    def _keeps_beginning(self, item: TaskExample) -> bool:
        """Return whether of a source that is too long its first tokens are read."""
        template = self._text_template(item)
        return (
            len(item.texts) == 1 and template.truncation_keeps != "end" and template.source is None
        )

    def _text_template(self, item: TaskExample) -> TextTemplate:
        return self.templates.get(item.component, TextTemplate())

    def _source_text(self, item: TaskExample, texts: Sequence[str]) -> str:
        """Write texts as the template says; without one, a text, or several with columns' names.

        Args:
            item: whose template it is.
            texts: its texts, or what is kept of them.
        """
        if self._text_template(item).source is not None:
            return self.prefix + self._text_template(item).render(texts)
        if len(texts) == 1:
            return self.prefix + texts[0]
        named = zip(self.task.columns.texts, texts, strict=True)
        return self.prefix + " ".join(f"{name}: {text}" for name, text in named)

    def _truncate_source(
        self, item: TaskExample, source_ids: Int[np.ndarray, "_"]
    ) -> Int[np.ndarray, "_"]:
        """Cut the texts of an item until their source has room, and return its tokens."""
        if self._keeps_beginning(item):
            return source_ids[: self.max_source_tokens]
        last = self._text_template(item).truncation_keeps == "end"
        reader = self.tokenizer.input_tokenizer
        places = [reader.offset_array(text) for text in item.texts]
        budget = sum(map(len, places)) + self.max_source_tokens - len(source_ids)
        while budget > 0:  # tokens of a part may be others than those of the whole
            most = _common_max_length([len(of_text) for of_text in places], budget)
            texts = [
                _truncate_text(text, of_text, min(most, len(of_text)), keep_last=last)
                for text, of_text in zip(item.texts, places, strict=True)
            ]
            (found,) = reader.encode_ids_batch([self._source_text(item, texts)])
            if len(found) <= self.max_source_tokens:
                return found
            budget -= len(found) - self.max_source_tokens
        return (
            source_ids[-self.max_source_tokens :] if last else source_ids[: self.max_source_tokens]
        )

    def _build_example(
        self, prompt_ids: Sequence[int], target_ids: Sequence[int] | None
    ) -> Example:
        source = None
        if self.is_encoder_decoder:
            source = np.array(prompt_ids, np.int64)
            prompt_ids = [self.special_ids.start, *self.special_ids.decoder_prefix]
        inputs = np.array([*prompt_ids, *(target_ids or ())[:-1]], np.int64)
        targets = np.full(len(inputs), IGNORE_INDEX, np.int64)
        if target_ids is not None:
            targets[len(prompt_ids) - 1 :] = target_ids
        rank = np.arange(len(inputs))
        if self.bidirectional_source:
            rank = (rank - len(prompt_ids) + 1).clip(min=0)
        return Example(inputs=inputs, targets=targets, rank=rank, source=source)

    def compute_scores(
        self, model: Model, batch: Batch, task_inputs: Sequence[TaskInput]
    ) -> list[GeneratedText]:
        """Write an answer to each source, and score its target where it is known."""
        losses = self._target_losses(model, batch, task_inputs)
        prompts = [self._prompt_ids(question.example).tolist() for question in task_inputs]
        generated = generate(
            model,
            prompts,
            self.special_ids,
            GenerationConfig(strategy=self.strategy, max_new_tokens=self.max_target_length),
        )
        return [
            GeneratedText(
                token_ids=np.array(ids, np.int64), target_loss=loss, n_target_tokens=places
            )
            for ids, (loss, places) in zip(generated, losses, strict=True)
        ]

    def _prompt_ids(self, example: Example) -> Int[np.ndarray, "_"]:
        """Return what is read before the target."""
        if example.source is not None:
            return example.source
        positions = np.flatnonzero(example.targets != IGNORE_INDEX)
        return example.inputs[: positions[0] + 1] if len(positions) else example.inputs

    def _target_losses(
        self, model: Model, batch: Batch, task_inputs: Sequence[TaskInput]
    ) -> list[tuple[float, int]]:
        """Compute the cross-entropy of each row's targets, and count them."""
        masks = [question.example.targets != IGNORE_INDEX for question in task_inputs]
        if not any(mask.any() for mask in masks):
            return [(0.0, 0)] * len(masks)
        hidden, head = model.hidden_states(batch), model.language_head
        found: list[tuple[float, int]] = []
        for row, question, mask in zip(hidden, task_inputs, masks, strict=True):
            at, targets = (
                torch.from_numpy(x).to(hidden.device)
                for x in (np.flatnonzero(mask), question.example.targets[mask])
            )
            total, _ = head.loss(row[at], targets)
            found.append((float(total), len(targets)))
        return found

    def merge_scores(
        self, task_inputs: Sequence[TaskInput], input_scores: Sequence[GeneratedText]
    ) -> GeneratedText:
        """Each item is one question."""
        (written,) = input_scores
        return written

    def prediction(self, item: TaskExample, scores: GeneratedText) -> Label:
        """Return the text that was written."""
        return self.tokenizer.decode(scores.token_ids)

    def prediction_record(self, item: TaskExample, scores: GeneratedText) -> PredictionRecord:
        """Return {"answer"}, what was written; and "label" or "number", null if it is none."""
        text, template = str(self.prediction(item, scores)), self._text_template(item)
        read = (
            {"label" if template.labels else "number": template.parse_prediction(text)}
            if template.has_fixed_answers
            else {}
        )
        return {"answer": text} | read

    def loss(self, item: TaskExample, scores: GeneratedText) -> tuple[float, int]:
        """Return the cross-entropy of the target in nats, and its number of tokens."""
        return scores.target_loss, scores.n_target_tokens


def _truncate_text(
    text: str, offsets: Int[np.ndarray, "t 2"], n_kept: int, *, keep_last: bool
) -> str:
    """Keep some tokens of a text: its first, or its last, which begin with a line if there is one.

    Args:
        text: as it was.
        offsets: where each of its tokens is, in characters.
        n_kept: how many may stay.
        keep_last: keep the last ones.
    """
    if n_kept >= len(offsets):
        return text
    if not keep_last:
        return text[: int(offsets[n_kept - 1, 1])] if n_kept else ""
    begin = int(offsets[-n_kept, 0]) if n_kept else len(text)
    line = text.find("\n", max(begin - 1, 0))
    whole = text[line + 1 :] if line >= 0 else ""
    return whole or text[begin:]


def _common_max_length(lengths: Sequence[int], budget: int) -> int:
    """Return the length to which longer texts are cut, so that all together are in the budget."""
    for n, length in enumerate(sorted(lengths)):
        if length * (len(lengths) - n) > budget:
            return budget // (len(lengths) - n)
        budget -= length
    return max(lengths)
