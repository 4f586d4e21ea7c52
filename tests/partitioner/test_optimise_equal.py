"""Values that members have in common, and reductions of which each keeps a part: in the program's own collectives."""

from __future__ import annotations

import numpy as np
import pytest
from partition_support import collectives
from test_optimise import same

from shardc.hlo.evaluate import evaluate_spmd
from shardc.hlo.ir.groups import AxisGroups
from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.hlo.text.reader import read_hlo
from shardc.partitioner.optimise.drop_equal import DropEqual
from shardc.partitioner.optimise.reassociate import Reassociate
from shardc.partitioner.optimise.scatter_reductions import ScatterReductions

MESH = Mesh({"x": 2, "y": 2})
GROUPS = {"x": "{{0,2},{1,3}}", "y": "{{0,1},{2,3}}", "xy": "{{0,1,2,3}}"}

TEXT = """HloModule m, num_partitions=4

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}

max {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] maximum(a, b)
}}

ENTRY main {{
  p = f32[4,6] parameter(0)
  me = u32[] partition-id()
  two = u32[] constant(2)
  row = u32[] divide(me, two)
  column = u32[] remainder(me, two)
  zero = u32[] constant(0)
  x = {body}
}}
"""


def program(body: str, axes: str = "") -> Module:
    """The rest of the entry, whose parameter differs along ``axes``; groups over axes as such."""
    for name, listed in GROUPS.items():
        body = body.replace(f"over {name})", f"), channel_id=1, use_global_device_ids=true, replica_groups={listed}")
    module = read_hlo(TEXT.format(body=body)).with_(mesh=MESH, partitioned=True)
    names = {tuple(sorted(AxisGroups(MESH, tuple(map(AxisRef, n))).expand())): tuple(map(AxisRef, n)) for n in GROUPS}
    split = Sharding(MESH, (DimSharding(tuple(map(AxisRef, axes))), DimSharding()))

    def symbolic(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old.opcode == "parameter" and old.shape.rank == 2:
            return old.replace(sharding=split)
        groups = old.attrs.get("replica_groups")
        if groups is None:
            return None
        over = AxisGroups(MESH, names[tuple(sorted(groups.expand()))])
        return old.replace(operands=operands, attrs={**old.attrs, "replica_groups": over})

    return rebuild_module(module, symbolic)


@pytest.mark.parametrize(
    ("body", "axes", "expected"),
    [
        ("f32[4,6] all-reduce(p over x), to_apply=sum\n ROOT r = f32[4,6] add(x, p)", "y", []),
        ("f32[4,6] all-reduce(p over x), to_apply=max\n ROOT r = f32[4,6] add(x, p)", "y", []),
        ("f32[4,6] all-reduce(p over x), to_apply=sum\n ROOT r = f32[4,6] add(x, p)", "x", ["all-reduce"]),
        ("f32[4,6] all-reduce(p over xy), to_apply=sum\n ROOT r = f32[4,6] add(x, p)", "y", ["all-reduce"]),
        ("f32[8,6] all-gather(p over x), dimensions={0}\n ROOT r = f32[8,6] add(x, x)", "y", []),
        ("f32[4,12] all-gather(p over x), dimensions={1}\n ROOT r = f32[4,12] add(x, x)", "", []),
        ("f32[4,12] all-gather(p over y), dimensions={1}\n ROOT r = f32[4,12] add(x, x)", "y", ["all-gather"]),
        ("u32[4,6] broadcast(row), dimensions={}\n c = f32[4,6] convert(x)\n a = f32[4,6] add(c, p)\n"
         " ROOT r = f32[4,6] all-reduce(a over y), to_apply=sum", "x", []),
        ("u32[4,6] broadcast(column), dimensions={}\n c = f32[4,6] convert(x)\n a = f32[4,6] add(c, p)\n"
         " ROOT r = f32[4,6] all-reduce(a over y), to_apply=sum", "x", ["all-reduce"]),
    ],
)  # fmt: skip
def test_what_everybody_has_is_not_sent(body: str, axes: str, expected: list[str]) -> None:
    """Members whose values are equal by the parameter's sharding; others keep their collective."""
    before = program(body, axes)
    after = DropEqual().run(before)
    assert sorted(collectives(after)) == expected
    _same_where_equal(before, after, axes)


def _same_where_equal(before: Module, after: Module, axes: str) -> None:
    """On arguments that differ along ``axes`` only."""
    rng = np.random.default_rng(0)
    drawn = {k: rng.integers(-4, 5, (4, 6)).astype(np.float32) for k in range(4)}
    args = []
    for d in range(4):
        at = MESH.coordinates(d)
        args.append([drawn[sum(at[n] << k for k, n in enumerate("xy") if n in axes)]])
    for a, b in zip(evaluate_spmd(before, args), evaluate_spmd(after, args), strict=True):
        np.testing.assert_array_equal(a[0], b[0])


CUT = (
    "f32[4,6] all-reduce(p over {axes}), to_apply=sum\n {index}\n"
    " ROOT r = f32[{sizes}] dynamic-slice(x, {starts}), dynamic_slice_sizes={{{sizes}}}"
)
AT_ROW = "start = u32[] multiply(row, two)"
AT_COLUMN = "k = u32[] constant(3)\n start = u32[] multiply(column, k)"


@pytest.mark.parametrize(
    ("axes", "index", "sizes", "starts", "expected"),
    [
        ("x", AT_ROW, "2,6", "start, zero", "reduce-scatter"),
        ("y", AT_COLUMN, "4,3", "zero, start", "reduce-scatter"),
        ("x", AT_ROW + "\n k = u32[] constant(3)\n other = u32[] multiply(column, k)", "2,3", "start, other",
         "reduce-scatter"),
        ("xy", "start = u32[] add(me, zero)", "1,6", "start, zero", "reduce-scatter"),
        ("y", AT_ROW, "2,6", "start, zero", "all-reduce"),
        ("x", "k = u32[] subtract(two, row)\n start = u32[] multiply(k, row)", "2,6", "start, zero", "all-reduce"),
        ("x", "start = u32[] multiply(row, row)", "2,6", "start, zero", "all-reduce"),
    ],
)  # fmt: skip
def test_a_sum_cut_by_position_is_a_reduce_scatter(
    axes: str, index: str, sizes: str, starts: str, expected: str
) -> None:
    before = program(CUT.format(axes=axes, index=index, sizes=sizes, starts=starts), "xy")
    after = ScatterReductions().run(before)
    assert collectives(after) == [expected]
    same(before, after)


def test_a_sum_that_is_also_read_whole_stays() -> None:
    text = CUT.format(axes="x", index=AT_ROW, sizes="2,6", starts="start, zero").replace("ROOT r", "r")
    before = program(text + "\n ROOT out = (f32[2,6], f32[4,6]) tuple(r, x)", "xy")
    assert ScatterReductions().run(before) is before


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("f32[4,6] all-reduce(p over x), to_apply=sum\n ROOT r = f32[4,6] all-reduce(x over y), to_apply=sum",
         ["all-reduce"]),
        ("f32[4,6] all-reduce(p over x), to_apply=sum\n ROOT r = f32[4,6] all-reduce(x over y), to_apply=max",
         ["all-reduce", "all-reduce"]),
        ("f32[4,6] all-reduce(p over x), to_apply=sum\n ROOT r = f32[4,6] all-reduce(x over x), to_apply=sum",
         ["all-reduce", "all-reduce"]),
        ("f32[8,6] all-gather(p over x), dimensions={0}\n z = f32[] constant(0)\n"
         " ROOT r = f32[6] reduce(x, z), dimensions={0}, to_apply=sum", ["all-reduce"]),
        ("f32[8,6] all-gather(p over x), dimensions={0}\n z = f32[] constant(-inf)\n"
         " ROOT r = f32[] reduce(x, z), dimensions={0,1}, to_apply=max", ["all-reduce"]),
        ("f32[8,6] all-gather(p over x), dimensions={0}\n z = f32[] constant(1)\n"
         " ROOT r = f32[6] reduce(x, z), dimensions={0}, to_apply=sum", ["all-gather"]),
        ("f32[8,6] all-gather(p over x), dimensions={0}\n z = f32[] constant(0)\n"
         " ROOT r = f32[8] reduce(x, z), dimensions={1}, to_apply=sum", ["all-gather"]),
    ],
)  # fmt: skip
def test_reductions_that_follow_each_other(body: str, left: list[str]) -> None:
    before = program(body, "xy")
    after = Reassociate().run(before)
    assert sorted(collectives(after)) == left
    same(before, after)
