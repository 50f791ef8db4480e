"""Methods of compression by their words: what changes weights, and what writes them smaller."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from functools import singledispatch
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from unmask.checkpoints.checksums import RUN_FILE
from unmask.checkpoints.packed import EncodedTensor, SparseEncoding
from unmask.compression.config import TRAINING_METHODS, TrainingCompression
from unmask.compression.distillation.terms import DISTILLATION_TERMS, Distillation
from unmask.compression.gptq import GPTQ, quantized_names
from unmask.compression.masks.blocks import BlockPruning
from unmask.compression.masks.given import MaskPruning
from unmask.compression.prune import MagnitudePruning
from unmask.compression.quantize import Quantize
from unmask.compression.structure.embeddings import EmbeddingLowRank
from unmask.compression.structure.layers import KeepLayers
from unmask.compression.structure.low_rank import LowRank
from unmask.compression.structure.widths import ColumnPruning, HeadPruning
from unmask.compression.while_training import MIN_ENCODED_WEIGHTS, is_embedding_name
from unmask.config import from_dict, parse_variant, to_dict
from unmask.files import read_json
from unmask.heads.model import Model
from unmask.model.exchange.weight_names import WeightNames

COMPRESSION_KEY = "compression"
"""Where unmask.json lists what a model was compressed by."""
Restructuring = (
    MagnitudePruning
    | MaskPruning
    | BlockPruning
    | KeepLayers
    | HeadPruning
    | ColumnPruning
    | LowRank
    | EmbeddingLowRank
    | GPTQ
)
"""Methods that change an open model: `restructure` returns it."""
CompressionMethod = Quantize | Restructuring
METHODS: Mapping[str, type[CompressionMethod]] = {
    "quantize": Quantize,
    "gptq": GPTQ,
    "prune": MagnitudePruning,
    "mask": MaskPruning,
    "blocks": BlockPruning,
    "layers": KeepLayers,
    "heads": HeadPruning,
    "columns": ColumnPruning,
    "lowrank": LowRank,
    "embeddings": EmbeddingLowRank,
}
_ALIASES = {f"int{bits}": f"quantize:bits={bits}" for bits in (8, 4, 3, 2)}
"""Short words of methods."""
PACKED_METHOD = "packed"
"""Word of the codes that a model was trained with."""
_QUANTIZING = ("qat", "quantize", "gptq")
"""Words of the methods of which a model has codes."""
_MIN_SPARSITY = 1 / 16
"""Fraction of zeros from which a bit for each weight is paid back, with some to spare."""


def parse_compression(text_or_method: "str | CompressionMethod") -> CompressionMethod:
    """Return a method by its word: "int8", "quantize:bits=4,group=32" or "prune:fraction=0.5".

    Raises:
        ValueError: there is no such method, or it has no such field.
    """
    if not isinstance(text_or_method, str):
        return text_or_method
    word, colon, rest = text_or_method.partition(":")
    if word not in _ALIASES and word not in METHODS:
        raise ValueError(f"method must be one of {', '.join([*_ALIASES, *METHODS])}, got {word!r}")
    if word in _ALIASES:
        text_or_method = _ALIASES[word] + ("," + rest if colon else "")
    return parse_variant(METHODS, text_or_method, "method")


def split_methods(
    methods: Sequence[CompressionMethod],
) -> tuple[list[Restructuring], Quantize | None]:
    """Return the methods that change an open model, and how its file is quantized.

    Raises:
        ValueError: weights are quantized before another method, or there is no method.
    """
    if not methods:
        raise ValueError("no method: name one or more, such as int8 or prune:fraction=0.5")
    packings = [_packing(method) for method in methods]
    if any(packing is not None for packing in packings[:-1]):
        raise ValueError("quantize must be the last method, and the only one of its kind; so gptq")
    return [one for one in methods if not isinstance(one, Quantize)], packings[-1]


@singledispatch
def _packing(method: CompressionMethod) -> Quantize | None:
    """Return how a model's file is quantized after a method."""
    return None


@_packing.register
def _(method: Quantize) -> Quantize | None:
    return method


@_packing.register
def _(method: GPTQ) -> Quantize | None:
    return method.packing()


