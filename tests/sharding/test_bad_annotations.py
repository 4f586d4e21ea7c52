"""Every wrong annotation, in every form that annotations come in, is one error: value, dimension, axis, source line.

The forms are the API (P and Sharding objects), the text of ``--annotate``, Shardy's attributes in StableHLO, and the
``sharding=`` of HLO text, with named meshes and with tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shardc.hlo.errors import AnnotationError, ParseError, ShardcError
from shardc.hlo.ir.build import Builder, make_module
from shardc.hlo.ir.ir import Metadata, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.hlo.ir.types import array_shape
from shardc.hlo.stablehlo.reader import read_stablehlo
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.text.shardy import with_shardy
from shardc.sharding.notations.annotate import annotate
from shardc.sharding.notations.partition_spec import P
from shardc.sharding.propagate import propagate

MESH = Mesh({"a": 2, "b": 4})


def plain() -> Module:
    b = Builder("main")
    x = b.parameter(array_shape("f32", 8, 16), "x")
    b.instructions[-1] = x = x.replace(metadata=Metadata("x", source_file="mlp.py", source_line=3))
    return make_module("m", b.build(b.add("negate", x)), arg_names=("x",))


def by_api(spec: object) -> Callable[[], object]:
    return lambda: annotate(plain(), {"x": spec}, MESH)


def by_object(s: Sharding) -> Callable[[], object]:
    """The sharding is on the instruction already, as programs built by hand have it."""
    b = Builder("main")
    x = b.parameter(array_shape("f32", 8, 16), "x", sharding=s)
    y = b.add("negate", x, metadata=Metadata("y", source_file="mlp.py", source_line=3))
    return lambda: propagate(make_module("m", b.build(y), mesh=s.mesh))


def dims(*axes: tuple[AxisRef, ...]) -> tuple[DimSharding, ...]:
    return tuple(DimSharding(a) for a in axes)


def by_sdy(sharding: str, body: str = "", second: str = "[{}, {}]") -> Callable[[], object]:
    text = f"""sdy.mesh @mesh = <["a"=2, "b"=4]>
