"""Memory that a kernel needs for itself while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from llvmlite import ir

from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.native.math.vector import I8, I64, PTR, constant

__all__ = ["allocate", "allocate_parts", "release"]

#: Bytes: a cache line, and the widest vector.
_ALIGNMENT = 64


def allocate(e: CpuEmitter, nbytes: int) -> ir.Value:
    """A block from the C library, aligned to 64 bytes; every kernel frees what it takes with `release`."""
    b = e.entry.builder
    kind = ir.FunctionType(PTR, [I64, I64])
    function = b.module.globals.get("aligned_alloc") or ir.Function(b.module, kind, "aligned_alloc")
    return b.call(function, [constant(I64, _ALIGNMENT), constant(I64, -(-max(nbytes, 1) // _ALIGNMENT) * _ALIGNMENT)])


def allocate_parts(e: CpuEmitter, sizes: Sequence[int]) -> list[ir.Value]:
    """Parts of one block, aligned alike, of which the first is released.

    The C library keeps one block for the next run where it gives the memory of several back to the system.
    """
    places = [0, *accumulate(-(-n // _ALIGNMENT) * _ALIGNMENT for n in sizes)]
    block = allocate(e, places[-1])
    return [e.entry.builder.gep(block, [constant(I64, place)], source_etype=I8) for place in places[:-1]]


def release(e: CpuEmitter, places: Sequence[ir.Value]) -> None:
    """Free blocks that `allocate` gave."""
    b = e.entry.builder
    function = b.module.globals.get("free") or ir.Function(b.module, ir.FunctionType(ir.VoidType(), [PTR]), "free")
    for place in places:
        b.call(function, [place])
