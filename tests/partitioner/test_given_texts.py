"""Global programs as XLA's dumps have them: asynchronous pairs, feeds, parts of the devices, device orders."""

from __future__ import annotations

import numpy as np
import pytest
from partition_support import integers, run_partitioned

from shardc.hlo.errors import AnnotationError, UnsupportedError
from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.ir.ir import Module
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo
from shardc.partitioner.equivalence import agree, scatter_arguments
from shardc.partitioner.partition import partition
from shardc.sharding.propagate import propagate


def same(text: str) -> Module:
    """The local program, which computes what the global one does."""
    whole = propagate(read_hlo(text)).module
    args = [integers(np.random.default_rng(0), p.shape) for p in whole.parameters]
    local, got = run_partitioned(whole, args)
    assert all(map(agree, got, evaluate(whole, args)))
    return local


def opcodes(module: Module) -> list[str]:
    return [i.opcode for i in module.instructions()]


PAIRS = """HloModule m, num_partitions=4

twice {
  p = f32[8,4] parameter(0)
  ROOT s = f32[8,4] add(p, p)
}

ENTRY main {
  x = f32[8,4] parameter(0), sharding={devices=[4,1]<=[4]}
  start = ((f32[8,4]), f32[8,4], u32[]) async-start(x), calls=twice
  update = ((f32[8,4]), f32[8,4], u32[]) async-update(start)
  y = f32[8,4] async-done(update)
  copying = (f32[8,4], f32[8,4], u32[]) copy-start(y)
  copied = f32[8,4] copy-done(copying)
  ROOT z = f32[8,4] multiply(copied, x), sharding={devices=[4,1]<=[4]}
}
"""


def test_asynchronous_pairs_are_their_operations() -> None:
    local = same(PAIRS)
    assert not [o for o in opcodes(local) if "start" in o or "done" in o or o.startswith("all-")]
    assert local.entry.root.shape.dims == (2, 4)


PART = """HloModule m

ENTRY main {
  x = f32[8,6] parameter(0), sharding={devices=[2,2]0,4,1,5}
  ROOT y = f32[8,6] add(x, x), sharding={devices=[4,1]0,1,4,5}
}
"""


def test_a_part_of_the_devices_is_numbered_in_order() -> None:
    local = same(PART)
    assert local.num_partitions == 4
    assert scatter_arguments(local, [np.arange(48, dtype=np.float32).reshape(8, 6)])[1][0][0, 0] == 24
    with pytest.raises(AnnotationError):
        propagate(read_hlo(PART.replace("HloModule m", "HloModule m, num_partitions=8")))


ORDERS = """HloModule m, num_partitions=4

ENTRY main {
  x = f32[8,6] parameter(0), sharding={devices=[4,1]3,1,2,0}
  y = f32[6,8] transpose(x), dimensions={1,0}, sharding={devices=[1,4]0,1,2,3}
  z = f32[6,8] negate(y), sharding={devices=[1,4]2,1,0,3}
  ROOT out = (f32[6,8], f32[6,8]) tuple(y, z), sharding={{devices=[1,4]<=[4]}, {devices=[1,4]3,2,1,0}}
}
"""


def test_orders_of_devices_that_do_not_nest() -> None:
    """Inside, every value is in one order; parameters and results lie where they should, by one permute each."""
    local = same(ORDERS)
    assert opcodes(local).count("collective-permute") == 2
    assert not [o for o in opcodes(local) if o.startswith("all-")]
    (given,) = zip(*scatter_arguments(local, [np.arange(48, dtype=np.float32).reshape(8, 6)]), strict=True)
    assert [int(x[0, 0]) for x in given] == [36, 12, 24, 0]
    assert [s.mesh.device_ids for s in local.entry.root.leaf_shardings()] == [None, (3, 2, 1, 0)]


