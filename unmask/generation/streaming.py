"""Generated text while it grows: its stable part, and where it stops."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

REPLACEMENT_CHARACTER = "�"
"""What bytes that are no whole character become; those to come may make one of them."""


@dataclass(frozen=True)
class TextStreamer:
    """The text of a prompt's new tokens; as a constraint, it ends the text at a stop string."""

    decode: Callable[[Sequence[int]], str]
    """Turns all new tokens into text."""
    stop: tuple[str, ...] = ()

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

        Held back are bytes that are no whole character yet, and what may begin a stop string.
        """
        text = self.decode(generated_ids)
        if (end := self._stop_position(text)) is not None:
            return text[:end]
        text = text.rstrip(REPLACEMENT_CHARACTER)
        longest = max(map(len, self.stop), default=1) - 1
        for n in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-n:]) for stop in self.stop):
                return text[:-n]
        return text

    def _stop_position(self, text: str) -> int | None:
        found = [at for stop in self.stop if (at := text.find(stop)) >= 0]
        return min(found, default=None)


@dataclass(frozen=True)
class ResponseStreamer(TextStreamer):
    """The text of a response, without the space around it."""

    end_ids: frozenset[int] = frozenset()
    """Tokens by which a response ends, beside the one that ends its turn."""

    def is_finished(self, generated_ids: Sequence[int]) -> bool:
        """Return whether an end or a stop string was generated."""
        ended = not self.end_ids.isdisjoint(generated_ids[-1:])
        return ended or super().is_finished(generated_ids)

    def final_text(self, generated_ids: Sequence[int]) -> str:
        """Return the text up to the first stop string."""
        return super().final_text(generated_ids).strip()

    def stable_text(self, generated_ids: Sequence[int]) -> str:
        """Return what no later token changes; the space after it may turn out to be the last."""
        return super().stable_text(generated_ids).strip()
