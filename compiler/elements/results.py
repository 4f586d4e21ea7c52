"""What a kernel computes, as elements: one per result leaf."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.compiler.elements.affine import Expr, Mask
from shardc.compiler.elements.elements import Element, Elements, Index
from shardc.compiler.lower.fuse.fusion_rules import long_dims
from shardc.compiler.lower.fuse.row_space import roots_of
from shardc.hlo.ir.ir import Computation, Instruction

__all__ = ["elements_of", "with_dims"]


def elements_of(computation: Computation) -> tuple[Element, ...]:
    """What fills each result of a kernel that computes ``computation`` on its operands."""
    return tuple(
        _element(r, n if r.shape.is_tuple else None)
        for r in roots_of(computation)
        for n, _ in enumerate(r.shape.leaves())
    )


def _element(i: Instruction, part: int | None) -> Element:
    def get(e: Elements, index: Index, mask: Mask) -> object:
        value = e.value(i, index, mask)
        return value if part is None else value[part]

    return get


def with_dims(index: Index, dims: Sequence[int], target: Sequence[int]) -> Index:
    """An index into ``dims`` as one into ``target``, which differs in dimensions of one element only."""
    assert long_dims(tuple(dims)) == long_dims(tuple(target)), f"{dims} and {target}"
    along = iter(x for x, n in zip(index, dims, strict=True) if n != 1)
    return tuple(Expr() if n == 1 else next(along) for n in target)
