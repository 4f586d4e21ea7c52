"""Reading the time in emitted code: POSIX ``clock_gettime``, some 25 ns, at the same rate on every core."""

from __future__ import annotations

from llvmlite import ir

from shardc.native.math.vector import I32, I64, PTR, constant

__all__ = ["emit_nanoseconds", "now_ir"]

_NOW = """
declare i32 @clock_gettime(i32, ptr)

define internal i64 @now() alwaysinline {
  %time = alloca [2 x i64], align 16
  call i32 @clock_gettime(i32 $CLOCK$, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %rest.p = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.p, align 8
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}
"""


def now_ir(triple: str) -> str:
    """IR text of ``i64 @now()``, which gives what `emit_nanoseconds` gives."""
    return _NOW.replace("$CLOCK$", str(_monotonic(triple)))


def _monotonic(triple: str) -> int:
    """The number of ``CLOCK_MONOTONIC``."""
    return 6 if any(word in triple for word in ("darwin", "macos", "apple")) else 1


def emit_nanoseconds(b: ir.IRBuilder) -> ir.Value:
    """Nanoseconds of ``CLOCK_MONOTONIC`` as an i64: the clock of Python's `time.monotonic_ns` on Linux."""
    module = b.module
    read = module.globals.get("clock_gettime")
    if read is None:
        read = ir.Function(module, ir.FunctionType(I32, [I32, PTR]), "clock_gettime")
    time = ir.LiteralStructType([I64, I64])
    with b.goto_entry_block():
        place = b.alloca(time)
    b.call(read, [constant(I32, _monotonic(str(module.triple))), place])
    seconds = b.load(place, typ=I64)
    rest = b.load(b.gep(place, [constant(I64, 1)], inbounds=True, source_etype=I64), typ=I64)
    return b.add(b.mul(seconds, constant(I64, 1_000_000_000)), rest)
