"""A sort between two reversals is the sort by the opposite order.

JAX sorts in descending order so: it reverses the operands, sorts, and reverses the results, so that equal elements keep
their order. On a split dimension each reversal sends every element. A stable sort with the sides of its comparison
exchanged gives the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Computation, Instruction, users_of
from shardc.hlo.ir.make import make
from shardc.partitioner.prepare.sorts.sorted_places import replaced

__all__ = ["turned_sorts"]


def turned_sorts(c: Computation) -> Computation:
    """``c`` with such sorts, and without the reversals around them."""
    sorts = [i for i in c if i.opcode == "sort" and i.attrs.get("is_stable")]
    users = users_of(c) if sorts else {}
    new: dict[Instruction, Instruction] = {}
    for sort in sorts:
        ends = _reversed_results(sort, users)
        if ends and all(_is_reversal(o, sort) for o in sort.operands):
            turned = _turned(sort)
            for end, index in ends.items():
                new[end] = make("get-tuple-element", end.shape, (turned,), end, index=index) if index >= 0 else turned
    return replaced(c, new) if new else c


def _reversed_results(sort: Instruction, users: Mapping[Instruction, Sequence[Instruction]]) -> dict[Instruction, int]:
    """The reversals that read the results, and which result (-1: the only one); empty if others read them too."""
    results = {sort: -1} if sort.shape.is_array else {u: u.attrs.get("index", -1) for u in users.get(sort, ())}
    if any(r is not sort and r.opcode != "get-tuple-element" for r in results):
        return {}
    readers = {u: index for r, index in results.items() for u in users.get(r, ())}
    return readers if all(_is_reversal(u, sort) for u in readers) else {}


def _is_reversal(x: Instruction, sort: Instruction) -> bool:
    return x.opcode == "reverse" and tuple(x.attrs["dimensions"]) == tuple(sort.attrs["dimensions"])


def _turned(sort: Instruction) -> Instruction:
    body = sort.attrs["to_apply"]
    operands = tuple(o.operands[0] for o in sort.operands)
    return sort.replace(operands=operands, attrs={**sort.attrs, "to_apply": _exchanged(body)})


def _exchanged(body: Computation) -> Computation:
    """The comparison of the second side with the first."""
    b = Builder(f"{body.name}_exchanged")
    given = [b.parameter(p.shape) for p in sorted(body.parameters, key=lambda p: p.attrs["index"])]
    new = {p: given[p.attrs["index"] ^ 1] for p in body.parameters}
    for i in body:
        if i.opcode != "parameter":
            new[i] = b.append(i.replace(operands=tuple(new[o] for o in i.operands)))
    return b.build(new[body.root])
