"""The table of element rules: everything that loop kernels, and the inside of fusions, can compute."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from shardc.compiler.elements.affine import Mask
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


def _map(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    return e.call(i.attrs["to_apply"], [e.value(o, index, mask) for o in i.operands])[0]


RULES: Mapping[str, ElementRule] = MappingProxyType(
    {
        **dict.fromkeys(sorted(ELEMENTWISE), _elementwise),
        **INDEXING,
        **FOLDS,
        "map": _map,
        "bitcast-convert": bitcast_element,
    }
)
