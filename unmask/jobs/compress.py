"""Compress: a smaller model from a model, in a folder that every other command opens."""

import copy
from dataclasses import dataclass
from pathlib import Path

from unmask.checkpoints.packed import PACKED_RECORD, PACKED_WEIGHTS, EncodedTensor, split_encoded
from unmask.checkpoints.tensors import SAFETENSORS_WEIGHTS, read_tensors, write_tensors
from unmask.compression.methods import (
    COMPRESSION_KEY,
    check_order,
    encode_tensors,
    format_methods,
    method_record,
    parse_compression,
    recorded_methods,
)
from unmask.compression.prune import MagnitudePruning
from unmask.compression.quantize import Quantize
from unmask.inference.export import check_new_folder, save_model
from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline
from unmask.jobs.options.compress import CompressOptions
from unmask.options import takes_options
from unmask.zoo.preset import Published

_OPENING_NOTE = (
    "Its weights are encoded and open in Unmask alone; `unmask convert` writes them as "
    "floating-point numbers for other libraries."
)
_EMBEDDING_PARTS = ("tokens", "position", "segments")
"""First words of names of tables within a stack."""


@dataclass(frozen=True, kw_only=True)
class CompressionResult:
    """A compressed model's folder."""

    folder: Path
    bytes_before: int
    """Bytes of the weights as float32."""
    bytes_after: int
    """Bytes of the weights' file."""
    zero_fraction: float
    """Fraction of the parameters that are zero."""


@takes_options(CompressOptions)
def compress(options: CompressOptions) -> CompressionResult:
    """Make a model smaller by one or several methods, and write it into a new folder.

    The fields of `CompressOptions` are its keywords. The folder is opened as any other; its weights
    are read as floating-point numbers.

    Raises:
        FileNotFoundError: there is no such model.
        ValueError: there is no such method, the model does not have what it compresses, or the
            folder holds something already.
    """
    methods = [
        parse_compression(one)
        for one in ([options.method] if isinstance(options.method, str) else options.method)
    ]
    check_order(methods)
    folder = Path(options.out)
    check_new_folder(folder)
    given = options.model
    pipeline = copy.deepcopy(given) if isinstance(given, Pipeline) else load(given)
    zero_fraction = 0.0
    for method in methods:
        if isinstance(method, MagnitudePruning):
            if pipeline.model.adapters:
                raise ValueError(
                    "prune: the model has adapters; merge them first: unmask convert MODEL FOLDER"
                )
            zero_fraction = method.apply(pipeline.model)
    last = methods[-1] if isinstance(methods[-1], Quantize) else None
    sizes: dict[str, int] = {}

    def pack(written: Path) -> str:
        sizes.update(_pack_weights(written, pipeline.preset, last))
        return f"Compressed by {format_methods(records)}. {_OPENING_NOTE}"

    source = pipeline.loaded_model.source
    before = [] if source is None else recorded_methods(Path(source))
    records = [*before, *(method_record(one) for one in methods)]
    facts = pipeline.saved_facts() | {COMPRESSION_KEY: records}
    save_model(pipeline.loaded_model, folder, "unmask", facts, pack)
    return CompressionResult(
        folder=folder,
        bytes_before=sizes["before"],
        bytes_after=(folder / PACKED_WEIGHTS).stat().st_size,
        zero_fraction=zero_fraction,
    )


def _pack_weights(folder: Path, preset: Published, quantize: Quantize | None) -> dict[str, int]:
    """Write the weights of a folder encoded, in place of the plain ones; return both sizes."""
    tensors = read_tensors(folder / SAFETENSORS_WEIGHTS)
    embeddings = frozenset(name for name in tensors if _is_embedding(name, preset))
    encoded = encode_tensors(tensors, embeddings, quantize)
    if not any(isinstance(tensor, EncodedTensor) for tensor in encoded.values()):
        raise ValueError("no matrix of this model is large enough, or sparse enough, to be encoded")
    plain, record = split_encoded(encoded)
    write_tensors(folder / PACKED_WEIGHTS, plain)
    (folder / PACKED_RECORD).write_bytes(record)
    (folder / SAFETENSORS_WEIGHTS).unlink()
    before = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    return {"before": before}


def _is_embedding(name: str, preset: Published) -> bool:
    internal = next(preset.weight_names.internal_names([name]), name)
    return not {"layers", "heads"} & set(internal.split(".")) and any(
        part in _EMBEDDING_PARTS for part in internal.split(".")
    )
