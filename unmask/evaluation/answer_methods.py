"""How a prompted model answers: multiple choice, partial scoring, target likelihood, generation.

Each is a part of a task (`unmask.evaluation.prompting`): it scores a model on some rows.
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
from unmask.text.records import describe_value, format_names
from unmask.tokenizers.encode import Tokenizer

ChoiceNormalization = Literal["sum", "token", "byte", "unconditional"]
"""Divisor that makes answers of different lengths comparable: none, their tokens, their bytes, or
their probability after a neutral context."""

_TEMPLATE_COLUMN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")


@dataclass(frozen=True, kw_only=True)
class TemplateRow:
    """A row of a file."""

    values: Mapping[str, object]
    location: str
    """File and line."""

    def template_value(self, template: str) -> object:
        """Return a column's value if the template names nothing else, else the rendered text."""
        alone = _TEMPLATE_COLUMN.fullmatch(template)
        return self._value(alone[1]) if alone and alone[1] is not None else self.render(template)

    def render(self, template: str) -> str:
        """Render a template: {column} is the row's value, {{ and }} are braces.

        Of a list, its texts with spaces between.

        Raises:
            ValueError: there is no such column, or no text in it.
        """
        return _TEMPLATE_COLUMN.sub(
            lambda m: m[0][0] if m[1] is None else self._as_text(m[1], self._value(m[1])), template
        )

    def render_list(self, template: str) -> list[str]:
        """Return the texts of a column of lists, or the one that is rendered."""
        found = self.template_value(template)
        if isinstance(found, list):
            return [self._as_text(template, one) for one in found]
        return [self.render(template)]

    def _value(self, column: str) -> object:
        if column not in self.values:
            raise ValueError(
                f"{self.location}: no column {column!r} (columns: {format_names(self.values)})"
            )
        return self.values[column]

    def _as_text(self, column: str, value: object) -> str:
        if isinstance(value, list):
            return " ".join(self._as_text(column, one) for one in value)
        if isinstance(value, str | int | float):
            return str(value)
        raise ValueError(f"{self.location}: {column!r} must be text, got {describe_value(value)}")


@dataclass(frozen=True, kw_only=True)
class PromptedRow:
    """A row and its prompt."""

    prompt: str
    """A description, shots, and the query."""
    row: TemplateRow


@dataclass(frozen=True, kw_only=True)
class PromptedModel:
    """A model that is given prompts."""

    model: Model
    tokenizer: Tokenizer
    pll_masking: PseudoLikelihoodMasking = "word"
    """See `unmask.evaluation.likelihood`."""
    sequence_length: int | None = None
    """Tokens that are read together at most. None: as many as the model has positions."""
    memory_length: int = 0
    """Of a file that is read as one stream: positions before a piece that each layer remembers."""

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
        """Continue prompts, or answer them; of one that is too long the beginning is cut."""
        return generate_texts(
            self.model, self.tokenizer, prompts, generation_config, max_length=self.sequence_length
        )


@dataclass(frozen=True)
class RowScore:
    """The metrics of a row."""

    metrics: Mapping[str, float]
    n_truncated_tokens: int = 0
    """Tokens that did not fit, of the longest prompt."""


@runtime_checkable
class AnswerMethod(Protocol):
    """A way of answering."""

    @property
    def primary_metric(self) -> str:
        """The customary metric."""
        ...

    def render_solved(self, query: str, row: TemplateRow) -> str:
        """Render a row with its right answer, for a shot."""
        ...

    def score(self, model: PromptedModel, rows: Sequence[PromptedRow]) -> list[RowScore]:
        """Score a model on rows."""
        ...


def with_leading_space(prompt: str, answer: str) -> str:
    """Return an answer with the space that separates it from its prompt, where one does."""
    return answer if not prompt or prompt[-1].isspace() else f" {answer}"


