"""A row sorted in vector lanes by several threads: phases split it into parts, and the last one sorts all parts."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.parallel import PhaseKernel, phase
from shardc.compiler.cpu.reductions.quicksort import Finish, Quicksort
from shardc.compiler.elements.control_flow import for_range
from shardc.native.math.vector import I64, PTR, constant

__all__ = ["emit_vector_sort"]

#: Parts that a row is split into, at most.
_PARTS = 32


def emit_vector_sort(
    kernel: CpuKernel,
    e: CpuEmitter,
    bits: int,
    length: int,
    pieces: int,
    current: Sequence[ir.Value],
    finish: Finish | None,
) -> None:
    """Sort the items of ``current`` (`emit_radix_passes`), signed integers of so many bits, where they lie.

    Each level splits parts into two. The bounds of a level's parts are ``stride`` numbers apart in their table.
    """
    b = e.entry.builder
    levels = min(pieces, _PARTS).bit_length() - 1
    parts = 1 << levels
    bounds = e.slot(ir.ArrayType(I64, parts + 1))
    bounds.type = PTR
    b.store(constant(I64, 0), bounds)
    b.store(constant(I64, length), _at(b, bounds, constant(I64, parts)))
    arrays = [b.load(slot, typ=PTR) for slot in current[:2]]
    for level in range(levels):
        here, there = arrays if level % 2 == 0 else arrays[::-1]
        stride = parts >> level

        def split(part: PhaseKernel, stride: int = stride) -> None:
            inner = part.emitter({})
            b = inner.entry.builder
            bounds, here, there = part.shared
            code = Quicksort(b.module, bits)
            with for_range(b, part.begin, part.end) as k:
                at = b.mul(k, constant(I64, stride))
                first, count = _part(b, bounds, at, stride)
                source, target = (b.gep(array, [first], source_etype=code.kind) for array in (here, there))
                left = code.split(b, source, target, count)
                b.store(b.add(first, left), _at(b, bounds, b.add(at, constant(I64, stride // 2))))
            inner.finish()

        phase(kernel, e, 1 << level, split, [bounds, here, there])

    def sort(part: PhaseKernel) -> None:
        inner = part.emitter({})
        b = inner.entry.builder
        bounds, here, there = part.shared
        code = Quicksort(b.module, bits, finish)
        with for_range(b, part.begin, part.end) as k:
            first, count = _part(b, bounds, k, 1)
            source, target = (b.gep(array, [first], source_etype=code.kind) for array in (here, there))
            code.sort(b, source, target, count, to_there=levels % 2 == 1)
        inner.finish()

    phase(kernel, e, parts, sort, [bounds, *(arrays if levels % 2 == 0 else arrays[::-1])])


def _at(b: ir.IRBuilder, bounds: ir.Value, k: ir.Value) -> ir.Value:
    return b.gep(bounds, [k], source_etype=I64)


def _part(b: ir.IRBuilder, bounds: ir.Value, k: ir.Value, stride: int) -> tuple[ir.Value, ir.Value]:
    """Where a part begins, and how many elements it has."""
    first, past = (b.load(_at(b, bounds, x), typ=I64) for x in (k, b.add(k, constant(I64, stride))))
    return first, b.sub(past, first)
