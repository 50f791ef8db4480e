"""Text for text: translation, summaries, answers in free words; all that can be written."""

import importlib.util
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from unmask.config import from_dict, to_dict
from unmask.finetuning.ask import LANGUAGE, Around, Ask, asked_stack, has_encoder
from unmask.finetuning.by_hidden import ByHidden
from unmask.finetuning.by_mixture import ByMixture
from unmask.finetuning.by_text import ByText
from unmask.finetuning.kinds.kind import language_spec
from unmask.generation.settings import Beam, Greedy
from unmask.heads.language import AfterSource, ByMask, ByNext
from unmask.heads.model import HeadSpec
from unmask.published.card import Published
from unmask.tasks.metrics import generation
from unmask.tasks.metrics.metric import MEAN
from unmask.tasks.metrics.question_answering import answer_metrics
from unmask.tasks.readers import column_values
from unmask.tasks.readers.tables import Table
from unmask.tasks.readers.task_files import TaskFiles, TextRows
from unmask.tasks.task import Columns, Item, Task, Truth
from unmask.tasks.text_forms import TEXT_LIBRARIES, Form, form_of, plain_form
from unmask.text.lines import EncodingErrors
from unmask.text.records import as_text, named
from unmask.tokens.tokenizer import Tokenizer

SOURCES = (
    "source", "input", "document", "article", "question", "text", "body", "src", "dialogue",
    "dialog", "turns",
)  # fmt: skip
TARGETS = (
    "target", "summary", "answer", "output", "label", "translation", "headline", "subject",
    "response", "gold_label", "score",
)  # fmt: skip
LONGEST = 128


@dataclass(frozen=True, kw_only=True)
class GenerateOptions:
    """What is read around a source, and how much is written."""

    form: str | Form | None = None
    """How the task is put in text: a name of `unmask.tasks.text_forms.FORMS` ("stsb"), or
    {"source": "question: {question} context: {context}"}, with labels, numbers, a metric."""
    tasks: Mapping[str, Form] = field(default_factory=dict[str, Form])
    """Of a mixture the form of each task, by its name; a mixture's file says them."""
    plain: tuple[str, ...] = ()
    """Of a mixture the names of those parts that are plain text; likewise."""
    prefix: str = ""
    """What is read before a source: "summarize: " (Raffel et al. 2020, section 2.4)."""
    between: str | None = None
    """What a decoder reads between source and target. None: the token that is between two texts.
    An encoder-decoder needs nothing."""
    longest: int | None = None
    """Tokens of a target that are learned and written, its end included. None: 128, of a decoder at
    most half of the length."""
    scored: int = 200
    """Dev items that are scored each time while training, evenly spaced; at the end all are."""
    references: str = "references"
    """A column with more targets that are right, read where a file has it."""
    smoothing: float | None = None
    """While targets are learned, so much of each token is spread over all alike (0.1 in Dong et al.
    2019, section 3.1, and in Lewis et al. 2020, section 5.3). None: as in the model's pretraining,
    which is 0 but for the Transformer of 2017."""
    source_language: str | None = None
    """Of sources, where a token says it (mBART): en_XX."""
    target_language: str | None = None
    """Of targets, likewise."""
    beams: int = 1
    """Texts that are followed side by side; 1: the likeliest token is always taken."""
    length_penalty: float = 1.0
    """Of beams: what a text's log-probability is divided by is its length to this power."""

    def __post_init__(self) -> None:
        """Check what the types do not say."""
        self.by()  # which checks these
        form_of(self.form, "options.form")
        for name in ("longest", "scored"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"options.{name} must be at least 1, got {value}")
        if self.smoothing is not None and not 0 <= self.smoothing < 1:
            raise ValueError(
                f"options.smoothing must be at least 0 and below 1, got {self.smoothing}"
            )

    @property
    def forms(self) -> Mapping[str, Form]:
        """The form of each task, by its name; where there is but one task, its name is ""."""
        return self.tasks or {"": form_of(self.form, "options.form")}

    def by(self) -> Greedy | Beam:
        """Return how targets are written.

        Raises:
            ValueError: a number is out of range.
        """
        if self.beams == 1:
            return Greedy()
        return Beam(beams=self.beams, length_penalty=self.length_penalty)


def _find_source(table: Table) -> tuple[str, ...]:
    return (column_values.find_one(table, SOURCES, "source"),)


