"""Elementwise meaning in registers: one function per opcode, over any number of lanes.

A rule is ``rule(b, op, *operands) -> result`` on the parts of register form: an LLVM value, or a (real, imaginary) pair
for complex types. `combine` picks the rule by opcode and kind of type and rounds small floats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from llvmlite import ir

from shardc.compiler.elements.arithmetic.complex_numbers import COMPLEX
from shardc.compiler.elements.arithmetic.convert import bitcast_convert, convert
from shardc.compiler.elements.arithmetic.floats import FLOAT, INVERSE_ROOT_CUBED
from shardc.compiler.elements.arithmetic.integers import INTEGER
from shardc.compiler.elements.arithmetic.registers import ElementOp, is_small_float
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.make import scalar_value
from shardc.hlo.ir.types import DTYPES, DType
from shardc.hlo.simplify.signs import is_positive
from shardc.native.math.small_floats import mark_exact, round_mantissa
from shardc.native.math.vector import F64, constant, intrinsic, with_scalar, zero

__all__ = ["ELEMENTWISE", "combine"]

Parts = Any
ArithmeticRule = Callable[..., Parts]


def _select(b: ir.IRBuilder, op: ElementOp, p: ir.Value, x: Parts, y: Parts) -> Parts:
    if isinstance(x, tuple):
        return tuple(b.select(p, u, v) for u, v in zip(x, y, strict=True))
    return b.select(p, x, y)


def _copy(b: ir.IRBuilder, op: ElementOp, x: Parts) -> Parts:
    return x


def _clamp(b: ir.IRBuilder, op: ElementOp, low: ir.Value, x: ir.Value, high: ir.Value) -> Parts:
    kind = ElementOp("maximum", (op.result, op.result), op.result, {})
    table = _table(op.result)
    return table["minimum"](b, kind, table["maximum"](b, kind, x, low), high)


def _complex(b: ir.IRBuilder, op: ElementOp, real: ir.Value, imaginary: ir.Value) -> Parts:
    return (real, imaginary)


def _real(b: ir.IRBuilder, op: ElementOp, x: Parts) -> Parts:
    return x[0] if isinstance(x, tuple) else x


def _imag(b: ir.IRBuilder, op: ElementOp, x: Parts) -> Parts:
    return x[1] if isinstance(x, tuple) else zero(x.type)


def _convert(b: ir.IRBuilder, op: ElementOp, x: Parts) -> Parts:
    return convert(b, x, op.operands[0], op.result)


def _stochastic_convert(b: ir.IRBuilder, op: ElementOp, x: ir.Value, random: ir.Value) -> Parts:
    """To integers: away from zero where the random bits, as a fraction, are less than what truncation loses."""
    if not op.result.is_integer:
        return convert(b, x, op.operands[0], op.result)
    wide = with_scalar(x.type, F64)
    value = x if wide == x.type else b.fpext(x, wide)
    size = intrinsic(b, "llvm.fabs", wide, [value])
    whole = intrinsic(b, "llvm.trunc", wide, [size])
    scale = constant(wide, 2.0 ** op.operands[1].bits)
    fraction = intrinsic(b, "llvm.fptoui.sat", random.type, [b.fmul(b.fsub(size, whole), scale)])
    up = b.uitofp(b.icmp_unsigned("<", random, fraction), wide)
    rounded = intrinsic(b, "llvm.copysign", wide, [b.fadd(whole, up), value])
    return convert(b, rounded, DTYPES["f64"], op.result)


def _bitcast(b: ir.IRBuilder, op: ElementOp, x: Parts) -> Parts:
    return bitcast_convert(b, x, op.operands[0], op.result)


#: Rules that serve every kind of type.
ANY: Mapping[str, ArithmeticRule] = MappingProxyType(
    {
        "select": _select,
        "copy": _copy,
        "clamp": _clamp,
        "complex": _complex,
        "real": _real,
        "imag": _imag,
        "convert": _convert,
        "bitcast-convert": _bitcast,
        "stochastic-convert": _stochastic_convert,
    }
)

#: Opcodes whose result is one of the type's values whenever the operands are: no rounding needed.
_EXACT = frozenset(
    [
        "select",
        "copy",
        "clamp",
        "real",
        "imag",
        "convert",
        "bitcast-convert",
        "abs",
        "negate",
        "maximum",
        "minimum",
        "sign",
        "floor",
        "ceil",
        "round-nearest-even",
        "round-nearest-afz",
    ]
)

#: Those of them whose result is new, but not rounded.
_CHOSEN = frozenset({"abs", "negate", "maximum", "minimum", "clamp"})

#: All opcodes with an elementwise rule.
ELEMENTWISE = frozenset({*ANY, *FLOAT, *INTEGER, *COMPLEX})


def combine(
    b: ir.IRBuilder, instruction: Instruction, operands: tuple[Parts, ...], *, wide: bool = False
) -> tuple[ir.Value, ...]:
    """The parts of an elementwise instruction's result.

    ``wide`` leaves results of small float types unrounded (reductions accumulate in f32). Raises UnsupportedError for
    opcodes or types without a rule.
    """
    dtypes = tuple(o.shape.dtype for o in instruction.operands)
    result = instruction.shape.dtype
    op = ElementOp(instruction.opcode, dtypes, result, instruction.attrs, wide)
    table = _table(dtypes[0] if dtypes else result)
    rule = ANY.get(op.opcode) or table.get(op.opcode)
    if op.opcode == "power" and table is FLOAT and scalar_value(instruction.operands[1]) == -1.5:
        rule = INVERSE_ROOT_CUBED[is_positive(instruction.operands[0])]
    if rule is None:
        raise UnsupportedError(
            f"{op.opcode} of {dtypes[0] if dtypes else result} has no CPU code",
            where=f"%{instruction.name}",
            fix="convert the operands to a supported type first",
        )
    value = rule(b, op, *operands)
    if is_small_float(result) and not wide:
        if op.opcode not in _EXACT:
            value = round_mantissa(b, value, result)
        elif op.opcode in _CHOSEN:
            mark_exact(value, result)
    return value if isinstance(value, tuple) else (value,)


def _table(dtype: DType) -> Mapping[str, ArithmeticRule]:
    if dtype.is_complex:
        return COMPLEX
    return FLOAT if dtype.is_float else INTEGER
