"""Which kernels and collectives may write their result over an operand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from shardc.compiler.lower.fuse.fusion_rules import is_elementwise, new_part
from shardc.compiler.lower.fuse.row_plan import plan_rows
from shardc.compiler.lower.fuse.row_space import roots_of
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.sort_keys import sort_keys
from shardc.hlo.ir.types import Shape

__all__ = ["in_place_pairs"]

#: Ops that change a part of operand 0 and keep the rest: their kernels skip the copy when both are the same memory.
_UPDATES = frozenset({"dynamic-update-slice", "scatter"})
#: Shorter lines are sorted by kernels that read an operand once more while they write.
_LEAST_SORTED = 1024


def in_place_pairs(i: Instruction) -> tuple[tuple[int, int], ...]:
    """(result leaf, operand leaf) pairs that may be the same memory.

    Safe where element k of the result reads nothing of the operand but element k, of the same width; and for sorts of
    one line, whose kernels keep what they still need.
    """
    if i.opcode == "all-reduce":
        return tuple((n, n) for n in range(len(i.operands)))
    if i.opcode == "ragged-all-to-all":
        return ((0, 1),)
    if i.opcode in _UPDATES:
        return ((0, 0),) if i.shape.is_array else ()
    if i.opcode == "sort":
        return ((0, 0),) if _sorts_a_line(i) else ()
    if i.opcode == "fusion" and new_part(i) is not None:
        pairs = [(0, i.attrs["calls"].root.operands[0].attrs["index"])]
    elif i.opcode == "fusion":
        pairs = _fusion_pairs(i.attrs["calls"])
    elif is_elementwise(i):
        pairs = [(0, n) for n, o in enumerate(i.operands) if o.shape.dims == i.shape.dims]
    else:
        return ()
    results = list(i.shape.leaves())
    return tuple((r, n) for r, n in pairs if i.operands[n].shape.is_array and _same_width(results[r], i.operands[n]))


def _sorts_a_line(i: Instruction) -> bool:
    """Whether the instruction sorts one long line, by a key of its elements."""
    if len(i.operands) > 1 or i.operands[0].shape.rank != 1 or i.shape.size < _LEAST_SORTED:
        return False
    return sort_keys(i.attrs["to_apply"]) is not None


def _same_width(result: Shape, operand: Instruction) -> bool:
    return result.dtype.nbytes == operand.shape.dtype.nbytes


@lru_cache(maxsize=8192)
def _fusion_pairs(computation: Computation) -> list[tuple[int, int]]:
    """Asked for whenever an order is judged; a fused computation is small, and holds nothing of the program."""
    plan = plan_rows(computation)
    if plan is None:
        roots = roots_of(computation)
        if len({r.shape.dims for r in roots}) > 1:  # loops of their own: the first might overwrite what the next reads
            return []
        return [(n, p) for p in _elementwise_parameters(computation, roots) for n in range(len(roots))]
    pairs = []
    for p, last in plan.reads.items():
        for n, output in enumerate(plan.outputs):
            if last is None or plan.spots[p] != plan.spots[output.value]:
                continue
            # A row's elements are written in the same order as they are read; single ones after the row.
            if output.loop is None or last <= plan.first_write(n):
                pairs.append((n, p.attrs["index"]))
    return sorted(pairs)


def _elementwise_parameters(computation: Computation, roots: Sequence[Instruction]) -> list[int]:
    """Parameters of a fused computation that are read only at the element that is being written."""
    at_element = set(roots)
    moved: set[Instruction] = set()
    for i in reversed(computation.instructions):
        if i.opcode in ("parameter", "tuple"):
            continue
        same = i in at_element and i not in moved and is_elementwise(i)
        for o in i.operands:
            (at_element if same and o.shape.dims == roots[0].shape.dims else moved).add(o)
    return [p.attrs["index"] for p in computation.parameters if p in at_element and p not in moved]
