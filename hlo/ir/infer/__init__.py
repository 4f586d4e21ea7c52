"""Shape inference: one table of rules per op family, merged here.

Start with `rule`, what a row of these tables is; one file per family has the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from shardc.hlo.errors import VerificationError
from shardc.hlo.ir.infer import (
    collective,
    contraction,
    control,
    elementwise,
    indexing,
    linalg,
    random,
    reduction,
    shape,
    window,
)
from shardc.hlo.ir.infer.rule import RuleError, ShapeRule
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.types import Shape

__all__ = ["RULES", "infer_shape"]

RULES: Mapping[str, ShapeRule] = MappingProxyType(
    {
        **elementwise.RULES,
        **contraction.RULES,
        **reduction.RULES,
        **shape.RULES,
        **indexing.RULES,
        **window.RULES,
        **linalg.RULES,
        **random.RULES,
        **control.RULES,
        **collective.RULES,
    }
)


def infer_shape(opcode: str, operands: Iterable[Instruction], attrs: Mapping[str, Any]) -> Shape:
    """The shape that ``opcode`` gives for its operands and attributes, in default layouts.

    Raises `VerificationError` when the operands do not fit, and for ops whose shape does not follow from them
    (parameter, iota, reshape, broadcast, convert, custom-call, ...): those need ``shape=`` from the caller.
    Example: ``infer_shape("dot", (x, w), {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)})``.
    """
    operands = tuple(operands)
    rule, op = RULES.get(opcode), OPS.get(opcode)
    if rule is None or op is None:
        raise VerificationError(f"unknown operation {opcode!r}", where=_place(opcode, operands))
    if op.arity is not None and len(operands) != op.arity:
        what = f"{opcode} takes {op.arity} operands, not {len(operands)}"
        raise VerificationError(what, where=_place(opcode, operands))
    if not op.required <= attrs.keys():
        missing = min(op.required - attrs.keys())
        raise VerificationError(f"{opcode} needs the attribute {missing}", where=_place(opcode, operands))
    if rule.infer is None:
        what = f"the shape of {opcode} does not follow from its operands"
        raise VerificationError(what, where=_place(opcode, operands), fix="give the shape")
    try:
        return rule.infer([o.shape for o in operands], attrs)
    except RuleError as e:
        where = _place(opcode, operands) + ("" if e.dimension is None else f", dimension {e.dimension}")
        raise VerificationError(e.what, where=where) from None


def _place(opcode: str, operands: Iterable[Instruction]) -> str:
    names = ", ".join("%" + o.name for o in operands)
    return f"{opcode}({names})"
