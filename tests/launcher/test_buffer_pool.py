"""Blocks come back to the pool when nobody sees them any more, and only as many as a step takes."""

from __future__ import annotations

import gc

import numpy as np

from shardc.launcher.driver.buffer_pool import BufferPool

_BYTES = 1 << 20


def test_a_block_is_used_again_only_after_its_last_view_is_gone() -> None:
    pool = BufferPool()
    first = pool.take(_BYTES)
    where = first.ctypes.data
    pool.settle()
    view = first.view(np.float32).reshape(512, 512)[1:, ::2]
    del first
    gc.collect()
    view[:] = 3
    second = pool.take(_BYTES)
    assert second.ctypes.data != where
    second[:] = 0
    assert (view == 3).all()
    del view
    gc.collect()
    third = pool.take(_BYTES)
    assert third.ctypes.data == where
    assert third.ctypes.data % 64 == 0


def test_at_most_one_step_of_blocks_is_kept() -> None:
    pool = BufferPool()
    steps = []
    for _ in range(5):
        steps.append([pool.take(_BYTES), pool.take(2 * _BYTES)])
        pool.settle()
    steps.clear()
    gc.collect()
    pool.take(64)
    assert sum(b.size for blocks in pool._free.values() for b, _ in blocks) <= 3 * _BYTES
    assert pool._free


def test_a_lease_comes_back_when_neither_it_nor_its_array_is_left() -> None:
    pool = BufferPool()
    lease = pool.lease(_BYTES)
    where = lease.address
    array = lease.array()
    assert array.ctypes.data == where
    pool.settle()
    del lease
    other = pool.lease(_BYTES)
    assert other.address != where
    del array
    assert pool.lease(_BYTES).address == where
