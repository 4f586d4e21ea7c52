"""Arithmetic that NumPy defines its own way: division and remainders by zero, signs of zero, bits of floats."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.types import array_shape, tuple_shape
from shardc.hlo.numpy.tracer import NP, Tracer
from shardc.hlo.numpy.values import convert, emit, full

__all__ = [
    "arctan",
    "copysign",
    "divmod_",
    "fmod",
    "frexp",
    "gcd",
    "heaviside",
    "hypot",
    "is_inf",
    "is_nan",
    "lcm",
    "ldexp",
    "log2",
    "log_to_base",
    "logaddexp",
    "logaddexp2",
    "modf",
    "nextafter",
    "reciprocal",
    "rint",
    "sign",
    "signbit",
    "spacing",
    "truncate",
]


def _like(x: Tracer, value: Any) -> Tracer:
    return full(x, x.shape, value, x.dtype)


def _is(x: Tracer, direction: str, y: Tracer) -> Tracer:
    return emit("compare", x, y, direction=direction)


def _pick(mask: Tracer, x: Tracer, y: Tracer) -> Tracer:
    return emit("select", mask, x, y)


def is_nan(x: Tracer) -> Tracer:
    if x.aval.dtype.kind in ("float", "complex"):
        return _is(x, "NE", x)
    return full(x, x.shape, False)


def is_inf(x: Tracer) -> Tracer:
    if x.aval.dtype.is_complex:
        return emit("or", is_inf(emit("real", x)), is_inf(emit("imag", x)))
    return _is(emit("abs", x), "EQ", _like(x, np.inf)) if x.aval.dtype.is_float else full(x, x.shape, False)


def truncate(x: Tracer) -> Tracer:
    """Towards zero; -0.5 gives -0."""
    return copysign(emit("floor", emit("abs", x)), x)


def rint(x: Tracer) -> Tracer:
    """Integers and bools are their own; of a complex number both parts are rounded."""
    if x.aval.dtype.is_complex:
        return emit("complex", rint(emit("real", x)), rint(emit("imag", x)))
    return emit("round-nearest-even", x) if x.aval.dtype.is_float else x


def sign(x: Tracer) -> Tracer:
    """Zeros of either sign give +0."""
    if x.aval.dtype.kind == "unsigned":
        return convert(_is(x, "NE", _like(x, 0)), x.dtype)
    found = emit("sign", x)
    if x.aval.dtype.is_complex:  # with one infinite part it is that part's
        parts = emit("real", x), emit("imag", x)
        far = [is_inf(p) for p in parts]
        ends = [_pick(f, emit("sign", p), _like(p, 0)) for p, f in zip(parts, far, strict=True)]
        return _pick(_is(far[0], "NE", far[1]), emit("complex", *ends), found)
    return _pick(_is(x, "EQ", _like(x, 0)), _like(x, 0), found) if x.aval.dtype.is_float else found


def reciprocal(x: Tracer) -> Tracer:
    if not x.aval.dtype.is_integer:
        return emit("divide", _like(x, 1), x)
    found = emit("divide", _like(x, 1), _pick(_is(x, "EQ", _like(x, 0)), _like(x, 1), x))
    wide_signed = x.aval.dtype.kind == "signed" and x.aval.dtype.bits >= 32
    lowest = np.iinfo(x.dtype).min if wide_signed else 0
    return _pick(_is(x, "EQ", _like(x, 0)), _like(x, lowest), found)


def arctan(x: Tracer) -> Tracer:
    """HLO has the arc tangent of two numbers only; the complex one is -i artanh(i x)."""
    if not x.aval.dtype.is_complex:
        return emit("atan2", x, _like(x, 1))
    turned = emit("complex", emit("negate", emit("imag", x)), emit("real", x))
    found = emit("atanh", turned)
    return emit("complex", emit("imag", found), emit("negate", emit("real", found)))


def divmod_(x: Tracer, y: Tracer) -> tuple[Tracer, Tracer]:
    """Floor division and a remainder with the divisor's sign; integers divided by zero give 0 and 0."""
    return _integer_divmod(x, y) if x.aval.dtype.is_integer else _float_divmod(x, y)


