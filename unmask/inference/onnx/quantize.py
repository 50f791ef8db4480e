"""Dynamic quantization of a graph: 8-bit weights, activations quantized as they come."""

import logging
import platform
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from unmask.inference.onnx.record import MAX_FILE_BYTES, WEIGHTS_FILE

if TYPE_CHECKING:
    import onnx

_QUANTIZED_OPERATIONS = ["MatMul", "Gemm", "Gather"]
_CPU_INFO = Path("/proc/cpuinfo")
_EXACT_SUMS = ("avx512_vnni", "avx_vnni", "amx_int8")
"""Flags of x86 processors whose 8-bit products are summed in 32 bits."""


def uses_reduced_range() -> bool:
    """Return whether 8-bit weights should use 7 bits on this processor.

    Without VNNI, x86 processors add two products of unsigned and signed bytes in 16 bits, which
    saturates (onnxruntime, "Quantize ONNX models", U8S8). Others have no such instruction.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    text = _CPU_INFO.read_text(errors="replace") if _CPU_INFO.is_file() else ""
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "").split()
    return not any(flag in flags for flag in _EXACT_SUMS)


def quantize_graph(path: Path, *, reduce_range: bool) -> None:
    """Quantize the weights of matrix products, per output channel, and of embedding tables."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(path)
    _transpose_weights(model.graph)
    tied = _tied_weights(model.graph)
    save_graph(model, path)
    quantized = path.with_name("quantized.onnx")
    with _quiet_quantizer():
        quantize_dynamic(
            path,
            quantized,
            op_types_to_quantize=_QUANTIZED_OPERATIONS,
            per_channel=True,
            reduce_range=reduce_range,
            weight_type=QuantType.QInt8,
            use_external_data_format=(path.parent / WEIGHTS_FILE).is_file(),
        )
    model = onnx.load(quantized)
    for beside in path.parent.glob(f"{quantized.name}*"):
        beside.unlink()
    _share_codes(model.graph, tied)
    save_graph(model, path)


def save_graph(model: "onnx.ModelProto", path: Path) -> None:
    """Write a graph in place of another, its weights in a file beside it if they are large."""
    import onnx

    weights = path.with_name(WEIGHTS_FILE)
    weights.unlink(missing_ok=True)
    n_bytes = sum(len(one.raw_data) for one in model.graph.initializer)
    onnx.save(model, path, save_as_external_data=n_bytes > MAX_FILE_BYTES, location=WEIGHTS_FILE)
    if weights.is_file():
        weights.chmod(path.stat().st_mode)  # onnx creates it for its owner alone


def _transpose_weights(graph: "onnx.GraphProto") -> None:
    """Replace transposed weights by their transposes, which only then are quantized."""
    import numpy as np
    from onnx import numpy_helper

    weights = {one.name: one for one in graph.initializer}
    for node in [n for n in graph.node if n.op_type == "Transpose" and n.input[0] in weights]:
        axes = next((tuple(a.ints) for a in node.attribute if a.name == "perm"), None)
        array = numpy_helper.to_array(weights[node.input[0]])
        turned = numpy_helper.from_array(
            np.ascontiguousarray(array.transpose(axes)), node.output[0]
        )
        graph.initializer.append(turned)
        graph.node.remove(node)
    del graph.value_info[:]  # what is recorded of sizes is of before; they are inferred


def _tied_weights(graph: "onnx.GraphProto") -> dict[str, str]:
    """Return the output matrix [d v] of each embedding table [v d] that is its transpose."""
    import numpy as np
    from onnx import numpy_helper

    matrices = {
        one.name: numpy_helper.to_array(one) for one in graph.initializer if len(one.dims) == 2
    }
    tables = {node.input[0] for node in graph.node if node.op_type == "Gather"}
    return {
        table: name
        for table in tables & matrices.keys()
        for name, matrix in matrices.items()
        if name not in tables and np.array_equal(matrix, matrices[table].T)
    }


def share_tied_weights(path: Path) -> None:
    """Let an output matrix be the transpose of the embedding table that it is tied to.

    The session transposes it once, when it is opened.
    """
    import onnx
    from onnx import helper

    model = onnx.load(path)
    tied = _tied_weights(model.graph)
    for table, matrix in tied.items():
        model.graph.initializer.remove(next(x for x in model.graph.initializer if x.name == matrix))
        node = helper.make_node("Transpose", [table], [matrix], perm=[1, 0])
        model.graph.node.insert(0, node)
    if tied:
        save_graph(model, path)


def _share_codes(graph: "onnx.GraphProto", tied: Mapping[str, str]) -> None:
    """Let an embedding table and the output matrix that is tied to it have the same codes.

    The codes of the matrix [d v], one scale for each token, are stored as rows [v d]. The session
    transposes them once, when it is opened; a lookup multiplies its codes by their scales.
    """
    import numpy as np
    from onnx import helper, numpy_helper

    initializers = {one.name: one for one in graph.initializer}
    for table, matrix in tied.items():
        rows, codes = f"{table}_quantized", f"{matrix}_quantized"
        lookups = [n for n in graph.node if n.op_type == "Gather" and n.input[0] == rows]
        if not lookups or codes not in initializers:
            continue
        decoders = [next(n for n in graph.node if x.output[0] in n.input) for x in lookups]
        for name in {rows, codes, *(name for node in decoders for name in node.input[1:])}:
            graph.initializer.remove(initializers[name])
        array = numpy_helper.to_array(initializers[codes])
        axis = numpy_helper.from_array(np.array([-1]), f"{table}_axis")
        graph.initializer.extend(
            [numpy_helper.from_array(np.ascontiguousarray(array.T), rows), axis]
        )
        for lookup, decode in zip(lookups, decoders, strict=True):
            _scale_rows(graph, lookup, decode, f"{matrix}_scale", axis.name)
        graph.node.insert(0, helper.make_node("Transpose", [rows], [codes], perm=[1, 0]))


def _scale_rows(
    graph: "onnx.GraphProto",
    lookup: "onnx.NodeProto",
    decode: "onnx.NodeProto",
    all_scales: str,
    axis: str,
) -> None:
    """Replace what decodes the rows of a lookup by their product with a scale for each row."""
    import onnx
    from onnx import helper

    scales, column, floats = (f"{lookup.output[0]}_{name}" for name in ("scales", "column", "f32"))
    new_nodes = [
        helper.make_node("Gather", [all_scales, lookup.input[1]], [scales]),
        helper.make_node("Unsqueeze", [scales, axis], [column]),
        helper.make_node("Cast", [lookup.output[0]], [floats], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", [floats, column], [decode.output[0]]),
    ]
    at = list(graph.node).index(decode)
    graph.node.remove(decode)
    for i, node in enumerate(new_nodes):
        graph.node.insert(at + i, node)


@contextmanager
def _quiet_quantizer() -> Generator[None]:
    """Silence the quantizer's advice to preprocess the graph, which the exporter has done."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
