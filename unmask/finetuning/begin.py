"""What a fine-tuning run begins with: card, tokenizer, weights, and which have yet to be drawn."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from unmask.checkpoints.huggingface import (
    HUB,
    Opened,
    check_fit,
    locate,
    open_folder,
)
from unmask.checkpoints.tensors import read_json
from unmask.finetuning.ask import LABEL, LANGUAGE, TOKEN_LABEL
from unmask.finetuning.kinds.catalogue import heads_for
from unmask.finetuning.tasks import Task
from unmask.heads.labels import Labels, TokenLabels
from unmask.heads.model import Model
from unmask.model.architecture import Architecture, EncoderDecoderArchitecture
from unmask.published.card import Published
from unmask.published.catalogue import ALIASES, MODELS, family, nearest, published
from unmask.tokens.tokenizer import Tokenizer, learn


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
        model = self.card.build().initialize(seed)
        if trained:
            weights = model.weights()
            with torch.no_grad():
                for name, tensor in self.tensors.items():
                    weights[name].copy_(tensor)
        return model


def begin(
    source: str | Opened,
    task: Task,
    texts: Iterable[str],
    *,
    tokenizer: str | None = None,
    dropout: float | None = None,
) -> Beginning:
    """Find what a run begins with.

    Args:
        source: a run folder, a folder in the Hugging Face layout, `hf:owner/name`, a model that is
            open, or a name of the catalogue, which has no weights.
        task: with its labels.
        texts: from which a catalogue's model learns its vocabulary if `tokenizer` is None.
        tokenizer: a folder with a tokenizer, for a name of the catalogue.
        dropout: in place of the card's.

    Raises:
        FileNotFoundError: there is no such folder or model.
        ValueError: the model cannot do this task, has no tokenizer, or its folder is damaged.
    """
    if isinstance(source, Opened):
        found = _converted(source, task)
    elif Path(source).is_dir() or source.startswith(HUB):
        found = _opened(locate(source), task)
    elif source in MODELS or source in ALIASES:
        return _from_card(published(source), task, texts, tokenizer, dropout)
    else:
        raise FileNotFoundError(
            f"{source}: no such folder, and no model of the catalogue{nearest(source)}"
        )
    if tokenizer is not None:
        raise ValueError(
            f"tokenizer is for a model of the catalogue; {found.card.name} has its own"
        )
    return found if dropout is None else replace(found, card=_dropped(found.card, dropout))


def _from_card(
    card: Published, task: Task, texts: Iterable[str], tokenizer: str | None, dropout: float | None
) -> Beginning:
    folder = None if tokenizer is None else locate(tokenizer)
    known = learn(card.tokenizer, texts) if folder is None else Tokenizer.load(folder)
    card = replace(card.with_vocabulary(known.size), heads=heads_for(task, card))
    card = card if dropout is None else _dropped(card, dropout)
    return Beginning(card=card, tokenizer=known, tensors={}, task=task)


def _opened(folder: Path, task: Task) -> Beginning:
    """Open a folder with the task's head; if it has such a head already, with that, to compare."""
    theirs = read_json(folder / "config.json")
    try:
        card = family(str(theirs.get("model_type")))
    except ValueError as error:
        raise ValueError(f"{folder / 'config.json'}: {error}") from None
    kinds = cast("Sequence[str]", theirs.get("architectures")) or ("",)
    there = next((k for k, kind in card.fields.classes.items() if kind in kinds), ())
    if LABEL in there or TOKEN_LABEL in there:
        return _converted(open_folder(folder), task)
    return _converted(open_folder(folder, heads_for(task, card)), task)


def _converted(opened: Opened, task: Task) -> Beginning:
    """Keep what the task can use: the backbone, and the head or the part of it that fits."""
    if opened.tokenizer is None:
        raise ValueError(f"{opened.card.name} has no tokenizer, which reading text needs")
    check_fit(opened.tokenizer, opened.model.vocab_size, opened.card.name)
    wanted = heads_for(task, opened.card)
    (head,) = wanted
    there = {n: x for n, x in opened.model.weights().items() if n not in opened.missing}
    kept = {n: x for n, x in there.items() if n.startswith("backbone.")}
    own = {n: x for n, x in there.items() if n.startswith(f"heads.{head}.")}
    if head == LANGUAGE or _same_labels(opened, head, task):
        kept |= own
        if head != LANGUAGE and task.labels:
            task = replace(task, labels=opened.labels)
    elif head == LABEL:
        kept |= _pooler(there)
    extra = [n for n in there if n not in kept]
    return Beginning(
        card=replace(opened.card, heads=wanted),
        tokenizer=opened.tokenizer,
        tensors=kept,
        task=task,
        extra=(*opened.extra, *extra),
    )


def _same_labels(opened: Opened, head: str, task: Task) -> bool:
    """Say whether a head was trained for just these labels, or for a number if one is learned."""
    spec = opened.model.specs.get(head)
    if not isinstance(spec, Labels | TokenLabels) or f"heads.{head}.out.weight" in opened.missing:
        return False
    if not task.labels:
        return spec.n_labels == 1
    return spec.n_labels == len(opened.labels) and sorted(opened.labels) == sorted(task.labels)


def _pooler(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Find the map before the scores of labels; BERT's was pretrained by its next-sentence head."""
    ours = f"heads.{LABEL}.dense"
    for theirs in (ours, "heads.next_sentence.dense"):
        found = {
            name.replace(theirs, ours): x for name, x in weights.items() if name.startswith(theirs)
        }
        if found:
            return found
    return {}


def _dropped(card: Published, rate: float) -> Published:
    """Return the card with another dropout, but for the two places where only T5 has any."""
    if not 0 <= rate < 1:
        raise ValueError(f"dropout must be from 0 to below 1, got {rate}")

    def stack(a: Architecture) -> Architecture:
        inner = {n: rate for n in ("feed_forward_dropout", "final_dropout") if getattr(a, n)}
        return replace(a, dropout=rate, attention_dropout=rate, **inner)

    a = card.architecture
    if isinstance(a, EncoderDecoderArchitecture):
        return replace(
            card, architecture=replace(a, encoder=stack(a.encoder), decoder=stack(a.decoder))
        )
    return replace(card, architecture=stack(a))
