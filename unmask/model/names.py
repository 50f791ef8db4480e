"""Names and Fields: two-way tables between our tensors and configuration and another library's."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor

from unmask import config
from unmask.model.architecture import Architecture, EncoderDecoderArchitecture
from unmask.model.keys import NO_KEYS, Keys

AnyArchitecture = Architecture | EncoderDecoderArchitecture
A = TypeVar("A", bound=Architecture)


@dataclass(frozen=True)
class Rule:
    """One line of a table: which of our modules hold which of theirs."""

    ours: tuple[str, ...]
    theirs: str
    operation: str
    beside: str
    """The rule counts only where this module of ours exists too."""


@dataclass(frozen=True)
class Read:
    """What came of reading another library's tensors."""

    tensors: Mapping[str, Tensor]
    missing: tuple[str, ...]
    """Ours that theirs do not have: they keep their initial values."""
    extra: tuple[str, ...]
    """Theirs that have no place in this model."""


class Names:
    """A table, one module a line, `*` for the layer number, read in both directions.

    `**` stands for all modules below. All names of theirs begin with the prefix, which a model
    without heads leaves out, or, in some of their classes, with the alias.

    `ours  theirs`; `a + b  theirs` cuts and joins a fused tensor along its outputs; an operation at
    the end (`transposed`) is its own inverse; `by_head` says that theirs are joined head by head,
    `in_heads` that heads are an axis of their own, the last but one; with `transposed_in_heads` our
    matrix is transposed, too;
    `tied` that theirs is a second copy, checked on reading and not written, and left out where it
    is no copy, but of a head that is not asked for (a line before says so); `instead` that it is a
    second copy which counts where the two differ; `row` that their vector
    is a matrix of one row, `zeros` that this row is of zeros, one for each of our rows, which
    nothing of ours holds (see `zeros`);
    `beside:name` that the line counts only where we have that module too; `-  theirs` that theirs
    is left out on purpose.
    Of several lines for one of theirs the first counts whose ours exist, and likewise of several
    for one of ours.
    """

    def __init__(
        self, table: str, *, prefix: str = "", heads: int | None = None, alias: str = ""
    ) -> None:
        self.table, self.prefix, self.heads, self.alias = table, prefix, heads, alias
        self.rules = tuple(self._rule(line) for line in table.strip().splitlines() if line.strip())

    @property
    def by_head(self) -> bool:
        """Some tensors are joined head by head."""
        return any(rule.operation in _BY_HEAD for rule in self.rules)

    def sized(self, a: AnyArchitecture) -> "Names":
        """Return the table for models of this architecture: some cut tensors by its heads."""
        if not self.by_head or not isinstance(a, Architecture) or a.n_heads == self.heads:
            return self
        return Names(self.table, prefix=self.prefix, heads=a.n_heads, alias=self.alias)

    @staticmethod
    def _rule(line: str) -> Rule:
        left, theirs, *rest = re.sub(r"\s*\+\s*", "+", line.strip()).split()
        beside = next((word.removeprefix("beside:") for word in rest if "beside:" in word), "")
        operation = next((word for word in rest if "beside:" not in word), "")
        return Rule(tuple(left.split("+")), theirs, operation, beside)

    def from_theirs(self, state: Mapping[str, Tensor], wanted: Mapping[str, torch.Size]) -> Read:
        """Find our tensors, of the names and shapes `wanted`, among theirs.

        Raises:
            ValueError: a tensor has another shape than the configuration says, or two copies of one
                tensor differ.
        """
        found: dict[str, Tensor] = {}
        copies: list[tuple[str, str, Tensor, bool]] = []
        instead: dict[str, Tensor] = {}
        extra: list[str] = []
        for name, tensor in state.items():
            used = of_a_head = False
            for rule, numbers, tail in self._hits(name):
                if rule.operation == "zeros":
                    used = tensor.is_meta or not tensor.any()
                    break
                ours = [_fill(o, numbers) + tail for o in rule.ours]
                used = rule.ours == ("-",) or all(
                    o in wanted for o in ours + _besides(rule, numbers)
                )
                if rule.operation == "tied":
                    copies.append((ours[0], name, tensor, of_a_head))
                elif used and rule.operation == "instead":
                    instead[ours[0]] = tensor
                elif used and rule.ours != ("-",):
                    parts = self._operate(rule, tensor, len(ours)).chunk(len(ours))
                    found |= dict(zip(ours, parts, strict=True))
                if used:
                    break
                of_a_head = True  # that is not wanted: it may have a matrix of its own here
            if not used:
                extra.append(name)
        found |= instead
        extra += _check(found, wanted, copies)
        missing = tuple(name for name in wanted if name not in found)
        return Read(found, missing, tuple(extra))

    def to_theirs(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Rename our tensors to theirs.

        Raises:
            KeyError: one of ours has no rule.
        """
        out: dict[str, Tensor] = {}
        left = dict.fromkeys(state)
        for rule in self.rules:
            if rule.ours == ("-",) or rule.operation in _SECOND:
                continue
            for name in list(left):
                if (hit := _match(rule.ours[0], name)) is None:
                    continue
                numbers, tail = hit
                if any(o not in state for o in _besides(rule, numbers)):
                    continue
                ours = [_fill(o, numbers) + tail for o in rule.ours]
                theirs = self._operate(rule, torch.cat([state[o] for o in ours]), self.heads)
                out[_fill(rule.theirs, numbers) + tail] = theirs.contiguous()
                for o in ours:
                    del left[o]
        if left:
            raise KeyError(f"no rule for {len(left)} of our tensors, the first: {list(left)[:4]}")
        return out

    def zeros(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the rows of zeros that their language models have beside our tensors."""
        rules = [rule for rule in self.rules if rule.operation == "zeros"]
        tables = {rule.theirs: state[f"{rule.ours[0]}.weight"] for rule in rules}
        return {theirs: table.new_zeros(1, len(table)) for theirs, table in tables.items()}

    def theirs_of(self, ours: str, state: Mapping[str, Tensor]) -> Tensor | None:
        """Return the tensor of theirs that one of ours is read from, if it is there."""
        for name in self.names_of(ours):
            for known in (name, name.removeprefix(self.prefix)):
                if known in state:
                    return state[known]
        return None

    def names_of(self, ours: str) -> list[str]:
        """List what one of our tensors may be called there; none: it is joined with others."""
        rules = [r for r in self.rules if len(r.ours) == 1 and r.operation not in _SECOND]
        hits = [(rule, _match(rule.ours[0], ours)) for rule in rules]
        return [_fill(rule.theirs, hit[0]) + hit[1] for rule, hit in hits if hit is not None]

    def laid_out_for(self, ours: str, state: Collection[str]) -> bool:
        """Say whether theirs have what stands beside a module of ours, where lines say such."""
        beside = [rule.theirs for rule in self.rules if rule.beside == ours]
        return not beside or self._some([f"{theirs}.weight" for theirs in beside], state)

    def without_prefix(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Name tensors as a model without heads does in their library."""
        return {name.removeprefix(self.prefix): tensor for name, tensor in state.items()}

    def aliased(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Name tensors as classes of theirs do that have the alias in place of the prefix."""
        if not self.alias:
            return dict(state)
        n = len(self.prefix)
        return {
            self.alias + name[n:] if name.startswith(self.prefix) else name: tensor
            for name, tensor in state.items()
        }

    def _operate(self, rule: Rule, tensor: Tensor, inner: int | None) -> Tensor:
        """Do what the rule says; of tensors joined head by head, `inner` ones become outer."""
        if rule.operation == "transposed":
            return tensor.T if tensor.dim() == 2 else tensor
        if rule.operation == "row":
            return tensor.squeeze(0) if tensor.dim() == 2 else tensor[None]
        if rule.operation in ("in_heads", "transposed_in_heads"):
            return self._in_heads(tensor, transposed=rule.operation != "in_heads")
        if rule.operation != "by_head":
            return tensor
        if self.heads is None:
            raise ValueError(f"{rule.theirs} is joined head by head, of how many heads is unknown")
        n = self.heads * len(rule.ours)
        assert inner is not None
        cut = tensor.unflatten(0, (n // inner, inner, -1))  # outer, inner, rows of a head
        return cut.transpose(0, 1).flatten(0, 2)

    def _in_heads(self, tensor: Tensor, *, transposed: bool) -> Tensor:
        """Give heads their axis, or take it from them."""
        if tensor.dim() == 3:
            return tensor.flatten(1).T if transposed else tensor.flatten(1)
        if self.heads is None:
            raise ValueError("a tensor has an axis of heads, of how many is unknown")
        tensor = tensor.T if transposed else tensor
        return tensor.unflatten(1, (self.heads, -1))

    def _hits(self, name: str) -> Iterable[tuple[Rule, tuple[str, ...], str]]:
        names = [name, self.prefix + name]
        if self.alias and name.startswith(self.alias):
            names.append(self.prefix + name.removeprefix(self.alias))
        for candidate in dict.fromkeys(names):
            hits = [(r, *hit) for r in self.rules if (hit := _match(r.theirs, candidate))]
            if hits:
                return hits
        return ()

    def ours_of(self, theirs: Iterable[str]) -> Iterator[str]:
        """Give names of ours that names of theirs may stand for."""
        for name in theirs:
            for rule, numbers, tail in self._hits(name):
                yield from (_fill(ours, numbers) + tail for ours in rule.ours if ours != "-")

    def lacking(self, state: Collection[str], *, language: bool) -> list[str]:
        """Name what a file of tables that are not tied would have and these tensors have not.

        Those are the scores' own matrix, unless no language head is asked for, and what else a line
        calls a second copy.
        """
        heads = [rule.theirs for rule in self.rules if rule.ours == (_SCORES,)]
        names = [f"{theirs}.weight" for theirs in heads]
        out = names[:1] if language and not self._some(names, state) else []
        for rule in self.rules:
            of_head = not (self.prefix and rule.theirs.startswith(self.prefix))
            if not self._is_copy(rule) or (of_head and not language):
                continue
            name = rule.theirs if rule.theirs.endswith(".bias") else f"{rule.theirs}.weight"
            out += [] if self._some([name], state) else [name]
        return out

    def _some(self, names: Iterable[str], state: Collection[str]) -> bool:
        return any(name in state or name.removeprefix(self.prefix) in state for name in names)

    def _is_copy(self, rule: Rule) -> bool:
        """Say whether a line is of a second copy, and not of scores that may have their own."""
        heads = {other.theirs for other in self.rules if other.ours == (_SCORES,)}
        tied = rule.operation in ("tied", "instead")
        return tied and "*" not in rule.theirs and rule.theirs not in heads

    def copies(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the second copies of ours that a file has whose tables are not tied."""
        found: dict[str, Tensor] = {}
        for rule in filter(self._is_copy, self.rules):
            tail = "" if rule.theirs.endswith(".bias") else ".weight"
            if (tensor := state.get(rule.ours[0] + tail)) is not None:
                found[rule.theirs + tail] = tensor.clone()
        return found


_SCORES = "heads.language.out"
_SECOND = ("tied", "instead", "zeros")
"""Operations of lines that stand beside another, which is the one that is written."""
_BY_HEAD = ("by_head", "in_heads", "transposed_in_heads")


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    regex = re.escape(pattern).replace(r"\*\*", r"(.+)").replace(r"\*", r"(\d+)")
    return re.compile(regex + r"(\.weight|\.bias|)")


def _match(pattern: str, name: str) -> tuple[tuple[str, ...], str] | None:
    hit = _regex(pattern).fullmatch(name)
    return None if hit is None else (hit.groups()[:-1], hit.groups()[-1])


def _fill(pattern: str, numbers: tuple[str, ...]) -> str:
    left = iter(numbers)
    return re.sub(r"\*\*?", lambda _: next(left), pattern)


def _besides(rule: Rule, numbers: tuple[str, ...]) -> list[str]:
    return [_fill(rule.beside, numbers) + ".weight"] if rule.beside else []


def _check(
    found: Mapping[str, Tensor],
    wanted: Mapping[str, torch.Size],
    copies: Iterable[tuple[str, str, Tensor, bool]],
) -> list[str]:
    """Check shapes and copies; return what is no copy, but of a head that is not wanted."""
    for name, tensor in found.items():
        if tensor.shape != wanted[name]:
            raise ValueError(
                f"tensor {name} has shape {list(tensor.shape)}, "
                f"the configuration says {list(wanted[name])}"
            )
    own: list[str] = []
    for ours, theirs, tensor, of_a_head in copies:
        if ours in found and not torch.equal(found[ours], tensor):
            if not of_a_head:
                raise ValueError(
                    f"tensor {theirs} differs from the one it should be tied to ({ours})"
                )
            own.append(theirs)
    return own


@dataclass(frozen=True, kw_only=True)
class Fields:
    """A two-way table between our architecture and their config.json."""

    model_type: str
    """Their word for the family."""
    keys: Keys = NO_KEYS
    """What each key of theirs is to us: `architecture` checks all and fills in defaults."""
    read: Callable[[Mapping[str, Any]], AnyArchitecture]
    write: Callable[[Any], dict[str, Any]]
    classes: Mapping[tuple[str, ...], str]
    """Our heads, by name -> the class of theirs that has just these (`architectures` in their
    config.json)."""
    language: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda theirs: {}
    """What their configuration says of the language head: fields of `Language` that differ from
    the card's."""
    of_language: Callable[[Any], dict[str, Any]] = lambda spec: {}
    """What their configuration shall say of a language head."""
    labels: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda theirs: {}
    """The same of the head that labels whole texts: fields of `Labels`."""
    in_transformers: bool = True
    """Whether the reference library has classes of this family."""
    aliased: frozenset[str] = frozenset()
    """Classes of theirs whose tensors have the alias of `Names` in place of the prefix."""
    differs: Callable[[Any, Mapping[str, Any]], str | None] = lambda a, specs: None
    """What their class does otherwise than a model of this architecture with these heads: of all
    else, its scores and hidden states are equal."""
    told_by: frozenset[str] = frozenset()
    """Keys that tell the family of a configuration which has no model_type, or one that several
    families share; none: it is not told."""
    forward: Mapping[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])
    """Classes, in place of those above, of a network of theirs that reads forward, where the family
    has such beside those that see a text as a whole."""
    pools: tuple[str, Mapping[str, str]] | None = None
    """Their key for what stands for a text that is labelled, and its values in our words; None: it
    is as the card has it."""
    always_tied: Callable[[Mapping[str, Any]], bool] = lambda theirs: False
    """Whether their classes tie all tables of tokens to one, unless a file holds others, whatever
    `tie_word_embeddings` says."""

    def classes_of(self, a: AnyArchitecture) -> Mapping[tuple[str, ...], str]:
        """Return their classes of a network, by our heads."""
        causal = isinstance(a, Architecture) and a.causal
        return {**self.classes, **self.forward} if causal else self.classes

    def heads_of(self, kind: str) -> tuple[str, ...] | None:
        """Return our heads that a class of theirs has; None: it is none of this family."""
        every = (*self.classes.items(), *self.forward.items())
        return next((heads for heads, name in every if name == kind), None)


def own_fields(model_type: str, kind: type[AnyArchitecture] = Architecture) -> Fields:
    """Return a format that holds our architecture as it is, for what the other library lacks."""

    def read(theirs: Mapping[str, Any]) -> AnyArchitecture:
        plain = need(theirs, "architecture")
        stack = isinstance(plain, Mapping) and plain.get("kind") == Architecture.__name__
        # Of two stacks, one alone may have been asked.
        one = stack and issubclass(kind, EncoderDecoderArchitecture)
        return config.from_dict(Architecture if one else kind, plain, "architecture")

    def write(a: AnyArchitecture) -> dict[str, Any]:
        return {"architecture": config.to_dict(a)}

    return Fields(
        model_type=model_type,
        read=read,
        write=write,
        classes={(): model_type},
        in_transformers=False,
    )


OWN_NAMES = Names("backbone.** backbone.**\nheads.** heads.**")
"""Of such a format: the tensors have our names."""


ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
"""Their names of activations -> ours; the first name of each is the one written."""


def activation(name: str, key: str = "activation") -> str:
    """Our name of an activation of theirs.

    Raises:
        ValueError: there is none; the message names the key.
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"{key} {name!r} is not one of {sorted(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def their_activation(name: str) -> str:
    """Their name of an activation of ours."""
    return next(theirs for theirs, ours in ACTIVATIONS.items() if ours == name)


def refuse(theirs: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
    """Refuse a configuration that asks for something this family of ours does not do.

    Raises:
        ValueError: a key has another value than the only one known, with both.
    """
    for key, value in fixed.items():
        if theirs.get(key, value) != value:
            raise ValueError(f"{key} = {theirs[key]!r} is not supported, only {value!r}")


def need(theirs: Mapping[str, Any], key: str) -> Any:
    """Return a key of their configuration that must be there.

    Raises:
        ValueError: it is not.
    """
    if key not in theirs:
        raise ValueError(f"lacks {key!r}")
    return theirs[key]


def or_forward(
    read: Callable[[Mapping[str, Any]], A], write: Callable[[A], dict[str, Any]]
) -> tuple[Callable[[Mapping[str, Any]], A], Callable[[A], dict[str, Any]]]:
    """Let a format that says `is_decoder` tell a network that reads forward."""

    def read_either(theirs: Mapping[str, Any]) -> A:
        a = read({**theirs, "is_decoder": False})
        return replace(a, causal=True) if theirs.get("is_decoder") else a

    def write_either(a: A) -> dict[str, Any]:
        return write(a) | {"is_decoder": a.causal}

    return read_either, write_either


def by_table(
    table: Mapping[str, str], base: A, fixed: Mapping[str, Any]
) -> tuple[Callable[[Mapping[str, Any]], A], Callable[[A], dict[str, Any]]]:
    """Make `read` and `write` from {our dotted path: their key}.

    What the table does not name is as in `base`.
    """

    def read(theirs: Mapping[str, Any]) -> A:
        refuse(theirs, fixed)
        plain = config.to_dict(base)
        for ours, key in table.items():
            if key in theirs and theirs[key] is not None:
                value = theirs[key]
                _set(plain, ours, activation(value, key) if ours == "activation" else value)
            elif ours in ("vocab_size", "d_model", "n_layers", "n_heads"):
                need(theirs, key)
        return config.from_dict(type(base), plain)

    def write(a: A) -> dict[str, Any]:
        out = dict(fixed)
        for ours, key in table.items():
            value: Any = a
            for part in ours.split("."):
                value = getattr(value, part)
            out[key] = their_activation(value) if ours == "activation" else value
        return out

    return read, write


def _set(plain: dict[str, Any], path: str, value: Any) -> None:
    *outer, last = path.split(".")
    for part in outer:
        plain = plain[part]
    plain[last] = value
