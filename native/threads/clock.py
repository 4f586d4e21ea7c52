"""Reading the time in emitted code: POSIX ``clock_gettime``, some 25 ns, at the same rate on every core."""

from __future__ import annotations

from llvmlite import ir

from shardc.native.lowlevel.platform import platform_of
from shardc.native.math.vector import I32, I64, PTR, constant

__all__ = ["emit_nanoseconds"]


def emit_nanoseconds(b: ir.IRBuilder) -> ir.Value:
    """Nanoseconds of ``CLOCK_MONOTONIC`` as an i64: the clock of Python's `time.monotonic_ns` on Linux."""
    module = b.module
    read = module.globals.get("clock_gettime")
    if read is None:
        read = ir.Function(module, ir.FunctionType(I32, [I32, PTR]), "clock_gettime")
    time = ir.LiteralStructType([I64, I64])
    with b.goto_entry_block():
        place = b.alloca(time)
    b.call(read, [constant(I32, platform_of(str(module.triple)).clock), place])
    seconds = b.load(place, typ=I64)
    rest = b.load(b.gep(place, [constant(I64, 1)], inbounds=True, source_etype=I64), typ=I64)
    return b.add(b.mul(seconds, constant(I64, 1_000_000_000)), rest)
