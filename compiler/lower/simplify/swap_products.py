"""Swap products: a product that is only read transposed is the product of its operands the other way round."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation, users_of
from shardc.hlo.ir.make import make, map_computations

__all__ = ["SwapProducts"]


@dataclass(frozen=True, slots=True)
class SwapProducts:
    """``transpose(dot(x, y))``, with nobody else reading the product, is ``dot(y, x)``."""

    name: str = "swap-products"
    why: str = "a product is written in the order in which it is read, without a transposition"
    looks_at: ClassVar[frozenset[str]] = frozenset({"dot"})

    def run(self, module: Module) -> Module:
        return map_computations(module, _swapped)


def _swapped(computation: Computation) -> Computation:
    users = users_of(computation)
    swaps = {
        i
        for i in computation
        if i.opcode == "transpose"
        and i.operands[0].opcode == "dot"
        and len(users[i.operands[0]]) == 1
        and i.operands[0] is not computation.root
        and i.attrs["dimensions"] == _other_order(i.operands[0])
    }
    if not swaps:
        return computation

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        return _other_way(old, operands[0]) if old in swaps else None

    return rebuild_computation(computation, change)


def _other_order(dot: Instruction) -> tuple[int, ...]:
    """The transposition of the result that exchanging the operands makes."""
    a = dot.attrs
    batch = len(a.get("lhs_batch_dims", ()))
    left = batch + dot.operands[0].shape.rank - batch - len(a.get("lhs_contracting_dims", ()))
    return (*range(batch), *range(left, dot.shape.rank), *range(batch, left))


def _other_way(transpose: Instruction, dot: Instruction) -> Instruction:
    attrs = dict(dot.attrs)
    for role in ("batch", "contracting"):
        names = (f"lhs_{role}_dims", f"rhs_{role}_dims")
        attrs |= {mine: dot.attrs.get(other, ()) for mine, other in zip(names, reversed(names), strict=True)}
    if "operand_precision" in attrs:
        attrs["operand_precision"] = tuple(reversed(attrs["operand_precision"]))
    return make("dot", transpose.shape, reversed(dot.operands), dot).replace(attrs=MappingProxyType(attrs))
