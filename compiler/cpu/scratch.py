"""Memory that a kernel needs for itself while it runs."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.native.math.vector import I64, PTR, constant

__all__ = ["allocate", "release"]

#: Bytes: a cache line, and the widest vector.
_ALIGNMENT = 64


def allocate(e: CpuEmitter, nbytes: int) -> ir.Value:
    """A block from the C library, aligned to 64 bytes; every kernel frees what it takes with `release`."""
    b = e.entry.builder
    kind = ir.FunctionType(PTR, [I64, I64])
    function = b.module.globals.get("aligned_alloc") or ir.Function(b.module, kind, "aligned_alloc")
    return b.call(function, [constant(I64, _ALIGNMENT), constant(I64, -(-max(nbytes, 1) // _ALIGNMENT) * _ALIGNMENT)])


def release(e: CpuEmitter, places: Sequence[ir.Value]) -> None:
    """Free blocks that `allocate` gave."""
    b = e.entry.builder
    function = b.module.globals.get("free") or ir.Function(b.module, ir.FunctionType(ir.VoidType(), [PTR]), "free")
    for place in places:
        b.call(function, [place])
