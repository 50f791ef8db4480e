"""Notes for the user before the first step: on weights, mixtures and long texts."""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import islice

import numpy as np

from unmask.batching.source_sampling import SourceSampling
from unmask.checkpoints.huggingface.differences import opening_note
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.data.task_mixture import TaskMixture
from unmask.finetuning.formulations.formulation import (
    TaskFormulation,
)
from unmask.finetuning.formulations.text_to_text.text_to_text import TextToTextFormulation
from unmask.finetuning.initial_model.load import InitialModel
from unmask.finetuning.initial_model.source_encoder import (
    newly_initialized_names,
)
from unmask.finetuning.initial_model.task_tokens import TASK_TOKENS
from unmask.finetuning.methods.method import (
    method_name,
)
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.task import Task, TaskExample
from unmask.tasks.text_templates import parse_template
from unmask.text.formats.records import format_names


def weight_notes(initial_model: InitialModel, config: FinetuneConfig) -> list[str]:
    """Return notes on newly initialized and on unused weights."""
    notes: list[str] = []
    is_read = initial_model.preset.reads_texts
    if is_read and not initial_model.is_pretrained and config.tokenizer is None:
        notes.append(
            f"a vocabulary of {initial_model.tokenizer.vocab_size:,} tokens, special ones "
            "included, was learned from the training texts"
        )
    task_head = dict(islice(initial_model.preset.heads.items(), 1))  # not the auxiliary one
    if (note := opening_note(initial_model.preset, task_head)) is not None:
        notes.append(note)
    notes += _template_notes(initial_model, config)
    if config.initialize == "random" or not initial_model.is_pretrained:
        return notes
    fresh = newly_initialized_names(initial_model)
    if initial_model.new_token_ids:
        fresh = (
            *fresh,
            *(
                f"the vector of {name}"
                for name in initial_model.tokenizer.pieces(initial_model.new_token_ids)
            ),
        )
    if fresh:
        notes.append(f"newly initialized: {format_names(fresh)}")
    if initial_model.unexpected:
        names = format_names(initial_model.unexpected[:3]) + (
            ", ..." if len(initial_model.unexpected) > 3 else ""
        )
        notes.append(
            f"unused weights of the model: {len(initial_model.unexpected)} tensors ({names})"
        )
    return notes


def label_notes(task: Task, train: Sequence[TaskExample]) -> tuple[list[str], list[str]]:
    """Return a note on the labels with their counts, and warnings of those that look alike."""
    if not task.labels:
        return [], []
    counts = Counter[str]()
    for item in train:
        labels = item.label if isinstance(item.label, tuple) else (item.label,)
        counts.update(label for label in labels if isinstance(label, str))
    ordered = sorted(task.labels, key=lambda label: -counts[label])
    listed = ", ".join(f"{label} {counts[label]:,}" for label in ordered[:_LISTED_LABELS])
    rest = len(ordered) - _LISTED_LABELS
    note = f"labels: {listed}" + (f", and {rest:,} others" if rest > 0 else "")
    alike: dict[str, list[str]] = defaultdict(list)
    for label in ordered:
        alike["".join(unicodedata.normalize("NFKC", label).casefold().split())].append(label)
    return [note], [
        f"the labels {' and '.join(f'{x!r} ({counts[x]:,})' for x in labels)} differ only in case, "
        "spaces or Unicode form: are they one?"
        for labels in alike.values()
        if len(labels) > 1
    ]


_LISTED_LABELS = 12


