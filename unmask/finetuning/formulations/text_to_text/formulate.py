"""The head and the formulation of text generation for each kind of model."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.finetuning.formulations.formulation import (
    LANGUAGE_HEAD,
    InputTemplate,
    TaskFormulation,
    is_encoder_decoder,
    language_modeling_head,
)
from unmask.finetuning.formulations.text_to_text.masked import MaskedTextFormulation
from unmask.finetuning.formulations.text_to_text.text_to_text import TextToTextFormulation
from unmask.finetuning.formulations.text_to_text.with_pretraining import TextMixtureFormulation
from unmask.heads.language.language_modeling import (
    AppendedMaskGeneration,
    SourcePrefixGeneration,
)
from unmask.heads.spec import HeadSpec
from unmask.tasks.kinds.generate import TextGenerationOptions, parse_generation_options
from unmask.tasks.task import Task
from unmask.tokenizers.encode import Tokenizer
from unmask.zoo.preset import Published

DEFAULT_MAX_TARGET_LENGTH = 128


def generation_heads(task: Task, preset: Published) -> dict[str, HeadSpec]:
    """Return the head that predicts tokens.

    Raises:
        ValueError: the model is a bidirectional encoder that cannot generate text, or lacks segment
            embeddings for sources and targets.
    """
    spec, smoothing = (
        language_modeling_head(preset),
        parse_generation_options(task.options).label_smoothing,
    )
    spec = spec if smoothing is None else replace(spec, label_smoothing=smoothing)
    if (answers := preset.finetuning.generation) is not None:
        _check_segments(answers, preset)
        return {LANGUAGE_HEAD: replace(spec, generation=answers)}
    forward = spec.generation is not None and spec.generation.shifted_targets
    if not preset.architecture.decoder_stack.causal and not forward:
        raise ValueError(
            f"{preset.name} reads in both directions and does not learn to write; take a "
            "decoder or an encoder-decoder"
        )
    return {LANGUAGE_HEAD: replace(spec, term="next_token")}


def formulate_generation(task: Task, preset: Published, tokenizer: Tokenizer) -> TaskFormulation:
    """Formulate the prediction of a target text from a source text.

    Raises:
        ValueError: the maximum length leaves no room for a source, or the vocabulary lacks an end
            token, or a mask token if the model needs it.
    """
    options = parse_generation_options(task.options)
    tokenizer = _with_languages(tokenizer, options)
    special = tokenizer.special_ids
    if special.end is None:
        raise ValueError(f"the tokenizer of {preset.name} has no token that ends a text")
    hides = preset.finetuning.seq2seq_target
    if hides is not None and special.mask is None:
        raise ValueError(f"the tokenizer of {preset.name} has no token that masks others")
    _check_plain_text(options, preset)
    encodes, forward = is_encoder_decoder(preset), language_modeling_head(preset).generation
    reads = tokenizer.input_tokenizer.special_ids
    formulation = TextToTextFormulation(
        task=task,
        tokenizer=tokenizer,
        prefix=options.prefix,
        templates=options.templates,
        leading_ids=reads.prefix,
        trailing_ids=reads.suffix if encodes else _separator_ids(options, task, preset, tokenizer),
        end_id=special.end,
        is_encoder_decoder=encodes,
        max_target_length=options.max_target_length
        or (
            DEFAULT_MAX_TARGET_LENGTH
            if encodes
            else min(DEFAULT_MAX_TARGET_LENGTH, task.max_length // 2)
        ),
        max_dev_items=options.max_dev_items,
        bidirectional_source=isinstance(forward, SourcePrefixGeneration)
        and forward.bidirectional_source,
        strategy=options.strategy(),
    )
    (prefix,) = tokenizer.input_tokenizer.encode_ids_batch([options.prefix])
    if formulation.max_source_tokens < len(prefix) + 1:
        least = task.max_length - formulation.max_source_tokens + len(prefix) + 1
        raise ValueError(
            f"max_length must be at least {least} for targets of {formulation.max_target_length} "
            "tokens (options.max_target_length) and what is read around a source, got "
            f"{task.max_length}"
        )
    if hides is not None:
        return MaskedTextFormulation(**vars(formulation), masked_target=hides)
    if options.plain_text_components:
        tokenizer.check_single_vocabulary(f"plain text ({options.plain_text_components[0]})")
        row = min(task.max_length, preset.sequence_length)
        return TextMixtureFormulation(
            **vars(formulation), objective=preset.objective, max_row_tokens=row
        )
    return formulation


def with_task_languages(tokenizer: Tokenizer, task: Task | None) -> Tokenizer:
    """Return the tokenizer with the languages of a fine-tuned task, if it has any.

    Other languages can be set later (`Tokenizer.with_languages`).
    """
    options: Mapping[str, Any] = {} if task is None else task.options
    source, target = options.get("source_language"), options.get("target_language")
    return (
        tokenizer if source is None or target is None else tokenizer.with_languages(source, target)
    )


def _with_languages(tokenizer: Tokenizer, options: TextGenerationOptions) -> Tokenizer:
    """Return the tokenizer with the languages of sources and targets.

    Raises:
        ValueError: it has no tokens for them; or it has language tokens, and no language is given.
    """
    source, target = options.source_language, options.target_language
    if source is None and target is None:
        if tokenizer.special_ids.needs_languages:
            raise ValueError(
                "options.source_language and options.target_language must name two of "
                f"{', '.join(dict(tokenizer.special_ids.languages))}"
            )
        return tokenizer
    if source is None or target is None:
        raise ValueError("options.source_language and options.target_language go together")
    return tokenizer.with_languages(source, target)


def _check_plain_text(options: TextGenerationOptions, preset: Published) -> None:
    """Refuse plain text in a mixture if the pretraining objective does not fit text to text."""
    if not options.plain_text_components:
        return
    asks, encodes = preset.objective.loss_terms, is_encoder_decoder(preset)
    alike = preset.objective.causal and (encodes or asks == ("next_token",))
    if (
        preset.objective.needs_second_text
        or preset.finetuning.seq2seq_target is not None
        or not alike
    ):
        raise ValueError(
            f"plain text ({options.plain_text_components[0]}) is no part of a mixture of "
            f"{preset.name}: its pretraining asks for {', '.join(asks)}, which does not fit a "
            "batch with sources and targets"
        )


def _check_segments(generation: AppendedMaskGeneration, preset: Published) -> None:
    n = preset.architecture.decoder_stack.segment_count
    for role, segment in (
        ("sources", generation.source_segment),
        ("targets", generation.target_segment),
    ):
        if segment is not None and segment >= n:
            raise ValueError(
                f"{preset.name} has {n} segments, none of them for {role}, which have {segment}"
            )


def _separator_ids(
    options: TextGenerationOptions, task: Task, preset: Published, tokenizer: Tokenizer
) -> tuple[int, ...]:
    """Return the tokens between source and target in a decoder."""
    if options.separator is None:
        return InputTemplate.from_architecture(
            tokenizer.special_ids, preset.architecture, task.max_length
        ).separator
    (ids,) = tokenizer.encode_ids_batch([options.separator])
    return tuple(ids.tolist())
