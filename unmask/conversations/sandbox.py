"""The sandbox in which chat templates run: Jinja's, in which steps and sizes are bounded, too.

Jinja's own keeps a template from files, modules and attributes of Python objects. It does not keep
it from taking years, or all memory: loops in loops, texts that double, numbers of a billion digits
and widths of formats. Here every round of a loop and every call is a step, of which there are
`MAX_STEPS`; and each text, number, list and table that a template makes is measured.
"""

import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import jinja2
import jinja2.exceptions
import jinja2.ext
import jinja2.filters
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox
import jinja2.visitor

MAX_STEPS = 200_000
"""Rounds of loops and calls of one rendering, and as many again for each megabyte that it reads."""
MAX_MADE = 2**21
"""Characters of a text, and items of a list, those in its items too, that a template makes, beyond
those that it reads."""
_ITEM = 16
"""Characters that an item counts for."""
_CALL = 4
"""Rounds of loops that a call counts for."""
_PRINTED = 16
"""Times as much as may be printed, by macros into macros."""
MAX_REPEATED = 10_000
"""Members of a list or characters of a text that a template may make by multiplication or width."""
_MAX_BITS = 256
_WIDE = re.compile(r"\{[^}]*:[^}]*(?:\d{4}|\{)|%[-#0 +.\d]*(?:\d{4}|\*)")
"""A width of four digits, or one that is another value, in a format."""
_FILTERS = (
    "abs", "attr", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first",
    "float", "groupby", "int", "items", "last", "length", "list", "lower", "map", "max", "min",
    "reject", "rejectattr", "reverse", "round", "safe", "select", "selectattr", "sort", "string",
    "sum", "title", "trim", "unique", "upper", "wordcount",
)  # fmt: skip
"""Those that write nothing much longer than what they read, not more often than they are named."""
_COUNTED, _MEASURED, _JOINED = "_counted", "_measured", "_joined"


