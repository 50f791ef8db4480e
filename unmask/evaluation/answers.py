"""How a prompted model answers: it chooses, completes, says a text word by word, or writes one.

Each is a part of a task (`unmask.evaluation.prompts`): it asks the model about some items, and
says what each scored.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from unmask.evaluation.continuations import Hide, Likelihood, likelihoods
from unmask.generation.prompted import Written, write
from unmask.generation.settings import Decoding
from unmask.heads.model import Model
from unmask.tasks.metrics.question_answering import exact_match, token_f1
from unmask.text.records import listed, named
from unmask.tokens.tokenizer import Tokenizer

Normalize = Literal["sum", "token", "byte", "unconditional"]
"""By what answers of different lengths are made comparable: nothing, their tokens, their bytes, or
how likely they are after a neutral context."""

_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a file."""

    values: Mapping[str, object]
    where: str
    """File and line."""

    def raw(self, template: str) -> object:
        """Return the value of a column if the template names nothing else, else what is written."""
        alone = _PLACE.fullmatch(template)
        return self._value(alone[1]) if alone and alone[1] is not None else self.text(template)

    def text(self, template: str) -> str:
        """Write the row into a template: {column} is its value, {{ and }} are braces.

        Of a list, its texts with spaces between.

        Raises:
            ValueError: there is no such column, or no text in it.
        """
        return _PLACE.sub(
            lambda m: m[0][0] if m[1] is None else self._written(m[1], self._value(m[1])), template
        )

    def texts(self, template: str) -> list[str]:
        """Return the texts of a column of lists, or the one that is written."""
        found = self.raw(template)
        if isinstance(found, list):
            return [self._written(template, one) for one in found]
        return [self.text(template)]

    def _value(self, column: str) -> object:
        if column not in self.values:
            raise ValueError(f"{self.where}: no column {column!r} (columns: {listed(self.values)})")
        return self.values[column]

    def _written(self, column: str, value: object) -> str:
        if isinstance(value, list):
            return " ".join(self._written(column, one) for one in value)
        if isinstance(value, str | int | float):
            return str(value)
        raise ValueError(f"{self.where}: {column!r} must be text, got {named(value)}")


@dataclass(frozen=True, kw_only=True)
class Item:
    """What is asked about a row."""

    prompt: str
    """A description, examples, and the query."""
    row: Row


@dataclass(frozen=True, kw_only=True)
class Prompted:
    """A model that is given prompts."""

    model: Model
    tokenizer: Tokenizer
    hide: Hide = "word"
    """See `unmask.evaluation.continuations`."""
    length: int | None = None
    """Tokens that are read together at most. None: as many as the model has positions."""
    memory: int = 0
    """Of a file that is read as one stream: places before those that each layer remembers."""

    def likelihoods(
        self, contexts: Sequence[str], continuations: Sequence[str]
    ) -> list[Likelihood]:
        """Say how likely continuations are."""
        return likelihoods(
            self.model,
            self.tokenizer,
            contexts,
            continuations,
            hide=self.hide,
            length=self.length,
        )

    def write(self, prompts: Sequence[str], how: Decoding) -> list[Written]:
        """Go on from prompts, or answer them; of one that is too long the beginning is cut."""
        return write(self.model, self.tokenizer, prompts, how, length=self.length)


@dataclass(frozen=True)
class Said:
    """What an item scored."""

    figures: Mapping[str, float]
    cut: int = 0
    """Tokens that did not fit, of the longest prompt."""


@runtime_checkable
class Answer(Protocol):
    """A way of answering."""

    @property
    def measure(self) -> str:
        """The customary figure."""
        ...

    def shown(self, query: str, row: Row) -> str:
        """Write a row with its right answer, for a shot."""
        ...

    def score(self, model: Prompted, items: Sequence[Item]) -> list[Said]:
        """Ask a model."""
        ...


def after(prompt: str, answer: str) -> str:
    """Return an answer with the space that parts it from its prompt, where one does."""
    return answer if not prompt or prompt[-1].isspace() else f" {answer}"


@dataclass(frozen=True, kw_only=True)
class Choose:
    """The likeliest of some answers (Brown et al. 2020, arXiv:2005.14165, section 2.4).

    Of several that are equally likely each is chosen in part: of two, a half.
    """

    choices: str | tuple[str, ...]
    """Templates, or that of a column of lists."""
    right: str
    """Template of the right one: its text, or its number from 0."""
    normalize: Normalize = "sum"
    """"unconditional": log p(answer | prompt) - log p(answer | `neutral`); there."""
    neutral: str = "Answer:"

    @property
    def measure(self) -> str:
        """The share of items where the right one is chosen."""
        return "accuracy"

    def shown(self, query: str, row: Row) -> str:
        """Write a row with its right answer."""
        choices = self._choices(row)
        return query + after(query, choices[which(row, self.right, choices)])

    def _choices(self, row: Row) -> list[str]:
        if isinstance(self.choices, tuple):
            found = [row.text(one) for one in self.choices]
        else:
            found = row.texts(self.choices)
        return _several(found, row, "choices")

    def score(self, model: Prompted, items: Sequence[Item]) -> list[Said]:
        """Compare the answers of each item."""
        choices = [self._choices(item.row) for item in items]
        asked = [
            (item.prompt, after(item.prompt, one))
            for item, some in zip(items, choices, strict=True)
            for one in some
        ]
        answers = [one for _, one in asked]
        said = model.likelihoods([prompt for prompt, _ in asked], answers)
        scores = [self._normalized(one) for one in said]
        if self.normalize == "unconditional":
            alone = [after(self.neutral, one.lstrip()) for one in answers]
            base = model.likelihoods([self.neutral] * len(alone), alone)
            scores = [a - b.total for a, b in zip(scores, base, strict=True)]
        return _picked(items, choices, self.right, scores, said)

    def _normalized(self, one: Likelihood) -> float:
        if self.normalize == "token":
            return one.per_token
        return one.per_byte if self.normalize == "byte" else one.total


