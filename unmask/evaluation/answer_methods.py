"""Answer methods of prompted models: multiple choice, partial scoring, likelihood, generation.

Each is a part of a task (`unmask.evaluation.prompting`) and scores a model on rows.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from unmask.evaluation.likelihood import (
    ContinuationLikelihood,
    LikelihoodWindows,
    PseudoLikelihoodMasking,
    continuation_likelihoods,
)
from unmask.generation.prompts import GenerationOutput, generate_texts
from unmask.generation.settings import GenerationConfig
from unmask.heads.model import Model
from unmask.tasks.metrics.question_answering import answer_exact_match, answer_f1
from unmask.text.formats.records import describe_value, format_names
from unmask.tokenizers.encode import Tokenizer

ChoiceNormalization = Literal["sum", "token", "byte", "unconditional"]
"""Normalization of answers of different lengths: none, by tokens, by bytes, or by the probability
after a neutral context."""

_TEMPLATE_COLUMN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")


@dataclass(frozen=True, kw_only=True)
class TemplateRow:
    """A row of a file."""

    values: Mapping[str, object]
    location: str
    """File and line."""

    def template_value(self, template: str) -> object:
        """Return a column's value if the template is only its name, else the rendered text."""
        alone = _TEMPLATE_COLUMN.fullmatch(template)
        return self._value(alone[1]) if alone and alone[1] is not None else self.render(template)

    def render(self, template: str) -> str:
        """Render a template: {column} is the row's value, {{ and }} are braces.

        Lists of texts are joined by spaces.

        Raises:
            ValueError: there is no such column, or its value is no text.
        """
        return _TEMPLATE_COLUMN.sub(
            lambda m: m[0][0] if m[1] is None else self._as_text(m[1], self._value(m[1])), template
        )

    def render_list(self, template: str) -> list[str]:
        """Return the texts of a column of lists, or the one rendered text."""
        value = self.template_value(template)
        if isinstance(value, list):
            return [self._as_text(template, text) for text in value]
        return [self.render(template)]

    def _value(self, column: str) -> object:
        if column not in self.values:
            raise ValueError(
                f"{self.location}: no column {column!r} (columns: {format_names(self.values)})"
            )
        return self.values[column]

    def _as_text(self, column: str, value: object) -> str:
        if isinstance(value, list):
            return " ".join(self._as_text(column, item) for item in value)
        if isinstance(value, str | int | float):
            return str(value)
        raise ValueError(f"{self.location}: {column!r} must be text, got {describe_value(value)}")


@dataclass(frozen=True, kw_only=True)
class PromptedRow:
    """A row and its prompt."""

    prompt: str
    """Description, shots and query."""
    row: TemplateRow


@dataclass(frozen=True, kw_only=True)
class PromptedModel:
    """A model for prompting, with its limits."""

    model: Model
    tokenizer: Tokenizer
    pll_masking: PseudoLikelihoodMasking = "word"
    """See `unmask.evaluation.likelihood`."""
    sequence_length: int | None = None
    """Maximum input length in tokens. None: the model's number of positions."""
    memory_length: int = 0
    """Memory length of each layer, in positions, for files read as one stream."""

    def likelihoods(
        self, contexts: Sequence[str], continuations: Sequence[str]
    ) -> list[ContinuationLikelihood]:
        """Compute the likelihoods of continuations."""
        return continuation_likelihoods(
            self.model,
            self.tokenizer,
            contexts,
            continuations,
            pll_masking=self.pll_masking,
            windows=LikelihoodWindows(sequence_length=self.sequence_length),
        )

    def generate_texts(
        self, prompts: Sequence[str], generation_config: GenerationConfig
    ) -> list[GenerationOutput]:
        """Continue or answer prompts; long prompts are truncated on the left."""
        return generate_texts(
            self.model, self.tokenizer, prompts, generation_config, max_length=self.sequence_length
        )


@dataclass(frozen=True)
class RowScore:
    """The metrics of a row."""

    metrics: Mapping[str, float]
    n_truncated_tokens: int = 0
    """Truncated tokens of the longest prompt."""


@runtime_checkable
class AnswerMethod(Protocol):
    """Scores a model's answers."""

    @property
    def primary_metric(self) -> str:
        """The default metric."""
        ...

    def render_solved(self, query: str, row: TemplateRow) -> str:
        """Render a row with its correct answer, for a shot."""
        ...

    def score(self, model: PromptedModel, rows: Sequence[PromptedRow]) -> list[RowScore]:
        """Score a model on rows."""
        ...


