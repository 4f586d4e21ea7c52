"""Which values should stay partial: those that lead to nothing but results that are partial.

Readers prefer partial values in turn, an outer loop's accumulator above all, so that gradients of layers within
microbatches travel once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardc.hlo.ir.ir import Instruction
from shardc.partitioner.emit.layout import AxisLayout, AxisTable
from shardc.partitioner.rewrite.scope import ComputationScope
from shardc.partitioner.strategy.values import PartialAxes
from shardc.partitioner.unreduced.linear import Spread

__all__ = ["partial_of", "preferred_partials", "with_partial"]


def preferred_partials(
    scope: ComputationScope, live: Sequence[Instruction], results: Sequence[AxisLayout]
) -> dict[Instruction, AxisLayout]:
    """Layouts of the values whose only way is to results that are partial: partial as well.

    Elements of loops' and conditionals' results are keyed by the instruction that takes them out.
    """
    if not any(x.unreduced for x in results):
        return {}
    spread = scope.spread()
    sources = spread.sources(scope.computation, _partial_inputs(scope))
    asked: dict[Instruction, list[PartialAxes | None]] = {}
    root = scope.computation.root
    ends = root.operands if root.opcode == "tuple" and root.shape.is_tuple else (root,)
    if len(ends) != len(results):
        return {}
    for o, layout in zip(ends, results, strict=True):
        asked.setdefault(o, []).append(partial_of(layout))
    found: dict[Instruction, AxisLayout] = {}
    for op in reversed(live):
        if op is root and ends is root.operands:
            continue
        aims = asked.pop(op, [])
        aim = aims[0] if len(set(aims)) == 1 and len(aims) == max(scope.uses.get(op, 1), 1) else None
        known = op in sources or _asks_for(scope, op, aim)
        if aim is not None and known and op.shape.is_array and not _held(scope, op, aim):
            found[op] = with_partial(scope.context.table, (scope.required.get(op) or scope.wanted(op)[0]), aim)
        else:
            aim = None
        group = _group(spread, op, aim, sources)
        for n, o in enumerate(op.operands):
            asked.setdefault(o, []).append(aim if n in group else None)
    return found


def _held(scope: ComputationScope, op: Instruction, aim: PartialAxes) -> bool:
    """Whether ``op`` is a constraint that splits its value over axes over which it would be partial."""
    return op.opcode == "custom-call" and not scope.wanted(op)[0].used.isdisjoint(aim.atoms)


def _asks_for(scope: ComputationScope, op: Instruction, aim: PartialAxes | None) -> bool:
    """Whether ``op`` is a constraint that makes its value partial as ``aim`` says."""
    if op.attrs.get("custom_call_target") != "Sharding" or not op.shape.is_array:
        return False
    return partial_of(scope.context.layouts(op, partial=True)[0]) == aim


def _partial_inputs(scope: ComputationScope) -> dict[Instruction, PartialAxes]:
    """Parameters, and elements of them, that are partial already."""
    given: dict[Instruction, PartialAxes] = {}
    for p, layouts in zip(scope.computation.parameters, scope.parameter_layouts, strict=True):
        partial = [partial_of(x) for x in layouts]
        if p.shape.is_array and partial[0] is not None:
            given[p] = partial[0]
        if not p.shape.is_tuple or len(p.shape.elements) != len(partial):
            continue
        for i in scope.computation:
            if i.opcode == "get-tuple-element" and i.operands[0] is p:
                own = partial[i.attrs["index"]]
                if own is not None:
                    given[i] = own
    return given


def partial_of(layout: AxisLayout) -> PartialAxes | None:
    return PartialAxes(layout.unreduced, layout.reduction) if layout.unreduced else None


def _group(
    spread: Spread, op: Instruction, aim: PartialAxes | None, sources: Mapping[Instruction, PartialAxes]
) -> tuple[int, ...]:
    """The operands of ``op`` that should be partial for its result to be."""
    if aim is None:
        return ()
    for group in spread.groups(op, aim.reduction):
        near = [sources[op.operands[n]] for n in group if op.operands[n] in sources]
        if any(p.reduction == aim.reduction for p in near):
            return group
    return ()


def with_partial(table: AxisTable, layout: AxisLayout, partial: PartialAxes) -> AxisLayout:
    """``layout`` with partial values over axes that then split nothing."""
    gone = set(partial.atoms)
    dims = (tuple(a for a in atoms if a not in gone) for atoms in layout.dims)
    return table.layout(dims, partial.atoms, partial.reduction)
