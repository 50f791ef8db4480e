"""The calls of the worker as paths of the description of the API, with their arguments.

What a call takes is read from the text of its module: to import it would import torch.
"""

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from unmask.web.routes.shared import JsonObject
from unmask.web.worker import calls
from unmask.web.worker.table import CALLS

_FOLDER = Path(str(calls.__file__)).parent
_TYPES = {"str": "string", "bool": "boolean", "int": "integer", "float": "number"}
_MAPPINGS = ("Mapping", "dict")


def call_paths() -> JsonObject:
    """Return the path of each call, for `paths` of the description of the API."""
    return {f"/api/call/{name}": {"post": _operation(name, place)} for name, place in CALLS.items()}


def _operation(name: str, place: str) -> JsonObject:
    module, function_name = place.split(":")
    nodes = {one.name: one for one in _definitions(module)}
    function = nodes[function_name]
    summary, _, more = (ast.get_docstring(function) or "").partition("\n\n")
    named = _arguments_class(function)
    properties, required = dict[str, Any](), list[str]()
    for field, text in _fields(nodes[named]) if named else ():
        assert isinstance(field.target, ast.Name)
        properties[field.target.id] = _schema(field.annotation) | (
            {"description": text} if text else {}
        )
        if field.value is None:
            required.append(field.target.id)
    schema: JsonObject = {"type": "object", "properties": properties}
    schema |= {"additionalProperties": False} if named else {}
    if required:
        schema["required"] = required
    return {
        "tags": ["calls"],
        "summary": summary.replace("\n", " "),
        "description": more,
        "operationId": f"call_{name}",
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {"200": {"description": summary}, "400": {"description": "One line"}},
    }


@cache
def _definitions(module: str) -> list[ast.FunctionDef | ast.ClassDef]:
    text = (_FOLDER / f"{module.replace('.', '/')}.py").read_text("utf-8")
    body = ast.parse(text).body
    return [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]


def _arguments_class(function: ast.AST) -> str:
    """Return the class of `from_dict(CLASS, arguments)` in a function; empty: it has none."""
    for node in ast.walk(function):
        match node:
            case ast.Call(
                func=ast.Name(id="from_dict"), args=[ast.Name(id=name), ast.Name("arguments")]
            ):
                return name
            case _:
                pass
    return ""


def _fields(definition: ast.AST) -> Iterator[tuple[ast.AnnAssign, str]]:
    """Iterate over the fields of a dataclass, each with the text below it."""
    assert isinstance(definition, ast.ClassDef)
    for node, after in zip(definition.body, [*definition.body[1:], ast.Pass()], strict=True):
        if isinstance(node, ast.AnnAssign):
            match after:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield node, inspect.cleandoc(text)
                case _:
                    yield node, ""


def _schema(annotation: ast.expr) -> JsonObject:
    """Return the JSON schema of an annotation; of a class of the library, that it is an object."""
    match annotation:
        case ast.Constant(value=None):
            return {"type": "null"}
        case ast.BinOp(left=left, right=right):
            return {"anyOf": [_schema(left), _schema(right)]}
        case ast.Subscript(value=ast.Name("Literal"), slice=values):
            found = ast.literal_eval(values)
            return {"enum": list(found) if isinstance(found, tuple) else [found]}
        case ast.Subscript(value=ast.Name(name)) if name in _MAPPINGS:
            return {"type": "object"}
        case ast.Subscript(slice=ast.Tuple(elts=[item, *_])) | ast.Subscript(slice=item):
            return {"type": "array", "items": _schema(item)}
        case ast.Name(name) if name in _TYPES:
            return {"type": _TYPES[name]}
        case _:
            return {}
