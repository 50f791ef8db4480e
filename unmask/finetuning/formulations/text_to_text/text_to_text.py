"""Text to text: a model reads a source and generates a target, token by token."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Int

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.finetuning.formulations.formulation import PredictionRecord, TaskInput
from unmask.generation.decode import generate, generate_candidates
from unmask.generation.settings import BeamSearch, GenerationConfig, Greedy
from unmask.heads.model import Model
from unmask.tasks.task import Label, Task, TaskExample
from unmask.tasks.text_templates import TextTemplate
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds


@dataclass(frozen=True, kw_only=True)
class GeneratedText:
    """The text generated from a source, and the loss of its first target."""

    token_ids: Int[np.ndarray, "_"]
    target_loss: float = 0.0
    """Cross-entropy of the target, summed over its tokens; 0 if there is no target."""
    n_target_tokens: int = 0
    """Number of these tokens."""


@dataclass(frozen=True, kw_only=True)
class TextToTextFormulation:
    """A source, and a target that is predicted in training and generated at inference.

    In an encoder-decoder, the encoder reads the source and the decoder predicts the target (Raffel
    et al. 2020, section 2.4). A decoder reads the source and a separator, and continues with the
    target, which alone has a loss (Radford et al. 2018, section 3.3, has a token between the two).
    A source that is too long is truncated: of several texts the longest, and never the words around
    them. A decoder reserves room for the maximum target length, so that its input does not depend
    on the label.
    """

    task: Task
    tokenizer: Tokenizer
    prefix: str
    """Text before the source."""
    leading_ids: tuple[int, ...]
    """Tokens before the input."""
    trailing_ids: tuple[int, ...]
    """Tokens after the source: its end, or the separator before the target."""
    end_id: int
    """The token that ends a target."""
    is_encoder_decoder: bool
    """Whether an encoder reads the source."""
    max_target_length: int
    """Maximum number of tokens of a target, the end included."""
    max_dev_items: int
    """Number of dev items whose targets are generated during training."""
    bidirectional_source: bool = False
    """Whether a single stack attends to the source bidirectionally, then predicts the target."""
    strategy: Greedy | BeamSearch = Greedy()
    """Decoding strategy."""
    templates: Mapping[str, TextTemplate] = field(default_factory=dict[str, TextTemplate])
    """Text template of each task, by its name."""

    @property
    def special_ids(self) -> SpecialTokenIds:
        """The vocabulary's special tokens."""
        return self.tokenizer.special_ids

    @property
    def max_source_tokens(self) -> int:
        """Maximum number of tokens of a source, its prefix included."""
        room = self.task.max_length - len(self.leading_ids) - len(self.trailing_ids)
        return room if self.is_encoder_decoder else room - self.max_target_length

    def build_inputs(self, items: Sequence[TaskExample]) -> list[TaskInput]:
        """Build source and target; of several targets, the first."""
        reader = self.tokenizer.input_tokenizer
        keep_ends = [i for i, item in enumerate(items) if not self._keeps_beginning(item)]
        written = [self._source_text(item, item.texts) for item in items]
        sources = reader.encode_prefix_batch(written, self.max_source_tokens + 1)
        for i in keep_ends:
            if len(sources[i]) > self.max_source_tokens:
                (sources[i],) = reader.encode_ids_batch([written[i]])
        firsts = [item.label[0] if isinstance(item.label, tuple) else "" for item in items]
        targets = self.tokenizer.encode_prefix_batch(firsts, self.max_target_length)
        task_inputs: list[TaskInput] = []
        for i, (item, source, target) in enumerate(zip(items, sources, targets, strict=True)):
            cut = len(source) > self.max_source_tokens
            source_ids = self._truncate_source(item, source) if cut else source
            input_ids = [*self.leading_ids, *source_ids.tolist(), *self.trailing_ids]
            target_ids = (
                None
                if item.label is None
                else [*target.tolist(), self.end_id][: self.max_target_length]
            )
            example = self._build_example(input_ids or [reader.special_ids.start], target_ids)
            shortened = len(target) + 1 > self.max_target_length
            task_inputs.append(
                TaskInput(item_index=i, example=example, truncated=cut, target_truncated=shortened)
            )
        return task_inputs

    def _keeps_beginning(self, item: TaskExample) -> bool:
        """Return whether a source that is too long is truncated at its end."""
        template = self._text_template(item)
        return (
            len(item.texts) == 1 and template.truncation_keeps != "end" and template.source is None
        )

    def _text_template(self, item: TaskExample) -> TextTemplate:
        return self.templates.get(item.component, TextTemplate())

    def _source_text(self, item: TaskExample, texts: Sequence[str]) -> str:
        """Render texts by the template; without one, a text, or several with their column names.

        Args:
            item: the item, which has a template.
            texts: its texts, possibly truncated.
        """
        if self._text_template(item).source is not None:
            return self.prefix + self._text_template(item).render(texts)
        if len(texts) == 1:
            return self.prefix + texts[0]
        named_texts = zip(self.task.columns.texts, texts, strict=True)
        return self.prefix + " ".join(f"{name}: {text}" for name, text in named_texts)

    def _truncate_source(
        self, item: TaskExample, source_ids: Int[np.ndarray, "_"]
    ) -> Int[np.ndarray, "_"]:
        """Truncate the texts of an item until the source fits, and return its tokens."""
        if self._keeps_beginning(item):
            return source_ids[: self.max_source_tokens]
        last = self._text_template(item).truncation_keeps == "end"
        reader = self.tokenizer.input_tokenizer
        places = [reader.offset_array(text) for text in item.texts]
        budget = sum(map(len, places)) + self.max_source_tokens - len(source_ids)
        while budget > 0:  # tokens of a part may differ from those of the whole
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
        """Generate a target for each source, and score the labeled target if there is one."""
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

    def candidates(
        self, model: Model, task_inputs: Sequence[TaskInput], strategy: BeamSearch
    ) -> list[list[str]]:
        """Return the texts that beam search finds for each input, the best first."""
        found = generate_candidates(
            model,
            [self._prompt_ids(one.example).tolist() for one in task_inputs],
            self.special_ids,
            GenerationConfig(strategy=strategy, max_new_tokens=self.max_target_length),
        )
        return [[self.tokenizer.decode(one.token_ids) for one in some] for some in found]

    def _prompt_ids(self, example: Example) -> Int[np.ndarray, "_"]:
        """Return the tokens before the target."""
        if example.source is not None:
            return example.source
        positions = np.flatnonzero(example.targets != IGNORE_INDEX)
        return example.inputs[: positions[0] + 1] if len(positions) else example.inputs

    def _target_losses(
        self, model: Model, batch: Batch, task_inputs: Sequence[TaskInput]
    ) -> list[tuple[float, int]]:
        """Compute the cross-entropy of each row's targets, and count them."""
        targets = [question.example.targets for question in task_inputs]
        counts = [int((own != IGNORE_INDEX).sum()) for own in targets]
        if not any(counts):
            return [(0.0, 0)] * len(counts)
        losses = model.target_losses(batch, [torch.from_numpy(own) for own in targets])
        return [(float(total), n) for total, n in zip(losses, counts, strict=True)]

    def merge_scores(
        self, task_inputs: Sequence[TaskInput], input_scores: Sequence[GeneratedText]
    ) -> GeneratedText:
        """Return the scores of the only input of an item."""
        (written,) = input_scores
        return written

    def prediction(self, item: TaskExample, scores: GeneratedText) -> Label:
        """Return the generated text."""
        return self.tokenizer.decode(scores.token_ids)

    def prediction_record(self, item: TaskExample, scores: GeneratedText) -> PredictionRecord:
        """Return {"answer"}, the generated text, and "label" or "number", null if it is neither."""
        text, template = str(self.prediction(item, scores)), self._text_template(item)
        parsed = (
            {"label" if template.labels else "number": template.parse_prediction(text)}
            if template.has_fixed_answers
            else {}
        )
        return {"answer": text} | parsed

    def loss(self, item: TaskExample, scores: GeneratedText) -> tuple[float, int]:
        """Return the cross-entropy of the target in nats, and its number of tokens."""
        return scores.target_loss, scores.n_target_tokens


def _truncate_text(
    text: str, offsets: Int[np.ndarray, "t 2"], n_kept: int, *, keep_last: bool
) -> str:
    """Keep the first tokens of a text, or the last ones, from the beginning of a line if possible.

    Args:
        text: the whole text.
        offsets: start and end of each token, in characters.
        n_kept: maximum number of tokens to keep.
        keep_last: keep the last tokens.
    """
    if n_kept >= len(offsets):
        return text
    if not keep_last:
        return text[: int(offsets[n_kept - 1, 1])] if n_kept else ""
    begin = int(offsets[-n_kept, 0]) if n_kept else len(text)
    line = text.find("\n", max(begin - 1, 0))
    whole_lines = text[line + 1 :] if line >= 0 else ""
    return whole_lines or text[begin:]


def _common_max_length(lengths: Sequence[int], budget: int) -> int:
    """Return the maximum length of each text with which all together fit the budget."""
    for n, length in enumerate(sorted(lengths)):
        if length * (len(lengths) - n) > budget:
            return budget // (len(lengths) - n)
        budget -= length
    return max(lengths)
