"""Elementary functions as IR over any vector width.

Each function becomes one internal always-inline LLVM function per module and lane type; `call` makes it on first
use. All are within 3 ulp with the right special values; only `fmod`, and sin, cos and tan of huge arguments, call libm
lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from llvmlite import ir

from shardc.native import math_double, math_exact, math_single
from shardc.native.math_common import by_lane
from shardc.native.math_gpu import GPU_FUNCTIONS
from shardc.native.symbols import MATH_SYMBOLS
from shardc.native.vector import F32, scalar_of, suffix

__all__ = ["F32_FUNCTIONS", "F64_FUNCTIONS", "call"]

Emit = Callable[..., ir.Value]

F32_FUNCTIONS: Mapping[str, Emit] = MappingProxyType(
    {
        "exp": math_single.exp,
        "expm1": math_single.expm1,
        "log": math_single.log,
        "log1p": math_single.log1p,
        "tanh": math_single.tanh,
        "logistic": math_single.logistic,
        "erf": math_single.erf,
        "sin": math_single.sin,
        "cos": math_single.cos,
        "tan": math_single.tan,
        "sinh": math_single.in_double(math_double.sinh),
        "cosh": math_single.in_double(math_double.cosh),
        "asinh": math_single.in_double(math_double.asinh),
        "acosh": math_single.in_double(math_double.acosh),
        "atanh": math_single.in_double(math_double.atanh),
        "asin": math_single.in_double(math_double.asin),
        "acos": math_single.in_double(math_double.acos),
        "atan2": math_single.in_double(math_double.atan2),
        "cbrt": math_single.in_double(math_double.cbrt),
        "pow": math_single.power,
    }
)

F64_FUNCTIONS: Mapping[str, Emit] = MappingProxyType(
    {
        "exp": math_exact.exp,
        "expm1": math_exact.expm1,
        "log": math_exact.log,
        "log1p": math_exact.log1p,
        "tanh": math_exact.tanh,
        "logistic": math_exact.logistic,
        "erf": math_exact.erf,
        "sin": math_exact.sin,
        "cos": math_exact.cos,
        "tan": math_exact.tan,
        "sinh": math_exact.sinh,
        "cosh": math_exact.cosh,
        "asinh": math_exact.asinh,
        "acosh": math_exact.acosh,
        "atanh": math_exact.atanh,
        "asin": math_exact.asin,
        "acos": math_exact.acos,
        "atan2": math_exact.atan2,
        "cbrt": math_exact.cbrt,
        "pow": math_exact.power,
    }
)


#: f64 lanes on the way to f32: to some 1e-12.
ROUGH_FUNCTIONS: Mapping[str, Emit] = MappingProxyType(
    {
        "exp": math_double.exp,
        "log": math_double.log,
        "log1p": math_double.log1p,
        "sinh": math_double.sinh,
        "cosh": math_double.cosh,
        "asinh": math_double.asinh,
        "atan2": math_double.atan2,
        "cbrt": math_double.cbrt,
    }
)


def call(b: ir.IRBuilder, name: str, *arguments: ir.Value, rough: bool = False) -> ir.Value:
    """``name`` of f32 or f64 lanes (all arguments of one type); KeyError for an unknown function.

    ``rough`` takes faster f64 functions where there are any, for results that are rounded to f32.
    Example: ``call(builder, "exp", x)`` for ``x`` of type ``<16 x float>``.
    """
    t = arguments[0].type
    rough = rough and scalar_of(t) != F32 and name in ROUGH_FUNCTIONS
    table = ROUGH_FUNCTIONS if rough else F32_FUNCTIONS if scalar_of(t) == F32 else F64_FUNCTIONS
    full = f"shardc.{'rough.' if rough else ''}{name}.{suffix(t)}"
    function = b.module.globals.get(full)
    if function is None:
        body = table.get(name)
        if scalar_of(t) == F32 and not getattr(b.module, "has_libm", True):
            body = GPU_FUNCTIONS.get(name, body)
        function = _define(b.module, full, name, body, t, len(arguments))
    return b.call(function, arguments)


def _define(module: ir.Module, full: str, name: str, body: Emit | None, t: ir.Type, arity: int) -> ir.Function:
    if body is None and name not in MATH_SYMBOLS:
        raise KeyError(name)
    function = ir.Function(module, ir.FunctionType(t, [t] * arity), full)
    function.linkage = "internal"
    function.attributes.add("alwaysinline")
    b = ir.IRBuilder(function.append_basic_block())
    b.ret(by_lane(b, name, *function.args) if body is None else body(b, *function.args))
    return function
