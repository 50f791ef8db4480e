"""What a fine-tuning run begins with: card, tokenizer, weights, and which have yet to be drawn."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from unmask.adapters.folder import fold, is_adapter, open_adapter
from unmask.box import BOX
from unmask.checkpoints.huggingface import (
    HUB,
    OWN,
    Opened,
    check_fit,
    described,
    locate,
    open_folder,
)
from unmask.finetuning.ask import CHOICE, LABEL, LANGUAGE, SPANS, TOKEN_LABEL
from unmask.finetuning.auxiliary import with_language
from unmask.finetuning.framing import OF_TOKENS, framed, grown, with_tokens
from unmask.finetuning.kinds.catalogue import heads_for
from unmask.finetuning.kinds.pooled import without_pooler
from unmask.heads.labels import Labels, TokenLabels
from unmask.heads.model import HeadSpec, Model
from unmask.heads.recurrent import RecurrentTags
from unmask.heads.spans import Spans
from unmask.published.card import Published
from unmask.published.catalogue import ALIASES, MODELS, nearest, published
from unmask.tasks.task import Task
from unmask.tokens.tokenizer import Tokenizer, learn
from unmask.tokens.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """Where a run begins, whatever its seed."""

    card: Published
    """With the heads of the task."""
    tokenizer: Tokenizer
    tensors: Mapping[str, Tensor]
    """The weights that there are, by our names; what is not among them is drawn from a seed."""
    task: Task
    """With its labels in the order that the model knows, if it knows just these."""
    extra: tuple[str, ...] = ()
    """Tensors of the folder that the model has no place for."""
    added: range = range(0)
    """Tokens that the tokenizer of the weights did not know: their vectors are drawn."""

    @property
    def trained(self) -> bool:
        """Whether there are weights to begin with."""
        return bool(self.tensors)

    def fresh(self) -> tuple[str, ...]:
        """Name the weights that are drawn."""
        with torch.device("meta"):
            model = self.card.build()
        return tuple(name for name, _ in model.named_parameters() if name not in self.tensors)

    def model(self, seed: int, *, trained: bool = True) -> Model:
        """Build the model, drawing from `seed` what is not there, or all if not `trained`."""
        tables = OF_TOKENS if self.added else ()
        whole = [name for name in self.tensors if name not in tables]
        model = self.card.build().initialize(seed, known=whole if trained else ())
        if trained:
            weights = model.weights()
            with torch.no_grad():
                for name, tensor in self.tensors.items():
                    if name in tables:
                        _fill(weights[name], tensor, self.added)
                    else:
                        weights[name].copy_(tensor)
        return model


def _fill(table: Tensor, known: Tensor, drawn: range) -> None:
    """Copy what is known of a table, which may have more rows, but for rows that are drawn."""
    kept = table[drawn.start : drawn.stop].clone()
    table[: len(known)].copy_(known)
    table[drawn.start : drawn.stop] = kept


def begin(
    source: str | Opened,
    task: Task,
    texts: Iterable[str],
    *,
    tokenizer: str | None = None,
    vocabulary: Vocabulary | None = None,
    dropout: float | None = None,
    auxiliary: float | None = None,
    learned: bool = True,
) -> Beginning:
    """Find what a run begins with.

    Args:
        source: a run folder, a folder in the Hugging Face layout, `hf:owner/name`, a model in the
            package, one that is open, or a name of the catalogue, which has no weights.
        task: with its labels.
        texts: from which a catalogue's model learns its vocabulary if `tokenizer` is None.
        tokenizer: a folder with a tokenizer, for a name of the catalogue.
        vocabulary: what such a model learns in place of its card's kind.
        dropout: in place of the card's.
        auxiliary: weight of a language model's loss beside the task's. None: the card's.
        learned: vectors of tokens are learned, so that new ones may be added.

    Raises:
        FileNotFoundError: there is no such folder or model.
        ValueError: the model cannot do this task, has no tokenizer, or its folder is damaged.
    """
    if isinstance(source, Opened):
        found = _converted(source, task, auxiliary, learned)
    elif Path(source).is_dir() or source.startswith(HUB) or source in BOX:
        found = _opened(locate(source), task, auxiliary, learned)
    elif source in MODELS or source in ALIASES:
        card = _dropping(published(source), dropout)
        if vocabulary is not None:
            card = replace(card, tokenizer=replace(card.tokenizer, vocabulary=vocabulary))
        return _from_card(card, task, texts, tokenizer, auxiliary, learned)
    else:
        raise FileNotFoundError(
            f"{source}: no such folder, and no model of the catalogue{nearest(source)}"
        )
    if tokenizer is not None or vocabulary is not None:
        what = "tokenizer" if vocabulary is None else "vocabulary"
        raise ValueError(f"{what} is for a model of the catalogue; {found.card.name} has its own")
    return replace(found, card=_dropping(found.card, dropout))


def _heads(task: Task, card: Published, auxiliary: float | None) -> dict[str, HeadSpec]:
    return with_language(heads_for(task, card), card, auxiliary)


def _from_card(
    card: Published,
    task: Task,
    texts: Iterable[str],
    tokenizer: str | None,
    auxiliary: float | None,
    learned: bool,
) -> Beginning:
    task = without_pooler(task) if card.pooler else task
    _heads(task, card, auxiliary)  # what it cannot do is said before a vocabulary is learned
    folder = None if tokenizer is None else locate(tokenizer)
    known = learn(card.tokenizer, texts) if folder is None else Tokenizer.load(folder)
    task = framed(task, card, known, learned=learned)
    known, heads = with_tokens(task, known), _heads(task, card, auxiliary)
    card = replace(card.with_vocabulary(known.special), heads=heads)
    return Beginning(card=card, tokenizer=known, tensors={}, task=task)


def _opened(folder: Path, task: Task, auxiliary: float | None, learned: bool) -> Beginning:
    """Open a folder with the task's head; if it has such a head already, with that, to compare."""
    if is_adapter(folder):
        opened = open_adapter(folder)
        fold(opened.model)
        return _converted(opened, task, auxiliary, learned)
    card, theirs = described(folder)
    card = replace(card, name=folder.name)
    kinds = cast("Sequence[str]", theirs.get("architectures")) or ("",)
    every = (*card.fields.classes.items(), *card.fields.forward.items())
    there = next((k for k, kind in every if kind in kinds), ())
    if OWN in theirs or {LABEL, TOKEN_LABEL, SPANS, CHOICE} & set(there):
        return _converted(open_folder(folder), task, auxiliary, learned)
    heads = _heads(task, card, auxiliary)
    return _converted(open_folder(folder, heads), task, auxiliary, learned)


