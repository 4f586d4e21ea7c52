"""Split reductions: few long ones become many shorter ones, and one of their results.

``sum(x: f32[4096,4096])`` is one number, and one thread's work. As ``sum(sum(x, 1), 0)`` it is 4096 sums that threads
share, and a short one. Sums of columns are split by rows, so that each part reads rows as they lie.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from shardc.compiler.lower.simplify.reduction_parts import ReductionParts, Views, cut_reduction, part_reduction
from shardc.compiler.lower.simplify.whole_reductions import extreme_of, mean_of, part_extreme, part_variance
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation, users_of
from shardc.hlo.ir.make import map_computations
from shardc.hlo.ir.reducers import identity_of

__all__ = ["SplitReductions"]

#: Writes a reduction in parts, from its new operands.
_Write = Callable[[tuple[Instruction, ...], ReductionParts, Views], Instruction]


@dataclass(frozen=True, slots=True)
class SplitReductions:
    """``reduce`` of much to few is a ``reduce`` to some parts and a ``reduce`` of those; a fixed tree of two levels."""

    name: str = "split-reductions"
    why: str = "a long reduction is done in parts that are independent of each other"
    looks_at: ClassVar[frozenset[str]] = frozenset({"reduce"})

    def run(self, module: Module) -> Module:
        return map_computations(module, _split_all)


def _split_all(computation: Computation) -> Computation:
    views = Views(users_of(computation))
    splits: dict[Instruction, tuple[_Write, ReductionParts]] = {}
    for i in computation:
        parts = cut_reduction(i) if i.opcode == "reduce" else None
        write = None if parts is None else _way_of(i, views)
        if parts is not None and write is not None:
            splits[i] = write, parts
    if not splits:
        return computation

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        views.note(old.operands, operands)
        if old not in splits:
            return None
        write, parts = splits[old]
        return write(operands, parts, views)

    return rebuild_computation(computation, change)


def _way_of(i: Instruction, views: Views) -> _Write | None:
    """How a reduction is written in parts; None where the reducer minds the order."""
    if i.shape.is_tuple:
        extreme = extreme_of(i)
        return None if extreme is None else partial(part_extreme, i, extreme)
    if identity_of(i.attrs["to_apply"], i.operands[0].shape.dtype) is None:
        return None
    mean = mean_of(i, views.users)
    return partial(part_reduction, i) if mean is None else partial(part_variance, i, mean)
