"""Report: formulae, trip counts, flops, memory; names that the printed program has too."""

from __future__ import annotations

import json

import pytest
from partition_programs import matmul, total
from partition_support import layout, with_shardings

from shardc.costs.kernels.trips import count_executions, trip_count
from shardc.costs.network.wire_bytes import wire_bytes
from shardc.costs.ops.table import instruction_flops
from shardc.hlo.ir.build import Builder, binary_computation, make_module
from shardc.hlo.ir.groups import AxisGroups, AxisPairs, ListGroups
from shardc.hlo.ir.ir import Computation, Instruction, Metadata, Module, topological
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, Sharding
from shardc.hlo.ir.types import array_shape
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo
from shardc.partitioner.partition import partition
from shardc.partitioner.report import build_report

MESH = Mesh({"x": 2, "y": 4})


def collective(opcode: str, dims: int, **attrs: object) -> Instruction:
    shape = array_shape("f32", dims)
    return Instruction(opcode, shape, (Instruction("parameter", shape, (), {"index": 0}),), attrs)


def test_wire_bytes_follow_the_bandwidth_optimal_formulae() -> None:
    groups = AxisGroups(MESH, (AxisRef("y"),))
    assert wire_bytes(collective("all-reduce", 8, replica_groups=groups)) == 2 * 32 * 3 / 4
    assert wire_bytes(collective("all-gather", 8, replica_groups=groups)) == 32 * 3 / 4
    assert wire_bytes(collective("reduce-scatter", 8, replica_groups=groups)) == 32 * 3
    assert wire_bytes(collective("all-to-all", 8, replica_groups=groups)) == 32 * 3 / 4
    pairs = AxisPairs(MESH, (AxisRef("x"),), ((0, 1), (1, 0)))
    assert wire_bytes(collective("collective-permute", 8, source_target_pairs=pairs)) == 32
    assert wire_bytes(collective("all-reduce", 8, replica_groups=ListGroups()), 8) == 2 * 32 * 7 / 8


def loop(start: int, step: int, limit: int, direction: str, *, swap: bool = False) -> Instruction:
    b = Builder("main")
    init = b.add("tuple", b.constant(start, "s32"))
    c = Builder("condition")
    i = c.add("get-tuple-element", c.parameter(init.shape), index=0)
    sides = (i, c.constant(limit, "s32"))
    test = c.build(c.add("compare", *(reversed(sides) if swap else sides), direction=direction))
    body = Builder("body")
    i = body.add("get-tuple-element", body.parameter(init.shape), index=0)
    done = body.build(body.add("tuple", body.add("add", i, body.constant(step, "s32"))))
    return b.add("while", init, condition=test, body=done)


@pytest.mark.parametrize(
    ("start", "step", "limit", "direction", "swap", "count"),
    [
        (0, 1, 10, "LT", False, 10),
        (0, 3, 10, "LT", False, 4),
        (0, 1, 10, "LE", False, 11),
        (10, -2, 0, "GT", False, 5),
        (10, -1, 0, "GE", False, 11),
        (0, 2, 10, "NE", False, 5),
        (0, 3, 10, "NE", False, None),
        (0, 1, 10, "GT", True, 10),
        (5, 1, 5, "LT", False, 0),
        (0, -1, 5, "LT", False, None),
        (0, 1, 5, "EQ", False, None),
    ],
)
def test_trip_counts(start: int, step: int, limit: int, direction: str, swap: bool, count: int | None) -> None:
    assert trip_count(loop(start, step, limit, direction, swap=swap)) == count


def test_executions_multiply_along_calls() -> None:
    inner = loop(0, 1, 3, "LT")
    module = make_module("m", Computation("main", topological([inner]), inner))
    counts = {c.name: n for c, n in count_executions(module).count.items()}
    assert counts == {"main": 1, "condition": 4, "body": 3}


def test_flops() -> None:
    b = Builder("main")
    x, y = b.parameter(array_shape("f32", 4, 8)), b.parameter(array_shape("f32", 8, 2))
    assert instruction_flops(matmul(b, x, y)) == 2 * 4 * 8 * 2
    assert instruction_flops(b.add("add", x, x)) == 32
    assert instruction_flops(b.add("copy", x)) == 0
    assert instruction_flops(total(b, x, (1,))) == 32
    assert instruction_flops(b.add("transpose", x, dimensions=(1, 0))) == 0