def _integer_divmod(x: Tracer, y: Tracer) -> tuple[Tracer, Tracer]:
    zero = _like(x, 0)
    by_zero = _is(y, "EQ", zero)
    safe = _pick(by_zero, _like(y, 1), y)
    quotient, rest = emit("divide", x, safe), emit("remainder", x, safe)
    if x.aval.dtype.kind == "signed":
        uneven = emit("and", _is(rest, "NE", zero), _is(_is_negative(rest), "NE", _is_negative(y)))
        quotient = _pick(uneven, emit("subtract", quotient, _like(x, 1)), quotient)
        rest = _pick(uneven, emit("add", rest, y), rest)
    return _pick(by_zero, zero, quotient), _pick(by_zero, zero, rest)


def _is_negative(x: Tracer) -> Tracer:
    return _is(x, "LT", _like(x, 0))


def _float_divmod(x: Tracer, y: Tracer) -> tuple[Tracer, Tracer]:
    zero = _like(x, 0)
    rest = emit("remainder", x, y)
    ratio = emit("divide", emit("subtract", x, rest), y)
    uneven = emit("and", _is(rest, "NE", zero), _is(_is_negative(rest), "NE", _is_negative(y)))
    ratio = _pick(uneven, emit("subtract", ratio, _like(x, 1)), ratio)
    rest = _pick(uneven, emit("add", rest, y), rest)
    rest = _pick(_is(rest, "EQ", zero), copysign(zero, y), rest)
    whole = emit("floor", ratio)
    far = _is(emit("subtract", ratio, whole), "GT", _like(x, 0.5))
    whole = _pick(far, emit("add", whole, _like(x, 1)), whole)
    plain = emit("divide", x, y)
    whole = _pick(_is(ratio, "EQ", zero), copysign(zero, plain), whole)
    by_zero = _is(y, "EQ", zero)
    return _pick(by_zero, plain, whole), _pick(by_zero, _like(x, np.nan), rest)


def fmod(x: Tracer, y: Tracer) -> Tracer:
    """The remainder with the dividend's sign."""
    if x.aval.dtype.is_float:
        return emit("remainder", x, y)
    by_zero = _is(y, "EQ", _like(y, 0))
    return _pick(by_zero, _like(x, 0), emit("remainder", x, _pick(by_zero, _like(y, 1), y)))


def log2(x: Tracer) -> Tracer:
    """Exact for powers of two: the exponent is taken out first."""
    if x.aval.dtype.is_complex:
        return log_to_base(x, 2)
    wide = x if x.aval.dtype.bits >= 32 else convert(x, np.float32)
    mantissa, exponent = frexp(wide)
    low = _is(mantissa, "LT", _like(wide, NP.sqrt(0.5)))
    mantissa = _pick(low, emit("multiply", mantissa, _like(wide, 2)), mantissa)
    exponent = emit("subtract", convert(exponent, wide.dtype), convert(low, wide.dtype))
    found = emit("add", exponent, emit("divide", emit("log", mantissa), _like(wide, NP.log(2))))
    ordinary = emit("and", emit("is-finite", wide), _is(wide, "GT", _like(wide, 0)))
    return convert(_pick(ordinary, found, emit("log", wide)), x.dtype)


def log_to_base(x: Tracer, base: float) -> Tracer:
    return emit("divide", emit("log", x), _like(x, NP.log(base)))


def hypot(x: Tracer, y: Tracer) -> Tracer:
    """Scaled, so that squares neither overflow nor vanish; an infinity wins over NaN."""
    x, y = emit("abs", x), emit("abs", y)
    large, small = emit("maximum", x, y), emit("minimum", x, y)
    ratio = emit("divide", small, _pick(_is(large, "EQ", _like(x, 0)), _like(x, 1), large))
    found = emit("multiply", large, emit("sqrt", emit("add", _like(x, 1), emit("multiply", ratio, ratio))))
    return _pick(emit("or", is_inf(x), is_inf(y)), _like(x, np.inf), found)


