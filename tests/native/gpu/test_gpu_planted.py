"""Planted faults: a kernel without them passes in every order of threads, with any of them it does not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from llvmlite import ir

from shardc.native.gpu.emulated.coroutines import GridFault
from shardc.native.gpu.emulated.records import MOST_COPIES
from shardc.native.gpu.grid import GridCode
from shardc.native.math.vector import F32, I32
from tests.native.gpu.grid_kernels import ORDERS, Body, Sketch, at, emulated, i32, launch, place_in_grid, random_floats

THREADS, BLOCKS = 64, 3
SHARED = 4 * THREADS


def _neighbour_sum(fault: str = "") -> Body:
    """y[i] = x[i] + x[i + 1], around the block, through shared memory used twice."""

    def body(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
        t, i = c.thread(b), place_in_grid(c, b, THREADS)
        room = c.shared(b, 4 if fault == "outside" else 0)
        value = b.load(at(b, p[0], i), typ=F32)
        for turn in range(2):
            own = at(b, room, b.add(t, i32(1)) if fault == "index" and turn else t)
            b.store(value, own)
            if not (fault == "first barrier" and not turn):
                c.barrier(b)
            following = b.and_(b.add(t, i32(1)), i32(THREADS - 1))
            value = b.fadd(value, b.load(at(b, room, following), typ=F32))
            if not (fault == "second barrier" and not turn):
                c.barrier(b)
        b.store(value, at(b, p[1], i))

    return body


def _warp_pairs(fault: str = "") -> Body:
    """Lanes change places through shared memory, with barriers of the warp alone."""

    def body(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
        t, i = c.thread(b), place_in_grid(c, b, THREADS)
        b.store(b.load(at(b, p[0], i), typ=F32), at(b, c.shared(b, 0), t))
        if fault != "warp barrier":
            c.warp_barrier(b)
        b.store(b.load(at(b, c.shared(b, 0), b.xor(t, i32(1))), typ=F32), at(b, p[1], i))

    return body


def _block_total(fault: str = "") -> Body:
    """All blocks add to one number."""

    def body(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
        i = place_in_grid(c, b, THREADS)
        if fault == "last block":
            b.store(c.block(b), at(b, p[1], i32(0), I32))
        else:
            b.atomic_rmw("umax", p[1], i, "monotonic")

    return body


def _copied(fault: str = "") -> Body:
    def body(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
        t, i = c.thread(b), place_in_grid(c, b, THREADS)
        place = at(b, c.shared(b, 0), t)
        c.copy_async(b, place, at(b, p[0], i), 4)
        if fault != "commit":
            c.commit_copies(b)
        if fault != "wait":
            c.await_copies(b, 1 if fault == "pending" else 0)
        if fault != "barrier":
            c.barrier(b)
        other = b.xor(t, i32(1)) if fault in ("", "barrier") else t
        b.store(b.load(at(b, c.shared(b, 0), other), typ=F32), at(b, p[1], i))

    return body


def _outcomes(body: Body) -> set[bytes]:
    """The results, by order of threads."""
    sketch = Sketch("planted", 2, THREADS, body)
    module = emulated(sketch)
    found = set()
    for order in ORDERS:
        x, y = random_floats(THREADS * BLOCKS), np.zeros(THREADS * BLOCKS, np.float32)
        launch(module, sketch, [x, y], BLOCKS, SHARED, order)
        found.add(y.tobytes())
    return found


@pytest.mark.parametrize("body", [_neighbour_sum(), _warp_pairs(), _block_total(), _copied()])
def test_sound_kernels_pass(body: Body) -> None:
    assert len(_outcomes(body)) == 1


@pytest.mark.parametrize(
    "body",
    [
        _neighbour_sum("first barrier"),
        _neighbour_sum("second barrier"),
        _warp_pairs("warp barrier"),
        _block_total("last block"),
        _copied("barrier"),
    ],
    ids=["first barrier", "second barrier", "warp barrier", "last block", "copies without barrier"],
)
def test_races_show_in_another_order(body: Body) -> None:
    assert len(_outcomes(body)) > 1


@pytest.mark.parametrize("fault", ["wait", "pending", "commit"])
def test_copies_that_nobody_waits_for_do_not_arrive(fault: str) -> None:
    (only,) = _outcomes(_copied(fault))
    assert np.isnan(np.frombuffer(only, np.float32)).all()


@pytest.mark.parametrize("fault", ["index", "outside"])
def test_writes_behind_shared_memory(fault: str) -> None:
    with pytest.raises(GridFault, match=f"byte {SHARED} of shared memory was written, but there are {SHARED}"):
        _outcomes(_neighbour_sum(fault))


def test_unwritten_shared_memory_is_no_number() -> None:
    def body(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
        value = b.load(at(b, c.shared(b, 0), c.thread(b)), typ=F32)
        b.store(value, at(b, p[1], place_in_grid(c, b, THREADS)))
        b.store(b.load(p[0], typ=F32), at(b, c.shared(b, 0), c.thread(b)))  # must not reach the next block

    (only,) = _outcomes(body)
    assert np.isnan(np.frombuffer(only, np.float32)).all()


def _some(what: str, limit: int) -> Body:
    """Only threads below ``limit`` come to a place where they wait."""

    def body(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
        i = place_in_grid(c, b, THREADS)
        value = b.load(at(b, p[0], i), typ=F32)
        with b.if_then(b.icmp_unsigned("<", c.thread(b), i32(limit))):
            if what == "barrier":
                c.barrier(b)
            elif what == "warp barrier":
                c.warp_barrier(b)
            else:
                b.store(c.shuffle_xor(b, value, 1), at(b, p[1], i))

    return body


@pytest.mark.parametrize(
    ("what", "limit", "site"),
    [
        ("barrier", 16, "barrier"),
        ("barrier", 32, "barrier"),
        ("warp barrier", 5, "warp_barrier"),
        ("shuffle", 8, "shuffle"),
    ],
)
def test_who_waits_alone_is_named(what: str, limit: int, site: str) -> None:
    with pytest.raises(GridFault) as caught:
        _outcomes(_some(what, limit))
    fault = caught.value
    assert fault.kernel == "planted"
    assert fault.block == (0, 0, 0)
    assert f"thread 0 waits at site 1 ({site}), but thread {limit} is done" in str(fault)


def test_whole_warps_may_shuffle_alone() -> None:
    assert len(_outcomes(_some("shuffle", 32))) == 1


def test_different_barriers_are_not_one() -> None:
    def body(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
        with b.if_else(b.icmp_unsigned("<", c.thread(b), i32(32))) as (yes, no):
            with yes:
                c.barrier(b)
            with no:
                c.barrier(b)

    with pytest.raises(GridFault) as caught:
        _outcomes(body)
    assert "thread 0 waits at site 1 (barrier), but thread 32 waits at site 2 (barrier)" in str(caught.value)


def test_copies_have_a_limit() -> None:
    def body(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
        for _ in range(MOST_COPIES + 1):
            c.copy_async(b, at(b, c.shared(b, 0), c.thread(b)), p[0], 4)

    with pytest.raises(GridFault, match=f"more than {MOST_COPIES} copies"):
        _outcomes(body)
