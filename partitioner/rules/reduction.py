"""Reductions and sorts.

A reduction over split dimensions by one known operation gives partial results; padding is masked with the
operation's identity and the initial value is counted once. Any other reduction (a body of its own) reduces its
shards, gathers those few results and reduces them again; its padding is the initial value.
"""

from __future__ import annotations

from collections.abc import Mapping

from shardc.hlo.ir.ir import Instruction
from shardc.partitioner.emit.emitter import COMBINERS, identity_of
from shardc.partitioner.emit.layout import Atoms
from shardc.partitioner.rules.searching import TOP_OF_SHARDS
from shardc.partitioner.rules.sorts.columns import COLUMN_SORTS, repeated_sort
from shardc.partitioner.rules.sorts.sample_sort import SAMPLE_SORT
from shardc.partitioner.strategy.rule import Local, LocalSite, PartitionRow, always, nothing, pass_or_reduce
from shardc.sharding.rules import factor_rule

__all__ = ["RULES", "same_reduction"]

#: Combining a value with itself gives the value: the initial value may be counted on every device.
_IDEMPOTENT = ("maximum", "minimum", "and", "or")


def _reduce(site: LocalSite) -> list[Instruction]:
    split = [d for d in site.op.attrs["dimensions"] if site.operand_atoms(0, d)]
    if not split:
        return site.emit()
    atoms = tuple(a for d in split for a in site.operand_atoms(0, d))
    if not _finishes(site.op):
        return _partial(site, split, atoms, COMBINERS.get(site.rule.reduction, site.rule.reduction))
    return _twice(site, split, atoms)


def _finishes(op: Instruction) -> bool:
    """Whether shards' results must be gathered and reduced again, because nothing reduces them on the way."""
    reduction = factor_rule(op).reduction
    opcode = COMBINERS.get(reduction, reduction)
    return not all(_all_reducible(opcode, x) for x in op.operands[: len(op.operands) // 2])


def _all_reducible(opcode: str, x: Instruction) -> bool:
    """Whether transports and XLA reduce with this operation. They use bitwise ones on truth values only."""
    return opcode in ("add", "multiply", "maximum", "minimum") or (
        opcode in ("and", "or") and x.shape.dtype.kind == "pred"
    )


def _partial(site: LocalSite, split: list[int], atoms: Atoms, opcode: str) -> list[Instruction]:
    n = len(site.shapes)
    masked, initials = [], []
    for k, (x, initial) in enumerate(zip(site.operands[:n], site.operands[n:], strict=True)):
        identity = site.em.scalar(identity_of(opcode, x.shape.dtype), x.shape.dtype)
        masked.append(site.masked(k, split, identity))
        once = opcode in _IDEMPOTENT or _is_constant(initial, identity)
        initials.append(initial if once else site.em.keep_on_first(initial, atoms, identity))
    return site.emit([*masked, *initials])


def _is_constant(x: Instruction, constant: Instruction) -> bool:
    return x.opcode == "constant" and x.attrs["literal"] == constant.attrs["literal"]


def _twice(site: LocalSite, split: list[int], atoms: Atoms) -> list[Instruction]:
    """Reduce the shards, gather the results along a new dimension, reduce that."""
    em, n = site.em, len(site.shapes)
    initial = site.operands[n:]
    masked = [site.masked(i, split, initial[i]) for i in range(n)]
    parts = site.emit([*masked, *initial])
    gathered = [em.all_gather(em.reshape(p, (1, *p.shape.dims)), 0, atoms) for p in parts]
    site.finished = True
    return site.emit([*gathered, *initial], dimensions=(0,))


def same_reduction(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    """A sum of partial sums is a partial sum, when the initial value is not added on every device."""
    body = op.attrs["to_apply"].root.opcode
    if len(op.operands) != 2 or body != COMBINERS.get(reduction):
        return ()
    initial = op.operands[1]
    dtype = op.shape.dtype
    zero = initial.opcode == "constant" and initial.attrs["literal"].splat == identity_of(body, dtype)
    return ((0,),) if body in _IDEMPOTENT or zero else ()


RULES: Mapping[str, PartitionRow] = {
    "reduce": Local(
        "on shards, partial results over reduced axes", _reduce, pass_or_reduce, same_reduction, finishes=_finishes
    ),
    "topk": Local("on shards, the searched dimension whole", alternatives=(TOP_OF_SHARDS,)),
    "sort": Local(
        "on shards, the sorted dimension whole: its axes move to another one, or columns are dealt out and merged",
        sends=always(repeated_sort),
        alternatives=(SAMPLE_SORT, *COLUMN_SORTS),
    ),
    "scan": Local("whole operands: the body works on whole slices", usable=nothing),
}
