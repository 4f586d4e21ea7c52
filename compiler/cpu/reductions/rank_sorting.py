"""Sorts of short rows by counting: an element goes to where as many others come before it, in vector lanes."""

from __future__ import annotations

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.parallel import ChunkSpan, in_pieces
from shardc.compiler.elements import memory
from shardc.compiler.elements.control_flow import for_range
from shardc.compiler.elements.key_bits import at_key, key_of
from shardc.compiler.elements.sorting import Rows
from shardc.hlo.ir.sort_keys import SortKey
from shardc.native.math.vector import I64, PTR, constant, splat, vector_constant, with_lanes, zero

__all__ = ["emit_rank_sort"]


def emit_rank_sort(kernel: CpuKernel, key: SortKey, rows: Rows) -> None:
    """Sort rows along one dimension by one key, some rows on each thread."""
    total = rows.outer * rows.stride
    in_pieces(kernel, total, rows.length**2 * total / 4, lambda k, span: _RankSort(k, key, rows).emit(span))


class _RankSort:
    def __init__(self, kernel: CpuKernel, key: SortKey, rows: Rows) -> None:
        self.kernel, self.key, self.rows = kernel, key, rows
        self.kind = ir.IntType(max(32, 8 * key.dtype.nbytes))
        self.lanes = max(2, kernel.target.vector_bits // self.kind.width)
        self.blocks = -(-rows.length // self.lanes)

    def emit(self, span: ChunkSpan | None) -> None:
        kernel, rows = self.kernel, self.rows
        e = kernel.emitter({})
        b = e.entry.builder
        room = ir.ArrayType(with_lanes(self.kind, self.lanes), self.blocks)
        keys, ranks = e.slot(room), e.slot(room)
        keys.type = ranks.type = PTR
        dtypes = [o.shape.dtype for o in kernel.instruction.operands]
        total = rows.outer * rows.stride
        first, past = (0, total) if span is None else span.steps(b, total)
        with for_range(b, first, past) as row:
            stride = constant(I64, rows.stride)
            base = rows.base(b, b.udiv(row, stride), b.urem(row, stride))
            with for_range(b, 0, rows.length) as k:
                value = at_key(b, kernel.operands[self.key.operand], rows.at(b, base, k), self.key.dtype)
                found, _ = key_of(b, value, self.key)
                found = found if found.type == self.kind else b.zext(found, self.kind)
                b.store(found, b.gep(keys, [k], source_etype=self.kind))
            with for_range(b, 0, self.blocks) as block:
                self._count(e, keys, ranks, block)
            with for_range(b, 0, rows.length) as k:
                rank = b.load(b.gep(ranks, [k], source_etype=self.kind), typ=self.kind)
                rank = rank if rank.type == I64 else b.zext(rank, I64)
                source, to = rows.at(b, base, k), rows.at(b, base, rank)
                for operand, result, dtype in zip(kernel.operands, kernel.results, dtypes, strict=True):
                    memory.store(b, memory.load(b, operand, source, dtype, 1), result, to, dtype, None)
        e.finish()

    def _count(self, e: CpuEmitter, keys: ir.Value, ranks: ir.Value, block: ir.Value) -> None:
        """Ranks of a block of lanes: how many keys are less, and how many in front are equal."""
        b, lanes, length = e.entry.builder, self.lanes, self.rows.length
        vector = with_lanes(self.kind, lanes)
        rank = e.slot(vector)
        b.store(zero(vector), rank)
        mine = b.load(b.gep(keys, [block], source_etype=vector), typ=vector)
        begin = b.mul(block, constant(I64, lanes))
        behind = b.add(begin, constant(I64, lanes))
        end = b.select(b.icmp_signed("<", behind, constant(I64, length)), behind, constant(I64, length))
        numbers = vector_constant(range(lanes), self.kind)

        def more(k: ir.Value, before: ir.Value) -> None:
            b.store(b.add(b.load(rank, typ=vector), b.zext(before, vector)), rank)

        def other(k: ir.Value) -> ir.Value:
            return splat(b, b.load(b.gep(keys, [k], source_etype=self.kind), typ=self.kind), lanes)

        with for_range(b, 0, begin) as k:
            more(k, b.icmp_unsigned("<=", other(k), mine))
        with for_range(b, begin, end) as k:
            theirs = other(k)
            within = b.sub(k, begin)
            place = splat(b, within if self.kind == I64 else b.trunc(within, self.kind), lanes)
            equal = b.and_(b.icmp_unsigned("==", theirs, mine), b.icmp_unsigned("<", place, numbers))
            more(k, b.or_(b.icmp_unsigned("<", theirs, mine), equal))
        with for_range(b, end, length) as k:
            more(k, b.icmp_unsigned("<", other(k), mine))
        b.store(b.load(rank, typ=vector), b.gep(ranks, [block], source_etype=vector))
