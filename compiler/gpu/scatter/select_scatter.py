"""select-and-scatter in two launches, neither of which has threads that write the same element.

First a thread per window finds the element that the window selects. Then a thread per element of the operand goes
through the windows that hold it, and takes the source of those that selected it, in their order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

from llvmlite import ir

from shardc.compiler.elements import memory
from shardc.compiler.elements.arithmetic.registers import part_count, register_type
from shardc.compiler.elements.control_flow import for_range
from shardc.compiler.elements.frames import Frame, IfBlock, Val
from shardc.compiler.elements.scalar_programs import is_scalar_program
from shardc.compiler.gpu.function import GpuEmitter, GpuKernel
from shardc.compiler.gpu.launches import LaunchArray
from shardc.compiler.gpu.maps.maps import extend_number, split_number
from shardc.native.math.vector import I64, constant, intrinsic

__all__ = ["emit_select_and_scatter", "takes_select_and_scatter"]

_THREADS = 256


def takes_select_and_scatter(kernel: GpuKernel) -> bool:
    """A select-and-scatter whose computations are arithmetic."""
    i = kernel.instruction
    called = ("select", "scatter")
    return i.opcode == "select-and-scatter" and all(is_scalar_program(i.attrs[name]) for name in called)


def emit_select_and_scatter(kernel: GpuKernel) -> None:
    """Padding is never selected; the first element of a window stays unless ``select`` refuses it."""
    maker = _SelectAndScatter(kernel)
    if maker.windows:
        maker.select()
    maker.gather()


class _SelectAndScatter:
    def __init__(self, kernel: GpuKernel) -> None:
        i = kernel.instruction
        self.kernel, self.attrs = kernel, i.attrs
        self.dtype = i.shape.dtype
        self.dims, self.outputs = i.operands[0].shape.dims, i.operands[1].shape.dims
        self.window = i.attrs["window"].dims
        self.windows = math.prod(self.outputs)
        self.operand, self.source, self.init = kernel.operands
        #: The element that each window selects, i64.
        self.selected = kernel.scratch(8 * max(self.windows, 1))

    def select(self) -> None:
        """The first launch: every window's element, -1 where it has none."""
        arrays = [self.operand, self.selected]
        e, frame, number, out = self._begin(arrays, self.outputs)
        b = frame.builder
        starts = [
            b.sub(b.mul(o, constant(I64, w.stride)), constant(I64, w.pad_low))
            for o, w in zip(out, self.window, strict=True)
        ]
        part = register_type(self.dtype)
        chosen, value = e.slot(I64), [e.slot(part) for _ in range(part_count(self.dtype))]
        b.store(constant(I64, -1), chosen)
        for slot in value:
            b.store(constant(part, 0), slot)
        with ExitStack() as loops:
            at = []
            for start, w, n in zip(starts, self.window, self.dims, strict=True):
                step = loops.enter_context(for_range(b, *_inside(b, start, w.size, w.rhs_dilate, n)))
                at.append(b.add(start, b.mul(step, constant(I64, w.rhs_dilate))))
            offset = _offset(b, at, self.dims)
            new = memory.load(b, self.function.pointer(self.operand), offset, self.dtype, 1)
            old, known = tuple(b.load(s, typ=part) for s in value), b.load(chosen, typ=I64)
            keeps = e.call(self.attrs["select"], [Val(old, frame), Val(new, frame)])[0].value
            keep = b.and_(keeps, b.icmp_signed(">=", known, constant(I64, 0)))
            for slot, x, y in zip(value, old, new, strict=True):
                b.store(b.select(keep, x, y), slot)
            b.store(b.select(keep, known, offset), chosen)
        place = b.gep(self.function.pointer(self.selected), [number], source_etype=I64)
        b.store(b.load(chosen, typ=I64), place, align=8)
        self._end(self.windows)

    def gather(self) -> None:
        """The second launch: every element's sources."""
        arrays = [self.source, self.init, self.selected, *self.kernel.results]
        e, frame, number, at = self._begin(arrays, self.dims)
        b = frame.builder
        part = register_type(self.dtype)
        total = [e.slot(part) for _ in range(part_count(self.dtype))]
        first = memory.load(b, self.function.pointer(self.init), constant(I64, 0), self.dtype, 1)
        for slot, x in zip(total, first, strict=True):
            b.store(x, slot)
        with ExitStack() as loops:
            out = []
            for x, w, count in zip(at, self.window, self.outputs, strict=True):
                reach = (w.size - 1) * w.rhs_dilate + 1
                past = b.add(x, constant(I64, w.pad_low))
                low = _steps_to(b, b.sub(past, constant(I64, reach - 1)), w.stride)
                high = _least(b, _steps_to(b, b.add(past, constant(I64, 1)), w.stride), count)
                out.append(loops.enter_context(for_range(b, low, high)))
            offset = _offset(b, out, self.outputs)
            selected = b.gep(self.function.pointer(self.selected), [offset], source_etype=I64)
            mine = b.icmp_signed("==", b.load(selected, typ=I64, align=8), number)
            with b.if_then(mine):
                given = memory.load(b, self.function.pointer(self.source), offset, self.dtype, 1)
                old = tuple(b.load(s, typ=part) for s in total)
                new = e.call(self.attrs["scatter"], [Val(old, frame), Val(given, frame)])[0].parts
                for slot, x in zip(total, new, strict=True):
                    b.store(x, slot)
        parts = tuple(b.load(s, typ=part) for s in total)
        memory.store(b, parts, self.function.pointer(self.kernel.results[0]), number, self.dtype, None)
        self._end(math.prod(self.dims))

    def _begin(
        self, arrays: Sequence[LaunchArray], dims: Sequence[int]
    ) -> tuple[GpuEmitter, Frame, ir.Value, list[ir.Value]]:
        """A function with a thread per index below ``dims``: its emitter, a frame for the threads that have one, the
        index's number, and the index."""
        self.function = self.kernel.function(arrays, _THREADS)
        e = self.e = self.function.emitter({})
        size = math.prod(dims)
        b = e.entry.builder
        block = extend_number(e, e.code.block(b), -(-size // _THREADS))
        number = b.add(b.mul(block, constant(I64, _THREADS)), extend_number(e, e.code.thread(b), _THREADS))
        self.branch = IfBlock(e.entry, b.icmp_unsigned("<", number, constant(I64, size)))
        inner = self.branch.frame.builder
        index: list[ir.Value] = []
        rest, total = number, size
        for n in reversed(dims):
            rest, at = split_number(inner, rest, total, n)
            total //= n
            index.insert(0, at)
        return e, self.branch.frame, number, index

    def _end(self, size: int) -> None:
        self.branch.close()
        self.e.finish()
        self.kernel.launch(self.function, (-(-size // _THREADS),))


def _offset(b: ir.IRBuilder, index: Sequence[ir.Value], dims: Sequence[int]) -> ir.Value:
    offset: ir.Value = constant(I64, 0)
    for x, n in zip(index, dims, strict=True):
        offset = b.add(b.mul(offset, constant(I64, n)), x)
    return offset


def _steps_to(b: ir.IRBuilder, distance: ir.Value, step: int) -> ir.Value:
    """How many multiples of ``step``, from 0 on, lie below ``distance``."""
    distance = intrinsic(b, "llvm.smax", I64, [distance, constant(I64, 0)])
    return b.udiv(b.add(distance, constant(I64, step - 1)), constant(I64, step))


def _least(b: ir.IRBuilder, x: ir.Value, n: int) -> ir.Value:
    return intrinsic(b, "llvm.smin", I64, [x, constant(I64, n)])


def _inside(b: ir.IRBuilder, start: ir.Value, size: int, step: int, n: int) -> tuple[ir.Value, ir.Value]:
    """The elements of a window from ``start`` that lie in an array of ``n``: the first, and past the last."""
    return _steps_to(b, b.neg(start), step), _least(b, _steps_to(b, b.sub(constant(I64, n), start), step), size)
