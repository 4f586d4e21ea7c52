"""Factor rules by opcode: the family tables merged, and `factor_rule` with its cache."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir import Instruction
from shardc.sharding.factors import FactorRule
from shardc.sharding.rules import (
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
from shardc.sharding.rules.signature import (
    DataFlow,
    Replicate,
    Row,
    Rule,
    Signature,
    Unsupported,
    replicate_rule,
    signature,
)

__all__ = ["RULES", "factor_rule", "is_data_flow"]

RULES: Mapping[str, Row] = MappingProxyType(
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


def is_data_flow(opcode: str) -> bool:
    """Does the op only pass values on (tuple, while, call, ...), so that it has edges instead of a rule?"""
    return isinstance(RULES[opcode], DataFlow)


def factor_rule(instruction: Instruction) -> FactorRule:
    """The factor rule of an array operation; equal operations share one object.

    Operand and result tensors are leaves: a variadic reduce has several results. Raises `UnsupportedError` for ops
    that cannot be in a global program and ValueError for data-flow ops (see `is_data_flow`).

    Example: for ``%d = f32[4,16] dot(f32[4,8] %a, f32[8,16] %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}``
    the rule prints as ``([i, k], [k, j])->([i, j]) {i=4, j=16, k=8} reduction={k}``.
    """
    row = RULES[instruction.opcode]
    if isinstance(row, Rule):
        return _from_signature(signature(instruction, row.attrs))
    if isinstance(row, Replicate):
        return _from_signature(signature(instruction, ()))
    if isinstance(row, Unsupported):
        raise UnsupportedError(
            f"{instruction.opcode} cannot be partitioned: {row.why}",
            where=f"%{instruction.name}" + (f" ({instruction.source})" if instruction.source else ""),
            fix="rewrite the program without it, or give the per-device program instead of the global one",
        )
    raise ValueError(f"{instruction.opcode} has data-flow edges, not a rule")


@lru_cache(maxsize=65536)
def _from_signature(sig: Signature) -> FactorRule:
    row = RULES[sig.opcode]
    if isinstance(row, Rule):
        return row.make(sig)
    assert isinstance(row, Replicate)
    return replicate_rule(sig, row.why)
