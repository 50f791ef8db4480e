"""Types and shapes checked at every call, at a third of jaxtyping's cost.

jaxtyping checks the arguments twice, in two functions made for each that is imported, and binds
them by name for dimensions such as `{n}`, which no annotation of ours has. Here beartype checks the
function itself, in a fresh memory of dimensions where an array is annotated. Arrays that have
the type and shape that are written are accepted by a table; all others jaxtyping judges. Where a
test trains or writes, only the first calls of each function are checked (`check_first_calls`).
"""

import functools
import inspect
import math
import sys
import typing
from collections.abc import Callable
from dataclasses import is_dataclass
from types import CodeType, FunctionType
from typing import Any, ForwardRef

import jaxtyping
import numpy as np
from beartype import BeartypeConf, FrozenDict, beartype
from jaxtyping import TypeCheckError, _array_types
from jaxtyping._decorator import _destring_annotation
from jaxtyping._storage import get_shape_memo, pop_shape_memo, push_shape_memo, shape_str
from torch import SymBool, SymInt, Tensor, nn

_inner: dict[CodeType, Any] = {}
_SYMBOLS = FrozenDict({int: int | SymInt, bool: bool | SymBool})
"""While a model is traced (`unmask.inference.onnx`), sizes are symbols."""
_PLAIN = BeartypeConf(hint_overrides=_SYMBOLS)
_SHAPED = BeartypeConf(violation_type=TypeCheckError, hint_overrides=_SYMBOLS)
_jaxtyped = jaxtyping.jaxtyped
_ARRAYS = (Tensor, nn.Parameter, np.ndarray)
_judge = _array_types._MetaAbstractArray.__instancecheck__


class _Checked:
    """How many calls of a function with arrays are checked in each test, and which test it is."""

    calls = math.inf
    test = 0


def check_first_calls(n: int) -> None:
    """From now on check only the first n calls of each function with arrays in each test."""
    _Checked.calls = n


def begin_test() -> None:
    """Count the calls of each function anew."""
    _Checked.test += 1


def jaxtyped(*, typechecker: Any) -> Callable[[Any], Any]:
    """Return a decorator of functions and classes, as jaxtyping's import hook calls it."""

    def decorate(known: Any) -> Any:
        if inspect.isfunction(known):
            return _check(known)
        if inspect.isclass(known):
            if is_dataclass(known) and not hasattr(known.__init__, "checked"):
                known.__init__ = _check(known.__init__)
                known.__init__.checked = True
            return known
        if isinstance(known, classmethod | staticmethod):
            return type(known)(_check(known.__func__))
        if isinstance(known, property):
            parts = (known.fget, known.fset, known.fdel)
            return property(*(part and _check(part) for part in parts))
        return _jaxtyped(typechecker=typechecker)(known)

    return decorate


def _check(function: Any) -> Any:
    hints = function.__annotations__.values()
    if not any(_names_an_array(hint) for hint in hints):
        return _typed(function, _PLAIN)
    if inspect.isgeneratorfunction(function):
        return _jaxtyped(typechecker=beartype)(function)
    typed = _typed(function, _SHAPED)
    test = calls = 0

    @functools.wraps(function)
    def in_memo(*args: Any, **kwargs: Any) -> Any:
        nonlocal test, calls
        __tracebackhide__ = True
        calls = calls + 1 if test == _Checked.test else 1
        test = _Checked.test
        if calls > _Checked.calls:
            return function(*args, **kwargs)
        memo = push_shape_memo({})
        try:
            return typed(*args, **kwargs)
        except TypeCheckError as error:
            if not hasattr(error, "__notes__"):
                error.add_note(shape_str(memo))
            raise
        finally:
            pop_shape_memo()

    return in_memo


def _typed(function: Any, conf: BeartypeConf) -> Any:
    """Return beartype's wrapper; of a function within another, defined at each call, a copy."""
    if "<locals>" not in function.__qualname__:
        if inspect.isgeneratorfunction(function) or not function.__annotations__:
            return _typed_anew(function, conf)
        return _typed_when_called(function, conf)
    if function.__code__ not in _inner:
        typed = _typed_anew(function, conf)
        _inner[function.__code__] = None if typed is function else (typed, function)
        return typed
    if _inner[function.__code__] is None:
        return function
    typed, first = _inner[function.__code__]
    copy = FunctionType(typed.__code__, typed.__globals__, typed.__name__)
    copy.__kwdefaults__ = {
        name: function if value is first else value for name, value in typed.__kwdefaults__.items()
    }
    return functools.update_wrapper(copy, function)


