"""What a thread may ask for: the same bodies under emulation against NumPy in every order, and as PTX and AMD code."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest
from llvmlite import ir

from shardc.native.gpu.amdgpu import AmdgpuCode, emit_amdgpu, new_amdgpu_module
from shardc.native.gpu.assemble import assemble
from shardc.native.gpu.emulated.coroutines import EmulatedModule, ThreadOrder
from shardc.native.gpu.grid import MMA, GridCode, Mma
from shardc.native.gpu.nvptx import NvptxCode, emit_ptx, new_nvptx_module
from shardc.native.gpu.problems import GpuProblem
from shardc.native.gpu.target import gpu_target
from shardc.native.math.vector import F32, F64, I8, I16, I32
from tests.native.gpu.grid_kernels import (
    ORDERS,
    Sketch,
    at,
    define,
    emulated,
    i32,
    launch,
    place_in_grid,
    random_floats,
)

THREADS = 64


def _add(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
    i = place_in_grid(c, b, THREADS)
    b.store(b.fadd(b.load(at(b, p[0], i), typ=F32), b.load(at(b, p[1], i), typ=F32)), at(b, p[2], i))


def _reverse(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
    """The elements of a block backwards, twice through the same shared memory."""
    t, i = c.thread(b), place_in_grid(c, b, THREADS)
    value = b.load(at(b, p[0], i), typ=F32)
    room = c.shared(b, 16)
    for _ in range(3):
        b.store(value, at(b, room, t))
        c.barrier(b)
        value = b.load(at(b, room, b.sub(i32(THREADS - 1), t)), typ=F32)
        c.barrier(b)
    b.store(value, at(b, p[1], i))


def _warp_sum(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
    i = place_in_grid(c, b, THREADS)
    value = b.fpext(b.load(at(b, p[0], i), typ=F32), F64)
    mask = c.warp // 2
    while mask:
        value = b.fadd(value, c.shuffle_xor(b, value, mask))
        mask //= 2
    b.store(b.fptrunc(value, F32), at(b, p[1], i))


def _scan(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
    """Running totals of a warp's numbers; lanes that have nobody before them keep theirs."""
    i = place_in_grid(c, b, THREADS)
    lane = b.and_(c.thread(b), i32(c.warp - 1))
    value = b.load(at(b, p[0], i, I32), typ=I32)
    distance = 1
    while distance < c.warp:
        before = c.shuffle_up(b, value, distance)
        value = b.select(b.icmp_unsigned("<", lane, i32(distance)), value, b.add(value, before))
        distance *= 2
    b.store(value, at(b, p[1], i, I32))


