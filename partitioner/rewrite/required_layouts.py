"""What readers need after all, where that is not what propagation gave.

A loop's carry, a computation's results and constraints fix the layouts of what they read. Where all readers of a value
agree on another layout than its own, its operation is chosen for theirs; and so are, through operations whose
dimensions pass through, the operations before it. Elsewhere propagation's layout stays the aim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardc.hlo.ir.ir import Instruction
from shardc.partitioner.emit.layout import AxisLayout, AxisTable
from shardc.partitioner.rewrite.scope import ComputationScope
from shardc.partitioner.strategy.rule import PartitionRow
from shardc.sharding.rules.factor_rule import FactorRule

__all__ = ["required_layouts"]


def required_layouts(
    scope: ComputationScope, live: Sequence[Instruction], results: Sequence[AxisLayout]
) -> dict[Instruction, AxisLayout]:
    """Layouts that all readers of an array need, for arrays whose propagated layout is another one."""
    asked: dict[Instruction, list[AxisLayout | None]] = {}
    found: dict[Instruction, AxisLayout] = {}
    fixed = {scope.computation.root: list(results)}
    for op in reversed(live):
        if op.opcode == "while":
            fixed[op.operands[0]] = list(scope.wanted(op))
        if op in fixed:
            for o, given in _leaves(op, fixed[op]):
                asked.setdefault(o, []).append(given)
        if op.opcode == "tuple" and op in fixed:
            continue
        aims = set(asked.pop(op, ()))
        aim = aims.pop() if len(aims) == 1 else None
        row = scope.rules[op.opcode]
        if aim is not None and row.strategies and op.shape.is_array and scope.wanted(op)[0] is not aim:
            found[op] = aim
        for o, layout in _asks(scope.context.table, row, op, found.get(op)):
            asked.setdefault(o, []).append(layout)
    return found


def _leaves(op: Instruction, layouts: list[AxisLayout]) -> Iterator[tuple[Instruction, AxisLayout]]:
    """The arrays that a tuple is made of, each with its layout; ``layouts`` are used up in order."""
    if op.opcode == "tuple":
        for o in op.operands:
            yield from _leaves(o, layouts)
    elif op.shape.is_array:
        yield op, layouts.pop(0)
    else:
        del layouts[: len(list(op.shape.leaves()))]


def _asks(
    table: AxisTable, row: PartitionRow, op: Instruction, need: AxisLayout | None
) -> Iterator[tuple[Instruction, AxisLayout | None]]:
    """What ``op`` asks of its operands when it is itself wanted in ``need``; None where it takes them as they come."""
    rule = None
    usable: frozenset[int] = frozenset()
    if need is not None and row.strategies:
        rule = next((r for strategy in row.strategies if (r := strategy.rule(op)) is not None), None)
        usable = row.strategies[0].usable(op, rule) if rule is not None else usable
    for slot, o in enumerate(op.operands):
        if rule is None or need is None:
            yield o, None
        else:
            yield o, _project(table, rule, usable, (slot, need))


def _project(
    table: AxisTable, rule: FactorRule, usable: frozenset[int], at: tuple[int, AxisLayout]
) -> AxisLayout | None:
    """The layout of an operand that gives the result its layout for nothing; None where dimensions do not pass."""
    slot, need = at
    if len(rule.results) != 1 or any(len(d) != 1 for d in (*rule.results[0], *rule.operands[slot])):
        return None
    atoms = {d[0]: a for d, a in zip(rule.results[0], need.dims, strict=True)}
    factors = [d[0] for d in rule.operands[slot]]
    if any(f not in atoms or f not in usable for f in factors):
        return None
    return table.layout(atoms[f] for f in factors)
