"""Expand powers: of a constant exponent that is a small multiple of a half, products, roots and their reciprocals.

A power is an exponential of a logarithm, in twice the precision. ``x ** -1.5`` stays one: elements have a short way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import broadcast_scalar, constant, make, scalar_value
from shardc.hlo.simplify.signs import is_positive

__all__ = ["ExpandPowers"]

#: Exponents, times two, whose roundings stay within four units in the last place.
_HALVES = frozenset({-4, -2, -1, 1, 2, 3, 4, 6, 8})


@dataclass(frozen=True, slots=True)
class ExpandPowers:
    """``power`` with exponents such as 3, -1, 0.5 and -0.5, of f32 and f64; special values as before."""

    name: str = "expand-powers"
    why: str = "a few products and a root take a tenth of a power's time"
    looks_at: ClassVar[frozenset[str]] = frozenset({"power"})

    def run(self, module: Module) -> Module:
        return rebuild_module(module, _expanded, self.looks_at)


def _expanded(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    x, exponent = operands
    value = scalar_value(exponent)
    if value is None or old.shape.dtype.name not in ("f32", "f64") or 2 * float(value) not in _HALVES:
        return None
    halves = abs(int(2 * float(value)))
    count, odd = divmod(halves, 2)
    if not odd:
        return _product(_inverse(x, old) if value < 0 else x, count, old)
    positive = x if is_positive(x) else _with_magnitude(x, old)
    if value < 0:
        return make("rsqrt", old.shape, (positive,), old)
    root = make("sqrt", old.shape, (positive,), old)
    return make("multiply", old.shape, (root, _product(positive, count, old)), old) if count else root


def _product(x: Instruction, count: int, like: Instruction) -> Instruction:
    """``x`` to the power of ``count``, at least 1."""
    half, odd = divmod(count, 2)
    if not half:
        return x
    root = _product(x, half, like)
    square = make("multiply", like.shape, (root, root), like)
    return make("multiply", like.shape, (square, x), like) if odd else square


def _inverse(x: Instruction, like: Instruction) -> Instruction:
    return make("divide", like.shape, (_number(1, like), x), like)


def _number(value: float, like: Instruction) -> Instruction:
    scalar = constant(Literal(np.array(value, like.shape.dtype.numpy)), like)
    return broadcast_scalar(scalar, like.shape.dims, like)


def _with_magnitude(x: Instruction, like: Instruction) -> Instruction:
    """Infinity for -infinity, 0 for -0: powers of these are no roots of theirs."""
    size = make("abs", like.shape, (x,), like)
    mask = like.shape.with_dtype("pred")
    endless = make("compare", mask, (size, _number(np.inf, like)), like, direction="EQ")
    none = make("compare", mask, (size, _number(0, like)), like, direction="EQ")
    return make("select", like.shape, (make("or", mask, (endless, none), like), size, x), like)
