"""Elementary functions as IR over any vector width.

Each function becomes one internal always-inline LLVM function per module and lane type; `call` makes it on first
use. Single precision has its own polynomials (within 3 ulp, right special values); what is rare, and double
precision, calls libm lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from llvmlite import ir

from shardc.native.symbols import MATH_SYMBOLS
from shardc.native.vector import F32, I32, constant, intrinsic, lanes_of, scalar_of, suffix, undef, with_scalar

__all__ = ["FUNCTIONS", "call"]

Emit = Callable[..., ir.Value]


def call(b: ir.IRBuilder, name: str, *arguments: ir.Value) -> ir.Value:
    """``name`` of f32 or f64 lanes (all arguments of one type); KeyError for an unknown function.

    Example: ``call(builder, "exp", x)`` for ``x`` of type ``<16 x float>``.
    """
    t = arguments[0].type
    full = f"shardc.{name}.{suffix(t)}"
    function = b.module.globals.get(full)
    if function is None:
        function = _define(b.module, full, name, t, len(arguments))
    return b.call(function, arguments)


def _define(module: ir.Module, full: str, name: str, t: ir.Type, arity: int) -> ir.Function:
    table = FUNCTIONS if scalar_of(t) == F32 else FUNCTIONS_F64
    body = table.get(name)
    if body is None and name not in MATH_SYMBOLS:
        raise KeyError(name)
    function = ir.Function(module, ir.FunctionType(t, [t] * arity), full)
    function.linkage = "internal"
    b = ir.IRBuilder(function.append_basic_block())
    if body is None:
        b.ret(_by_lane(b, name, t, function.args))
    else:
        function.attributes.add("alwaysinline")
        b.ret(body(b, *function.args))
    return function


def _by_lane(b: ir.IRBuilder, name: str, t: ir.Type, arguments: Sequence[ir.Value]) -> ir.Value:
    scalar = scalar_of(t)
    symbol = name + ("f" if scalar == F32 else "")
    function = b.module.globals.get(symbol)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(scalar, [scalar] * len(arguments)), symbol)
    if lanes_of(t) == 1:
        return b.call(function, arguments)
    result: ir.Value = undef(t)
    for lane in range(lanes_of(t)):
        at = constant(I32, lane)
        value = b.call(function, [b.extract_element(a, at) for a in arguments])
        result = b.insert_element(result, value, at)
    return result


def polynomial(b: ir.IRBuilder, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    """Horner's rule, highest power first."""
    total: ir.Value = constant(x.type, coefficients[0])
    for c in coefficients[1:]:
        total = fma(b, total, x, constant(x.type, c))
    return total


def fma(b: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    return intrinsic(b, "llvm.fmuladd", x.type, [x, y, z])


def power_of_two(b: ir.IRBuilder, n: ir.Value) -> ir.Value:
    """2**n as f32 for integer lanes -126 <= n <= 127."""
    bits = b.shl(b.add(n, constant(n.type, 127)), constant(n.type, 23))
    return b.bitcast(bits, with_scalar(n.type, F32))


def is_nan(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return b.fcmp_unordered("uno", x, x)


def magnitude(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return intrinsic(b, "llvm.fabs", x.type, [x])


def copysign(b: ir.IRBuilder, x: ir.Value, sign: ir.Value) -> ir.Value:
    return intrinsic(b, "llvm.copysign", x.type, [x, sign])


_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4


def exp(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """n = round(x / ln 2), a polynomial on the rest, and 2**n in two factors so that denormals come out right."""
    t = x.type
    nan = is_nan(b, x)
    clamped = b.select(nan, constant(t, 0.0), x)
    clamped = b.select(b.fcmp_ordered(">", clamped, constant(t, 89.0)), constant(t, 89.0), clamped)
    clamped = b.select(b.fcmp_ordered("<", clamped, constant(t, -104.0)), constant(t, -104.0), clamped)
    n = intrinsic(b, "llvm.rint", t, [b.fmul(clamped, constant(t, 1.4426950408889634))])
    r = fma(b, n, constant(t, -_LN2_HIGH), clamped)
    r = fma(b, n, constant(t, -_LN2_LOW), r)
    p = polynomial(b, r, _EXP)
    p = b.fadd(fma(b, b.fmul(r, r), p, r), constant(t, 1.0))
    i = b.fptosi(n, with_scalar(t, I32))
    half = b.ashr(i, constant(i.type, 1))
    scaled = b.fmul(b.fmul(p, power_of_two(b, half)), power_of_two(b, b.sub(i, half)))
    return b.select(nan, x, scaled)


def log(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """x = m 2**e with m in [sqrt(1/2), sqrt(2)), and a polynomial in m - 1."""
    t = x.type
    integer = with_scalar(t, I32)
    tiny = b.fcmp_ordered("<", x, constant(t, 1.1754943508222875e-38))
    bits = b.bitcast(b.select(tiny, b.fmul(x, constant(t, 8388608.0)), x), integer)
    shifted = b.sub(bits, constant(integer, 0x3F3504F3))
    e = b.sitofp(b.ashr(shifted, constant(integer, 23)), t)
    e = b.select(tiny, b.fsub(e, constant(t, 23.0)), e)
    mantissa = b.add(b.and_(shifted, constant(integer, 0x7FFFFF)), constant(integer, 0x3F3504F3))
    f = b.fsub(b.bitcast(mantissa, t), constant(t, 1.0))
    z = b.fmul(f, f)
    y = b.fmul(b.fmul(polynomial(b, f, _LOG), f), z)
    y = fma(b, e, constant(t, _LN2_LOW), y)
    y = fma(b, z, constant(t, -0.5), y)
    y = fma(b, e, constant(t, _LN2_HIGH), b.fadd(f, y))
    infinity = constant(t, float("inf"))
    y = b.select(b.fcmp_ordered("==", x, infinity), infinity, y)
    y = b.select(b.fcmp_ordered("==", x, constant(t, 0.0)), constant(t, float("-inf")), y)
    return b.select(b.fcmp_unordered("<", x, constant(t, 0.0)), constant(t, float("nan")), y)


def tanh(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    t = x.type
    a = magnitude(b, x)
    one, two = constant(t, 1.0), constant(t, 2.0)
    large = b.fsub(one, b.fdiv(two, b.fadd(call(b, "exp", b.fadd(a, a)), one)))
    z = b.fmul(x, x)
    small = fma(b, b.fmul(polynomial(b, z, _TANH), z), x, x)
    return b.select(b.fcmp_unordered(">=", a, constant(t, 0.625)), copysign(b, large, x), small)


def logistic(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """From exp(-|x|), so that neither tail overflows or loses its denormals."""
    t = x.type
    one = constant(t, 1.0)
    e = call(b, "exp", b.fneg(magnitude(b, x)))
    above = b.fdiv(one, b.fadd(one, e))
    return b.select(b.fcmp_ordered("<", x, constant(t, 0.0)), b.fmul(e, above), above)


FUNCTIONS: Mapping[str, Emit] = MappingProxyType({"exp": exp, "log": log, "tanh": tanh, "logistic": logistic})


def _logistic_f64(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return logistic(b, x)


FUNCTIONS_F64: Mapping[str, Emit] = MappingProxyType({"logistic": _logistic_f64})
