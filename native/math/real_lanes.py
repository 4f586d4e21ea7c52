"""Float lanes with operators, so that formulas of elementary functions read as formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.native.math.vector import constant, intrinsic

__all__ = ["Condition", "Real", "on_values"]


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A truth value per lane."""

    b: ir.IRBuilder
    value: ir.Value

    def __and__(self, other: Condition) -> Condition:
        return Condition(self.b, self.b.and_(self.value, other.value))

    def __or__(self, other: Condition) -> Condition:
        return Condition(self.b, self.b.or_(self.value, other.value))

    def choose(self, yes: Real, no: Real | float) -> Real:
        """``yes`` where the condition holds, ``no`` elsewhere."""
        return Real(self.b, self.b.select(self.value, yes.value, yes.of(no)))


@dataclass(frozen=True, slots=True, eq=False)
class Real:
    """A float per lane; comparisons are false for NaN."""

    b: ir.IRBuilder
    value: ir.Value

    def of(self, other: Real | float) -> ir.Value:
        """Another operand in this one's type."""
        return other.value if isinstance(other, Real) else constant(self.value.type, other)

    def full(self, value: float) -> Real:
        return Real(self.b, constant(self.value.type, value))

    def __add__(self, other: Real | float) -> Real:
        return Real(self.b, self.b.fadd(self.value, self.of(other)))

    def __sub__(self, other: Real | float) -> Real:
        return Real(self.b, self.b.fsub(self.value, self.of(other)))

    def __rsub__(self, other: float) -> Real:
        return Real(self.b, self.b.fsub(self.of(other), self.value))

    def __mul__(self, other: Real | float) -> Real:
        return Real(self.b, self.b.fmul(self.value, self.of(other)))

    def __truediv__(self, other: Real | float) -> Real:
        return Real(self.b, self.b.fdiv(self.value, self.of(other)))

    def __rtruediv__(self, other: float) -> Real:
        return Real(self.b, self.b.fdiv(self.of(other), self.value))

    def __neg__(self) -> Real:
        return Real(self.b, self.b.fneg(self.value))

    def __abs__(self) -> Real:
        return self._intrinsic("llvm.fabs")

    def __lt__(self, other: Real | float) -> Condition:
        return self._compare("<", other)

    def __gt__(self, other: Real | float) -> Condition:
        return self._compare(">", other)

    def __ge__(self, other: Real | float) -> Condition:
        return self._compare(">=", other)

    def is_(self, other: Real | float) -> Condition:
        """Equal."""
        return self._compare("==", other)

    def is_nan(self) -> Condition:
        return Condition(self.b, self.b.fcmp_unordered("uno", self.value, self.value))

    def clamped(self, low: float, high: float) -> Real:
        """Inside [low, high]; NaN becomes ``low``."""
        x = (self > low).choose(self, low)
        return (x < high).choose(x, high)

    def sqrt(self) -> Real:
        return self._intrinsic("llvm.sqrt")

    def signed(self, sign: Real) -> Real:
        """This magnitude with the sign of another."""
        return self._intrinsic("llvm.copysign", sign)

    def times_plus(self, factor: Real | float, addend: Real | float) -> Real:
        """self * factor + addend, fused where the target can."""
        return self._ternary("llvm.fmuladd", factor, addend)

    def fused(self, factor: Real | float, addend: Real | float) -> Real:
        """self * factor + addend, rounded once on any target."""
        return self._ternary("llvm.fma", factor, addend)

    def polynomial(self, coefficients: Sequence[float]) -> Real:
        """By Horner's rule, highest power first."""
        total = self.full(coefficients[0])
        for c in coefficients[1:]:
            total = total.times_plus(self, c)
        return total

    def _ternary(self, name: str, factor: Real | float, addend: Real | float) -> Real:
        operands = [self.value, self.of(factor), self.of(addend)]
        return Real(self.b, intrinsic(self.b, name, self.value.type, operands))

    def _intrinsic(self, name: str, *others: Real) -> Real:
        return Real(self.b, intrinsic(self.b, name, self.value.type, [self.value, *(o.value for o in others)]))

    def _compare(self, sign: str, other: Real | float) -> Condition:
        return Condition(self.b, self.b.fcmp_ordered(sign, self.value, self.of(other)))


def on_values(f: Callable[..., Real]) -> Callable[..., ir.Value]:
    """A function of `Real` as one of a builder and LLVM values."""

    def rule(b: ir.IRBuilder, *operands: ir.Value) -> ir.Value:
        return f(*(Real(b, x) for x in operands)).value

    return rule
