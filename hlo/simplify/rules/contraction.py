"""Transposes of a product's operands are part of how the product reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

from shardc.hlo.ir import Instruction
from shardc.hlo.types import Shape

__all__ = ["RULES"]

_SIDES = ("lhs", "rhs")


def dot_of_transpose(i: Instruction) -> Instruction | None:
    """``dot(transpose(x), y)`` reads x itself, where that leaves the order of the result's dimensions as it is."""
    operands, attrs = list(i.operands), dict(i.attrs)
    for n, side in enumerate(_SIDES):
        if operands[n].opcode != "transpose":
            continue
        moved, source = operands[n].attrs["dimensions"], operands[n].operands[0]
        batch, contracted = (
            tuple(moved[d] for d in attrs.get(f"{side}_{role}_dims", ())) for role in ("batch", "contracting")
        )
        taken = {*batch, *contracted}
        free = [d for d in moved if d not in taken]
        if free != sorted(free) or not all(_is_run(source.shape, dims) for dims in (free, contracted)):
            continue
        operands[n] = source
        attrs[f"{side}_contracting_dims"] = contracted
        if batch:
            attrs[f"{side}_batch_dims"] = batch
    if operands == list(i.operands):
        return None
    return i.replace(operands=operands, attrs=MappingProxyType(attrs))


def _is_run(shape: Shape, dims: Sequence[int]) -> bool:
    """Do ``dims`` follow one another in memory, so that a matrix product takes them as one dimension?"""
    long = [d for d in range(shape.rank) if shape.dims[d] != 1]
    places = [long.index(d) for d in dims if shape.dims[d] != 1]
    return all(b == a + 1 for a, b in pairwise(places))


RULES: Mapping[str, tuple[Callable[[Instruction], Instruction | None], ...]] = {"dot": (dot_of_transpose,)}
