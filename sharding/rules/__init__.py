"""Factor rules by opcode: the family tables merged, and `factor_rule` with its cache.

Start with `factor_rule` (the class) and `signature` (the kinds of rows); one file per family has the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

from shardc.hlo.errors import AnnotationError, UnsupportedError
from shardc.hlo.ir.ir import Instruction
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
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule
from shardc.sharding.rules.signature import (
    DataFlow,
    FactorRow,
    Replicate,
    Row,
    Signature,
    Unsupported,
    replicate_rule,
    signature,
)

__all__ = ["RULES", "conservative_rule", "factor_rule", "is_data_flow", "rule_by_shape"]

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
    """Whether the op only passes values on (tuple, while, call, ...), so that it has edges instead of a rule."""
    return isinstance(RULES[opcode], DataFlow)


def factor_rule(instruction: Instruction) -> FactorRule:
    """The factor rule of an array operation; equal operations share one object.

    Operand and result tensors are leaves: a variadic reduce has several results. Raises `UnsupportedError` for ops
    that cannot be in a global program and ValueError for data-flow ops (see `is_data_flow`).

    Example: for ``%d = f32[4,16] dot(f32[4,8] %a, f32[8,16] %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}``
    the rule prints as ``([i, k], [k, j])->([i, j]) {i=4, j=16, k=8} reduction={k}``.
    """
    row = RULES[instruction.opcode]
    if isinstance(row, FactorRow):
        try:
            return _from_signature(signature(instruction, row.attrs, row.facts))
        except (AnnotationError, UnsupportedError) as e:
            raise type(e)(e.what, where=_place(instruction), fix=e.fix) from None
    if isinstance(row, Replicate):
        return _from_signature(signature(instruction))
    if isinstance(row, Unsupported):
        raise UnsupportedError(
            f"{instruction.opcode} cannot be partitioned: {row.why}",
            where=_place(instruction),
            fix="rewrite the program without it, or give the per-device program instead of the global one",
        )
    raise ValueError(f"{instruction.opcode} has data-flow edges, not a rule")


def rule_by_shape(instruction: Instruction) -> FactorRule:
    """`factor_rule` of an operation with one, whatever its operands are made by."""
    row = RULES[instruction.opcode]
    assert isinstance(row, FactorRow)
    return _from_signature(signature(instruction, row.attrs))


def conservative_rule(instruction: Instruction) -> FactorRule:
    """`factor_rule` for conservative propagation: nothing spreads through a dimension whose elements move."""
    rule = factor_rule(instruction)
    opcode = instruction.opcode
    if opcode == "convolution":
        labels = instruction.attrs["dim_labels"]
        spatial = (labels.lhs_spatial, labels.rhs_spatial, labels.out_spatial)
        return _block(rule, frozenset((t, d) for t, dims in enumerate(spatial) for d in dims))
    if opcode == "concatenate":
        return _block(rule, frozenset({(0, instruction.attrs["dimensions"][0])}))
    if opcode in ("pad", "slice", "reduce-window", "select-and-scatter"):
        return _block(rule, None)
    return rule


@lru_cache(maxsize=4096)
def _block(rule: FactorRule, places: frozenset[tuple[int, int]] | None) -> FactorRule:
    """The rule with its factors at ``places`` blocked, or all that do not pass through."""

    def blocks(f: int) -> bool:
        if places is None:
            return rule.factors[f].kind is not FactorKind.PASS_THROUGH
        return not places.isdisjoint(rule.places(f))

    factors = tuple(replace(factor, blocked=factor.blocked or blocks(f)) for f, factor in enumerate(rule.factors))
    return FactorRule(factors, rule.operands, rule.results, rule.reduction, rule.reason)


def _place(i: Instruction) -> str:
    return f"%{i.name}" + (f" ({i.source})" if i.source else "")


@lru_cache(maxsize=65536)
def _from_signature(sig: Signature) -> FactorRule:
    row = RULES[sig.opcode]
    if isinstance(row, FactorRow):
        return row.make(sig)
    assert isinstance(row, Replicate)
    return replicate_rule(sig, row.why)
