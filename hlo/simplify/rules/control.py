"""Tuples taken apart where they were put together, and branches whose selector is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.make import effects, inline, scalar_value

__all__ = ["RULES", "branches_of"]


def element_of_tuple(i: Instruction) -> Instruction | None:
    inner = i.operands[0]
    return inner.operands[i.attrs["index"]] if inner.opcode == "tuple" else None


def tuple_of_elements(i: Instruction) -> Instruction | None:
    """tuple(get-tuple-element(x, 0), get-tuple-element(x, 1), ...) is x."""
    if not i.operands or any(o.opcode != "get-tuple-element" for o in i.operands):
        return None
    whole = i.operands[0].operands[0]
    if whole.shape.plain != i.shape.plain:
        return None
    parts = enumerate(i.operands)
    return whole if all(o.operands[0] is whole and o.attrs["index"] == n for n, o in parts) else None


def branches_of(conditional: Instruction) -> tuple[Computation, ...]:
    """Branches in the order of the selector: the true computation is branch 0 of a predicate."""
    attrs = conditional.attrs
    if "branch_computations" in attrs:
        return tuple(attrs["branch_computations"])
    return (attrs["true_computation"], attrs["false_computation"])


def choose_known_branch(i: Instruction) -> Instruction | None:
    value = scalar_value(i.operands[0])
    if value is None:
        return None
    branches = branches_of(i)
    if i.operands[0].shape.dtype.kind == "pred":
        number = 0 if value else 1
    else:
        number = int(value) if 0 <= int(value) < len(branches) else len(branches) - 1
    if effects(branches[number]):
        return None
    return inline(branches[number], (i.operands[1 + number],))


RULES: Mapping[str, tuple[Callable[[Instruction], Instruction | None], ...]] = {
    "get-tuple-element": (element_of_tuple,),
    "tuple": (tuple_of_elements,),
    "conditional": (choose_known_branch,),
}
