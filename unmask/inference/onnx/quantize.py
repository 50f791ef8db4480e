"""Dynamic quantization of a graph: 8-bit weights, activations quantized as they come."""

import logging
import platform
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from unmask.inference.onnx.record import WEIGHTS_FILE

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
    from onnxruntime.quantization import QuantType, quantize_dynamic

    _transpose_weights(path)
    external = (path.parent / WEIGHTS_FILE).is_file()
    quantized = path.with_name("quantized.onnx")
    with _quiet_quantizer():
        quantize_dynamic(
            path,
            quantized,
            op_types_to_quantize=_QUANTIZED_OPERATIONS,
            per_channel=True,
            reduce_range=reduce_range,
            weight_type=QuantType.QInt8,
            use_external_data_format=external,
        )
    quantized.replace(path)


def _transpose_weights(path: Path) -> None:
    """Replace transposed weights by their transposes, which only then are quantized.

    That is the token table where it is also the output matrix.
    """
    import numpy as np
    import onnx
    from onnx import numpy_helper

    model = onnx.load(path)
    graph = model.graph
    weights = {one.name: one for one in graph.initializer}
    for node in [n for n in graph.node if n.op_type == "Transpose" and n.input[0] in weights]:
        axes = next((tuple(a.ints) for a in node.attribute if a.name == "perm"), None)
        array = numpy_helper.to_array(weights[node.input[0]])
        turned = numpy_helper.from_array(
            np.ascontiguousarray(array.transpose(axes)), node.output[0]
        )
        graph.initializer.append(turned)
        graph.node.remove(node)
    onnx.save(model, path)


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
