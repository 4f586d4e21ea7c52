"""Index algebra: affine expressions over loop variables, with ranges.

Every array element that a kernel reads is addressed by an `Expr` per dimension: a constant plus loop variables times
integers. Division and remainder, which reshapes need, stay affine where divisibility and ranges allow; otherwise they
become variables of their own (`Quotient`, `Remainder`), as do values read from memory (`LoadedIndex`, such as the start
of a dynamic slice).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count

from shardc.hlo.ir.ir import Instruction

__all__ = [
    "Expr",
    "InRange",
    "LoadedIndex",
    "LoopVar",
    "Mask",
    "Quotient",
    "Remainder",
    "Rest",
    "Var",
    "VarSource",
    "condition",
]


class VarSource:
    """Numbers variables in the order made, so that every compilation of a kernel is the same."""

    def __init__(self) -> None:
        self._next = count()
        self._derived: dict[tuple[object, ...], Var] = {}

    def loop(self, size: int) -> LoopVar:
        return LoopVar(next(self._next), 0, size)

    def quotient(self, e: Expr, k: int) -> Var:
        low, high = e.range
        return self._make(("/", e, k), lambda: Quotient(next(self._next), low // k, (high - 1) // k + 1, e, k))

    def remainder(self, e: Expr, k: int) -> Var:
        return self._make(("%", e, k), lambda: Remainder(next(self._next), 0, k, e, k))

    def load_index(self, key: tuple[object, ...], low: int, high: int, what: LoadedElement) -> Var:
        """A run-time integer, clamped to [low, high)."""
        return self._make(("load", *key, low, high), lambda: LoadedIndex(next(self._next), low, high, what))

    def _make(self, key: tuple[object, ...], make: Callable[[], Var]) -> Var:
        found = self._derived.get(key)
        if found is None:
            found = self._derived[key] = make()
        return found


class Var:
    """A run-time integer in [low, high)."""

    __slots__ = ("high", "low", "number")

    def __init__(self, number: int, low: int, high: int) -> None:
        self.number = number
        self.low = low
        self.high = high

    @property
    def size(self) -> int:
        return self.high - self.low

    def __repr__(self) -> str:
        return f"v{self.number}"


class LoopVar(Var):
    """A loop's counter (or a part of one, when a dimension is split)."""

    __slots__ = ()


class Quotient(Var):
    """``of // divisor``, where that is not affine."""

    __slots__ = ("divisor", "of")

    def __init__(self, number: int, low: int, high: int, of: Expr, divisor: int) -> None:
        super().__init__(number, low, high)
        self.of = of
        self.divisor = divisor


class Remainder(Quotient):
    """``of % divisor``, where that is not affine."""

    __slots__ = ()


class LoadedIndex(Var):
    """An integer read at run time; ``what`` tells the element emitter how."""

    __slots__ = ("what",)

    def __init__(self, number: int, low: int, high: int, what: LoadedElement) -> None:
        super().__init__(number, low, high)
        self.what = what


class Expr:
    """``const + sum(coefficient * variable)``; immutable, hashable."""

    __slots__ = ("_hash", "const", "terms")

    def __init__(self, const: int = 0, terms: tuple[tuple[Var, int], ...] = ()) -> None:
        self.const = const
        self.terms = terms
        self._hash = hash((const, tuple((v.number, c) for v, c in terms)))

    @staticmethod
    def of(v: Var) -> Expr:
        return Expr(v.low) if v.size == 1 else Expr(0, ((v, 1),))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self.const == other.const and self.terms == other.terms

    def __add__(self, other: Expr | int) -> Expr:
        if isinstance(other, int):
            return self if other == 0 else Expr(self.const + other, self.terms)
        if not other.terms:
            return self + other.const
        if not self.terms:
            return other + self.const
        total = dict(self.terms)
        for v, c in other.terms:
            total[v] = total.get(v, 0) + c
        kept = [(v, c) for v, c in total.items() if c]
        kept.sort(key=lambda t: t[0].number)
        return Expr(self.const + other.const, tuple(kept))

    def __mul__(self, k: int) -> Expr:
        if k == 1:
            return self
        if k == 0:
            return Expr()
        return Expr(self.const * k, tuple((v, c * k) for v, c in self.terms))

    def __sub__(self, other: Expr | int) -> Expr:
        return self + other * -1

    def coefficient(self, v: Var) -> int:
        return next((c for w, c in self.terms if w is v), 0)

    @property
    def range(self) -> tuple[int, int]:
        """All values lie in [low, high)."""
        low = high = self.const
        for v, c in self.terms:
            ends = (c * v.low, c * (v.high - 1))
            low += min(ends)
            high += max(ends)
        return low, high + 1

    def variables(self) -> Iterable[Var]:
        return (v for v, _ in self.terms)

    def substitute(self, by: Mapping[Var, Expr]) -> Expr:
        """Replace loop variables."""
        if not any(v in by for v, _ in self.terms):
            return self
        total = Expr(self.const)
        for v, c in self.terms:
            total = total + (by[v] * c if v in by else Expr(0, ((v, c),)))
        return total

    def __repr__(self) -> str:
        return " + ".join([str(self.const), *(f"{c}*{v}" for v, c in self.terms)])


