"""A label as a word in a blank: classification by what a model was pretrained to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from unmask.config import from_dict
from unmask.finetuning.ask import LABEL, LANGUAGE, Around, Ask, check_length, has_encoder
from unmask.finetuning.by_cloze import ByCloze
from unmask.finetuning.kinds.classify import CLASSIFY
from unmask.finetuning.kinds.kind import language_spec
from unmask.finetuning.patterns import BLANK, Pattern
from unmask.heads.language import ByNext
from unmask.heads.model import HeadSpec
from unmask.model.decoder import TwoStreams
from unmask.published.card import Published
from unmask.tasks.readers.task_files import TaskFiles, TextRows, find_text_or_pair
from unmask.tasks.task import Columns, Item, Task, Truth
from unmask.text.records import listed
from unmask.tokens.tokenizer import Tokenizer

ONE, TWO = "{0} It was [MASK].", "{0}? [MASK], {1}"
"""Patterns for one text and for two: Gao et al. 2021, arXiv:2012.15723, table 1, of SST-2 and
MNLI."""


@dataclass(frozen=True, kw_only=True)
class ClozeOptions:
    """How a label is asked for."""

    pattern: str | None = None
    """What is read: "{text} It was [MASK].", a text by the name of its column or its number, from
    0. None: a customary one."""
    words: Mapping[str, str] = field(default_factory=dict[str, str])
    """The word that says a label: {"pos": "great"}. A label that has none is its own word. One that
    is several tokens of the vocabulary is slower to ask for; see `ByCloze`."""


FILES = TextRows(kind="cloze", counts=(1, 2), find=find_text_or_pair)


@dataclass(frozen=True)
class Cloze:
    """One label for a text, or for two, by its word."""

    files: TaskFiles = FILES
    in_parts: bool = False
    options: type = ClozeOptions
    one_label: bool = True

    def labels(self, items: Sequence[Item], where: object) -> tuple[str, ...]:
        """List the labels that occur."""
        return CLASSIFY.labels(items, where)

    def check(self, items: Sequence[Item], labels: Sequence[str], column: str) -> None:
        """Check that all labels are known."""
        CLASSIFY.check(items, labels, column)

    def metrics(self, task: Task) -> tuple[str, ...]:
        """Those of classes."""
        return CLASSIFY.metrics(task)

    def compute_metrics(
        self, task: Task, truth: Sequence[Truth], said: Sequence[Truth]
    ) -> dict[str, float]:
        """Compute the figures of classes."""
        return CLASSIFY.compute_metrics(task, truth, said)

    def usual(self, task: Task, items: Sequence[Item]) -> Truth:
        """Return the most frequent label, of ties the first."""
        return CLASSIFY.usual(task, items)

    def settled(self, task: Task, card: Published, items: Sequence[Item]) -> Task:
        """Nothing is left to settle."""
        return task

    def heads(self, task: Task, card: Published) -> dict[str, HeadSpec]:
        """The head of pretraining.

        Raises:
            ValueError: the model is an encoder-decoder.
        """
        if has_encoder(card):
            raise ValueError(
                f"cloze is for an encoder or a decoder, and {card.name} is both: classify lets it "
                "say labels in words, or puts a head on it"
            )
        return {LANGUAGE: replace(language_spec(card), term=LABEL)}

    def ask(self, task: Task, card: Published, tokenizer: Tokenizer) -> Ask:
        """For a word.

        Raises:
            ValueError: the pattern or a word does not fit the texts, the labels or the model.
        """
        options = from_dict(ClozeOptions, task.options, "options")
        if unknown := sorted(set(options.words) - set(task.labels)):
            raise ValueError(
                f"options.words must be words of the labels {listed(task.labels)}, "
                f"got one of {unknown[0]!r}"
            )
        around = Around.of(tokenizer.special, card.architecture, task.length)
        if not around.causal and tokenizer.special.mask is None:
            raise ValueError(f"the tokenizer of {card.name} has no mask token for the blank")
        pattern = Pattern.of(
            _customary(task, around) if options.pattern is None else options.pattern,
            task.columns.texts,
        )
        if around.causal and pattern.blank != len(pattern.parts):
            raise ValueError(
                f"pattern must end with {BLANK} for {card.name}, which only reads forward, "
                f"got {options.pattern!r}"
            )
        words = {label: options.words.get(label, label) for label in task.labels}
        head = language_spec(card)
        ahead, blind = isinstance(head.forward, ByNext), isinstance(head.decoder, TwoStreams)
        return ByCloze.of(task, tokenizer, around, pattern, words, ahead=ahead, blind=blind)


def _customary(task: Task, around: Around) -> str:
    """Return the pattern for so many texts; a decoder's ends with its blank."""
    if not around.causal:
        return ONE if len(task.columns.texts) == 1 else TWO
    if len(task.columns.texts) == 1:
        return ONE.removesuffix(".")
    raise ValueError(f"two texts for a decoder need a pattern that ends with {BLANK}: name one")


def cloze(
    card: Published,
    words: Mapping[str, str],
    *,
    pattern: str | None = None,
    texts: Sequence[str] = ("text",),
    length: int | None = None,
) -> Task:
    """Describe a task that a model does unlearned: `predict(opened, texts, task=cloze(...))`.

    Args:
        card: of the model.
        words: of each label: {"bad": "terrible", "good": "great"}.
        pattern: what is read. None: a customary one.
        texts: what texts are called in the pattern, one or two.
        length: tokens that are read at most.

    Raises:
        ValueError: the model has not so many positions.
    """
    return Task(
        does="cloze",
        columns=Columns(texts=tuple(texts), label="label"),
        labels=tuple(words),
        name="cloze",
        length=check_length(card, length),
        options={"pattern": pattern, "words": dict(words)},
    )


CLOZE = Cloze()
