"""What writes a program's calls of routines: places in memory, and the table in the end."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from shardc.collectives.call.call import BufferRef
from shardc.compiler.lower.lowered import Buffer, BufferPlan, KernelStep
from shardc.compiler.routines.strided_view import StridedView, dense_strides
from shardc.hlo.ir.types import DType, Shape
from shardc.native.llvm.target import Target
from shardc.native.memory.strided_copies import MAX_RANK, add_dimension, begin_strides
from shardc.native.routines.products import ROWS, lanes
from shardc.native.routines.records import (
    ARENA,
    ARGUMENT,
    CLEAR,
    CONSTANT,
    END,
    MOVE,
    PRODUCT_F32,
    PRODUCT_F64,
    RESULT,
    SORT,
    ClearCall,
    MoveCall,
    Place,
    ProductCall,
    RoutineCall,
    SortCall,
)

__all__ = ["RoutineTable", "TableWriter", "TooLarge"]

#: Most bytes that one operation moves, in so many pieces, and most multiplications that it does, as many as kernels do
#: that keep their sums in registers as well; most comparisons; most bytes of temporary memory. `table` says why.
_BYTES, _PIECES, _PRODUCTS, _COMPARISONS, _SCRATCH = 1 << 17, 1 << 12, 1 << 18, 1 << 14, 1 << 18
#: Where the constants and the temporary memory begin: at multiples of this.
_ALIGNMENT = 64

_SPACES: Mapping[str, int] = MappingProxyType(
    {"arena": ARENA, "constant": CONSTANT, "argument": ARGUMENT, "result": RESULT}
)
_TYPES: Mapping[str, int] = MappingProxyType({"f32": PRODUCT_F32, "f64": PRODUCT_F64})


class TooLarge(Exception):
    """The program had better get code of its own."""


class RoutineTable(NamedTuple):
    """The table with the program's constants behind it, and the bytes of the arena that it needs."""

    constants: bytes
    arena_bytes: int


class TableWriter:
    """The calls so far; places in constants are those of the program until the table is made."""

    def __init__(self, plan: BufferPlan, target: Target) -> None:
        self.plan, self.target = plan, target
        self.calls: list[MoveCall | ClearCall | ProductCall | SortCall] = []
        self.scratch_bytes = 0

    def operand(self, step: KernelStep, number: int) -> StridedView:
        """A whole operand."""
        return self._view(step.operands[number], step.instruction.operands[number].shape)

    def result(self, step: KernelStep) -> StridedView:
        """The whole result of an operation that has one."""
        return self._view(step.results[0], step.instruction.shape)

    def _view(self, buffer: Buffer, shape: Shape) -> StridedView:
        """The array in a buffer, which may have been made with other dimensions of as many elements."""
        ref = self.plan.ref(buffer)
        element = shape.dtype.nbytes
        return StridedView(ref.space, ref.index, ref.offset, element, shape.dims, dense_strides(shape.dims, element))

    def scratch(self, dims: tuple[int, ...], element: int) -> StridedView:
        """Temporary memory for an array."""
        begin = -(-self.plan.arena_bytes // _ALIGNMENT) * _ALIGNMENT + self.scratch_bytes
        self.scratch_bytes += -(-math.prod(dims) * element // _ALIGNMENT) * _ALIGNMENT
        if self.scratch_bytes > _SCRATCH:
            raise TooLarge
        return StridedView("arena", 0, begin, element, dims, dense_strides(dims, element))

    def copy(self, to: Buffer, source: Buffer) -> None:
        """All bytes of an array; nothing where both lie at one place."""
        here, there = self.plan.ref(source), self.plan.ref(to)
        if here != there and to.nbytes:
            call = MoveCall(to=_place(there), source=_place(here))
            begin_strides(call.plan, to.nbytes)
            self._add(call, MOVE)

    def move(self, to: StridedView, source: StridedView) -> None:
        """``to`` becomes ``source``, of the same dimensions."""
        if to == source or 0 in to.dims:
            return
        call = MoveCall(to=_place(to), source=_place(source))
        plan = call.plan
        begin_strides(plan, to.element)
        sizes = [(n, *s) for n, *s in zip(to.dims, to.strides, source.strides, strict=True) if n != 1]
        if len(sizes) > MAX_RANK or math.prod(to.dims) * to.element > _BYTES:
            raise TooLarge
        for n, there, here in reversed(sizes):
            add_dimension(plan, n, there, here)
        if math.prod(plan.dims[k] for k in range(plan.rank)) > _PIECES:
            raise TooLarge
        self._add(call, MOVE)

    def clear(self, to: StridedView) -> None:
        """Zero bits in all of a dense array."""
        self._add(ClearCall(to=_place(to), count=math.prod(to.dims) * to.element), CLEAR)

    def multiply(self, kind: DType, to: StridedView, left: StridedView, right: StridedView) -> None:
        """``to`` becomes the products of (batches, rows, depth) and (batches, depth, columns), none of them empty.

        Columns lie next to each other in ``to`` and ``right``.
        """
        (batches, rows, depth), columns = left.dims, right.dims[2]
        width = lanes(self.target, kind.nbytes)
        done = batches * -(-rows // ROWS) * ROWS * -(-columns // width) * width * depth
        if kind.name not in _TYPES or done > _PRODUCTS:
            raise TooLarge
        numbers = [s // kind.nbytes for s in (*to.strides[:2], *left.strides, *right.strides[:2])]
        sizes = (batches, rows, columns, depth)
        places = [_place(v) for v in (to, left, right)]
        self._add(ProductCall(RoutineCall(), *places, *sizes, *numbers), _TYPES[kind.name])

    def sort(self, to: StridedView, source: StridedView, rows: int, length: int, stride: int, is_float: bool) -> None:
        """Rows of dense arrays of 4-byte elements, as `SortCall` says."""
        if rows * length * length.bit_length() > _COMPARISONS:
            raise TooLarge
        places = [_place(v) for v in (to, source, self.scratch((2, length), 8))]
        self._add(SortCall(RoutineCall(), *places, rows, length, stride, int(is_float)), SORT)

    def _add(self, call: MoveCall | ClearCall | ProductCall | SortCall, routine: int) -> None:
        call.head = RoutineCall(routine, ctypes.sizeof(call))
        self.calls.append(call)

    def table(self, constants: bytes) -> RoutineTable:
        """The table with the program's ``constants`` behind it."""
        calls = [*self.calls, RoutineCall(END, 0)]
        length = -(-sum(map(ctypes.sizeof, calls)) // _ALIGNMENT) * _ALIGNMENT
        for call in self.calls:
            for name in ("source", "left", "right"):
                if hasattr(call, name) and getattr(call, name).space == CONSTANT:
                    getattr(call, name).offset += length
        data = b"".join(map(bytes, calls)).ljust(length, b"\0") + constants
        begin = -(-self.plan.arena_bytes // _ALIGNMENT) * _ALIGNMENT
        return RoutineTable(data, begin + self.scratch_bytes if self.scratch_bytes else self.plan.arena_bytes)


def _place(at: StridedView | BufferRef) -> Place:
    number = at.index if isinstance(at, BufferRef) else at.number
    return Place(_SPACES[at.space], number, at.offset)