def _typed_anew(function: Any, conf: BeartypeConf) -> Any:
    """Return beartype's wrapper, for which quoted types that do not exist yet are any."""
    return _beartyped(function, _known_types(function), conf)


def _typed_when_called(function: Any, conf: BeartypeConf) -> Any:
    """Return a function that becomes beartype's wrapper at its first call, if there is one.

    Of the thousands of functions that are imported a worker calls a part.
    """
    known = _known_types(function)

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        typed = _beartyped(function, known, conf)
        if typed is function:  # nothing is to be checked
            checked.__kwdefaults__ = {
                "_begin_checks": lambda args, kwargs: function(*args, **kwargs)
            }
        else:  # whose code has no closure; other threads may call the code that is here now
            checked.__kwdefaults__ = typed.__kwdefaults__ | {"_begin_checks": begin}
            checked.__code__ = typed.__code__
        return typed(*args, **kwargs)

    checked = FunctionType(_begin_at.__code__, function.__globals__, function.__name__)
    checked.__kwdefaults__ = {"_begin_checks": begin}
    return functools.update_wrapper(checked, function)


def _begin_at(*args: Any, _begin_checks: Any, **kwargs: Any) -> Any:
    __tracebackhide__ = True
    return _begin_checks(args, kwargs)


def _known_types(function: Any) -> dict[str, Any]:
    """Return the types of arguments and result, but for Self, which beartype knows in classes."""
    return {
        name: _destring_annotation(hint, function.__globals__) if _quotes(hint) else hint
        for name, hint in function.__annotations__.items()
        if hint is not typing.Self
    }


def _beartyped(function: Any, types: dict[str, Any], conf: BeartypeConf) -> Any:
    quoted = function.__annotations__
    function.__annotations__ = types
    typed = beartype(conf=conf)(function)
    function.__annotations__ = typed.__annotations__ = quoted
    return typed


def _quotes(hint: Any) -> bool:
    """Say whether a type, or a part of it, is in quotes."""
    parts = getattr(hint, "__args__", ())
    return isinstance(hint, str | ForwardRef) or (
        isinstance(parts, tuple) and any(_quotes(part) for part in parts)
    )


def _names_an_array(hint: Any) -> bool:
    """Say whether an annotation holds an array's type, or a string that may name one."""
    if isinstance(hint, str):
        return True
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    parts = getattr(hint, "__args__", ())
    return isinstance(parts, tuple) and any(_names_an_array(part) for part in parts)


def _is_a(hint: Any, value: Any) -> bool:
    """Say whether a value is of an array's type and shape, and note the sizes of dimensions."""
    if type(value) in _ARRAYS:
        sizes, shape = get_shape_memo()[0], value.shape
        dims = _plain(hint, type(value), value.dtype)
        if dims is not None and len(dims) == len(shape):
            new: dict[str, int] = {}
            for name, size in zip(dims, shape, strict=True):
                if isinstance(name, int):
                    if name != size:
                        break
                elif name and new.setdefault(name, sizes.get(name, size)) != size:
                    break
            else:
                sizes.update(new)
                return True
    return _judge(hint, value)


@functools.cache
def _plain(hint: Any, array: type, dtype: Any) -> tuple[int | str, ...] | None:
    """Return sizes and names of dimensions where that is all there is to them, "" for any size."""
    name = dtype.type.__name__ if array is np.ndarray else str(dtype).removeprefix("torch.")
    if not (issubclass(array, hint.array_type) and name != "void"):
        return None
    if hint.dtypes is not _array_types._any_dtype and name not in hint.dtypes:
        return None
    dims: list[int | str] = []
    for dim in hint.dims:
        if dim is _array_types._anonymous_dim:
            dims.append("")
        elif isinstance(dim, _array_types._FixedDim) and not dim.broadcastable:
            dims.append(dim.size)
        elif isinstance(dim, _array_types._NamedDim) and not (dim.broadcastable or dim.treepath):
            dims.append(dim.name)
        else:
            return None
    return tuple(dims)


_array_types._MetaAbstractArray.__instancecheck__ = _is_a
if sys.version_info < (3, 12):  # later versions of Python keep the names of a protocol
    typing._get_protocol_attrs = functools.cache(typing._get_protocol_attrs)