def _converted(opened: Opened, task: Task, auxiliary: float | None, learned: bool) -> Beginning:
    """Keep what the task can use: the backbone, and the head or the part of it that fits."""
    if opened.tokenizer is None:
        raise ValueError(f"{opened.card.name} has no tokenizer, which reading text needs")
    check_fit(opened.tokenizer, opened.model.vocab_size, opened.card.name)
    there = {n: x for n, x in opened.model.kept().items() if n not in opened.missing}
    if opened.card.pooler and not _shared(opened.card, there, LABEL, ("dense",)):
        task = without_pooler(task)
    task = framed(task, opened.card, opened.tokenizer, learned=learned)
    tokenizer = with_tokens(task, opened.tokenizer)
    wanted = _heads(task, opened.card, auxiliary)
    head = next(iter(wanted))  # the task's own; a language model's beside it comes after
    kept = {n: x for n, x in there.items() if n.startswith("backbone.")}
    own = {n: x for n, x in there.items() if n.startswith(f"heads.{head}.")}
    if LANGUAGE in wanted:
        kept |= {n: x for n, x in there.items() if n.startswith(f"heads.{LANGUAGE}.")}
    if head == LANGUAGE or _same_labels(opened, head, wanted[head], task):
        kept |= own
        if head != LANGUAGE and task.labels:
            task = replace(task, labels=opened.labels)
            wanted = _heads(task, opened.card, auxiliary)
    elif isinstance(spec := wanted[head], Labels) and spec.dense:
        below = ("dense", "norm") if spec.norm else ("dense",)
        kept |= _shared(opened.card, there, head, below)
    used = {id(x) for x in kept.values()}
    extra = [n for n, x in there.items() if n not in kept and id(x) not in used]
    return Beginning(
        card=replace(grown(opened.card, tokenizer), heads=wanted, pooled=None),
        tokenizer=tokenizer,
        tensors=kept,
        task=task,
        extra=(*opened.extra, *extra),
        added=range(opened.tokenizer.size, tokenizer.size),
    )


def _same_labels(opened: Opened, head: str, wanted: HeadSpec, task: Task) -> bool:
    """Say whether a head was trained for just these labels, a number, or answers in a text."""
    spec = opened.model.specs.get(head)
    if f"heads.{head}.out.weight" in opened.missing or type(spec) is not type(wanted):
        return False
    if not isinstance(spec, Labels | TokenLabels | RecurrentTags):
        return isinstance(spec, Spans)
    if not _same_reading(spec, wanted):
        return False
    if not task.labels:
        return spec.n_labels == 1
    if not _same_network(spec, wanted):
        return False
    return spec.n_labels == len(opened.labels) and sorted(opened.labels) == sorted(task.labels)


def _same_reading(a: HeadSpec, b: HeadSpec) -> bool:
    """Say whether heads of labels read the same of a text."""
    if isinstance(a, Labels) and isinstance(b, Labels):
        return (a.pool, a.layers, a.dense) == (b.pool, b.layers, b.dense)
    return True


def _same_network(a: HeadSpec, b: HeadSpec) -> bool:
    """Compare heads of one kind but for what depends on the labels and their order."""
    if isinstance(a, Labels) and isinstance(b, Labels):
        return isinstance(b.loss, type(a.loss))
    if isinstance(a, RecurrentTags) and isinstance(b, RecurrentTags):
        return replace(a, n_labels=b.n_labels, impossible=b.impossible) == b
    return True


def _shared(
    card: Published, weights: Mapping[str, Tensor], head: str, parts: Sequence[str]
) -> dict[str, Tensor]:
    """Find the maps below a head's scores among the weights of other heads, or of none.

    Those that transformers calls alike, since it begins a head with them; of a network that it has
    not, the map of another head of labels.
    """
    names, found = card.names, dict[str, Tensor]()
    heads = {n: x for n, x in weights.items() if not n.startswith("backbone.")}
    by_theirs = {name: x for n, x in heads.items() for name in names.names_of(n)}
    others = [LABEL, CHOICE, *([card.pooler] if card.pooler else ())]
    for part in parts:
        for tail in ("weight", "bias"):
            ours = f"heads.{head}.{part}.{tail}"
            alike = [f"heads.{name}.{part}.{tail}" for name in others]
            if there := [by_theirs[n] for n in names.names_of(ours) if n in by_theirs]:
                found[ours] = there[0]
            elif (
                not card.fields.in_transformers
                and (mine := next((weights[n] for n in alike if n in weights), None)) is not None
            ):
                found[ours] = mine
    return found


def _dropping(card: Published, rate: float | None) -> Published:
    """Return the card with another dropout, if one is given."""
    return card if rate is None else replace(card, architecture=card.architecture.dropping(rate))
