"""Elementary functions as IR over any vector width.

Each function becomes one internal always-inline LLVM function per module and lane type; `call` makes it on first
use. All are within 3 ulp with the right special values; only `fmod`, and sin, cos and tan of huge arguments, call libm
lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from llvmlite import ir

from shardc.native.llvm.symbols import MATH_SYMBOLS
from shardc.native.math import double, exact, single
from shardc.native.math.common import by_lane
from shardc.native.math.gpu_exponential import GPU_FUNCTIONS
from shardc.native.math.inverse_root import inverse_root, inverse_root_cubed, inverse_root_cubed_of_positive
from shardc.native.math.vector import F32, scalar_of, suffix

__all__ = ["F32_FUNCTIONS", "F64_FUNCTIONS", "call"]

Emit = Callable[..., ir.Value]

F32_FUNCTIONS: Mapping[str, Emit] = MappingProxyType(
    {
        "exp": single.exp,
        "expm1": single.expm1,
        "log": single.log,
        "log1p": single.log1p,
        "tanh": single.tanh,
        "logistic": single.logistic,
        "erf": single.erf,
        "sin": single.sin,
        "cos": single.cos,
        "tan": single.tan,
        "sinh": single.in_double(double.sinh),
        "cosh": single.in_double(double.cosh),
        "asinh": single.in_double(double.asinh),
        "acosh": single.in_double(double.acosh),
        "atanh": single.in_double(double.atanh),
        "asin": single.in_double(double.asin),
        "acos": single.in_double(double.acos),
        "atan2": single.in_double(double.atan2),
        "cbrt": single.in_double(double.cbrt),
        "pow": single.power,
        "rsqrt": inverse_root,
        "inverse_root_cubed": inverse_root_cubed,
        "inverse_root_cubed_of_positive": inverse_root_cubed_of_positive,
    }
)

F64_FUNCTIONS: Mapping[str, Emit] = MappingProxyType(
    {
        "exp": exact.exp,
        "expm1": exact.expm1,
        "log": exact.log,
        "log1p": exact.log1p,
        "tanh": exact.tanh,
        "logistic": exact.logistic,
        "erf": exact.erf,
        "sin": exact.sin,
        "cos": exact.cos,
        "tan": exact.tan,
        "sinh": exact.sinh,
        "cosh": exact.cosh,
        "asinh": exact.asinh,
        "acosh": exact.acosh,
        "atanh": exact.atanh,
        "asin": exact.asin,
        "acos": exact.acos,
        "atan2": exact.atan2,
        "cbrt": exact.cbrt,
        "pow": exact.power,
        "rsqrt": inverse_root,
        "inverse_root_cubed": inverse_root_cubed,
        "inverse_root_cubed_of_positive": inverse_root_cubed_of_positive,
    }
)


#: f64 lanes on the way to f32: to some 1e-12.
ROUGH_FUNCTIONS: Mapping[str, Emit] = MappingProxyType(
    {
        "exp": double.exp,
        "log": double.log,
        "log1p": double.log1p,
        "sinh": double.sinh,
        "cosh": double.cosh,
        "asinh": double.asinh,
        "atan2": double.atan2,
        "cbrt": double.cbrt,
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