def with_leading_space(prompt: str, answer: str) -> str:
    """Return an answer with the space that separates it from its prompt, if any."""
    return answer if not prompt or prompt[-1].isspace() else f" {answer}"


@dataclass(frozen=True, kw_only=True)
class MultipleChoiceScoring:
    """The most likely of several answers (Brown et al. 2020, arXiv:2005.14165, section 2.4).

    Ties count in equal parts: of two answers, a half each.
    """

    choices: str | tuple[str, ...]
    """Templates, or that of a column of lists."""
    target: str
    """Template of the right one: its text, or its number from 0."""
    normalization: ChoiceNormalization = "sum"
    """"unconditional": log p(answer | prompt) - log p(answer | `neutral_context`)."""
    neutral_context: str = "Answer:"

    @property
    def primary_metric(self) -> str:
        """Accuracy."""
        return "accuracy"

    def render_solved(self, query: str, row: TemplateRow) -> str:
        """Render a row with its correct answer."""
        choices = self._render_choices(row)
        return query + with_leading_space(query, choices[target_index(row, self.target, choices)])

    def _render_choices(self, row: TemplateRow) -> list[str]:
        if isinstance(self.choices, tuple):
            choices = [row.render(template) for template in self.choices]
        else:
            choices = row.render_list(self.choices)
        return _check_several(choices, row, "choices")

    def score(self, model: PromptedModel, rows: Sequence[PromptedRow]) -> list[RowScore]:
        """Compare the answers of each row."""
        choices = [self._render_choices(item.row) for item in rows]
        pairs = [
            (item.prompt, with_leading_space(item.prompt, answer))
            for item, some in zip(rows, choices, strict=True)
            for answer in some
        ]
        answers = [answer for _, answer in pairs]
        likelihoods = model.likelihoods([prompt for prompt, _ in pairs], answers)
        scores = [self._normalized_score(answer) for answer in likelihoods]
        if self.normalization == "unconditional":
            alone = [with_leading_space(self.neutral_context, one.lstrip()) for one in answers]
            base = model.likelihoods([self.neutral_context] * len(alone), alone)
            scores = [a - b.log_likelihood for a, b in zip(scores, base, strict=True)]
        return _score_choices(rows, choices, self.target, scores, likelihoods)

    def _normalized_score(self, likelihood: ContinuationLikelihood) -> float:
        if self.normalization == "token":
            return likelihood.per_token
        return likelihood.per_byte if self.normalization == "byte" else likelihood.log_likelihood


@dataclass(frozen=True, kw_only=True)
class PartialScoring:
    """The context after which a text is most likely (Trinh and Le 2018).

    Partial scoring, arXiv:1806.02847, section 3.1: the contexts themselves are not scored.
    """

    contexts: str | tuple[str, ...]
    """Templates, or that of a column of lists; they follow the query."""
    continuation: str
    target: str
    """Template of the right one: its text, or its number from 0."""

    @property
    def primary_metric(self) -> str:
        """Accuracy."""
        return "accuracy"

    def render_solved(self, query: str, row: TemplateRow) -> str:
        """Render a row with its correct context."""
        contexts = self._render_contexts(row)
        context = query + contexts[target_index(row, self.target, contexts)]
        return context + with_leading_space(context, row.render(self.continuation))

    def _render_contexts(self, row: TemplateRow) -> list[str]:
        if isinstance(self.contexts, tuple):
            contexts = [row.render(template) for template in self.contexts]
        else:
            contexts = row.render_list(self.contexts)
        return _check_several(contexts, row, "contexts")

    def score(self, model: PromptedModel, rows: Sequence[PromptedRow]) -> list[RowScore]:
        """Compare the contexts of each row."""
        contexts = [self._render_contexts(item.row) for item in rows]
        pairs = [
            (
                context := item.prompt + one,
                with_leading_space(context, item.row.render(self.continuation)),
            )
            for item, some in zip(rows, contexts, strict=True)
            for one in some
        ]
        likelihoods = model.likelihoods(
            [context for context, _ in pairs], [text for _, text in pairs]
        )
        scores = [one.log_likelihood for one in likelihoods]
        return _score_choices(rows, contexts, self.target, scores, likelihoods)


