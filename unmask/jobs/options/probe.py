"""ProbeOptions: what `probe` takes, in Python and on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.options import DeviceOptions, EncodingOptions, TerminalOptions, flag

if TYPE_CHECKING:
    from unmask.inference.pipeline import Pipeline


@dataclass(frozen=True)
class ProbeOptions(EncodingOptions, DeviceOptions, TerminalOptions):
    """A model, what of it is analyzed, and on which data."""

    model: str | Path | Pipeline = field(metadata=flag(metavar="MODEL", is_argument=True))
    """Model: a run folder, a folder in the Hugging Face layout, hf:owner/name, or the bundled
    unmask-mini-en; in Python also an open model."""
    _: KW_ONLY
    analysis: str | Sequence[Any] = field(default=(), metadata=flag(metavar="NAME"))
    """Analysis: attention (heads against dependency trees), alignment:dictionary=FILE
    (cross-attention against a dictionary), cloze (answers in blanks), contextuality (words in
    several sentences), importance (the loss without heads), judgments (preferences beside those of
    people), lens (what each layer would predict), pairs (minimal pairs), probes (classifiers of
    hidden states), reading (surprisal against reading times), saliency (what a decision rests on),
    senses (one sense of a word or two) or similarity:other=MODEL (layers beside those of another
    model); with settings: attention:sentences=500,parser=false (docs/probing.md)."""
    data: str | Path | None = field(default=None, metadata=flag(metavar="FILE"))
    """Data on which the model is scored; of attention, sentences with trees (.conllu); of
    alignment, two parallel files (SOURCES+TARGETS); of cloze, the columns of oLMpics, LAMA or
    entity tracking (.jsonl); of judgments, BabyLM's columns (.jsonl); of pairs, the columns of
    BLiMP or EWoK (.jsonl), or own pairs of negation and roles by default; of probes, trees
    (.conllu), a word and its labels per line (.conll, .txt), or targets of spans (.jsonl); of
    reading, BabyLM's columns (.csv); of importance and saliency, a labeled table, or text for a
    language model; of senses, WiC's layout, or text with pseudo_words; of contextuality, lens and
    similarity, text; optionally compressed."""
    train: str | Path | None = field(
        default=None, metadata=flag(metavar="FILE", shown_default="the first half of --data")
    )
    """Data on which heads, baselines and thresholds are chosen, and probes fitted. None: the first
    half of `data`."""
    text: str | Sequence[str] = field(default=(), metadata=flag(metavar="TEXT"))
    """Text that the page shows, words separated by spaces."""
    control: bool = field(default=True, metadata=flag("--control/--no-control"))
    """Analyze the same network with random weights beside it."""
    seed: int = 0
    """Random seed of the control's weights, and of probes and their control tasks."""
    out: str | Path = field(metadata=flag(metavar="FOLDER"))
    """Output folder, which may hold other analyses; each writes NAME.json, NAME.md and
    NAME.html, and figures as NAME-FIGURE.svg."""
