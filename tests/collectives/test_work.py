"""The native engine against the meaning of each collective: types, reductions, sizes, groups, shares."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from shardc.collectives.call.call import BufferRef, CollectiveCall, CollectiveOperand
from shardc.collectives.call.memory import aligned_bytes
from shardc.collectives.call.reduction import supports_reduction
from shardc.collectives.engine.engine_calls import WorkCode, cell_of, work_code
from shardc.hlo.ir.groups import ListGroups, ListPairs
from shardc.hlo.ir.types import DTYPES, DType, dtype_of
from shardc.native.collectives.work import Cell
from shardc.native.threads.pool import Row
from tests.collectives.oracle import sizes, tree

Array = NDArray[Any]
REDUCTIONS = ("add", "multiply", "maximum", "minimum", "and", "or")
ELEMENTS = [d for d in DTYPES.values() if d.kind in ("pred", "signed", "unsigned", "float", "complex")]
_WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


@cache
def code() -> WorkCode:
    return work_code()


def call_of(op: str, dtypes: Sequence[DType], counts: Sequence[int], g: int, reduction: str = "add") -> CollectiveCall:
    """``counts`` are the elements of the smaller of operand and result."""
    operands = []
    for dtype, n in zip(dtypes, counts, strict=True):
        a, b = sizes(op, n, g)
        refs = [BufferRef("arena", 0, 0, k * dtype.nbytes) for k in (a, b)]
        operands.append(CollectiveOperand(refs[0], refs[1], dtype, a))
    permute = op == "collective-permute"
    groups = ListPairs(((0, 0),)) if permute else ListGroups((tuple(range(g)),))
    return CollectiveCall(0, op, reduction if op in ("all-reduce", "reduce-scatter") else "", groups, tuple(operands))


def run(call: CollectiveCall, g: int, operands: Sequence[int], results: Sequence[int], shares: Sequence[int]) -> None:
    """``shares`` in the order in which they are done; there are as many."""
    made = code().call(call, g)
    tables = [(ctypes.c_void_p * max(1, len(t)))(*t) for t in (operands, results)]
    for part in shares:
        _WORK(code().work)(made.address, *tables, part, len(shares))


def block(values: Array) -> Array:
    """A copy at a multiple of 64, with marked bytes behind it."""
    nbytes = values.size * values.itemsize
    memory = aligned_bytes(nbytes + 64)
    memory[:] = 0xAB
    memory[:nbytes] = np.frombuffer(values.tobytes(), np.uint8)
    return memory


def same(memory: Array, want: Array) -> bool:
    """Equal bits, where NaN is NaN; of integers of less than a byte only the low bits count."""
    nbytes = want.size * want.itemsize
    got = memory[:nbytes]
    if not bool((memory[nbytes:] == 0xAB).all()):
        return False
    dtype = dtype_of(want.dtype)
    if dtype.is_integer and dtype.bits < 8:
        return bool((got.view(want.dtype).astype(np.int8) == want.astype(np.int8)).all())
    different = np.any((got != np.frombuffer(want.tobytes(), np.uint8)).reshape(want.size, want.itemsize), axis=1)
    if not (dtype.is_float or dtype.is_complex):
        return not different.any()
    wide = np.complex128 if dtype.is_complex else np.float64
    nans = [np.isnan(x.astype(wide)) for x in (got.view(want.dtype), want)]
    return not (different & ~(nans[0] & nans[1])).any()


def results_of(call: CollectiveCall, k: int, members: Sequence[Array]) -> list[Array]:
    """What each member gets of operand k, from the table in collectives/call/call.py."""
    g, dtype = len(members), call.operands[k].dtype
    if call.op == "all-reduce":
        return [tree(call.reduction, dtype, list(members))] * g
    if call.op == "all-gather":
        return [np.concatenate(members)] * g
    chunks = [np.split(m, g) for m in members]
    if call.op == "reduce-scatter":
        return [tree(call.reduction, dtype, [c[q] for c in chunks]) for q in range(g)]
    return [np.concatenate([c[q] for c in chunks]) for q in range(g)]


def values_of(rng: np.random.Generator, dtype: DType, n: int) -> Array:
    """Random elements; few enough bits that no sum of floats is a NaN."""
    if dtype.kind == "pred":
        return rng.integers(0, 2, n).astype(bool)
    if dtype.is_complex:
        return (rng.standard_normal(n) + 1j * rng.standard_normal(n)).astype(dtype.numpy)
    if dtype.is_float:
        return rng.standard_normal(n).astype(dtype.numpy)
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "signed" else 0
    high = (1 << (dtype.bits - 1 if dtype.kind == "signed" else dtype.bits)) - 1
    return rng.integers(low, high, n, dtype=np.uint64 if low == 0 else np.int64, endpoint=True).astype(dtype.numpy)


def check(
    call: CollectiveCall,
    g: int,
    members: list[list[Array]],
    shares: Sequence[int],
    skipped: frozenset[int] = frozenset(),
) -> None:
    """``members`` by operand and position; the members in ``skipped`` want no results."""
    sources = [[block(m) for m in ms] for ms in members]
    wanted = [results_of(call, k, ms) for k, ms in enumerate(members)]
    blocks = [[block(np.zeros_like(r)) for r in rs] for rs in wanted]
    places = [0 if p in skipped else b.ctypes.data for bs in blocks for p, b in enumerate(bs)]
    run(call, g, [b.ctypes.data for bs in sources for b in bs], places, shares)
    for k, results in enumerate(wanted):
        for p, want in enumerate(results):
            expected = np.zeros_like(want) if p in skipped else want
            assert same(blocks[k][p], expected), (call, p)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_random(data: st.DataObject) -> None:
    op = data.draw(st.sampled_from(("all-reduce", "all-gather", "reduce-scatter", "all-to-all")))
    reduction = data.draw(st.sampled_from(REDUCTIONS))
    reducing = op in ("all-reduce", "reduce-scatter")
    # NumPy may fuse the products of complex numbers, depending on where they lie.
    fits = [
        d
        for d in ELEMENTS
        if not reducing or (supports_reduction(reduction, d) and not (d.is_complex and reduction == "multiply"))
    ]
    common = [d for d in fits if d.name in ("f32", "f64", "bf16", "f8e4m3fn", "s4", "u16", "s32", "c64", "pred")]
    dtypes = data.draw(st.lists(st.sampled_from(common), min_size=1, max_size=3))
    g = data.draw(st.integers(1, 20))
    counts = [data.draw(st.sampled_from((0, 1, 2, 7, 16, 33, 64, 100, 1027, 2500))) for _ in dtypes]
    shares = data.draw(st.permutations(range(data.draw(st.integers(1, 5)))))
    skipped = frozenset(data.draw(st.sets(st.integers(0, g - 1), max_size=3)))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    call = call_of(op, dtypes, counts, g, reduction)
    members = [[values_of(rng, o.dtype, o.count) for _ in range(g)] for o in call.operands]
    check(call, g, members, shares, skipped)


def _cases(names: Sequence[str], reductions: Sequence[str], common: Sequence[str]) -> list[Any]:
    """(name, reduction) of what is defined; sums, and all reductions of ``common`` types in every run, the others with
    ``--run-full``."""
    return [
        pytest.param(n, r, marks=() if r == "add" or n in common else pytest.mark.full)
        for n in names
        for r in reductions
        if supports_reduction(r, DTYPES[n]) and not (DTYPES[n].is_complex and r == "multiply")
    ]


@pytest.mark.parametrize(("name", "reduction"), _cases([d.name for d in ELEMENTS], REDUCTIONS, ["f32", "s8", "pred"]))
def test_every_reduction_of_every_type(name: str, reduction: str) -> None:
    dtype = DTYPES[name]
    rng = np.random.default_rng(1)
    for g in (2, 3, 7):
        call = call_of("all-reduce", [dtype], [131], g, reduction)
        check(call, g, [[values_of(rng, dtype, 131) for _ in range(g)]], [0])


@pytest.mark.parametrize("name", ["c64", "c128"])
def test_complex_products_round_each_product_and_sum(name: str) -> None:
    dtype = DTYPES[name]
    rng = np.random.default_rng(2)
    x, y = (values_of(rng, dtype, 77) for _ in range(2))
    want = (x.real * y.real - x.imag * y.imag) + 1j * (x.imag * y.real + x.real * y.imag)
    out = [block(np.zeros(77, dtype.numpy)) for _ in range(2)]
    sources = [block(x), block(y)]
    call = call_of("all-reduce", [dtype], [77], 2, "multiply")
    run(call, 2, [b.ctypes.data for b in sources], [b.ctypes.data for b in out], [1, 0])
    assert same(out[0], want.astype(dtype.numpy))
    assert same(out[1], want.astype(dtype.numpy))


@pytest.mark.parametrize(
    ("name", "reduction"),
    _cases([d.name for d in ELEMENTS if d.is_float], ["add", "maximum", "minimum"], ["f32", "f8e5m2fnuz"]),
)
def test_special_values(name: str, reduction: str) -> None:
    """Every pair of NaN, infinities, zeros, denormals: the first of equal zeros and of NaN wins a comparison."""
    dtype = DTYPES[name]
    plain = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.0, 1e-40, 5e-324, 6e-8, 3e38, 6.0]
    with np.errstate(all="ignore"):
        values = np.array(plain).astype(dtype.numpy)
    x, y = (a.reshape(-1) for a in np.meshgrid(values, values))
    wide = np.float32 if dtype.bits < 32 else dtype.numpy
    a, b = x.astype(wide), y.astype(wide)
    with np.errstate(all="ignore"):
        want = {
            "add": a + b,
            "maximum": np.where((a >= b) | np.isnan(a), a, b),
            "minimum": np.where((a <= b) | np.isnan(a), a, b),
        }[reduction].astype(dtype.numpy)
    sources, out = [block(x), block(y)], block(np.zeros_like(want))
    call = call_of("all-reduce", [dtype], [want.size], 2, reduction)
    run(call, 2, [s.ctypes.data for s in sources], [out.ctypes.data, 0], [0])
    assert same(out, want)


@pytest.mark.parametrize("name", ["f32", "f64", "bf16", "f8e5m2"])
@pytest.mark.parametrize("g", [2, 3, 5, 8, 21])
def test_any_bits_reduce_alike_in_any_shares(name: str, g: int) -> None:
    """Also NaN's bits depend on the members only, not on who computes which range."""
    dtype = DTYPES[name]
    rng = np.random.default_rng(g)
    n = 3000
    sources = [aligned_bytes(n * dtype.nbytes) for _ in range(g)]
    for s in sources:
        s[:] = rng.integers(0, 256, s.size)
        s.view(dtype.numpy)[::7] = np.nan
    call = call_of("all-reduce", [dtype], [n], g, "add")
    found = []
    for parts in (1, 2, 3, 7, 40):
        out = aligned_bytes(n * dtype.nbytes)
        places = [out.ctypes.data] + [0] * (g - 1)
        run(call, g, [s.ctypes.data for s in sources], places, list(range(parts)))
        found.append(out.tobytes())
    assert len(set(found)) == 1


