"""Top-k: the best elements of each row and where they stand, equal ones in order of position.

A short list is kept sorted while the row goes by; a long one is the beginning of the sorted row.
"""

from __future__ import annotations

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.reductions.key_sorting import emit_key_sort, takes_keys
from shardc.compiler.cpu.reductions.sorting import Sorter
from shardc.compiler.elements import memory
from shardc.compiler.elements.control_flow import for_range, while_
from shardc.compiler.elements.frames import Val
from shardc.compiler.elements.sorting import Rows, by_value
from shardc.hlo.ir.ir import Computation
from shardc.hlo.ir.sort_keys import KEY_TYPES, SortKey
from shardc.hlo.ir.types import DType
from shardc.native.math.vector import I32, I64, constant

__all__ = ["emit_topk"]

#: Longer lists than this are cut from the sorted row: keeping one may take its length for each element.
_LONGEST_LIST = 64


def emit_topk(kernel: CpuKernel) -> None:
    """The first k of each row by value (total order for floats), with their positions as s32."""
    i = kernel.instruction
    operand = i.operands[0].shape
    values, positions = i.shape.elements
    count = values.dims[-1]
    rows = Rows(operand.dims, operand.rank - 1)
    if count > _LONGEST_LIST and 0 not in operand.dims and operand.dtype.name in KEY_TYPES and takes_keys(rows):
        key = SortKey(0, operand.dtype, descending=i.attrs.get("largest", True))
        emit_key_sort(kernel, (key,), rows, count)
        return
    e = kernel.emitter({})
    if 0 not in operand.dims and 0 not in values.dims:
        kinds = (operand.dtype, positions.dtype)
        before = by_value(operand.dtype, i.attrs.get("largest", True))
        if count <= _LONGEST_LIST:
            _List(e, kernel, kinds, before, count).emit(operand.size // operand.dims[-1], operand.dims[-1])
        else:
            _cut_from_sorted(e, kernel, kinds, before, count)
    e.finish()


def _cut_from_sorted(
    e: CpuEmitter, kernel: CpuKernel, kinds: tuple[DType, DType], before: Computation, count: int
) -> None:
    dims = kernel.instruction.operands[0].shape.dims
    length = dims[-1]
    sorter = Sorter(e, before, kinds, length)
    b = e.entry.builder
    with for_range(b, 0, kernel.instruction.operands[0].shape.size // length) as row:
        scratch = sorter.begin()
        base = b.mul(row, constant(I64, length))
        with for_range(b, 0, length) as k:
            value = memory.load(b, kernel.operands[0], b.add(base, k), kinds[0], 1)
            memory.store(b, value, scratch[0], k, kinds[0], None)
            memory.store(b, (b.trunc(k, I32),), scratch[1], k, kinds[1], None)
        done = sorter.sort()
        start = b.mul(row, constant(I64, count))
        with for_range(b, 0, count) as k:
            for place, kind, source in zip(kernel.results, kinds, done, strict=True):
                memory.store(b, memory.load(b, source, k, kind, 1), place, b.add(start, k), kind, None)
    sorter.free()


class _List:
    """The best elements so far, sorted, in the place of the results."""

    def __init__(
        self, e: CpuEmitter, kernel: CpuKernel, kinds: tuple[DType, DType], before: Computation, count: int
    ) -> None:
        self.e = e
        self.b: ir.IRBuilder = e.entry.builder
        self.source = kernel.operands[0]
        self.values, self.positions = kernel.results
        self.kinds = kinds
        self.before = before
        self.count = count
        self.hole = e.slot(I64)

    def emit(self, rows: int, length: int) -> None:
        b = self.b
        with for_range(b, 0, rows) as row:
            base, start = b.mul(row, constant(I64, length)), b.mul(row, constant(I64, self.count))
            with for_range(b, 0, self.count) as k:
                self._insert(self._element(base, k), k, start, b.add(start, k))
            worst = b.add(start, constant(I64, self.count - 1))
            with for_range(b, self.count, length) as k:
                x = self._element(base, k)
                with b.if_then(self._comes_before(x, worst), likely=False):
                    self._insert(x, k, start, worst)

    def _element(self, base: ir.Value, k: ir.Value) -> Val:
        return Val(memory.load(self.b, self.source, self.b.add(base, k), self.kinds[0], 1), self.e.entry)

    def _comes_before(self, x: Val, at: ir.Value) -> ir.Value:
        """Whether ``x`` is better than the listed element. Equal ones were earlier in the row and stay in front."""
        y = Val(memory.load(self.b, self.values, at, self.kinds[0], 1), self.e.entry)
        nowhere = self.e.constant(0, self.kinds[1])
        return self.e.call(self.before, [x, y, nowhere, nowhere])[0].value

    def _insert(self, x: Val, k: ir.Value, start: ir.Value, end: ir.Value) -> None:
        """Move worse elements one place on, from place ``end`` down, and put element ``k`` before them."""
        b, one = self.b, constant(I64, 1)
        b.store(end, self.hole)
        with while_(b) as (_, done):
            hole = b.load(self.hole, typ=I64)
            compare, shift = b.append_basic_block("compare"), b.append_basic_block("shift")
            b.cbranch(b.icmp_signed(">", hole, start), compare, done)
            b.position_at_end(compare)
            above = b.sub(hole, one)
            b.cbranch(self._comes_before(x, above), shift, done)
            b.position_at_end(shift)
            for place, kind in zip((self.values, self.positions), self.kinds, strict=True):
                memory.store(b, memory.load(b, place, above, kind, 1), place, hole, kind, None)
            b.store(above, self.hole)
        hole = b.load(self.hole, typ=I64)
        memory.store(b, x.parts, self.values, hole, self.kinds[0], None)
        memory.store(b, (b.trunc(k, I32),), self.positions, hole, self.kinds[1], None)
