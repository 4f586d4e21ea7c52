"""Called computations that are more than scalar arithmetic (loops, branches, arrays) as functions of their own.

Such a computation is a small program: it is lowered like one, and its step function, with memory on the caller's stack,
is called once per element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.elements import memory
from shardc.compiler.elements.arithmetic.registers import part_count
from shardc.compiler.elements.frames import Val
from shardc.hlo.ir.ir import Computation
from shardc.native.math.vector import I8, I32, I64, PTR, constant, undef, with_lanes

__all__ = ["CalledProgram", "EmitProgram", "call_function"]


@dataclass(frozen=True, slots=True)
class CalledProgram:
    """A computation as a step function, the bytes of its arena, and its constants."""

    step: ir.Function
    arena_bytes: int
    constants: ir.Value


#: Defines the program of a computation in a module, once. Kernels are given it: to lower and to emit a program is the
#: business of those who call kernels.
EmitProgram = Callable[[ir.Module, Computation], CalledProgram]


def call_function(
    program: CalledProgram,
    slots: ir.IRBuilder,
    b: ir.IRBuilder,
    computation: Computation,
    arguments: Sequence[Val],
) -> list[tuple[ir.Value, ...]]:
    """The parts of each result, in as many lanes as the widest argument has; one call of ``program`` per lane.

    ``b`` builds in the kernel, whose last argument is the device, ``slots`` in its entry block.
    """
    shapes = [s for p in computation.parameters for s in p.shape.leaves()]
    results = list(computation.root.shape.leaves())
    lanes = max((v.lanes for v in arguments), default=1)
    places = [_slot(slots, s.nbytes) for s in shapes]
    out = [_slot(slots, s.nbytes) for s in results]
    tables = [_table(slots, rows) for rows in (places, out)]
    arena = _slot(slots, program.arena_bytes)
    slots.store(constant(I32, 0), arena)
    values = [v.wide(lanes) for v in arguments]
    found: list[tuple[ir.Value, ...]] = []
    zero = constant(I64, 0)
    for lane in range(lanes):
        for parts, place, shape in zip(values, places, shapes, strict=True):
            one = tuple(b.extract_element(p, constant(I32, lane)) if lanes > 1 else p for p in parts)
            memory.store(b, one, place, zero, shape.dtype, None)
        b.call(program.step, [arena, *tables, program.constants, b.function.args[-1]])
        for n, (place, shape) in enumerate(zip(out, results, strict=True)):
            parts = memory.load(b, place, zero, shape.dtype, 1)
            if lanes == 1:
                found.append(parts)
                continue
            if lane == 0:
                found.append(tuple(undef(with_lanes(p.type, lanes)) for p in parts))
            found[n] = tuple(b.insert_element(w, p, constant(I32, lane)) for w, p in zip(found[n], parts, strict=True))
    assert all(len(p) == part_count(s.dtype) for p, s in zip(found, results, strict=True))
    return found


def _slot(slots: ir.IRBuilder, nbytes: int) -> ir.Value:
    place = slots.alloca(ir.ArrayType(I8, max(nbytes, 8)))
    place.align = 64
    place.type = PTR  # llvmlite gives it a typed pointer, which is no ``ptr`` to it
    return place


def _table(slots: ir.IRBuilder, rows: Sequence[ir.Value]) -> ir.Value:
    table = _slot(slots, 8 * len(rows))
    for n, row in enumerate(rows):
        slots.store(row, slots.gep(table, [constant(I64, n)], source_etype=PTR))
    return table