class GenerationTag(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}`: transformers marks what a model writes by it."""

    tags = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        """Return the nodes within, as they are."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


class _Measuring(jinja2.visitor.NodeTransformer):
    """Puts filters of ours around loops, lists, tables and joined texts of a template."""

    def visit_For(self, node: jinja2.nodes.For) -> jinja2.nodes.Node:
        self.generic_visit(node)
        node.iter = _filtered(node.iter, _COUNTED)
        return node

    def visit_List(self, node: jinja2.nodes.List) -> jinja2.nodes.Node:
        return _filtered(self.generic_visit(node), _MEASURED)

    def visit_Dict(self, node: jinja2.nodes.Dict) -> jinja2.nodes.Node:
        return _filtered(self.generic_visit(node), _MEASURED)

    def visit_Tuple(self, node: jinja2.nodes.Tuple) -> jinja2.nodes.Node:
        self.generic_visit(node)
        return node if node.ctx == "store" else _filtered(node, _MEASURED)

    def visit_Concat(self, node: jinja2.nodes.Concat) -> jinja2.nodes.Node:
        self.generic_visit(node)
        return _filtered(jinja2.nodes.List(node.nodes, lineno=node.lineno), _JOINED)


def _filtered(node: Any, name: str) -> jinja2.nodes.Filter:
    return jinja2.nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """A sandbox for one template; `begin` before each rendering."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=self._printed,
            extensions=[GenerationTag, "jinja2.ext.loopcontrols"],
        )
        self.filters = {name: self.filters[name] for name in _FILTERS}
        self.filters |= {"indent": self._indent, "join": self._join, "replace": self._replace}
        self.filters |= {_COUNTED: self._counted, _MEASURED: self.measured, _JOINED: self._concat}
        names: dict[str, Any] = self.globals
        for name in ("lipsum", "cycler", "joiner"):
            names.pop(name)
        self.begin(0)

    def begin(self, n_read: int) -> None:
        """Begin a rendering that reads so many characters."""
        self._steps = MAX_STEPS * (1 + n_read // 2**20)
        self._room = MAX_MADE + 4 * n_read
        self._print = _PRINTED * self._room

    def measured(self, value: Any) -> Any:
        """Return a value that is not too large, with all that is in it as often as it is there.

        Raises:
            SecurityError: it is.
        """
        n, stack = 0, [value]
        while stack:
            one = stack.pop()
            n += _ITEM
            if isinstance(one, str):
                n += len(one)
            elif isinstance(one, list | tuple):
                stack += one
            elif isinstance(one, dict):
                stack += one.keys()
                stack += one.values()
            elif isinstance(one, int) and one.bit_length() > _MAX_BITS:
                refuse(f"makes a number of more than {_MAX_BITS} bits")
            if n + _ITEM * len(stack) > self._room:
                self._check(n + _ITEM * len(stack), "a value")
        return value

    def call_binop(
        self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any
    ) -> Any:
        """Compute with numbers of ordinary size, and make texts and lists of ordinary length."""
        sized = [x for x in (left, right) if hasattr(x, "__len__")]
        times = next((x for x in (left, right) if isinstance(x, int)), 0)
        if operator == "**" or (operator == "*" and sized and len(sized[0]) * times > MAX_REPEATED):
            refuse(f"{operator} makes too much")
        if operator == "%" and isinstance(left, str):
            _check_format(left)
        if operator == "+":
            self._check(sum(len(x) * (1 if isinstance(x, str) else _ITEM) for x in sized), operator)
        return self.measured(super().call_binop(context, operator, left, right))

    def call(self, context: jinja2.runtime.Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function, a macro, or a method of a text, a list or a table."""
        self._step(_CALL)
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, bytes | bytearray | int | float):
            refuse("calls a method of a number, or of bytes")
        if isinstance(owner, str):
            self._check_method(owner, obj.__name__, args, kwargs)
        return self.measured(super().call(context, obj, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Any:
        """Return the sandbox's own `format` of a text, whose widths are looked at."""
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            _check_format(str(value.__self__))
        return wrapped

    def _parse(self, source: str, name: str | None, filename: str | None) -> jinja2.nodes.Template:
        return _Measuring().visit(super()._parse(source, name, filename))

    def _step(self, n: int = 1) -> None:
        self._steps -= n
        if self._steps < 0:
            refuse("takes too many steps")

    def _counted(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self._step()
            yield item

    def _check(self, n: int, what: str) -> None:
        if n > self._room:
            refuse(f"{what} has more than {self._room:,} characters")

    def _printed(self, value: Any) -> Any:
        """Return what is printed, now or into a macro, of which there is only so much."""
        text = value if isinstance(value, str) else str(self.measured(value))
        self._print -= len(text)
        if self._print < 0:
            refuse("prints too much")
        return text if isinstance(value, list | dict | tuple) else value

    def _check_method(
        self, text: str, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Measure what a method of a text would make."""
        if name == "join" and args:
            self._check_join(text, args[0])
        elif name == "replace" and len(args) > 1:
            self._check_replacement(text, str(args[0]), str(args[1]))
        elif name in ("translate", "encode"):
            refuse(f"calls {name}")
        elif any(isinstance(x, int) and x > MAX_REPEATED for x in (*args, *kwargs.values())):
            refuse(f"{name} makes too much")
        elif name == "expandtabs":
            self._check(text.count("\t") * MAX_REPEATED, name)

    def _check_join(self, separator: str, items: Any) -> None:
        if not isinstance(items, str | list | tuple | dict | types.GeneratorType):
            refuse("joins something else than a list")
        if not isinstance(items, types.GeneratorType):
            self._check(len(items) * len(separator), "a joined list")

    def _check_replacement(self, text: str, old: str, new: str) -> None:
        self._check(len(text) + text.count(old) * len(new), "a replacement")

    def _concat(self, items: list[Any]) -> str:
        return self.measured("".join(map(str, self.measured(items))))

    def _join(self, value: Any, d: str = "", attribute: str | int | None = None) -> str:
        items = list(value)
        self._check_join(str(d), self.measured(items))
        context = jinja2.nodes.EvalContext(self)
        return self.measured(jinja2.filters.do_join(context, items, d, attribute))

    def _replace(self, s: str, old: str, new: str, count: int | None = None) -> str:
        self._check_replacement(str(s), str(old), str(new))
        context = jinja2.nodes.EvalContext(self)
        return jinja2.filters.do_replace(context, s, old, new, count)

    def _indent(
        self, s: str, width: int | str = 4, first: bool = False, blank: bool = False
    ) -> str:
        n = len(width) if isinstance(width, str) else width
        self._check((str(s).count("\n") + 1) * n, "an indentation")
        return jinja2.filters.do_indent(s, width, first, blank)


def refuse(why: str) -> NoReturn:
    """Raise what a template raises that does too much."""
    raise jinja2.exceptions.SecurityError(why)


def _check_format(text: str) -> None:
    if _WIDE.search(text):
        refuse("a format has a width of more than 999, or one that is a value")
