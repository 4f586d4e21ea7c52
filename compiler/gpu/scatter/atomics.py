"""Combining into memory that other threads combine into at the same time."""

from __future__ import annotations

from llvmlite import ir

from shardc.compiler.elements.arithmetic.registers import decode, encode, memory_type
from shardc.compiler.elements.frames import Frame, Val
from shardc.compiler.gpu.function import GpuEmitter
from shardc.hlo.ir.ir import Computation
from shardc.hlo.ir.types import DType
from shardc.native.math.vector import I8, I32, I64, constant

__all__ = ["atomic_combine", "has_atomic"]

#: Bytes of the smallest word that changes atomically.
_WORD = 4
_ORDER = "monotonic"


def has_atomic(dtype: DType) -> bool:
    """Whether the type has one part, of 8 bytes at most, so that atomic operations can combine it."""
    return not dtype.is_complex and dtype.nbytes <= 8


def atomic_combine(
    e: GpuEmitter, frame: Frame, reducer: Computation, base: ir.Value, at: Val, value: Val, dtype: DType
) -> None:
    """``base[at] = reducer(base[at], value)`` as one step that no other thread comes into."""
    b = frame.builder
    place = b.gep(base, [at.value], source_etype=memory_type(dtype))
    operation = _operation(reducer, dtype)
    if operation is not None:
        b.atomic_rmw(operation, place, value.value, _ORDER)
        return
    shift: ir.Value | None = None
    kind = ir.IntType(max(8 * dtype.nbytes, 8 * _WORD))
    if dtype.nbytes < _WORD:
        inside = b.and_(b.ptrtoint(place, I64), constant(I64, _WORD - 1))
        place = b.gep(place, [b.neg(inside)], source_etype=I8)
        shift = b.trunc(b.shl(inside, constant(I64, 3)), I32)
    _exchange(e, frame, reducer, place, kind, shift, value, dtype)


def _operation(reducer: Computation, dtype: DType) -> str | None:
    """The instruction that does it; None where there is none."""
    root = reducer.root
    if set(root.operands) != set(reducer.parameters) or len(reducer.parameters) != 2 or dtype.nbytes < _WORD:
        return None
    if dtype.is_float:
        return "fadd" if root.opcode == "add" else None
    plain = {"add": "add", "and": "and", "or": "or", "xor": "xor", "maximum": "max", "minimum": "min"}
    found = plain.get(root.opcode)
    return f"u{found}" if found in ("max", "min") and dtype.kind == "unsigned" else found


def _exchange(
    e: GpuEmitter,
    frame: Frame,
    reducer: Computation,
    place: ir.Value,
    kind: ir.Type,
    shift: ir.Value | None,
    value: Val,
    dtype: DType,
) -> None:
    """Compute from what is there, and write if it is still there; else again."""
    b = frame.builder
    first = b.load(place, typ=kind, align=kind.width // 8)
    again, after = b.append_basic_block("again"), b.append_basic_block("after")
    before = b.block
    b.branch(again)
    inner = Frame(frame, ir.IRBuilder(again))
    n = inner.builder
    old = n.phi(kind)
    old.add_incoming(first, before)
    stored = memory_type(dtype)
    bits = ir.IntType(8 * dtype.nbytes)
    part = old if shift is None else n.trunc(n.lshr(old, shift), bits)
    if stored != bits:
        part = n.bitcast(part, stored)
    total = e.call(reducer, [Val((decode(n, part, dtype),), inner), value])[0]
    made = encode(n, total.value, dtype)
    if stored != bits:
        made = n.bitcast(made, bits)
    if shift is not None:
        hole = n.not_(n.shl(constant(kind, (1 << bits.width) - 1), shift))
        made = n.or_(n.and_(old, hole), n.shl(n.zext(made, kind), shift))
    found = n.cmpxchg(place, old, made, _ORDER)
    old.add_incoming(n.extract_value(found, 0), n.block)
    n.cbranch(n.extract_value(found, 1), after, again)
    inner.open = False
    b.position_at_end(after)