@dataclass(frozen=True, kw_only=True)
class Complete:
    """Of some contexts, the one after which a text is likeliest (Trinh and Le 2018).

    Partial scoring, arXiv:1806.02847, section 3.1: the contexts themselves are not scored.
    """

    contexts: str | tuple[str, ...]
    """Templates, or that of a column of lists; they stand after the query."""
    continuation: str
    right: str
    """Template of the right one: its text, or its number from 0."""

    @property
    def measure(self) -> str:
        """The share of items where the right one is found."""
        return "accuracy"

    def shown(self, query: str, row: Row) -> str:
        """Write a row with its right context."""
        contexts = self._contexts(row)
        context = query + contexts[which(row, self.right, contexts)]
        return context + after(context, row.text(self.continuation))

    def _contexts(self, row: Row) -> list[str]:
        if isinstance(self.contexts, tuple):
            found = [row.text(one) for one in self.contexts]
        else:
            found = row.texts(self.contexts)
        return _several(found, row, "contexts")

    def score(self, model: Prompted, items: Sequence[Item]) -> list[Said]:
        """Compare the contexts of each item."""
        contexts = [self._contexts(item.row) for item in items]
        asked = [
            (context := item.prompt + one, after(context, item.row.text(self.continuation)))
            for item, some in zip(items, contexts, strict=True)
            for one in some
        ]
        said = model.likelihoods([context for context, _ in asked], [text for _, text in asked])
        return _picked(items, contexts, self.right, [one.total for one in said], said)


@dataclass(frozen=True, kw_only=True)
class Say:
    """A text that is to be the likeliest, token by token (LAMBADA: Paperno et al. 2016).

    `accuracy` counts items where each of its tokens is the likeliest; `perplexity` is exp of the
    mean over items of the nats of the whole text (Radford et al. 2019, section 3.3).
    """

    text: str

    @property
    def measure(self) -> str:
        """The share of items where all tokens are right."""
        return "accuracy"

    def shown(self, query: str, row: Row) -> str:
        """Write a row with its text."""
        return query + after(query, row.text(self.text))

    def score(self, model: Prompted, items: Sequence[Item]) -> list[Said]:
        """Ask for the text of each item."""
        prompts = [item.prompt for item in items]
        texts = [
            after(prompt, item.row.text(self.text))
            for prompt, item in zip(prompts, items, strict=True)
        ]
        return [
            Said({"accuracy": float(one.greedy), "perplexity": one.total}, one.cut)
            for one in model.likelihoods(prompts, texts)
        ]


@dataclass(frozen=True, kw_only=True)
class Write:
    """A text that is written, and compared with right ones once normalized as SQuAD's are."""

    right: str
    """Template of the right answer, or that of a column of lists, each of which is right."""
    metric: Literal["exact_match", "f1"] = "exact_match"
    until: tuple[str, ...] = ("\n",)
    """The answer ends before the first of these."""
    new_tokens: int = 32

    @property
    def measure(self) -> str:
        """The metric that was chosen; both are given."""
        return self.metric

    def shown(self, query: str, row: Row) -> str:
        """Write a row with its first right answer."""
        return query + after(query, _several(row.texts(self.right), row, "right answers", 1)[0])

    def score(self, model: Prompted, items: Sequence[Item]) -> list[Said]:
        """Let the model write."""
        said = model.write([item.prompt for item in items], Decoding(new_tokens=self.new_tokens))
        found: list[Said] = []
        for item, one in zip(items, said, strict=True):
            right, text = item.row.texts(self.right), until(one.text, self.until)
            figures = {"exact_match": exact_match(right, text), "f1": token_f1(right, text)}
            found.append(Said(figures, one.cut))
        return found


AnyAnswer = Choose | Complete | Say | Write


def until(text: str, ends: Sequence[str]) -> str:
    """Return what stands before the first of some texts."""
    for end in filter(None, ends):
        text = text.split(end, 1)[0]
    return text


def which(row: Row, template: str, options: Sequence[str]) -> int:
    """Say which of some options is right: named by its text, or by its number from 0.

    Raises:
        ValueError: none is.
    """
    value = row.raw(template)
    text = str(int(value)) if isinstance(value, int) else row.text(template)
    if text in options and not isinstance(value, int):
        return options.index(text)
    if text.isdecimal() and int(text) < len(options):
        return int(text)
    raise ValueError(
        f"{row.where}: the right answer must be one of {listed(options)}, or its number from 0, "
        f"got {text!r}"
    )


def _several(found: list[str], row: Row, what: str, least: int = 2) -> list[str]:
    if len(found) < least:
        raise ValueError(f"{row.where}: needs at least {least} {what}, got {listed(found)}")
    return found


def _picked(
    items: Sequence[Item],
    options: Sequence[Sequence[str]],
    right: str,
    scores: Sequence[float],
    said: Sequence[Likelihood],
) -> list[Said]:
    """Say of each item how much of the likeliest option is the right one."""
    found: list[Said] = []
    at = 0
    for item, some in zip(items, options, strict=True):
        part = slice(at, at + len(some))
        figures = {"accuracy": credit(scores[part], which(item.row, right, some))}
        found.append(Said(figures, max(one.cut for one in said[part])))
        at += len(some)
    return found


def credit(scores: Sequence[float], right: int) -> float:
    """Return 1 if the right option has the highest score, its share if others have it too."""
    best = max(scores)
    return (scores[right] == best) / sum(score == best for score in scores)
