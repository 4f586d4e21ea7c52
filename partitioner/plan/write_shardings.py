"""Writes chosen layouts onto a program: the same instructions, with other shardings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardc.hlo.ir.ir import Computation, Instruction, Module, flow_computations, map_callees
from shardc.hlo.ir.sharding import AnySharding, Sharding

__all__ = ["write_shardings"]

#: Operations whose leaves are those of their operands.
_PASSED_ON = frozenset(("tuple", "get-tuple-element", "optimization-barrier", "domain", "add-dependency"))


def write_shardings(module: Module, chosen: Mapping[Instruction, tuple[Sharding, ...]]) -> Module:
    """``module`` with the ``chosen`` shardings, per leaf; values that loops and calls pass on follow from them. The
    entry of a loop is its carry: parameters, roots and the loop's operands get the same sharding. All other
    instructions keep theirs.
    """
    leaves = dict(chosen)
    for i in module.instructions():
        if i.opcode == "while" and i in chosen:
            for callee in (i.attrs["body"], i.attrs["condition"]):
                leaves[callee.parameters[0]] = chosen[i]
            leaves[i.attrs["body"].root] = chosen[i]
    made: dict[Computation, Computation] = {}
    for c in module.computations:
        made[c] = _computation(c, leaves, made)
    return module.with_(computations=tuple(made.values()), entry=made[module.entry])


def _computation(
    c: Computation, leaves: Mapping[Instruction, tuple[Sharding, ...]], made: Mapping[Computation, Computation]
) -> Computation:
    new: dict[Instruction, Instruction] = {}
    for i in c:
        attrs = map_callees(i.attrs, lambda k: made.get(k, k)) if flow_computations(i) else i.attrs
        operands = tuple(new[o] for o in i.operands)
        given = leaves.get(i)
        sharding: AnySharding = i.sharding
        if given is not None:
            sharding = given if i.shape.is_tuple else given[0]
        elif i.opcode in _PASSED_ON and i.sharding is not None and i is not c.root:
            sharding = _passed_on(i, operands)
        if sharding is i.sharding and attrs is i.attrs and all(map(_same, operands, i.operands)):
            new[i] = i
        else:
            new[i] = i.replace(operands=operands, attrs=attrs, sharding=sharding)
    if all(map(_same, new.values(), new)):
        return c
    return Computation(c.name, new.values(), new[c.root])


def _same(a: object, b: object) -> bool:
    return a is b


def _passed_on(i: Instruction, operands: Sequence[Instruction]) -> AnySharding:
    """The shardings of the operands' leaves that are the leaves of ``i``."""
    if i.opcode == "tuple":
        return tuple(s for o in operands for s in o.leaf_shardings())
    given = operands[0].leaf_shardings()
    if i.opcode != "get-tuple-element":
        return given if i.shape.is_tuple else given[0]
    elements = operands[0].shape.elements
    index: int = i.attrs["index"]
    start = sum(sum(1 for _ in e.leaves()) for e in elements[:index])
    count = sum(1 for _ in elements[index].leaves())
    part = given[start : start + count]
    return part if i.shape.is_tuple else part[0]
