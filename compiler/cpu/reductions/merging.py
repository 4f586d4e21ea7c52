"""Merges of a row that is a few sorted runs, as many threads as there are at each."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.parallel import PhaseKernel, phase
from shardc.compiler.cpu.reductions.radix import Items
from shardc.compiler.elements.control_flow import for_range, while_
from shardc.native.math.vector import I1, I32, I64, PTR, constant, intrinsic

__all__ = ["emit_merges"]

#: More runs than these are sorted by bytes.
_RUNS = 16


def emit_merges(
    kernel: CpuKernel, e: CpuEmitter, items: Items, length: int, pieces: int, current: Sequence[ir.Value]
) -> ir.Value:
    """Merge the runs of ``current`` (`emit_radix_passes`) if there are few; whether that was done."""
    b = e.entry.builder
    bounds = e.slot(ir.ArrayType(I64, _RUNS + 2))
    bounds.type = PTR
    runs = _find_runs(e, items, length, b.load(current[0], typ=PTR), bounds)
    few = b.icmp_signed("<=", runs, constant(I64, _RUNS))
    with b.if_then(few):
        count = e.slot(I64)
        b.store(runs, count)
        with while_(b) as (_, done):
            left = b.load(count, typ=I64)
            body = b.append_basic_block("merge")
            b.cbranch(b.icmp_signed(">", left, constant(I64, 1)), body, done)
            b.position_at_end(body)
            _merge_pairs(kernel, e, items, pieces, current, bounds, left)
            b.store(b.lshr(b.add(left, constant(I64, 1)), constant(I64, 1)), count)
    return few


def _at(b: ir.IRBuilder, table: ir.Value, n: ir.Value) -> ir.Value:
    return b.gep(table, [n], source_etype=I64)


def _find_runs(e: CpuEmitter, items: Items, length: int, source: ir.Value, bounds: ir.Value) -> ir.Value:
    """How many runs the items are, up to one more than wanted, and where they begin; behind them ``length``."""
    b = e.entry.builder
    one = constant(I64, 1)
    runs, k = e.slot(I64), e.slot(I64)
    b.store(constant(I64, 0), _at(b, bounds, constant(I64, 0)))
    b.store(one, runs)
    b.store(one, k)
    with while_(b) as (_, done):
        at, count = b.load(k, typ=I64), b.load(runs, typ=I64)
        body = b.append_basic_block("look")
        more = b.icmp_signed("<", at, constant(I64, length))
        b.cbranch(b.and_(more, b.icmp_signed("<=", count, constant(I64, _RUNS))), body, done)
        b.position_at_end(body)
        before, here = (items.key(b, items.load(b, source, x)) for x in (b.sub(at, one), at))
        b.store(at, _at(b, bounds, count))
        b.store(b.add(count, b.zext(b.icmp_unsigned("<", here, before), I64)), runs)
        b.store(b.add(at, one), k)
    found = b.load(runs, typ=I64)
    b.store(constant(I64, length), _at(b, bounds, found))
    return found


def _merge_pairs(
    kernel: CpuKernel,
    e: CpuEmitter,
    items: Items,
    pieces: int,
    current: Sequence[ir.Value],
    bounds: ir.Value,
    runs: ir.Value,
) -> None:
    """Runs 0 and 1, 2 and 3, and so on; a last one alone is merged with nothing."""
    b = e.entry.builder
    places = [b.load(slot, typ=PTR) for slot in current]
    pair = e.slot(ir.ArrayType(I64, 3))
    pair.type = PTR
    with for_range(b, 0, runs, 2) as first:
        for n in range(3):
            at = intrinsic(b, "llvm.smin", I64, [b.add(first, constant(I64, n)), runs])
            b.store(b.load(_at(b, bounds, at), typ=I64), _at(b, pair, constant(I64, n)))
        phase(kernel, e, pieces, lambda part: _merge(part, items, pieces), [pair, *places])
        low, high = (b.load(_at(b, pair, constant(I64, n)), typ=I64) for n in (0, 2))
        half = b.lshr(first, constant(I64, 1))
        b.store(low, _at(b, bounds, half))
        b.store(high, _at(b, bounds, b.add(half, constant(I64, 1))))
    for one, other in ((0, 1), (2, 3)):
        b.store(places[other], current[one])
        b.store(places[one], current[other])


def _merge(part: PhaseKernel, items: Items, pieces: int) -> None:
    """Equal shares of what two runs become; where a share begins in both is found by bisection."""
    e = part.emitter({})
    b = e.entry.builder
    pair, source, target, places, other = part.shared
    low, middle, high = (b.load(_at(b, pair, constant(I64, n)), typ=I64) for n in range(3))
    size = b.sub(high, low)

    def share(chunk: ir.Value) -> ir.Value:
        return b.udiv(b.mul(chunk, size), constant(I64, pieces))

    from_here, up_to = share(part.begin), share(part.end)
    left = _left_share(e, items, source, low, middle, high, from_here)
    left_end = _left_share(e, items, source, low, middle, high, up_to)
    right, right_end = b.add(middle, b.sub(from_here, left)), b.add(middle, b.sub(up_to, left_end))
    i, j = e.slot(I64), e.slot(I64)
    b.store(b.add(low, left), i)
    b.store(right, j)
    stop = b.add(low, left_end)
    with while_(b) as (_, done):
        x, y = b.load(i, typ=I64), b.load(j, typ=I64)
        body = b.append_basic_block("both")
        inside = b.and_(b.icmp_signed("<", x, stop), b.icmp_signed("<", y, right_end))
        b.cbranch(inside, body, done)
        b.position_at_end(body)
        u, v = items.load(b, source, x), items.load(b, source, y)
        second = b.icmp_unsigned("<", items.key(b, v), items.key(b, u))
        to = b.add(low, b.add(b.sub(x, low), b.sub(y, middle)))
        items.store(b, b.select(second, v, u), target, to)
        if items.beside:
            _move_place(b, places, other, b.select(second, y, x), to)
        b.store(b.add(x, b.zext(b.xor(second, constant(I1, 1)), I64)), i)
        b.store(b.add(y, b.zext(second, I64)), j)
    x, y = b.load(i, typ=I64), b.load(j, typ=I64)
    to = b.add(low, b.add(b.sub(x, low), b.sub(y, middle)))
    _copy_run(b, items, source, target, places, other, x, stop, to)
    _copy_run(b, items, source, target, places, other, y, right_end, b.add(to, b.sub(stop, x)))
    e.finish()


def _copy_run(
    b: ir.IRBuilder,
    items: Items,
    source: ir.Value,
    target: ir.Value,
    places: ir.Value,
    other: ir.Value,
    begin: ir.Value,
    end: ir.Value,
    to: ir.Value,
) -> None:
    with for_range(b, begin, end) as k:
        at = b.add(to, b.sub(k, begin))
        items.store(b, items.load(b, source, k), target, at)
        if items.beside:
            _move_place(b, places, other, k, at)


def _move_place(b: ir.IRBuilder, places: ir.Value, other: ir.Value, k: ir.Value, to: ir.Value) -> None:
    b.store(b.load(b.gep(places, [k], source_etype=I32), typ=I32, align=4), b.gep(other, [to], source_etype=I32))


def _left_share(
    e: CpuEmitter, items: Items, source: ir.Value, low: ir.Value, middle: ir.Value, high: ir.Value, count: ir.Value
) -> ir.Value:
    """How many of the first ``count`` merged elements are of the left run, which goes first among equals."""
    b = e.entry.builder
    one = constant(I64, 1)
    lefts, rights = b.sub(middle, low), b.sub(high, middle)
    first, past = e.slot(I64), e.slot(I64)
    b.store(intrinsic(b, "llvm.smax", I64, [b.sub(count, rights), constant(I64, 0)]), first)
    b.store(intrinsic(b, "llvm.smin", I64, [count, lefts]), past)
    with while_(b) as (_, done):
        x, y = b.load(first, typ=I64), b.load(past, typ=I64)
        body = b.append_basic_block("bisect")
        b.cbranch(b.icmp_signed("<", x, y), body, done)
        b.position_at_end(body)
        half = b.lshr(b.add(x, y), one)
        # Left element ``half`` is among them, unless right element ``count - half - 1`` is less.
        mine = items.key(b, items.load(b, source, b.add(low, half)))
        theirs = items.key(b, items.load(b, source, b.add(middle, b.sub(b.sub(count, half), one))))
        taken = b.icmp_unsigned("<=", mine, theirs)
        b.store(b.select(taken, b.add(half, one), x), first)
        b.store(b.select(taken, y, half), past)
    return b.load(first, typ=I64)