func.func @main(%x: tensor<8x16xf32> {{sdy.sharding = #sdy.sharding<@mesh, {sharding}>}},
                %y: tensor<8x16xf32> {{sdy.sharding = #sdy.sharding<@mesh, {second}>}}) -> tensor<8x16xf32> {{
  {body or "%0 = stablehlo.tanh %x : tensor<8x16xf32>"}
  return %0 : tensor<8x16xf32>
}}
"""
    return lambda: propagate(read_stablehlo(text, "step.mlir"))


def on_tanh(sharding: str) -> Callable[[], object]:
    attr = f"sdy.sharding = #sdy.sharding_per_value<[<@mesh, {sharding}>]>"
    return by_sdy("[{}, {}]", f"%0 = stablehlo.tanh %x {{{attr}}} : tensor<8x16xf32>")


def by_hlo(sharding: str, partitions: int = 8, second: str = "{replicated}") -> Callable[[], object]:
    text = f"""HloModule m, num_partitions={partitions}
ENTRY main {{
  x = f32[8,16] parameter(0), sharding={sharding}
  ROOT y = f32[8,16] negate(x), sharding={second}, metadata={{source_file="mlp.py" source_line=7}}
}}
"""
    return by_text(text)


def by_text(text: str) -> Callable[[], object]:
    return lambda: propagate(with_shardy(read_hlo(text, "step.hlo")))


#: The text does not say of which mesh the axis is.
MANUAL = """HloModule m, num_partitions=2
ENTRY main {
  x = f32[8,16] parameter(0), sharding={devices=[2,1]<=[2]}
  ROOT y = f32[4,16] custom-call(x), custom_call_target="xla.sdy.GlobalToLocalShape",
    frontend_attributes={xla.sdy.manual_axes="#sdy<manual_axes{\\"q\\"}>"}
}
"""


def named(rest: str) -> str:
    return "{mesh['a'=2,'b'=4], " + rest + "}"


A, B = AxisRef("a"), AxisRef("b")
INSIDE = """%0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"a"}, {}]>] out_shardings=[<@mesh, [{"a"}, {}]>]
    manual_axes={"a"} (%u: tensor<4x16xf32>) {
    %1 = stablehlo.tanh %u {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {"a"}]>]>} : tensor<4x16xf32>
    sdy.return %1 : tensor<4x16xf32>
  } : (tensor<8x16xf32>) -> tensor<8x16xf32>"""
GROUP = """sdy.sharding_group %x group_id=0 : tensor<8x16xf32>
  %r = stablehlo.reshape %y : (tensor<8x16xf32>) -> tensor<16x8xf32>
  sdy.sharding_group %r group_id=0 : tensor<16x8xf32>
  %0 = stablehlo.tanh %x : tensor<8x16xf32>"""

#: case: how it is written, and what the error must say.
CASES: dict[str, tuple[Callable[[], object], list[str]]] = {
    "axis twice, P": (by_api(P("a", "a")), ["axis a is used twice", "argument x", "dimension 1", "mlp.py:3"]),
    "axis twice, text": (by_api("a,a"), ["axis a is used twice", "argument x", "dimension 1", "mlp.py:3"]),
    "axis twice, object": (
        by_object(Sharding(MESH, dims((A,), (A,)))),
        ["axis a is used twice", "%x", "dimension 1", "dimension 0"],
    ),
    "axis twice, sdy argument": (
        by_sdy('[{"a"}, {"a"}]'), ['axis "a" is used twice', "argument 0 (%x)", "dimension 0 and dimension 1", "mlir:2"]
    ),
    "axis twice, second sdy argument": (
        by_sdy("[{}, {}]", second='[{"b", "a"}, {"b"}]'), ['"b" is used twice', "argument 1 (%y)", "dimension 1"]
    ),
    "axis twice, sdy operation": (
        on_tanh('[{"a"}, {"a"}]'), ['axis "a" is used twice', "%0 (stablehlo.tanh)", "dimension 1", "step.mlir:4"]
    ),
    "axis twice, named mesh": (
        by_hlo(named("[{'a'}, {'a'}]")), ["axis a is used twice", "%x", "dimension 0 and dimension 1", "hlo:3"]
    ),
    "axis twice, tiles": (by_hlo("{devices=[2,2]0,1,1,2}", 4), ["a device is listed twice", "%x", "step.hlo:3"]),
    "unknown axis, P": (by_api(P(None, "c")), ["no axis 'c'", "argument x", "dimension 1", "mlp.py:3", "a, b"]),
    "unknown axis, text": (by_api("None,c"), ["no axis 'c'", "argument x", "dimension 1", "mlp.py:3", "a, b"]),
    "unknown axis, object": (by_object(Sharding(MESH, dims((AxisRef("c"),), ()))), ["no axis 'c'", "dimension 0"]),
    "unknown axis, sdy": (by_sdy('[{}, {"c"}]'), ['no axis "c"', "argument 0 (%x)", "dimension 1", "step.mlir:2"]),
    "unknown axis, named mesh": (by_hlo(named("[{}, {'c'}]")), ["no axis 'c'", "%x", "dimension 1", "hlo:3", "a, b"]),
    "dimension out of range, P": (by_api(P(None, None, "a")), ["3 entries", "2 dimensions", "argument x", "mlp.py:3"]),
    "dimension out of range, text": (by_api("None,None,a"), ["3 entries", "f32[8,16]", "argument x", "mlp.py:3"]),
    "another rank, object by API": (
        by_api(Sharding(MESH, dims((A,)))), ["1 dimension", "f32[8,16]", "argument x", "mlp.py:3"]
    ),
    "another rank, object": (by_object(Sharding(MESH, dims((A,)))), ["1 dimensions", "f32[8,16]", "%x"]),
    "another rank, sdy": (
        by_sdy('[{"a"}, {}, {}]'), ["3 dimensions, but the value has 2", "argument 0 (%x)", "mlir:2"]
    ),
    "another rank, sdy constraint": (
        by_sdy("[{}, {}]", '%0 = sdy.sharding_constraint %x <@mesh, [{"a"}]> : tensor<8x16xf32>'),
        ["1 dimensions, but the value has 2", "%0 (sdy.sharding_constraint)", "step.mlir:4"],
    ),
    "another rank, named mesh": (by_hlo(named("[{'a'}, {}, {}]")), ["3 dimensions", "f32[8,16]", "%x", "step.hlo:3"]),
    "another rank, tiles": (by_hlo("{devices=[2,2,2]<=[8]}"), ["3 dimensions", "value has 2", "%x", "step.hlo:3"]),
    "another rank, tiles on an operation": (
        by_hlo("{replicated}", second="{devices=[2,2,2]<=[8]}"), ["3 dimensions", "%y", "mlp.py:7"]
    ),
    "sub-axis that does not divide, text": (
        by_api("b:(1)3"), ["sub-axis b:(1)3 does not fit axis 'b' of size 4", "argument x", "dimension 0", "mlp.py:3"]
    ),
    "sub-axis that does not divide, P": (
        by_api(P(AxisRef("b", 1, 3))), ["sub-axis b:(1)3", "argument x", "dimension 0"]
    ),
    "sub-axis that does not divide, object": (
        by_object(Sharding(MESH, dims((), (AxisRef("b", 1, 3),)))), ["sub-axis b:(1)3", "%x", "dimension 1"]
    ),
    "sub-axis that does not divide, sdy": (
        by_sdy('[{}, {"b":(1)3}]'), ['sub-axis "b":(1)3 does not divide', "argument 0 (%x)", "dimension 1", "mlir:2"]
    ),
    "sub-axis that does not divide, named mesh": (
        by_hlo(named("[{}, {'b':(1)3}]")), ["sub-axis b:(1)3 does not divide", "%x", "dimension 1", "hlo:3"]
    ),
    "sub-axes that do not nest": (
        by_object(Sharding(Mesh({"a": 6}), dims((AxisRef("a", 1, 2),), (AxisRef("a", 3, 2),)))),
        ["do not nest", "%x", "dimension 1"],
    ),
    "group of two shapes, sdy": (
        by_sdy("[{}, {}]", GROUP), ["[8, 16]", "[16, 8]", "sharding group", "%reshape.1", "step.mlir:5"]
    ),
    "manual axis inside, sdy": (
        by_sdy("[{}, {}]", INSIDE), ['axis "a" is handled by the manual computation', "dimension 1", "mlir:6", "%1"]
    ),
    "manual axis on a dimension, object": (
        by_object(Sharding(MESH, dims((A,), ()), manual=("a",))), ["axis a is used twice", "manual axes", "dimension 0"]
    ),
    "manual axis on a dimension, named mesh": (
        by_hlo(named("[{'a'}, {}], manual={'a'}")), ["axis a is used twice", "dimension 0 and the manual axes"]
    ),
    "other number of devices": (by_hlo("{devices=[2,2]<=[4]}"), ["4 devices, but num_partitions is 8", "%x", "hlo:3"]),
    "other devices": (
        by_hlo("{devices=[2,1]0,1}", 1, "{devices=[2,1]0,5}"), ["other devices than 0 to 1", "%y (mlp.py:7)"]
    ),
    "manual axis of no mesh": (
        by_text(MANUAL),
        ["manual axis 'q' is not an axis of the mesh [axis_0=2]", "%y", "(step.hlo:4)", "xla.sdy.meshes"],
    ),
    "unreduced twice": (
        by_object(Sharding(MESH, dims((A,), ()), unreduced=(A,))), ["axis a is used twice", "unreduced", "dimension 0"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_one_clear_error(case: str) -> None:
    run, parts = CASES[case]
    with pytest.raises(ShardcError) as caught:
        run()
    assert isinstance(caught.value, AnnotationError | ParseError)
    missing = [p for p in parts if p not in str(caught.value)]
    assert not missing, f"{missing} not in\n{caught.value}"
    assert len(str(caught.value).splitlines()) <= 4


def test_groups_whose_members_disagree_say_so(caplog: pytest.LogCaptureFixture) -> None:
    """Shardy keeps the members' own shardings and warns; so do we, with their names."""
    body = """sdy.sharding_group %x group_id=0 : tensor<8x16xf32>
  sdy.sharding_group %y group_id=0 : tensor<8x16xf32>
  %0 = stablehlo.tanh %x : tensor<8x16xf32>"""
    by_sdy('[{"a"}, {}]', body, '[{"b"}, {}]')()
    assert any("sharding group" in r.message and "%parameter.1" in r.message for r in caplog.records)


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        (((2, 4), ("rows", "columns")), 'Mesh({"rows": 2, "columns": 4})'),
        (({"data": "2"},), 'Mesh({"data": 2})'),
        (({"data": None},), 'Mesh({"data": 2, "model": 2})'),
        ((4,), 'Mesh({"data": 2, "model": 2})'),
    ],
)
def test_a_mesh_of_something_else_says_how_it_is_written(given: tuple[Any, ...], fix: str) -> None:
    with pytest.raises(AnnotationError) as caught:
        Mesh(*given)
    assert caught.value.fix == fix
