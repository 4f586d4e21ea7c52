"""Floats narrower than 32 bits: decode to f32, encode from f32 with round to nearest even, for any such format.

One parametric integer algorithm serves every format; bf16 has its own short form.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from llvmlite import ir
from llvmlite.ir.instructions import InsertElement, SelectInstr, ShuffleVector

from shardc.native.math.element import Element
from shardc.native.math.vector import BF16, F32, HALF, I32, constant, splat, with_scalar

__all__ = ["Format", "decode_float", "encode_float", "format_of", "mark_exact", "round_mantissa"]


@dataclass(frozen=True, slots=True)
class Format:
    """A format: field widths, exponent bias, and what the largest codes mean.

    ``special`` is ``ieee`` (infinities and NaNs in the top exponent), ``fn`` (no infinity, NaN is all ones), ``fnuz``
    (no infinity, no negative zero, NaN is the code of -0), ``finite`` (neither) or ``e8m0`` (a power of two).
    """

    exponent: int
    mantissa: int
    bias: int
    special: str
    signed: bool = True


def format_of(dtype: Element) -> Format:
    """The layout of a float type of at most 16 bits; KeyError for others."""
    return {
        "f16": Format(5, 10, 15, "ieee"),
        "bf16": Format(8, 7, 127, "ieee"),
        "f8e3m4": Format(3, 4, 3, "ieee"),
        "f8e4m3": Format(4, 3, 7, "ieee"),
        "f8e5m2": Format(5, 2, 15, "ieee"),
        "f8e4m3fn": Format(4, 3, 7, "fn"),
        "f8e4m3fnuz": Format(4, 3, 8, "fnuz"),
        "f8e4m3b11fnuz": Format(4, 3, 11, "fnuz"),
        "f8e5m2fnuz": Format(5, 2, 16, "fnuz"),
        "f4e2m1fn": Format(2, 1, 1, "finite"),
        "f6e2m3fn": Format(2, 3, 1, "finite"),
        "f6e3m2fn": Format(3, 2, 3, "finite"),
        "f8e8m0fnu": Format(8, 0, 127, "e8m0", signed=False),
    }[dtype.name]


def _converts_halves(b: ir.IRBuilder, dtype: Element) -> bool:
    """Whether the CPU converts this type itself. It quiets signalling NaNs; otherwise the results are the same."""
    return dtype.name == "f16" and b.module.target.has_f16


def decode_float(b: ir.IRBuilder, stored: ir.Value, dtype: Element) -> ir.Value:
    """The f32 value of stored integer lanes; `encode_float` of it is ``stored`` again."""
    value = _decoded(b, stored, dtype)
    value.encoded = (dtype.name, stored)
    return value


def _decoded(b: ir.IRBuilder, stored: ir.Value, dtype: Element) -> ir.Value:
    if _converts_halves(b, dtype):
        half = b.bitcast(stored, with_scalar(stored.type, HALF))
        return b.fpext(half, with_scalar(stored.type, F32))
    f = format_of(dtype)
    integer, real = with_scalar(stored.type, I32), with_scalar(stored.type, F32)
    bits = b.zext(stored, integer)
    c = partial(constant, integer)
    if dtype.name == "bf16":
        return b.bitcast(b.shl(bits, c(16)), real)
    if f.special == "e8m0":
        return _decode_e8m0(b, bits, real)
    width = f.exponent + f.mantissa
    payload = b.and_(bits, c((1 << width) - 1))
    sign = b.shl(b.and_(bits, c(1 << width)), c(31 - width))
    normal = b.bitcast(b.add(b.shl(payload, c(23 - f.mantissa)), c((127 - f.bias) << 23)), real)
    small = b.fmul(b.uitofp(payload, real), constant(real, 2.0 ** (1 - f.bias - f.mantissa)))
    value = b.select(b.icmp_unsigned("<", payload, c(1 << f.mantissa)), small, normal)
    magnitude = b.bitcast(value, integer)
    top = ((1 << f.exponent) - 1) << f.mantissa
    if f.special == "ieee":
        special = b.or_(c(0x7F800000), b.shl(b.and_(payload, c((1 << f.mantissa) - 1)), c(23 - f.mantissa)))
        magnitude = b.select(b.icmp_unsigned(">=", payload, c(top)), special, magnitude)
    elif f.special == "fn":
        magnitude = b.select(b.icmp_unsigned("==", payload, c((1 << width) - 1)), c(0x7FC00000), magnitude)
    result = b.or_(magnitude, sign)
    if f.special == "fnuz":
        result = b.select(b.icmp_unsigned("==", bits, c(1 << width)), c(0xFFC00000), result)
    return b.bitcast(result, real)


def _decode_e8m0(b: ir.IRBuilder, bits: ir.Value, real: ir.Type) -> ir.Value:
    c = partial(constant, bits.type)
    code = b.select(b.icmp_unsigned("==", bits, c(0)), c(0x00400000), b.shl(bits, c(23)))
    return b.bitcast(b.select(b.icmp_unsigned("==", bits, c(255)), c(0x7FC00000), code), real)


def encode_float(b: ir.IRBuilder, value: ir.Value, dtype: Element) -> ir.Value:
    """Stored integer lanes of f32 lanes, rounded to nearest even; overflow goes where the format sends it."""
    known = _known(b, value, dtype)
    if known is not None:
        return known
    stored = with_scalar(value.type, ir.IntType(dtype.nbytes * 8))
    if dtype.name == "bf16" and getattr(value, "exact", "") == "bf16":
        bits = b.bitcast(value, with_scalar(value.type, I32))
        return b.trunc(b.lshr(bits, constant(bits.type, 16)), stored)
    if _converts_halves(b, dtype):
        return b.bitcast(b.fptrunc(value, with_scalar(value.type, HALF)), stored)
    if dtype.name == "bf16" and b.module.target.has_bf16:
        return b.bitcast(b.fptrunc(value, with_scalar(value.type, BF16)), stored)
    f = format_of(dtype)
    integer = with_scalar(value.type, I32)
    bits = b.bitcast(value, integer)
    c = partial(constant, integer)
    if dtype.name == "bf16":
        return b.trunc(_encode_bf16(b, bits), stored)
    if f.special == "e8m0":
        return b.trunc(_encode_e8m0(b, bits), stored)
    width = f.exponent + f.mantissa
    magnitude = b.and_(bits, c(0x7FFFFFFF))
    sign = b.lshr(b.and_(bits, c(0x80000000)), c(31 - width))
    code = _round_to_code(b, magnitude, f)
    top = ((1 << f.exponent) - 1) << f.mantissa
    nan = b.icmp_unsigned(">", magnitude, c(0x7F800000))
    if f.special == "ieee":
        code = b.select(b.icmp_unsigned(">", code, c(top)), c(top), code)
        result = b.or_(b.select(nan, b.or_(c(top), _payload(b, magnitude, f.mantissa)), code), sign)
    elif f.special == "fn":
        over = b.icmp_unsigned(">", code, c((1 << width) - 2))
        result = b.or_(b.select(b.or_(over, nan), c((1 << width) - 1), code), sign)
    elif f.special == "fnuz":
        over = b.or_(b.icmp_unsigned(">", code, c((1 << width) - 1)), nan)
        signed = b.select(b.icmp_unsigned("==", code, c(0)), c(0), b.or_(code, sign))
        result = b.select(over, c(1 << width), signed)
    else:
        largest = c((1 << width) - 1)
        code = b.select(b.icmp_unsigned(">", code, largest), largest, code)
        result = b.select(nan, c(1 << width), b.or_(code, sign))
    return b.trunc(result, stored)


def mark_exact(value: ir.Value, dtype: Element) -> None:
    """``value`` is one of the type's values: encoding need not round."""
    value.exact = dtype.name


