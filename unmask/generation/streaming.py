"""Generated text while it grows: its stable part, where it stops, what tokens were chosen from."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from jaxtyping import Float, Int
from torch import Tensor

from unmask.generation.state import NO_TOKEN, GenerationState
from unmask.generation.text_batches import evaluation_mode
from unmask.heads.model import Model
from unmask.tokenizers.encode import Tokenizer

_BYTE_PIECE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
"""A byte of a character that has no piece, as SentencePiece writes it."""
REPLACEMENT_CHARACTER = "�"
"""What bytes that are no whole character become; those to come may make one of them."""


@dataclass(frozen=True)
class TextStreamer:
    """The text of a prompt's new tokens; as a constraint, it ends the text at a stop string."""

    decode: Callable[[Sequence[int]], str]
    """Turns all new tokens into text."""
    stop: tuple[str, ...] = ()
    count_settled: Callable[[Sequence[int]], int] = len
    """Counts the leading tokens that no later one changes, but for bytes that are no whole
    character; see `count_settled_tokens`."""

    def is_finished(self, generated_ids: Sequence[int]) -> bool:
        """Return whether a stop string was generated, over any number of tokens."""
        return bool(self.stop) and self._stop_position(self.decode(generated_ids)) is not None

    def allowed_tokens(self, generated_ids: Sequence[int]) -> Sequence[int] | None:
        """Any token may follow."""
        return None

    def final_text(self, generated_ids: Sequence[int]) -> str:
        """Return the text up to the first stop string."""
        text = self.decode(generated_ids)
        return text[: self._stop_position(text)]

    def stable_text(self, generated_ids: Sequence[int]) -> str:
        """Return the part of the text that no later token changes.

        Held back are tokens that are not settled, bytes that are no whole character yet, and what
        may begin a stop string.
        """
        if self.is_finished(generated_ids):
            return self.final_text(generated_ids)
        settled = generated_ids[: self.count_settled(generated_ids)]
        text = self.decode(settled).rstrip(REPLACEMENT_CHARACTER)
        longest = max(map(len, self.stop), default=1) - 1
        for n in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-n:]) for stop in self.stop):
                return text[:-n]
        return text

    def _stop_position(self, text: str) -> int | None:
        found = [at for stop in self.stop if (at := text.find(stop)) >= 0]
        return min(found, default=None)


def count_settled_tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> int:
    """Count the leading tokens whose text is settled: those before a last run of byte pieces.

    SentencePiece writes characters without a piece as bytes, <0xE2>. A run of them is text if all
    of it is UTF-8, and otherwise each byte is U+FFFD: a byte that follows may change all of the
    run. Special tokens within it, and ids without a token, are not written and do not end it.
    """
    special = tokenizer.special_ids.all_ids
    for n in range(len(ids), 0, -1):
        (piece,) = tokenizer.pieces(ids[n - 1 : n])
        is_written = ids[n - 1] not in special and piece != f"<{ids[n - 1]}>"
        if is_written and not _BYTE_PIECE.fullmatch(piece):
            return n
    return 0


@dataclass(frozen=True)
class ResponseStreamer(TextStreamer):
    """The text of a response, without the space around it."""

    def final_text(self, generated_ids: Sequence[int]) -> str:
        """Return the text up to the first stop string."""
        return super().final_text(generated_ids).strip()

    def stable_text(self, generated_ids: Sequence[int]) -> str:
        """Return what no later token changes; the space after it may turn out to be the last."""
        return super().stable_text(generated_ids).strip()


def stream_pieces(
    model: Model,
    steps: Iterator[object],
    token_ids: Sequence[int],
    streamer: TextStreamer,
    *,
    every_step: bool = False,
) -> Iterator[str]:
    """Yield a text in pieces that no later token can change.

    Args:
        model: is in evaluation mode during a step, but not while the caller runs.
        steps: each adds a token to `token_ids`.
        token_ids: the new tokens so far.
        streamer: turns them into text.
        every_step: yield after each step, an empty piece where it makes no text certain.
    """
    emitted = ""
    while True:
        with evaluation_mode(model):
            going = next(steps, None) is not None
        now = streamer.stable_text(token_ids) if going else streamer.final_text(token_ids)
        # Nothing is lost at the end, whatever a tokenizer's own decoder does.
        new = now[len(emitted) :] if now.startswith(emitted) or not going else ""
        emitted += new
        if new or (every_step and going):
            yield new
        if not going:
            return


@dataclass(frozen=True)
class ScoredToken:
    """A generated token, and what else might have come."""

    token_id: int
    probability: float
    """That of the model, after penalties, without temperature and filters."""
    alternatives: tuple[tuple[int, float], ...]
    """The most probable tokens and their probabilities, the most probable first."""


@dataclass
class AlternativesRecorder:
    """Records each token of one text with its most probable alternatives; a `StepObserver`."""

    n: int
    """Alternatives of a token, the token itself included where it is one."""
    tokens: list[ScoredToken] = field(default_factory=list[ScoredToken])
    """The token that ends a text is the last."""

    def __call__(
        self,
        states: Sequence[GenerationState],
        logits: Float[Tensor, "b v"],
        token_ids: Int[Tensor, "b"],
    ) -> None:
        """Record the token of the only text."""
        assert len(states) == 1, "alternatives are of one text"
        if (token := int(token_ids[0])) == NO_TOKEN:
            return
        probabilities = logits[0].float().softmax(-1)
        best = probabilities.topk(min(self.n, len(probabilities)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        self.tokens.append(ScoredToken(token, float(probabilities[token]), tuple(pairs)))
