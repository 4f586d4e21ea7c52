"""Values as plain data: what comes back equals what was written, and wrong data is refused with its place."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.hlo.codec.plain import ValueConstraint, from_json, from_plain, read_json, to_json, to_plain
from shardc.hlo.errors import InputError
from shardc.hlo.ir.groups import AxisGroups, AxisPairs, IotaGroups, ListGroups, ListPairs, Pairs, ReplicaGroups
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef
from shardc.hlo.ir.types import DTYPES, DType, Shape


@dataclass(frozen=True)
class Even(ValueConstraint):
    def problem(self, value: int) -> str:
        return f"{value} is odd" if value % 2 else ""


@dataclass(frozen=True)
class Tree:
    name: str
    children: tuple[Tree, ...] = ()
    groups: ReplicaGroups | Pairs | None = None


@dataclass(frozen=True)
class Everything:
    flag: bool
    count: Annotated[int, Even()]
    share: float
    dtype: DType
    word: Literal["a", "b"] = "a"
    pair: tuple[str, int] = ("", 0)
    table: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    either: int | str | tuple[int, ...] | None = None
    rest: Any = None
    numbers: list[float] = field(default_factory=list)


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_NUMBER = st.floats(allow_nan=False)
_FREE = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXT,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)
_EVERYTHING = st.builds(
    Everything,
    flag=st.booleans(),
    count=st.integers().map(lambda n: 2 * n),
    share=_NUMBER,
    dtype=st.sampled_from(sorted(DTYPES.values(), key=lambda d: d.name)),
    word=st.sampled_from(["a", "b"]),
    pair=st.tuples(_TEXT, st.integers()),
    table=st.dictionaries(_TEXT, st.lists(st.integers(), max_size=3).map(tuple), max_size=3),
    either=st.none() | st.integers() | _TEXT | st.lists(st.integers(), max_size=3).map(tuple),
    rest=_FREE,
    numbers=st.lists(_NUMBER, max_size=3),
)


@given(_EVERYTHING)
def test_what_is_written_comes_back_from_its_text(value: Everything) -> None:
    assert from_json(Everything, to_json(value)) == value
    assert to_json(from_json(Everything, to_json(value))) == to_json(value)


@given(_EVERYTHING, st.data())
def test_data_with_something_else_in_it_is_refused_or_read_as_what_it_says(value: Everything, draw: Any) -> None:
    data = to_plain(value)
    name = draw.draw(st.sampled_from(sorted(data)))
    data[name] = draw.draw(_FREE)
    try:
        found = from_plain(Everything, json.loads(json.dumps(data)), "it")
    except InputError as e:
        assert str(e.where).startswith(f"it.{name}")
    else:
        assert to_plain(found) == json.loads(json.dumps(data))  # 2.0 is 2


def test_classes_that_hold_each_other_and_choices_of_classes_come_back() -> None:
    mesh = Mesh({"data": 2, "model": 3}, name="m")
    axes = (AxisRef("data"), AxisRef("model", 1, 3))
    groups = (
        AxisGroups(mesh, axes),
        IotaGroups(2, 3, (3, 2), (1, 0)),
        ListGroups(((0, 1), (2,))),
        AxisPairs(mesh, axes, ((0, 1),)),
        ListPairs(((0, 1),)),
        None,
    )
    tree = Tree("root", tuple(Tree(str(n), groups=g) for n, g in enumerate(groups)))
    assert from_json(Tree, to_json(tree)) == tree
    assert to_plain(tree)["children"][1]["groups"]["$"] == "IotaGroups"


def test_numbers_that_json_lacks_have_words() -> None:
    for number in (math.inf, -math.inf):
        assert from_plain(float, to_plain(number, float)) == number
    assert math.isnan(from_plain(float, to_plain(math.nan, float)))
    with pytest.raises(InputError, match="NaN is not a number"):
        read_json("[NaN]")


def test_bytes_lie_beside_the_data_once() -> None:
    blobs: dict[str, bytes] = {}
    data = to_plain((b"abc", b"", b"abc"), tuple[bytes, ...], blobs)
    assert sorted(blobs.values()) == [b"", b"abc"]
    assert from_plain(tuple[bytes, ...], json.loads(json.dumps(data)), "", blobs) == (b"abc", b"", b"abc")
    with pytest.raises(InputError, match="digest"):
        from_plain(tuple[bytes, ...], data, "", {})
    with pytest.raises(TypeError):
        to_plain(b"abc")


_GOOD = to_plain(Everything(True, 2, 0.5, DTYPES["f32"]))


@pytest.mark.parametrize(
    ("change", "where", "what"),
    [
        ({"flag": 1}, "it.flag", "1 is not true or false"),
        ({"count": 3}, "it.count", "3 is odd"),
        ({"count": 2.5}, "it.count", "2.5 is not a whole number"),
        ({"count": True}, "it.count", "True is not a whole number"),
        ({"share": "0.5"}, "it.share", "'0.5' is not a number"),
        ({"share": None}, "it.share", "None is not a number"),
        ({"dtype": "f33"}, "it.dtype", "'f33' is not an element type"),
        ({"dtype": ["f32"]}, "it.dtype", "not an element type"),
        ({"word": "c"}, "it.word", "'c' is not known"),
        ({"word": ["a"]}, "it.word", "not known"),
        ({"pair": ["a"]}, "it.pair", "1 entry where 2 are expected"),
        ({"pair": ["a", "b"]}, "it.pair[1]", "'b' is not a whole number"),
        ({"table": {"a": [1, None]}}, "it.table['a'][1]", "None is not a whole number"),
        ({"table": []}, "it.table", "an array is not an object"),
        ({"either": 0.5}, "it.either", "0.5 is not a whole number"),
        ({"either": {}}, "it.either", "none of"),
        ({"numbers": {}}, "it.numbers", "an object is not an array"),
        ({"more": 1}, "it.more", "no such field"),
        ({"table": {"\ud800": []}}, "it.table", "not text in Unicode"),
    ],
)
def test_wrong_data_is_refused_with_its_place(change: dict[str, Any], where: str, what: str) -> None:
    with pytest.raises(InputError) as told:
        from_plain(Everything, {**_GOOD, **change}, "it")
    assert what in told.value.what
    assert str(told.value.where).startswith(where)


def test_missing_fields_and_wrong_choices_are_named() -> None:
    with pytest.raises(InputError, match="missing") as told:
        from_plain(Everything, {"flag": True}, "it")
    assert told.value.where == "it.count"
    with pytest.raises(InputError, match="'Mesh' is not known") as told:
        from_plain(Tree, {"name": "", "groups": {"$": "Mesh", "axes": []}})
    assert told.value.where == "groups['$']"
    with pytest.raises(InputError, match="not an object"):
        from_plain(Tree, "text")


@pytest.mark.parametrize("text", ["", "[", "[" * 100_000, "{" * 3, b"\xff\xfe\x01", "1" * 10_000, "Infinity"])
def test_what_is_no_json_is_an_error_of_ours(text: str | bytes) -> None:
    with pytest.raises(InputError):
        read_json(text, "it")


def test_what_a_class_itself_refuses_is_our_error() -> None:
    with pytest.raises(InputError, match="is not an array"):
        from_plain(Shape, {"dtype": "f32", "dims": "2"})


def test_values_of_other_types_are_not_written() -> None:
    for value, hint in ((1, str), ("a", int), (object(), Any), (Tree("a"), Everything), (1.5, int)):
        with pytest.raises(TypeError):
            to_plain(value, hint)
    with pytest.raises(TypeError):
        to_plain({1: 2}, dict[int, int])