def example() -> Module:
    b = Builder("main", metadata=Metadata(source_file="model.py", source_line=7))
    x, y = b.parameter(array_shape("f32", 5, 8), "x"), b.parameter(array_shape("f32", 8, 6), "y")
    root = b.add("tuple", total(b, matmul(b, x, y), (0,)), x)
    places = {"x": layout(MESH, None, "y"), "y": layout(MESH, "y", None)}
    module = with_shardings(b.build(root), MESH, lambda i: places.get(i.name) or Sharding.replicate(MESH, i.shape.rank))
    return partition(module.with_(arg_names=("inputs", "weights"), result_names=("sum", "copy")))


def test_report_fields() -> None:
    local = example()
    report = build_report(local, seconds={"partition": 0.5})
    json.dumps(report)
    assert (report["devices"], report["mesh"]) == (8, {"x": 2, "y": 4})
    assert report["parameters"][0] == {
        "name": "inputs",
        "index": 0,
        "dtype": "f32",
        "global_shape": [5, 8],
        "local_shape": [5, 2],
        "sharding": "[{}, {y}]",
    }
    assert [r["name"] for r in report["results"]] == ["sum", "copy"]
    assert report["seconds"] == {"partition": 0.5}
    assert report["wire_bytes"] == sum(c["wire_bytes"] for c in report["collectives"])
    for row in report["collectives"]:
        assert row["source"] == "model.py:7"
        assert row["reason"]
        assert f"%{row['name']} = " in print_module(local)
    assert report["peak_bytes"] >= sum(p.shape.nbytes for p in local.parameters)
    assert build_report(local, peak_bytes=99)["peak_bytes"] == 99


def test_reports_do_not_depend_on_the_run() -> None:
    assert build_report(example()) == build_report(example())
    assert print_module(example()) == print_module(example())


def test_loops_of_unknown_length_are_flagged() -> None:
    b = Builder("main")
    n, x = b.parameter(array_shape("s32"), "n"), b.parameter(array_shape("f32", 8), "x")
    init = b.add("tuple", n, x)
    c = Builder("condition")
    i = c.add("get-tuple-element", c.parameter(init.shape), index=0)
    test = c.build(c.add("compare", i, c.constant(10, "s32"), direction="LT"))
    inner = Builder("body")
    p = inner.parameter(init.shape)
    i, y = (inner.add("get-tuple-element", p, index=k) for k in range(2))
    s = inner.add("reduce", y, inner.constant(0.0, "f32"), dimensions=(0,), to_apply=binary_computation("add", "f32"))
    y = inner.add("subtract", y, inner.add("broadcast", s, shape=y.shape, dimensions=()))
    body = inner.build(inner.add("tuple", inner.add("add", i, inner.constant(1, "s32")), y))
    out = b.add("get-tuple-element", b.add("while", init, condition=test, body=body), index=1)
    module = with_shardings(
        b.build(out), MESH, lambda i: layout(MESH, "y") if i.shape.rank else Sharding.replicate(MESH, 0)
    )
    (row,) = build_report(partition(module))["collectives"]
    assert row["unknown_trip_count"]
    assert row["count"] == 1


def test_a_compilers_own_count_of_a_loop_is_believed() -> None:
    text = """HloModule m, num_partitions=4

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

body {
  p = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8] get-tuple-element(p), index=1
  y = f32[8] all-reduce(x), replica_groups={}, to_apply=add
  ROOT t = (s32[], f32[8]) tuple(i, y)
}

condition {
  p = (s32[], f32[8]) parameter(0)
  ROOT more = pred[] custom-call(p), custom_call_target="opaque"
}

ENTRY main {
  p = (s32[], f32[8]) parameter(0)
  ROOT w = (s32[], f32[8]) while(p), condition=condition, body=body, backend_config={"known_trip_count":{"n":"7"}}
}
"""
    (row,) = build_report(read_hlo(text))["collectives"]
    assert (row["count"], row["group_size"], row["unknown_trip_count"]) == (7, 4, False)
    assert row["wire_bytes"] == 7 * 2 * 32 * 3 / 4