def divmod_expr(source: VarSource, e: Expr, k: int) -> tuple[Expr, Expr]:
    """Floor quotient and remainder of ``e >= 0`` by ``k``; affine where possible."""
    if k == 1:
        return e, Expr()
    whole = Expr(e.const - e.const % k, tuple((v, c) for v, c in e.terms if c % k == 0))
    rest = Expr(e.const % k, tuple((v, c) for v, c in e.terms if c % k))
    low, high = rest.range
    if low >= 0 and high <= k:
        return Expr(whole.const // k, tuple((v, c // k) for v, c in whole.terms)), rest
    if low < 0:
        whole, rest = Expr(), e
    quotient = Expr(whole.const // k, tuple((v, c // k) for v, c in whole.terms))
    return quotient + Expr.of(source.quotient(rest, k)), Expr.of(source.remainder(rest, k))


def linear(indices: Sequence[Expr], dims: Sequence[int]) -> Expr:
    """Row-major position of a multi-index; quotients and remainders of one value join again."""
    total = Expr()
    for e, n in zip(indices, dims, strict=True):
        total = total * n + e
    while (joined := _join_remainder(total)) is not None:
        total = joined
    return total


def _join_remainder(total: Expr) -> Expr | None:
    """``total`` with ``(e // k) * k * c + (e % k) * c`` as ``e * c``; None where there is no such pair."""
    for v, c in total.terms:
        if isinstance(v, Remainder):
            for w, d in total.terms:
                if isinstance(w, Quotient) and not isinstance(w, Remainder) and w.of == v.of and d == c * w.divisor:
                    rest = Expr(total.const, tuple(t for t in total.terms if t[0] not in (v, w)))
                    return rest + v.of * c
    return None


def delinearise(source: VarSource, position: Expr, dims: Sequence[int]) -> tuple[Expr, ...]:
    """The multi-index of a row-major position."""
    out: list[Expr] = []
    for number in range(len(dims) - 1, -1, -1):
        if number == 0:
            out.append(position)
        else:
            position, rest = divmod_expr(source, position, dims[number])
            out.append(rest)
    return tuple(reversed(out))


class InRange:
    """``low <= expr < high``."""

    __slots__ = ("_hash", "expr", "high", "low")

    def __init__(self, expr: Expr, low: int, high: int) -> None:
        self.expr = expr
        self.low = low
        self.high = high
        self._hash = hash((expr, low, high))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, InRange) and self.low == other.low and self.high == other.high and self.expr == other.expr
        )

    def __repr__(self) -> str:
        return f"{self.low} <= {self.expr} < {self.high}"


class Rest(InRange):
    """The lanes of a last, partly filled vector that exist: ranges say nothing about the others."""

    __slots__ = ()


#: Lanes for which all conditions hold are wanted; the others may hold anything, but must not fault.
Mask = tuple[InRange, ...]

#: What is read for an index at run time: an element of an instruction, under a mask.
LoadedElement = tuple[Instruction, tuple[Expr, ...], Mask]


def condition(expr: Expr, low: int, high: int) -> InRange | bool:
    """The condition, or its truth where the ranges decide it."""
    least, past = expr.range
    if low <= least and past <= high:
        return True
    if past <= low or least >= high:
        return False
    return InRange(expr, low, high)