def logaddexp(x: Tracer, y: Tracer) -> Tracer:
    far = emit("abs", emit("subtract", x, y))
    found = emit("add", emit("maximum", x, y), emit("log-plus-one", emit("exponential", emit("negate", far))))
    return _pick(_is(x, "EQ", y), emit("add", x, _like(x, NP.log(2))), found)


def logaddexp2(x: Tracer, y: Tracer) -> Tracer:
    ln2 = _like(x, NP.log(2))
    far = emit("multiply", emit("abs", emit("subtract", x, y)), ln2)
    rest = emit("divide", emit("log-plus-one", emit("exponential", emit("negate", far))), ln2)
    return _pick(_is(x, "EQ", y), emit("add", x, _like(x, 1)), emit("add", emit("maximum", x, y), rest))


# Bits of floats.


def _bits(x: Tracer) -> Tracer:
    return emit("bitcast-convert", x, shape=array_shape(f"s{x.aval.dtype.bits}", *x.shape))


def _from_bits(bits: Tracer, like: Tracer) -> Tracer:
    return emit("bitcast-convert", bits, shape=like.aval.plain)


def signbit(x: Tracer) -> Tracer:
    return _is_negative(_bits(x)) if x.aval.dtype.is_float else _is_negative(x)


def copysign(x: Tracer, y: Tracer) -> Tracer:
    size = emit("abs", x)
    return _pick(signbit(y), emit("negate", size), size)


def nextafter(x: Tracer, y: Tracer) -> Tracer:
    """The neighbour of ``x`` in the direction of ``y``: bits of floats count like integers away from zero."""
    bits = _bits(x)
    one = _like(bits, 1)
    grows = _is(_is(x, "LT", y), "EQ", _is(x, "GT", _like(x, 0)))
    stepped = _from_bits(emit("add", bits, _pick(grows, one, emit("negate", one))), x)
    smallest = copysign(_from_bits(one, x), y)
    found = _pick(_is(x, "EQ", _like(x, 0)), smallest, stepped)
    found = _pick(_is(x, "EQ", y), y, found)
    return _pick(emit("or", is_nan(x), is_nan(y)), emit("add", x, y), found)


def spacing(x: Tracer) -> Tracer:
    """The distance to the neighbour away from zero, with the sign of ``x``; in half precision NumPy looks upwards."""
    half = x.dtype == np.float16
    outward = nextafter(x, _like(x, np.inf) if half else copysign(_like(x, np.inf), x))
    return _pick(is_inf(x), _like(x, np.nan), emit("subtract", outward, x))


def modf(x: Tracer) -> tuple[Tracer, Tracer]:
    whole = truncate(x)
    part = _pick(is_inf(x), _like(x, 0), emit("subtract", x, whole))
    return copysign(part, x), whole


def _float_layout(x: Tracer) -> tuple[int, int]:
    """Mantissa bits and exponent bias."""
    info = np.finfo(x.dtype)
    return int(info.nmant), int(info.maxexp) - 1


def frexp(x: Tracer) -> tuple[Tracer, Tracer]:
    """A mantissa in [0.5, 1) and an exponent; zeros, infinities and NaN have exponent 0."""
    nmant, bias = _float_layout(x)
    tiny = _is(emit("abs", x), "LT", _like(x, float(np.finfo(x.dtype).tiny)))
    normal = _pick(tiny, emit("multiply", x, _like(x, 2.0**nmant)), x)
    bits = _bits(normal)
    field = (1 << (x.aval.dtype.bits - 1 - nmant)) - 1
    raw = emit("and", emit("shift-right-logical", bits, _like(bits, nmant)), _like(bits, field))
    exponent = emit("subtract", convert(raw, np.int32), full(x, x.shape, bias - 1, np.int32))
    lowered = emit("subtract", exponent, full(x, x.shape, nmant, np.int32))
    exponent = _pick(tiny, lowered, exponent)
    keep = _like(bits, ~(field << nmant))
    mantissa = _from_bits(emit("or", emit("and", bits, keep), _like(bits, (bias - 1) << nmant)), x)
    odd = emit("or", _is(x, "EQ", _like(x, 0)), emit("not", emit("is-finite", x)))
    return _pick(odd, x, mantissa), _pick(odd, full(x, x.shape, 0, np.int32), exponent)


