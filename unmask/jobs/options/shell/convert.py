"""ConvertOptions: what `convert` takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from unmask.jobs.options.shell.shared_options import LimitOption, ModelArgument
from unmask.options import flag


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(ModelArgument, LimitOption):
    """A model or word vectors, and the format in which they are written."""

    target: Path = field(metadata=flag(metavar="FOLDER", is_argument=True))
    """Output folder, a new one; for word vectors, a new file."""
    to: (
        Literal[
            "huggingface",
            "unmask",
            "elmo",
            "onnx",
            "gguf",
            "word2vec-text",
            "word2vec-binary",
            "glove",
            "fasttext",
        ]
        | None
    ) = field(
        default=None,
        metadata=flag(shown_default="huggingface; for word vectors, that of the file name"),
    )
    """Output format. huggingface and unmask open in transformers, except for heads that it lacks;
    both keep the task of a fine-tuned model, unmask also the pretraining objective. elmo: the
    layout of the released ELMo. onnx: a graph for onnxruntime, which predict, fill, embed and
    generate run. gguf: a file for llama.cpp. The others are for word vectors."""
    int8: bool = field(default=False, metadata=flag("--int8"))
    """Quantization of an ONNX graph's weights to 8 bits, per channel."""
    dtype: Literal["float32", "float16"] | None = field(
        default=None, metadata=flag(shown_default="float32")
    )
    """Numbers of a GGUF file's matrices."""
    average: int | None = None
    """Number of last checkpoints of a pretraining run to average."""
    vectors: str | None = field(default=None, metadata=flag("--expand", metavar="VECTORS"))
    """Word vectors whose words are added to an encoder's vocabulary through a linear map; the
    result has no language-model head."""
    white_space: str | None = field(
        default=None, metadata=flag(metavar="TEXT", shown_default="white space is an error")
    )
    """Replacement for white space within words, for word vectors, e.g. _."""