def _known(b: ir.IRBuilder, value: ir.Value, dtype: Element) -> ir.Value | None:
    """The stored form of a value that was decoded from one, or chosen or splat from such values; None for others."""
    name, stored = getattr(value, "encoded", ("", None))
    if name == dtype.name:
        return stored
    if isinstance(value, SelectInstr):
        condition, *choices = value.operands
        known = [encode_float(b, c, dtype) if isinstance(c, ir.Constant) else _known(b, c, dtype) for c in choices]
        return None if None in known else b.select(condition, *known)
    if isinstance(value, ShuffleVector) and isinstance(value.operands[0], InsertElement):
        known_lane = _known(b, value.operands[0].operands[1], dtype)
        return None if known_lane is None or not _is_splat(value) else splat(b, known_lane, value.type.count)
    return None


def _is_splat(shuffled: ShuffleVector) -> bool:
    return all(str(lane.constant) == "0" for lane in shuffled.operands[2].constant)


def _round_to_code(b: ir.IRBuilder, magnitude: ir.Value, f: Format) -> ir.Value:
    """Sign-less code of finite magnitudes (as f32 bits), rounded to nearest even; may exceed the largest code."""
    integer, real = magnitude.type, with_scalar(magnitude.type, F32)
    c = partial(constant, integer)
    drop = 23 - f.mantissa
    odd = b.and_(b.lshr(magnitude, c(drop)), c(1))
    rounded = b.add(b.add(magnitude, c((1 << (drop - 1)) - 1)), odd)
    normal = b.sub(b.lshr(rounded, c(drop)), c((127 - f.bias) << f.mantissa))
    # Denormals of the format: adding a power of two makes the hardware round at the right bit.
    anchor = 2.0 ** (1 - f.bias - f.mantissa + 23)
    value = b.fadd(b.bitcast(magnitude, real), constant(real, anchor))
    anchor_bits = constant(real, anchor)
    small = b.sub(b.bitcast(value, integer), b.bitcast(anchor_bits, integer))
    return b.select(b.icmp_unsigned("<", magnitude, c((128 - f.bias) << 23)), small, normal)


