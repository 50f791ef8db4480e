from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.config import from_dict, parse_variant, set_value, to_dict
from unmask.zoo.catalogue import MODELS


@dataclass(frozen=True)
class Round:
    radius: float = 1.0


@dataclass(frozen=True)
class Square:
    side: int = 2
    solid: bool = True


@dataclass(frozen=True, kw_only=True)
class Drawing:
    name: str
    shape: Round | Square = Round()
    many: tuple[Round | Square, ...] = ()
    pair: tuple[int, float] = (1, 2.0)
    color: Literal["red", "blue"] | None = None
    tags: frozenset[str] = frozenset()
    more: Mapping[str, Any] = field(default_factory=dict)
    size: int | None = None


integers = st.integers(-(2**63), 2**63 - 1)
shapes = st.one_of(
    st.builds(Round, st.floats(allow_nan=False)),
    st.builds(Square, integers, st.booleans()),
)


@given(
    st.builds(
        Drawing,
        name=st.text(),
        shape=shapes,
        many=st.lists(shapes, max_size=3).map(tuple),
        pair=st.tuples(integers, st.floats(allow_nan=False)),
        color=st.sampled_from([None, "red", "blue"]),
        tags=st.frozensets(st.text(max_size=3), max_size=3),
        size=st.none() | integers,
    )
)
def test_written_values_read_back(drawing: Drawing) -> None:
    assert from_dict(Drawing, to_dict(drawing)) == drawing


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "Drawing lacks name"),
        ({"name": 3}, "name must be str, got 3"),
        ({"name": "a", "shpae": {}}, "unknown key 'shpae'; did you mean 'shape'"),
        (
            {"name": "a", "shape": {"kind": "Squre"}},
            r"shape.kind must be one of \['Round', 'Square'\], got 'Squre'",
        ),
        (
            {"name": "a", "shape": {"kind": "Square", "side": 1.5}},
            "shape.side must be int, got 1.5",
        ),
        (
            {"name": "a", "shape": {"kind": "Square", "side": True}},
            "shape.side must be int, got True",
        ),
        ({"name": "a", "shape": {"kind": "Round", "side": 1}}, "unknown key 'shape.side'"),
        ({"name": "a", "shape": "Round"}, "shape must be a table with kind one of"),
        ({"name": "a", "color": "green"}, "color must be one of"),
        (
            {"name": "a", "many": [{"kind": "Round"}, {"kind": "?"}]},
            r"many\[1\].kind must be one of",
        ),
        ({"name": "a", "pair": [1]}, "pair must have 2 items, got 1"),
        ({"name": "a", "tags": "x"}, "tags must be a list, got 'x'"),
        ({"name": "a", "size": "big"}, "size must be int, got 'big'"),
        ([], "Drawing must be a table"),
    ],
)
def test_mistake_is_reported_with_place_and_allowed_values(data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_dict(Drawing, data)


def test_field_is_set_by_its_path() -> None:
    drawing = Drawing(name="a", shape=Square(3))
    assert set_value(drawing, "shape.side", 4) == Drawing(name="a", shape=Square(4))
    assert set_value(drawing, "size", 7).size == 7
    with pytest.raises(ValueError, match=r"unknown key 'shape.sied'; did you mean 'side'"):
        set_value(drawing, "shape.sied", 4)
    with pytest.raises(ValueError, match=r"unknown key 'name\.first'"):
        set_value(drawing, "name.first", 4)


@dataclass(frozen=True)
class Border:
    style: Literal["thin", "none"] = "thin"
    corner: Literal["round", "none"] | None = "round"


def test_none_is_a_word_where_it_is_one_of_the_words() -> None:
    assert set_value(Border(), "style", None).style == "none"
    assert set_value(Border(), "corner", None).corner is None
    assert parse_variant({"border": Border}, "border:style=none", "--border").style == "none"


def test_integer_is_accepted_for_a_float() -> None:
    assert from_dict(Round, {"radius": 2}) == Round(2.0)


@pytest.mark.sample(61)
@pytest.mark.parametrize("name", MODELS)
def test_every_preset_is_plain_data(name: str) -> None:
    preset = MODELS[name]
    for value in (preset.architecture, preset.objective, preset.tokenizer, *preset.heads.values()):
        assert from_dict(type(value), to_dict(value)) == value


@dataclass(frozen=True)
class _First:
    n: int = 1


@dataclass(frozen=True)
class _Second:
    n: int = 2


@dataclass(frozen=True)
class _Either:
    one: _First | _Second


@pytest.mark.parametrize("kind", [[], {}, [1], 3, None, True])
def test_kind_that_is_no_word_is_refused_in_one_line(kind: object) -> None:
    with pytest.raises(ValueError, match="kind must be one of") as error:
        from_dict(_Either, {"one": {"kind": kind}})
    assert "\n" not in str(error.value)
