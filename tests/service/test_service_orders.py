"""Orders: their text, their limits (the same for our codec and for pydantic), their keys; packages of files."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, replace
from typing import Annotated, Any, Union

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.hlo.errors import InputError, RunError
from shardc.service.orders import (
    ORDERS,
    CompileOrder,
    Cpu,
    ExplainOrder,
    Order,
    PartitionOrder,
    SimulateOrder,
    SweepOrder,
    SweepSet,
    from_json,
    order_key,
    order_of,
    resolve_order,
    to_json,
)
from shardc.service.workers.package import pack, unpack

_A, _B = "a" * 64, "0123456789abcdef" * 4

_LINE = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=8)
_AXES = st.dictionaries(_LINE.filter(lambda t: t and not set(t) & set("=,")), st.integers(1, 64), max_size=3)
_COMMON: dict[str, st.SearchStrategy[Any]] = {
    "program": st.sampled_from([_A, _B]),
    "name": _LINE,
    "mesh": _AXES,
    "annotations": st.dictionaries(_LINE, _LINE, max_size=2),
    "machine": st.sampled_from(["", "h100-dgx", "tpu-v5p:4x4x8", "my_own.machine:64"]),
    "conservative": st.booleans(),
}
_SETS = st.builds(SweepSet, name=st.just("fsdp"), annotations=_COMMON["annotations"], axes=_AXES)
_ORDERS = st.one_of(
    st.builds(CompileOrder, **_COMMON, cpu=st.none() | st.just(Cpu(triple="x86_64-linux", cpu="", features="+avx"))),
    st.builds(ExplainOrder, **_COMMON, seconds=st.floats(0, 60), values=st.lists(_LINE, max_size=2).map(tuple)),
    st.builds(SweepOrder, **_COMMON, devices=st.just((1, 8)), sets=st.lists(_SETS, max_size=2).map(tuple)),
    *(st.builds(kind, **_COMMON) for kind in ORDERS.values()),
)


@pytest.fixture(scope="module")
def described() -> Any:
    """What FastAPI reads a request's body with."""
    from pydantic import Field, TypeAdapter

    return TypeAdapter(Annotated[Union[tuple(ORDERS.values())], Field(discriminator="kind")])  # noqa: UP007


@pytest.fixture(scope="module")
def schema(described: Any) -> Any:
    """What clients know of orders."""
    return pytest.importorskip("jsonschema_rs").validator_for(described.json_schema())  # comes with schemathesis


@given(_ORDERS)
def test_orders_come_back_from_their_text(order: Order) -> None:
    assert from_json(to_json(order)) == order
    assert to_json(from_json(to_json(order))) == to_json(order)


@given(_ORDERS)
def test_pydantic_reads_the_same_order(described: Any, order: Order) -> None:
    assert described.validate_python(json.loads(to_json(order))) == order


def _order(kind: str, **changes: Any) -> dict[str, Any]:
    return {"kind": kind, "program": _A, **changes}


