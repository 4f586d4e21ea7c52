"""Float lanes with operators, so that formulas of complex functions read as formulas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from shardc.native.math import vector_math
from shardc.native.math.vector import I1, constant, intrinsic, lanes_of

__all__ = ["Lane", "Test"]

Pair = tuple["Lane", "Lane"]


@dataclass(frozen=True, slots=True, eq=False)
class Test:
    """A condition per lane."""

    b: ir.IRBuilder
    value: ir.Value

    def __and__(self, other: Test) -> Test:
        return Test(self.b, self.b.and_(self.value, other.value))

    def __or__(self, other: Test) -> Test:
        return Test(self.b, self.b.or_(self.value, other.value))

    def __invert__(self) -> Test:
        return Test(self.b, self.b.not_(self.value))

    def choose(self, yes: Lane, no: Lane | float) -> Lane:
        """``yes`` where the condition holds, ``no`` elsewhere."""
        return Lane(self.b, self.b.select(self.value, yes.value, yes.of(no)), yes.rough)

    def rarely(self, usual: Pair, otherwise: Callable[[], Pair]) -> Pair:
        """``usual``, or ``otherwise()`` if the condition holds in any lane: a branch, and code that seldom runs."""
        b, any_lane = self.b, self.value
        if lanes_of(any_lane.type) > 1:
            any_lane = intrinsic(b, "llvm.vector.reduce.or", I1, [any_lane])
        start = b.block
        with b.if_then(any_lane, likely=False):
            others = otherwise()
            end = b.block
        results = []
        for first, second in zip(usual, others, strict=True):
            result = b.phi(first.value.type)
            result.add_incoming(first.value, start)
            result.add_incoming(second.value, end)
            results.append(Lane(b, result, first.rough))
        return results[0], results[1]


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """A float per lane, f32 or f64; comparisons are false for NaN.

    ``rough`` f64 lanes will be rounded to f32 in the end, so that functions need not be good to the last bit.
    """

    b: ir.IRBuilder
    value: ir.Value
    rough: bool = False

    def of(self, other: Lane | float) -> ir.Value:
        """Another operand in this one's type."""
        return other.value if isinstance(other, Lane) else constant(self.value.type, other)

    def full(self, value: float) -> Lane:
        return self._new(constant(self.value.type, value))

    def __add__(self, other: Lane | float) -> Lane:
        return self._new(self.b.fadd(self.value, self.of(other)))

    def __sub__(self, other: Lane | float) -> Lane:
        return self._new(self.b.fsub(self.value, self.of(other)))

    def __rsub__(self, other: float) -> Lane:
        return self._new(self.b.fsub(self.of(other), self.value))

    def __mul__(self, other: Lane | float) -> Lane:
        return self._new(self.b.fmul(self.value, self.of(other)))

    def __truediv__(self, other: Lane | float) -> Lane:
        return self._new(self.b.fdiv(self.value, self.of(other)))

    def __rtruediv__(self, other: float) -> Lane:
        return self._new(self.b.fdiv(self.of(other), self.value))

    def __neg__(self) -> Lane:
        return self._new(self.b.fneg(self.value))

    def __abs__(self) -> Lane:
        return self._intrinsic("llvm.fabs")

    def __lt__(self, other: Lane | float) -> Test:
        return self._compare("<", other)

    def __gt__(self, other: Lane | float) -> Test:
        return self._compare(">", other)

    def __ge__(self, other: Lane | float) -> Test:
        return self._compare(">=", other)

    def is_(self, other: Lane | float) -> Test:
        """Equal."""
        return self._compare("==", other)

    def is_nan(self) -> Test:
        return Test(self.b, self.b.fcmp_unordered("uno", self.value, self.value))

    def is_infinite(self) -> Test:
        return abs(self).is_(float("inf"))

    def is_finite(self) -> Test:
        return abs(self) < float("inf")

    def sqrt(self) -> Lane:
        return self._intrinsic("llvm.sqrt")

    def with_sign(self, sign: Lane) -> Lane:
        """This magnitude with the sign of another."""
        return self._intrinsic("llvm.copysign", sign)

    def fma(self, factor: Lane, addend: Lane | float) -> Lane:
        """self * factor + addend, rounded once."""
        operands = [self.value, factor.value, self.of(addend)]
        return self._new(intrinsic(self.b, "llvm.fma", self.value.type, operands))

    def math(self, name: str, *others: Lane) -> Lane:
        """A function of `shardc.native.math.vector_math`."""
        return self._new(vector_math.call(self.b, name, self.value, *(o.value for o in others), rough=self.rough))

    def _new(self, value: ir.Value) -> Lane:
        return Lane(self.b, value, self.rough)

    def _intrinsic(self, name: str, *others: Lane) -> Lane:
        return self._new(intrinsic(self.b, name, self.value.type, [self.value, *(o.value for o in others)]))

    def _compare(self, sign: str, other: Lane | float) -> Test:
        return Test(self.b, self.b.fcmp_ordered(sign, self.value, self.of(other)))