@pytest.mark.parametrize("name", ["f32", "bf16", "s4", "c128"])
@pytest.mark.parametrize("g", [2, 4, 5, 9, 17])
def test_all_reduce_in_place(name: str, g: int) -> None:
    dtype = DTYPES[name]
    rng = np.random.default_rng(g)
    members = [values_of(rng, dtype, 1201) for _ in range(g)]
    blocks = [block(m) for m in members]
    places = [b.ctypes.data for b in blocks]
    run(call_of("all-reduce", [dtype], [1201], g), g, places, places, [2, 0, 1])
    want = tree("add", dtype, members)
    assert all(same(b, want) for b in blocks)


def test_results_past_the_caches() -> None:
    """Large results are written with other instructions, in place and elsewhere, also where they start in a line."""
    rng = np.random.default_rng(0)
    n, f32 = (8 << 20) // 4 + 5, DTYPES["f32"]
    members = [rng.standard_normal(n).astype(np.float32) for _ in range(2)]
    call = call_of("all-reduce", [f32], [n], 2)
    assert code().call(call, 2).record.streaming
    sources = [block(m) for m in members]
    odd = aligned_bytes(4 * n + 128)
    run(call, 2, [s.ctypes.data for s in sources], [sources[0].ctypes.data, odd.ctypes.data + 16], [1, 0])
    want = members[0] + members[1]
    assert same(sources[0], want)
    assert odd[16 : 16 + 4 * n].view(np.float32).tobytes() == want.tobytes()