def _rotate(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
    """Bytes and halves of the next lane, around the warp."""
    i = place_in_grid(c, b, THREADS)
    following = b.and_(b.add(c.thread(b), i32(1)), i32(c.warp - 1))
    for array, t in ((0, I8), (1, I16)):
        value = c.shuffle_from(b, b.load(at(b, p[array], i, t), typ=t), following)
        c.warp_barrier(b)
        b.store(value, at(b, p[array], i, t))


def _grid(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
    """Where each block is in a grid of three dimensions, and on which device."""
    x, y, z = (c.block(b, axis) for axis in range(3))
    wide, high = c.blocks(b, 0), c.blocks(b, 1)
    block = b.add(x, b.mul(wide, b.add(y, b.mul(high, z))))
    number = b.add(b.add(x, b.mul(y, i32(100))), b.mul(z, i32(10000)))
    number = b.add(number, b.mul(c.blocks(b, 2), i32(1000000)))
    number = b.add(number, b.mul(c.device(b.function), i32(7)))
    b.store(number, at(b, p[0], b.add(b.mul(block, i32(THREADS)), c.thread(b)), I32))


ADD = Sketch("add", 3, THREADS, _add, (1,))
REVERSE_BLOCK = Sketch("reverse_block", 2, THREADS, _reverse)
WARP_SUM = Sketch("warp_sum", 2, THREADS, _warp_sum)
SCAN = Sketch("scan", 2, THREADS, _scan)
ROTATE = Sketch("rotate", 2, THREADS, _rotate)
GRID = Sketch("grid", 1, THREADS, _grid)
PORTABLE = (ADD, REVERSE_BLOCK, WARP_SUM, SCAN, ROTATE, GRID)


@pytest.fixture(scope="module")
def kernels() -> EmulatedModule:
    return emulated(*PORTABLE)


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_blocks_and_warps(kernels: EmulatedModule, order: ThreadOrder) -> None:
    x, y = random_floats(5 * THREADS), random_floats(5 * THREADS, 1)
    out = np.empty_like(x)
    launch(kernels, ADD, [x, y, out], 5, order=order)
    np.testing.assert_array_equal(out, x + y)
    launch(kernels, REVERSE_BLOCK, [x, out], 5, 16 + 4 * THREADS, order)
    np.testing.assert_array_equal(out, x.reshape(5, THREADS)[:, ::-1].ravel())
    launch(kernels, WARP_SUM, [x, out], 5, order=order)
    np.testing.assert_allclose(out.reshape(-1, 32), np.tile(x.reshape(-1, 32).sum(1)[:, None], 32), rtol=1e-5)
    numbers = np.arange(THREADS, dtype=np.int32)
    totals = np.empty_like(numbers)
    launch(kernels, SCAN, [numbers, totals], order=order)
    np.testing.assert_array_equal(totals, np.cumsum(numbers.reshape(2, 32), 1).ravel())
    narrow, halves = np.arange(THREADS, dtype=np.int8), np.arange(THREADS, dtype=np.int16) * 311
    launch(kernels, ROTATE, [narrow, halves], order=order)
    turned = np.roll(np.arange(THREADS).reshape(2, 32), -1, 1).ravel()
    np.testing.assert_array_equal(narrow, turned)
    np.testing.assert_array_equal(halves, (turned * 311).astype(np.int16))


def test_grids_have_three_dimensions(kernels: EmulatedModule) -> None:
    out = np.empty(2 * 3 * 4 * THREADS, np.int32)
    launch(kernels, GRID, [out], (2, 3, 4), device=5)
    z, y, x = np.meshgrid(np.arange(4), np.arange(3), np.arange(2), indexing="ij")
    wanted = (x + 100 * y + 10000 * z + 4000000 + 35).ravel()
    np.testing.assert_array_equal(out, np.repeat(wanted, THREADS))


# Matrices: what lies where is PTX ISA's tables, written down here once more.


def _fragment(kind: Mma, which: str, lane: int, register: int) -> list[tuple[int, int]]:
    """(row, column) of the elements in a register, the lowest first."""
    group, quarter = divmod(lane, 4)
    if kind.name == "f64":
        return {"a": [(group, quarter)], "b": [(quarter, group)], "c": [(group, 2 * quarter + register)]}[which]
    if which == "c":
        return [(group + 8 * (register >= 2), 2 * quarter + register % 2)]
    if kind.name == "tf32":
        if which == "a":
            return [(group + 8 * (register % 2), quarter + 4 * (register >= 2))]
        return [(quarter + 4 * register, group)]
    if which == "a":
        return [(group + 8 * (register % 2), 2 * quarter + k + 8 * (register >= 2)) for k in (0, 1)]
    return [(2 * quarter + k + 8 * register, group) for k in (0, 1)]


def _product(kind: Mma) -> Sketch:
    """One warp: registers from arrays [register, lane], and back."""
    word = F64 if kind.name == "f64" else I32
    real = F64 if kind.name == "f64" else F32

    def body(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
        lane = c.thread(b)

        def registers(array: ir.Value, t: ir.Type, count: int) -> list[ir.Value]:
            return [b.load(at(b, array, b.add(lane, i32(32 * n)), t), typ=t) for n in range(count)]

        a, bs, cs = registers(p[0], word, kind.a), registers(p[1], word, kind.b), registers(p[2], real, kind.c)
        twice = c.mma(b, kind, a, bs, c.mma(b, kind, a, bs, cs))
        for n, value in enumerate(twice):
            b.store(value, at(b, p[3], b.add(lane, i32(32 * n)), real))

    return Sketch(f"product_{kind.name}", 4, 32, body)


def _pack(kind: Mma, which: str, matrix: np.ndarray, count: int) -> np.ndarray:
    """Registers [register, lane] that hold a matrix."""
    rows = []
    for register in range(count):
        lanes = [[matrix[place] for place in _fragment(kind, which, lane, register)] for lane in range(32)]
        rows.append(np.ascontiguousarray(lanes))
    stacked = np.stack(rows)
    return stacked.view(np.uint32)[..., 0].copy() if stacked.dtype.itemsize == 2 else stacked[..., 0].copy()


@pytest.mark.parametrize("kind", MMA.values(), ids=list(MMA))
def test_products_of_matrices(kind: Mma) -> None:
    sketch = _product(kind)
    module = emulated(sketch)
    rng = np.random.default_rng(3)
    operand = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "tf32": np.float32, "f64": np.float64}[kind.name]
    x, y = rng.integers(-16, 17, (kind.m, kind.k)), rng.integers(-16, 17, (kind.k, kind.n))  # exact in every type
    z = rng.integers(-16, 17, (kind.m, kind.n)).astype(np.float64 if kind.name == "f64" else np.float32)
    packed = [_pack(kind, "a", x.astype(operand), kind.a), _pack(kind, "b", y.astype(operand), kind.b)]
    packed += [_pack(kind, "c", z, kind.c), np.empty((kind.c, 32), z.dtype)]
    for order in ORDERS:
        launch(module, sketch, packed, order=order)
        got = np.empty_like(z)
        for register in range(kind.c):
            for lane in range(32):
                ((row, column),) = _fragment(kind, "c", lane, register)
                got[row, column] = packed[3][register, lane]
        np.testing.assert_array_equal(got, 2 * (x @ y) + z)


def test_tf32_drops_low_bits() -> None:
    kind = MMA["tf32"]
    sketch = _product(kind)
    module = emulated(sketch)
    x = np.full((kind.m, kind.k), 1 + 2.0**-12, np.float32)
    packed = [_pack(kind, "a", x, kind.a), _pack(kind, "b", np.ones((kind.k, kind.n), np.float32), kind.b)]
    packed += [np.zeros((kind.c, 32), np.float32), np.empty((kind.c, 32), np.float32)]
    launch(module, sketch, packed)
    np.testing.assert_array_equal(packed[3], 16.0)


def _load_matrices(count: int, transposed: bool) -> Sketch:
    def body(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
        lane = c.thread(b)
        room = c.shared(b, 0)
        for n in range(4):
            word = b.add(lane, i32(32 * n))
            b.store(b.load(at(b, p[0], word, I32), typ=I32), at(b, room, word, I32))
        c.barrier(b)
        row = at(b, room, b.mul(lane, i32(16)), I8)
        for n, value in enumerate(c.load_matrix(b, row, count, transposed)):
            b.store(value, at(b, p[1], b.add(lane, i32(32 * n)), I32))

    return Sketch(f"load_{count}_{transposed}", 2, 32, body)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_loads_of_matrices(count: int, transposed: bool) -> None:
    sketch = _load_matrices(count, transposed)
    module = emulated(sketch)
    source = np.arange(4 * 64, dtype=np.uint16)
    for order in ORDERS:
        out = np.zeros((4, 32), np.uint32)
        launch(module, sketch, [source, out], shared_bytes=512, order=order)
        for n in range(count):
            matrix = source.reshape(4, 8, 8)[n]
            matrix = matrix.T if transposed else matrix
            np.testing.assert_array_equal(out[n].view(np.uint16), matrix.ravel())


def _copied(nbytes: int) -> Sketch:
    """Three stages of copies, two under way at a time; odd threads' are not taken."""

    def body(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
        t = c.thread(b)
        mine = b.mul(t, i32(nbytes))
        taken = b.icmp_unsigned("==", b.and_(t, i32(1)), i32(0))
        for stage in range(3):
            source = at(b, p[0], b.add(mine, i32(stage * THREADS * nbytes)), I8)
            c.copy_async(b, at(b, c.shared(b, stage * THREADS * nbytes), mine, I8), source, nbytes, taken)
            c.commit_copies(b)
        for stage in range(3):
            c.await_copies(b, 2 - stage)
            c.barrier(b)
            other = b.mul(b.xor(t, i32(2)), i32(nbytes))
            for n in range(nbytes // 4):
                place = at(b, c.shared(b, stage * THREADS * nbytes + 4 * n), other, I8)
                to = at(b, p[1], b.add(mine, i32(stage * THREADS * nbytes + 4 * n)), I8)
                b.store(b.load(place, typ=I32), to)

    return Sketch(f"copied_{nbytes}", 2, THREADS, body)


@pytest.mark.parametrize("nbytes", [4, 8, 16])
def test_copies_in_stages(nbytes: int) -> None:
    sketch = _copied(nbytes)
    module = emulated(sketch)
    source = np.random.default_rng(0).integers(0, 256, (3, THREADS, nbytes), dtype=np.uint8)
    wanted = np.where(np.arange(THREADS)[:, None] % 2, 0, source)[:, np.arange(THREADS) ^ 2]
    for order in ORDERS:
        out = np.zeros_like(source)
        launch(module, sketch, [source, out], shared_bytes=source.nbytes, order=order)
        np.testing.assert_array_equal(out, wanted)


def _sum_all(c: GridCode, b: ir.IRBuilder, p: Sequence[ir.Value]) -> None:
    b.atomic_rmw("add", p[1], b.load(at(b, p[0], place_in_grid(c, b, THREADS), I32), typ=I32), "monotonic")
    c.fence(b)


ATOMIC = Sketch("atomic", 2, THREADS, _sum_all)
ALL = (*PORTABLE, ATOMIC, *(_copied(n) for n in (4, 8, 16)))
MATRICES = (*(_product(k) for k in MMA.values()), *(_load_matrices(n, t) for n in (1, 2, 4) for t in (False, True)))


def test_atomics() -> None:
    module = emulated(ATOMIC)
    x = np.arange(4 * THREADS, dtype=np.int32)
    for order in ORDERS:
        total = np.zeros(4, np.int32)
        launch(module, ATOMIC, [x, total], 4, order=order)
        assert total[0] == x.sum()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_everything_assembles_for_nvidia(arch: str) -> None:
    target = gpu_target(f"cuda:{arch}")
    module = new_nvptx_module("all", target)
    for sketch in (*ALL, *MATRICES):
        define(module, NvptxCode(arch), sketch)
    kernels = assemble(emit_ptx(module, target), arch).kernels
    assert set(kernels) == {s.name for s in (*ALL, *MATRICES)}
    assert all(u.spill_loads == u.spill_stores == u.stack == 0 for u in kernels.values())
    assert max(u.registers for u in kernels.values()) <= 40
    assert kernels["reverse_block"].barriers == 1


def test_everything_but_matrices_assembles_for_amd() -> None:
    target = gpu_target("rocm:gfx90a")
    module = new_amdgpu_module("all", target)
    for sketch in ALL:
        define(module, AmdgpuCode(), sketch)
    code = emit_amdgpu(module, target)
    assert code.startswith(b"\x7fELF")
    assert all(f"{s.name}.kd".encode() in code for s in ALL)
    with pytest.raises(GpuProblem, match="AMD"):
        define(module, AmdgpuCode(), MATRICES[0])