_WRONG: list[tuple[dict[str, Any], str]] = [
    ({"kind": "compile"}, "order.program"),
    (_order("compile", program=_A[1:]), "order.program"),
    (_order("compile", program=_A.upper()), "order.program"),
    (_order("compile", program=_A + "\n"), "order.program"),
    (_order("compile", more=1), "order.more"),
    (_order("compile", mesh={"a": 0}), "order.mesh['a']"),
    (_order("compile", mesh={"a": True}), "order.mesh['a']"),
    (_order("compile", mesh={"a=b": 1}), "order.mesh['a=b']"),
    (_order("compile", mesh={str(n): 1 for n in range(17)}), "order.mesh"),
    (_order("compile", mesh=[1]), "order.mesh"),
    (_order("compile", annotations={"a": None}), "order.annotations['a']"),
    (_order("compile", name="two\nlines"), "order.name"),
    (_order("compile", name="x" * 1001), "order.name"),
    (_order("compile", name=None), "order.name"),
    (_order("compile", target="cuda"), "order.target"),
    (_order("compile", target="../x"), "order.target"),
    (_order("compile", ahead="true"), "order.ahead"),
    (_order("compile", ahead=1), "order.ahead"),
    (_order("compile", cpu={"triple": "x"}), "order.cpu.cpu"),
    (_order("compile", cpu={"triple": "x", "cpu": "y", "features": "evil"}), "order.cpu.features"),
    (_order("compile", symbol="a b"), "order.symbol"),
    (_order("compile", settings={"tune": 3.0}), "order.settings.tune"),
    (_order("compile", settings={"overlap": "sometimes"}), "order.settings.overlap"),
    (_order("simulate", machine="/etc/passwd"), "order.machine"),
    (_order("simulate", machine="../h100-dgx"), "order.machine"),
    (_order("simulate", machine=".h100"), "order.machine"),
    (_order("simulate", machine="h100-dgx:-1"), "order.machine"),
    (_order("simulate", machine_text="x" * 200_001), "order.machine_text"),
    (_order("explain", remedies=-1), "order.remedies"),
    (_order("explain", remedies="3"), "order.remedies"),
    (_order("explain", remedies=3.5), "order.remedies"),
    (_order("explain", seconds=1e9), "order.seconds"),
    (_order("explain", thresholds={"memory": "much"}), "order.thresholds['memory']"),
    (_order("explain", values=["x"] * 1001), "order.values"),
    (_order("explain", values=[1]), "order.values[0]"),
    (_order("sweep", devices=[0]), "order.devices[0]"),
    (_order("sweep", sets=[{"annotations": {}}]), "order.sets[0].name"),
    (_order("sweep", axes={"x": True}), "order.axes['x']"),
    (_order("sweep", axes={"x": "a..b"}), "order.axes['x']"),
    (_order("sweep", limit=10**6), "order.limit"),
]


@pytest.mark.parametrize(("data", "where"), _WRONG)
def test_wrong_orders_are_refused_by_codec_and_pydantic_alike(described: Any, data: Any, where: str) -> None:
    from pydantic import ValidationError

    with pytest.raises(InputError) as told:
        order_of(data)
    assert told.value.where == where
    with pytest.raises(ValidationError):
        described.validate_python(data)


_FREE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _LINE,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_LINE, inner, max_size=2),
    max_leaves=4,
)
_WORDS = ["", "a", "a\n", "\n", _A, _A.upper(), "1..2", "1..2\n", "\u2028", "cuda:sm_90", "cuda:sm_90\n", "x" * 1001]
_NUMBERS = [0, -1, 1.0, 0.5, 1e300, 2**24, 2**24 + 1, 2**70]
_EDGES = st.sampled_from([*_WORDS, *_NUMBERS, "h100-dgx:64", "h100-dgx:\u0663", "+avx,", "inf", True, None, [], {}])
#: Ways into orders: fields, keys and positions.
_PLACES_TEXT = """name machine target symbol mesh mesh/a annotations annotations/a settings/overlap_memory settings/tf32
settings/a values/0 cpu cpu/triple cpu/features sets/0/name sets/0/axes/x axes/x thresholds thresholds/m devices/0
programs/0 other_annotations conservative measured"""
_PLACES = st.sampled_from([tuple(0 if p == "0" else p for p in t.split("/")) for t in _PLACES_TEXT.split()])
_FULL: dict[str, Any] = {"cpu": {"triple": "x", "cpu": "", "features": ""}, "sets": [{"name": "q"}]}


def _put(at: Any, place: tuple[Any, ...], value: Any) -> Any:
    """``at`` with ``value`` at a place in it, which is made where it is not."""
    if not place:
        return value
    first, *rest = place
    if isinstance(first, int):
        return [_put((at or [None])[0], tuple(rest), value)]
    return {**(at or {}), first: _put((at or {}).get(first), tuple(rest), value)}