MESHES = """
sdy.mesh @mesh = <["a"=2, "b"=2]>
sdy.mesh @other = <["a"=2, "b"=2], device_ids=[3, 2, 1, 0]>
func.func @main(%x: tensor<8x8xi32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {"b"}]>})
    -> (tensor<8x8xi32> {sdy.sharding = #sdy.sharding<@other, [{"b"}, {}]>}) {
  %0 = stablehlo.add %x, %x {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"a"}, {}]>]>} : tensor<8x8xi32>
  %1 = sdy.replicated_to_unreduced {"b"} %0 out_sharding=<@mesh, [{"a"}, {}], unreduced={"b"}> : tensor<8x8xi32>
  %2 = sdy.all_reduce {"b"} %1 out_sharding=<@mesh, [{"a"}, {}]> : tensor<8x8xi32>
  %3 = sdy.reshard %2 <@other, [{"a"}, {"b"}]> : tensor<8x8xi32>
  return %3 : tensor<8x8xi32>
}
"""


def test_meshes_with_other_devices_meet() -> None:
    pytest.importorskip("jaxlib")
    from shardc.hlo.stablehlo.reader import read_stablehlo

    whole = propagate(read_stablehlo(MESHES)).module
    x = np.arange(64, dtype=np.int32).reshape(8, 8)
    local, (result,) = run_partitioned(whole, [x])
    np.testing.assert_array_equal(result, x + x)
    parts = evaluate_spmd(local, scatter_arguments(local, [x]))
    assert [int(p[0][0, 0]) // 2 for p in parts] == [32, 0, 32, 0]


FEEDS = """HloModule m, num_partitions=2

ENTRY main {
  t = token[] after-all()
  fed = ((f32[9,2], f32[2]), token[]) infeed(t), sharding={{devices=[2,1]<=[2]}, {replicated}, {maximal device=0}}
  data = (f32[9,2], f32[2]) get-tuple-element(fed), index=0, sharding={{devices=[2,1]<=[2]}, {replicated}}
  after = token[] get-tuple-element(fed), index=1
  x = f32[9,2] get-tuple-element(data), index=0, sharding={devices=[2,1]<=[2]}
  y = f32[9,2] add(x, x)
  z = f32[9,2] parameter(0), sharding={devices=[1,2]<=[2]}
  given = (f32[9,2], f32[9,2]) tuple(y, z)
  out = token[] outfeed(given, after), outfeed_shape=(f32[9,2], f32[9,2]),
    sharding={{replicated}, {devices=[2,1]<=[2]}, {maximal device=0}}
  ROOT r = f32[9,2] negate(y), sharding={devices=[2,1]<=[2]}
}
"""


def test_feeds_are_of_each_device() -> None:
    local = partition(propagate(read_hlo(FEEDS)).module)
    by_opcode = {i.opcode: i for i in local.entry}
    assert [s.dims for s in by_opcode["infeed"].shape.leaves() if s.is_array] == [(5, 2), (2,)]
    assert [s.dims for s in by_opcode["outfeed"].operands[0].shape.leaves()] == [(9, 2), (5, 2)]
    assert "outfeed_shape=(f32[9,2]" in print_module(local)
    alone = FEEDS.replace("{devices=[2,1]<=[2]}, {maximal device=0}}\n", "{maximal device=1}, {maximal device=0}}\n")
    with pytest.raises(UnsupportedError, match="one device alone"):
        partition(propagate(read_hlo(alone)).module)


SCALED = """HloModule m, num_partitions=2

ENTRY main {
  x = f8e4m3fn[4,16,64] parameter(0), sharding={devices=[2,1,1]<=[2]}
  y = f8e4m3fn[4,4,64] parameter(1), sharding={devices=[2,1,1]<=[2]}
  s = f8e8m0fnu[4,16,2] parameter(2), sharding={devices=[2,1,1]<=[2]}
  t = f8e8m0fnu[4,4,2] parameter(3), sharding={devices=[2,1,1]<=[2]}
  ROOT z = f32[4,16,4] custom-call(x, y, s, t), custom_call_target="__op$block_scaled_dot",
    sharding={devices=[2,1,1]<=[2]}
}
"""


def test_calls_that_are_one_operation_split_like_it() -> None:
    local = partition(propagate(read_hlo(SCALED)).module)
    assert "scaled-dot" in opcodes(local)
    assert not [o for o in opcodes(local) if o.startswith("all-")]