def _template_notes(initial_model: InitialModel, config: FinetuneConfig) -> list[str]:
    """Return notes on the special tokens of a paper's fine-tuning, if added, or why not."""
    resolved, requested = initial_model.task.options, config.task_options
    notes: list[str] = []
    if resolved.get("special_tokens") != requested.get("special_tokens"):
        notes.append(
            f"around texts stand {format_names(TASK_TOKENS.names)}, as in the model's paper "
            "(--option special_tokens=own for what its tokenizer puts there)"
        )
    if resolved.get("pooling") == "both" != requested.get("pooling"):
        notes.append("two texts are read in both orders (--option order_invariant=false for one)")
    would_add_tokens = (
        "special_tokens" in resolved
        and resolved["special_tokens"] is None
        and initial_model.preset.finetuning.special_tokens == "added"
    )
    if would_add_tokens and not config.tune.trains_embeddings:
        notes.append(
            f"{method_name(config.tune)} tunes no vectors of tokens: none are added, unlike in the "
            "paper"
        )
    return notes


def random_weights_warnings(initial_model: InitialModel, config: FinetuneConfig) -> list[str]:
    """Return a warning where nothing was pretrained, that names weights that were."""
    if config.initialize == "random":
        return ["all weights are randomly initialized: nothing that was pretrained is used"]
    if initial_model.is_pretrained:
        return []
    preset = initial_model.preset
    published = f"hf:{preset.hub_id} for the published ones, or " if preset.hub_id else ""
    return [
        f"{preset.name} is an untrained preset: all weights are randomly initialized; name "
        f"{published}the folder of a pretrained run"
    ]


def mixture_notes(
    mixture: TaskMixture | None,
    source_sampling: SourceSampling | None,
    train: Sequence[TaskExample],
) -> list[str]:
    """Return the numbers of examples of each part of a mixture, in all and per epoch.

    Args:
        mixture: the mixture; None: a single task.
        source_sampling: its sampling.
        train: the training examples.
    """
    if mixture is None or source_sampling is None:
        return []
    sizes, total = (
        np.bincount(source_sampling.source_of_row).tolist(),
        sum(source_sampling.rows_per_epoch),
    )
    return [
        f"{name}: {take:,} of {size:,} examples an epoch, {take / total:.1%} of what is learned"
        for name, size, take in zip(
            mixture.sampled_names(item.component for item in train),
            sizes,
            source_sampling.rows_per_epoch,
            strict=True,
        )
    ]


def split_text_notes(task: Task, n_truncated: int, n_items: int, split_name: str) -> list[str]:
    """Return a note on the number of texts that are longer than a row and are split, if any."""
    if not n_truncated or not TASK_KINDS[task.task_kind].splits_long_texts:
        return []
    return [f"{_too_long_texts(n_truncated, n_items, split_name, task)} are read in parts"]


def _too_long_texts(n_truncated: int, n_items: int, split_name: str, task: Task) -> str:
    return (
        f"{n_truncated:,} of {n_items:,} {split_name} texts have more than {task.max_length} "
        "tokens and"
    )


def truncation_warnings(
    formulation: TaskFormulation,
    n_truncated: int,
    n_truncated_targets: int,
    n_items: int,
    split_name: str,
) -> list[str]:
    """Return warnings with the numbers of truncated texts and targets, if any.

    Args:
        formulation: formulation of the task.
        n_truncated: number of truncated texts.
        n_truncated_targets: number of truncated targets.
        n_items: number of all items.
        split_name: name of the split.
    """
    warnings: list[str] = []
    task = formulation.task
    if n_truncated and not TASK_KINDS[task.task_kind].splits_long_texts:
        template = task.options.get("template")
        oldest = template and parse_template(template, "options.template").truncation_keeps == "end"
        how = "lose their beginning, of lines the oldest" if oldest else "are cut"
        warnings.append(f"{_too_long_texts(n_truncated, n_items, split_name, task)} {how}")
    if n_truncated_targets and isinstance(formulation, TextToTextFormulation):
        warnings.append(
            f"{n_truncated_targets:,} of {n_items:,} {split_name} targets have more than "
            f"{formulation.max_target_length} tokens, and are learned up to there (--option "
            f"max_target_length={2 * formulation.max_target_length} for more)"
        )
    return warnings
