"""Windows that hold everything up to their own position (cumulative sums and the like): one pass instead of n windows.

The values are those of the windows taken one by one, bit for bit: each starts from the initial value, in order. Windows
that hold everything from their position on share no start, so only reducers whose order does not matter go backwards.
"""

from __future__ import annotations

import math

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.function import emit_elements
from shardc.compiler.cpu.parallel import ChunkSpan, in_pieces
from shardc.compiler.elements import memory
from shardc.compiler.elements.arithmetic.registers import part_count, register_type
from shardc.compiler.elements.control_flow import for_range
from shardc.compiler.elements.folds import find_running_dimension
from shardc.compiler.elements.frames import Val
from shardc.compiler.elements.loop_space import element_bits, power_below
from shardc.compiler.elements.scalar_programs import is_scalar_program
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.reducers import any_order, identity_of
from shardc.native.math.vector import I32, I64, constant, shuffle

__all__ = ["emit_reduce_window"]

#: Simple operations that a step of a running total takes, and columns that a thread should have at least.
_COST, _COLUMNS = 4, 64


def emit_reduce_window(kernel: CpuKernel) -> None:
    """A running total where the windows allow it, a fold per window elsewhere."""
    found = find_running_dimension(kernel.instruction)
    if found is None or (found[1] and not _order_is_free(kernel.instruction)):
        emit_elements(kernel)
        return
    dims = kernel.instruction.operands[0].shape.dims
    dimension, backwards = found
    outer, columns = math.prod(dims[:dimension]), math.prod(dims[dimension + 1 :])
    work = _COST * math.prod(dims) * (len(kernel.instruction.operands) // 2)
    by_column = columns > outer
    pieces = columns // _COLUMNS if by_column else outer
    in_pieces(kernel, pieces, work, lambda k, span: _Running(k, dimension, backwards).emit(span, by_column))


def _order_is_free(i: Instruction) -> bool:
    return len(i.operands) == 2 and any_order(i.attrs["to_apply"], i.operands[0].shape.dtype)


class _Running:
    """The loops: over what lies before the dimension, over what lies after it in vectors, then along it."""

    def __init__(self, kernel: CpuKernel, dimension: int, backwards: bool) -> None:
        i = kernel.instruction
        count = len(i.operands) // 2
        self.kernel = kernel
        self.backwards = backwards
        self.reducer = i.attrs["to_apply"]
        self.dtypes = [o.shape.dtype for o in i.operands[:count]]
        self.inits = kernel.operands[count:]
        self.e: CpuEmitter = kernel.emitter({})
        dims = i.operands[0].shape.dims
        self.outer, self.length = math.prod(dims[:dimension]), dims[dimension]
        self.inner = math.prod(dims[dimension + 1 :])
        widest = 2 * self.e.vector_bits // element_bits(self.dtypes)
        self.lanes = min(widest, power_below(self.inner)) if is_scalar_program(self.reducer) else 1
        single = self.inner == 1 and _order_is_free(i)
        self.along = min(widest, power_below(self.length)) if single else 1

    def emit(self, span: ChunkSpan | None, by_column: bool) -> None:
        """All of it, or a span's part: of the columns (the last part has those beyond whole vectors), or of what lies
        before the dimension."""
        b = self.e.entry.builder
        whole = self.inner // self.lanes
        first, past, low, high = (constant(I64, n) for n in (0, self.outer, 0, whole))
        rest = low
        if span is not None and by_column:
            low, high = span.steps(b, whole)
            rest = b.select(b.icmp_unsigned("==", span.end, constant(I64, span.count)), rest, constant(I64, self.inner))
        elif span is not None:
            first, past = span.steps(b, self.outer)
        lanes = constant(I64, self.lanes)
        with for_range(b, first, past) as o:
            base = b.mul(o, constant(I64, self.length * self.inner))
            with for_range(b, b.mul(low, lanes), b.mul(high, lanes), self.lanes) as j:
                if self.along > 1:
                    self._line(b, base)
                else:
                    self._column(b, b.add(base, j), self.lanes)
            if whole * self.lanes < self.inner:
                with for_range(b, b.add(rest, constant(I64, whole * self.lanes)), self.inner) as j:
                    self._column(b, b.add(base, j), 1)
        self.e.finish()

    def _line(self, b: ir.IRBuilder, start: ir.Value) -> None:
        """Along the last dimension in vectors: the lanes of each combine among themselves, then with all before.

        What follows from one vector to the next is a single step, not one for each element.
        """
        (dtype,), lanes, e = self.dtypes, self.along, self.e
        (pointer,), (result,) = self.kernel.operands[:1], self.kernel.results
        kind = register_type(dtype, lanes)
        neutral = e.constant(identity_of(self.reducer, dtype), dtype).wide(lanes)[0]
        before = e.slot(kind)
        initial = Val(memory.load(b, self.inits[0], constant(I64, 0), dtype, 1), e.entry)
        b.store(initial.wide(lanes)[0], before)
        whole = self.length // lanes * lanes

        def place(k: ir.Value, count: int) -> ir.Value:
            """Where ``count`` elements lie that come behind ``k`` of them."""
            return b.add(start, b.sub(constant(I64, self.length - count), k) if self.backwards else k)

        with for_range(b, 0, whole, lanes) as k:
            offset = place(k, lanes)
            value = Val(memory.load(b, pointer, offset, dtype, lanes), e.entry, lanes)
            step = 1
            while step < lanes:
                order = [*range(lanes, lanes + step), *range(lanes - step)]
                if self.backwards:
                    order = [*range(step, lanes), *range(lanes, lanes + step)]
                moved = Val((shuffle(b, value.parts[0], neutral, order),), e.entry, lanes)
                (value,) = e.call(self.reducer, [moved, value])
                step *= 2
            last = Val(
                (shuffle(b, value.wide(lanes)[0], None, [0 if self.backwards else lanes - 1] * lanes),), e.entry, lanes
            )
            carried = Val((b.load(before, typ=kind),), e.entry, lanes)
            (total,), (following,) = e.call(self.reducer, [carried, value]), e.call(self.reducer, [carried, last])
            memory.store(b, total.wide(lanes), result, offset, dtype, None)
            b.store(following.wide(lanes)[0], before)
        one = e.slot(register_type(dtype, 1))
        b.store(b.extract_element(b.load(before, typ=kind), constant(I32, 0)), one)
        with for_range(b, whole, self.length) as k:
            offset = place(k, 1)
            old = Val((b.load(one, typ=register_type(dtype, 1)),), e.entry)
            (new,) = e.call(self.reducer, [old, Val(memory.load(b, pointer, offset, dtype, 1), e.entry)])
            memory.store(b, new.parts, result, offset, dtype, None)
            b.store(new.parts[0], one)

    def _column(self, b: ir.IRBuilder, start: ir.Value, lanes: int) -> None:
        """Along the dimension, from ``start``, for ``lanes`` neighbours."""
        slots = [[self.e.slot(register_type(d, lanes)) for _ in range(part_count(d))] for d in self.dtypes]
        for places, pointer, dtype in zip(slots, self.inits, self.dtypes, strict=True):
            value = Val(memory.load(b, pointer, constant(I64, 0), dtype, 1), self.e.entry)
            for place, part in zip(places, value.wide(lanes), strict=True):
                b.store(part, place)
        with for_range(b, 0, self.length) as k:
            at = b.sub(constant(I64, self.length - 1), k) if self.backwards else k
            offset = b.add(start, b.mul(at, constant(I64, self.inner)))
            old = [
                Val(tuple(b.load(p, typ=register_type(d, lanes)) for p in places), self.e.entry, lanes)
                for places, d in zip(slots, self.dtypes, strict=True)
            ]
            new = [
                Val(memory.load(b, p, offset, d, lanes), self.e.entry, lanes)
                for p, d in zip(self.kernel.operands, self.dtypes, strict=False)
            ]
            total = self.e.call(self.reducer, [*old, *new])
            for places, value, pointer, d in zip(slots, total, self.kernel.results, self.dtypes, strict=True):
                parts = value.wide(lanes)
                for place, part in zip(places, parts, strict=True):
                    b.store(part, place)
                memory.store(b, parts, pointer, offset, d, None)
