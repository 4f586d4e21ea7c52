"""Results that are not finite, noticed while a kernel computes them a fast way, so that it then takes an exact one."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from shardc.compiler.cpu.convolutions.blocks import add_by_tree
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.native.math.vector import I1, intrinsic, lanes_of, zero

__all__ = ["FiniteWatch"]


class FiniteWatch:
    """Whether all the floating-point values (or vectors) of type ``t`` seen since `start` were finite.

    A zero times any of them is added up: that stays zero until an infinity or NaN makes it NaN for good. Finite values
    that add up to an infinity are taken for one, which costs time only.
    """

    def __init__(self, e: CpuEmitter, t: ir.Type) -> None:
        self._t = t
        self._sum = e.slot(t)

    def start(self, b: ir.IRBuilder) -> None:
        """Nothing has been seen."""
        b.store(zero(self._t), self._sum)

    def see(self, b: ir.IRBuilder, values: Sequence[ir.Value]) -> None:
        """Code that looks at ``values`` (at least one)."""
        nothing = b.fmul(add_by_tree(values, b.fadd), zero(self._t))
        b.store(b.fadd(b.load(self._sum), nothing), self._sum)

    def alarm(self, b: ir.IRBuilder) -> ir.Value:
        """Whether any value seen was not finite, as an i1."""
        found = b.load(self._sum)
        bad = b.fcmp_unordered("uno", found, found)
        return intrinsic(b, "llvm.vector.reduce.or", I1, [bad]) if lanes_of(self._t) > 1 else bad
