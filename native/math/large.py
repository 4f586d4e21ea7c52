"""fmod, and sine, cosine and tangent of huge arguments, without a C library: for code that runs where there is none.

One scalar function per module and type, called lane by lane. fmod divides mantissas as integers, some bits at a time,
and is exact. Angles are reduced by as many bits of 2 / pi as their exponent asks for (Payne and Hanek).
"""

from __future__ import annotations

import math
from functools import lru_cache, partial

from llvmlite import ir

from shardc.native.math.exact import sine_and_cosine, tangent, turned
from shardc.native.math.real_lanes import Real
from shardc.native.math.vector import F32, F64, I32, I64, constant, intrinsic

__all__ = ["library_function"]

_I128 = ir.IntType(128)
_WORD = 64
#: Bits of 2 / pi behind its point, enough for the largest f64; zeros before them, for the smallest huge angle.
_BITS, _ZEROS = 1344, 64


def library_function(module: ir.Module, symbol: str) -> ir.Function:
    """What libm calls ``symbol`` (``fmod``, ``sin``, ``cos``, ``tan``, or with an ``f``), as code of this module.

    KeyError for any other name.
    """
    name = f"shardc.libm.{symbol}"
    found = module.globals.get(name)
    if found is not None:
        return found
    short = symbol.endswith("f")
    plain, t = (symbol[:-1], F32) if short else (symbol, F64)
    if plain not in ("fmod", "sin", "cos", "tan"):
        raise KeyError(symbol)
    function = ir.Function(module, ir.FunctionType(t, [t] * (2 if plain == "fmod" else 1)), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    b = ir.IRBuilder(function.append_basic_block())
    b.ret(_fmod(b, *function.args) if plain == "fmod" else _angle(b, function.args[0], plain))
    return function


def _fields(b: ir.IRBuilder, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """(bits without the sign, exponent, mantissa) of |x| = mantissa * 2**exponent * the smallest denormal / 2."""
    integer, width = (I32, 23) if x.type == F32 else (I64, 52)
    bits = b.and_(b.bitcast(x, integer), constant(integer, (1 << (31 if x.type == F32 else 63)) - 1))
    field, rest = b.lshr(bits, constant(integer, width)), b.and_(bits, constant(integer, (1 << width) - 1))
    tiny = b.icmp_unsigned("==", field, constant(integer, 0))
    exponent = b.select(tiny, constant(integer, 1), field)
    return bits, exponent, b.select(tiny, rest, b.or_(rest, constant(integer, 1 << width)))


def _fmod(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """x's mantissa moves up to y's exponent as far as 64 bits have room, again and again, and keeps the remainder."""
    t = x.type
    mantissa_bits = 24 if t == F32 else 53
    (ux, ex, mx), (uy, ey, my) = _fields(b, x), _fields(b, y)
    infinity = constant(ux.type, 0x7F800000 if t == F32 else 0x7FF << 52)
    bad = b.or_(b.icmp_unsigned("==", uy, constant(uy.type, 0)), b.icmp_unsigned(">", uy, infinity))
    bad = b.or_(bad, b.icmp_unsigned(">=", ux, infinity))
    usual = b.and_(b.not_(bad), b.icmp_unsigned(">=", ux, uy))

    def wide(v: ir.Value) -> ir.Value:
        return v if t == F64 else b.zext(v, I64)

    start = b.block
    with b.if_then(usual):
        divisor = wide(my)
        first = b.urem(wide(mx), divisor)
        rest = _long_division(b, first, wide(b.sub(ex, ey)), divisor, _WORD - mantissa_bits)
        scale = b.bitcast(_power_bits(b, ey, t), t)
        found = intrinsic(b, "llvm.copysign", t, [b.fmul(b.uitofp(rest, t), scale), x])
        end = b.block
    result = b.phi(t)
    result.add_incoming(x, start)
    result.add_incoming(found, end)
    return b.select(bad, constant(t, math.nan), result)


def _power_bits(b: ir.IRBuilder, exponent: ir.Value, t: ir.Type) -> ir.Value:
    """The bits of 2**(exponent - 1) smallest denormals, for a biased exponent from 1 on."""
    width = 23 if t == F32 else 52
    c = partial(constant, exponent.type)
    below = b.icmp_unsigned("<=", exponent, c(width))
    denormal = b.shl(c(1), b.select(below, b.sub(exponent, c(1)), c(0)))
    return b.select(below, denormal, b.shl(b.sub(exponent, c(width)), c(width)))


def _long_division(b: ir.IRBuilder, rest: ir.Value, shift: ir.Value, divisor: ir.Value, step: int) -> ir.Value:
    """``rest * 2**shift % divisor``, where ``rest`` has room for ``step`` more bits."""
    before = b.block
    head, body, done = (b.append_basic_block(n) for n in ("head", "divide", "divided"))
    b.branch(head)
    b.position_at_end(head)
    value, left = b.phi(I64), b.phi(I64)
    value.add_incoming(rest, before)
    left.add_incoming(shift, before)
    b.cbranch(b.icmp_signed(">", left, constant(I64, 0)), body, done)
    b.position_at_end(body)
    now = b.select(b.icmp_unsigned("<", left, constant(I64, step)), left, constant(I64, step))
    value.add_incoming(b.urem(b.shl(value, now), divisor), body)
    left.add_incoming(b.sub(left, now), body)
    b.branch(head)
    b.position_at_end(done)
    return value


def _angle(b: ir.IRBuilder, x: ir.Value, name: str) -> ir.Value:
    """A function of an angle beyond 2**19, in f64."""
    if x.type == F32:
        return b.fptrunc(_angle(b, b.fpext(x, F64), name), F32)
    turns, high, low = _reduced(b, x)
    sine, cosine = sine_and_cosine(high, low)
    if name == "tan":
        value = tangent(turns, sine, cosine)
    else:
        value = turned(turns if name == "sin" else b.add(turns, constant(I64, 1)), sine, cosine)
    finite = b.fcmp_ordered("<", intrinsic(b, "llvm.fabs", F64, [x]), constant(F64, math.inf))
    return b.select(finite, value.value, constant(F64, math.nan))


@lru_cache(maxsize=1)
def _two_over_pi() -> tuple[int, ...]:
    """Words of `_ZEROS` zeros and the first bits of 2 / pi, which come from Machin's formula."""
    one = 1 << (_BITS + 64)

    def inverse_tangent(n: int) -> int:
        term = total = one // n
        for k in range(3, 2 * _BITS, 2):
            term //= -n * n
            total += term // k
        return total

    pi = 4 * (4 * inverse_tangent(5) - inverse_tangent(239))
    bits = (2 * one << _BITS) // pi
    count = (_BITS + _ZEROS) // _WORD
    return tuple(bits >> _WORD * (count - 1 - n) & (1 << _WORD) - 1 for n in range(count))


def _window(b: ir.IRBuilder, first: ir.Value) -> list[ir.Value]:
    """192 bits of the table from bit ``first`` on, in words, the highest first."""
    words = _two_over_pi()
    t = ir.ArrayType(I64, len(words))
    table = b.module.globals.get("shardc.two_over_pi")
    if table is None:
        table = ir.GlobalVariable(b.module, t, "shardc.two_over_pi")
        table.initializer = ir.Constant(t, [constant(I64, w) for w in words])
        table.linkage, table.global_constant, table.align = "internal", True, 8
    at, shift = b.lshr(first, constant(I64, 6)), b.and_(first, constant(I64, 63))
    places = [b.gep(table, [b.add(at, constant(I64, n))], source_etype=I64) for n in range(4)]
    found = [b.load(p, typ=I64) for p in places]
    return [intrinsic(b, "llvm.fshl", I64, [found[n], found[n + 1], shift]) for n in range(3)]


def _reduced(b: ir.IRBuilder, x: ir.Value) -> tuple[ir.Value, Real, Real]:
    """(n, high, low) with |x| = n pi / 2 + high + low modulo 2 pi, for finite |x| > 1; signs are those of x.

    The product of the mantissa and a window of 2 / pi, in units of 2**-190: what is before the window are whole turns.
    """
    _, exponent, mantissa = _fields(b, x)
    begin = b.sub(exponent, constant(I64, 1075 - 62))
    limit = constant(I64, _BITS + _ZEROS - 4 * _WORD)
    begin = b.select(b.icmp_unsigned("<", begin, limit), begin, constant(I64, 0))  # of infinities and small numbers
    w0, w1, w2 = _window(b, begin)
    m = b.zext(mantissa, _I128)
    low = b.mul(m, b.zext(w2, _I128))
    middle = b.add(b.mul(m, b.zext(w1, _I128)), b.lshr(low, constant(_I128, _WORD)))
    high = b.add(b.mul(mantissa, w0), b.trunc(b.lshr(middle, constant(_I128, _WORD)), I64))
    # The two highest bits of ``high`` count quarters of a turn; what is behind them becomes a signed fraction.
    two = constant(I64, 2)
    upper = intrinsic(b, "llvm.fshl", I64, [high, b.trunc(middle, I64), two])
    lower = intrinsic(b, "llvm.fshl", I64, [b.trunc(middle, I64), b.trunc(low, I64), two])
    turns = b.add(b.lshr(high, constant(I64, 62)), b.lshr(upper, constant(I64, 63)))
    back = b.icmp_signed("<", upper, constant(I64, 0))
    upper, lower = (b.select(back, b.xor(v, constant(I64, -1)), v) for v in (upper, lower))
    zeros = intrinsic(b, "llvm.ctlz", I64, [upper, constant(ir.IntType(1), 0)])
    leading = intrinsic(b, "llvm.fshl", I64, [upper, lower, zeros])
    scale = Real(b, b.bitcast(b.shl(b.sub(constant(I64, 1023 - 64), zeros), constant(I64, 52)), F64))
    coarse = Real(b, b.uitofp(b.and_(leading, constant(I64, -2048)), F64))
    fine = Real(b, b.uitofp(b.and_(leading, constant(I64, 2047)), F64))
    half_pi, half_pi_low = math.pi / 2, 6.123233995736766e-17
    angle = coarse * half_pi
    rest = coarse.fused(half_pi, -angle) + coarse * half_pi_low + fine * half_pi
    negative = b.fcmp_ordered("<", x, constant(F64, 0.0))
    minus = b.xor(back, negative)

    def signed(v: Real) -> Real:
        return Real(b, b.select(minus, (-v).value, v.value))

    return b.select(negative, b.sub(constant(I64, 0), turns), turns), signed(angle * scale), signed(rest * scale)
