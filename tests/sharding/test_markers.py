"""Propagation of programs that say more than shardings: barriers, groups, reshards, manual computations, options."""

from __future__ import annotations

import pytest

from shardc.hlo.errors import AnnotationError
from shardc.hlo.ir.build import Builder, make_module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import array_shape
from shardc.hlo.stablehlo.reader import read_stablehlo
from shardc.sharding.propagate import Propagation, propagate
from shardc.sharding.propagation.options import PropagationOptions


def shown(p: Propagation) -> dict[str, str]:
    """The shardings by name of the instructions; leaves of tuples separated by blanks."""
    return {i.name: " ".join(map(str, i.leaf_shardings())) for i in p.module.entry}


MARKED = """module {
  sdy.mesh @m = <["x"=2, "y"=2]>
  func.func @main(%p: tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {?}]>}, %q: tensor<4x4xf32>,
                  %r: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
    %0 = sdy.propagation_barrier %p allowed_direction=BACKWARD : tensor<4x4xf32>
    %1 = stablehlo.sine %0 : tensor<4x4xf32>
    %2 = stablehlo.cosine %q : tensor<4x4xf32>
    sdy.sharding_group %2 group_id=3 : tensor<4x4xf32>
    sdy.sharding_group %p group_id=3 : tensor<4x4xf32>
    %3 = sdy.reshard %r <@m, [{"y"}, {}]> : tensor<4x4xf32>
    return %1, %3 : tensor<4x4xf32>, tensor<4x4xf32>
  }
}"""


def test_barriers_groups_and_reshards() -> None:
    pytest.importorskip("jaxlib")
    p = propagate(read_stablehlo(MARKED))
    found = shown(p)
    assert found["sine.1"] == "[{}, {}]", "the barrier lets nothing pass forward"
    assert found["cosine.1"] == found["parameter.2"] == "[{x}, {}]", "in the group of the first argument"
    assert found["custom-call.4"] == "[{y}, {}]"
    assert found["parameter.3"] == "[{}, {}]", "nothing spreads through a reshard"
    targets = {i.attrs["custom_call_target"] for i in p.module.entry if i.opcode == "custom-call"}
    assert targets == {"Sharding"}, "markers have done their work"


def test_members_of_a_group_have_one_shape() -> None:
    pytest.importorskip("jaxlib")
    text = MARKED.replace("%q: tensor<4x4xf32>", "%q: tensor<8x4xf32>").replace(
        "%2 = stablehlo.cosine %q : tensor<4x4xf32>", "%2 = stablehlo.cosine %q : tensor<8x4xf32>"
    )
    text = text.replace("%2 group_id=3 : tensor<4x4xf32>", "%2 group_id=3 : tensor<8x4xf32>")
    with pytest.raises(AnnotationError, match=r"\[8, 4\].*\[4, 4\]"):
        propagate(read_stablehlo(text))


def test_conservative_propagation_splits_no_axis() -> None:
    b = Builder("main")
    x = b.parameter(array_shape("f32", 8), sharding=Sharding.of(Mesh({"a": 4}), "a"))
    b.add("reshape", x, shape=array_shape("f32", 2, 4), name="r")
    module = make_module("m", b.build(), mesh=Mesh({"a": 4}), num_partitions=4)
    assert shown(propagate(module))["r"] == "[{a:(1)2}, {a:(2)2}]"
    assert shown(propagate(module, options=PropagationOptions(conservative=True)))["r"] == "[{}, {}]"


def test_a_strict_interface_is_even_and_of_whole_axes() -> None:
    b = Builder("main")
    x = b.parameter(array_shape("f32", 8), sharding=Sharding.of(Mesh({"a": 4}), "a"))
    b.parameter(array_shape("f32", 6), sharding=Sharding.of(Mesh({"a": 4}), "a"), name="uneven")
    b.add("reshape", x, shape=array_shape("f32", 2, 4), name="r")
    module = make_module("m", b.build(), mesh=Mesh({"a": 4}), num_partitions=4)
    assert shown(propagate(module))["uneven"] == "[{a}]", "as asked for"
    assert shown(propagate(module, options=PropagationOptions(strict_interface=True)))["uneven"] == "[{a:(1)2}]"


def test_free_axes_cross_the_border_of_a_manual_computation() -> None:
    pytest.importorskip("jaxlib")
    text = """module {
  sdy.mesh @m = <["x"=2, "y"=2]>
  func.func @main(%p: tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {"y"}]>}) -> tensor<4x4xf32> {
    %0 = sdy.manual_computation(%p) in_shardings=[<@m, [{"x"}, {?}]>] out_shardings=[<@m, [{"x"}, {?}]>]
        manual_axes={"x"} (%a: tensor<2x4xf32>) {
      %1 = stablehlo.sine %a : tensor<2x4xf32>
      sdy.return %1 : tensor<2x4xf32>
    } : (tensor<4x4xf32>) -> tensor<4x4xf32>
    return %0 : tensor<4x4xf32>
  }
}"""
    found = shown(propagate(read_stablehlo(text)))
    assert found["sine.1"] == "[{}, {y}]"
    assert found["tuple.1"] == "[{x}, {y}]"
