"""Models that stay open: the last few, opened anew when their files have changed."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline
from unmask.inference.vectors.load_word_vectors import load_word_vectors
from unmask.training.device.distributed import set_threads
from unmask.word_vectors.keyed_vectors import KeyedVectors

MAX_OPEN_MODELS = 3
_Fingerprint = tuple[tuple[str, int, int], ...]


@dataclass
class OpenModels:
    """Models and word vectors by name, those used last."""

    size: int = MAX_OPEN_MODELS
    _open: OrderedDict[tuple[str, str], tuple[_Fingerprint, Any]] = field(
        default_factory=OrderedDict[tuple[str, str], tuple[_Fingerprint, Any]]
    )

    def pipeline(self, name: str, language: str | None = None) -> Pipeline:
        """Return a model, for texts of a language if one is given.

        Raises:
            FileNotFoundError: there is no such folder.
            ValueError: it is no model; see `unmask.load`.
        """
        found = cast(Pipeline, self._get("model", name, _load_model))
        return found if language is None else found.with_text_language(language)

    def vectors(self, name: str) -> KeyedVectors:
        """Return the word vectors of a file, or the token embeddings of a model.

        Raises:
            FileNotFoundError: there is no such file or folder.
            ValueError: it has none.
        """
        return cast(KeyedVectors, self._get("vectors", name, load_word_vectors))

    def _get(self, kind: str, name: str, open_one: Callable[[str], Any]) -> Any:
        key, now = (kind, name), _fingerprint(Path(name))
        known = self._open.pop(key, None)
        if known is None or known[0] != now:
            known = None  # its memory is free before another takes some
            while len(self._open) >= self.size:
                self._open.popitem(last=False)
            known = (now, open_one(name))
        self._open[key] = known
        return known[1]


def check_weights(pipeline: Pipeline) -> None:
    """Check that a model is more than a graph.

    Raises:
        ValueError: it is a graph.
    """
    if not pipeline.has_weights:
        raise ValueError("model: an ONNX graph has neither gradients nor losses; take its origin")


def _load_model(name: str) -> Pipeline:
    set_threads()
    return load(name)


def _fingerprint(path: Path) -> _Fingerprint:
    """Return names, times and sizes of a model's files; of a name of the catalogue, none."""
    files = path.iterdir() if path.is_dir() else (path,)
    found = ((one.name, one.stat()) for one in files if one.is_file())
    return tuple(sorted((name, stat.st_mtime_ns, stat.st_size) for name, stat in found))


@cache
def open_models() -> OpenModels:
    """Return those of this process."""
    return OpenModels()
