"""Compress: a smaller model from a model, in a folder that every other command opens."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from unmask.batch import Batch
from unmask.batching.pieces import sorted_batches
from unmask.checkpoints.packed import PACKED_RECORD, PACKED_WEIGHTS, EncodedTensor, split_encoded
from unmask.checkpoints.tensors import SAFETENSORS_WEIGHTS, read_tensors, write_tensors
from unmask.compression.activations import quantizable_inputs, quantize_inputs
from unmask.compression.calibration import (
    BATCH_TOKENS,
    calibration_batches,
    check_calibration_size,
)
from unmask.compression.methods import (
    COMPRESSION_KEY,
    PACKED_METHOD,
    Restructuring,
    encode_tensors,
    exact_names,
    format_methods,
    method_record,
    parse_compression,
    recorded_methods,
    split_methods,
    trained_quantization,
)
from unmask.compression.quantize import Quantize
from unmask.compression.structure.rebuild import check_no_adapters
from unmask.finetuning.formulations.build import formulate
from unmask.finetuning.results.predict import infer_text_columns
from unmask.finetuning.results.score import read_items
from unmask.inference.export import check_new_folder, save_model
from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline
from unmask.jobs.options.compress import CompressOptions
from unmask.model.layers.quantized_inputs import describe_quantized_inputs
from unmask.options import takes_options
from unmask.zoo.preset import Published

_OPENING_NOTE = "Its weights are encoded and open in Unmask alone"
_CONVERTING_NOTE = "; `unmask convert` writes them as floating-point numbers for other libraries"
_ROUNDING = 2e-3
"""Largest error of a weight that is written as the code it was trained with, relative to the
largest weight: scales are in float16."""
_WEIGHTS = (PACKED_WEIGHTS, SAFETENSORS_WEIGHTS)


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
    words = [options.method] if isinstance(options.method, str) else options.method
    methods = [parse_compression(one) for one in words if one != PACKED_METHOD]
    folder = Path(options.out)
    check_new_folder(folder)
    given = options.model if isinstance(options.model, Pipeline) else load(options.model)
    source = given.loaded_model.source
    before = [] if source is None else recorded_methods(Path(source))
    if PACKED_METHOD in words:
        methods.append(trained_quantization(before))
    changes, quantize = split_methods(methods)
    records = [*before, *(method_record(one) for one in methods)]
    rounds_inputs = quantize is not None and quantize.activations is not None
    _check_inputs(given, changes, rounds_inputs=rounds_inputs)
    batches = _read_calibration(given, changes, options, rounds_inputs=rounds_inputs)
    pipeline = _restructure(given, changes, batches)
    if quantize is not None and rounds_inputs:
        pipeline = pipeline if changes else copy.deepcopy(given)
        quantize_inputs(pipeline.model, quantize, batches)
    smaller = any(change.makes_smaller for change in changes)

    def pack(written: Path) -> str | None:
        exact = exact_names(methods[-1], pipeline.model)
        is_exact = (lambda _: True) if PACKED_METHOD in words else exact.__contains__
        encoded = _pack_weights(written, pipeline.preset, quantize, is_exact)
        if not encoded and not smaller:
            raise ValueError(
                "no matrix of this model is large enough, or sparse enough, to be encoded"
            )
        other = "" if describe_quantized_inputs(pipeline.model) else _CONVERTING_NOTE
        return f"{_OPENING_NOTE}{other}." if encoded else None

    facts = pipeline.saved_facts() | {COMPRESSION_KEY: records}
    entries = {"compressed by": format_methods(records)}
    save_model(pipeline.loaded_model, folder, "unmask", facts, pack, entries)
    written = next(p for n in _WEIGHTS if (p := folder / n).is_file())
    weights = pipeline.model.own_weights().values()
    zeros = any(change.makes_zeros for change in changes)
    n_zeros = sum(int((w == 0).sum()) for w in weights) if zeros else 0
    return CompressionResult(
        folder=folder,
        bytes_before=given.model.parameter_count() * torch.float32.itemsize,
        bytes_after=written.stat().st_size,
        zero_fraction=n_zeros / sum(w.numel() for w in weights),
    )


def _check_inputs(
    given: Pipeline, changes: Sequence[Restructuring], *, rounds_inputs: bool
) -> None:
    """Check that a model has inputs to round, and that it rounds none yet if it is changed.

    Raises:
        ValueError: it does not.
    """
    if rounds_inputs:
        quantizable_inputs(given.model)
        check_no_adapters(given.loaded_model, "activations")
    elif changes and (rounding := describe_quantized_inputs(given.model)):
        raise ValueError(
            f"this model has {rounding} already, whose ranges are those of its weights: quantize "
            "activations last, or again: int8:activations=8"
        )


def _read_calibration(
    given: Pipeline,
    changes: Sequence[Restructuring],
    options: CompressOptions,
    *,
    rounds_inputs: bool,
) -> list[Batch]:
    """Return the calibration texts: of its task for a fine-tuned model, or of pretraining."""
    if options.data is None:
        return []
    if not (rounds_inputs or any(change.uses_texts for change in changes)):
        raise ValueError("data: no method here uses calibration texts; leave it out")
    return read_texts_with_targets(given, options.data, options.calibration_texts)


def read_texts_with_targets(given: Pipeline, data: str | Path, n: int) -> list[Batch]:
    """Return the first texts with their targets, of a fine-tuned model's task or of pretraining.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: it holds no such texts, or the model has no head for them.
    """
    task, tokenizer = given.task, given.loaded_model.tokenizer
    if task is None or tokenizer is None:
        return calibration_batches(given.loaded_model, data, n)
    check_calibration_size(n)
    items = read_items(task, data)[:n]
    if not items:
        raise ValueError(f"{data}: holds no rows to calibrate on")
    formulation = formulate(infer_text_columns(task, items), given.preset, tokenizer)
    examples = [one.example for one in formulation.build_inputs(items)]
    return list(sorted_batches(examples, tokenizer, BATCH_TOKENS))


def _restructure(
    given: Pipeline, changes: Sequence[Restructuring], batches: Sequence[Batch]
) -> Pipeline:
    """Return a changed copy of a model; itself, if there is nothing to change."""
    if not changes:
        return given
    loaded_model = copy.deepcopy(given).loaded_model
    for change in changes:
        loaded_model = change.restructure(loaded_model, batches)
    return Pipeline(loaded_model, given.task)


def _pack_weights(
    folder: Path,
    preset: Published,
    quantize: Quantize | None,
    is_exact: Callable[[str], bool],
) -> bool:
    """Write the weights of a folder encoded, in place of the plain ones, if some should be.

    Args:
        folder: of the model, with plain weights.
        preset: knows its names of weights.
        quantize: bits and granularity. None: without zeros.
        is_exact: whether codes must stand for the weight of a name as it is.

    Raises:
        ValueError: they do not.
    """
    tensors = read_tensors(folder / SAFETENSORS_WEIGHTS)
    encoded = encode_tensors(tensors, preset.weight_names, quantize)
    if not any(isinstance(tensor, EncodedTensor) for tensor in encoded.values()):
        return False
    for name, tensor in encoded.items():
        ours = preset.weight_names.internal_names([name])
        if isinstance(tensor, EncodedTensor) and any(is_exact(one) for one in (name, *ours)):
            _check_lossless(name, tensors[name], tensor)
    plain, record = split_encoded(encoded)
    write_tensors(folder / PACKED_WEIGHTS, plain)
    (folder / PACKED_RECORD).write_bytes(record)
    (folder / SAFETENSORS_WEIGHTS).unlink()
    return True


def _check_lossless(name: str, tensor: Tensor, encoded: EncodedTensor) -> None:
    """Check that codes stand for the weights.

    Raises:
        ValueError: they do not.
    """
    error = (encoded.decode() - tensor).abs().max()
    if error > _ROUNDING * tensor.abs().max():
        raise ValueError(
            f"{name} is not of the codes that the model was trained or calibrated with, in the "
            "layout of its folder; name its quantization: quantize:bits=..."
        )
