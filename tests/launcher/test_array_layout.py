"""Where shards lie, against the partitioner's own cutting and joining of arrays."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.collectives.in_process.transport import LocalTransport
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.hlo.ir.types import DTYPES
from shardc.launcher.arrays.array import Array
from shardc.launcher.arrays.layout import ArrayLayout
from shardc.launcher.arrays.placement import layout_of
from shardc.launcher.driver.arguments import place
from shardc.launcher.driver.buffer_pool import BufferPool
from shardc.partitioner.equivalence import gather_array, scatter_array

MESHES = [
    Mesh({"x": 2, "y": 4}),
    Mesh({"x": 2, "y": 2, "z": 2}, device_ids=(7, 0, 3, 2, 1, 6, 5, 4)),
    Mesh({"x": 6}),
    Mesh({"x": 1}),
]


@st.composite
def layouts(draw: st.DrawFn) -> ArrayLayout:
    mesh = draw(st.sampled_from(MESHES))
    axes = [AxisRef(n) for n, _ in mesh.axes]
    if mesh.axes[-1] == ("y", 4):
        axes = draw(
            st.sampled_from([axes, [AxisRef("x"), AxisRef("y", 1, 2), AxisRef("y", 2, 2)], [AxisRef("y", 2, 2)]])
        )
    axes = draw(st.permutations(axes))
    rank = draw(st.integers(0, 3))
    dims: list[list[AxisRef]] = [[] for _ in range(rank)]
    for a in axes:
        place = draw(st.integers(0, rank))
        if place < rank:
            dims[place].append(a)
    sharding = Sharding(mesh, tuple(DimSharding(tuple(d)) for d in dims))
    sizes = tuple(draw(st.integers(0, 9)) for _ in range(rank))
    dtype = DTYPES[draw(st.sampled_from(["f32", "bf16", "pred", "s4"]))]
    return ArrayLayout("v", sizes, sharding.local_dims(sizes), dtype, sharding, mesh.size)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(layouts(), st.integers(0, 1000))
def test_arrays_are_cut_and_joined_as_the_partitioner_does(layout: ArrayLayout, seed: int) -> None:
    value = np.random.default_rng(seed).integers(0, 2, layout.dims).astype(layout.dtype.numpy)
    assert layout.sharding is not None
    devices = range(layout.num_devices)
    blocks, _ = place(value, layout, devices, BufferPool(), str)
    shards = [layout.typed(b) for b in blocks]
    for mine, theirs in zip(shards, scatter_array(value, layout.sharding), strict=True):
        assert mine.tobytes() == theirs.tobytes()
    array = Array(layout, dict(zip(devices, blocks, strict=True)), LocalTransport())
    assert np.asarray(array).tobytes() == value.tobytes()
    assert gather_array(shards, layout.sharding, layout.dims).tobytes() == value.tobytes()
    assert sum(s.data.size for s in array.addressable_shards) == value.size * _replicas(layout)


def _replicas(layout: ArrayLayout) -> int:
    assert layout.sharding is not None
    return layout.num_devices // math.prod(layout.sharding.num_shards())


def test_padding_is_zero_also_where_a_shard_is_as_large_as_the_whole() -> None:
    sharding = Sharding.of(Mesh({"x": 4}), "x")
    layout = ArrayLayout("v", (1,), (1,), DTYPES["f32"], sharding, 4)
    block = np.empty(4 + 64, np.uint8)
    start = -block.ctypes.data % 64
    value = block[start : start + 4].view(np.float32)
    value[:] = 7
    blocks, _ = place(value, layout, range(4), BufferPool(), str)
    assert [float(layout.typed(b)[0]) for b in blocks] == [7, 0, 0, 0]


def test_a_value_that_needs_no_copy_is_not_copied() -> None:
    layout = ArrayLayout("v", (4,), (4,), DTYPES["f32"], None, 2)
    block = np.empty(4 * 4 + 64, np.uint8)
    start = -block.ctypes.data % 64
    value = block[start : start + 16].view(np.float32)
    blocks, copied = place(value, layout, (0, 1), BufferPool(), str)
    assert not copied
    assert blocks[0].ctypes.data == blocks[1].ctypes.data == value.ctypes.data
    blocks, copied = place(np.broadcast_to(np.float32(1), 4), layout, (0, 1), BufferPool(), str)
    assert copied
    assert layout.typed(blocks[1]).tolist() == [1] * 4


def test_parts_of_the_first_dimension_are_not_copied() -> None:
    value = np.arange(64, dtype=np.float32).reshape(8, 8)
    mesh = Mesh({"x": 2, "y": 2})
    rows = layout_of(value.shape, DTYPES["f32"], Sharding.of(mesh, ("y", "x"), None))
    blocks, copied = place(value, rows, range(4), BufferPool(), str)
    assert not copied
    for device, block in enumerate(blocks):
        assert np.shares_memory(block, value)
        np.testing.assert_array_equal(rows.typed(block), value[rows.region(rows.positions[device])])
    for dims in ((None, "x"), ("x", "y")):
        assert place(
            value, layout_of(value.shape, DTYPES["f32"], Sharding.of(mesh, *dims)), range(4), BufferPool(), str
        )[1]
    assert place(value.T, rows, range(4), BufferPool(), str)[1]
    assert place(
        value[1:], layout_of((7, 8), DTYPES["f32"], Sharding.of(mesh, "x", None)), range(4), BufferPool(), str
    )[1]
