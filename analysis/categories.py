"""What kind of work an operation is, in the few groups by which people read a profile."""

from __future__ import annotations

from collections.abc import Iterable

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import OPS

__all__ = ["category_of"]

#: Group by the family of the op set; a kernel that holds several operations belongs to the first group in this order.
_GROUPS = {
    "contraction": "matrix products",
    "convolution": "convolutions",
    "linalg": "linear algebra",
    "sort": "sorts",
    "indexing": "gathers and scatters",
    "window": "reductions",
    "reduction": "reductions",
    "random": "random numbers",
    "collective": "collectives",
    "elementwise": "elementwise",
    "shape": "data movement",
}
_ORDER = {group: n for n, group in enumerate(dict.fromkeys(_GROUPS.values()))}
_OTHER = "other"


def category_of(instruction: Instruction) -> str:
    """The group of an instruction; of a fusion, that of the costliest kind of operation in it.

    Example: a fusion of a ``dot`` and an ``add`` belongs to ``matrix products``.
    """
    inside: Iterable[Instruction] = instruction.attrs["calls"] if instruction.opcode == "fusion" else (instruction,)
    groups = (_GROUPS.get(i.opcode, _GROUPS.get(OPS[i.opcode].family, _OTHER)) for i in inside)
    return min(groups, key=lambda group: _ORDER.get(group, len(_ORDER)), default=_OTHER)