def test_a_shared_result_is_written_once() -> None:
    rng = np.random.default_rng(0)
    f32 = DTYPES["f32"]
    members = [values_of(rng, f32, 300) for _ in range(4)]
    sources, out = [block(m) for m in members], block(np.zeros(300, np.float32))
    run(call_of("all-reduce", [f32], [300], 4), 4, [s.ctypes.data for s in sources], [out.ctypes.data] * 4, [0, 1])
    assert same(out, tree("add", f32, members))
    whole = block(np.zeros(1200, np.float32))
    run(call_of("all-gather", [f32], [300], 4), 4, [s.ctypes.data for s in sources], [whole.ctypes.data] * 4, [0, 1])
    assert same(whole, np.concatenate(members))


@pytest.mark.parametrize("n", [0, 1, 63, 65, 1000])
def test_permute(n: int) -> None:
    values = np.arange(n, dtype=np.uint16)
    call = call_of("collective-permute", [DTYPES["u16"]], [n], 1)
    source, out = block(values), block(np.full(n, 7, np.uint16))
    run(call, 1, [source.ctypes.data], [out.ctypes.data], [1, 0])
    assert same(out, values)
    run(call, 1, [0], [out.ctypes.data], [1, 0])
    assert same(out, np.zeros_like(values))


def test_cells_find_what_the_tables_say() -> None:
    arena, constants, first, second = (aligned_bytes(64) for _ in range(4))
    arguments, results = (ctypes.c_void_p * 2)(), (ctypes.c_void_p * 1)()
    tables = (ctypes.addressof(arguments), ctypes.addressof(results))
    rows = (Row * 2)()
    rows[1] = Row(arena.ctypes.data, *tables, constants.ctypes.data, 0, 0)
    refs = [
        BufferRef(space, index, 8, 4)
        for space, index in (("arena", 0), ("argument", 1), ("result", 0), ("constant", 0))
    ]
    cells = (Cell * 5)(*(cell_of(rows[1], r) for r in refs))
    out = (ctypes.c_void_p * 5)(*[1] * 5)
    resolve = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(code().resolve)
    for argument, result in ((first, second), (second, first)):
        arguments[1], results[0] = argument.ctypes.data, result.ctypes.data
        resolve(cells, 5, out)
        assert list(out) == [b.ctypes.data + 8 for b in (arena, argument, result, constants)] + [None]


@pytest.mark.parametrize("streaming", [0, 1])
def test_copy(streaming: int) -> None:
    copy = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(code().copy)
    source = np.random.default_rng(0).integers(0, 256, 2000).astype(np.uint8)
    for n in (0, 1, 31, 64, 65, 255, 256, 1000, 1901):
        for start in (0, 3):
            to = block(np.zeros(start + n, np.uint8))
            copy(to.ctypes.data + start, source.ctypes.data + 5, n, streaming)
            assert same(to, np.concatenate([np.zeros(start, np.uint8), source[5 : 5 + n]]))
