"""Layouts that no one mesh names together: shards lie where each annotation says, and values are right.

Arguments are cut, and results compared, by the annotation's own list of devices in NumPy.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from partition_support import check as equal

from shardc.hlo.errors import AnnotationError
from shardc.hlo.evaluate import evaluate_spmd
from shardc.hlo.ir.build import Builder, make_module
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AnySharding, AxisRef, DimSharding, Sharding, TileSharding
from shardc.hlo.ir.types import array_shape
from shardc.hlo.text.notations.tiles import tile_sharding
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.verify import verify
from shardc.partitioner.partition import partition
from shardc.sharding.propagate import propagate

DIMS = (7, 12)


def tiling(r: random.Random, devices: int) -> TileSharding:
    """Prime factors dealt to two dimensions and to copies; the devices in any order, or by digits."""
    primes = [p for p in (2, 2, 2, 3, 3, 5) if devices % p == 0]
    tile, rest = [1, 1, 1], devices
    for p in primes:
        if rest % p == 0:
            tile[r.randrange(3)] *= p
            rest //= p
    assert rest == 1
    if r.random() < 0.5:
        order = r.sample(range(devices), devices)
        return TileSharding("tiled", tuple(tile), tuple(order), (), (), ("replicated",), True)
    digits = [n for n in (math.gcd(tile[0] * tile[1], devices), 1) if n > 1] or [devices]
    digits = [*digits, devices // digits[0]]
    r.shuffle(digits)
    order = r.sample(range(2), 2)
    return TileSharding("tiled", tuple(tile), (), tuple(digits), tuple(order), ("replicated",), True)


def device_grid(t: TileSharding) -> NDArray[np.int64]:
    if t.devices:
        return np.asarray(t.devices).reshape(t.tile)
    return np.arange(math.prod(t.reshape)).reshape(t.reshape).transpose(t.transpose or None).reshape(t.tile)


def shards(whole: NDArray[Any], t: TileSharding) -> list[NDArray[Any]]:
    """What each device has, without padding."""
    grid = device_grid(t)
    sizes = [-(-n // k) for n, k in zip(whole.shape, t.tile, strict=False)]
    out: list[NDArray[Any]] = [whole] * grid.size
    for index in np.ndindex(grid.shape):
        part = tuple(slice(k * n, (k + 1) * n) for k, n in zip(index, sizes, strict=False))
        out[int(grid[index])] = whole[part]
    return out


def padded(part: NDArray[Any], t: TileSharding) -> NDArray[Any]:
    missing = [(0, -(-n // k) - have) for n, k, have in zip(DIMS, t.tile, part.shape, strict=False)]
    return np.pad(part, missing, constant_values=99)


def program(first: AnySharding, second: AnySharding, middle: AnySharding, result: AnySharding, **kwargs: Any) -> Module:
    b = Builder("main")
    x, y = (b.parameter(array_shape("s32", *DIMS), sharding=s) for s in (first, second))
    total = b.add("add", x, y, sharding=middle)
    turned = b.add("reverse", total, dimensions=(1,))
    pair = b.add("tuple", b.add("multiply", turned, x), total, sharding=(result, None))
    return make_module("m", b.build(pair), **kwargs)


def check(module: Module, tiles: Sequence[TileSharding]) -> None:
    """``tiles``: of both arguments and the first result."""
    local = partition(propagate(module).module)
    verify(local)
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-9, 9, DIMS).astype(np.int32) for _ in range(2))
    columns = [[padded(p, t) for p in shards(v, t)] for v, t in zip((x, y), tiles, strict=False)]
    results = evaluate_spmd(local, [list(row) for row in zip(*columns, strict=True)])
    for device, want in enumerate(shards((x + y)[:, ::-1] * x, tiles[2])):
        got = np.asarray(results[device][0])[tuple(map(slice, want.shape))]
        np.testing.assert_array_equal(got, want, err_msg=f"device {device}")


@pytest.mark.parametrize("seed", range(24))
def test_tiles_lie_where_each_text_says(seed: int) -> None:
    r = random.Random(seed)
    devices = r.choice((4, 6, 8, 12))
    tiles = [tiling(r, devices) for _ in range(4)]
    check(program(tiles[0], tiles[1], tiles[3], tiles[2], num_partitions=devices), tiles)


@pytest.mark.parametrize("seed", range(12))
def test_tiles_over_a_given_mesh(seed: int) -> None:
    r = random.Random(seed)
    mesh = r.choice((Mesh({"x": 2, "y": 3}), Mesh({"x": 6}), Mesh({"x": 2, "y": 4}, tuple(r.sample(range(8), 8)))))
    tiles = [tiling(r, mesh.size) for _ in range(4)]
    check(program(tiles[0], tiles[1], tiles[3], tiles[2], num_partitions=mesh.size, mesh=mesh), tiles)


def sub_axes(r: random.Random, mesh: Mesh) -> Sharding:
    """Each axis whole, or one or two parts of it, on dimensions at random."""
    dims: list[tuple[AxisRef, ...]] = [(), ()]
    for name, size in mesh.axes:
        cut = r.choice([n for n in range(1, size + 1) if size % n == 0])
        for pre, part in ((1, cut), (cut, size // cut)):
            d = r.randrange(3)
            if part > 1 and d < 2:
                dims[d] = (*dims[d], AxisRef(name, pre, part) if part < size else AxisRef(name))
    return Sharding(mesh, tuple(DimSharding(d) for d in dims))


@pytest.mark.parametrize("seed", range(24))
def test_sub_axes_that_do_not_nest(seed: int) -> None:
    r = random.Random(seed)
    mesh = r.choice((Mesh({"x": 6}), Mesh({"x": 12}), Mesh({"x": 2, "y": 6}), Mesh({"x": 18}, tuple(range(18))[::-1])))
    first, second, middle, result = (sub_axes(r, mesh) for _ in range(4))
    tiles = []
    for s in (first, second, result):
        t = tile_sharding(s)
        tiles.append(t if t.kind == "tiled" else TileSharding("tiled", (1, 1, mesh.size), (), (mesh.size,)))
    check(program(first, second, middle, result, mesh=mesh, num_partitions=mesh.size), tiles)


MANUAL = """HloModule m, num_partitions=4
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y) }
ENTRY e {
  p = f32[4,4] parameter(0), sharding={devices=[2,2]<=[4]}
  q = f32[4,4] parameter(1), sharding={devices=[2,1,2]0,3,1,2 last_tile_dim_replicate}
  both = f32[4,4] add(p, q), sharding={devices=[1,2,2]0,3,1,2 last_tile_dim_replicate}
  s = f32[4,4] custom-call(both), custom_call_target="Sharding", sharding={devices=[2,2]1,3,0,2}
  l = f32[2,2] custom-call(s), custom_call_target="SPMDFullToShardShape", sharding={manual}
  d = u32[] partition-id()INSIDE
  f = f32[] convert(d)
  b = f32[2,2] broadcast(f), dimensions={}
  a = f32[2,2] add(l, b)
  r = f32[2,2] all-reduce(a), replica_groups={{0,1},{2,3}}, channel_id=1, use_global_device_ids=true, to_apply=add
  t = f32[2,2] custom-call(r), custom_call_target="Sharding", sharding={manual}
  ROOT g = f32[4,4] custom-call(t), custom_call_target="SPMDShardToFullShape", sharding={devices=[2,2]1,3,0,2}
}"""


def test_manual_computations_keep_their_order_of_devices() -> None:
    local = partition(propagate(read_hlo(MANUAL.replace("INSIDE", ", sharding={manual}"))).module)
    rng = np.random.default_rng(0)
    p, q = (rng.integers(-9, 9, (4, 4)).astype(np.float32) for _ in range(2))
    given = TileSharding("tiled", (2, 2), (), (4,))
    halves = TileSharding("tiled", (2, 1, 2), (0, 3, 1, 2), (), (), ("replicated",), True)
    inside = TileSharding("tiled", (2, 2), (1, 3, 0, 2))
    columns = [list(row) for row in zip(shards(p, given), shards(q, halves), strict=True)]
    parts = [part + d for d, part in enumerate(shards(p + q, inside))]
    sums = [parts[0] + parts[1]] * 2 + [parts[2] + parts[3]] * 2
    for device, (result,) in enumerate(evaluate_spmd(local, columns)):
        np.testing.assert_array_equal(np.asarray(result), sums[device], err_msg=f"device {device}")


def test_who_asks_for_its_number_outside_of_manual_computations_keeps_all_orders() -> None:
    with pytest.raises(AnnotationError, match="no mesh can express both"):
        propagate(read_hlo(MANUAL.replace("INSIDE", "")))


def test_two_ways_to_cut_an_axis_meet_in_a_product() -> None:
    """``a.reshape(2, 3) @ a.reshape(3, 2)``: halves of thirds on one side, thirds of halves on the other."""
    text = """HloModule m, num_partitions=6
ENTRY e {
  a = s32[6] parameter(0), sharding={devices=[6]<=[6]}
  l = s32[2,3] reshape(a)
  r = s32[3,2] reshape(a)
  ROOT d = s32[2,2] dot(l, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""
    module = propagate(read_hlo(text)).module
    cuts = {str(i.axis_sharding) for i in module.entry}
    assert {"[{axis_0:(1)2}, {axis_0:(2)3}]", "[{axis_0:(1)3}, {axis_0:(3)2}]"} <= cuts
    equal(module)
