"""Copies and zeros of bytes, as our own vector loops.

The C library's may be ten times slower where source and target have equal addresses modulo a page, and does not say
when it goes past the caches. Large targets that nobody reads soon are written with non-temporal stores: a line is then
not read first. Those need a fence before another thread may look (`fence`).
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from shardc.native.llvm.flow import at_byte, counted, define, number
from shardc.native.llvm.jit import TargetModule, new_module
from shardc.native.llvm.target import Target
from shardc.native.math.vector import I1, I8, I32, I64, PTR, constant, zero

__all__ = [
    "COPY_BYTES", "LINE", "ZERO_BYTES", "copying_module", "emit_copy", "emit_zero", "fence",
]  # fmt: skip

#: Bytes of a cache line.
LINE = 64
#: Lines that are on their way at once.
_UNROLLED = 4

_LINE = ir.VectorType(I8, LINE)
#: What moves ``t`` at a byte offset.
Move = Callable[[ir.IRBuilder, ir.Value, ir.Type, bool], None]


COPY_BYTES, ZERO_BYTES = "shardc_copy_bytes", "shardc_zero_bytes"


def copying_module(target: Target | None = None) -> TargetModule:
    """A module with `emit_copy` and `emit_zero` for others to call, as `COPY_BYTES` and `ZERO_BYTES`."""
    module = new_module("copying", target)
    for function in (emit_copy(module, COPY_BYTES), emit_zero(module, ZERO_BYTES)):
        function.linkage = "external"
    return module


def emit_copy(module: ir.Module, name: str = "copy_bytes") -> ir.Function:
    """``void (ptr to, ptr from, i64 bytes, i1 streaming)``; the two do not overlap. Made once per module."""
    if name in module.globals:
        return module.globals[name]
    function, b = define(module, name, [PTR, PTR, I64, I1], internal=True)
    to, source, nbytes, streaming = function.args
    mark = module.add_metadata([constant(I32, 1)])

    def move(b: ir.IRBuilder, at: ir.Value, t: ir.Type, streamed: bool) -> None:
        value = b.load(at_byte(b, source, at), typ=t, align=1)
        stored = b.store(value, at_byte(b, to, at), align=LINE if streamed else 1)
        if streamed:
            stored.set_metadata("nontemporal", mark)

    aligned = b.icmp_unsigned("==", b.and_(b.ptrtoint(to, I64), number(LINE - 1)), number(0))
    with b.if_else(b.and_(streaming, aligned)) as (past, through):
        with past:
            _lines(b, nbytes, move, True)
        with through:
            _lines(b, nbytes, move, False)
    _rest(b, nbytes, move)
    b.ret_void()
    return function


def emit_zero(module: ir.Module, name: str = "zero_bytes") -> ir.Function:
    """``void (ptr to, i64 bytes)``. Made once per module."""
    if name in module.globals:
        return module.globals[name]
    function, b = define(module, name, [PTR, I64], internal=True)
    to, nbytes = function.args

    def clear(b: ir.IRBuilder, at: ir.Value, t: ir.Type, streamed: bool) -> None:
        b.store(zero(t), at_byte(b, to, at), align=1)

    _lines(b, nbytes, clear, False)
    _rest(b, nbytes, clear)
    b.ret_void()
    return function


def fence(b: ir.IRBuilder) -> None:
    """What was streamed is there for other threads that see what is written from now on."""
    b.fence("seq_cst")


def _lines(b: ir.IRBuilder, nbytes: ir.Value, move: Move, streamed: bool) -> None:
    """Whole lines, several at a time."""
    together = LINE * _UNROLLED
    whole = b.and_(nbytes, number(-together))
    with counted(b, number(0), whole, together) as at:
        for k in range(_UNROLLED):
            move(b, b.add(at, number(k * LINE)), _LINE, streamed)
    with counted(b, whole, b.and_(nbytes, number(-LINE)), LINE) as at:
        move(b, at, _LINE, streamed)


def _rest(b: ir.IRBuilder, nbytes: ir.Value, move: Move) -> None:
    """The bytes behind the last whole line: halves of a line, of that, ..."""
    half = LINE // 2
    while half:
        with b.if_then(b.icmp_signed("!=", b.and_(nbytes, number(half)), number(0))):
            start = b.and_(nbytes, number(-2 * half))
            move(b, start, ir.VectorType(I8, half) if half > 1 else I8, False)
        half //= 2