@dataclass(frozen=True, kw_only=True)
class TargetLikelihood:
    """A text that should be the most likely, token by token (LAMBADA: Paperno et al. 2016).

    `accuracy` is the share of items with all tokens most likely; `perplexity` is exp of the mean
    nats of the whole text (Radford et al. 2019, section 3.3).
    """

    target: str

    @property
    def primary_metric(self) -> str:
        """Accuracy: the share of items with all tokens correct."""
        return "accuracy"

    def render_solved(self, query: str, row: TemplateRow) -> str:
        """Render a row with its text."""
        return query + with_leading_space(query, row.render(self.target))

    def score(self, model: PromptedModel, rows: Sequence[PromptedRow]) -> list[RowScore]:
        """Compute the likelihood of the text of each row."""
        prompts = [item.prompt for item in rows]
        texts = [
            with_leading_space(prompt, item.row.render(self.target))
            for prompt, item in zip(prompts, rows, strict=True)
        ]
        return [
            RowScore(
                {"accuracy": float(likelihood.is_greedy), "perplexity": likelihood.log_likelihood},
                likelihood.n_truncated_tokens,
            )
            for likelihood in model.likelihoods(prompts, texts)
        ]


@dataclass(frozen=True, kw_only=True)
class GenerateUntil:
    """A generated text, compared with references after SQuAD's normalization."""

    target: str
    """Template of the correct answer, or of a column of lists of correct answers."""
    metric: Literal["exact_match", "f1"] = "exact_match"
    until: tuple[str, ...] = ("\n",)
    """Strings before which the answer ends."""
    max_new_tokens: int = 32

    @property
    def primary_metric(self) -> str:
        """The chosen metric; both are reported."""
        return self.metric

    def render_solved(self, query: str, row: TemplateRow) -> str:
        """Render a row with its first correct answer."""
        return query + with_leading_space(
            query, _check_several(row.render_list(self.target), row, "right answers", 1)[0]
        )

    def score(self, model: PromptedModel, rows: Sequence[PromptedRow]) -> list[RowScore]:
        """Generate answers and compare them."""
        outputs = model.generate_texts(
            [item.prompt for item in rows], GenerationConfig(max_new_tokens=self.max_new_tokens)
        )
        scores: list[RowScore] = []
        for item, output in zip(rows, outputs, strict=True):
            references, text = (
                item.row.render_list(self.target),
                truncate_at(output.text, self.until),
            )
            metrics = {
                "exact_match": answer_exact_match(references, text),
                "f1": answer_f1(references, text),
            }
            scores.append(RowScore(metrics, output.n_truncated_tokens))
        return scores


AnswerMethodSpec = MultipleChoiceScoring | PartialScoring | TargetLikelihood | GenerateUntil


def truncate_at(text: str, stop_strings: Sequence[str]) -> str:
    """Return the text before the first stop string."""
    for stop in filter(None, stop_strings):
        text = text.split(stop, 1)[0]
    return text


def target_index(row: TemplateRow, template: str, choices: Sequence[str]) -> int:
    """Return the index of the correct option, given by its text or its index from 0.

    Raises:
        ValueError: it is neither.
    """
    value = row.template_value(template)
    text = str(int(value)) if isinstance(value, int) else row.render(template)
    if text in choices and not isinstance(value, int):
        return choices.index(text)
    if text.isdecimal() and int(text) < len(choices):
        return int(text)
    raise ValueError(
        f"{row.location}: the correct answer must be one of {format_names(choices)}, or its index "
        f"from 0, got {text!r}"
    )


def _check_several(texts: list[str], row: TemplateRow, noun: str, minimum: int = 2) -> list[str]:
    if len(texts) < minimum:
        raise ValueError(
            f"{row.location}: needs at least {minimum} {noun}, got {format_names(texts)}"
        )
    return texts


def _score_choices(
    rows: Sequence[PromptedRow],
    choices: Sequence[Sequence[str]],
    target: str,
    scores: Sequence[float],
    likelihoods: Sequence[ContinuationLikelihood],
) -> list[RowScore]:
    """Compute the accuracy of each row: the credit of its most likely choices."""
    row_scores: list[RowScore] = []
    start = 0
    for item, some in zip(rows, choices, strict=True):
        part = slice(start, start + len(some))
        metrics = {"accuracy": choice_credit(scores[part], target_index(item.row, target, some))}
        row_scores.append(
            RowScore(metrics, max(one.n_truncated_tokens for one in likelihoods[part]))
        )
        start += len(some)
    return row_scores


def choice_credit(scores: Sequence[float], target: int) -> float:
    """Return 1 if the correct option has the highest score, 1/k if k options tie."""
    best = max(scores)
    return (scores[target] == best) / sum(score == best for score in scores)
