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

    def __init__(self, folder: Path, file: str = MODEL_FILE) -> None:
        """Check and open a graph of a folder; no code of the folder is executed.

        Raises:
            FileNotFoundError: there is no graph.
            ImportError: a library of the extra `onnx` is not installed.
            ValueError: the graph is damaged, has operators that onnxruntime does not implement, or
                weights outside the folder.
        """
        require_onnx(f"{folder}: an ONNX folder")
        self.path = folder / file
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path}: missing")
        graph = _check_graph(self.path).graph
        self.input_names = tuple(one.name for one in graph.input)
        self.input_shapes = {one.name: _sizes(one) for one in graph.input}
        self.output_names = tuple(one.name for one in graph.output)
        self._parts: dict[tuple[tuple[str, ...], tuple[str, ...]], Any] = {}

    def empty_inputs(self, prefix: str) -> dict[str, Tensor]:
        """Return the inputs whose names begin so, with sizes of 0 where they vary."""
        names = (name for name in self.input_names if name.startswith(prefix))
        return {name: torch.zeros(self.input_shapes[name]) for name in names}

    def can_continue(self, start: str, output: str) -> bool:
        """Return whether an output depends on one other output alone, from which it is computed."""
        return extract_part(_read_graph(self.path), (start,), (output,)) is not None

    def run(self, inputs: Mapping[str, Tensor], outputs: Sequence[str]) -> list[Tensor]:
        """Run what the named outputs need, and no more.

        Args:
            inputs: all inputs of the graph, or an output from which others are computed.
            outputs: names.

        Raises:
            ValueError: the graph has no such input or output, or fails.
        """
        known = {*self.input_names, *self.output_names}
        if missing := ({*inputs} - known) | ({*outputs} - {*self.output_names}):
            raise ValueError(
                f"{self.path}: the graph has no {sorted(missing)[0]} (inputs: "
                f"{', '.join(self.input_names)}; outputs: {', '.join(self.output_names)})"
            )
        session = self._part(tuple(inputs), tuple(outputs))
        arrays = {name: np.ascontiguousarray(x.numpy()) for name, x in inputs.items()}
        try:
            found: Any = session.run(list(outputs), arrays)
        except _session_errors() as error:
            raise ValueError(f"{self.path}: {_first_line(error)}") from None
        return [torch.from_numpy(x) for x in found]

    def _part(self, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Any:
        """Return the session of a part of the graph, which is opened once.

        onnxruntime's `only_execute_path_to_fetches` leaves nothing out (1.32).
        """
        key = (inputs, outputs)
        if key not in self._parts:
            part = extract_part(_read_graph(self.path), inputs, outputs)
            self._parts[key] = self._open(self.path if part is None else part.SerializeToString())
        return self._parts[key]

    def _open(self, graph: Path | bytes) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(self.path.parent)
        )
        try:
            return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        except _session_errors() as error:
            raise ValueError(f"{self.path}: {_first_line(error)}") from None


def _sizes(value: Any) -> tuple[int, ...]:
    """Return the sizes of an input, 0 for those that vary."""
    return tuple(int(one.dim_value) for one in value.type.tensor_type.shape.dim)


def extract_part(model: Any, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    """Return the part of a graph between some tensors and some of its outputs.

    None: the outputs depend on other inputs, too, or the graph has graphs within nodes, so that it
    must be opened whole.
    """
    graph = model.graph
    if len(list(_graphs(model))) > 1:
        return None
    producers = {name: node for node in graph.node for name in node.output}
    weights = {one.name: one for one in graph.initializer}
    waiting, needed, kept = list(outputs), set[str](), set[int]()
    while waiting:
        name = waiting.pop()
        if not name or name in needed or name in inputs:
            continue
        needed.add(name)
        if name in producers:
            kept.add(id(producers[name]))
            waiting += producers[name].input
        elif name not in weights:
            return None
    part = type(model)()
    part.CopyFrom(model)
    values = {one.name: one for one in (*graph.input, *graph.output)}
    nodes = [node for node in graph.node if id(node) in kept]
    for field, items in (
        ("node", nodes),
        ("initializer", [weights[name] for name in weights if name in needed]),
        ("input", [values[name] for name in inputs]),
        ("output", [values[name] for name in outputs]),
    ):
        part.graph.ClearField(field)
        getattr(part.graph, field).extend(items)
    return part


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


def _read_graph(path: Path) -> Any:
    """Read a graph, without weights in other files.

    Raises:
        ValueError: it is damaged.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        return onnx.load(path, load_external_data=False)
    except DecodeError:
        raise ValueError(f"{path}: truncated or damaged: it is no ONNX model") from None


def _check_graph(path: Path) -> Any:
    """Check a graph before onnxruntime opens it, and return it.

    Raises:
        ValueError: it is damaged, has operators of unknown domains, or names files outside its
            folder.
    """
    model = _read_graph(path)
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
    return model


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