@settings(max_examples=300)
@given(st.sampled_from(sorted(ORDERS)), _PLACES, _EDGES | _FREE)
def test_codec_pydantic_and_the_description_agree(
    described: Any, schema: Any, kind: str, place: Any, value: Any
) -> None:
    known = {f.name for f in fields(ORDERS[kind])}
    if place[0] not in known:
        return
    whole = {"kind": kind, "program": _A, **{k: v for k, v in _FULL.items() if k in known}}
    data = _put(whole, place, value)
    try:
        found = order_of(data)
    except InputError:
        found = None
    try:
        theirs = described.validate_python(data)
    except ValueError:  # that of pydantic is one
        theirs = None
    assert found == theirs
    assert (found is not None) == schema.is_valid(data)


@pytest.mark.parametrize("data", [None, [], "compile", {}, {"kind": "delete"}, {"kind": ["compile"]}])
def test_what_is_no_order_is_refused(data: Any) -> None:
    with pytest.raises(InputError, match="order"):
        order_of(data)


def test_the_description_says_the_limits(described: Any) -> None:
    schema = described.json_schema()["$defs"]
    for kind in ORDERS.values():
        assert schema[kind.__name__]["additionalProperties"] is False
        required = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
        assert set(schema[kind.__name__]["required"]) == required == {"program"}
    explain = schema["ExplainOrder"]["properties"]
    assert (explain["remedies"]["minimum"], explain["remedies"]["maximum"]) == (0, 1000)
    assert explain["mesh"]["maxProperties"] == 16
    assert explain["mesh"]["additionalProperties"] is False
    assert explain["program"]["pattern"] == "^(?:[0-9a-f]{64})$"


def test_keys_tell_orders_apart_and_leave_equal_ones_alike() -> None:
    order = PartitionOrder(program=_A, mesh={"data": 2, "model": 4})
    assert order_key(order) == order_key(from_json(to_json(order)))
    assert len(order_key(order)) == 64
    others = [
        SimulateOrder(program=_A, mesh=order.mesh),
        replace(order, program=_B),
        replace(order, name="other"),
        replace(order, mesh={"model": 4, "data": 2}),  # axes have an order
        replace(order, annotations={"x": "data"}),
        replace(order, settings=replace(order.settings, tf32=True)),
    ]
    assert len({order_key(o) for o in (order, *others)}) == 7


def test_an_order_without_a_processor_is_for_the_server_s() -> None:
    order = CompileOrder(program=_A)
    found = resolve_order(order)
    assert isinstance(found, CompileOrder)
    assert found.cpu is not None
    assert order_key(order) == order_key(found)
    assert from_json(to_json(found)) == found
    assert resolve_order(found) is found
    assert order_key(replace(found, cpu=replace(found.cpu, cpu="other"))) != order_key(found)


@given(st.dictionaries(_LINE, st.binary(max_size=20), max_size=4), st.dictionaries(_LINE, _LINE, max_size=2))
def test_packages_come_back(files: dict[str, bytes], facts: dict[str, Any]) -> None:
    assert unpack(pack(files, facts)) == (files, facts)


@given(st.data())
def test_damaged_packages_are_noticed(draw: st.DataObject) -> None:
    data = pack({"a": b"12345", "b": b"678"}, {"x": [1, 2]})
    end = draw.draw(st.integers(0, len(data) - 1))
    with pytest.raises(RunError, match="message"):
        unpack(data[:end])
    with pytest.raises(RunError, match="message"):
        unpack(data + b"x")


def test_a_package_with_a_wild_header_is_refused() -> None:
    for text in (b"[]", b'{"files": {"a": -1}, "facts": {}}', b'{"files": [], "facts": {}}', b'{"files": {}}'):
        with pytest.raises(RunError, match="damaged"):
            unpack(len(text).to_bytes(8, "little") + text)
    with pytest.raises(RunError, match="damaged"):
        unpack((2**64 - 1).to_bytes(8, "little") + b"{}")