def ldexp(x: Tracer, n: Tracer) -> Tracer:
    """``x`` times two to the ``n``, in three steps, so that none of them leaves the range before the result does."""
    nmant, bias = _float_layout(x)
    bound = 3 * bias + nmant
    low, high = (full(n, n.shape, v, n.dtype) for v in (-min(bound, 2**15 - 1), min(bound, 2**15 - 1)))
    rest = convert(emit("clamp", low, n, high), np.int32)
    for part in (3, 2, 1):
        step = emit("divide", rest, full(x, x.shape, part, np.int32))
        rest = emit("subtract", rest, step)
        raw = emit("add", step, full(x, x.shape, bias, np.int32))
        raw = emit("clamp", full(x, x.shape, 1, np.int32), raw, full(x, x.shape, 2 * bias, np.int32))
        bits = convert(raw, f"int{x.aval.dtype.bits}")
        factor = _from_bits(emit("shift-left", bits, _like(bits, nmant)), x)
        x = emit("multiply", x, factor)
    return x


def heaviside(x: Tracer, at_zero: Tracer) -> Tracer:
    zero = _like(x, 0)
    step = convert(_is(x, "GT", zero), x.dtype)
    return _pick(is_nan(x), x, _pick(_is(x, "EQ", zero), at_zero, step))


# Euclid's loop.


def gcd(x: Tracer, y: Tracer) -> Tracer:
    return _as_given(_unsigned_gcd(_size(x), _size(y)), x)


def lcm(x: Tracer, y: Tracer) -> Tracer:
    a, b = _size(x), _size(y)
    divisor = _unsigned_gcd(a, b)
    safe = _pick(_is(divisor, "EQ", _like(a, 0)), _like(a, 1), divisor)
    return _as_given(emit("multiply", emit("divide", a, safe), b), x)


def _size(x: Tracer) -> Tracer:
    """The absolute value, in the unsigned type of the same width: the lowest integer has one there."""
    if x.aval.dtype.kind == "unsigned":
        return x
    return emit("bitcast-convert", emit("abs", x), shape=array_shape(f"u{x.aval.dtype.bits}", *x.shape))


def _as_given(found: Tracer, given: Tracer) -> Tracer:
    return found if given.aval.dtype is found.aval.dtype else emit("bitcast-convert", found, shape=given.aval.plain)


def _unsigned_gcd(x: Tracer, y: Tracer) -> Tracer:
    """A while loop over whole arrays: (a, b) -> (b, a mod b) until every b is zero."""
    shape = x.aval.plain
    both = tuple_shape(shape, shape)
    body = Builder(x.recorder.unique_name("gcd_step"))
    state = body.parameter(both)
    a, b = (body.add("get-tuple-element", state, index=i) for i in (0, 1))
    zero, one = (body.add("broadcast", body.constant(v, shape.dtype), shape=shape, dimensions=()) for v in (0, 1))
    done = body.add("compare", b, zero, direction="EQ")
    rest = body.add("remainder", a, body.add("select", done, one, b))
    step = body.build(body.add("tuple", body.add("select", done, a, b), body.add("select", done, zero, rest)))
    test = Builder(x.recorder.unique_name("gcd_test"))
    b = test.add("get-tuple-element", test.parameter(both), index=1)
    zero = test.add("broadcast", test.constant(0, shape.dtype), shape=shape, dimensions=())
    left = test.add("compare", b, zero, direction="NE")
    either = binary_computation("or", "pred", x.recorder.unique_name("any"))
    start, dims = test.constant(False, "pred"), tuple(range(shape.rank))
    condition = test.build(test.add("reduce", left, start, dimensions=dims, to_apply=either))
    loop = emit("while", emit("tuple", x, y), condition=condition, body=step)
    return emit("get-tuple-element", loop, index=0)