@singledispatch
def exact_names(method: CompressionMethod, model: Model) -> Collection[str]:
    """Return the names of the weights that a method made values of the codes of its file."""
    return ()


@exact_names.register
def _(method: GPTQ, model: Model) -> Collection[str]:
    return quantized_names(model)


def method_record(method: CompressionMethod) -> dict[str, Any]:
    """Return a method as plain data, with its word."""
    word = next(word for word, kind in METHODS.items() if isinstance(method, kind))
    return {"method": word} | _fields_of(method)


def recorded_methods(folder: Path) -> list[dict[str, Any]]:
    """Return what a model in a folder was compressed by before, as `method_record` wrote it."""
    path = folder / RUN_FILE
    facts = read_json(path) if path.is_file() else None
    records = facts.get(COMPRESSION_KEY) if isinstance(facts, dict) else None
    if not isinstance(records, list):
        return []
    return [
        cast("dict[str, Any]", one)
        for one in cast("list[object]", records)
        if isinstance(one, dict) and "method" in one
    ]


def format_methods(records: Sequence[Mapping[str, Any]]) -> str:
    """Write what `method_record` returned in a line: "prune (fraction 0.5), quantize (bits 4)"."""
    return ", ".join(
        f"{record['method']} ("
        + ", ".join(
            f"{name.replace('_', ' ')} {value}"
            for name, value in record.items()
            if name != "method" and value is not None
        )
        + ")"
        for record in records
    )


def encode_tensors(
    tensors: Mapping[str, Tensor], weight_names: WeightNames, quantize: Quantize | None
) -> dict[str, Tensor | EncodedTensor]:
    """Encode matrices: in few bits, or, without `quantize`, without their zeros.

    Args:
        tensors: by name; vectors (biases, norms) and small matrices stay as they are.
        weight_names: says which of them are tables of tokens and positions, and which transposed.
        quantize: bits and granularity.

    Raises:
        ValueError: weights are not finite.
    """
    found: dict[str, Tensor | EncodedTensor] = {}
    for name, tensor in tensors.items():
        found[name] = tensor
        large = tensor.ndim >= 2 and tensor.numel() >= MIN_ENCODED_WEIGHTS
        if not (large and tensor.is_floating_point()):
            continue
        if quantize is not None:
            internal = next(weight_names.internal_names([name]), name)
            try:
                found[name] = quantize.encode(
                    tensor,
                    is_embedding=is_embedding_name(internal),
                    transposed=tensor.ndim == 2 and weight_names.is_transposed(name),
                )
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        elif int((tensor == 0).sum()) > _MIN_SPARSITY * tensor.numel():
            found[name] = SparseEncoding.encode(tensor)
    return found


def trained_quantization(records: Sequence[Mapping[str, Any]]) -> Quantize:
    """Return the codes of a model's weights that was trained with them, from its records.

    Raises:
        ValueError: it was not.
    """
    last = next((one for one in reversed(records) if one["method"] in _QUANTIZING), {})
    if last.get("method") != "qat":
        raise ValueError("packed: the model was not trained with codes (--compress qat)")
    # The ranges of inputs are the model's own already.
    names = {f.name for f in dataclasses.fields(Quantize) if not f.name.startswith("activation")}
    given = {name: last[name] for name in names if name in last}
    return from_dict(Quantize, given | {"clipping": "exact"})


def training_records(
    methods: Sequence[TrainingCompression], distillation: Distillation | None
) -> list[dict[str, Any]]:
    """Return what a run compressed its model by while it trained, as `method_record` does."""
    records = [] if distillation is None else [_distillation_record(distillation)]
    for method in methods:
        word = next(word for word, kind in TRAINING_METHODS.items() if isinstance(method, kind))
        records.append({"method": word} | _fields_of(method))
    return records


def _distillation_record(distillation: Distillation) -> dict[str, Any]:
    words = {kind: word for word, kind in DISTILLATION_TERMS.items()}
    terms = " + ".join(words[type(term)] for term in distillation.terms)
    return {"method": "distill", "terms": terms, "teacher": ", ".join(distillation.teacher)}


def _fields_of(method: object) -> dict[str, Any]:
    return {key: value for key, value in to_dict(method).items() if key != "kind"}
