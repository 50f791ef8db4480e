"""Predictions on held-out text for the report of a run, before and after training."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from unmask.batch import SENTENCE_START, WORD_START, Tokens
from unmask.checkpoints.huggingface.read import LoadedModel, max_text_tokens
from unmask.generation.fill_mask import unsupported_reason
from unmask.generation.settings import generation_config
from unmask.inference.pipeline import Pipeline
from unmask.reports.report_data import Fill, Generate, ReportSample, TextSample
from unmask.tokenizers.encode import Tokenizer
from unmask.training.data.texts import TrainingData

N_SAMPLES = 6
_MIN_SENTENCE_TOKENS, _MAX_SENTENCE_TOKENS = 8, 40
"""Length of a readable sentence in tokens."""
_TEMPERATURE, _TOP_P = 0.8, 0.95
_SAMPLED_GENERATION = generation_config(max_new_tokens=40, temperature=_TEMPERATURE, top_p=_TOP_P)


def held_out_samples(
    loaded_model: LoadedModel, training_data: TrainingData, previous: Sequence[ReportSample] = ()
) -> list[TextSample]:
    """Fill masks in, or continue, a fixed selection of held-out sentences.

    Args:
        loaded_model: the model; its training mode is restored.
        training_data: training and held-out data.
        previous: its samples before training, to be merged with the new ones.

    Returns:
        Samples; empty for models without a language head, that read backward, or that are
        sequence-to-sequence without blanks (Vaswani et al. 2017). Unsuitable sentences are skipped.
    """
    pipeline = Pipeline(loaded_model)
    if not loaded_model.model.has_language_head or pipeline.tokenizer.special_tokens.backward:
        return []
    previous_by_prompt = {
        _prompt_of(sample): sample for sample in previous if isinstance(sample, Fill | Generate)
    }
    continues_text = loaded_model.model.architecture.is_decoder_only
    if (
        not continues_text
        and unsupported_reason(loaded_model.model, pipeline.tokenizer) is not None
    ):
        return []
    # Half of the positions: decoded and re-encoded text may have more tokens.
    longest = min(
        _MAX_SENTENCE_TOKENS,
        (max_text_tokens(loaded_model.preset) or 2 * _MAX_SENTENCE_TOKENS) // 2,
    )
    training = loaded_model.model.training
    loaded_model.model.eval()
    try:
        sentences = _pick_sentences(training_data, longest)
        samples: list[TextSample] = []
        if continues_text:
            samples += _sample_continuations(pipeline, [ids for ids, _ in sentences])
        else:
            for ids, position in sentences:
                with suppress(ValueError):  # re-encoded text may not fit, or be empty
                    samples.append(_fill_blank(pipeline, ids, position))
        return [_merge_with_previous(one, previous_by_prompt) for one in samples]
    finally:
        loaded_model.model.train(training)


def _prompt_of(sample: TextSample) -> str:
    return sample.text if isinstance(sample, Fill) else sample.prompt


def _merge_with_previous(sample: TextSample, previous: Mapping[str, TextSample]) -> TextSample:
    """Merge a sample with the previous one of the same prompt, if any."""
    old = previous.get(_prompt_of(sample))
    if isinstance(sample, Fill):
        if isinstance(old, Fill):
            return replace(sample, before=old.before)
        return replace(sample, before=sample.after, after=())
    if isinstance(old, Generate):
        return replace(sample, before=old.before)
    return replace(sample, before=sample.after, after="")


def _sample_continuations(
    pipeline: Pipeline, sentences: Sequence[Sequence[int]]
) -> Iterator[Generate]:
    """Continue the first halves of sentences, all at once: in a third of the time."""
    halves = (pipeline.tokenizer.decode(ids[: len(ids) // 2]) for ids in sentences)
    prompts = [prompt for prompt in halves if prompt.strip()]
    settings = f"temperature {_TEMPERATURE:g}, top-p {_TOP_P:g}"
    with suppress(ValueError):  # re-encoded text may not fit
        texts = pipeline.generate(prompts, _SAMPLED_GENERATION)
        for prompt, text in zip(prompts, texts, strict=True):
            yield Generate(prompt=prompt, after=text, settings=settings)


def _fill_blank(pipeline: Pipeline, ids: Sequence[int], position: int) -> Fill:
    left_text, answer, right_text = map(
        pipeline.tokenizer.decode,
        (ids[:position], ids[position : position + 1], ids[position + 1 :]),
    )
    text = f"{left_text} [MASK] {right_text}".strip()
    guesses = pipeline.fill(text).blanks
    after = tuple(tuple((c.text, c.probability) for c in blank) for blank in guesses)
    return Fill(text=text, after=after, answers=(answer.strip(),))


def _pick_sentences(training_data: TrainingData, max_tokens: int) -> list[tuple[list[int], int]]:
    """Pick held-out sentences of a readable length, and the position of a whole word in each."""
    picked: list[tuple[list[int], int]] = []
    rows = training_data.dev_rows.row_spans
    for start, end in rows[:: max(1, len(rows) // (4 * N_SAMPLES))].tolist():
        sentence = _first_readable_sentence(
            training_data.dev_rows.token_source.read_tokens(start, end), max_tokens
        )
        positions = (
            []
            if sentence is None
            else _whole_word_positions(sentence, training_data.shards.tokenizer)
        )
        if sentence is not None and positions:
            picked.append((sentence.ids.tolist(), positions[len(positions) * 2 // 3]))
        if len(picked) == N_SAMPLES:
            break
    return picked


def _first_readable_sentence(text: Tokens, max_tokens: int) -> Tokens | None:
    """Return the first complete sentence of readable length in a text."""
    starts = [*np.flatnonzero(text.boundaries & SENTENCE_START).tolist(), len(text)]
    lengths = (
        (a, b) for a, b in itertools.pairwise(starts) if _MIN_SENTENCE_TOKENS <= b - a <= max_tokens
    )
    return next((text[a:b] for a, b in lengths), None)


def _whole_word_positions(sentence: Tokens, tokenizer: Tokenizer) -> list[int]:
    """List the positions, not near the ends, of single tokens that are whole words."""
    starts = (sentence.boundaries & WORD_START) != 0
    is_whole_word = (i for i in range(2, len(sentence) - 2) if starts[i] and starts[i + 1])
    return [i for i in is_whole_word if tokenizer.decode([int(sentence.ids[i])]).strip().isalpha()]
