"""A job's options as one frozen dataclass, from which its Python signature and command are made.

Each option is written once: a field with its type, its default and its documentation. A file of
options imports nothing heavy, so that `--help` is quick: types of other rooms are under
`TYPE_CHECKING`, and the command line leaves them out of a union (`str | FinetuningMethod`: text).
"""

import ast
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache, wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from unmask.config import check_value

if TYPE_CHECKING:
    from unmask.output import OutputStream

P = ParamSpec("P")
OptionsT = TypeVar("OptionsT")
ResultT = TypeVar("ResultT")

Precision = Literal["auto", "float32", "bfloat16"]
"""Floating-point precision of training."""

_FLAG = "flag"


@dataclass(frozen=True, kw_only=True)
class Flag:
    """What the command line needs to know of an option beside its type, default and help."""

    names: tuple[str, ...] = ()
    """Spellings, the long one last. Empty: the name of the field, with dashes."""
    metavar: str | None = None
    """Stands for the value in help texts."""
    shown_default: str | None = None
    """Default as text, where None stands for one that is derived."""
    is_argument: bool = False
    """Given by its position."""
    separator: str | None = None
    """Of a sequence that is one word. None: the option is repeated."""
    is_assignments: bool = False
    """A mapping, of KEY=VALUE given repeatedly."""
    documented_in: str | None = None
    """`module:Class` whose field of the same name has the documentation."""


def flag(*names: str, **settings: Any) -> Mapping[str, Flag]:
    """Return the metadata of a field that is an option; see `Flag` for the settings."""
    return {_FLAG: Flag(names=names, **settings)}


def flag_of(option: "Field[Any]") -> Flag:
    """Return what the command line knows of an option."""
    return option.metadata.get(_FLAG, Flag())


class JobOptions:
    """Base of the options of all jobs: values are checked against their types when made."""

    def __post_init__(self) -> None:
        """Refuse values that no option can be.

        Raises:
            ValueError: a value is not of its type, with the option's name.
        """
        for name, option_type in option_types(type(self)).items():
            if option_type.is_complete:
                check_value(option_type.type, getattr(self, name), name)


@dataclass(frozen=True)
class OptionType:
    """Type of an option, as far as it is one of plain values."""

    type: Any
    """None: no plain value can be given."""
    is_complete: bool
    """No member of the union was left out."""


@cache
def option_types(options_type: type[Any]) -> Mapping[str, OptionType]:
    """Return the types of the fields of an options class."""
    found: dict[str, OptionType] = {}
    for base in reversed(options_type.__mro__):
        namespace = vars(inspect.getmodule(base) or types)
        for name, annotation in vars(base).get("__annotations__", {}).items():
            found[name] = _plain_type(annotation, namespace)
    return {one.name: found[one.name] for one in fields(options_type)}


def _plain_type(annotation: Any, namespace: Mapping[str, Any]) -> OptionType:
    if not isinstance(annotation, str):
        return OptionType(annotation, is_complete=True)
    members: list[Any] = []
    is_complete = True
    for member in _union_members(ast.parse(annotation, mode="eval").body):
        try:
            members.append(eval(ast.unparse(member), dict(namespace)))
        except NameError:  # imported under TYPE_CHECKING only
            is_complete = False
    members = [types.NoneType if one is None else one for one in members]
    if not set(members) - {types.NoneType}:
        return OptionType(None, is_complete=False)
    return OptionType(Union[tuple(members)], is_complete)  # noqa: UP007  # made of a list


def _union_members(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_union_members(node.left), *_union_members(node.right)]
    return [node]


@cache
def option_docs(options_type: type[Any]) -> Mapping[str, str]:
    """Return the documentation of each field, read from the source.

    The docstring of a field is below it; Python does not keep it. Where the source is not at hand,
    there is none.
    """
    docs: dict[str, str] = {}
    for base in reversed(options_type.__mro__):
        module = inspect.getmodule(base)
        path = None if module is None else vars(module).get("__file__")
        docs |= _class_docs(path).get(base.__name__, {})
    for one in fields(options_type):
        elsewhere = flag_of(one).documented_in
        if elsewhere is not None:
            module_name, _, class_name = elsewhere.partition(":")
            spec = find_spec(module_name)
            source = _class_docs(None if spec is None else spec.origin)
            docs.setdefault(one.name, source.get(class_name, {}).get(one.name, ""))
    return docs


