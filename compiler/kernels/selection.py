"""select-and-scatter: each window's selected element receives the window's source value."""

from __future__ import annotations

from llvmlite import ir

from shardc.compiler.kernels import memory
from shardc.compiler.kernels.control_flow import counted, nest
from shardc.compiler.kernels.emitter import Emitter
from shardc.compiler.kernels.frames import Val
from shardc.compiler.kernels.function import Kernel
from shardc.compiler.kernels.registers import part_count, register_type
from shardc.hlo.types import DType
from shardc.native.vector import I1, I64, constant

__all__ = ["emit_select_and_scatter"]


def emit_select_and_scatter(kernel: Kernel) -> None:
    """Windows in row-major order; padding is never selected; the first element stays unless ``select`` refuses it."""
    i = kernel.instruction
    operand, source, _ = i.operands
    e = kernel.emitter({})
    b = e.entry.builder
    dtype = i.shape.dtype
    start = Val(memory.load(b, kernel.operands[2], constant(I64, 0), dtype, 1), e.entry)
    with counted(b, 0, i.shape.size) as k:
        memory.store(b, start.parts, kernel.results[0], k, dtype, None)
    if 0 not in source.shape.dims and 0 not in operand.shape.dims:
        chosen = _Chosen(e, dtype)
        with nest(b, source.shape.dims) as out:
            b.store(constant(I1, 0), chosen.found)
            _search(kernel, e, chosen, out)
            with b.if_then(b.load(chosen.found, typ=I1)):
                _deposit(kernel, e, chosen, out)
    e.finish()


class _Chosen:
    """The window element selected so far: is there one, its value, its position in the operand."""

    def __init__(self, e: Emitter, dtype: DType) -> None:
        self.dtype = dtype
        self.found = e.slot(I1)
        self.position = e.slot(I64)
        self.parts = [e.slot(register_type(dtype)) for _ in range(part_count(dtype))]

    def value(self, b: ir.IRBuilder) -> tuple[ir.Value, ...]:
        return tuple(b.load(p, typ=register_type(self.dtype)) for p in self.parts)


def _search(kernel: Kernel, e: Emitter, chosen: _Chosen, out: list[ir.Value]) -> None:
    i = kernel.instruction
    b = e.entry.builder
    operand = i.operands[0]
    window = i.attrs["window"].dims
    dtype = operand.shape.dtype
    with nest(b, [w.size for w in window]) as inner:
        inside: ir.Value = constant(I1, 1)
        position: ir.Value = constant(I64, 0)
        for o, k, w, n in zip(out, inner, window, operand.shape.dims, strict=True):
            at = b.add(b.mul(o, constant(I64, w.stride)), b.mul(k, constant(I64, w.rhs_dilate)))
            at = b.sub(at, constant(I64, w.pad_low))
            inside = b.and_(inside, b.icmp_unsigned("<", at, constant(I64, n)))
            position = b.add(b.mul(position, constant(I64, n)), at)
        with b.if_then(inside):
            new = memory.load(b, kernel.operands[0], position, dtype, 1)
            old = chosen.value(b)
            keep = e.call(i.attrs["select"], [Val(old, e.entry), Val(new, e.entry)])[0].value
            keep = b.and_(keep, b.load(chosen.found, typ=I1))
            for slot, x, y in zip(chosen.parts, old, new, strict=True):
                b.store(b.select(keep, x, y), slot)
            b.store(b.select(keep, b.load(chosen.position, typ=I64), position), chosen.position)
            b.store(constant(I1, 1), chosen.found)


def _deposit(kernel: Kernel, e: Emitter, chosen: _Chosen, out: list[ir.Value]) -> None:
    i = kernel.instruction
    b = e.entry.builder
    dtype = i.shape.dtype
    source = i.operands[1]
    offset: ir.Value = constant(I64, 0)
    for o, n in zip(out, source.shape.dims, strict=True):
        offset = b.add(b.mul(offset, constant(I64, n)), o)
    value = Val(memory.load(b, kernel.operands[1], offset, dtype, 1), e.entry)
    position = b.load(chosen.position, typ=I64)
    old = Val(memory.load(b, kernel.results[0], position, dtype, 1), e.entry)
    total = e.call(i.attrs["scatter"], [old, value])[0]
    memory.store(b, total.parts, kernel.results[0], position, dtype, None)
