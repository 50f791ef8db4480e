"""Corruptions of encoder-decoders that leave tokens out: T5's sentinels, and dropped tokens."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Int

from unmask.batch import Example, Tokens
from unmask.objectives.corrupt import concatenate, empty_example, seq2seq_example
from unmask.objectives.select import TargetSelection
from unmask.objectives.text_units import span_starts
from unmask.tokenizers.spec import SpecialTokenIds


@dataclass(frozen=True)
class ReplaceSpans:
    """Replace each selected span by a sentinel; the target is sentinel, span, sentinel, span.

    Raffel et al. 2020, section 3.1.4; `noise_span_to_unique_sentinel` and
    `nonnoise_span_to_unique_sentinel` in the released code. As there, a final sentinel ends the
    target only if unselected tokens end the text, which never happens after `RandomSpanMasking` (in
    the paper, always). The special tokens after a text (</s>) are last on both sides, and the
    decoder's input is its target shifted by one, after `start`.
    Deviates: if a selected span starts the text (never after `RandomSpanMasking`), the released
    code gives it no sentinel and all others a wrong one; here each span follows its sentinel.
    Deviates: with more spans than sentinels, a random subset of spans is selected; the released
    code continues with the ids below the sentinels, which are words.
    """

    loss_term: ClassVar[str] = "denoised"

    def causal(self, selection: TargetSelection) -> bool:
        """True: the decoder is causal."""
        return True

    def add_special_tokens(self, text: Tokens, special_ids: SpecialTokenIds) -> Tokens:
        """Leave the text alone: its frame comes after hiding."""
        return concatenate(text)

    def max_example_length(
        self,
        text_lengths: Int[np.ndarray, "m"],
        selection: TargetSelection,
        special_ids: SpecialTokenIds,
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens of what the encoder or the decoder reads, whichever are more."""
        folded = selection.folded_lengths(text_lengths)
        able = text_lengths >= selection.min_tokens
        source = np.where(
            able & (folded.n_spans <= len(special_ids.sentinels)),
            folded.source_length,
            text_lengths,
        )
        return np.maximum(
            np.maximum(source, np.where(able, folded.target_length, 0)) + len(special_ids.suffix), 1
        )

    def __call__(
        self,
        text: Tokens,
        selected: Bool[np.ndarray, "t"],
        special_ids: SpecialTokenIds,
        rng: np.random.Generator,
    ) -> Example:
        """Fold.

        Raises:
            ValueError: the vocabulary has no sentinels.
        """
        if not special_ids.sentinels:
            raise ValueError("replacing spans needs sentinel tokens, and this vocabulary has none")
        after = np.array(special_ids.suffix, np.int64)
        source = np.concatenate((text.ids, after))
        if not selected.any():
            source = source if len(source) else np.array([special_ids.start])
            return empty_example(special_ids, source)
        selected = _limit_spans(selected, len(special_ids.sentinels), rng)
        source = np.concatenate((_replace_by_sentinels(text.ids, selected, special_ids), after))
        targets = np.concatenate((_sentinel_targets(text.ids, selected, special_ids), after))
        return seq2seq_example(targets, source, special_ids)


@dataclass(frozen=True)
class DropTokens:
    """Hidden tokens are gone, and nothing says where; the decoder says them, one after the other.

    Raffel et al. 2020, section 3.3.2; `drop_noise_tokens` and `drop_nonnoise_tokens` in the
    released code. Of a hidden tail this is a prefix language model whose prefix an encoder reads
    (section 3.3.1). The special tokens after a text (</s>) come last on both sides.
    """

    loss_term: ClassVar[str] = "denoised"

    def causal(self, selection: TargetSelection) -> bool:
        """True: the decoder is causal."""
        return True

    def add_special_tokens(self, text: Tokens, special_ids: SpecialTokenIds) -> Tokens:
        """Leave the text alone: its frame comes after hiding."""
        return concatenate(text)

    def max_example_length(
        self,
        text_lengths: Int[np.ndarray, "m"],
        selection: TargetSelection,
        special_ids: SpecialTokenIds,
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens of a side that has all of the text."""
        return np.maximum(np.asarray(text_lengths) + len(special_ids.suffix), 1)

    def __call__(
        self,
        text: Tokens,
        selected: Bool[np.ndarray, "t"],
        special_ids: SpecialTokenIds,
        rng: np.random.Generator,
    ) -> Example:
        """Drop."""
        after = np.array(special_ids.suffix, np.int64)
        source = np.concatenate((text.ids[~selected], after))
        source = source if len(source) else np.array([special_ids.start])
        if not selected.any():
            return empty_example(special_ids, source)
        return seq2seq_example(np.concatenate((text.ids[selected], after)), source, special_ids)


def _limit_spans(
    selected: Bool[np.ndarray, "t"], max_spans: int, rng: np.random.Generator
) -> Bool[np.ndarray, "t"]:
    """Keep at most `max_spans` runs hidden, chosen at random."""
    run = np.cumsum(span_starts(selected))  # from 1
    n = int(run[-1])
    if n <= max_spans:
        return selected
    kept = np.zeros(n + 1, bool)
    kept[1 + rng.choice(n, max_spans, replace=False)] = True
    return selected & kept[run]


def _replace_by_sentinels(
    ids: Int[np.ndarray, "t"], selected: Bool[np.ndarray, "t"], special_ids: SpecialTokenIds
) -> Int[np.ndarray, "k"]:
    """Put the next sentinel in the place of each run that is gone."""
    starts = span_starts(selected)
    sentinels = np.array(special_ids.sentinels)[np.cumsum(starts)[starts] - 1]
    folded = ids.copy()
    folded[starts] = sentinels
    return folded[~selected | starts]


def _sentinel_targets(
    ids: Int[np.ndarray, "t"], selected: Bool[np.ndarray, "t"], special_ids: SpecialTokenIds
) -> Int[np.ndarray, "k"]:
    """Put each hidden run after its sentinel; if shown tokens end the text, one more, if any."""
    starts = span_starts(selected)
    n = int(starts.sum())
    where = np.cumsum(selected)[starts] - 1
    spoken = np.insert(ids[selected], where, np.array(special_ids.sentinels[:n]))
    closing = () if selected[-1] else special_ids.sentinels[n : n + 1]
    return np.concatenate((spoken, np.array(closing, np.int64)))
