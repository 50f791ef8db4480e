"""`fill`, `generate`, `chat`: texts that a model completes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unmask.config import from_dict
from unmask.generation.settings import GenerationConfig
from unmask.generation.streaming import AlternativesRecorder, ScoredToken
from unmask.inference.generation import MAX_RESPONSE_TOKENS
from unmask.inference.pipeline import Pipeline
from unmask.tokenizers.encode import Tokenizer
from unmask.web.worker.open_models import open_models

MAX_ALTERNATIVES = 50


@dataclass(frozen=True, kw_only=True)
class _FillArguments:
    model: str
    text: str
    n: int = 5
    """Candidates for each blank."""
    language: str | None = None


@dataclass(frozen=True, kw_only=True)
class _GenerateArguments:
    model: str
    prompt: str = ""
    file: str | None = None
    """The picture, of a model that describes some; a prompt is never the name of a file."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of `generation_config`."""
    output_prefix: str = ""
    alternatives: int = 5
    """Tokens that might have come, shown with each token."""
    source_language: str | None = None
    target_language: str | None = None

    def __post_init__(self) -> None:
        _check_alternatives(self.alternatives)


@dataclass(frozen=True, kw_only=True)
class _ChatArguments:
    model: str
    messages: Sequence[Mapping[str, str]]
    """{"role", "content"} of system, user and assistant."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    alternatives: int = 5

    def __post_init__(self) -> None:
        _check_alternatives(self.alternatives)


def _check_alternatives(n: int) -> None:
    if not 0 <= n <= MAX_ALTERNATIVES:
        raise ValueError(f"alternatives must be from 0 to {MAX_ALTERNATIVES}, got {n}")


def fill(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the candidates for each [MASK] of a text, the most probable first."""
    given = from_dict(_FillArguments, arguments)
    pipeline = open_models().pipeline(given.model, given.language)
    filled = pipeline.fill(given.text, top_k=given.n)
    blanks = [[vars(candidate) for candidate in blank] for blank in filled.blanks]
    return {"text": given.text, "filled": filled.text, "blanks": blanks}


def generate(arguments: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the text after a prompt in pieces: {"text", "tokens"}, the last with "end" and "model".

    With beams or samples there is one piece, with all "candidates" and their scores.
    """
    given = from_dict(_GenerateArguments, arguments)
    pipeline = open_models().pipeline(given.model)
    config = pipeline.resolve_config(None, given.settings)
    if given.source_language is not None:
        pipeline = pipeline.with_languages(given.source_language, given.target_language)
    prompt = _prompt(pipeline, given)
    if config.chooses_text:
        yield _best_texts(pipeline, prompt, given.output_prefix, config)
        return
    recorder = AlternativesRecorder(given.alternatives)
    pieces = pipeline.stream(prompt, config, output_prefix=given.output_prefix, observer=recorder)
    continues = pipeline.continues_prompt
    yield from _pieces(pieces, recorder, pipeline, config.max_new_tokens, {"continues": continues})


def chat(arguments: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the next response of a conversation in pieces, as `generate` does."""
    given = from_dict(_ChatArguments, arguments)
    pipeline = open_models().pipeline(given.model)
    config = pipeline.resolve_config(None, given.settings, max_new_tokens=MAX_RESPONSE_TOKENS)
    if config.chooses_text:
        yield {"text": pipeline.chat(given.messages, config), "tokens": [], "end": "end"}
        return
    recorder = AlternativesRecorder(given.alternatives)
    pieces = pipeline.stream_chat(given.messages, observer=recorder, **given.settings)
    yield from _pieces(pieces, recorder, pipeline, config.max_new_tokens, {})


def _prompt(pipeline: Pipeline, given: _GenerateArguments) -> str:
    """Return what text follows: a prompt, or the name of a picture."""
    if pipeline.preset.reads_pictures != (given.file is not None):
        what = "pictures; name one" if pipeline.preset.reads_pictures else "texts; give a prompt"
        raise ValueError(f"file: {given.model} reads {what}")
    return given.prompt if given.file is None else given.file


def _best_texts(
    pipeline: Pipeline, prompt: str, output_prefix: str, config: GenerationConfig
) -> dict[str, Any]:
    found = pipeline.generate_candidates(prompt, config, output_prefix=output_prefix)
    candidates = [vars(one) for one in found]
    return {
        "text": found[0].text,
        "tokens": [],
        "candidates": candidates,
        "end": "end",
        "continues": pipeline.continues_prompt,
    }


def _pieces(
    pieces: Iterator[str],
    recorder: AlternativesRecorder,
    pipeline: Pipeline,
    max_new_tokens: int,
    last: Mapping[str, Any],
) -> Iterator[dict[str, Any]]:
    """Yield each piece with the tokens since the one before; last how the text ended."""
    n, tokenizer = 0, pipeline.tokenizer
    for piece in pieces:
        new, n = recorder.tokens[n:], len(recorder.tokens)
        yield {"text": piece, "tokens": [_token_record(tokenizer, one) for one in new]}
    end_ids = pipeline.special_ids.ends
    ended = bool(recorder.tokens) and recorder.tokens[-1].token_id in end_ids
    full = not ended and len(recorder.tokens) >= max_new_tokens
    rest = [_token_record(tokenizer, one) for one in recorder.tokens[n:]]
    end = "end" if ended else "length" if full else "stop"
    yield {"text": "", "tokens": rest, "end": end, **last}


def _token_record(tokenizer: Tokenizer, token: ScoredToken) -> dict[str, Any]:
    ids = [token.token_id, *(one for one, _ in token.alternatives)]
    piece, *others = tokenizer.pieces(ids)
    pairs = zip(others, token.alternatives, strict=True)
    return {
        "token": piece,
        "id": token.token_id,
        "probability": round(token.probability, 6),
        "alternatives": [[name, round(p, 6)] for name, (_, p) in pairs],
    }
