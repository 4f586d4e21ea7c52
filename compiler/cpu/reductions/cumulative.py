"""Windows that hold everything up to (or from) their own position, such as cumulative sums: one pass over the elements.

Elements are totalled in blocks, blocks in larger blocks, and so on; what lies before a block is added to its own totals
once. Rounding errors grow with the logarithm of the length (Higham, "The Accuracy of Floating Point Summation", 1993),
and 16-bit floats are rounded once, as in other reductions. HLO's reducers are associative, so windows may be regrouped.
Totals of no more than one block have the bits of the windows taken one by one, in order, each rounded at each step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.function import emit_elements
from shardc.compiler.cpu.parallel import ChunkSpan, in_pieces
from shardc.compiler.elements import memory
from shardc.compiler.elements.arithmetic.registers import register_type
from shardc.compiler.elements.control_flow import for_range
from shardc.compiler.elements.fold_emitter import round_element
from shardc.compiler.elements.folds import find_running_dimension
from shardc.compiler.elements.frames import Val
from shardc.compiler.elements.loop_space import element_bits, power_below
from shardc.compiler.elements.scalar_programs import is_scalar_program
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.reducers import any_order, identity_of
from shardc.native.math.vector import I32, I64, constant, shuffle

__all__ = ["emit_reduce_window"]

#: Simple operations that a step of a running total takes, and columns that a thread should have at least.
_COST, _COLUMNS = 8, 64
#: Elements of a block, and blocks of a larger one.
_BLOCK = 16


def emit_reduce_window(kernel: CpuKernel) -> None:
    """A running total where the windows allow it, a fold per window elsewhere."""
    found = find_running_dimension(kernel.instruction)
    if found is None or (found[1] and _in_steps(kernel.instruction, found[0])):
        emit_elements(kernel)
        return
    dims = kernel.instruction.operands[0].shape.dims
    dimension, backwards = found
    outer, columns = math.prod(dims[:dimension]), math.prod(dims[dimension + 1 :])
    work = _COST * math.prod(dims) * (len(kernel.instruction.operands) // 2)
    by_column = columns > outer
    pieces = columns // _COLUMNS if by_column else outer
    in_pieces(kernel, pieces, work, lambda k, span: _Running(k, dimension, backwards).emit(span, by_column))


def _in_steps(i: Instruction, dimension: int) -> bool:
    """Whether windows are so short that their order is kept, where it makes a difference."""
    first = i.operands[0].shape
    free = len(i.operands) == 2 and any_order(i.attrs["to_apply"], first.dtype)
    return first.dims[dimension] <= _BLOCK and not free


@dataclass(frozen=True, slots=True)
class _Line:
    """What is totalled together from ``start`` on: ``lanes`` lines side by side, or one line, ``along`` at a time."""

    start: ir.Value
    lanes: int = 1
    along: int = 1

    @property
    def width(self) -> int:
        return max(self.lanes, self.along)


class _Running:
    """The loops: over what lies before the dimension, over what lies after it in vectors, then along it."""

    def __init__(self, kernel: CpuKernel, dimension: int, backwards: bool) -> None:
        i = kernel.instruction
        count = len(i.operands) // 2
        self.kernel = kernel
        self.backwards = backwards
        self.in_steps = _in_steps(i, dimension)
        self.reducer = i.attrs["to_apply"]
        self.dtypes = [o.shape.dtype for o in i.operands[:count]]
        self.inits = kernel.operands[count:]
        self.e: CpuEmitter = kernel.emitter({})
        dims = i.operands[0].shape.dims
        self.outer, self.length = math.prod(dims[:dimension]), dims[dimension]
        self.inner = math.prod(dims[dimension + 1 :])
        widest = 2 * self.e.vector_bits // element_bits(self.dtypes)
        self.lanes = min(widest, power_below(self.inner)) if is_scalar_program(self.reducer) else 1
        single = self.inner == 1 and count == 1 and identity_of(self.reducer, self.dtypes[0]) is not None
        self.along = min(widest, power_below(self.length)) if single and not self.in_steps else 1

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
                self._totals(b, b.add(base, j), self.lanes)
            if whole * self.lanes < self.inner:
                with for_range(b, b.add(rest, constant(I64, whole * self.lanes)), self.inner) as j:
                    self._totals(b, b.add(base, j), 1)
        self.e.finish()

    def _totals(self, b: ir.IRBuilder, start: ir.Value, lanes: int) -> None:
        """Of ``lanes`` lines from ``start``; a single one in vectors, and what is beyond whole vectors by elements."""
        line = _Line(start, lanes)
        before = [
            self._val(Val(memory.load(b, p, constant(I64, 0), d, 1), self.e.entry).wide(lanes), lanes)
            for p, d in zip(self.inits, self.dtypes, strict=False)
        ]
        if self.in_steps:
            self._steps(b, line, before)
            return
        whole = self.length // self.along * self.along if self.along > 1 else 0
        if whole:
            vectors = _Line(start, along=self.along)
            wide = [self._val(v.wide(self.along), self.along) for v in before]
            total = self._join(wide, self._block(b, vectors, 0, whole, wide))
            before = [self._val(tuple(b.extract_element(p, constant(I32, 0)) for p in v.parts), 1) for v in total]
        if whole < self.length:
            self._block(b, line, whole, self.length, before)

    def _steps(self, b: ir.IRBuilder, line: _Line, before: Sequence[Val]) -> None:
        """One element after another onto what is ``before`` them."""
        slots = self._slots(b, before)
        with for_range(b, 0, self.length) as k:
            total = self._join(self._loaded(b, slots, line.width), self._element(b, line, k))
            self._write(b, line, k, total)
            self._store(b, slots, total)

    def _block(self, b: ir.IRBuilder, line: _Line, first: int, past: int, before: Sequence[Val]) -> list[Val]:
        """The totals of the elements from ``first`` up to ``past``, written behind ``before``, and what all come to."""
        span = line.along
        while span * _BLOCK < past - first:
            span *= _BLOCK
        return self._blocks(b, line, span, constant(I64, first), constant(I64, past), before)

    def _blocks(
        self, b: ir.IRBuilder, line: _Line, span: int, first: ir.Value, past: ir.Value, before: Sequence[Val]
    ) -> list[Val]:
        """Up to `_BLOCK` blocks of ``span`` elements each, from ``first`` on, one after the other.

        Returns the total of them all, without what is before them.
        """
        slots = self._slots(b, before)
        reach = b.add(first, constant(I64, span * _BLOCK))
        end = b.select(b.icmp_signed("<", reach, past), reach, past)
        with for_range(b, first, end, span) as k:
            begins = b.icmp_signed("==", k, first)
            total = self._loaded(b, slots, line.width)
            if span == line.along:
                value = self._element(b, line, k)
                total = self._select(b, begins, value, self._join(total, value))
                self._write(b, line, k, self._join(before, total))
                total = self._last(b, line, total)
            else:
                behind = self._select(b, begins, before, self._join(before, total))
                value = self._blocks(b, line, span // _BLOCK, k, end, behind)
                total = self._select(b, begins, value, self._join(total, value))
            self._store(b, slots, total)
        return self._loaded(b, slots, line.width)

    def _element(self, b: ir.IRBuilder, line: _Line, k: ir.Value) -> list[Val]:
        """The element that ``k`` others come before; of a vector along the line, its own totals."""
        place = self._place(b, line, k)
        pairs = zip(self.kernel.operands, self.dtypes, strict=False)
        values = [self._val(memory.load(b, p, place, d, line.width), line.width) for p, d in pairs]
        step = 1
        while step < line.along:
            moved = [self._moved(b, v, step) for v in values]
            values = self._join(moved, values)
            step *= 2
        return values

    def _moved(self, b: ir.IRBuilder, value: Val, step: int) -> Val:
        """Each lane gets what lies ``step`` lanes before it, and the first lanes the neutral value."""
        lanes = value.lanes
        neutral = self.e.constant(identity_of(self.reducer, self.dtypes[0]), self.dtypes[0]).wide(lanes)
        order = [*range(lanes, lanes + step), *range(lanes - step)]
        if self.backwards:
            order = [*range(step, lanes), *range(lanes, lanes + step)]
        return self._val(tuple(shuffle(b, p, n, order) for p, n in zip(value.parts, neutral, strict=True)), lanes)

    def _last(self, b: ir.IRBuilder, line: _Line, total: list[Val]) -> list[Val]:
        """The total of a whole vector along the line, in all lanes."""
        if line.along == 1:
            return total
        order = [0 if self.backwards else line.along - 1] * line.along
        return [self._val(tuple(shuffle(b, p, None, order) for p in v.parts), line.along) for v in total]

    def _join(self, before: Sequence[Val], value: Sequence[Val]) -> list[Val]:
        """Both totals in one, in the order of the elements; 16-bit floats of long windows stay in 32 bits."""
        pair = (value, before) if self.backwards else (before, value)
        lanes = value[0].lanes
        made = self.e.call(self.reducer, [*pair[0], *pair[1]], wide=not self.in_steps)
        return [self._val(v.wide(lanes), lanes) for v in made]

    def _place(self, b: ir.IRBuilder, line: _Line, k: ir.Value) -> ir.Value:
        at = b.sub(constant(I64, self.length - line.along), k) if self.backwards else k
        return b.add(line.start, b.mul(at, constant(I64, self.inner)))

    def _write(self, b: ir.IRBuilder, line: _Line, k: ir.Value, total: Sequence[Val]) -> None:
        place = self._place(b, line, k)
        for value, pointer, dtype in zip(total, self.kernel.results, self.dtypes, strict=True):
            memory.store(b, round_element(self.e, value, dtype).wide(line.width), pointer, place, dtype, None)

    def _val(self, parts: tuple[ir.Value, ...], lanes: int) -> Val:
        return Val(parts, self.e.entry, lanes)

    def _select(self, b: ir.IRBuilder, where: ir.Value, yes: Sequence[Val], no: Sequence[Val]) -> list[Val]:
        return [
            self._val(tuple(b.select(where, p, q) for p, q in zip(y.parts, n.wide(y.lanes), strict=True)), y.lanes)
            for y, n in zip(yes, no, strict=True)
        ]

    def _slots(self, b: ir.IRBuilder, values: Sequence[Val]) -> list[list[ir.Value]]:
        """Slots for the parts of each value, which hold ``values`` at first."""
        slots = [[self.e.slot(p.type) for p in v.parts] for v in values]
        self._store(b, slots, values)
        return slots

    def _loaded(self, b: ir.IRBuilder, slots: Sequence[Sequence[ir.Value]], lanes: int) -> list[Val]:
        return [
            self._val(tuple(b.load(p, typ=register_type(d, lanes)) for p in places), lanes)
            for places, d in zip(slots, self.dtypes, strict=True)
        ]

    def _store(self, b: ir.IRBuilder, slots: Sequence[Sequence[ir.Value]], values: Sequence[Val]) -> None:
        for places, value in zip(slots, values, strict=True):
            for place, part in zip(places, value.parts, strict=True):
                b.store(part, place)