def _all_targets(
    table: Table, columns: Columns, errors: EncodingErrors, options: Mapping[str, Any]
) -> Sequence[Truth]:
    """Read the targets of each row; of several the first is learned, and all are right.

    Of numbers the first is what they are rounded to, the last what they are.
    """
    more, form = generate_options(options).references, _form(options)
    if form.closed:
        return _closed(table, columns.label, form)
    others = more if more in table.columns else columns.label
    read = [(name, table.column(name)) for name in dict.fromkeys((columns.label, others))]
    found: list[Truth] = []
    for i in range(len(table)):
        where = table.where(i)
        truth = [t for name, column in read for t in _targets(column[i], name, where, errors)]
        if not truth:
            raise ValueError(f"{where}: no target in column {columns.label!r}")
        found.append(tuple(dict.fromkeys(truth)))
    return found


def _closed(table: Table, column: str, form: Form) -> list[Truth]:
    """Read labels, which a file may number, or numbers."""
    found = [
        Item(texts=(), truth=form.target_of(value, column, table.where(i)), where=table.where(i))
        for i, value in enumerate(table.column(column))
    ]
    if form.labels:
        found = column_values.with_names(found, form.labels)
        column_values.check_labels(found, form.labels, column)
    return [cast("Truth", item.truth) for item in found]


def _targets(value: object, column: str, where: str, errors: EncodingErrors) -> list[str]:
    """Read one target or a list of them; a number is its text."""
    values = cast("list[object]", value) if isinstance(value, list | tuple) else [value]
    return [_target(one, column, where, errors) for one in values]


def _target(value: object, column: str, where: str, errors: EncodingErrors) -> str:
    if value is None:
        raise ValueError(f"{where}: no target in column {column!r}")
    if isinstance(value, str):
        return as_text(value, where, column, errors)
    if isinstance(value, int | float):
        return column_values.label(value, column, where)
    raise ValueError(f"{where}: {column!r} must be a text or a list of texts, got {named(value)}")


