"""Programs as XLA dumps them before its passes: what Shardy's attributes and custom calls say is read."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.hlo.errors import ParseError
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.text.equal import same_module
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.text.shardy import with_shardy
from shardc.hlo.verify import verify

HEADER = """HloModule m, num_partitions=4, frontend_attributes={k="v",
    xla.sdy.meshes={mesh = #sdy.mesh<["x"=2, "y"=2]>}}

"""
ATTRIBUTES = (
    HEADER
    + r"""
ENTRY main {
  a = f32[4,4] parameter(0), sharding={replicated}, frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh,
    [{\"x\", ?}, {}p1], unreduced={\"y\"}>"}
  b = f32[4,4] tanh(a), sharding={devices=[4,1]<=[4]}
  c = f32[4,4] custom-call(b), custom_call_target="xla.sdy.FuncResultSharding", custom_call_has_side_effect=true,
    sharding={replicated},
    frontend_attributes={xla.sdy.sharding="#sdy.sharding_per_value<[<@mesh, [{}, {\"x\":(1)2}]>]>",z="1"}
  ROOT t = (f32[4,4], f32[4,4]) tuple(b, c),
    frontend_attributes={xla.sdy.sharding="#sdy.sharding_per_value<[<@mesh, [{\"y\"}, {}]>, <mesh<[\"w\"=4]>,
    [{\"w\"}, {}]>]>"}
}
"""
)
SUM = """
sum {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT s = f32[] add(p, q)
}
"""
OLD_SHARD_MAP = (
    HEADER
    + SUM
    + r"""
xla.sdy.manual_computation_body.1 {
  l = f32[4,2] parameter(0)
  k = f32[2] parameter(1)
  total = f32[4,2] all-reduce(l), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=sum
  ROOT r = (f32[4,2], f32[2]) tuple(total, k)
}

ENTRY main {
  a = f32[4,4] parameter(0)
  b = f32[4] parameter(1)
  in = (f32[4,2], f32[2]) custom-call(a, b), custom_call_target="xla.sdy.GlobalToLocalShape",
    custom_call_has_side_effect=true, frontend_attributes={xla.sdy.in_shardings="#sdy.sharding_per_value<[<@mesh,
    [{}, {\"y\"}]>, <@mesh, [{\"y\"}]>]>",xla.sdy.manual_axes="#sdy<manual_axes{\"x\", \"y\"}>"}
  in0 = f32[4,2] get-tuple-element(in), index=0
  in1 = f32[2] get-tuple-element(in), index=1
  body = (f32[4,2], f32[2]) call(in0, in1), to_apply=xla.sdy.manual_computation_body.1,
    frontend_attributes={inlineable="false"}
  o0 = f32[4,2] get-tuple-element(body), index=0
  o1 = f32[2] get-tuple-element(body), index=1
  out = (f32[4,2], f32[4]) custom-call(o0, o1), custom_call_target="xla.sdy.LocalToGlobalShape",
    frontend_attributes={xla.sdy.manual_axes="#sdy<manual_axes{\"x\", \"y\"}>",
    xla.sdy.out_shardings="#sdy.sharding_per_value<[<@mesh, [{}, {}]>, <@mesh, [{\"y\"}]>]>"}
  left = f32[4,2] get-tuple-element(out), index=0
  right = f32[4] get-tuple-element(out), index=1
  ROOT t = (f32[4,2], f32[4]) tuple(left, right)
}
"""
)
NEW_SHARD_MAP = (
    "HloModule m, num_partitions=4\n\n"
    + SUM
    + """
xla.sdy.manual_computation_body.1 {
  l = f32[4,2] parameter(0)
  ROOT total = f32[4,2] all-reduce(l), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true,
    to_apply=sum
}

ENTRY main {
  a = f32[4,4] parameter(0)
  c = f32[4,4] custom-call(a), custom_call_target="Sharding", sharding={mesh['x'=2,'y'=2], [{}, {'y'}]}
  in = f32[4,2] custom-call(c), custom_call_target="xla.sdy.GlobalToLocalShape", sharding={mesh['x'=2,'y'=2], manual}
  body = f32[4,2] call(in), to_apply=xla.sdy.manual_computation_body.1, sharding={mesh['x'=2,'y'=2], manual}
  ROOT out = f32[4,2] custom-call(body), custom_call_target="xla.sdy.LocalToGlobalShape",
    sharding={mesh['x'=2,'y'=2], [{}, {}]}
}
"""
)


def read(text: str) -> Module:
    module = read_hlo(text)
    assert same_module(module, read_hlo(print_module(module)))
    converted = with_shardy(module)
    verify(converted)
    return converted


def test_attributes_win_over_shardings() -> None:
    module = read(ATTRIBUTES)
    assert module.mesh == Mesh({"x": 2, "y": 2})
    assert module.attrs["frontend_attributes"] == (("k", "v"),)
    a, b, c, t = module.entry
    assert str(a.sharding) == "[{x, ?}, {}p1] unreduced={y}" and not isinstance(b.sharding, Sharding)
    assert (c.attrs["custom_call_target"], str(c.sharding)) == ("Sharding", "[{}, {x}]")
    assert c.attrs["frontend_attributes"] == (("z", "1"),) and "frontend_attributes" not in t.attrs
    assert [str(s) for s in t.leaf_shardings()] == ["[{y}, {}]", "[{w}, {}]"]


@pytest.mark.parametrize("text", [OLD_SHARD_MAP, NEW_SHARD_MAP])
def test_manual_computations(text: str) -> None:
    module = read(text)
    calls = [i for i in module.entry if i.opcode == "custom-call"]
    crossing = [i for i in calls if str(i.attrs["custom_call_target"]).startswith("xla.sdy.")]
    assert len(module.entry.instructions) > len(crossing) >= 2
    assert {i.attrs["frontend_attributes"] for i in crossing} == {(("xla.sdy.manual_axes", "x,y"),)}
    assert not any(i.opcode == "call" for i in module.instructions())
    a = np.arange(16, dtype=np.float32).reshape(4, 4)
    results = evaluate(module, [a, a[0]][: len(module.parameters)])
    np.testing.assert_array_equal(results[0], a[:, :2] + a[:, 2:])
    if len(results) > 1:
        np.testing.assert_array_equal(results[1], a[0])


def test_programs_without_shardy_stay() -> None:
    module = read_hlo("ENTRY e { ROOT x = f32[4] parameter(0), sharding={devices=[4]<=[4]} }")
    assert with_shardy(module) is module


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<@mesh, [{}, {", "<@other, [{}, {", "there is no mesh @other"),
        ('<["x"=2, "y"=2]', '<["x"=2, "x"=2]', "given twice"),
        ("sdy.sharding_per_value<[<@mesh, [{}", "sdy.nothing<[<@mesh, [{}", "expected #sdy.sharding"),
    ],
)
def test_wrong_annotations_are_named(old: str, new: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        with_shardy(read_hlo(ATTRIBUTES.replace(old, new)))