@cache
def _class_docs(path: str | None) -> Mapping[str, Mapping[str, str]]:
    """Return the docstrings of fields, by class, of the classes of a file."""
    if path is None or not Path(path).is_file():
        return {}
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    return {
        node.name: {
            one.target.id: " ".join(text.value.value.split())
            for one, text in zip(node.body, node.body[1:], strict=False)
            if isinstance(one, ast.AnnAssign)
            and isinstance(one.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        }
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def takes_options(
    options_type: Callable[P, OptionsT],
) -> Callable[[Callable[[OptionsT], ResultT]], Callable[P, ResultT]]:
    """Turn a function of options into one that takes their fields as keywords.

    Type checkers and editors see the fields; so does `help`.

    ```python
    @takes_options(PrepareOptions)
    def prepare(options: PrepareOptions) -> TokenShards: ...

    prepare("text.txt", out="tokens", workers=4)
    ```
    """

    def decorate(job: Callable[[OptionsT], ResultT]) -> Callable[P, ResultT]:
        made = typing.cast("type[Any]", options_type)
        parameters = list(inspect.signature(made).parameters.values())
        known = option_types(made)
        signature = inspect.Signature(parameters)

        @wraps(job)
        def call(*args: P.args, **kwargs: P.kwargs) -> ResultT:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{job.__name__}(): {error}") from None
            return job(options_type(*args, **kwargs))

        call.__doc__ = _with_arguments(job.__doc__ or "", made)
        call.__annotations__ = {name: one.type for name, one in known.items()}
        typing.cast("Any", call).__signature__ = signature
        return call

    return decorate


def _with_arguments(docstring: str, options_type: type[Any]) -> str:
    """Insert the documentation of the options before what a function raises."""
    lines = inspect.cleandoc(docstring).split("\n")
    docs = option_docs(options_type)
    listed = ["Args:", *(f"    {f.name}: {docs.get(f.name, '')}" for f in fields(options_type)), ""]
    at = next((i for i, line in enumerate(lines) if line in ("Returns:", "Raises:")), len(lines))
    return "\n".join([*lines[:at], *([""] if at == len(lines) else []), *listed, *lines[at:]])


def keywords(options_type: type[Any], source: Any) -> dict[str, Any]:
    """Return the values of the options of a job that another object has, by name."""
    names = (one.name for one in fields(options_type))
    return {name: getattr(source, name) for name in names if hasattr(source, name)}


def default_of(option: "Field[Any]") -> Any:
    """Return the default of an option; MISSING: it must be given."""
    return option.default if option.default_factory is MISSING else option.default_factory()


def choices_of(option_type: Any) -> tuple[Any, ...]:
    """Return the allowed values of a type, where it lists them."""
    if get_origin(option_type) is Literal:
        return get_args(option_type)
    return tuple(c for member in get_args(option_type) for c in choices_of(member))


def is_sequence(option_type: Any) -> bool:
    """Return whether several values may be given."""
    members = get_args(option_type) if get_origin(option_type) in (Union, types.UnionType) else ()
    return any(get_origin(one) in (Sequence, tuple, list) for one in (option_type, *members))


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(JobOptions):
    """Where a job computes."""

    device: str = field(default="auto", metadata=flag(metavar="NAME"))
    """Device: auto, cpu, cuda, cuda:1, ..."""


@dataclass(frozen=True, kw_only=True)
class LoaderOptions(DeviceOptions):
    """Where a pretraining job computes, and in how many threads and processes."""

    workers: int = 0
    """Number of data-loading processes; 0: in the main process. Results do not depend on it."""
    threads: int | None = field(default=None, metadata=flag(shown_default="all cores"))
    """Number of compute threads; of a resumed run, by default as many as it had."""


@dataclass(frozen=True, kw_only=True)
class QuietOptions(JobOptions):
    """What a job shows while it works."""

    quiet: bool = False
    """Hide progress; warnings are still shown."""


@dataclass(frozen=True, kw_only=True)
class TerminalOptions(JobOptions):
    """Where a job shows its progress."""

    terminal: "OutputStream | None" = field(default_factory=lambda: sys.stderr)
    """Stream for progress; None: it is not shown."""


@dataclass(frozen=True, kw_only=True)
class EncodingOptions(JobOptions):
    """How bytes of text are read."""

    encoding_errors: Literal["strict", "replace"] = "strict"
    """Handling of bytes that are not valid UTF-8: strict (error) or replace (by U+FFFD)."""
