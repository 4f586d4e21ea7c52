"""The table of element rules: everything that loop kernels, and the inside of fusions, can compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from shardc.compiler.elements.affine import InRange, Mask, condition
from shardc.compiler.elements.arithmetic.elementwise import ELEMENTWISE
from shardc.compiler.elements.bits import bitcast_element
from shardc.compiler.elements.elements import Answer, ElementRule, Elements, Index
from shardc.compiler.elements.folds import FOLDS
from shardc.compiler.elements.indexing import INDEXING
from shardc.hlo.ir.ir import Instruction

__all__ = ["RULES"]


def _elementwise(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    """Operands at the same index; scalars (select's predicate, clamp's bounds) serve every element."""
    operands = [e.value(o, index if o.shape.rank else (), mask) for o in i.operands]
    return e.elementwise(i, operands)


def _compare(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    """A position beside a number is a condition, which ranges of loops may decide."""
    position, limit = (_beneath_broadcasts(o, index) for o in i.operands)
    bounds = _BOUNDS.get(i.attrs["direction"])
    if bounds is None or position[0].opcode != "iota" or limit[0].opcode != "constant":
        return _elementwise(e, i, index, mask)
    (iota, at), literal = position, limit[0].attrs["literal"]
    if not iota.shape.dtype.is_integer or iota.shape.dtype.bits < 32 or not literal.is_splat:
        return _elementwise(e, i, index, mask)
    x = at[iota.attrs["iota_dimension"]]
    least, past = x.range
    low, high = bounds(int(literal.splat))
    holds = condition(x, least if low is None else low, past if high is None else high)
    yes, no = (e.constant(truth, i.shape.dtype) for truth in (True, False))
    return e.choose([holds], yes, no) if isinstance(holds, InRange) else yes if holds else no


#: Where a position stands that compares so with a number; None: there is no bound.
_BOUNDS: Mapping[str, Callable[[int], tuple[int | None, int | None]]] = MappingProxyType(
    {
        "LT": lambda k: (None, k),
        "LE": lambda k: (None, k + 1),
        "GT": lambda k: (k + 1, None),
        "GE": lambda k: (k, None),
        "EQ": lambda k: (k, k + 1),
    }
)


def _beneath_broadcasts(i: Instruction, index: Index) -> tuple[Instruction, Index]:
    """What is broadcast to an element, and its index there."""
    while i.opcode == "broadcast":
        i, index = i.operands[0], tuple(index[d] for d in i.attrs["dimensions"])
    return i, index


def _map(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    return e.call(i.attrs["to_apply"], [e.value(o, index, mask) for o in i.operands])[0]


RULES: Mapping[str, ElementRule] = MappingProxyType(
    {
        **dict.fromkeys(sorted(ELEMENTWISE), _elementwise),
        "compare": _compare,
        **INDEXING,
        **FOLDS,
        "map": _map,
        "bitcast-convert": bitcast_element,
    }
)
