"""Conversions between element types in register form."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from shardc.compiler.elements.arithmetic.registers import decode, encode, is_small_float, memory_type, register_type
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.types import DTYPES, DType
from shardc.native.math.small_floats import round_mantissa
from shardc.native.math.vector import F32, constant, intrinsic, scalar_of, with_scalar, zero

__all__ = ["as_index", "bitcast_convert", "convert"]


def convert(b: ir.IRBuilder, x: Any, source: DType, target: DType) -> Any:
    """HLO's convert: float to integer truncates and saturates (NaN is 0), to pred is ``!= 0``, from complex takes
    the real part."""
    if target.is_complex:
        part = DTYPES["f32" if target.name == "c64" else "f64"]
        if source.is_complex:
            own = DTYPES["f32" if source.name == "c64" else "f64"]
            return tuple(convert(b, p, own, part) for p in x)
        real = convert(b, x, source, part)
        return (real, zero(real.type))
    if source.is_complex:
        own = DTYPES["f32" if source.name == "c64" else "f64"]
        return convert(b, x[0], own, target)
    if source is target:
        return x
    goal = with_scalar(x.type, scalar_of(register_type(target)))
    if target.kind == "pred":
        if source.is_float:
            return b.fcmp_unordered("!=", x, zero(x.type))
        return b.icmp_unsigned("!=", x, zero(x.type))
    if target.is_float:
        return _to_float(b, x, source, target, goal)
    if source.is_float:
        return _to_integer(b, x, target.kind == "signed", goal)
    return _resize(b, x, source.kind == "signed", goal)


def _to_integer(b: ir.IRBuilder, x: ir.Value, signed: bool, goal: ir.Type) -> ir.Value:
    """Truncated and saturated, NaN as 0. LLVM's own saturating conversion of vectors goes lane by lane on x86."""
    if not isinstance(x.type, ir.VectorType) or b.module.triple.startswith(("aarch64", "arm64")):
        return intrinsic(b, "llvm.fptosi.sat" if signed else "llvm.fptoui.sat", goal, [x])
    precision = 24 if scalar_of(x.type) == F32 else 53
    width = scalar_of(goal).width
    value_bits = width - signed
    exact = value_bits <= precision
    low = -(1 << value_bits) if signed else 0
    high = (1 << value_bits) - (1 if exact else 1 << (value_bits - precision))
    inside = b.select(b.fcmp_ordered("ord", x, x), x, zero(x.type))
    inside = b.select(b.fcmp_ordered(">", inside, constant(x.type, low)), inside, constant(x.type, low))
    inside = b.select(b.fcmp_ordered("<", inside, constant(x.type, high)), inside, constant(x.type, high))
    whole = with_scalar(x.type, ir.IntType(max(width, 32)))
    value = _resize(b, (b.fptosi if signed or width < 32 else b.fptoui)(inside, whole), signed, goal)
    if exact:
        return value
    over = b.fcmp_ordered(">=", x, constant(x.type, float(1 << value_bits)))
    return b.select(over, constant(goal, (1 << value_bits) - 1), value)


def _to_float(b: ir.IRBuilder, x: ir.Value, source: DType, target: DType, goal: ir.Type) -> ir.Value:
    if not source.is_float:
        value = (b.sitofp if source.kind == "signed" else b.uitofp)(x, goal)
    elif scalar_of(x.type) == scalar_of(goal):
        value = x
    elif source.bits < target.bits:
        value = b.fpext(x, goal)
    else:
        value = b.fptrunc(x, goal)
    return round_mantissa(b, value, target) if is_small_float(target) else value


def _resize(b: ir.IRBuilder, x: ir.Value, signed: bool, goal: ir.Type) -> ir.Value:
    have, want = scalar_of(x.type).width, scalar_of(goal).width
    if have == want:
        return x
    if have > want:
        return b.trunc(x, goal)
    return b.sext(x, goal) if signed else b.zext(x, goal)


def bitcast_convert(b: ir.IRBuilder, x: Any, source: DType, target: DType) -> Any:
    """The same bits as another type of the same width (other widths change shape and are addressed elsewhere)."""
    if source is target:
        return x
    if source.bits != target.bits or {source.kind, target.kind} & {"complex", "pred"}:
        raise UnsupportedError(
            f"bitcast-convert from {source} to {target} is not supported in registers", fix="keep it out of fusions"
        )
    return _from_bits(b, _to_bits(b, x, source), target)


def _to_bits(b: ir.IRBuilder, x: ir.Value, source: DType) -> ir.Value:
    """Integer lanes of the type's own width."""
    if source.is_integer:
        return x
    stored = encode(b, x, source)
    bits = with_scalar(stored.type, ir.IntType(source.bits))
    return b.bitcast(stored, bits) if source.bits >= 32 else _resize(b, stored, False, bits)


def _from_bits(b: ir.IRBuilder, bits: ir.Value, target: DType) -> ir.Value:
    if target.is_integer:
        return bits
    memory = with_scalar(bits.type, memory_type(target))
    return decode(b, b.bitcast(bits, memory) if target.bits >= 32 else _resize(b, bits, False, memory), target)


def as_index(b: ir.IRBuilder, x: ir.Value, source: DType, low: int, high: int) -> ir.Value:
    """An integer element as an i64 clamped to [low, high)."""
    wide = with_scalar(x.type, ir.IntType(64))
    if source.kind == "signed":
        value = b.sext(x, wide) if source.bits < 64 else x
        value = intrinsic(b, "llvm.smax", wide, [value, constant(wide, low)])
        return intrinsic(b, "llvm.smin", wide, [value, constant(wide, high - 1)])
    value = b.zext(x, wide) if source.bits < 64 else x
    return intrinsic(b, "llvm.umin", wide, [value, constant(wide, high - 1)])