@dataclass(frozen=True, kw_only=True)
class FormedRows(TextRows):
    """Rows of columns that a form puts in text; a column may hold a list, as the turns of a dialog.

    A list is read as lines. A column "answers[0]" is the first member of each list in "answers".
    """

    def named(self, options: Mapping[str, Any]) -> tuple[tuple[str, ...], str | None]:
        """Return the columns of text and the one of targets that the form names, if it does."""
        form = _form(options)
        return form.columns, form.target

    def target(self, table: Table, texts: Sequence[str], options: Mapping[str, Any]) -> str | None:
        """Find the column of labels or numbers; None where the form has neither."""
        form = _form(options)
        if not form.closed:
            return None
        what = "label" if form.labels else "number"
        return column_values.find_one(table, form.customary, what, but=texts, option="label")

    def decided(
        self, table: Table, columns: Columns, errors: EncodingErrors, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Decide which end of a long text stays: of a dialog the newest turns."""
        form = _form(options)
        if form.keep is not None:
            return dict(options)
        lists = any(
            isinstance(value, list | tuple)
            for name in columns.texts
            for value in table.column(name)
        )
        form = replace(form, keep="end" if lists else "start")
        return dict(options) | {"form": to_dict(form)}

    def items(
        self,
        table: Table,
        columns: Columns,
        errors: EncodingErrors,
        *,
        known: bool,
        options: Mapping[str, Any],
    ) -> list[Item]:
        """Read texts, and what is true of them."""
        return super().items(
            _flat(table, columns.texts), columns, errors, known=known, options=options
        )


def _flat(table: Table, names: Sequence[str]) -> Table:
    """Write lists in columns of text as lines."""
    at = {table.columns.index(name) for name in names if name in table.columns}
    rows = [
        (place, tuple(_lined(value) if i in at else value for i, value in enumerate(fields)))
        for place, fields in table.rows
    ]
    return replace(table, rows=rows)


def _lined(value: object) -> object:
    """Write a list of texts as lines; anything else is itself, so that it is told what it is."""
    if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
        return value
    return "\n".join(cast("Sequence[str]", value))


FILES = FormedRows(
    kind="generate",
    counts=None,
    find=_find_source,
    customary=TARGETS,
    what="target",
    truths=_all_targets,
)


@dataclass(frozen=True)
class Generate:
    """A text for one or several texts."""

    files: TaskFiles = FILES
    in_parts: bool = False
    options: type = GenerateOptions
    one_label: bool = False

    def labels(self, items: Sequence[Item], where: object) -> tuple[str, ...]:
        """Anything can be written.

        Raises:
            ValueError: a source or target is empty, with file and line.
        """
        self.check(items, (), "")
        return ()

    def check(self, items: Sequence[Item], labels: Sequence[str], column: str) -> None:
        """Any text can be right, but for an empty one, nor is there one for nothing.

        Raises:
            ValueError: a source or target is empty, with file and line.
        """
        for item in items:
            if not any(text.strip() for text in item.texts):
                raise ValueError(f"{item.where}: the source is empty")
            if not all(text.strip() for text in _references(item.truth)):
                raise ValueError(f"{item.where}: the target is empty")

    def signatures(self, task: Task, truth: Sequence[Truth], said: Sequence[Truth]) -> list[str]:
        """Say BLEU and chrF with sacrebleu's signatures, where it is installed."""
        if not said or _form(task.options).closed or not _installed("sacrebleu"):
            return []
        right, texts = [_references(t) for t in truth], [str(s) for s in said]
        figures = {"BLEU": generation.bleu(right, texts), "chrF": generation.chrf(right, texts)}
        return [f"{name} {one.value:.2f} ({one.signature})" for name, one in figures.items()]

    def metrics(self, task: Task) -> tuple[str, ...]:
        """The F1 of words, which needs no library, and others; of a mixture the tasks' mean."""
        if generate_options(task.options).tasks:
            return (MEAN,)
        form = _form(task.options)
        return tuple(dict.fromkeys((*((form.metric,) if form.metric else ()), *form.metrics)))

    def compute_metrics(
        self, task: Task, truth: Sequence[Truth], said: Sequence[Truth]
    ) -> dict[str, float]:
        """Compute the figures of texts: the metric, and all that the libraries here can."""
        right, texts = [_references(t) for t in truth], [str(s) for s in said]
        if (form := _form(task.options)).closed:
            return form.compute_metrics(right, texts)
        found = {
            "answer_f1": answer_metrics(right, texts)["answer_f1"],
            "exact_match": generation.exact_match(right, texts),
        }
        if texts and _installed("sacrebleu"):
            found["bleu"] = generation.bleu(right, texts).value
            found["chrf"] = generation.chrf(right, texts).value
        if _installed("rouge_score"):
            found |= generation.rouge(right, texts)
        return found

    def usual(self, task: Task, items: Sequence[Item]) -> Truth:
        """Return the most frequent target, of ties the first."""
        return Counter(_references(item.truth)[0] for item in items).most_common(1)[0][0]

    def settled(self, task: Task, card: Published, items: Sequence[Item]) -> Task:
        """Refuse a name, which would not be read, and a metric that cannot be computed.

        Raises:
            ImportError: the metric's library is not installed.
            ValueError: there is a name.
        """
        forms = generate_options(task.options).tasks.values()
        for metric in (task.metric, *(form.metric for form in forms)):
            needed = TEXT_LIBRARIES.get(metric or "")
            if needed is not None and not _installed(needed):
                raise ImportError(
                    f"metric {metric} needs {needed}: pip install 'unmask[text-metrics]'"
                )
        if task.name != task.does:
            raise ValueError(
                f"generate reads no name before a text, but the option prefix; got the name "
                f"{task.name!r}"
            )
        return task

    def heads(self, task: Task, card: Published) -> dict[str, HeadSpec]:
        """The head that says words.

        Raises:
            ValueError: the model reads in both directions, and cannot write, or lacks the segments
                of sources and targets.
        """
        spec, smoothing = language_spec(card), generate_options(task.options).smoothing
        spec = spec if smoothing is None else replace(spec, smoothing=smoothing)
        if (answers := card.finetuning.answers) is not None:
            _check_segments(answers, card)
            return {LANGUAGE: replace(spec, forward=answers)}
        forward = isinstance(spec.forward, ByNext)
        if not asked_stack(card.architecture).causal and not forward:
            raise ValueError(
                f"{card.name} reads in both directions and does not learn to write; take a decoder "
                "or an encoder-decoder"
            )
        return {LANGUAGE: replace(spec, term="next_token")}

    def ask(self, task: Task, card: Published, tokenizer: Tokenizer) -> Ask:
        """For text.

        Raises:
            ValueError: the length leaves no room for a source, or targets cannot be ended, or not
                be hidden.
        """
        options = generate_options(task.options)
        tokenizer = _told(tokenizer, options)
        special = tokenizer.special
        if special.end is None:
            raise ValueError(f"the tokenizer of {card.name} has no token that ends a text")
        hides = card.finetuning.target
        if hides is not None and special.mask is None:
            raise ValueError(f"the tokenizer of {card.name} has no token that masks others")
        _check_plain(options, card)
        encodes, forward = has_encoder(card), language_spec(card).forward
        reads = tokenizer.reader.special
        asked = ByText(
            task=task,
            tokenizer=tokenizer,
            prefix=options.prefix,
            forms=options.forms,
            before=reads.before,
            after=reads.after if encodes else _between(options, task, card, tokenizer),
            end=special.end,
            encodes=encodes,
            longest=options.longest or (LONGEST if encodes else min(LONGEST, task.length // 2)),
            scored=options.scored,
            whole=isinstance(forward, AfterSource) and forward.whole,
            by=options.by(),
        )
        (prefix,) = tokenizer.reader.ids_batch([options.prefix])
        if asked.room < len(prefix) + 1:
            least = task.length - asked.room + len(prefix) + 1
            raise ValueError(
                f"length must be at least {least} for targets of {asked.longest} tokens "
                f"(options.longest) and what is read around a source, got {task.length}"
            )
        if hides is not None:
            return ByHidden(**vars(asked), hides=hides)
        if options.plain:
            tokenizer.check_reads(f"plain text ({options.plain[0]})")
            row = min(task.length, card.length)
            return ByMixture(**vars(asked), objective=card.objective, row=row)
        return asked


def in_languages(tokenizer: Tokenizer, task: Task | None) -> Tokenizer:
    """Tell a tokenizer the languages that were named when a task was learned, if any were.

    Told others later (`Tokenizer.told`), it has those.
    """
    options: Mapping[str, Any] = {} if task is None else task.options
    source, target = options.get("source_language"), options.get("target_language")
    return tokenizer if source is None or target is None else tokenizer.told(source, target)


def _told(tokenizer: Tokenizer, options: GenerateOptions) -> Tokenizer:
    """Tell a tokenizer the languages of sources and targets.

    Raises:
        ValueError: it has no tokens for them; or it has such, and none are named.
    """
    source, target = options.source_language, options.target_language
    if source is None and target is None:
        if tokenizer.special.untold:
            raise ValueError(
                "options.source_language and options.target_language must name two of "
                f"{', '.join(dict(tokenizer.special.languages))}"
            )
        return tokenizer
    if source is None or target is None:
        raise ValueError("options.source_language and options.target_language go together")
    return tokenizer.told(source, target)


def _check_plain(options: GenerateOptions, card: Published) -> None:
    """Refuse plain text beside pairs of a model whose pretraining asks in another way."""
    if not options.plain:
        return
    asks, encodes = card.objective.asks, has_encoder(card)
    alike = card.objective.causal and (encodes or asks == ("next_token",))
    if card.objective.pairs or card.finetuning.target is not None or not alike:
        raise ValueError(
            f"plain text ({options.plain[0]}) is no part of a mixture of {card.name}: its "
            f"pretraining asks for {', '.join(asks)}, which does not fit a batch with sources and "
            "targets"
        )


def _check_segments(answers: ByMask, card: Published) -> None:
    n = asked_stack(card.architecture).n_segments
    for what, segment in (("sources", answers.source), ("targets", answers.segment)):
        if segment is not None and segment >= n:
            raise ValueError(
                f"{card.name} has {n} segments, none of them for {what}, which have {segment}"
            )


def _between(
    options: GenerateOptions, task: Task, card: Published, tokenizer: Tokenizer
) -> tuple[int, ...]:
    """Return what a decoder reads between source and target."""
    if options.between is None:
        return Around.of(tokenizer.special, card.architecture, task.length).between
    (ids,) = tokenizer.ids_batch([options.between])
    return tuple(ids.tolist())


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def generate_options(options: Mapping[str, Any]) -> GenerateOptions:
    """Read options from plain data.

    Raises:
        ValueError: one is unknown, or not what it should be.
    """
    return from_dict(GenerateOptions, options, "options")


def _form(options: Mapping[str, Any]) -> Form:
    """Return the form of the only task."""
    return plain_form(options.get("form"), "options.form")


def _references(truth: Truth | None) -> tuple[str, ...]:
    return cast("tuple[str, ...]", truth)


GENERATE = Generate()
