"""Memory that a kernel needs for itself while it runs."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from shardc.compiler.kernels.emitter import Emitter
from shardc.native.vector import I64, PTR, constant

__all__ = ["allocate", "release"]


def allocate(e: Emitter, nbytes: int) -> ir.Value:
    """A block from malloc; every kernel frees what it takes with `release`."""
    b = e.entry.builder
    function = b.module.globals.get("malloc") or ir.Function(b.module, ir.FunctionType(PTR, [I64]), "malloc")
    return b.call(function, [constant(I64, max(nbytes, 64))])


def release(e: Emitter, places: Sequence[ir.Value]) -> None:
    b = e.entry.builder
    function = b.module.globals.get("free") or ir.Function(b.module, ir.FunctionType(ir.VoidType(), [PTR]), "free")
    for place in places:
        b.call(function, [place])
