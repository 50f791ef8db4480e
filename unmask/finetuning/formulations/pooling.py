"""The special tokens and the pooling for a classification head."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from unmask.finetuning.formulations.formulation import InputTemplate, is_encoder_decoder
from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.tasks.all_kinds import TASK_KINDS, has_two_texts, reads_choices, reads_two_texts
from unmask.tasks.kinds.pooling_options import PoolingOptions
from unmask.tasks.task import Task
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.preset import Published

DECODER_POOLINGS = ("last", "mean", "max", "concat", "attention")
"""Poolings for causal models, whose first token attends to no other."""


def _join_with_or(words: Sequence[str]) -> str:
    *some, last = map(repr, words)
    return f"{', '.join(some)} or {last}"


def classification_head(
    task: Task, preset: Published, options: PoolingOptions
) -> SequenceClassification:
    """Return the preset's classification head; with a pooling not its own, a single linear map.

    Raises:
        ValueError: the model has no such head, or the pooling does not fit the model or the task.
    """
    if preset.classification_head is None:
        raise ValueError(f"{preset.name} has no classification head")
    pooling = options.pooling or preset.classification_head.pooling
    layers = options.pooled_layers or (
        "all" if pooling == "compare" else preset.classification_head.pooled_layers
    )
    _, poolings = preset.config_mapping.pooling_key
    if (
        pooling in {preset.classification_head.pooling, *poolings.values()}
        and layers == preset.classification_head.pooled_layers
    ):
        return replace(preset.classification_head, pooling=pooling)
    causal, orders = preset.architecture.decoder_stack.causal, has_two_texts(task)
    if is_encoder_decoder(preset) and pooling not in DECODER_POOLINGS:
        raise ValueError(
            f"options.pooling must be {_join_with_or(DECODER_POOLINGS)} for {preset.name}, whose "
            f"decoder reads forward and all of its source at once, got {pooling!r}"
        )
    if pooling == "first" and causal:
        fits = (*DECODER_POOLINGS, *["compare"] * reads_two_texts(task), *["both"] * orders)
        raise ValueError(
            f"options.pooling must be {_join_with_or(fits)} for {preset.name}, which only reads "
            f"forward, got {pooling!r}"
        )
    if pooling == "compare" and not reads_two_texts(task):
        raise ValueError("options.pooling 'compare' is for two texts, and one is read")
    if pooling == "both" and not (causal and orders):
        why = f"{preset.name} is none" if orders else f"{task.task_kind} here reads none"
        raise ValueError(f"options.pooling 'both' is for two texts that a decoder reads, and {why}")
    # No other library has a head for two orders, so it can have a bias as in the first GPT
    # (released # code, `clf`).
    bias = preset.classification_head.bias or pooling == "both"
    return replace(
        preset.classification_head,
        pooling=pooling,
        pooled_layers=layers,
        dense_layer=False,
        bias=bias,
    )


def refuse_pooling(preset: Published, options: PoolingOptions) -> None:
    """Refuse pooling options for a preset whose model predicts labels as words.

    Raises:
        ValueError: an option is given.
    """
    for name in ("pooling", "pooled_layers", "special_tokens"):
        if (value := getattr(options, name)) is not None:
            raise ValueError(
                f"options.{name} is for classification heads, and {preset.name} predicts labels as "
                f"words: leave it out, or take an encoder or a decoder; got {value!r}"
            )


def without_trained_pooler(task: Task, *, keeps_first_token: bool) -> Task:
    """Return the task with the best pooling for a model without a trained pooler.

    BERT's first token and pooler are trained by next-sentence prediction. Without it, the means of
    all layers work better for two texts, and for one where the network is frozen or little of it is
    tuned (docs/finetuning.md has the figures of unmask-mini-en). Else the first token of one text
    works as well, and transformers has a class for its head.
    """
    options: dict[str, Any] = dict(task.options)
    requested = options.get("pooling") or options.get("pooled_layers")
    has_pooling = issubclass(TASK_KINDS[task.task_kind].options, PoolingOptions)
    pooling = "compare" if reads_two_texts(task) else "mean" if keeps_first_token else None
    if requested or not has_pooling or reads_choices(task) or pooling is None:
        return task
    return replace(task, options={**options, "pooling": pooling, "pooled_layers": "all"})


def input_template(task: Task, preset: Published, special_ids: SpecialTokenIds) -> InputTemplate:
    """Return the special tokens around a text for a classification head."""
    pooling = task.options.get("pooling")
    return InputTemplate.from_architecture(
        special_ids, preset.architecture, task.max_length,
        encode_separately=pooling == "compare", both_orders=pooling == "both",
        global_first_token=True,
    )  # fmt: skip
