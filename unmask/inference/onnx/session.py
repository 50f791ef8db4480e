"""Graphs checked and run by onnxruntime."""

import importlib
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unmask.inference.onnx.record import MODEL_FILE, require_onnx

_KNOWN_DOMAINS = frozenset({"", "ai.onnx", "com.microsoft"})
"""Operator sets that onnxruntime itself implements; quantized products are in the last."""


class OnnxSession:
    """A graph that onnxruntime runs on the CPU, in as many threads as torch uses."""

    def __init__(self, folder: Path) -> None:
        """Check and open the graph of a folder; no code of the folder is executed.

        Raises:
            FileNotFoundError: there is no graph.
            ImportError: a library of the extra `onnx` is not installed.
            ValueError: the graph is damaged, has operators that onnxruntime does not implement, or
                weights outside the folder.
        """
        require_onnx(f"{folder}: an ONNX folder")
        import onnxruntime

        self.path = folder / MODEL_FILE
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path}: missing")
        _check_graph(self.path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(
                self.path, options, providers=["CPUExecutionProvider"]
            )
        except _session_errors() as error:
            raise ValueError(f"{self.path}: {_first_line(error)}") from None
        self.input_names = tuple(one.name for one in self._session.get_inputs())
        self.input_shapes = {one.name: tuple(one.shape) for one in self._session.get_inputs()}
        self.output_names = tuple(one.name for one in self._session.get_outputs())

    def run(self, inputs: Mapping[str, Tensor], outputs: Sequence[str]) -> list[Tensor]:
        """Run what the named outputs need.

        Raises:
            ValueError: the graph has no such input or output, or fails.
        """
        import onnxruntime

        if missing := ({*inputs} - {*self.input_names}) | ({*outputs} - {*self.output_names}):
            raise ValueError(
                f"{self.path}: the graph has no {sorted(missing)[0]} (inputs: "
                f"{', '.join(self.input_names)}; outputs: {', '.join(self.output_names)})"
            )
        options = onnxruntime.RunOptions()
        options.only_execute_path_to_fetches = True
        options.log_severity_level = 4
        arrays = {name: np.ascontiguousarray(x.numpy()) for name, x in inputs.items()}
        try:
            found: Any = self._session.run(list(outputs), arrays, options)
        except _session_errors() as error:
            raise ValueError(f"{self.path}: {_first_line(error)}") from None
        return [torch.from_numpy(x) for x in found]


def _session_errors() -> tuple[type[Exception], ...]:
    """Return the errors of onnxruntime about a graph or its inputs."""
    state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    names = (
        "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoSuchFile",
        "NotImplemented", "RuntimeException",
    )  # fmt: skip
    return tuple(getattr(state, name) for name in names)


def _first_line(error: Exception) -> str:
    """Return the message of an error of onnxruntime, without its code."""
    line = str(error).strip().splitlines()[0]
    return f"onnxruntime does not run it: {line.partition(' : ')[2].rpartition(' : ')[2] or line}"


def _check_graph(path: Path) -> None:
    """Check a graph before onnxruntime opens it.

    Raises:
        ValueError: it is damaged, has operators of unknown domains, or names files outside its
            folder.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(path, load_external_data=False)
    except DecodeError:
        raise ValueError(f"{path}: truncated or damaged: it is no ONNX model") from None
    if not model.graph.node:
        raise ValueError(f"{path}: truncated or damaged: its graph is empty")
    used = {one.domain for one in model.opset_import}
    for graph in _graphs(model):
        used |= {node.domain for node in graph.node}
    if unknown := sorted(used - _KNOWN_DOMAINS):
        raise ValueError(
            f"{path}: operators of {unknown[0]!r} are not part of onnxruntime, and custom "
            "operators are never loaded"
        )
    for tensor in _tensors(model):
        for entry in tensor.external_data:
            if entry.key == "location":
                _check_location(path, entry.value)


def _check_location(path: Path, location: str) -> None:
    """Check that a file of weights is in the folder of the graph.

    Raises:
        ValueError: it is not, or it is a link.
    """
    parts = posixpath.normpath(location.replace("\\", "/")).split("/")
    file = path.parent / location
    if posixpath.isabs(location) or len(parts) != 1 or parts[0] == ".." or file.is_symlink():
        raise ValueError(f"{path}: weights must be in its own folder, got {location!r:.80}")
    if not file.is_file():
        raise FileNotFoundError(f"{file}: missing")


def _graphs(model: Any) -> Iterator[Any]:
    """Yield the graph, its local functions, and the graphs within nodes."""
    waiting = [model.graph, *model.functions]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                waiting += [attribute.g] if attribute.HasField("g") else []
                waiting += attribute.graphs


def _tensors(model: Any) -> Iterator[Any]:
    """Yield all stored tensors of a graph and of graphs and nodes within it."""
    for graph in _graphs(model):
        yield from getattr(graph, "initializer", ())
        for sparse in getattr(graph, "sparse_initializer", ()):
            yield from (sparse.values, sparse.indices)
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors
