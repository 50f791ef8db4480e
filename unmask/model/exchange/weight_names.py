"""WeightNames and ConfigMapping: two-way tables to another library's tensors and configuration."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

from unmask.model.architecture import BackboneArchitecture, StackArchitecture
from unmask.model.backbones.transformer import Architecture

ArchitectureT = TypeVar("ArchitectureT", bound=StackArchitecture)


@dataclass(frozen=True)
class WeightRule:
    """One line of a table: our modules and the corresponding ones of theirs."""

    internal_names: tuple[str, ...]
    external_name: str
    operation: str
    requires: str
    """The rule applies only if this module of ours exists, too."""


@dataclass(frozen=True)
class MatchedWeights:
    """The result of reading another library's tensors."""

    tensors: Mapping[str, Tensor]
    missing: tuple[str, ...]
    """Our weights that are missing in theirs and keep their initial values."""
    unexpected: tuple[str, ...]
    """Their weights without a counterpart in this model."""


class WeightNames:
    """A table, one module a line, `*` for the layer number, read in both directions.

    `**` matches all modules below. Their names begin with the prefix, which a model without heads
    leaves out, or, in some of their classes, with the alias.

    A line is `ours  theirs`, and may end in an operation. `a + b  theirs`: a tensor of theirs is
    the concatenation of ours along the outputs. `transposed`: the matrix is transposed. `by_head`:
    theirs is concatenated head by head. `in_heads`: theirs has an axis of heads, the last but one;
    with `transposed_in_heads` our matrix is transposed, too. `tied`: theirs is a second copy, which
    is checked on reading and not written; it is ignored if it differs but belongs to a head that is
    not requested (a line before names it). `instead`: a second copy that wins if the two differ.
    `row`: their vector is a matrix of one row. `unbatched`: theirs lacks our leading axes of
    one row. `zero_rows`: theirs is a row of zeros for each of our rows (see `zero_rows`).
    `beside:name`: the line applies only if we have that module, too. `-  theirs`: theirs is
    ignored on purpose. Of several lines for one of
    their tensors, the first whose modules of ours exist applies; likewise for several lines for one
    of ours.
    """

    def __init__(
        self, table: str, *, prefix: str = "", n_heads: int | None = None, alias: str = ""
    ) -> None:
        self.table, self.prefix, self.n_heads, self.alias = table, prefix, n_heads, alias
        self.rules = tuple(
            self._parse_rule(line) for line in table.strip().splitlines() if line.strip()
        )

    @property
    def joins_by_head(self) -> bool:
        """Whether some tensors are concatenated head by head."""
        return any(rule.operation in _HEAD_OPERATIONS for rule in self.rules)

    def for_architecture(self, a: BackboneArchitecture) -> "WeightNames":
        """Return the table for an architecture: some operations split tensors by its heads."""
        if not self.joins_by_head or not isinstance(a, Architecture) or a.n_heads == self.n_heads:
            return self
        return WeightNames(self.table, prefix=self.prefix, n_heads=a.n_heads, alias=self.alias)

    @staticmethod
    def _parse_rule(line: str) -> WeightRule:
        left, theirs, *rest = re.sub(r"\s*\+\s*", "+", line.strip()).split()
        beside = next((word.removeprefix("beside:") for word in rest if "beside:" in word), "")
        operation = next((word for word in rest if "beside:" not in word), "")
        return WeightRule(tuple(left.split("+")), theirs, operation, beside)

    def from_external(
        self, state_dict: Mapping[str, Tensor], expected_shapes: Mapping[str, torch.Size]
    ) -> MatchedWeights:
        """Return our tensors, with the names and shapes `expected_shapes`, from theirs.

        Raises:
            ValueError: a tensor's shape does not fit the configuration, or two copies of a tensor
                differ.
        """
        weights: dict[str, Tensor] = {}
        origins: dict[str, str] = {}
        copies: list[tuple[str, str, Tensor, bool]] = []
        instead: dict[str, Tensor] = {}
        extra: list[str] = []
        for name, tensor in state_dict.items():
            used = of_a_head = False
            for rule, numbers, tail in self._matching_rules(name):
                if rule.operation == "zeros":
                    used = tensor.is_meta or not tensor.any()
                    break
                ours = [_fill_pattern(o, numbers) + tail for o in rule.internal_names]
                used = rule.internal_names == ("-",) or all(
                    o in expected_shapes for o in ours + _required_tensors(rule, numbers)
                )
                if rule.operation == "tied":
                    copies.append((ours[0], name, tensor, of_a_head))
                elif used and rule.operation == "instead":
                    instead[ours[0]] = tensor
                elif used and rule.internal_names != ("-",):
                    whole = self._apply_operation(rule, tensor, len(ours))
                    parts = whole.chunk(len(ours)) if len(ours) > 1 else (whole,)
                    _check_names(name, ours, parts, weights, origins)
                    weights |= dict(zip(ours, parts, strict=True))
                    origins |= dict.fromkeys(ours, name)
                if used:
                    break
                of_a_head = True  # that is not requested: it may have its own matrix
            if not used:
                extra.append(name)
        weights |= instead
        extra += _check_tensors(weights, expected_shapes, copies)
        missing = tuple(name for name in expected_shapes if name not in weights)
        return MatchedWeights(weights, missing, tuple(extra))

    def to_external(self, state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Rename our tensors to theirs.

        Raises:
            KeyError: one of ours has no rule.
        """
        out: dict[str, Tensor] = {}
        remaining = dict.fromkeys(state_dict)
        for rule in self.rules:
            if rule.internal_names == ("-",) or rule.operation in _COPY_OPERATIONS:
                continue
            for name in list(remaining):
                if (hit := _match(rule.internal_names[0], name)) is None:
                    continue
                numbers, tail = hit
                if any(o not in state_dict for o in _required_tensors(rule, numbers)):
                    continue
                ours = [_fill_pattern(o, numbers) + tail for o in rule.internal_names]
                theirs = self._apply_operation(
                    rule, _joined([state_dict[o] for o in ours]), self.n_heads
                )
                out[_fill_pattern(rule.external_name, numbers) + tail] = theirs
                for o in ours:
                    del remaining[o]
        if remaining:
            raise KeyError(
                f"no rule for {len(remaining)} of our tensors, the first: {list(remaining)[:4]}"
            )
        return out

    def zero_rows(self, state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the rows of zeros that their language models have in addition to our tensors."""
        rules = [rule for rule in self.rules if rule.operation == "zeros"]
        tables = {
            rule.external_name: state_dict[f"{rule.internal_names[0]}.weight"] for rule in rules
        }
        return {theirs: table.new_zeros(1, len(table)) for theirs, table in tables.items()}

    def external_tensor(
        self, internal_name: str, state_dict: Mapping[str, Tensor]
    ) -> Tensor | None:
        """Return their tensor from which one of ours is read, if present."""
        for name in self.external_names(internal_name):
            for external_name in (name, name.removeprefix(self.prefix)):
                if external_name in state_dict:
                    return state_dict[external_name]
        return None

    def external_names(self, internal_name: str) -> list[str]:
        """Return the external names that one of our tensors may have; empty: it is concatenated."""
        rules = [
            r
            for r in self.rules
            if len(r.internal_names) == 1 and r.operation not in _COPY_OPERATIONS
        ]
        hits = [(rule, _match(rule.internal_names[0], internal_name)) for rule in rules]
        return [
            _fill_pattern(rule.external_name, hit[0]) + hit[1]
            for rule, hit in hits
            if hit is not None
        ]

    def has_required_tensors(self, internal_name: str, state_dict: Collection[str]) -> bool:
        """Return whether their tensors include the modules that our rules require."""
        beside = [rule.external_name for rule in self.rules if rule.requires == internal_name]
        return not beside or self._contains_any(
            [f"{theirs}.weight" for theirs in beside], state_dict
        )

    def without_prefix(self, state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Name tensors as a model without heads does in their library."""
        return {name.removeprefix(self.prefix): tensor for name, tensor in state_dict.items()}

    def bare_name(self, name: str) -> str:
        """Return the name of their tensor in a model without heads."""
        start = self.alias if self.alias and name.startswith(self.alias) else self.prefix
        return name.removeprefix(start)

    def with_alias(self, state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Name tensors as those of their classes that use the alias instead of the prefix."""
        if not self.alias:
            return dict(state_dict)
        n = len(self.prefix)
        return {
            self.alias + name[n:] if name.startswith(self.prefix) else name: tensor
            for name, tensor in state_dict.items()
        }

    def _apply_operation(self, rule: WeightRule, tensor: Tensor, inner_size: int | None) -> Tensor:
        """Apply a rule's operation; of tensors joined by head, `inner_size` ones become outer."""
        if rule.operation == "transposed":
            return tensor.T if tensor.dim() == 2 else tensor
        if rule.operation == "row":
            return tensor.squeeze(0) if tensor.dim() == 2 else tensor[None]
        if rule.operation == "unbatched":
            return _toggle_leading_axes(tensor)
        if rule.operation in ("in_heads", "transposed_in_heads"):
            return self._in_heads(tensor, transposed=rule.operation != "in_heads")
        if rule.operation != "by_head":
            return tensor
        if self.n_heads is None:
            raise ValueError(
                f"{rule.external_name} is joined head by head, but the number of heads is unknown"
            )
        n = self.n_heads * len(rule.internal_names)
        assert inner_size is not None
        cut = tensor.unflatten(0, (n // inner_size, inner_size, -1))  # outer, inner, rows of a head
        return cut.transpose(0, 1).flatten(0, 2)

    def _in_heads(self, tensor: Tensor, *, transposed: bool) -> Tensor:
        """Add the axis of heads, or remove it."""
        if tensor.dim() == 3:
            return tensor.flatten(1).T if transposed else tensor.flatten(1)
        if self.n_heads is None:
            raise ValueError("a tensor has an axis of heads, but the number of heads is unknown")
        tensor = tensor.T if transposed else tensor
        return tensor.unflatten(1, (self.n_heads, -1))

    def _matching_rules(self, name: str) -> Iterable[tuple[WeightRule, tuple[str, ...], str]]:
        names = [name, self.prefix + name]
        if self.alias and name.startswith(self.alias):
            names.append(self.prefix + name.removeprefix(self.alias))
        for candidate in dict.fromkeys(names):
            hits = [(r, *hit) for r in self.rules if (hit := _match(r.external_name, candidate))]
            if hits:
                return hits
        return ()

    def internal_names(self, external_names: Iterable[str]) -> Iterator[str]:
        """Yield our names to which their names may correspond."""
        for name in external_names:
            for rule, numbers, tail in self._matching_rules(name):
                yield from (
                    _fill_pattern(ours, numbers) + tail
                    for ours in rule.internal_names
                    if ours != "-"
                )

    def is_transposed(self, external_name: str) -> bool:
        """Return whether one of their matrices is the transpose of ours."""
        rules = [rule for rule, *_ in self._matching_rules(external_name)]
        return external_name.endswith(".weight") and any(r.operation == "transposed" for r in rules)

    def missing_untied(self, state_dict: Collection[str], *, language_head: bool) -> list[str]:
        """Return the names that a file with untied embeddings would have and these tensors lack.

        These are the output matrix, if a language head is requested, and the second copies that the
        table names.
        """
        heads = [
            rule.external_name for rule in self.rules if rule.internal_names == (_OUTPUT_MATRIX,)
        ]
        names = [f"{theirs}.weight" for theirs in heads]
        out = names[:1] if language_head and not self._contains_any(names, state_dict) else []
        for rule in self.rules:
            of_head = not (self.prefix and rule.external_name.startswith(self.prefix))
            if not self._is_copy(rule) or (of_head and not language_head):
                continue
            name = (
                rule.external_name
                if rule.external_name.endswith(".bias")
                else f"{rule.external_name}.weight"
            )
            out += [] if self._contains_any([name], state_dict) else [name]
        return out

    def _contains_any(self, names: Iterable[str], state_dict: Collection[str]) -> bool:
        return any(
            name in state_dict or name.removeprefix(self.prefix) in state_dict for name in names
        )

    def _is_copy(self, rule: WeightRule) -> bool:
        """Return whether a line is for a second copy, not an output matrix that may be untied."""
        heads = {
            output_rule.external_name
            for output_rule in self.rules
            if output_rule.internal_names == (_OUTPUT_MATRIX,)
        }
        tied = rule.operation in ("tied", "instead")
        return tied and "*" not in rule.external_name and rule.external_name not in heads

    def tied_copies(self, state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the second copies of our tensors that a file with untied embeddings has."""
        tensors: dict[str, Tensor] = {}
        for rule in filter(self._is_copy, self.rules):
            tail = "" if rule.external_name.endswith(".bias") else ".weight"
            if (tensor := state_dict.get(rule.internal_names[0] + tail)) is not None:
                tensors[rule.external_name + tail] = tensor.clone()
        return tensors


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenate tensors along the outputs; a single one may be a number."""
    return torch.cat(list(tensors)) if len(tensors) > 1 else tensors[0]


def _toggle_leading_axes(tensor: Tensor) -> Tensor:
    """Remove all axes of size 1 before the first longer one, or add them up to three axes."""
    if tensor.dim() < 3:
        return tensor[(None,) * (3 - tensor.dim())]
    return tensor.flatten() if tensor.shape[:2] == (1, 1) else tensor.squeeze(0)


_OUTPUT_MATRIX = "heads.language.out"


_COPY_OPERATIONS = ("tied", "instead", "zeros")
"""Operations of lines that duplicate another line; only the other is written."""


_HEAD_OPERATIONS = ("by_head", "in_heads", "transposed_in_heads")


@cache
def _pattern_regex(pattern: str) -> re.Pattern[str]:
    regex = re.escape(pattern).replace(r"\*\*", r"(.+)").replace(r"\*", r"(\d+)")
    return re.compile(regex + r"(\.weight|\.bias|)")


def _match(pattern: str, name: str) -> tuple[tuple[str, ...], str] | None:
    hit = _pattern_regex(pattern).fullmatch(name)
    return None if hit is None else (hit.groups()[:-1], hit.groups()[-1])


def _fill_pattern(pattern: str, numbers: tuple[str, ...]) -> str:
    remaining = iter(numbers)
    return re.sub(r"\*\*?", lambda _: next(remaining), pattern)


def _required_tensors(rule: WeightRule, numbers: tuple[str, ...]) -> list[str]:
    return [_fill_pattern(rule.requires, numbers) + ".weight"] if rule.requires else []


def _check_names(
    name: str,
    ours: Sequence[str],
    parts: Sequence[Tensor],
    weights: Mapping[str, Tensor],
    origins: Mapping[str, str],
) -> None:
    """Check that tensors found under another of their names are equal."""
    for own_name, part in zip(ours, parts, strict=True):
        if (previous := weights.get(own_name)) is None or part.is_meta or previous.is_meta:
            continue
        if not torch.equal(previous, part):
            raise ValueError(
                f"tensors {origins[own_name]} and {name} differ, and both are {own_name}"
            )


def _check_tensors(
    weights: Mapping[str, Tensor],
    expected_shapes: Mapping[str, torch.Size],
    copies: Iterable[tuple[str, str, Tensor, bool]],
) -> list[str]:
    """Check shapes and copies; return copies that differ and whose head is not requested."""
    for name, tensor in weights.items():
        if tensor.shape != expected_shapes[name]:
            raise ValueError(
                f"tensor {name} has shape {list(tensor.shape)}, "
                f"the configuration says {list(expected_shapes[name])}"
            )
    own: list[str] = []
    for ours, theirs, tensor, of_a_head in copies:
        if ours in weights and not torch.equal(weights[ours], tensor):
            if not of_a_head:
                raise ValueError(
                    f"tensor {theirs} differs from the one it should be tied to ({ours})"
                )
            own.append(theirs)
    return own


NATIVE_WEIGHT_NAMES = WeightNames("backbone.** backbone.**\nheads.** heads.**")
"""The table of such a format: the tensors have our names."""


EXTERNAL_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
"""Their names of activations -> ours; the first name of each is the one written."""
