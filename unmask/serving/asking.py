"""What a model in training says of held-out text: the samples of its report, before and after."""

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from unmask.batch import SENTENCE, WORD, Tokens
from unmask.checkpoints.huggingface import Opened, longest_text
from unmask.generation.fill import why_not
from unmask.generation.settings import decoding
from unmask.model.transformer import EncoderDecoder
from unmask.serving.pipeline import Pipeline
from unmask.serving.record import Fill, Generate, Near, Said, Sample
from unmask.tokens.tokenizer import Tokenizer
from unmask.training.data import Data

SAMPLES = 6
_SHORTEST, _LONGEST = 8, 40
"""Tokens of a sentence that a reader takes in at once."""
_TEMPERATURE, _TOP_P = 0.8, 0.95
_DRAWN = decoding(new_tokens=40, temperature=_TEMPERATURE, top_p=_TOP_P)


def samples(opened: Opened, data: Data, before: Sequence[Sample] = ()) -> list[Said]:
    """Ask a model for held-out words, or to go on with held-out sentences; always the same ones.

    Args:
        opened: the model, which is left in the mode in which it was.
        data: what it is trained on, and what is held out.
        before: what it said before training: then what it says now stands beside that.

    Returns:
        None of a model that names no tokens, reads texts from their end, or answers a text and has
        no blanks (Vaswani et al. 2017); nor of a sentence that the model cannot be asked. A report
        that lacks them keeps nobody from training.
    """
    pipeline = Pipeline(opened)
    if not opened.model.names_tokens or pipeline.tokenizer.frame.backward:
        return []
    said = {_question(one): one for one in before if not isinstance(one, Near)}
    reads_on = opened.model.stack.causal and not isinstance(opened.model.backbone, EncoderDecoder)
    if not reads_on and why_not(opened.model, pipeline.tokenizer) is not None:
        return []
    ask = _continued if reads_on else _filled
    # Half of the positions: text that is decoded and read again may have some more tokens.
    longest = min(_LONGEST, (longest_text(opened.card) or 2 * _LONGEST) // 2)
    training = opened.model.training
    opened.model.eval()
    try:
        found: list[Said] = []
        for ids, at in _sentences(data, longest):
            with suppress(ValueError):  # decoded and read again, it may not fit, or be empty
                found.append(_beside(ask(pipeline, ids, at), said))
        return found
    finally:
        opened.model.train(training)


def _question(sample: Said) -> str:
    return sample.text if isinstance(sample, Fill) else sample.prompt


def _beside(now: Said, said: Mapping[str, Said]) -> Said:
    """Put what a model says now beside what it said before, or else where that stands."""
    old = said.get(_question(now))
    if isinstance(now, Fill):
        if isinstance(old, Fill):
            return replace(now, before=old.before)
        return replace(now, before=now.after, after=())
    if isinstance(old, Generate):
        return replace(now, before=old.before)
    return replace(now, before=now.after, after="")


def _continued(pipeline: Pipeline, ids: Sequence[int], at: int) -> Generate:
    prompt = pipeline.tokenizer.decode(ids[: len(ids) // 2])
    settings = f"temperature {_TEMPERATURE:g}, top-p {_TOP_P:g}"
    return Generate(prompt=prompt, after=pipeline.generate(prompt, _DRAWN), settings=settings)


def _filled(pipeline: Pipeline, ids: Sequence[int], at: int) -> Fill:
    left, answer, right = map(
        pipeline.tokenizer.decode, (ids[:at], ids[at : at + 1], ids[at + 1 :])
    )
    text = f"{left} [MASK] {right}".strip()
    guesses = pipeline.fill(text).blanks
    after = tuple(tuple((c.text, c.probability) for c in blank) for blank in guesses)
    return Fill(text=text, after=after, answers=(answer.strip(),))


def _sentences(data: Data, longest: int) -> list[tuple[list[int], int]]:
    """Pick held-out sentences of a readable length, and the place of a whole word in each."""
    found: list[tuple[list[int], int]] = []
    rows = data.dev.rows
    for start, end in rows[:: max(1, len(rows) // (4 * SAMPLES))].tolist():
        sentence = _readable(data.dev.texts.text(start, end), longest)
        places = [] if sentence is None else _words(sentence, data.shards.tokenizer)
        if sentence is not None and places:
            found.append((sentence.ids.tolist(), places[len(places) * 2 // 3]))
        if len(found) == SAMPLES:
            break
    return found


def _readable(text: Tokens, longest: int) -> Tokens | None:
    """Return the first whole sentence of a text that is neither short nor long."""
    starts = [*np.flatnonzero(text.marks & SENTENCE).tolist(), len(text)]
    lengths = ((a, b) for a, b in itertools.pairwise(starts) if _SHORTEST <= b - a <= longest)
    return next((text[a:b] for a, b in lengths), None)


def _words(sentence: Tokens, tokenizer: Tokenizer) -> list[int]:
    """List the places, none near an end, at which one token is a whole word of letters."""
    begins = (sentence.marks & WORD) != 0
    whole = (i for i in range(2, len(sentence) - 2) if begins[i] and begins[i + 1])
    return [i for i in whole if tokenizer.decode([int(sentence.ids[i])]).strip().isalpha()]
