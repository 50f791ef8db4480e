"""What `hide` takes besides the options of its job."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from unmask.options import flag


@dataclass(frozen=True, kw_only=True)
class PageOption:
    """A page of a picture."""

    page: Path | None = field(default=None, metadata=flag(metavar="FILE"))
    """HTML page to write: a picture, what is seen of it, and what is asked."""