@dataclass(frozen=True, kw_only=True)
class MultipleChoiceScoring:
    """The likeliest of some answers (Brown et al. 2020, arXiv:2005.14165, section 2.4).

    Of several that are equally likely each is chosen in part: of two, a half.
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
        """The share of items where the right one is chosen."""
        return "accuracy"

    def render_solved(self, query: str, row: TemplateRow) -> str:
        """Render a row with its right answer."""
        choices = self._render_choices(row)
        return query + with_leading_space(query, choices[target_index(row, self.target, choices)])

    def _render_choices(self, row: TemplateRow) -> list[str]:
        if isinstance(self.choices, tuple):
            found = [row.render(one) for one in self.choices]
        else:
            found = row.render_list(self.choices)
        return _check_several(found, row, "choices")

    def score(self, model: PromptedModel, rows: Sequence[PromptedRow]) -> list[RowScore]:
        """Compare the answers of each row."""
        choices = [self._render_choices(item.row) for item in rows]
        pairs = [
            (item.prompt, with_leading_space(item.prompt, one))
            for item, some in zip(rows, choices, strict=True)
            for one in some
        ]
        answers = [one for _, one in pairs]
        likelihoods = model.likelihoods([prompt for prompt, _ in pairs], answers)
        scores = [self._normalized_score(one) for one in likelihoods]
        if self.normalization == "unconditional":
            alone = [with_leading_space(self.neutral_context, one.lstrip()) for one in answers]
            base = model.likelihoods([self.neutral_context] * len(alone), alone)
            scores = [a - b.log_likelihood for a, b in zip(scores, base, strict=True)]
        return _score_choices(rows, choices, self.target, scores, likelihoods)

    def _normalized_score(self, one: ContinuationLikelihood) -> float:
        if self.normalization == "token":
            return one.per_token
        return one.per_byte if self.normalization == "byte" else one.log_likelihood


@dataclass(frozen=True, kw_only=True)
class PartialScoring:
    """Of some contexts, the one after which a text is likeliest (Trinh and Le 2018).

    Partial scoring, arXiv:1806.02847, section 3.1: the contexts themselves are not scored.
    """

    contexts: str | tuple[str, ...]
    """Templates, or that of a column of lists; they follow the query."""
    continuation: str
    target: str
    """Template of the right one: its text, or its number from 0."""

    @property
    def primary_metric(self) -> str:
        """The share of items where the right one is found."""
        return "accuracy"

    def render_solved(self, query: str, row: TemplateRow) -> str:
        """Render a row with its right context."""
        contexts = self._render_contexts(row)
        context = query + contexts[target_index(row, self.target, contexts)]
        return context + with_leading_space(context, row.render(self.continuation))

    def _render_contexts(self, row: TemplateRow) -> list[str]:
        if isinstance(self.contexts, tuple):
            found = [row.render(one) for one in self.contexts]
        else:
            found = row.render_list(self.contexts)
        return _check_several(found, row, "contexts")

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
    """A text that is to be the likeliest, token by token (LAMBADA: Paperno et al. 2016).

    `accuracy` counts items where each of its tokens is the likeliest; `perplexity` is exp of the
    mean over items of the nats of the whole text (Radford et al. 2019, section 3.3).
    """

    target: str

    @property
    def primary_metric(self) -> str:
        """The share of items where all tokens are right."""
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
                {"accuracy": float(one.is_greedy), "perplexity": one.log_likelihood},
                one.n_truncated_tokens,
            )
            for one in model.likelihoods(prompts, texts)
        ]


@dataclass(frozen=True, kw_only=True)
class GenerateUntil:
    """A text that is generated, and compared with right ones once normalized as SQuAD's are."""

    target: str
    """Template of the right answer, or that of a column of lists, each of which is right."""
    metric: Literal["exact_match", "f1"] = "exact_match"
    until: tuple[str, ...] = ("\n",)
    """The answer ends before the first of these."""
    max_new_tokens: int = 32

    @property
    def primary_metric(self) -> str:
        """The metric that was chosen; both are given."""
        return self.metric

    def render_solved(self, query: str, row: TemplateRow) -> str:
        """Render a row with its first right answer."""
        return query + with_leading_space(
            query, _check_several(row.render_list(self.target), row, "right answers", 1)[0]
        )

    def score(self, model: PromptedModel, rows: Sequence[PromptedRow]) -> list[RowScore]:
        """Let the model generate, and compare."""
        outputs = model.generate_texts(
            [item.prompt for item in rows], GenerationConfig(max_new_tokens=self.max_new_tokens)
        )
        found: list[RowScore] = []
        for item, one in zip(rows, outputs, strict=True):
            right, text = item.row.render_list(self.target), truncate_at(one.text, self.until)
            metrics = {"exact_match": answer_exact_match(right, text), "f1": answer_f1(right, text)}
            found.append(RowScore(metrics, one.n_truncated_tokens))
        return found


AnswerMethodSpec = MultipleChoiceScoring | PartialScoring | TargetLikelihood | GenerateUntil


def truncate_at(text: str, stop_strings: Sequence[str]) -> str:
    """Return the text before the first of some stop strings."""
    for stop in filter(None, stop_strings):
        text = text.split(stop, 1)[0]
    return text


def target_index(row: TemplateRow, template: str, choices: Sequence[str]) -> int:
    """Return which of some options is right: named by its text, or by its number from 0.

    Raises:
        ValueError: none is.
    """
    value = row.template_value(template)
    text = str(int(value)) if isinstance(value, int) else row.render(template)
    if text in choices and not isinstance(value, int):
        return choices.index(text)
    if text.isdecimal() and int(text) < len(choices):
        return int(text)
    raise ValueError(
        f"{row.location}: the right answer must be one of {format_names(choices)}, or its number "
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
    """Compute the accuracy of each row: the share of its likeliest choices that are right."""
    found: list[RowScore] = []
    at = 0
    for item, some in zip(rows, choices, strict=True):
        part = slice(at, at + len(some))
        metrics = {"accuracy": choice_credit(scores[part], target_index(item.row, target, some))}
        found.append(RowScore(metrics, max(one.n_truncated_tokens for one in likelihoods[part])))
        at += len(some)
    return found


def choice_credit(scores: Sequence[float], target: int) -> float:
    """Return 1 if the right option has the highest score, its share if others have it too."""
    best = max(scores)
    return (scores[target] == best) / sum(score == best for score in scores)
