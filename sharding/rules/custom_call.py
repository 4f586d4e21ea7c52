"""Factor rules of custom calls: users' own, by number of batch dimensions, and of known targets.

A rule that comes with the call wins: Shardy's attribute ``sdy.sharding_rule``, which travels in the frontend
attribute ``xla.sdy.sharding_rule``. JAX marks its linear algebra with ``num_batch_dims``: so many leading dimensions of
every operand and result are independent; the rule that it gives says no more. More is known of routines that solve or
multiply with a matrix from one side: the columns (or rows) of the other operand are independent as well. Rows of a tall
matrix that is factored can be split, so Q has the layout of the matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from shardc.hlo.ir.custom_calls import INSPECTION, SINK
from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.lapack import LAPACK, attributes_of, routine_name
from shardc.sharding.rules.elementwise import pointwise
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule
from shardc.sharding.rules.notation import parse_rule
from shardc.sharding.rules.reduction import along_one_dimension
from shardc.sharding.rules.signature import FactorRow, Signature, replicate_rule

__all__ = ["CUSTOM_CALL", "LEAST_ROWS", "RULE_ATTRIBUTE", "with_sharding_rules"]

#: Rows from which square matrices are factored in parts. Factors have the layout of the matrix then, and solutions that
#: of the right-hand sides.
LEAST_ROWS = 256

#: The frontend attribute that holds a rule in Shardy's notation.
RULE_ATTRIBUTE = "xla.sdy.sharding_rule"
_BATCH_ATTRIBUTE = "num_batch_dims"

_POINTWISE = frozenset(
    {
        INSPECTION,
        SINK,
        "LayoutConstraint",
        "MoveToDevice",
        "MoveToHost",
        "PinToDevice",
        "PinToHost",
        "Sharding",
        "X64Combine",
        "X64SplitHigh",
        "X64SplitLow",
        "annotate_device_placement",
        "xla.megascale.provide_metadata",
        "xla.sdy.FuncResultSharding",
    }
)
_SHIFTING = frozenset(
    f"_SPMDInternalOp_{name}" for name in ("MultiPad", "RotateRight", "MultiRotate", "MultiSlice", "Wrap")
)
_TOP_K = frozenset(("mhlo.topk", "TopK"))
_APPROXIMATE_TOP_K = frozenset(("ApproxTopK", "PartialReduce"))
#: The minor dimensions of operands and results by letter, after any number of batch dimensions.
_LINEAR_ALGEBRA: Mapping[str, str] = MappingProxyType(
    {
        "Cholesky": "mn->mn",
        "CompactWyHelper": "mn->mn",
        "InvertDiagBlocksLowerTriangular": "mn->mn",
        "InvertDiagBlocksUpperTriangular": "mn->mn",
        "Eigh": "mn->mn,n",
        "Qr": "mn->mn,k",
        "QrDecompositionBlock": "mn->mn,k",
        "ProductOfElementaryHouseholderReflectors": "mn,k->mn",
    }
)
#: Factorisations that a program of small ones replaces where rows are split, and rows per column from which it pays.
_TALL = ("geqrf", "orgqr", "gesdd")
_HEIGHT = 8


def _custom_call(sig: Signature) -> FactorRule:
    target, text, batch, side = sig.attrs
    if side:
        return _one_sided_rule(sig, side)
    if rows := _tall_rows(sig, target):
        return rows
    if routine_name(target) == "potrf" and sig.operands[0].dims[-1] >= LEAST_ROWS:
        return _letter_rule(sig, "mn->mn,")
    if routine_name(target) == "syevd" and sig.operands[0].dims[-1] >= LEAST_ROWS:
        return _letter_rule(sig, "mn->mn,k,")
    if routine_name(target) == "getrf" and sig.operands[0].dims[-1] == sig.operands[0].dims[-2] >= LEAST_ROWS:
        return _letter_rule(sig, "mn->mn,k,")
    if text:
        return parse_rule(text, [s.dims for s in sig.operands], [s.dims for s in sig.results])
    if batch is not None:
        return _batch_rule(sig, batch)
    if target in _POINTWISE or (target.startswith("mhlo.") and target not in _TOP_K):
        return _same_shapes(sig) or replicate_rule(sig, f"the arrays of {target!r} have different dimensions")
    if target in _SHIFTING:
        return _same_shapes(sig, FactorKind.PERMUTATION) or replicate_rule(sig, f"{target!r} changes sizes")
    if target in _TOP_K:
        return along_one_dimension(sig, sig.operands[0].rank - 1)
    if target in _APPROXIMATE_TOP_K:
        return _approximate_top_k(sig)
    if target in _LINEAR_ALGEBRA:
        return _letter_rule(sig, _LINEAR_ALGEBRA[target])
    if target in LAPACK:
        routine = LAPACK[target]
        minor = [len(d) for d in (*routine.operands, *routine.results)]
        return _batch_rule(sig, min(s.rank - n for s, n in zip((*sig.operands, *sig.results), minor, strict=True)))
    return replicate_rule(sig, f"the dimensions of custom call {target!r} are unknown")


def _same_shapes(sig: Signature, kind: FactorKind = FactorKind.PASS_THROUGH) -> FactorRule | None:
    """Dimension by dimension, None if the arrays do not agree; scalars may be among the operands."""
    shapes = [s for s in (*sig.operands, *sig.results) if s.rank]
    if len({s.dims for s in shapes}) > 1:
        return None
    if kind is FactorKind.PASS_THROUGH:
        return pointwise(sig)
    b = sig.builder()
    for d, size in enumerate(shapes[0].dims if shapes else ()):
        b.add(size, [(t, d) for t, s in enumerate((*sig.operands, *sig.results)) if s.rank], kind)
    return b.build()


def _batch_rule(sig: Signature, count: int) -> FactorRule:
    """The first ``count`` dimensions of all arrays that have so many pass through, the rest is whole."""
    b = sig.builder()
    shapes = (*sig.operands, *sig.results)
    holders = [t for t, s in enumerate(shapes) if count and s.rank >= count]
    for d in range(count if holders else 0):
        size = shapes[holders[0]].dims[d]
        if any(shapes[t].dims[d] != size for t in holders):
            return replicate_rule(sig, "the batch dimensions of its arrays have different sizes")
        b.add(size, [(t, d) for t in holders])
    return b.build(reason="only the batch dimensions are known to be independent")


def _one_sided_rule(sig: Signature, side: str) -> FactorRule:
    """``x`` of ``a x = b`` or ``x a = b``, or a product with reflections: the last operand becomes the result."""
    b = sig.builder()
    last, result = len(sig.operands) - 1, sig.results[0]
    for d in range(result.rank - 2):
        b.add(result.dims[d], [(t, d) for t in range(len(sig.operands) + 1)])
    free = result.rank - (1 if side == "L" else 2)
    b.add(result.dims[free], [(last, free), (last + 1, free)])
    solved = result.rank - (2 if side == "L" else 1)
    if last == 1 and result.dims[solved] >= LEAST_ROWS:  # the solution of equations lies as the right-hand sides do
        b.add(result.dims[solved], [(1, solved), (2, solved)], FactorKind.NEED_REPLICATION)
    return b.build()


def _tall_rows(sig: Signature, target: str) -> FactorRule | None:
    """Rows of a matrix so tall that its factors are found without a gather, and those of its results; None for others.

    The rows are split together; the factor says that an operation as it stands needs them whole.
    """
    routine = LAPACK.get(target)
    if routine is None or routine_name(target) not in _TALL:
        return None
    batch = sig.operands[0].rank - len(routine.operands[0])
    m, n = sig.operands[0].dims[batch:]
    if m < _HEIGHT * n or not n:
        return None
    b = sig.builder()
    minor = (*routine.operands, *routine.results)
    for d in range(batch):
        b.add(sig.operands[0].dims[d], [(t, d) for t in range(len(minor))])
    b.add(m, [(t, batch) for t, letters in enumerate(minor) if letters[:1] == "m"], FactorKind.NEED_REPLICATION)
    return b.build()


def _letter_rule(sig: Signature, letters: str) -> FactorRule:
    """Batch dimensions pass through; minor dimensions of one letter belong together, but are needed whole."""
    operands, _, results = letters.partition("->")
    minor = [*operands.split(","), *results.split(",")]
    shapes = (*sig.operands, *sig.results)
    if len(minor) != len(shapes) or any(s.rank < len(m) for s, m in zip(shapes, minor, strict=True)):
        return replicate_rule(sig, "this custom call usually has other operands or results")
    batch = shapes[0].rank - len(minor[0])
    b = sig.builder()
    for d in range(batch):
        b.add(shapes[0].dims[d], [(t, d) for t in range(len(shapes))])
    for letter in dict.fromkeys("".join(minor)):
        places = [(t, batch + m.index(letter)) for t, m in enumerate(minor) if letter in m]
        t, d = places[0]
        b.add(shapes[t].dims[d], places, FactorKind.NEED_REPLICATION)
    return b.build()


def _approximate_top_k(sig: Signature) -> FactorRule:
    """Arrays, then scalars; a dimension whose size changes is searched, and so is one that is kept by chance."""
    operand, result = sig.operands[0], sig.results[0]
    shapes = (*sig.operands, *sig.results)
    inputs = [t for t, s in enumerate(sig.operands) if s.rank]
    outputs = list(range(len(sig.operands), len(shapes)))
    unchanged = operand.dims == result.dims
    b = sig.builder()
    for d, size in enumerate(operand.dims):
        if unchanged:
            b.add(size, [(t, d) for t in (*inputs, *outputs)], FactorKind.NEED_REPLICATION)
        elif result.dims[d] == size:
            b.add(size, [(t, d) for t in (*inputs, *outputs)])
        else:
            b.add(size, [(t, d) for t in inputs], FactorKind.NEED_REPLICATION)
            b.add(result.dims[d], [(t, d) for t in outputs], FactorKind.NEED_REPLICATION, blocked=True)
    return b.build()


def with_sharding_rules(module: Module, rules: Mapping[str, str]) -> Module:
    """The module with the rule of its target on every custom call that ``rules`` knows and that has none."""

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        rule = rules.get(old.attrs["custom_call_target"]) if old.opcode == "custom-call" else None
        frontend = tuple(old.attrs.get("frontend_attributes", ()))
        if not rule or any(name == RULE_ATTRIBUTE for name, _ in frontend):
            return None
        attrs = {**old.attrs, "frontend_attributes": (*frontend, (RULE_ATTRIBUTE, rule))}
        return old.replace(operands=operands, attrs=attrs)

    return rebuild_module(module, change)


def _facts(i: Instruction) -> tuple[Any, ...]:
    """The rule that comes with the call, its number of batch dimensions, and the side that its matrix stands on."""
    frontend = dict(i.attrs.get("frontend_attributes", ()))
    batch = str(frontend.get(_BATCH_ATTRIBUTE, ""))
    return str(frontend.get(RULE_ATTRIBUTE, "")), int(batch) if batch.isdigit() else None, _side(i)


def _side(i: Instruction) -> str:
    """L or R of a routine that works on its last operand from one side, empty for any other."""
    routine = LAPACK.get(i.attrs["custom_call_target"])
    if routine is None or routine.operands[-1] != "mn" or routine.results != ("mn",) or len(routine.operands) < 2:
        return ""
    attributes = attributes_of(i)
    left = attributes.get("left", attributes.get("side") == ord("L"))
    return "L" if left else "R"


CUSTOM_CALL = FactorRow(_custom_call, ("custom_call_target",), _facts)
