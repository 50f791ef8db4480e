"""What an attack is: a file that somebody made on purpose, and the reader that is to survive it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Attack:
    """A hostile file; it is to be refused in one line, or do no harm."""

    reader: str
    """A name of `readers.BY_READER`."""
    make: Callable[[Path], object]
    """Writes it at a path, which has the name that the reader asks for."""
    harmless: bool = False
    """Whether it may be read: what it tries has no effect."""
    seconds: float = 2
    megabytes: float = 500


def written(data: bytes | str) -> Callable[[Path], object]:
    """Return what writes a file with these bytes."""
    return lambda path: path.write_bytes(data.encode() if isinstance(data, str) else data)