def _encode_bf16(b: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    c = partial(constant, bits.type)
    odd = b.and_(b.lshr(bits, c(16)), c(1))
    rounded = b.lshr(b.add(b.add(bits, c(0x7FFF)), odd), c(16))
    nan = b.icmp_unsigned(">", b.and_(bits, c(0x7FFFFFFF)), c(0x7F800000))
    cut = b.lshr(bits, c(16))
    quiet = b.select(b.icmp_unsigned("==", b.and_(cut, c(0x7F)), c(0)), b.or_(cut, c(0x40)), cut)
    return b.select(nan, quiet, rounded)


def _payload(b: ir.IRBuilder, bits: ir.Value, mantissa: int) -> ir.Value:
    """The mantissa of a NaN cut to fewer bits, the quiet bit where that leaves none: decoded NaNs stay as they were."""
    c = partial(constant, bits.type)
    kept = b.and_(b.lshr(bits, c(23 - mantissa)), c((1 << mantissa) - 1))
    return b.select(b.icmp_unsigned("==", kept, c(0)), c(1 << (mantissa - 1)), kept)


def _encode_e8m0(b: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    """Nearest power of two, ties up; zero, negative numbers and NaN have no code and become NaN (255)."""
    c = partial(constant, bits.type)
    rounded = b.lshr(b.add(bits, c(0x400000)), c(23))
    rounded = b.select(b.icmp_unsigned("<", bits, c(0x600000)), c(0), rounded)
    invalid = b.icmp_unsigned(">", b.sub(bits, c(1)), c(0x7F7FFFFE))
    return b.select(invalid, c(255), rounded)


def round_mantissa(b: ir.IRBuilder, value: ir.Value, dtype: Element) -> ir.Value:
    """The nearest value of a small float type, still as f32."""
    return decode_float(b, encode_float(b, value, dtype), dtype)
