"""Arithmetic of a lowered program: products by type, and which of them are computed a second time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shardc.hlo.ir import Instruction
from shardc.partitioner.roofline import products_of

__all__ = ["Done", "is_again", "products_in"]

#: What JAX calls the part of a name stack in which a checkpoint's values are computed again.
_AGAIN = "rematted_computation"


@dataclass(frozen=True, slots=True)
class Done:
    """Operations of one product, by the peak that holds for it; ``again`` if they are rematerialisation's."""

    rate: str
    flops: int
    again: bool


def products_in(i: Instruction) -> Iterator[Done]:
    """The products in a kernel: itself, or those that are fused in it."""
    for op in i.attrs["calls"] if i.opcode == "fusion" else (i,):
        for product in products_of(op):
            yield Done(product.rate, product.flops, is_again(op))


def is_again(i: Instruction) -> bool:
    """Was ``i`` computed before, in the forward pass?"""
    return i.metadata is not None and _AGAIN in i.metadata.op_name
