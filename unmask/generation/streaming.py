"""What is said, as text, while it grows: what is settled, and where it stops."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

REPLACEMENT_CHARACTER = "�"
"""What bytes that are no whole character become; those to come may make one of them."""


@dataclass(frozen=True)
class TextStreamer:
    """The text of a prompt's new tokens; as a guide, it ends the text at a stop string."""

    decode: Callable[[Sequence[int]], str]
    """Turns all that was said so far into text."""
    stop: tuple[str, ...] = ()

    def is_finished(self, generated_ids: Sequence[int]) -> bool:
        """Say whether a stop string was said, in however many tokens."""
        return bool(self.stop) and self._stop_position(self.decode(generated_ids)) is not None

    def allowed_tokens(self, generated_ids: Sequence[int]) -> Sequence[int] | None:
        """Any token may follow."""
        return None

    def final_text(self, generated_ids: Sequence[int]) -> str:
        """Return what was said, up to the first stop string."""
        whole = self.decode(generated_ids)
        return whole[: self._stop_position(whole)]

    def stable_text(self, generated_ids: Sequence[int]) -> str:
        """Return the part of the text that no later token changes.

        Held back are bytes that are no whole character yet, and what may begin a stop string.
        """
        whole = self.decode(generated_ids)
        if (end := self._stop_position(whole)) is not None:
            return whole[:end]
        whole = whole.rstrip(REPLACEMENT_CHARACTER)
        longest = max(map(len, self.stop), default=1) - 1
        for n in range(min(longest, len(whole)), 0, -1):
            if any(stop.startswith(whole[-n:]) for stop in self.stop):
                return whole[:-n]
        return whole

    def _stop_position(self, text: str) -> int | None:
        found = [at for stop in self.stop if (at := text.find(stop)) >= 0]
        return min(found, default=None)
