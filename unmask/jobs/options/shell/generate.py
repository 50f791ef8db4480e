"""GenerateOptions: what `generate` takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from unmask.jobs.options.shell.shared_options import JsonOption, ModelArgument, TextFile
from unmask.options import DeviceOptions, EncodingOptions, flag


@dataclass(frozen=True, kw_only=True)
class GenerationSettings:
    """Settings of decoding; None: the default of `GenerationConfig`."""

    max_new_tokens: int | None = field(default=None, metadata=flag(shown_default="50"))
    """Maximum number of generated tokens; in a chat the default is 512."""
    min_new_tokens: int | None = field(default=None, metadata=flag(shown_default="0"))
    """Minimum number of tokens before the model may end the text."""
    stop: Sequence[str] = field(default=(), metadata=flag(metavar="TEXT"))
    """Stop string; the text ends before it."""
    temperature: float | None = field(default=None, metadata=flag(metavar="T", shown_default="0"))
    """Sampling temperature. 0: greedy decoding."""
    top_k: int | None = field(default=None, metadata=flag(metavar="K"))
    """Number of most probable tokens to sample from."""
    top_p: float | None = field(default=None, metadata=flag(metavar="P"))
    """Cumulative probability of the most probable tokens to sample from (nucleus sampling), above 0
    and at most 1."""
    min_p: float | None = field(default=None, metadata=flag(metavar="P"))
    """Minimum probability of tokens to sample from, relative to the most probable one, above 0 and
    at most 1."""
    typical_p: float | None = field(default=None, metadata=flag(metavar="P"))
    """Cumulative probability of the tokens to sample from that are nearest to the expected
    information (locally typical sampling), above 0 and at most 1."""
    seed: int | None = field(default=None, metadata=flag(shown_default="0"))
    """Random seed for sampling."""
    samples: int | None = None
    """Number of sampled texts per prompt; the most likely is printed (sample-and-rank)."""
    beams: int | None = None
    """Number of beams of beam search."""
    n_best: int | None = field(default=None, metadata=flag(shown_default="1"))
    """Number of best beams or samples to print, each with its score."""
    length_penalty: float | None = field(default=None, metadata=flag(shown_default="1"))
    """Exponent of the length by which a beam's log-probability is divided."""
    early_stopping: bool | Literal["never"] | None = field(
        default=None, metadata=flag(shown_default="false")
    )
    """Stopping rule of beam search. true: as soon as N texts are complete; false: when no better
    one is likely; never: when no better one is possible."""
    repetition_penalty: float | None = field(default=None, metadata=flag(shown_default="1"))
    """Penalty on tokens that already occur, above 1 to avoid them."""
    no_repeat_ngram_size: int | None = None
    """Size of n-grams that may not be repeated, in tokens."""
    precision: Literal["float32", "bfloat16", "int8"] | None = field(
        default=None, metadata=flag(shown_default="float32")
    )
    """Type of the weights that are read for each new token, on a CPU. bfloat16, where the processor
    multiplies in it, and int8 are faster; tokens that are almost equally likely may change."""
    window: bool = False
    """Keep only the last tokens that fit the model's maximum length, and continue beyond it."""


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(
    ModelArgument, TextFile, GenerationSettings, EncodingOptions, DeviceOptions, JsonOption
):
    """Prompts or pictures, and how texts are written for them."""

    pictures: Sequence[str] = field(default=(), metadata=flag(metavar="TEXT", is_argument=True))
    """Pictures to describe: files, folders, archives or tables of files; for captioners."""
    prompt: Sequence[str] = field(default=(), metadata=flag(metavar="TEXT"))
    """Prompt to continue or to answer; in a chat a turn of the user."""
    chat: bool = False
    """Chat with a model that has a chat template: prompts, lines of a file, or lines of standard
    input are the turns of one conversation."""
    system: str | None = field(default=None, metadata=flag(metavar="TEXT"))
    """System prompt of a chat."""
    output_prefix: str = field(default="", metadata=flag(metavar="TEXT"))
    """Text with which each output begins."""
    choice: Sequence[str] = field(default=(), metadata=flag(metavar="TEXT"))
    """Output to rank by its likelihood, instead of generating."""
    draft: str | None = field(default=None, metadata=flag(metavar="MODEL"))
    """Smaller draft model for speculative decoding: the same output distribution, faster."""
    draft_tokens: int | None = field(default=None, metadata=flag(shown_default="4"))
    """Number of tokens proposed by the draft model at a time."""
    source_language: str | None = field(default=None, metadata=flag(metavar="CODE"))
    """Language code of the prompts, for models with language tokens."""
    target_language: str | None = field(
        default=None, metadata=flag(metavar="CODE", shown_default="that of the prompts")
    )
    """Language code of the outputs."""
    stream: bool | None = field(
        default=None,
        metadata=flag(
            "--stream/--no-stream", shown_default="in a chat, and on a terminal for one prompt"
        ),
    )
    """Print text as it is generated."""
