"""Sort: by keys where the comparator compares numbers (`network_sorting`, `key_sorting`); else a stable bottom-up merge
sort of each row, with the comparator inlined; all operands move together."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.parallel import ChunkSpan, in_pieces
from shardc.compiler.cpu.reductions.byte_sorting import emit_byte_sort, takes_byte
from shardc.compiler.cpu.reductions.key_sorting import emit_key_sort, takes_keys, takes_vectors
from shardc.compiler.cpu.reductions.network_sorting import emit_network_sort, takes_network
from shardc.compiler.cpu.scratch import allocate, release
from shardc.compiler.elements import memory
from shardc.compiler.elements.control_flow import for_range, while_
from shardc.compiler.elements.frames import Val
from shardc.compiler.elements.sorting import Rows
from shardc.hlo.ir.ir import Computation
from shardc.hlo.ir.sort_keys import sort_keys
from shardc.hlo.ir.types import DType
from shardc.native.math.vector import I64, PTR, constant, intrinsic

__all__ = ["Sorter", "emit_sort"]

#: Simple operations that a comparison and the moves after it take, roughly.
_COST = 16


class Sorter:
    """Sorts ``length`` elements of several arrays by a comparator, between two sets of scratch rows."""

    def __init__(self, e: CpuEmitter, comparator: Computation, dtypes: Sequence[DType], length: int) -> None:
        self.e = e
        self.comparator = comparator
        self.dtypes = tuple(dtypes)
        self.length = length
        self.rows = [[allocate(e, length * d.nbytes) for d in dtypes] for _ in range(2)]
        self.current = [e.slot(PTR) for _ in dtypes]
        self.other = [e.slot(PTR) for _ in dtypes]
        self.width, self.left, self.right = e.slot(I64), e.slot(I64), e.slot(I64)

    def free(self) -> None:
        release(self.e, [p for row in self.rows for p in row])

    def begin(self) -> list[ir.Value]:
        """Where the caller writes the row to sort."""
        b = self.e.entry.builder
        for k in range(len(self.dtypes)):
            b.store(self.rows[0][k], self.current[k])
            b.store(self.rows[1][k], self.other[k])
        return self.rows[0]

    def sort(self) -> list[ir.Value]:
        """Merge runs of doubling width; where the sorted row lies."""
        b = self.e.entry.builder
        n = constant(I64, self.length)
        b.store(constant(I64, 1), self.width)
        with while_(b) as (_, done):
            width = b.load(self.width, typ=I64)
            body = b.append_basic_block("merge")
            b.cbranch(b.icmp_signed("<", width, n), body, done)
            b.position_at_end(body)
            source = [b.load(s, typ=PTR) for s in self.current]
            target = [b.load(s, typ=PTR) for s in self.other]
            double = b.shl(width, constant(I64, 1))
            with for_range(b, 0, n, double) as low:
                middle = intrinsic(b, "llvm.smin", I64, [b.add(low, width), n])
                high = intrinsic(b, "llvm.smin", I64, [b.add(low, double), n])
                self._merge(b, source, target, low, middle, high)
            for k in range(len(self.dtypes)):
                b.store(target[k], self.current[k])
                b.store(source[k], self.other[k])
            b.store(double, self.width)
        return [b.load(s, typ=PTR) for s in self.current]

    def _merge(
        self,
        b: ir.IRBuilder,
        source: list[ir.Value],
        target: list[ir.Value],
        low: ir.Value,
        middle: ir.Value,
        high: ir.Value,
    ) -> None:
        """Two sorted runs into one; the left one wins ties."""
        one = constant(I64, 1)
        b.store(low, self.left)
        b.store(middle, self.right)
        last = constant(I64, self.length - 1)
        with for_range(b, low, high) as k:
            i, j = b.load(self.left, typ=I64), b.load(self.right, typ=I64)
            x = self._read(b, source, intrinsic(b, "llvm.smin", I64, [i, last]))
            y = self._read(b, source, intrinsic(b, "llvm.smin", I64, [j, last]))
            arguments = [v for pair in zip(y, x, strict=True) for v in pair]
            right_first = self.e.call(self.comparator, arguments)[0].value
            more_right = b.icmp_signed("<", j, high)
            no_left = b.icmp_signed(">=", i, middle)
            take_right = b.and_(more_right, b.or_(no_left, right_first))
            for p, d, u, v in zip(target, self.dtypes, x, y, strict=True):
                parts = tuple(b.select(take_right, q, r) for q, r in zip(v.parts, u.parts, strict=True))
                memory.store(b, parts, p, k, d, None)
            b.store(b.select(take_right, i, b.add(i, one)), self.left)
            b.store(b.select(take_right, b.add(j, one), j), self.right)

    def _read(self, b: ir.IRBuilder, places: list[ir.Value], at: ir.Value) -> list[Val]:
        return [Val(memory.load(b, p, at, d, 1), self.e.entry) for p, d in zip(places, self.dtypes, strict=True)]


def emit_sort(kernel: CpuKernel) -> None:
    """Sort rows along one dimension, some rows on each thread."""
    dims = kernel.instruction.operands[0].shape.dims
    if 0 in dims:
        kernel.emitter({}).finish()
        return
    rows = Rows(dims, kernel.instruction.attrs["dimensions"][0]) if dims else Rows((1,), 0)
    keys = sort_keys(kernel.instruction.attrs["to_apply"])
    alone, counted = len(kernel.operands) == 1, keys is not None and takes_byte(keys, rows)
    in_lanes = keys is not None and not counted and takes_vectors(kernel.target, keys, rows, alone)
    if keys is not None and len(keys) == 1 and not in_lanes and takes_network(rows, alone):
        emit_network_sort(kernel, keys[0], rows)
        return
    if keys is not None and counted:
        emit_byte_sort(kernel, keys[0], rows)
        return
    if keys is not None and (in_lanes or takes_keys(rows)):
        emit_key_sort(kernel, keys, rows)
        return
    count, total = _COST * rows.length * rows.length.bit_length(), rows.outer * rows.stride
    in_pieces(kernel, total, count * total, lambda k, span: _sort_rows(k, rows, span))


def _sort_rows(kernel: CpuKernel, rows: Rows, span: ChunkSpan | None) -> None:
    i = kernel.instruction
    e = kernel.emitter({})
    dtypes = [o.shape.dtype for o in i.operands]
    sorter = Sorter(e, i.attrs["to_apply"], dtypes, rows.length)
    b = e.entry.builder
    total = rows.outer * rows.stride
    first, past = (0, total) if span is None else span.steps(b, total)
    with for_range(b, first, past) as row:
        stride = constant(I64, rows.stride)
        base = rows.base(b, b.udiv(row, stride), b.urem(row, stride))
        scratch = sorter.begin()
        with for_range(b, 0, rows.length) as k:
            for p, d, s in zip(kernel.operands, dtypes, scratch, strict=True):
                memory.store(b, memory.load(b, p, rows.at(b, base, k), d, 1), s, k, d, None)
        done = sorter.sort()
        with for_range(b, 0, rows.length) as k:
            for p, d, s in zip(kernel.results, dtypes, done, strict=True):
                memory.store(b, memory.load(b, s, k, d, 1), p, rows.at(b, base, k), d, None)
    sorter.free()
    e.finish()
