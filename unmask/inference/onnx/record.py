"""What `unmask.json` says of an ONNX folder, and the libraries that such folders need."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from unmask.config import from_dict
from unmask.files import read_json_object

MODEL_FILE = "model.onnx"
ENCODER_FILE, DECODER_FILE = "encoder.onnx", "decoder.onnx"
"""The graphs of an encoder-decoder that generates, in place of one."""
WEIGHTS_FILE = "model.onnx.data"
"""Weights of several graphs, or of one that is too large for one file."""
MAX_FILE_BYTES = 1_500_000_000
"""Weights of one protocol buffer, which may have 2 GB with all else."""
RUN_FILE, ONNX_KEY = "unmask.json", "onnx"

GraphKind = Literal["text", "pair", "picture", "decoder", "encoder_decoder", "source_text"]
"""text: reads texts at once; pair: reads two texts in a row, each by itself; picture: reads pixels;
decoder: reads the next tokens after a key/value cache; encoder_decoder: two graphs, of which one
reads a source and the other the next tokens of a target; source_text: an encoder-decoder that reads
texts at once."""


@dataclass(frozen=True, kw_only=True)
class OnnxRecord:
    """What a graph is, as recorded under "onnx" in unmask.json."""

    graph: GraphKind = "text"
    head: str | None = None
    """Name of the head whose logits the graph computes. None: hidden states only."""
    precision: Literal["float32", "int8"] = "float32"
    """Numbers of the weights; int8: of matrix products and embedding tables, per channel."""
    reduce_range: bool = False
    """Whether 8-bit weights use 7 bits, for processors whose 16-bit sums would overflow."""


def is_onnx_folder(folder: Path) -> bool:
    """Return whether a folder holds a graph that `unmask convert` wrote, or what is left of it."""
    path = folder / RUN_FILE
    return path.is_file() and isinstance(read_json_object(path).get(ONNX_KEY), dict)


def read_onnx_record(folder: Path) -> OnnxRecord:
    """Read the record of an ONNX folder.

    Raises:
        ValueError: it is damaged.
    """
    path = folder / RUN_FILE
    return from_dict(OnnxRecord, read_json_object(path)[ONNX_KEY], f"{path}: {ONNX_KEY}")


def require_onnx(what: str) -> None:
    """Check that the libraries of the extra are installed.

    Raises:
        ImportError: one is not.
    """
    for module in ("onnx", "onnxscript", "onnxruntime"):
        if importlib.util.find_spec(module) is None:
            raise ImportError(f'{what} needs {module}: pip install "unmask[onnx]"')
